"""The one connection of an event loop that stays open: it holds leases and hears of appends.

A lease is an advisory lock of the server on this connection, so it is free as soon as the process
is gone. If only the connection breaks, its leases are lost. They are taken again when the server is
back, unless another driver was faster. Then two drivers may believe that they have the session, and
the sequence numbers of the records let only one of them write.
"""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from hashlib import sha256
from typing import Any, TypeVar
from weakref import WeakSet

from windlass.core.errors import WindlassError
from windlass.journals.postgres.config import (
    PostgresConnection,
    is_connection_lost,
    is_server_answer,
)
from windlass.journals.postgres.pool import ConnectionPool
from windlass.journals.wording import session_busy_error

T = TypeVar("T")
RETRY_WAITS_S = (0.01, 0.02, 0.03)
"""Leases are released in the background, so a driver tries again for a moment before it fails."""
NEWS_TIMEOUT_S = 5.0
"""After this long, `wait_for_news` returns anyway: the connection may have died unnoticed."""

_LOCK = "SELECT pg_try_advisory_lock($1)"
_UNLOCK = "SELECT pg_advisory_unlock($1)"
_HELD_LOCKS = """
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

    async def confirm(self) -> bool:
        """Ask the server whether the lease is held. One that was lost is taken again if it is free.

        Raises JournalFailed if the server does not answer.
        """
        connection = self._connection
        return connection is not None and await connection.confirm_lease(self._session)

    def release(self) -> None:
        """Release the lease, from any thread. A second call does nothing."""
        connection = self._connection
        self._connection = None
        if connection is not None:
            connection.release_lease(self._session)


class LeaseConnection:
    """Opened at the first lease, or at the first wait for an append."""

    def __init__(self, pool: ConnectionPool) -> None:
        self.pool = pool
        self._mutex = asyncio.Lock()
        self._server: PostgresConnection | None = None
        self._wants_news = False
        self._is_listening = False
        self._listeners: dict[str, Callable[..., None]] = {}
        """Who else hears notifications, by channel."""
        self._held: dict[str, bool] = {}
        """By session: whether the server has granted the lease on the present connection."""
        self.releases = set[asyncio.Task[Any]]()
        self._tasks = set[asyncio.Task[Any]]()
        self._waiters: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        """By the hash of a session's name: who waits for an append to it."""
        with _list_mutex:
            _all_connections.add(self)

    async def acquire_lease(self, session: str) -> PostgresLease:
        """Take the lease of a session; raises SessionBusy if a live driver has it."""
        await self.wait_for_releases()
        if session in self._held:
            raise session_busy_error(session)
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
        raise session_busy_error(session)

    async def confirm_lease(self, session: str) -> bool:
        """Return whether the server has granted a lease of this process, as of now."""

        async def ask(server: PostgresConnection) -> bool:
            # The lock lives as long as the connection, so any answer on it proves the lock.
            await server.fetchval("SELECT 1")
            return await self._try_lock(server, session)

        return session in self._held and await self._run_on_connection(ask)

    async def held_lock_keys(self) -> set[int]:
        """Return the numbers of all advisory locks that are held in this database."""
        await self.wait_for_releases()
        rows = await self.pool.run_on_connection(lambda server: server.fetch(_HELD_LOCKS))
        return {row[0] for row in rows}

    async def wait_for_news(self, session: str, is_there: Callable[[], Awaitable[bool]]) -> None:
        """Return when the session was written, or after NEWS_TIMEOUT_S; at once if `is_there`."""
        # As the channel names it: the payload of a notification is limited to 8,000 bytes.
        name = sha256(session.encode()).hexdigest()
        written = asyncio.Event()
        self._waiters[name].add(written)
        self._wants_news = True
        try:
            await self._run_on_connection(self._start_listening)
            # Asked only now that we listen: a later write is notified.
            if not await is_there():
                with suppress(TimeoutError):
                    async with asyncio.timeout(NEWS_TIMEOUT_S):
                        await written.wait()
        finally:
            self._waiters[name].discard(written)
            if not self._waiters[name]:
                del self._waiters[name]

    async def listen_to(self, channel: str, callback: Callable[..., None]) -> None:
        """Call back for each notification on a channel, also once the connection was replaced."""
        self._listeners[channel] = callback
        await self._run_on_connection(lambda server: server.add_listener(channel, callback))

    def release_lease(self, session: str) -> None:
        """Release a lease in the background, from any thread."""
        loop = self.pool.loop
        try:
            is_here = asyncio.get_running_loop() is loop
        except RuntimeError:
            is_here = False
        if is_here:
            self._release_here(session)
            return
        # A closed loop has closed its connections, and with them the server has freed the lease.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._release_here, session)

    def _release_here(self, session: str) -> None:
        is_granted = self._held.pop(session, False)
        if is_granted and self._server is not None:
            self._start_task(self._unlock_session(self._server, session), self.releases)

    async def wait_for_releases(self) -> None:
        """Wait until the server has freed each lease that was released so far.

        This includes other journals of the same event loop: a program that releases a lease and
        then asks for it must get it.
        """
        with _list_mutex:
            connections = [one for one in _all_connections if one.pool.loop is self.pool.loop]
        releases = {task for connection in connections for task in connection.releases}
        if releases:
            await asyncio.wait(releases)

    async def _try_lock(self, server: PostgresConnection, session: str) -> bool:
        # Advisory locks count: a second lock on the same connection would need a second unlock.
        is_granted = self._held.get(session) or await server.fetchval(
            _LOCK, self._lock_key(session)
        )
        if session in self._held:
            self._held[session] = is_granted
        elif is_granted:
            # The caller was cancelled meanwhile and does not want it any more.
            await server.fetchval(_UNLOCK, self._lock_key(session))
        return is_granted

    async def _unlock_session(self, server: PostgresConnection, session: str) -> None:
        async with self._mutex:
            try:
                await server.fetchval(_UNLOCK, self._lock_key(session))
            except Exception:  # noqa: BLE001 - a connection that is closed holds no lock
                self.pool.drop_connection(server)

    async def _start_listening(self, server: PostgresConnection) -> None:
        if not self._is_listening:
            await server.add_listener(self.pool.config.schema, self._on_notification)
            self._is_listening = True

    def _on_notification(self, _server: object, _process: int, _channel: str, name: object) -> None:
        for written in self._waiters.get(str(name), ()):
            written.set()

    def _lock_key(self, session: str) -> int:
        return self.pool.config.lock_key("lease", session)

    async def _run_on_connection(self, work: Callable[[PostgresConnection], Awaitable[T]]) -> T:
        """Run the work on the connection, to the end even if the caller is cancelled.

        A cancelled statement would cost the connection, and other sessions have leases on it.
        """

        async def attempt() -> T:
            async with self._mutex:
                server = await self._ensure_open()
                try:
                    return await work(server)
                except BaseException as error:
                    is_over = isinstance(error, WindlassError) or is_server_answer(error)
                    if is_connection_lost(error) or not is_over:
                        self.pool.drop_connection(server)
                        self._on_connection_lost(server)
                    raise

        task = self._start_task(self.pool.retry_while_transient(attempt), self._tasks)
        return await asyncio.shield(task)

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
            for channel, callback in self._listeners.items():
                await server.add_listener(channel, callback)
        return self._server

    def _on_connection_lost(self, server: object) -> None:
        if server is not self._server:
            return
        self._server = None
        self._is_listening = False
        # Notifications may have been lost with the connection, so everybody looks again.
        for waiters in self._waiters.values():
            for written in waiters:
                written.set()
        had_leases = any(self._held.values())
        self._held = dict.fromkeys(self._held, False)
        if had_leases and not self.pool.is_closed:
            self._start_task(self._reconnect(), self._tasks)

    async def _reconnect(self) -> None:
        with suppress(WindlassError):
            await self._run_on_connection(_do_nothing)

    def _start_task(
        self, work: Coroutine[Any, Any, T], tasks: set[asyncio.Task[Any]]
    ) -> asyncio.Task[T]:
        # The set keeps a reference to the task: the event loop itself has only a weak one.
        task = self.pool.loop.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task


async def _do_nothing(_server: PostgresConnection) -> None:
    """Opening the connection is enough: that takes the leases again."""
