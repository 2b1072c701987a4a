"""The connections of one event loop, and the patience with which they are used.

A driver's connection belongs to the loop that opened it. They are opened when they are needed, and
closed with the journal, or by the loop itself when it shuts down.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from windlass.core.errors import JournalFailed, WindlassError
from windlass.journals.postgres.config import (
    PostgresConfig,
    PostgresConnection,
    connect_to_server,
    is_connection_lost,
    is_transient,
    postgres_error,
)
from windlass.journals.postgres.schema import migrate_schema

T = TypeVar("T")
CLOSE_TIMEOUT_S = 2.0
"""How long the server may take to say goodbye."""
RETRY_WAIT_MAX_S = 1.0


class _OpenConnections:
    """Apart from the line, so that one which is forgotten is closed."""

    def __init__(self) -> None:
        self.connections = set[PostgresConnection]()
        self.closed = False


class ConnectionPool:
    """What one event loop has open."""

    def __init__(self, config: PostgresConfig) -> None:
        self.config = config
        self.loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(config.connections_max)
        self._migration_lock = asyncio.Lock()
        self._idle: list[PostgresConnection] = []
        self._open = _OpenConnections()
        self._schema_ready = False
        self._keeper: AsyncGenerator[None] | None = None

    @property
    def is_closed(self) -> bool:
        return self._open.closed

    async def run_on_connection(self, work: Callable[[PostgresConnection], Awaitable[T]]) -> T:
        """Do the work on a connection, again if that one broke: it must bear being done twice."""

        async def once() -> T:
            async with self._borrow_connection() as connection:
                return await work(connection)

        return await self.retry_while_transient(once)

    async def retry_while_transient(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try until the server is back, or for as long as was agreed."""
        until, wait_s = self.loop.time() + self.config.patience_s, 0.0
        while True:
            try:
                return await attempt()
            except WindlassError:
                raise
            except Exception as error:  # noqa: BLE001 - put into words, or tried again
                late = self.loop.time() + wait_s > until
                # A server that was never there is not waited for: its address may be wrong.
                if late or self.is_closed or not (self._schema_ready and is_transient(error)):
                    raise postgres_error(self.config, error) from None
            await asyncio.sleep(wait_s)
            wait_s = min(max(2 * wait_s, 0.02), RETRY_WAIT_MAX_S)

    async def open_connection(self) -> PostgresConnection:
        """A new connection, to a schema that is up to date."""
        if self.is_closed:
            raise JournalFailed(f"journal {self.config.display_url}: it is closed")
        connection = await connect_to_server(self.config)
        self._open.connections.add(connection)
        try:
            await self._start_keeper()
            if not self._schema_ready:
                async with self._migration_lock:
                    await migrate_schema(connection, self.config)
                self._schema_ready = True
        except BaseException:
            self.drop_connection(connection)
            raise
        return connection

    def drop_connection(self, connection: PostgresConnection) -> None:
        """Let go of a connection at once."""
        self._open.connections.discard(connection)
        with suppress(Exception):
            connection.terminate()

    async def close(self) -> None:
        self._open.closed = True
        if self._keeper is not None:
            await self._keeper.aclose()

    @asynccontextmanager
    async def _borrow_connection(self) -> AsyncGenerator[PostgresConnection]:
        async with self._slots:
            connection = await self._idle_or_new_connection()
            try:
                yield connection
            except BaseException as error:
                # Whatever was under way may still be: only an answer of the server ends it.
                answered = isinstance(error, WindlassError) or hasattr(error, "sqlstate")
                if is_connection_lost(error) or not answered:
                    self.drop_connection(connection)
                raise
            finally:
                if connection in self._open.connections:
                    self._idle.append(connection)

    async def _idle_or_new_connection(self) -> PostgresConnection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
            self._open.connections.discard(connection)
        return await self.open_connection()

    async def _start_keeper(self) -> None:
        if self._keeper is None:
            self._keeper = _close_with_loop(self._open)
            await anext(self._keeper)


async def _close_with_loop(held: _OpenConnections) -> AsyncGenerator[None]:
    # A loop closes the async generators that are still open when it shuts down, and so this one.
    try:
        yield
    finally:
        held.closed = True
        while held.connections:
            connection = held.connections.pop()
            try:
                await connection.close(timeout=CLOSE_TIMEOUT_S)
            except Exception:  # noqa: BLE001 - a server that does not answer is left all the same
                connection.terminate()
