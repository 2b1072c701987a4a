"""Tells those who follow a session that something was written, in whatever event loop they are."""

import asyncio
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from threading import Lock


class Bell:
    """Rung by whoever wrote; heard by all who listened by then."""

    def __init__(self) -> None:
        self._listening: dict[str, set[asyncio.Future[None]]] = {}
        self._one_at_a_time = Lock()

    @contextmanager
    def listening(self, session: str) -> Generator[asyncio.Future[None]]:
        """A future that is done at the next news of the session. Listen first, then look."""
        heard = asyncio.get_running_loop().create_future()
        with self._one_at_a_time:
            self._listening.setdefault(session, set()).add(heard)
        try:
            yield heard
        finally:
            with self._one_at_a_time:
                self._listening[session].discard(heard)
                if not self._listening[session]:
                    del self._listening[session]

    def ring(self, sessions: Iterable[str]) -> None:
        """There is news of these sessions. May be called from any thread."""
        if not self._listening:
            return
        with self._one_at_a_time:
            told = [one for session in sessions for one in self._listening.get(session, ())]
        for heard in told:
            # A loop that is closed has nobody left who waits.
            with suppress(RuntimeError):
                heard.get_loop().call_soon_threadsafe(_hear, heard)


def _hear(heard: asyncio.Future[None]) -> None:
    if not heard.done():
        heard.set_result(None)
