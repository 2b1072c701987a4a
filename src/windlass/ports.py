"""The seams: everything that the loop needs of the world, as small protocols.

Each has a conformance suite in `windlass.testing`; what passes it can be plugged in.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from windlass.core.events import Delta, Event, Fact, KnowledgeRecalled, ReplyPiece
from windlass.core.limits import Amount, Budget
from windlass.core.messages import Charge, Label, ToolResult, ToolSpec
from windlass.core.moves import ClearedCall
from windlass.core.result import Question
from windlass.core.schema import JsonSchema
from windlass.core.secrets.mask import Mask
from windlass.core.setup import ModelInfo
from windlass.core.verdicts import Allow, Deny, Grant, PersonAnswer, Verdict
from windlass.core.view import Prompt


class Model(Protocol):
    """A language model behind one wire."""

    @property
    def info(self) -> ModelInfo: ...

    def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:
        """Make one request and stream its pieces; raise ModelError, and never ask again."""
        ...


class GateRequest(msgspec.Struct, frozen=True):
    """A call that a gate must judge."""

    session: str
    call_id: str
    tool: ToolSpec
    arguments: Mapping[str, Any]
    labels: frozenset[Label] = frozenset()
    """What the session has come to hold by what was called in it."""
    sources: Mapping[Label, str] = {}
    """Which call first brought each label, in words."""
    grants: tuple[Grant, ...] = ()
    """What a person allowed for the rest of this session."""
    agent: str = ""
    caller: str = ""
    """On whose behalf the agent runs."""
    context: Mapping[str, Any] = {}
    """What the program that runs the agent says; no model and no tool can write it."""


class Gate(Protocol):
    """Who says what may happen. A gate that raises has denied."""

    @property
    def name(self) -> str:
        """Tells this policy from another: a resumed run is checked against it."""
        ...

    @property
    def judges_replies(self) -> bool: ...

    async def judge(self, request: GateRequest) -> Verdict: ...

    async def judge_reply(self, session: str, text: str) -> Allow | Deny: ...


def _ignore_charges(_charges: Sequence[Charge]) -> None:
    """Nobody keeps the books."""


def _ignore_delta(_delta: Delta) -> None:
    """Nobody watches."""


def _no_earlier_result(_call_id: str) -> ToolResult | None:
    """Nothing came before."""


class CallContext(msgspec.Struct, frozen=True):
    """What a running call may know of its run."""

    session: str
    run: int
    report: Callable[[str], None]
    """Show progress to whoever watches."""
    on_late_result: Callable[[ToolResult], None]
    """Hand in a result that came when the call had been given up."""
    report_charges: Callable[[Sequence[Charge]], None] = _ignore_charges
    """Say what the call has paid to models in all so far; it counts as the run's own."""
    earlier_result: Callable[[str], ToolResult | None] = _no_earlier_result
    """The result of an earlier call of the session, by the call's id."""
    remaining: Amount = Amount()
    """What the call may spend on models: its part of what the run has left."""
    budgets: tuple[Budget, ...] = ()
    """What the run shares with others; whoever works for it does too."""
    mask_text: Callable[[str], str] = str
    """A text without its secrets, for what is kept beside the records."""
    mask: Mask | None = None
    """What the run must not let be seen; whoever works for it must not either."""
    show_delta: Callable[[Delta], None] = _ignore_delta
    """Show an event to whoever watches the run."""
    caller: str = ""
    trusted_context: Mapping[str, Any] = {}
    """What the program that runs the agent says; for the gates of those who work for it."""
    labels: frozenset[Label] = frozenset()
    """What the session has come to hold."""
    world: "World | None" = None
    """The world of the run, for an agent that works for it."""
    blobs: "BlobStore | None" = None
    """Where what is too long for a result can be kept with the session."""


ReconcileOutcome = ToolResult | Literal["not_done", "unknown"]


