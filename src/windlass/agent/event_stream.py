"""The events of a run for a reader that pulls: a buffer between it and a run that never waits.

The law: a slow reader loses nothing but the boundaries between fragments. When the buffer is full,
adjacent fragments are merged; everything else is kept, however much it is.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Never

from typing_extensions import override

from windlass.agent.reply_text import follow_text
from windlass.core.event_buffer import EventBuffer
from windlass.core.events import Event, RunEnded, RunSuspended
from windlass.core.result import OutputT, RunResult

BUFFER_EVENTS_MAX = 256
STREAM_USAGE = (
    "stream() must be entered first: `async with agent.stream(…) as events:`, and then "
    "`async for event in events:`"
)


class EventStream(AsyncIterator[Event], Generic[OutputT]):
    """The events of one run, as an async iterator. After the last one, `result` can be read."""

    def __init__(
        self,
        capacity: int = BUFFER_EVENTS_MAX,
        *,
        cancel: Callable[[str], None] | None = None,
    ) -> None:
        """Make an empty stream; `cancel` stops the run and gets the reason."""
        self._capacity = capacity
        self._buffer = EventBuffer()
        self._wake: asyncio.Future[None] | None = None
        self._is_closed = False
        """The last event is in the buffer, or no more will come."""
        self._is_finished = False
        self._result: RunResult[OutputT] | None = None
        self._cancel = cancel

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

    def finish(self, drive: "asyncio.Task[RunResult[OutputT]]") -> None:
        """The run is over: take its result, if it has one."""
        if not drive.cancelled() and drive.exception() is None:
            self._result = drive.result()
        self.close()

    def close(self) -> None:
        """No more events will come."""
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
        if self._cancel is not None:
            self._cancel(reason)


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
