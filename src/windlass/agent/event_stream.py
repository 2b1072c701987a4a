"""The events of a run for a reader that pulls, or the text of its reply as one growing value.

Invariants: a slow reader loses nothing but the boundaries between fragments. When the buffer is
full, adjacent fragments are merged; everything else is kept. Each value of a text replaces the one
before it. The text of a reply is in the last value exactly once, however many attempts broke off.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Generic, Never

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
from windlass.core.reply_hold import WITHHELD_PART
from windlass.core.result import OutputT, RunResult
from windlass.core.suggestions import ForeignNames
from windlass.core.verdicts import Deny
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
