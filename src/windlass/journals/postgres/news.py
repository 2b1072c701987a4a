"""Who waits for an append or for a message: woken by notifications of the server.

A notification is a hint. A waiter looks by itself after a while, because one may be lost.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from hashlib import sha256

from windlass.journals.postgres.direct_connection import DirectConnection

NEWS_TIMEOUT_S = 5.0
"""After this long, `wait_for_news` returns anyway: the connection may have died unnoticed."""


class SessionNews:
    """The waiters of one event loop."""

    def __init__(self, direct: DirectConnection) -> None:
        self._direct = direct
        self._waiters: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        """By the hash of a session's name: who waits for an append to it."""
        direct.on_lost.append(self._wake_all)

    async def wait_for_news(self, session: str, is_there: Callable[[], Awaitable[bool]]) -> None:
        """Return when the session was written, or after NEWS_TIMEOUT_S; at once if `is_there`."""
        # As the channel names it: the payload of a notification is limited to 8,000 bytes.
        name = sha256(session.encode()).hexdigest()
        written = asyncio.Event()
        self._waiters[name].add(written)
        try:
            await self._direct.listen_to(self._direct.pool.config.schema, self._on_notification)
            # Asked only now that we listen: a later write is notified.
            if not await is_there():
                with suppress(TimeoutError):
                    async with asyncio.timeout(NEWS_TIMEOUT_S):
                        await written.wait()
        finally:
            self._waiters[name].discard(written)
            if not self._waiters[name]:
                del self._waiters[name]

    def _on_notification(self, _server: object, _process: int, _channel: str, name: object) -> None:
        for written in self._waiters.get(str(name), ()):
            written.set()

    def _wake_all(self) -> None:
        # Notifications may have been lost with the connection, so everybody looks again.
        for waiters in self._waiters.values():
            for written in waiters:
                written.set()
