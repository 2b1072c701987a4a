"""Wakes those who wait for an append to a session, in whatever event loop they run."""

import asyncio
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from threading import Lock


class AppendNotifier:
    """The waiters of one journal. The writer calls `notify`; each waiter holds a future."""

    def __init__(self) -> None:
        self._waiters: dict[str, set[asyncio.Future[None]]] = {}
        self._mutex = Lock()

    @contextmanager
    def subscribe(self, session: str) -> Generator[asyncio.Future[None]]:
        """Give a future that is done at the next append to the session.

        Subscribe first and then read the session: an append in between is not missed that way.
        """
        appended = asyncio.get_running_loop().create_future()
        with self._mutex:
            self._waiters.setdefault(session, set()).add(appended)
        try:
            yield appended
        finally:
            with self._mutex:
                self._waiters[session].discard(appended)
                if not self._waiters[session]:
                    del self._waiters[session]

    def notify(self, sessions: Iterable[str]) -> None:
        """Wake all who wait for one of these sessions. May be called from any thread."""
        # Most journals are never followed, and this runs after every write.
        if not self._waiters:
            return
        with self._mutex:
            waiting = [waiter for session in sessions for waiter in self._waiters.get(session, ())]
        for appended in waiting:
            # call_soon_threadsafe raises if the loop is closed; then no waiter is left.
            with suppress(RuntimeError):
                appended.get_loop().call_soon_threadsafe(_set_done, appended)


def _set_done(appended: asyncio.Future[None]) -> None:
    if not appended.done():
        appended.set_result(None)
