"""The one connection of an event loop that stays open: it hears notifications and holds locks.

It is opened at its first use. When it breaks, it is opened again, with the same locks and channels,
for as long as anything is held on it. What is run on it may have to be run again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from windlass.core.errors import WindlassError
from windlass.journals.postgres.boot_clock import boot_time
from windlass.journals.postgres.config import (
    PostgresConnection,
    is_connection_lost,
    is_server_answer,
)
from windlass.journals.postgres.pool import CLOSE_TIMEOUT_S, ConnectionPool

T = TypeVar("T")
_LOCK_SHARED = "SELECT pg_advisory_lock_shared($1)"


class DirectConnection:
    """A connection with everything that must be set up again when it is replaced."""

    def __init__(self, pool: ConnectionPool) -> None:
        self.pool = pool
        self._mutex = asyncio.Lock()
        self._server: PostgresConnection | None = None
        self._listeners: dict[str, Callable[..., None]] = {}
        """Who hears notifications, by channel."""
        self._locks = set[int]()
        """Shared advisory locks that are held for as long as this process lives."""
        self._tasks = set[asyncio.Task[Any]]()
        self.replaced_at: float | None = None
        """When a connection that had broken was opened again, by the clock of the machine."""
        self._was_open = False
        self.on_lost: list[Callable[[], None]] = []
        """Called when the connection has broken: notifications may have been missed."""
        self.on_replaced: list[Callable[[], None]] = []
        """Called when a connection that had broken is open again."""

    async def run(self, work: Callable[[PostgresConnection], Awaitable[T]]) -> T:
        """Run the work on the connection, to the end even if the caller is cancelled.

        A cancelled statement would cost the connection, and others have locks on it.
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
                        # Only the end of the event loop or of the journal cancels this, and a
                        # task that begins then would be left behind.
                        is_ending = isinstance(error, asyncio.CancelledError)
                        self._on_connection_lost(server, reconnect=not is_ending)
                    raise

        task = self.start_task(self.pool.retry_while_transient(attempt))
        task.add_done_callback(_take_error)
        return await asyncio.shield(task)

    async def listen_to(self, channel: str, callback: Callable[..., None]) -> None:
        """Call back for each notification on a channel, also once the connection was replaced.

        Behind a pooler in transaction mode, nothing is ever heard.
        """
        if not self.pool.config.has_direct:
            return
        if channel in self._listeners:
            await self.run(_do_nothing)
            return

        async def listen(server: PostgresConnection) -> None:
            # A connection that was just opened listens already.
            if channel not in self._listeners:
                await server.add_listener(channel, callback)
                self._listeners[channel] = callback

        await self.run(listen)

    async def hold_lock(self, key: int) -> None:
        """Hold a shared lock from now on, also once the connection was replaced.

        It is shared, so that the next connection has it while the server still keeps the last one.
        """

        async def lock(server: PostgresConnection) -> None:
            if key not in self._locks:
                await server.fetchval(_LOCK_SHARED, key)
                self._locks.add(key)

        await self.run(lock)

    def was_replaced_within(self, seconds: float) -> bool:
        """Whether the connection was opened again less than this long ago."""
        return self.replaced_at is not None and boot_time() - self.replaced_at < seconds

    def start_task(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run something in the background, in the event loop of the connection."""
        # The set keeps a reference to the task: the event loop itself has only a weak one.
        task = self.pool.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Wait for what runs in the background, once the pool is closed: nothing is left behind."""
        if tasks := {*self._tasks} - {asyncio.current_task()}:
            _, late = await asyncio.wait(tasks, timeout=CLOSE_TIMEOUT_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _ensure_open(self) -> PostgresConnection:
        if self._server is not None and self._server.is_closed():
            self._on_connection_lost(self._server)
        if self._server is None:
            server = await self.pool.open_connection(is_direct=True)
            for key in self._locks:
                await server.fetchval(_LOCK_SHARED, key)
            for channel, callback in self._listeners.items():
                await server.add_listener(channel, callback)
            server.add_termination_listener(self._on_connection_lost)
            self._server = server
            if self._was_open:
                self.replaced_at = boot_time()
                for call in self.on_replaced:
                    call()
            self._was_open = True
        return self._server

    def _on_connection_lost(self, server: object, *, reconnect: bool = True) -> None:
        if server is not self._server:
            return
        self._server = None
        for call in self.on_lost:
            call()
        if reconnect and self._locks and not self.pool.is_closed:
            self.start_task(self._reconnect())

    async def _reconnect(self) -> None:
        with suppress(WindlassError):
            await self.run(_do_nothing)


def _take_error(task: asyncio.Task[Any]) -> None:
    """Let asyncio report no error of work whose caller has left: that caller does not need it."""
    if not task.cancelled():
        task.exception()


async def _do_nothing(_server: PostgresConnection) -> None:
    """Opening the connection is enough."""
