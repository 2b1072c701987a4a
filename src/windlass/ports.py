"""The seams: everything that the loop needs of the world, as small protocols.

Each has a conformance suite in `windlass.testing`; what passes it can be plugged in.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from windlass.core.decide import Cleared
from windlass.core.events import Event, Fact, Piece
from windlass.core.messages import Label, Result, ToolSpec
from windlass.core.schema import Schema
from windlass.core.setup import ModelInfo
from windlass.core.verdicts import Allow, Deny, Verdict
from windlass.core.view import Prompt


class Model(Protocol):
    """A language model behind one wire."""

    @property
    def info(self) -> ModelInfo: ...

    def stream(self, prompt: Prompt) -> AsyncGenerator[Piece]:
        """Make one request and stream its pieces; raise ModelError, and never ask again."""
        ...


class Request(msgspec.Struct, frozen=True):
    """A call that a gate must judge."""

    session: str
    call_id: str
    tool: ToolSpec
    arguments: Mapping[str, Any]
    labels: frozenset[Label] = frozenset()
    """What the session has come to hold by what was called in it."""


class Gate(Protocol):
    """Who says what may happen. A gate that raises has denied."""

    @property
    def name(self) -> str:
        """Tells this policy from another: a resumed run is checked against it."""
        ...

    @property
    def judges_replies(self) -> bool: ...

    async def judge(self, request: Request) -> Verdict: ...

    async def judge_reply(self, session: str, text: str) -> Allow | Deny: ...


class CallContext(msgspec.Struct, frozen=True):
    """What a running call may know of its run."""

    session: str
    run: int
    report: Callable[[str], None]
    """Show progress to whoever watches."""
    late: Callable[[Result], None]
    """Hand in a result that came when the call had been given up."""


Reconciled = Result | Literal["not_done", "unknown"]


class Tools(Protocol):
    """What the model may use. A tool that fails has a result; `run` raises only when cancelled."""

    @property
    def specs(self) -> tuple[ToolSpec, ...]: ...

    def resource(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        """What a call would change: calls that name different resources may run side by side."""
        ...

    async def run(self, cleared: Cleared, context: CallContext) -> Result: ...

    async def reconcile(self, cleared: Cleared, context: CallContext) -> Reconciled:
        """Find out what became of a write that was interrupted."""
        ...


@runtime_checkable
class Recovering(Protocol):
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


class Clock(Protocol):
    """Time and chance."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    def roll(self) -> float:
        """A random number from 0 to 1."""
        ...


Watcher = Callable[[Event], None]
"""Is told of every event; must return at once."""


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long silence may last. None waits for ever."""

    connect_s: float | None = 10.0
    first_byte_s: float | None = 120.0
    """From the request to the first piece of content."""
    idle_s: float | None = 90.0
    """Between two pieces of content; keep-alives do not count as content."""
    step_s: float | None = None
    """For a whole attempt at a step."""


class World(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a run touches."""

    models: Mapping[str, Model]
    """By name: the one that is asked first, and those that stand in for it."""
    tools: Tools
    gate: Gate | None
    journal: Journal
    clock: Clock
    timeouts: Timeouts
    schemas: Mapping[str, Schema]
    """The compiled schema of each tool, by name."""
    fit: Callable[[str], str | None] | None = None
    """Says what is wrong with a final reply, in words for the model; None if it fits."""
