"""The calls of a wave that go no further now, because their sub-agents wait or were released."""

import asyncio
from collections.abc import Collection

from windlass.core.events import CallWaiting


class ParkedCalls:
    """Calls of one wave that wait for a person or were released with their sub-agent, by id.

    A parked call still has its task, which costs nothing. If what it waits for comes while other
    calls of its step run, it resumes at once. If no other call runs, the loop seals the parked
    calls: their sub-agents are left alone, and the run itself waits or is released. The calls that
    have not begun by then begin after that.
    """

    def __init__(self) -> None:
        self._parked: dict[str, tuple[CallWaiting | None, asyncio.Future[None]]] = {}
        self._changed: asyncio.Future[None] | None = None
        self._is_sealed = False

    def __len__(self) -> int:
        return len(self._parked)

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._parked

    def park(self, call_id: str, waiting: CallWaiting | None) -> "asyncio.Future[None]":
        """Note that a call goes no further now; `waiting` is what its sub-agent waits for, if any.

        Returns a future that is done when the call should look again.
        """
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._parked[call_id] = (waiting, woken)
        self.announce_change()
        return woken

    def unpark(self, call_id: str) -> bool:
        """Let a call resume. Returns False if it is too late: the loop has given it up."""
        if self._is_sealed:
            return False
        self._parked.pop(call_id, None)
        return True

    def wake_all(self) -> None:
        """Let the parked calls look again whether they can resume."""
        for _, woken in self._parked.values():
            if not woken.done():
                woken.set_result(None)

    def covers(self, call_ids: Collection[str]) -> bool:
        """Whether there are calls, and all of them are parked and have not been woken."""
        return bool(call_ids) and all(
            call_id in self._parked and not self._parked[call_id][1].done() for call_id in call_ids
        )

    def seal(self) -> list[CallWaiting]:
        """Give the parked calls up. Returns what those that wait are waiting for."""
        self._is_sealed = True
        return [waiting for waiting, _ in self._parked.values() if waiting is not None]

    @property
    def changed(self) -> "asyncio.Future[None]":
        """Done when a call is parked, or when the wave should look around for another reason."""
        if self._changed is None or self._changed.done():
            self._changed = asyncio.get_running_loop().create_future()
        return self._changed

    def announce_change(self, _ended: object = None) -> None:
        """Let the wave look around: a call has ended, or another reason has come."""
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
