"""What persons say to a run that is under way.

The law: what is accepted is heeded, or the run was stopped; what comes when the end is decided is
refused, and says so.
"""

import asyncio
from typing import Any

from windlass.core.errors import IllegalFact
from windlass.core.events import Steered
from windlass.runtime.recorder import Recorder


class Helm:
    """Takes in what is said, in the event loop of the run, until the run comes to its end."""

    def __init__(self, recorder: Recorder, stopped: asyncio.Future[Any]) -> None:
        self._recorder = recorder
        self._stopped = stopped
        self._telling: set[asyncio.Task[None]] = set()
        """What is on its way to the record."""
        self._left = False
        self._seen: int | None = None
        self.manned = asyncio.Event()
        """Set when the run has begun, or could not."""

    async def steer(self, fact: Steered) -> bool:
        """Write down what a person says; whether the run still heeds it."""
        await self.manned.wait()
        if self._left or self._recorder.closed or not self._recorder.expected.active:
            return False
        telling = asyncio.create_task(self._recorder.record(fact))
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)
        try:
            await asyncio.shield(telling)
        except IllegalFact:
            return False  # The end was written first.
        return True

    def look(self, *, at_the_end: bool) -> None:
        """Note how much of what was said the loop knew of when it came to its end."""
        run = self._recorder.state.run
        self._seen = len(run.pending) if run is not None and at_the_end else None

    async def turned(self) -> bool:
        """Whether something was said that the loop did not know of when it came to its end.

        If not, nothing more is taken in.
        """
        while self._telling and not self._stopped.done():
            waited_for = {*self._telling, self._stopped}
            await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
        run, seen = self._recorder.state.run, self._seen
        more = run is not None and seen is not None and len(run.pending) > seen
        self._left = self._stopped.done() or not more
        return not self._left
