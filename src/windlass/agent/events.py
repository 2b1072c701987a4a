"""The watcher's end of a run: a bounded buffer between a run that never waits and whoever looks on.

When it is full, adjacent fragments are merged; everything else is kept, however much it is.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Generic

from msgspec.structs import replace
from typing_extensions import override

from windlass.core.events import (
    CallDelta,
    CallProgress,
    Event,
    RunEnded,
    RunSuspended,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.result import OutputT, RunResult

CAPACITY = 256


class Events(AsyncIterator[Event], Generic[OutputT]):
    """The events of a run, one by one, until its last. Then `result` is there."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._queue: deque[Event] = deque()
        self._merged: list[str] = []
        self._wake: asyncio.Future[None] | None = None
        self._over = False
        """The last event is in the buffer, or no more will come."""
        self._ended = False
        self._result: RunResult[OutputT] | None = None
        self._cancel: Callable[[str], None] | None = None

    def push(self, event: Event) -> None:
        """Take an event in; returns at once."""
        if self._over:
            return
        queue = self._queue
        if len(queue) < self._capacity or not self._merge(event):
            self._seal()
            queue.append(event)
        self._over = isinstance(event, (RunEnded, RunSuspended))
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _merge(self, event: Event) -> bool:
        """Whether the event went into the last one that waits."""
        last = self._queue[-1] if self._queue else None
        match last, event:
            case TextDelta(), TextDelta(text):
                self._merged.append(text)
            case ThinkingDelta(signature=None), ThinkingDelta(text, None):
                self._merged.append(text)
            case CallDelta(at), CallDelta(index, None, None, text, None) if at == index:
                self._merged.append(text)
            case CallProgress(of), CallProgress(call_id, text) if of == call_id:
                self._merged.append(text)
            case UsageDelta(), UsageDelta():
                self._queue[-1] = event
            case _:
                return False
        return True

    def _seal(self) -> None:
        """Put the merged fragments into their event. One join, so that merging costs no more."""
        if not self._merged:
            return
        last = self._queue[-1]
        more = "".join(self._merged)
        self._merged.clear()
        if isinstance(last, CallDelta):
            self._queue[-1] = replace(last, arguments=last.arguments + more)
        elif isinstance(last, TextDelta | ThinkingDelta | CallProgress):
            self._queue[-1] = replace(last, text=last.text + more)

    def end(self, drive: "asyncio.Task[RunResult[OutputT]]") -> None:
        """The run is over, and its result is there."""
        if not drive.cancelled() and drive.exception() is None:
            self._result = drive.result()
        self.close()

    def close(self) -> None:
        """No more events will come."""
        self._over = self._ended = True
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    @override
    async def __anext__(self) -> Event:
        # After the last event comes the result: whoever has read to the end finds it there.
        while not self._queue:
            if self._ended:
                raise StopAsyncIteration
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        if len(self._queue) == 1:
            self._seal()
        return self._queue.popleft()

    @property
    def result(self) -> RunResult[OutputT]:
        if self._result is None:
            raise RuntimeError("the run has not ended: read the events to their end first")
        return self._result

    def on_cancel(self, cancel: Callable[[str], None]) -> None:
        self._cancel = cancel

    def cancel(self, reason: str = "cancelled by the watcher") -> None:
        """Stop the run; its events go on until the last."""
        if self._cancel is not None:
            self._cancel(reason)
