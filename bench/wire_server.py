"""A scripted chat completions server on 127.0.0.1, in its own process.

The path of a request selects the reply: `/text/COUNT/APART_MS` streams that many words, `/calls/
COUNT/LATENCY_MS` asks for that many calls, one in each reply, and then answers. All bytes are
prepared in advance, so that no client waits for the server.
"""

import asyncio
import contextlib
import ctypes
import http.client
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache, partial
from typing import cast

import httptools
import msgspec
from typing_extensions import override

from windlass.testing.chat_wire import call_chunks, chat_answer, text_chunk
from windlass.testing.wire import WireAnswer

WORD = "word"
ANSWER = "That is all."
COUNTED = "/counted"
BACKLOG = 2_048
_TRIM_THRESHOLD = -1
_MMAP_THRESHOLD = -3
_RESULT = b'"role":"tool"'


class WireCounts(msgspec.Struct):
    """What the server received since the counts were last taken."""

    requests: int = 0
    body_bytes: int = 0
    connections: int = 0
    at_once: int = 0
    """The largest number of requests that waited for their reply at the same time."""
    cpu_s: float = 0.0
    """CPU time of the server itself, in seconds."""


class WireServer:
    """The server as its clients see it."""

    def __init__(self, port: int) -> None:
        self._port = port

    def text_url(self, count: int, apart_ms: int = 0) -> str:
        return f"http://127.0.0.1:{self._port}/text/{count}/{apart_ms}"

    def calls_url(self, count: int, latency_ms: int = 0) -> str:
        return f"http://127.0.0.1:{self._port}/calls/{count}/{latency_ms}"

    def take_counts(self) -> WireCounts:
        """Return the counts, and start from zero."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        with contextlib.closing(connection):
            connection.request("GET", COUNTED)
            return msgspec.json.decode(connection.getresponse().read(), type=WireCounts)


@contextlib.contextmanager
def run_server() -> Iterator[WireServer]:
    """Run the server until the block ends. It also ends when its standard input closes."""
    _keep_memory()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, __file__], **pipes) as child, _pin_to_core(child.pid):
        try:
            assert child.stdout is not None
            yield WireServer(int(child.stdout.readline()))
        finally:
            child.terminate()


@contextlib.contextmanager
def _pin_to_core(pid: int) -> Iterator[None]:
    """Give the server its own core: sharing one with a client would change the cost by half."""
    cores = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []
    if len(cores) < 2:
        yield
        return
    os.sched_setaffinity(pid, cores[-1:])
    os.sched_setaffinity(0, cores[:-1])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _keep_memory() -> None:
    """Keep freed memory in the process.

    A read allocates 256 kB and frees most of it. Otherwise chance decides whether it goes back to
    the kernel, which is slow.
    """
    if platform.libc_ver()[0] == "glibc":
        for option in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            ctypes.CDLL(None).mallopt(option, 2**25)


class _WireState:
    def __init__(self) -> None:
        self.counts = WireCounts()
        self.waiting = 0
        self.cpu_from = time.process_time()

    def take_counts(self) -> WireCounts:
        """Return the counts without the request that asks for them, and start from zero."""
        taken = self.counts
        now = time.process_time()
        taken.cpu_s = now - self.cpu_from
        self.cpu_from = now
        taken.connections -= 1
        self.counts = WireCounts()
        return taken


class _WireConnection(asyncio.Protocol):
    def __init__(self, state: _WireState) -> None:
        self._state = state
        self._loop = asyncio.get_running_loop()
        self._body: list[bytes] = []
        self._url = ""
        self._sending: asyncio.Task[None] | None = None
        self.on_body = self._body.append
        self._parser = httptools.HttpRequestParser(self)

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._state.counts.connections += 1

    @override
    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._url = url.decode()

    def on_message_complete(self) -> None:
        body = b"".join(self._body)
        self._body.clear()
        if self._url == COUNTED:
            self._transport.write(_whole_response(msgspec.json.encode(self._state.take_counts())))
            return
        state = self._state
        counts = state.counts
        counts.requests += 1
        counts.body_bytes += len(body)
        state.waiting += 1
        counts.at_once = max(counts.at_once, state.waiting)
        _, kind, count, wait_ms, *_ = self._url.split("/")
        if kind == "calls":
            reply = _step_answer(body.count(_RESULT), int(count))
            self._loop.call_later(int(wait_ms) / 1e3, partial(self._send_reply, reply))
        elif wait_ms == "0":
            self._send_reply(b"".join(_text_answer(int(count))))
        else:
            self._sending = self._loop.create_task(
                self._send_slowly(int(count), int(wait_ms) / 1e3)
            )

    def _send_reply(self, reply: bytes) -> None:
        self._state.waiting -= 1
        self._transport.write(reply)

    async def _send_slowly(self, count: int, apart_s: float) -> None:
        head, *pieces = _text_answer(count)
        self._send_reply(head)
        for piece in pieces:
            await asyncio.sleep(apart_s)
            self._transport.write(piece)


def _whole_response(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


@cache
def _text_answer(count: int) -> tuple[bytes, ...]:
    return _http_pieces(chat_answer(*(text_chunk(WORD) for _ in range(count))))


@cache
def _step_answer(done: int, count: int) -> bytes:
    """Return the reply after `done` results: the next call, or the answer."""
    if done >= count:
        return b"".join(_http_pieces(chat_answer(text_chunk(ANSWER))))
    call = call_chunks("look", f'{{"at": {done}', "}", id=f"call_{done}")
    return b"".join(_http_pieces(chat_answer(call)))


def _http_pieces(answer: WireAnswer) -> tuple[bytes, ...]:
    """Return the head, and then one HTTP chunk for each event, as servers send them."""
    acts = [act for act in answer.acts if isinstance(act, bytes)]
    chunks = (b"%x\r\n%b\r\n" % (len(act), act) for act in acts)
    return answer.encode_head(), *chunks, b"0\r\n\r\n"


async def _serve_forever() -> None:
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    state = _WireState()
    loop.add_signal_handler(signal.SIGTERM, over.set)
    loop.add_reader(sys.stdin, over.set)
    server = await loop.create_server(
        lambda: _WireConnection(state), "127.0.0.1", 0, backlog=BACKLOG
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await over.wait()


if __name__ == "__main__":
    asyncio.run(_serve_forever())
