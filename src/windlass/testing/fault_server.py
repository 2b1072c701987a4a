"""A model provider that fails on demand, over real HTTP on this machine.

    async with FaultServer(say("Hello"), refuse_with(429), say("again")) as server:
        model = resolve("openai-compatible:m", base_url=server.url, environ={})

Each request gets the next answer of the script; `always` answers when the script is used up, and
may be a function of the request. The server controls every byte (see `wire.py`), and records what
it was asked and whether the client went before the answer was over.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import msgspec
from typing_extensions import override

from windlass.testing.wire import Act, Answer, Drop, Reset, Wait, refuse_with

READY_S = 10.0
_USED_UP = refuse_with(418, {"error": {"message": "the fault server's script is used up"}})
_LINGER_OFF = struct.pack("ii", 1, 0)


@dataclass(slots=True)
class Asked:
    """One request, as it came."""

    method: str
    path: str
    headers: dict[str, str]
    """By lower-case name."""
    body: bytes
    connection: int
    """Which connection it came on, from 1."""
    client_left: asyncio.Event = field(default_factory=asyncio.Event)
    """The client closed the connection before the answer was over."""

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever the client sent
        return msgspec.json.decode(self.body)


class _Closed(Exception):
    """The script, or the client, closed the connection."""


class _Reader(asyncio.StreamReader):
    """Tells when the client goes, without reading what it may say next."""

    def __init__(self) -> None:
        super().__init__(limit=2**26)
        self.left = asyncio.Event()

    @override
    def feed_eof(self) -> None:
        super().feed_eof()
        self.left.set()

    @override
    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self.left.set()


class FaultServer:
    """A scripted HTTP server on 127.0.0.1. Enter it to start, leave it to stop."""

    def __init__(
        self, *script: Answer, always: Answer | Callable[[Asked], Answer] | None = None
    ) -> None:
        self._script = list(script)
        self._always = always or _USED_UP
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._connections = 0
        self._port = 0
        self.asked: list[Asked] = []
        """The requests so far, in order."""

    def add(self, *script: Answer) -> None:
        """Go on with these answers when the script is used up."""
        self._script.extend(script)

    @property
    def unused(self) -> int:
        """Answers that nobody asked for yet."""
        return len(self._script)

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self._port}/v1"

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: asyncio.StreamReaderProtocol(_Reader(), self._connected),
            "127.0.0.1",
            0,
            backlog=1024,
        )
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stop listening and close what is open: from now on connections are refused."""
        if self._server is None:
            return
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        assert isinstance(reader, _Reader)
        # So that `drain` returns when the kernel has it all: a reset throws away what is left.
        writer.transport.set_write_buffer_limits(0)
        self._serving.add(task)
        self._connections += 1
        number = self._connections
        try:
            while (asked := await _request(reader, number)) is not None:
                self.asked.append(asked)
                response = self._script.pop(0) if self._script else self._always
                if not isinstance(response, Answer):
                    response = response(asked)
                await self._answer(response, asked, reader, writer)
        except (_Closed, ConnectionError, asyncio.CancelledError):
            # Ends here for good: a task of the server's own has nobody to tell.
            pass
        finally:
            self._serving.discard(task)
            writer.close()

    async def _answer(
        self, response: Answer, asked: Asked, reader: _Reader, writer: asyncio.StreamWriter
    ) -> None:
        """Play the response, for as long as the client is there."""
        playing = asyncio.ensure_future(_play(response, writer))
        leaving = asyncio.ensure_future(reader.left.wait())
        try:
            await asyncio.wait((playing, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not playing.done() or isinstance(playing.exception(), ConnectionError):
                asked.client_left.set()
                raise _Closed
            await playing
        finally:
            for task in (playing, leaving):
                task.cancel()
            await asyncio.gather(playing, leaving, return_exceptions=True)


@contextmanager
def in_thread(server: FaultServer) -> Generator[FaultServer]:
    """The server in a thread of its own, for a client that is not async."""
    ready, done = threading.Event(), threading.Event()

    async def serve() -> None:
        async with server:
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="fault-server")
    thread.start()
    try:
        assert ready.wait(READY_S), "the fault server did not start"
        yield server
    finally:
        done.set()
        thread.join()


async def _request(reader: asyncio.StreamReader, connection: int) -> Asked | None:
    """The next request of a connection, or None when the client is done with it."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    headers = {name.strip().lower(): value.strip() for name, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(method, path, headers, body, connection)


async def _play(response: Answer, writer: asyncio.StreamWriter) -> None:
    for act in response.before:
        await _act(act, writer, chunked=False)
    writer.write(response.head())
    for act in response.acts:
        await _act(act, writer, chunked=response.chunked)
    if response.chunked:
        writer.write(b"0\r\n\r\n")
    await writer.drain()
    for act in response.after:
        await _act(act, writer, chunked=False)


async def _act(act: Act, writer: asyncio.StreamWriter, *, chunked: bool) -> None:
    match act:
        case bytes():
            writer.write(b"%x\r\n%b\r\n" % (len(act), act) if chunked and act else act)
            await writer.drain()
        case Wait(seconds):
            await asyncio.sleep(seconds) if seconds is not None else await asyncio.Future[None]()
        case Drop():
            raise _Closed
        case Reset():
            await writer.drain()
            # With this option, closing sends a reset, and no end of the stream.
            sock: socket.socket = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_OFF)
            raise _Closed
