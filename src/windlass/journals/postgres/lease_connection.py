"""The one connection of an event loop that stays: it holds the leases, and hears the news.

A lease is a lock of the server on this connection, so it is free the moment the process is gone. If
only the connection breaks, the lease is lost with it; it is taken again as soon as the server is
back, unless somebody else was faster. Then two may believe that they drive the session, and the
sequence number of the records lets one of them write.
"""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from hashlib import sha256
from typing import Any, TypeVar
from weakref import WeakSet

from windlass.core.errors import SessionBusy, WindlassError
from windlass.journals.postgres.config import PostgresConnection, is_connection_lost
from windlass.journals.postgres.pool import ConnectionPool

T = TypeVar("T")
RETRY_WAITS_S = (0.01, 0.02, 0.03)
"""A lease is let go without waiting; who asks another process for it waits so long at the most."""
NEWS_TIMEOUT_S = 5.0
"""After so long there is news for nothing: a connection may have died without a word."""

_LOCK = "SELECT pg_try_advisory_lock($1)"
_UNLOCK = "SELECT pg_advisory_unlock($1)"
_LOCKS = """
SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1 AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
_all_connections: WeakSet["LeaseConnection"] = WeakSet()
_list_mutex = threading.Lock()


class PostgresLease:
    """The lease of a session."""

    def __init__(self, connection: "LeaseConnection", session: str) -> None:
        self._connection: LeaseConnection | None = connection
        self._session = session

    def release(self) -> None:
        """Let go; from any thread, and as often as one likes."""
        standing, self._connection = self._connection, None
        if standing is not None:
            standing.release_lease(self._session)


class LeaseConnection:
    """Opened at the first lease or the first question for news."""

    def __init__(self, pool: ConnectionPool) -> None:
        self.pool = pool
        self._mutex = asyncio.Lock()
        self._server: PostgresConnection | None = None
        self._wants_news = self._listening = False
        self._held: dict[str, bool] = {}
        """By session: whether the server has granted it, on this very connection."""
        self.releases = set[asyncio.Task[Any]]()
        self._tasks = set[asyncio.Task[Any]]()
        self._waiters: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        with _list_mutex:
            _all_connections.add(self)

    async def acquire_lease(self, session: str) -> PostgresLease:
        """Take the session; raises SessionBusy if somebody has it."""
        await self.wait_for_releases()
        busy = SessionBusy(f"session {session!r}: another driver holds it")
        if session in self._held:
            raise busy
        self._held[session] = False
        try:
            for wait_s in (0.0, *RETRY_WAITS_S):
                await asyncio.sleep(wait_s)
                if await self._run_on_connection(lambda server: self._try_lock(server, session)):
                    return PostgresLease(self, session)
        except BaseException:
            self.release_lease(session)
            raise
        self.release_lease(session)
        raise busy

    async def held_lock_keys(self) -> set[int]:
        """The numbers of all locks that somebody alive holds in this database."""
        await self.wait_for_releases()
        return {
            row[0] for row in await self.pool.run_on_connection(lambda server: server.fetch(_LOCKS))
        }

    async def wait_for_news(self, session: str, is_there: Callable[[], Awaitable[bool]]) -> None:
        """Return when somebody wrote the session; at once if `is_there`; and now and then."""
        name = sha256(session.encode()).hexdigest()
        heard = asyncio.Event()
        self._waiters[name].add(heard)
        self._wants_news = True
        try:
            await self._run_on_connection(self._start_listening)
            # Asked when we listen already: what is written after this is heard.
            if not await is_there():
                with suppress(TimeoutError):
                    async with asyncio.timeout(NEWS_TIMEOUT_S):
                        await heard.wait()
        finally:
            self._waiters[name].discard(heard)
            if not self._waiters[name]:
                del self._waiters[name]

    def release_lease(self, session: str) -> None:
        loop = self.pool.loop
        try:
            here = asyncio.get_running_loop() is loop
        except RuntimeError:
            here = False
        if here:
            self._release_here(session)
            return
        # A loop that is closed has closed its connections, and the server has freed the lease.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._release_here, session)

    def _release_here(self, session: str) -> None:
        granted, server = self._held.pop(session, False), self._server
        if granted and server is not None:
            self._start_task(self._unlock_session(server, session), self.releases)

    async def wait_for_releases(self) -> None:
        """Wait until the server knows of each lease that was let go so far."""
        # By any journal of this loop: who lets go and then asks has a right to the answer.
        with _list_mutex:
            here = [one for one in _all_connections if one.pool.loop is self.pool.loop]
        releases = {task for one in here for task in one.releases}
        if releases:
            await asyncio.wait(releases)

    async def _try_lock(self, server: PostgresConnection, session: str) -> bool:
        # A second lock of the same connection would need a second unlock.
        granted = self._held.get(session) or await server.fetchval(_LOCK, self._lock_key(session))
        if session in self._held:
            self._held[session] = granted
        elif granted:
            # Whoever wanted it has gone away meanwhile.
            await server.fetchval(_UNLOCK, self._lock_key(session))
        return granted

    async def _unlock_session(self, server: PostgresConnection, session: str) -> None:
        async with self._mutex:
            try:
                await server.fetchval(_UNLOCK, self._lock_key(session))
            except Exception:  # noqa: BLE001 - a connection that is closed holds no lock
                self.pool.drop_connection(server)

    async def _start_listening(self, server: PostgresConnection) -> None:
        if not self._listening:
            await server.add_listener(self.pool.config.schema, self._on_notification)
            self._listening = True

    def _on_notification(self, _server: object, _process: int, _channel: str, name: object) -> None:
        for heard in self._waiters.get(str(name), ()):
            heard.set()

    def _lock_key(self, session: str) -> int:
        return self.pool.config.lock_key("lease", session)

    async def _run_on_connection(self, work: Callable[[PostgresConnection], Awaitable[T]]) -> T:
        """Work on the connection, to the end even if nobody waits: others have leases on it."""

        async def once() -> T:
            async with self._mutex:
                server = await self._ensure_open()
                try:
                    return await work(server)
                except BaseException as error:
                    if is_connection_lost(error) or not (
                        isinstance(error, WindlassError) or _is_server_answer(error)
                    ):
                        self.pool.drop_connection(server)
                        self._on_connection_lost(server)
                    raise

        return await asyncio.shield(
            self._start_task(self.pool.retry_while_transient(once), self._tasks)
        )

    async def _ensure_open(self) -> PostgresConnection:
        if self._server is not None and self._server.is_closed():
            self._on_connection_lost(self._server)
        if self._server is None:
            server = self._server = await self.pool.open_connection()
            server.add_termination_listener(self._on_connection_lost)
            for session in [*self._held]:
                await self._try_lock(server, session)
            if self._wants_news:
                await self._start_listening(server)
        return self._server

    def _on_connection_lost(self, server: object) -> None:
        if server is not self._server:
            return
        self._server, self._listening = None, False
        for heard in (heard for ears in self._waiters.values() for heard in ears):
            heard.set()
        had = any(self._held.values())
        self._held = dict.fromkeys(self._held, False)
        if had and not self.pool.is_closed:
            self._start_task(self._reconnect(), self._tasks)

    async def _reconnect(self) -> None:
        with suppress(WindlassError):
            await self._run_on_connection(_do_nothing)

    def _start_task(
        self, work: Coroutine[Any, Any, T], tasks: set[asyncio.Task[Any]]
    ) -> asyncio.Task[T]:
        task = self.pool.loop.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task


async def _do_nothing(_server: PostgresConnection) -> None:
    """Opening is all that was wanted."""


def _is_server_answer(error: BaseException) -> bool:
    return hasattr(error, "sqlstate")