class Tools(Protocol):
    """What the model may use. A tool that fails has a result; `run` raises only when cancelled."""

    @property
    def specs(self) -> tuple[ToolSpec, ...]: ...

    def resource_of(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        """What a call would change: calls that name different resources may run side by side."""
        ...

    def run(
        self, cleared: ClearedCall, context: CallContext
    ) -> Coroutine[Any, Any, ToolResult]: ...

    async def reconcile(self, cleared: ClearedCall, context: CallContext) -> ReconcileOutcome:
        """Find out what became of a write that was interrupted."""
        ...


@runtime_checkable
class RecoverableTools(Protocol):
    """Tools that may leave something behind when their process dies."""

    def recover(self) -> Sequence[str]:
        """End what a dead process left behind; what it was, in words. May take a moment."""
        ...


class Journal(Protocol):
    """Where sessions are kept."""

    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        """The facts of a session past a sequence number, in order; none for an unknown session."""
        ...

    def append(self, session: str, facts: Sequence[Fact]) -> Awaitable[None]:
        """Write the facts, all or none, and be done once they are durable.

        Raises SessionBusy if their sequence numbers are taken, JournalFailed if they were not kept.
        """
        ...


class Lease(Protocol):
    """The right to drive a session, until it is let go or its holder dies."""

    def release(self) -> None: ...


@runtime_checkable
class SessionLeases(Protocol):
    """A journal that knows who drives a session."""

    async def lease(self, session: str) -> Lease:
        """Take the session; raises SessionBusy at once if somebody alive has it."""
        ...

    async def is_leased(self, session: str) -> bool:
        """Whether somebody alive drives the session, in this process or another."""
        ...


@runtime_checkable
class AppendSignals(Protocol):
    """A journal that can tell when another process wrote."""

    async def wait_for_append(self, session: str, after: int) -> None:
        """Return when the session may have records past `after`; now and then also for nothing."""
        ...


@runtime_checkable
class BlobStore(Protocol):
    """A journal that keeps things beside the records of a session, by their hash."""

    async def put_blob(self, session: str, data: bytes) -> str:
        """Keep the data for as long as the session; its name, once it is durable."""
        ...

    async def get_blob(self, session: str, name: str) -> bytes | None:
        """What the session keeps under a name; a prefix of 16 characters will do."""
        ...


@runtime_checkable
class SharedBudgets(Protocol):
    """A journal that keeps budgets which many runs share."""

    async def draw_budget(self, budget: Budget, session: str, run: int, wanted: Amount) -> Amount:
        """Raise what a run may spend in all to `wanted`, or as near as the budget allows.

        Never less than it may already. Asking twice for the same is asking once.
        """
        ...

    async def settle_budget(self, budget: Budget, session: str, run: int, spent: Amount) -> None:
        """Say what a run has spent in all; what it does not need goes back."""
        ...

    async def read_spending(self, budget: Budget) -> Amount:
        """What is spent or promised of the budget for now."""
        ...


class Clock(Protocol):
    """Time and chance."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    def random_fraction(self) -> float:
        """A random number from 0 to 1."""
        ...


Watcher = Callable[[Event], None]
"""Is told of every event; must return at once."""

Approver = Callable[[Question], Awaitable[PersonAnswer | None]]
"""Asks a person, who may take their time. None: no answer yet, and the run waits durably."""


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long silence may last. None waits for ever."""

    connect_s: float | None = 10.0
    first_byte_s: float | None = 120.0
    """From the request to the first piece of content."""
    idle_s: float | None = 90.0
    """Between two pieces of content; keep-alives do not count as content."""
    step_s: float | None = None
    """For a whole attempt at a step."""


Recaller = Callable[[str], Awaitable[KnowledgeRecalled]]
"""Finds what is known about a prompt. A failure is a warning, and nothing is known."""


class World(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a run touches."""

    models: Mapping[str, Model]
    """By name: the one that is asked first, and those that stand in for it."""
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
    """The journal, if it keeps more than records."""
    agent: str = ""
    """The name of the agent, for the gate."""
    lineage: tuple[str, ...] = ()
    """The agents that this one works for, the first of them first."""
    check_output: Callable[[str], str | None] | None = None
    """Says what is wrong with a final reply, in words for the model; None if it fits."""
