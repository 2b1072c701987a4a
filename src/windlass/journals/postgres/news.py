"""Who waits for an append or for a message, and how they hear of it from other processes.

Invariant: no append and no post notifies inside its transaction, because the server lets only
one such transaction commit at a time. A process collects what it has written, and sends one
notification for each interval, and only for sessions that a process waits for. A waiter says so in
the row of its session, which the append returns: it either finds what was written before that, or
is notified of it. A notification is a hint: each waiter also looks by itself.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from hashlib import sha256

from windlass.core.errors import WindlassError
from windlass.journals.postgres.boot_clock import boot_time
from windlass.journals.postgres.config import PostgresConnection
from windlass.journals.postgres.direct_connection import DirectConnection

NEWS_TIMEOUT_S = 5.0
"""After this long, `wait_for_news` returns anyway."""
LOOK_S = 1.0
"""How often a waiter looks by itself."""
GATHER_S = 0.05
"""How long written sessions are collected for one notification."""
WAITED_S = 20.0
"""How long a row says that it is waited for."""
NAME_CHARS = 16
"""Of the hash of a name, in a notification."""
NAMES_MAX = 400
"""In one notification, which may have 8,000 bytes."""
_MARK = f"""
UPDATE {{0}}.sessions SET waited = clock_timestamp() + interval '{WAITED_S:g} s' WHERE session = $1
"""  # noqa: S608 - a constant
# A notification needs a commit, which need not be waited for: nothing is lost with it but time.
_NOTIFY = """
SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, names)
FROM unnest($2::text[]) AS gathered (names)
"""


class SessionNews:
    """The waiters of one event loop, and what it has written itself."""

    def __init__(self, direct: DirectConnection, is_held: Callable[[str], object]) -> None:
        """`is_held` says whether this process has the lease of a session."""
        self._direct = direct
        self._pool = direct.pool
        self._is_held = is_held
        self._channel = direct.pool.config.schema
        self._mark_sql = _MARK.format(direct.pool.config.quoted_schema)
        self._waiters: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        """By the hash of a name: who waits for what is written under it."""
        self._marked: dict[str, float] = {}
        """Until when the row of a session says that it is waited for."""
        self._written: dict[str, None] = {}
        self._sending: asyncio.Task[None] | None = None
        direct.on_lost.append(self._wake_all)

    async def wait_for_news(
        self, session: str, name: str, is_there: Callable[[], Awaitable[bool]]
    ) -> None:
        """Return when something was written under a name, or after NEWS_TIMEOUT_S.

        The name is that of the session, or of a lane of it. Returns at once if `is_there`.
        """
        key = hash_name(name)
        written = asyncio.Event()
        self._waiters[key].add(written)
        try:
            await self._direct.listen_to(self._channel, self._on_notification)
            await self._mark_waited(session)
            # Asked only now that others can know of us: a later write is notified.
            ends_at = self._pool.loop.time() + NEWS_TIMEOUT_S
            while not await is_there() and self._pool.loop.time() < ends_at:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await written.wait()
                        return
        finally:
            self._waiters[key].discard(written)
            if not self._waiters[key]:
                del self._waiters[key]

    def tell(self, names: Iterable[str], *, elsewhere: bool) -> None:
        """Wake who waits for these names here, and `elsewhere` with the next notification."""
        for name in names:
            key = hash_name(name)
            self._wake(key)
            if elsewhere:
                self._written[key] = None
        if self._written and (self._sending is None or self._sending.done()):
            self._sending = self._direct.start_task(self._send_gathered())

    async def close(self) -> None:
        """Send what is left."""
        if self._sending is not None:
            await asyncio.wait({self._sending})

    async def _send_gathered(self) -> None:
        while self._written:
            await asyncio.sleep(GATHER_S)
            keys = [*self._written]
            self._written.clear()
            parts = [keys[at : at + NAMES_MAX] for at in range(0, len(keys), NAMES_MAX)]
            send = partial(_notify, channel=self._channel, payloads=[*map(" ".join, parts)])
            with suppress(WindlassError):  # Those who wait look by themselves.
                await self._pool.run_on_connection(send)

    async def _mark_waited(self, session: str) -> None:
        """Say in the row of a session that a process waits, for a while. A driver need not."""
        if not self._pool.config.has_direct:
            return  # It could not be notified: it looks by itself.
        if self._is_held(session) or self._marked.get(session, 0.0) > boot_time():
            return
        until = boot_time() + WAITED_S / 2
        self._marked = {name: at for name, at in self._marked.items() if at > boot_time()}
        await self._pool.run_on_connection(lambda it: it.execute(self._mark_sql, session))
        self._marked[session] = until

    def _on_notification(self, _server: object, _process: int, _channel: str, keys: object) -> None:
        for key in str(keys).split(" "):
            self._wake(key)

    def _wake(self, key: str) -> None:
        for written in self._waiters.get(key, ()):
            written.set()

    def _wake_all(self) -> None:
        # Notifications may have been lost with the connection, so everybody looks again.
        for key in tuple(self._waiters):
            self._wake(key)


def hash_name(name: str) -> str:
    """Return how a notification names a session, or a lane of it."""
    return sha256(name.encode()).hexdigest()[:NAME_CHARS]


async def _notify(server: PostgresConnection, *, channel: str, payloads: list[str]) -> None:
    await server.execute(_NOTIFY, channel, payloads)
