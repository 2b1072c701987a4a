"""What is said to a run from outside while it is driven: by this process, or by mail.

The law: what is accepted is taken up before the run goes further, or the run was stopped. What
comes after the end is decided is refused, and the caller is told so.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from windlass.core.errors import IllegalFact
from windlass.core.events import Fact, SteeringGiven
from windlass.core.state import State
from windlass.runtime.recorder import Recorder


class ControlInbox:
    """Writes down what is said, in the event loop of the run, until the driver lets go of it."""

    def __init__(self, recorder: Recorder, stopped: asyncio.Future[Any]) -> None:
        """Make the inbox of a run; `stopped` is done once the run is cancelled or out of time."""
        self._recorder = recorder
        self._stopped = stopped
        self._writing: set[asyncio.Task[None]] = set()
        self._is_shut = False
        self._opened = asyncio.Event()

    def open(self) -> None:
        """The run has begun, or could not: let those in who wait to speak to it."""
        self._opened.set()

    async def wait_until_open(self) -> None:
        await self._opened.wait()

    async def steer(self, fact: SteeringGiven) -> bool:
        """Write down what a person says. Returns False if the run no longer takes it up."""
        await self._opened.wait()
        return await self.write(lambda _: (fact,))

    async def write(self, make_facts: Callable[[State], Sequence[Fact]]) -> bool:
        """Write the facts that follow from the state at that moment, and wait until they are kept.

        Returns False if the run takes nothing in any more.
        """
        recorder = self._recorder
        if self._is_shut or recorder.is_closed or not recorder.expected_state.is_active:
            return False
        writing = asyncio.create_task(recorder.record_from(make_facts))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)
        try:
            await asyncio.shield(writing)
        except IllegalFact:
            return False  # The end was written first.
        return True

    async def has_news(self, decided_from: State | None) -> bool:
        """Return whether something was written that the loop did not know of when it decided.

        `decided_from` is the state in which the loop decided to go no further, or None if it did
        not get that far. If there is no news, the inbox is shut: from here on, all is refused.
        """
        while self._writing and not self._stopped.done():
            waited_for = {*self._writing, self._stopped}
            await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
        is_same = decided_from is None or self._recorder.state is decided_from
        self._is_shut = self._stopped.done() or is_same
        return not self._is_shut
