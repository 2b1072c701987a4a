"""Whether a run must stop, and how: at its end, or let go so that another driver can go on.

The law: an end takes at most 100 ms, whatever the run is doing. Letting go gives the calls that run
a grace period to finish, and everything else none. An end that is asked for meanwhile comes first.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from windlass.core.events import RunEnded
from windlass.runtime.deadlines import TIMER_GRAIN_S

UNWIND_WAIT_S = 0.05
"""How long the loop may take to unwind once it is cancelled."""
END_WAIT_S = 0.09
"""How long all of the end may take, the last append included: a cancel takes at most 100 ms."""


class ReleaseOrder(msgspec.Struct, frozen=True):
    """Let go of the run, for this reason, with so many seconds for the calls that run."""

    reason: str
    grace_s: float


class StopSignal:
    """What somebody asked of a run: nothing, an end, or to be let go."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.end: RunEnded | None = None
        """How the run must end, once it was cancelled or is out of time."""
        self.release: ReleaseOrder | None = None
        self.stopped_at: asyncio.Future[float] = loop.create_future()
        """When the end was asked for; not done before."""
        self._release_asked: asyncio.Future[None] = loop.create_future()

    def request_end(self, end: RunEnded) -> None:
        """Stop the run. Only the first end counts."""
        if self.end is None:
            self.end = end
            self.stopped_at.set_result(self._loop.time())

    def request_release(self, order: ReleaseOrder) -> bool:
        """Let go of the run. Returns False if it must end or was to be let go already."""
        if self.end is not None or self.release is not None:
            return False
        self.release = order
        self._release_asked.set_result(None)
        return True

    async def wait_for_stage(self, stage: asyncio.Task[Any], *, cancel: bool = False) -> None:
        """Wait for a stage of the run; once the run is stopped, only for a bounded time."""
        # Not awaited if it is done already: even that would let the stage go a little further.
        if not self.stopped_at.done():
            await asyncio.wait({stage, self.stopped_at}, return_when=asyncio.FIRST_COMPLETED)
        if stage.done():
            return
        if cancel:
            stage.cancel()
        # However late it is, a stage gets the time to begin.
        end_at = self.stopped_at.result() + END_WAIT_S
        wait_s = max(TIMER_GRAIN_S, end_at - self._loop.time())
        if cancel:
            wait_s = min(wait_s, UNWIND_WAIT_S)
        await asyncio.wait({stage}, timeout=wait_s)

    async def wait_for_loop(
        self, stage: asyncio.Task[Any], has_calls: Callable[[], bool] = lambda: False
    ) -> None:
        """Wait for a stage that also stops, after the grace of its calls, to be let go."""
        asked = {stage, self.stopped_at, self._release_asked}
        await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        still_going = {stage, self.stopped_at}
        if self.release is not None and has_calls():
            await asyncio.wait(
                still_going, timeout=self.release.grace_s, return_when=asyncio.FIRST_COMPLETED
            )
        if self.release is not None and not stage.done() and self.end is None:
            stage.cancel()
            await asyncio.wait(
                still_going, timeout=UNWIND_WAIT_S, return_when=asyncio.FIRST_COMPLETED
            )
        if self.release is None or self.end is not None:
            await self.wait_for_stage(stage, cancel=True)
