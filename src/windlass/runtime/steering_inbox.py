"""What people say to a run while it is running.

The law: what is accepted is taken up before the next step, or the run was stopped. What comes after
the end is decided is refused, and the caller is told so.
"""

import asyncio
from typing import Any

from windlass.core.errors import IllegalFact
from windlass.core.events import SteeringGiven
from windlass.core.state import State
from windlass.runtime.recorder import Recorder


class SteeringInbox:
    """Takes steering in, in the event loop of the run, until the run comes to its end."""

    def __init__(self, recorder: Recorder, stopped: asyncio.Future[Any]) -> None:
        """Make the inbox of a run; `stopped` is done once the run is cancelled or out of time."""
        self._recorder = recorder
        self._stopped = stopped
        self._writing: set[asyncio.Task[None]] = set()
        self._is_shut = False
        self._opened = asyncio.Event()

    def open(self) -> None:
        """The run has begun, or could not: let those in who wait to steer it."""
        self._opened.set()

    async def steer(self, fact: SteeringGiven) -> bool:
        """Write down what a person says. Returns False if the run no longer takes it up."""
        await self._opened.wait()
        recorder = self._recorder
        if self._is_shut or recorder.is_closed or not recorder.expected_state.is_active:
            return False
        writing = asyncio.create_task(recorder.record(fact))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)
        try:
            await asyncio.shield(writing)
        except IllegalFact:
            return False  # The end was written first.
        return True

    async def has_unseen(self, decided_from: State | None) -> bool:
        """Return whether something was said that the loop did not know of when it decided to end.

        `decided_from` is the state in which the loop decided, or None if it did not get that far.
        If nothing was said, the inbox is shut: from here on, steering is refused.
        """
        while self._writing and not self._stopped.done():
            waited_for = {*self._writing, self._stopped}
            await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
        has_more = decided_from is not None and _pending(self._recorder.state) > _pending(
            decided_from
        )
        self._is_shut = self._stopped.done() or not has_more
        return not self._is_shut


def _pending(state: State) -> int:
    return len(state.run.pending) if state.run is not None else 0
