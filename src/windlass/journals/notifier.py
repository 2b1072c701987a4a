"""Tells those who follow a session that something was written, in whatever event loop they are."""

import asyncio
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from threading import Lock


class AppendNotifier:
    """Rung by whoever wrote; heard by all who listened by then."""

    def __init__(self) -> None:
        self._subscribers: dict[str, set[asyncio.Future[None]]] = {}
        self._mutex = Lock()

    @contextmanager
    def subscribe(self, session: str) -> Generator[asyncio.Future[None]]:
        """A future that is done at the next news of the session. Listen first, then look."""
        woken = asyncio.get_running_loop().create_future()
        with self._mutex:
            self._subscribers.setdefault(session, set()).add(woken)
        try:
            yield woken
        finally:
            with self._mutex:
                self._subscribers[session].discard(woken)
                if not self._subscribers[session]:
                    del self._subscribers[session]

    def notify(self, sessions: Iterable[str]) -> None:
        """There is news of these sessions. May be called from any thread."""
        if not self._subscribers:
            return
        with self._mutex:
            told = [one for session in sessions for one in self._subscribers.get(session, ())]
        for heard in told:
            # A loop that is closed has nobody left who waits.
            with suppress(RuntimeError):
                heard.get_loop().call_soon_threadsafe(_wake_subscriber, heard)


def _wake_subscriber(heard: asyncio.Future[None]) -> None:
    if not heard.done():
        heard.set_result(None)
