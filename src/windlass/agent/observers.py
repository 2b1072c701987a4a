"""Runs under observation: an observer is told of every event, and its tools run inside its spans.

The law: whether anybody observes changes nothing in a run. An observer does not count among those
who saw a reply, and without one nothing here is done but one look.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, final

from msgspec.structs import replace
from typing_extensions import override

from windlass.core.events import Event, ReplyPiece
from windlass.core.messages import ToolResult, ToolSpec
from windlass.core.moves import ClearedCall
from windlass.core.state import State
from windlass.ports import CallContext, ReconcileOutcome, RecoverableTools, Tools, Watcher, World
from windlass.runtime.recorder import Recorder


class TraceSink(Protocol):
    """One run as it is observed, with those that work for it."""

    def tell(self, event: Event) -> None:
        """Take an event in; returns at once."""
        ...

    def join(self, session: str, known: Callable[[], State]) -> None:
        """A session of this run begins, or of one that works for it; what is known of it."""
        ...

    def inside(self, session: str, call_id: str) -> AbstractContextManager[None]:
        """Whatever a call does happens in here."""
        ...


class RunObserver(Protocol):
    """Whoever wants to see the runs of an agent."""

    def begin(self, agent: str, session: str, now: Callable[[], float]) -> TraceSink:
        """A run is about to open, in the context of whoever asked for it."""
        ...


@dataclass(frozen=True, slots=True)
class EnclosingCall:
    """The call that runs here, as the session that would work for it is called."""

    session: str
    trace: TraceSink


_enclosing_call: ContextVar[EnclosingCall | None] = ContextVar("_within", default=None)


class ObservedRecorder(Recorder):
    """A recorder with a watcher that nobody looks at: what it alone was told, nobody saw."""

    observer_watcher: Watcher | None = None

    def add_observer(self, observer_watcher: Watcher) -> None:
        self.observer_watcher = observer_watcher
        self.watchers.append(observer_watcher)

    @override
    def show_piece(self, piece: ReplyPiece) -> bool:
        told = super().show_piece(piece)
        return told and any(watcher is not self.observer_watcher for watcher in self.watchers)


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
        # The loop runs each call in a task of its own, so that this is seen by the call alone.
        session, call_id = context.session, cleared.call.id
        _enclosing_call.set(EnclosingCall(f"{session}/{call_id}", self._trace))
        with self._trace.inside(session, call_id):
            return await self._tools.run(cleared, context)

    async def reconcile(self, cleared: ClearedCall, context: CallContext) -> ReconcileOutcome:
        return await self._tools.reconcile(cleared, context)

    def recover(self) -> Sequence[str]:
        return self._tools.recover() if isinstance(self._tools, RecoverableTools) else ()


def observe_world(observer: RunObserver | None, world: World, recorder: Recorder) -> World:
    """The world of a run that is about to open; the same one if nobody observes.

    A session that works for a call under observation belongs to the trace of that call, which
    hears of it by the call's own events.
    """
    within, session = _enclosing_call.get(), recorder.session
    if within is not None and within.session == session:
        trace = within.trace
    elif observer is not None and isinstance(recorder, ObservedRecorder):
        trace = observer.begin(world.agent, session, world.clock.now)
        recorder.add_observer(trace.tell)
    else:
        return world
    trace.join(session, lambda: recorder.state)
    return replace(world, tools=ObservedTools(world.tools, trace))
