"""Everything that a run touches: the port to language models, and all ports together as `World`."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from windlass.core.errors import Fault, WorkspaceMissing
from windlass.core.events import Delta, Event, KnowledgeRecalled, NestedEvent, ReplyPiece
from windlass.core.messages import CallOutcome, ContentPart, Label, ToolResult, ToolSpec
from windlass.core.rate_limits import RateLimits
from windlass.core.schema import JsonSchema
from windlass.core.secrets.mask import Mask
from windlass.core.setup import ModelInfo, WorkFolder
from windlass.core.state import State
from windlass.core.suggestions import SettingsStruct
from windlass.core.view import Prompt
from windlass.ports.gates import Approver, Gate
from windlass.ports.journals import BlobStore, Journal
from windlass.ports.tools import CallContext, CallRequests, Tools


class Model(Protocol):
    """A language model behind one wire format."""

    @property
    def info(self) -> ModelInfo:
        """What the model is: its name, price, window and abilities."""
        ...

    def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:
        """Make one request and stream its pieces.

        Raises ModelError. It must not retry: the loop decides about retries, and records them.
        """
        ...


class BatchingModel(Model, Protocol):
    """A model that knows which pieces came together, such as in one read from a socket."""

    def stream_batches(self, prompt: Prompt) -> AsyncGenerator[tuple[ReplyPiece, ...]]:
        """Stream what `stream` would, with the pieces that came together in one batch.

        Watchers still receive the pieces one by one. A batch costs less to pass on.
        """
        ...


@runtime_checkable
class RefusesContent(Protocol):
    """A model that knows before a request which content it cannot take."""

    def content_refusal(self, parts: Sequence[ContentPart]) -> str | None:
        """Return why the model cannot take one of these parts, for users; None if it takes all."""
        ...


@runtime_checkable
class RateLimitedModel(Protocol):
    """A model whose provider limits the rate of requests."""

    @property
    def quota_key(self) -> str:
        """The quota that its requests count against: models with the same key share it."""
        ...


class RequestPermit(Protocol):
    """Lets one request be made, and hears what the provider says to it."""

    def note_opened(self, limits: RateLimits | None) -> None:
        """Note that the provider took the request, and what it said about its limits."""
        ...

    def close(self, fault: Fault | None, limits: RateLimits | None = None) -> None:
        """Note that the request is over; with its fault if it failed, None if not or if unknown."""
        ...


class RequestGovernor(Protocol):
    """Holds requests back so that providers need not refuse them."""

    def try_admit(self, key: str, tokens: int) -> RequestPermit | None:
        """Admit a request at once, or return None: then `admit` waits for its turn."""
        ...

    async def admit(
        self, key: str, tokens: int, *, group: str = "", priority: int = 0
    ) -> RequestPermit:
        """Wait until a request that needs `tokens` tokens may be made.

        Groups are served in turns, those of a higher priority first. Cancelling gives up the place.
        """
        ...


class Timeouts(SettingsStruct, frozen=True, kw_only=True):
    """How long a model may be silent, in seconds. None waits forever."""

    connect_s: float | None = 10.0
    first_byte_s: float | None = 120.0
    """From the request to the first piece of content."""
    idle_s: float | None = 90.0
    """Between two pieces of content; keep-alives do not count as content."""
    step_s: float | None = None
    """For a whole attempt at a step."""


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
                "is not on this machine: continue there, or configure this process with the same "
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
        """Return a mark of its facts and its reply so far, and of those of its sub-agents."""
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
    """The calls that the code of one call makes: its own session, which works for the run."""

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
