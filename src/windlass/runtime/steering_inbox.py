"""What persons say to a run that is under way.

The law: what is accepted is heeded, or the run was stopped; what comes when the end is decided is
refused, and says so.
"""

import asyncio
from typing import Any

from windlass.core.errors import IllegalFact
from windlass.core.events import SteeringGiven
from windlass.runtime.recorder import Recorder


class SteeringInbox:
    """Takes in what is said, in the event loop of the run, until the run comes to its end."""

    def __init__(self, recorder: Recorder, stopped: asyncio.Future[Any]) -> None:
        self._recorder = recorder
        self._stopped = stopped
        self._writing: set[asyncio.Task[None]] = set()
        """What is on its way to the record."""
        self._refuses = False
        self._seen_count: int | None = None
        self.opened = asyncio.Event()
        """Set when the run has begun, or could not."""

    async def steer(self, fact: SteeringGiven) -> bool:
        """Write down what a person says; whether the run still heeds it."""
        await self.opened.wait()
        if self._refuses or self._recorder.is_closed or not self._recorder.expected_state.is_active:
            return False
        writing = asyncio.create_task(self._recorder.record(fact))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)
        try:
            await asyncio.shield(writing)
        except IllegalFact:
            return False  # The end was written first.
        return True

    def mark_seen(self, *, at_the_end: bool) -> None:
        """Note how much of what was said the loop knew of when it came to its end."""
        run = self._recorder.state.run
        self._seen_count = len(run.pending) if run is not None and at_the_end else None

    async def has_unseen(self) -> bool:
        """Whether something was said that the loop did not know of when it came to its end.

        If not, nothing more is taken in.
        """
        while self._writing and not self._stopped.done():
            waited_for = {*self._writing, self._stopped}
            await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
        run, seen_count = self._recorder.state.run, self._seen_count
        has_more = run is not None and seen_count is not None and len(run.pending) > seen_count
        self._refuses = self._stopped.done() or not has_more
        return not self._refuses
