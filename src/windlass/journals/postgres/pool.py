"""The connections of one event loop, with retries when the server is briefly away.

A connection belongs to the event loop that opened it. Connections are opened when they are needed.
They are closed with the journal, or by the event loop itself when it shuts down.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from windlass.core.errors import WindlassError
from windlass.journals.postgres.config import (
    PostgresConfig,
    PostgresConnection,
    connect_to_server,
    is_connection_lost,
    is_server_answer,
    is_transient,
    postgres_error,
)
from windlass.journals.postgres.history import ServerHistory
from windlass.journals.postgres.schema import is_shared, migrate_schema
from windlass.journals.wording import closed_error

T = TypeVar("T")
CLOSE_TIMEOUT_S = 2.0
"""How long the server may take to close a connection."""
RETRY_WAIT_MIN_S = 0.02
RETRY_WAIT_MAX_S = 1.0


class _OpenConnections:
    """The open connections, apart from the pool.

    The generator that closes them must not keep the pool itself alive.
    """

    def __init__(self) -> None:
        self.connections = set[PostgresConnection]()
        self.farewells: list[Callable[[PostgresConnection], Awaitable[None]]] = []
        self.closed = False


class ConnectionPool:
    """The connections of one event loop, `connections_max` at most."""

    def __init__(self, config: PostgresConfig) -> None:
        self.config = config
        self.loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(config.connections_max)
        self._migration_lock = asyncio.Lock()
        self._idle: list[PostgresConnection] = []
        self._open = _OpenConnections()
        self._schema_ready = False
        self.history = ServerHistory(config)
        self._closer: AsyncGenerator[None] | None = None

    @property
    def is_closed(self) -> bool:
        return self._open.closed

    async def run_on_connection(self, work: Callable[[PostgresConnection], Awaitable[T]]) -> T:
        """Run the work on a connection, and again if the connection breaks.

        The work must be safe to run twice. Raises JournalFailed or ConfigError when it fails.
        """

        async def attempt() -> T:
            async with self._borrow_connection() as connection:
                return await work(connection)

        return await self.retry_while_transient(attempt)

    async def retry_while_transient(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat the attempt while it fails for a transient reason, for `patience_s` at most."""
        deadline = self.loop.time() + self.config.patience_s
        wait_s = 0.0
        while True:
            try:
                return await attempt()
            except WindlassError:
                raise
            except Exception as error:  # noqa: BLE001 - raised as one of ours, or tried again
                is_late = self.loop.time() + wait_s > deadline
                # A server that was never reached is not waited for: its address may be wrong.
                can_retry = self._schema_ready and is_transient(error)
                if is_late or self.is_closed or not can_retry:
                    raise postgres_error(self.config, error) from None
            await asyncio.sleep(wait_s)
            wait_s = min(max(2 * wait_s, RETRY_WAIT_MIN_S), RETRY_WAIT_MAX_S)

    async def open_connection(self, *, is_direct: bool = False) -> PostgresConnection:
        """Open a connection that the pool does not hand out; the schema is up to date then.

        `is_direct`: to the server itself, if there is a way around the pooler.
        """
        if self.is_closed:
            raise closed_error(self.config.location)
        connection = await connect_to_server(self.config, is_direct=is_direct)
        self._open.connections.add(connection)
        try:
            await self._start_closer()
            if not self._schema_ready:
                async with self._migration_lock:
                    await migrate_schema(connection, self.config)
                self._schema_ready = True
            await self.history.check(connection)
        except BaseException:
            self.drop_connection(connection)
            raise
        return connection

    async def ask_if_shared(self) -> bool:
        """Ask the server whether programs of the version before may use the tables."""
        return await self.run_on_connection(lambda it: is_shared(it, self.config))

    def drop_connection(self, connection: PostgresConnection) -> None:
        """Close a connection at once, without a word to the server."""
        self._open.connections.discard(connection)
        with suppress(Exception):
            connection.terminate()

    def add_farewell(self, farewell: Callable[[PostgresConnection], Awaitable[None]]) -> None:
        """Have something done on a connection before an event loop that ends closes them all."""
        self._open.farewells.append(farewell)

    async def close(self) -> None:
        """Close all connections, also those that are in use."""
        self._open.farewells.clear()
        self._open.closed = True
        if self._closer is not None:
            await self._closer.aclose()

    @asynccontextmanager
    async def _borrow_connection(self) -> AsyncGenerator[PostgresConnection]:
        async with self._slots:
            connection = await self._idle_or_new_connection()
            try:
                yield connection
            except BaseException as error:
                # Unless the server answered, the statement may still be running on it.
                is_over = isinstance(error, WindlassError) or is_server_answer(error)
                if is_connection_lost(error) or not is_over:
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

    async def _start_closer(self) -> None:
        if self._closer is None:
            self._closer = _close_at_the_end(self._open)
            await anext(self._closer)


async def _close_at_the_end(open_connections: _OpenConnections) -> AsyncGenerator[None]:
    # An event loop that shuts down closes the async generators that are still open
    # (`shutdown_asyncgens`), and so this one: it is our only chance to close the connections there.
    try:
        yield
    finally:
        open_connections.closed = True
        await _say_farewells(open_connections)
        while open_connections.connections:
            connection = open_connections.connections.pop()
            try:
                await connection.close(timeout=CLOSE_TIMEOUT_S)
            except Exception:  # noqa: BLE001 - a server that does not answer is left anyway
                connection.terminate()


async def _say_farewells(open_connections: _OpenConnections) -> None:
    while open_connections.farewells:
        farewell = open_connections.farewells.pop()
        for connection in tuple(open_connections.connections):
            # One that is in the middle of something refuses, and the next one is tried.
            with suppress(Exception):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await farewell(connection)
                break
