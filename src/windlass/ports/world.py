"""Everything that a run touches, and the run that a sub-agent works for."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from windlass.core.errors import WorkspaceMissing
from windlass.core.events import Delta, Event, KnowledgeRecalled, NestedEvent
from windlass.core.messages import CallOutcome, Label, ToolResult, ToolSpec
from windlass.core.schema import JsonSchema
from windlass.core.secrets.mask import Mask
from windlass.core.state import State
from windlass.core.work_folder import WorkFolder
from windlass.ports.gates import Approver, Gate
from windlass.ports.journals import BlobStore, Journal
from windlass.ports.models import Model, RequestGovernor, Timeouts
from windlass.ports.tools import CallContext, CallRequests, Tools


class Clock(Protocol):
    """Time and random numbers."""

    def now(self) -> float:
        """Return the seconds since the epoch."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait. It can be cancelled."""
        ...

    def random_fraction(self) -> float:
        """Return a random number from 0 to 1."""
        ...


class WorkFolders(Protocol):
    """A store of folders that callers work in, each in one of its own."""

    def create(self, caller: str) -> WorkFolder:
        """Return the folder of a caller, made if it does not exist. Raises ConfigError."""
        ...

    def find(self, folder: WorkFolder) -> Path | None:
        """Return the path of a folder; None if this store does not have it."""
        ...

    def read_id(self) -> str:
        """Return the id of this store; empty if it holds no folder yet."""
        ...


Watcher = Callable[[Event], None]
"""Receives every event of a run; must return at once."""

Recaller = Callable[[str], Awaitable[KnowledgeRecalled]]
"""Finds what is known about a prompt. If it raises, a warning is logged and nothing is known."""


class World(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a run touches."""

    models: Mapping[str, Model]
    """By name: the main model, its fallbacks, and the one that writes summaries."""
    tools: Tools
    gate: Gate | None
    journal: Journal
    clock: Clock
    timeouts: Timeouts
    schemas: Mapping[str, JsonSchema]
    """The compiled schema of each tool, by name."""
    approver: Approver | None = None
    recall: Recaller | None = None
    blobs: BlobStore | None = None
    """Where tools keep what is too long for a result: the blobs of the journal, not its facts."""
    agent: str = ""
    """The name of the agent, for the gate."""
    lineage: tuple[str, ...] = ()
    """The agents that this one works for, the outermost first."""
    governor: RequestGovernor | None = None
    """Holds requests to providers back; None: each is made at once."""
    make_requests: "Callable[[CallerRun, str, CallContext], CallRequests] | None" = None
    """Makes what a running call of this id may ask with; None: calls cannot ask for anything."""
    nest_calls: "Callable[[CallerRun, NestingCall], NestedCalls] | None" = None
    """Prepares the session for the calls that the code of a call makes; None: code makes none."""
    run: "CallerRun | None" = None
    """The run that this is the world of; None outside of one."""
    check_output: Callable[[str], str | None] | None = None
    """Returns what is wrong with a final reply, in words for the model; None if it fits."""
    folders: WorkFolders | None = None
    """Where the folders of callers are; None if there are none."""

    def find_folder(self, folder: WorkFolder) -> Path:
        """Return the path of a folder that a run recorded. Raises WorkspaceMissing."""
        found = self.folders.find(folder) if self.folders is not None else None
        if found is None:
            raise WorkspaceMissing(
                f"the session works in the folder {folder.name} of the store {folder.store}, which "
                "is not on this machine: go on where it is, or give this process the same "
                "workspace_store"
            )
        return found


class ChildRun(Protocol):
    """The run of a sub-agent, as seen by the run that it works for."""

    def release(self, reason: str, grace_s: float, reply_s: float = 0.0) -> None:
        """Release the run after its running calls, or after `grace_s` seconds.

        A reply that is being written gets `reply_s` seconds.
        """
        ...

    def pause(self, reason: str, by: str) -> None:
        """Pause the run before its next step."""
        ...

    def end_pause(self, by: str) -> None:
        """Resume the run after a pause."""
        ...

    def raise_limits(self, by: str) -> None:
        """Take a share of the limits of the caller's run, which were raised."""
        ...

    def take_snapshot(self) -> Iterable[NestedEvent]:
        """Return a mark of its facts, its reply so far, and the same of its own sub-agents."""
        ...


def _ignore_child(_child: ChildRun) -> None:
    """Ignore the sub-agent: no caller sends messages to the run."""


async def _ignore_pause(_reason: str, _by: str) -> None:
    """No run can be paused."""


class NestedCall(msgspec.Struct, frozen=True):
    """A call that the code of a call makes."""

    name: str
    arguments: str
    """A JSON object."""


class NestingCall(msgspec.Struct, frozen=True):
    """A call whose code makes calls."""

    context: CallContext
    call_id: str
    name: str
    """The name of its tool."""
    code: str


class CallScript(Protocol):
    """Code that makes calls, one after another."""

    async def next_call(self, last: ToolResult | None) -> NestedCall | None:
        """Give the code the result of its last call; return its next one, or None at its end."""
        ...


class NestedOutcome(msgspec.Struct, frozen=True):
    """What the calls of some code came to."""

    calls: tuple[CallOutcome, ...]
    """All calls that were judged, with their outcomes."""
    started: frozenset[str]
    """The ids of the calls that had started."""
    labels: frozenset[Label]
    """What their results brought along."""


class NestedCalls(Protocol):
    """The calls that the code of one call makes: a session of its own, which works for the run."""

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools that the code may call."""
        ...

    async def run(self, script: CallScript) -> None:
        """Judge, record and run the calls of a script until its end. A cancel ends them, too."""
        ...

    async def read_outcome(self) -> NestedOutcome:
        """Return what was called so far."""
        ...

    async def end(self) -> None:
        """End what another driver left open."""
        ...


class CallerRun(msgspec.Struct, frozen=True):
    """The run that a sub-agent works for. Only the tools of sub-agents are given it."""

    world: World
    mask: Mask
    read_state: Callable[[], State]
    """Return the state of the caller's session now."""
    show_delta: Callable[[Delta], None]
    """Show an event to the watchers of the caller's run."""
    add_child: Callable[[ChildRun], None] = _ignore_child
    """Let what is asked of the caller's run reach the run of a sub-agent."""
    remove_child: Callable[[ChildRun], None] = _ignore_child
    pause_run: Callable[[str, str], Awaitable[None]] = _ignore_pause
    """Pause the caller's run, for this reason and in this name: a call below it is parked."""

    def find_folder(self) -> Path | None:
        """Return the folder that the tools of the run work in; None for their agent's own.

        Raises WorkspaceMissing.
        """
        folder = self.read_state().folder
        return None if folder is None else self.world.find_folder(folder)


@runtime_checkable
class RunBoundTools(Protocol):
    """Tools of which some work for a run as a whole: those that give tasks to sub-agents."""

    def bind_run(self, run: CallerRun) -> Tools:
        """Return the same tools for one run."""
        ...
