"""A server of bytes: each connection is played by a function, and the requests are kept."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Play = Callable[["RawConnection"], Awaitable[None]]


class RawConnection:
    """The server's side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def read_head(self) -> str:
        return (await self.reader.readuntil(b"\r\n\r\n")).decode()

    async def read_request(self) -> tuple[str, bytes]:
        head = await self.read_head()
        lines = [line.lower() for line in head.split("\r\n")]
        lengths = [int(line[15:]) for line in lines if line.startswith("content-length:")]
        return head, await self.reader.readexactly(lengths[0] if lengths else 0)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def wait_until_left(self) -> None:
        """Wait until the client has closed the connection."""
        while await self.reader.read(65_536):
            pass


class RawServer:
    """Listens on this machine, and keeps what it was asked."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self.heads: list[str] = []
        self.connections = 0
        self.port = 0
        self.host = "127.0.0.1"
        self.scheme = "http"
        self.reached = asyncio.Event()
        """Set when a connection has been made."""
        self.left = asyncio.Event()
        """Set when a connection has ended."""

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.reached.set()
        # A stream's task that is cancelled would be reported by the loop.
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._play(RawConnection(reader, writer))
        self.left.set()
        writer.transport.abort()


def answering(*answers: bytes, closes: bool = False) -> Play:
    """Answer the requests of a connection in turn, then close it or wait for the client to go."""

    async def play(connection: RawConnection) -> None:
        for answer in answers:
            await connection.read_request()
            await connection.send(answer)
        if not closes:
            await connection.wait_until_left()
        else:
            connection.writer.close()
            await connection.writer.wait_closed()

    return play


@asynccontextmanager
async def raw_server(
    play: Play, *, host: str = "127.0.0.1", context: ssl.SSLContext | None = None
) -> AsyncIterator[RawServer]:
    served = RawServer(play)
    served.host = host
    served.scheme = "https" if context else "http"
    running: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            await served.handle(reader, writer)
        finally:
            running.discard(task)

    server = await asyncio.start_server(handle, host, 0, ssl=context)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        server.close()
        for task in list(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await server.wait_closed()
