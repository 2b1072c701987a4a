"""The events of a run for a reader that pulls, or the text of its reply as one growing value.

Invariants: a slow reader loses nothing but the boundaries between fragments. When the buffer is
full, adjacent fragments are merged; everything else is kept. Each value of a text replaces the one
before it. The text of a reply is in the last value exactly once, however many attempts broke off.

An observer receives every event of its runs, and tools run inside its spans.

Invariant: whether a run is observed changes nothing in it. An observer does not count as a watcher
who saw a reply, and without an observer nothing is done here.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, aclosing
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Never, Protocol, final, runtime_checkable

import msgspec
from typing_extensions import override

from windlass.core.events import (
    AttemptDiscarded,
    AttemptStarted,
    Event,
    ReplyJudged,
    RunEnded,
    RunSuspended,
    StepProposed,
    TextDelta,
)
from windlass.core.live_batch import EventBuffer
from windlass.core.messages import ToolResult, ToolSpec
from windlass.core.moves import ClearedCall
from windlass.core.reply_hold import WITHHELD_PART
from windlass.core.result import OutputT, RunResult
from windlass.core.state import State
from windlass.core.suggestions import ForeignNames
from windlass.core.verdicts import Deny
from windlass.ports import (
    CallContext,
    ReconcileOutcome,
    RecoverableTools,
    Tools,
    UndoableTools,
    Watcher,
    World,
)
from windlass.runtime.leftover_tasks import wait_until_done

BUFFER_EVENTS_MAX = 256
STREAM_USAGE = (
    "stream() must be entered first: `async with agent.stream(…) as events:`, and then "
    "`async for event in events:`"
)


class ReplyText:
    """The text of the latest reply of a run that has words, as far as its events have come."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._whole = ""
        """The text of the last complete reply with words."""
        self._is_streaming = False

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._pieces) if self._is_streaming else self._whole

    def apply(self, event: Event) -> None:
        """Take one more event of the run. Events of sub-agents come nested and do not count."""
        match event:
            case TextDelta(text):
                self._is_streaming = True
                self._pieces.append(text)
            case AttemptStarted(purpose="main"):
                # The reply before stays until there are words of this one.
                self._pieces = []
            case AttemptDiscarded():
                self._is_streaming = True
                self._pieces = []
            case StepProposed(reply=reply) if reply.parts != (WITHHELD_PART,):
                self._settle(reply.text if reply.text.strip() else self._whole)
            case ReplyJudged(verdict=Deny()):
                self._settle("")
            case _:
                pass

    def _settle(self, text: str) -> None:
        self._whole = text
        self._pieces = []
        self._is_streaming = False


async def follow_text(events: AsyncIterator[Event]) -> AsyncGenerator[str]:
    """Yield the text so far whenever it changes, at most once per turn of the event loop.

    A slow reader misses values, never text. Raises what the iteration over the events raises.
    """
    reply = ReplyText()
    news = asyncio.Event()

    async def take_events() -> None:
        try:
            async for event in events:
                reply.apply(event)
                news.set()
        finally:
            news.set()

    taking = asyncio.create_task(take_events())
    shown = ""
    try:
        while not taking.done() or news.is_set():
            await news.wait()
            news.clear()
            text = reply.text
            if text != shown:
                shown = text
                yield text
            # Everything that arrives in one turn of the loop becomes one value.
            await asyncio.sleep(0)
        await taking
    finally:
        taking.cancel()
        await wait_until_done(taking)


class EventStream(AsyncIterator[Event], ForeignNames, Generic[OutputT]):
    """The events of one run, as an async iterator. After the last one, `result` can be read."""

    foreign_names: ClassVar[Mapping[str, str]] = {
        "get_output": "events.result.output, after the block",
        "stream_output": "events.text()",
        "stream_text": "events.text()",
    }

    def __init__(self, capacity: int = BUFFER_EVENTS_MAX) -> None:
        self._capacity = capacity
        self._buffer = EventBuffer()
        self._wake: asyncio.Future[None] | None = None
        self._is_closed = False
        """The last event is in the buffer, or no more will come."""
        self._is_finished = False
        self._result: RunResult[OutputT] | None = None
        self.on_cancel: Callable[[str], None] | None = None
        """Stops the run, and gets the reason."""

    def push(self, event: Event) -> None:
        """Add an event. Called by the run; returns at once."""
        if self._is_closed:
            return
        buffer = self._buffer
        has_room = len(buffer.queue) < self._capacity
        if has_room and not buffer.merged_texts:
            buffer.queue.append(event)
        elif has_room or not buffer.merge(event):
            buffer.append(event)
        self._is_closed = isinstance(event, (RunEnded, RunSuspended))
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def close(self, result: RunResult[OutputT] | None = None) -> None:
        """No more events will come: take the result of the run, if it has one."""
        if result is not None:
            self._result = result
        self._is_closed = True
        self._is_finished = True
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    @override
    async def __anext__(self) -> Event:
        # The iteration ends only with the result, so that it is there after the last event.
        buffer = self._buffer
        while not buffer.queue:
            if self._is_finished:
                raise StopAsyncIteration
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        return buffer.popleft() if buffer.merged_texts else buffer.queue.popleft()

    async def text(self) -> AsyncGenerator[str]:
        """Yield the whole text of the reply so far, at most once per turn of the event loop.

        Each value replaces the one before. After an attempt broke off the next value is shorter,
        and a later reply of the run replaces an earlier one. Iterate over this or over the events,
        not both. Afterwards `result` can be read.
        """
        async with aclosing(follow_text(self)) as values:
            async for value in values:
                yield value

    @property
    def result(self) -> RunResult[OutputT]:
        """The result of the run. Raises RuntimeError before the last event was read."""
        if self._result is None:
            raise RuntimeError("the run has not ended yet: read all of its events first")
        return self._result

    def cancel(self, reason: str = "cancelled by the watcher") -> None:
        """Stop the run. Its remaining events still come, up to the last one."""
        if self.on_cancel is not None:
            self.on_cancel(reason)


class StreamBlock(Generic[OutputT]):
    """The block of `async with agent.stream(…) as events:`. Nothing runs before it is entered."""

    def __init__(self, block: AbstractAsyncContextManager[EventStream[OutputT]]) -> None:
        self._block = block

    async def __aenter__(self) -> EventStream[OutputT]:
        return await self._block.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._block.__aexit__(kind, error, traceback)

    if not TYPE_CHECKING:
        # Type checkers refuse both uses by themselves.

        def __aiter__(self) -> Never:
            raise TypeError(STREAM_USAGE)

        def __await__(self) -> Never:
            raise TypeError(STREAM_USAGE)


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
