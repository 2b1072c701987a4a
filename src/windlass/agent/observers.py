"""Runs under observation: an observer receives every event, and tools run inside its spans.

Invariant: whether a run is observed changes nothing in it. An observer does not count as a watcher
who saw a reply, and without an observer nothing is done here.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Protocol, final, runtime_checkable

import msgspec

from windlass.core.events import Event
from windlass.core.messages import ToolResult, ToolSpec
from windlass.core.moves import ClearedCall
from windlass.core.state import State
from windlass.ports import (
    CallContext,
    ReconcileOutcome,
    RecoverableTools,
    Tools,
    UndoableTools,
    Watcher,
    World,
)


class TraceSink(Protocol):
    """One run as it is observed, together with its sub-agents."""

    def record_event(self, event: Event) -> None:
        """Take an event in; must return at once."""
        ...

    def add_session(self, session: str, read_state: Callable[[], State]) -> None:
        """A session of this run, or of a sub-agent, begins; `read_state` returns its state."""
        ...

    def enter_call(self, session: str, call_id: str) -> AbstractContextManager[None]:
        """Return a context in which everything that a call does happens."""
        ...


class RunObserver(Protocol):
    """Wants to see the runs of an agent."""

    def begin_run(self, agent: str, session: str, now: Callable[[], float]) -> TraceSink:
        """A run is about to open; called in the context of the code that asked for it."""
        ...


@runtime_checkable
class KnowsTrace(Protocol):
    """An observer that knows which trace the caller is in."""

    def current_trace(self) -> str:
        """Return the trace as a `traceparent` header; empty outside a trace."""
        ...


class EnclosingCall(msgspec.Struct, frozen=True):
    """The call that runs here, by the name of the session that a sub-agent would have for it."""

    session: str
    trace: TraceSink


_enclosing_call: ContextVar[EnclosingCall | None] = ContextVar("_enclosing_call", default=None)


class Observation(msgspec.Struct, frozen=True):
    """How one run is observed."""

    trace: TraceSink
    watcher: Watcher | None
    """Gets the events of the run; None for a sub-agent, whose events its caller's run shows."""


def begin_observation(
    observer: RunObserver | None, world: World, session: str
) -> Observation | None:
    """Return how the run that is about to open is observed; None if it is not.

    The session of a sub-agent belongs to the trace of the call that it works for.
    """
    enclosing = _enclosing_call.get()
    if enclosing is not None and enclosing.session == session:
        return Observation(enclosing.trace, None)
    if observer is None:
        return None
    trace = observer.begin_run(world.agent, session, world.clock.now)
    return Observation(trace, trace.record_event)


@final
class ObservedTools:
    """Tools that run inside the spans of their calls."""

    def __init__(self, tools: Tools, trace: TraceSink) -> None:
        self._tools = tools
        self._trace = trace

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return self._tools.specs

    def resource_of(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        return self._tools.resource_of(name, arguments)

    async def run(self, cleared: ClearedCall, context: CallContext) -> ToolResult:
        session = context.session
        call_id = cleared.call.id
        worked_for = context.undoes.call_id if context.undoes else call_id
        # The loop runs each call in a task of its own, so that only this call sees the value.
        _enclosing_call.set(EnclosingCall(f"{session}/{worked_for}", self._trace))
        with self._trace.enter_call(session, call_id):
            return await self._tools.run(cleared, context)

    async def reconcile(self, cleared: ClearedCall, context: CallContext) -> ReconcileOutcome:
        return await self._tools.reconcile(cleared, context)

    @property
    def undo_specs(self) -> tuple[ToolSpec, ...]:
        return self._tools.undo_specs if isinstance(self._tools, UndoableTools) else ()

    async def take_snapshot(self, cleared: ClearedCall, context: CallContext) -> str:
        if not isinstance(self._tools, UndoableTools):
            return ""
        return await self._tools.take_snapshot(cleared, context)

    def recover(self) -> Sequence[str]:
        return self._tools.recover() if isinstance(self._tools, RecoverableTools) else ()
