"""The connections of one event loop, and the patience with which they are used.

A driver's connection belongs to the loop that opened it. They are opened when they are needed, and
closed with the journal, or by the loop itself when it shuts down.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from windlass.core.errors import JournalFailed, WindlassError
from windlass.journals.postgres.config import Connection, Place, connect, failed, lost, passing
from windlass.journals.postgres.schema import bring_up

T = TypeVar("T")
CLOSE_S = 2.0
"""How long the server may take to say goodbye."""
WAIT_MAX_S = 1.0


class _Holdings:
    """Apart from the line, so that one which is forgotten is closed."""

    def __init__(self) -> None:
        self.connections = set[Connection]()
        self.closed = False


class Line:
    """What one event loop has open."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.loop = asyncio.get_running_loop()
        self._room = asyncio.Semaphore(place.connections_max)
        self._opening = asyncio.Lock()
        self._idle: list[Connection] = []
        self._held = _Holdings()
        self._up = False
        self._keeper: AsyncGenerator[None] | None = None

    @property
    def closed(self) -> bool:
        return self._held.closed

    async def ask(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do the work on a connection, again if that one broke: it must bear being done twice."""

        async def once() -> T:
            async with self._borrowed() as connection:
                return await work(connection)

        return await self.patiently(once)

    async def patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try until the server is back, or for as long as was agreed."""
        until, wait_s = self.loop.time() + self.place.patience_s, 0.0
        while True:
            try:
                return await attempt()
            except WindlassError:
                raise
            except Exception as error:  # noqa: BLE001 - put into words, or tried again
                late = self.loop.time() + wait_s > until
                # A server that was never there is not waited for: its address may be wrong.
                if late or self.closed or not (self._up and passing(error)):
                    raise failed(self.place, error) from None
            await asyncio.sleep(wait_s)
            wait_s = min(max(2 * wait_s, 0.02), WAIT_MAX_S)

    async def open(self) -> Connection:
        """A new connection, to a schema that is up to date."""
        if self.closed:
            raise JournalFailed(f"journal {self.place.title}: it is closed")
        connection = await connect(self.place)
        self._held.connections.add(connection)
        try:
            await self._keep()
            if not self._up:
                async with self._opening:
                    await bring_up(connection, self.place)
                self._up = True
        except BaseException:
            self.drop(connection)
            raise
        return connection

    def drop(self, connection: Connection) -> None:
        """Let go of a connection at once."""
        self._held.connections.discard(connection)
        with suppress(Exception):
            connection.terminate()

    async def close(self) -> None:
        self._held.closed = True
        if self._keeper is not None:
            await self._keeper.aclose()

    @asynccontextmanager
    async def _borrowed(self) -> AsyncGenerator[Connection]:
        async with self._room:
            connection = await self._one()
            try:
                yield connection
            except BaseException as error:
                # Whatever was under way may still be: only an answer of the server ends it.
                answered = isinstance(error, WindlassError) or hasattr(error, "sqlstate")
                if lost(error) or not answered:
                    self.drop(connection)
                raise
            finally:
                if connection in self._held.connections:
                    self._idle.append(connection)

    async def _one(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
            self._held.connections.discard(connection)
        return await self.open()

    async def _keep(self) -> None:
        if self._keeper is None:
            self._keeper = _until_the_end(self._held)
            await anext(self._keeper)


async def _until_the_end(held: _Holdings) -> AsyncGenerator[None]:
    # A loop closes the async generators that are still open when it shuts down, and so this one.
    try:
        yield
    finally:
        held.closed = True
        while held.connections:
            connection = held.connections.pop()
            try:
                await connection.close(timeout=CLOSE_S)
            except Exception:  # noqa: BLE001 - a server that does not answer is left all the same
                connection.terminate()
