"""The model that everyone talks to: chat completions by script, on 127.0.0.1, in its own process.

The path of a request says what comes: `/text/COUNT/APART_MS` streams so many words; `/calls/COUNT/
LATENCY_MS` asks for so many calls, one per reply, and answers; `/many/COUNT/0` asks for them all in
one reply; `/hush/COUNT/0` says so many words, falls silent, and notes when the client hangs up. The
bytes are made before they are needed, so that nobody waits for the server.
"""

import asyncio
import contextlib
import http.client
import os
import re
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

ANSWER = "That is all."
WORD = "word"
COUNTED = "/counted"
BACKLOG = 4_096
FINAL = b'"final_answer"'
"""A peer that ends a run by calling a tool of this name offers that tool."""
_PARCEL = re.compile(rb"parcel (\d+)")


class PeerCounts(msgspec.Struct):
    """What the server received since the counts were last taken."""

    requests: int = 0
    body_bytes: int = 0
    at_once: int = 0
    """The largest number of requests that waited for their reply at the same time."""
    left_at: list[float] = []
    """When clients closed the connection during a silence, by the monotonic clock."""


class PeerServer:
    """The server as its clients see it."""

    def __init__(self, port: int) -> None:
        self._port = port

    def url(self, kind: str, count: int, wait_ms: int = 0) -> str:
        return f"http://127.0.0.1:{self._port}/{kind}/{count}/{wait_ms}/v1"

    def take_counts(self) -> PeerCounts:
        """Return the counts, and start from zero."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        with contextlib.closing(connection):
            connection.request("GET", COUNTED)
            return msgspec.json.decode(connection.getresponse().read(), type=PeerCounts)


@contextlib.contextmanager
def run_server() -> Iterator[PeerServer]:
    """Run the server until the block ends. It also ends when its standard input closes."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, __file__], **pipes) as child:
        _pin_to_core(child.pid)
        try:
            assert child.stdout is not None
            yield PeerServer(int(child.stdout.readline()))
        finally:
            child.terminate()


def _pin_to_core(pid: int) -> None:
    """Give the server its own core. The contestants inherit the other cores."""
    cores = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []
    if len(cores) > 1:
        os.sched_setaffinity(pid, cores[-1:])
        os.sched_setaffinity(0, cores[:-1])


class _PeerState:
    def __init__(self) -> None:
        self.counts = PeerCounts()
        self.waiting = 0


class _PeerConnection(asyncio.Protocol):
    def __init__(self, state: _PeerState) -> None:
        self._state = state
        self._loop = asyncio.get_running_loop()
        self._body: list[bytes] = []
        self._url = ""
        self._hushed = False
        self._sending: asyncio.Task[None] | None = None
        self.on_body = self._body.append
        self._parser = httptools.HttpRequestParser(self)

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._hushed:
            self._state.counts.left_at.append(time.monotonic())

    @override
    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._url = url.decode()

    def on_message_complete(self) -> None:
        body = b"".join(self._body)
        self._body.clear()
        state = self._state
        counts = self._state.counts
        if self._url == COUNTED:
            state.counts = PeerCounts()
            self._transport.write(_whole_response(msgspec.json.encode(counts)))
            return
        counts.requests += 1
        counts.body_bytes += len(body)
        state.waiting += 1
        counts.at_once = max(counts.at_once, state.waiting)
        _, kind, count, wait_ms, *_ = self._url.split("/")
        self._reply_to(kind, int(count), int(wait_ms) / 1e3, body)

    def _reply_to(self, kind: str, count: int, wait_s: float, body: bytes) -> None:
        by_call = FINAL in body
        match kind:
            case "calls":
                reply = step_reply(_count_results(body), count, by_call=by_call)
                self._loop.call_later(wait_s, partial(self._send_reply, reply))
            case "many":
                reply = (
                    fan_reply(count)
                    if not _count_results(body)
                    else step_reply(1, 0, by_call=by_call)
                )
                self._send_reply(reply)
            case "hush":
                self._hushed = True
                self._send_reply(
                    b"".join(
                        _http_pieces(chat_answer(*(text_chunk(WORD) for _ in range(count))))[
                            : count + 1
                        ]
                    )
                )
            case _ if wait_s:
                self._sending = self._loop.create_task(
                    self._send_slowly(text_reply(count, by_call), wait_s)
                )
            case _:
                self._send_reply(b"".join(text_reply(count, by_call)))

    def _send_reply(self, reply: bytes) -> None:
        self._state.waiting -= 1
        self._transport.write(reply)

    async def _send_slowly(self, pieces: tuple[bytes, ...], apart_s: float) -> None:
        self._send_reply(pieces[0])
        due = self._loop.time()
        for piece in pieces[1:]:
            due += apart_s
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            self._transport.write(piece)


def _count_results(body: bytes) -> int:
    """Return how many results a request has: each one names its number, and the last is largest."""
    found = _PARCEL.findall(body[-4_000:]) or _PARCEL.findall(body)
    return max(map(int, found)) + 1 if found else 0


def _whole_response(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


@cache
def text_reply(count: int, by_call: bool) -> tuple[bytes, ...]:  # noqa: FBT001 - a key of the cache
    said = [text_chunk(WORD) for _ in range(count)]
    return _http_pieces(chat_answer(*said, *([final_reply()] if by_call else [])))


@cache
def step_reply(done: int, count: int, *, by_call: bool) -> bytes:
    """Return the reply after `done` results: the next call, or the answer."""
    if done < count:
        return _answer_bytes(
            chat_answer(call_chunks("look", f'{{"at": {done}', "}", id=f"call_{done}"))
        )
    return _answer_bytes(chat_answer(final_reply() if by_call else text_chunk(ANSWER)))


@cache
def fan_reply(count: int) -> bytes:
    """Return one reply with all calls."""
    calls = (
        call_chunks("nap", f'{{"at": {at}', "}", id=f"call_{at}", index=at) for at in range(count)
    )
    return _answer_bytes(chat_answer(*calls))


def final_reply(said: str = ANSWER) -> tuple[bytes, ...]:
    """Return the answer as a call."""
    return call_chunks(
        "final_answer", msgspec.json.encode({"answer": said}).decode(), id="call_final"
    )


def _answer_bytes(answer: WireAnswer) -> bytes:
    return b"".join(_http_pieces(answer))


def _http_pieces(answer: WireAnswer) -> tuple[bytes, ...]:
    """Return the head, and then one HTTP chunk for each event, as servers send them."""
    acts = [act for act in answer.acts if isinstance(act, bytes)]
    chunks = (b"%x\r\n%b\r\n" % (len(act), act) for act in acts)
    return answer.encode_head(), *chunks, b"0\r\n\r\n"


async def _serve_forever() -> None:
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    state = _PeerState()
    loop.add_signal_handler(signal.SIGTERM, over.set)
    loop.add_reader(sys.stdin, over.set)
    server = await loop.create_server(
        lambda: _PeerConnection(state), "127.0.0.1", 0, backlog=BACKLOG
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await over.wait()


if __name__ == "__main__":
    asyncio.run(_serve_forever())
