"""A model provider that fails on demand, over real HTTP on this machine.

    async with FaultServer(text_answer("Hello"), refuse_with(429)) as server:
        model = resolve("openai-compatible:m", base_url=server.url, environ={})

Each request gets the next answer of the script. When the script is used up, `always` answers; it
may be a function of the request. The server controls every byte that it sends (see `wire.py`). It
records each request, and whether the client left before the answer was over.
"""

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, cast

import msgspec
from typing_extensions import override

from windlass.testing.wire import (
    WireAct,
    WireAnswer,
    WireDrop,
    WireHold,
    WireReset,
    WireWait,
    refuse_with,
)

HOLD_POLL_S = 0.02
START_TIMEOUT_S = 10.0
_SCRIPT_USED_UP = refuse_with(
    418, {"error": {"message": "The script of the fault server is used up."}}
)
_LINGER_OFF = struct.pack("ii", 1, 0)


@dataclass(slots=True)
class ReceivedRequest:
    """One HTTP request as the server received it."""

    method: str
    path: str
    headers: dict[str, str]
    """By name in lower case."""
    body: bytes
    connection: int
    """The number of the connection it came on, from 1."""
    client_left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the client closes the connection before the answer is over."""
    acts_done: list[float] = field(default_factory=list[float])
    """When each act of the answer was done, in seconds since the epoch."""

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever the client sent
        """The body, decoded. Raises msgspec.DecodeError if it is not JSON."""
        return msgspec.json.decode(self.body)


class _ConnectionClosed(Exception):
    """The script, or the client, closed the connection."""


class _WatchedReader(asyncio.StreamReader):
    """Reports that the client has left, without reading what it may send next."""

    def __init__(self) -> None:
        # Prompts with attachments have long lines; the default limit is 64 KiB.
        super().__init__(limit=2**26)
        self.client_left = asyncio.Event()

    @override
    def feed_eof(self) -> None:
        super().feed_eof()
        self.client_left.set()

    @override
    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self.client_left.set()


class _TrackedProtocol(asyncio.StreamReaderProtocol):
    """Says which connections are open, from before they are served until they are closed."""

    def __init__(self, server: "FaultServer") -> None:
        super().__init__(_WatchedReader(), server.serve_connection)
        self._open = server.open_connections

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._open[self] = cast("asyncio.Transport", transport)
        super().connection_made(transport)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._open.pop(self, None)
        super().connection_lost(exc)


class FaultServer:
    """A scripted HTTP server on 127.0.0.1. Enter it to start, leave it to stop."""

    def __init__(
        self,
        *script: WireAnswer,
        always: WireAnswer | Callable[[ReceivedRequest], WireAnswer] | None = None,
    ) -> None:
        self._script = list(script)
        self._always = always or _SCRIPT_USED_UP
        self._server: asyncio.Server | None = None
        self._connection_tasks: set[asyncio.Task[None]] = set()
        self.open_connections: dict[object, asyncio.Transport] = {}
        self._connection_count = 0
        self._port = 0
        self.requests: list[ReceivedRequest] = []
        """The requests received so far, in order."""

    def add_answers(self, *script: WireAnswer) -> None:
        """Append answers to the script."""
        self._script.extend(script)

    @property
    def answers_left(self) -> int:
        """How many answers of the script have not been sent yet."""
        return len(self._script)

    @property
    def url(self) -> str:
        """The base URL for a model. It is known once the server is entered."""
        return f"http://127.0.0.1:{self._port}/v1"

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _TrackedProtocol(self),
            "127.0.0.1",
            0,
            backlog=1024,  # Room for a crowd of clients that connect at once.
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
        """Stop listening and close open connections. New connections are refused from now on."""
        if self._server is None:
            return
        self._server.close()
        for task in self._connection_tasks:
            task.cancel()
        await asyncio.gather(*self._connection_tasks, return_exceptions=True)
        await asyncio.sleep(0)
        # One that was just accepted is not served yet, and one with a client that does not read
        # would be closed by its last byte.
        for transport in tuple(self.open_connections.values()):
            transport.abort()
        while self.open_connections:  # noqa: ASYNC110 - closed within the next turns
            await asyncio.sleep(0)
        await self._server.wait_closed()
        self._server = None

    async def serve_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer the requests of a connection by the script."""
        task = asyncio.current_task()
        assert task is not None
        assert isinstance(reader, _WatchedReader)
        # With no buffer, `drain` returns when the kernel has every byte. A reset would discard
        # bytes that are still in the buffer of the process.
        writer.transport.set_write_buffer_limits(0)
        self._connection_tasks.add(task)
        self._connection_count += 1
        number = self._connection_count
        try:
            while (request := await _read_request(reader, number)) is not None:
                self.requests.append(request)
                answer = self._script.pop(0) if self._script else self._always
                if not isinstance(answer, WireAnswer):
                    answer = answer(request)
                await self._send_answer(answer, request, reader, writer)
        except (_ConnectionClosed, ConnectionError, asyncio.CancelledError):
            # Expected ends of a connection. Nothing awaits this task, so nothing is raised.
            pass
        finally:
            self._connection_tasks.discard(task)
            writer.close()

    async def _send_answer(
        self,
        answer: WireAnswer,
        http_request: ReceivedRequest,
        reader: _WatchedReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Send the answer. Raises _ConnectionClosed if the client leaves before it is over."""
        playing = asyncio.ensure_future(_play_answer(answer, writer, http_request.acts_done))
        leaving = asyncio.ensure_future(reader.client_left.wait())
        try:
            await asyncio.wait((playing, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not playing.done() or isinstance(playing.exception(), ConnectionError):
                http_request.client_left.set()
                raise _ConnectionClosed
            await playing
        finally:
            for task in (playing, leaving):
                task.cancel()
            # Awaited, so that no test sees a task of the server that is still ending.
            await asyncio.gather(playing, leaving, return_exceptions=True)


@contextmanager
def serve_in_thread(server: FaultServer) -> Generator[FaultServer]:
    """Run the server in its own thread, for synchronous clients. Yields the server."""
    ready = threading.Event()
    done = threading.Event()

    async def serve() -> None:
        async with server:
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="fault-server")
    thread.start()
    try:
        assert ready.wait(START_TIMEOUT_S), "the fault server did not start"
        yield server
    finally:
        done.set()
        thread.join()


async def _read_request(reader: asyncio.StreamReader, connection: int) -> ReceivedRequest | None:
    """Read the next request of a connection. Returns None when the client has closed it."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    headers = {name.strip().lower(): value.strip() for name, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return ReceivedRequest(method, path, headers, body, connection)


async def _play_answer(answer: WireAnswer, writer: asyncio.StreamWriter, done: list[float]) -> None:
    for act in answer.before:
        await _perform_act(act, writer, chunked=False)
    writer.write(answer.encode_head())
    for act in answer.acts:
        await _perform_act(act, writer, chunked=answer.chunked)
        done.append(time.time())
    if answer.chunked:
        writer.write(b"0\r\n\r\n")
    await writer.drain()
    for act in answer.after:
        await _perform_act(act, writer, chunked=False)


async def _perform_act(act: WireAct, writer: asyncio.StreamWriter, *, chunked: bool) -> None:
    match act:
        case bytes():
            writer.write(b"%x\r\n%b\r\n" % (len(act), act) if chunked and act else act)
            await writer.drain()
        case WireWait(seconds):
            if seconds is None:
                await asyncio.Future[None]()
            else:
                await asyncio.sleep(seconds)
        case WireHold(until):
            while not until.is_set():  # noqa: ASYNC110 - another thread sets it
                await asyncio.sleep(HOLD_POLL_S)
        case WireDrop():
            raise _ConnectionClosed
        case WireReset():
            await writer.drain()
            # With this option set, closing the socket sends RST instead of FIN.
            sock: socket.socket = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_OFF)
            raise _ConnectionClosed
