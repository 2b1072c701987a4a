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

from windlass.testing.chat_wire import called, chat, words
from windlass.testing.wire import Answer

ANSWER = "That is all."
WORD = "word"
COUNTED = "/counted"
BACKLOG = 4_096
FINAL = b'"final_answer"'
"""A peer that ends by calling a tool of this name lists it."""
_PARCEL = re.compile(rb"parcel (\d+)")


class Counts(msgspec.Struct):
    """What came since it was last asked for."""

    requests: int = 0
    body_bytes: int = 0
    at_once: int = 0
    """Requests that waited for their reply at one time, at the most."""
    left_at: list[float] = []
    """When clients hung up in the middle of a silence, by the monotonic clock."""


class Server:
    """The server, as its clients see it."""

    def __init__(self, port: int) -> None:
        self._port = port

    def url(self, kind: str, count: int, wait_ms: int = 0) -> str:
        return f"http://127.0.0.1:{self._port}/{kind}/{count}/{wait_ms}/v1"

    def counted(self) -> Counts:
        """The counts since the last time."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        with contextlib.closing(connection):
            connection.request("GET", COUNTED)
            return msgspec.json.decode(connection.getresponse().read(), type=Counts)


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    """The server runs until the block is left; if we die, it goes with its standard input."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, __file__], **pipes) as child:
        _apart(child.pid)
        try:
            assert child.stdout is not None
            yield Server(int(child.stdout.readline()))
        finally:
            child.terminate()


def _apart(pid: int) -> None:
    """The server has a core of its own; the contestants, who inherit ours, have the others."""
    cores = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []
    if len(cores) > 1:
        os.sched_setaffinity(pid, cores[-1:])
        os.sched_setaffinity(0, cores[:-1])


class _State:
    def __init__(self) -> None:
        self.counts = Counts()
        self.waiting = 0


class _Connection(asyncio.Protocol):
    def __init__(self, state: _State) -> None:
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
        state, counts = self._state, self._state.counts
        if self._url == COUNTED:
            state.counts = Counts()
            self._transport.write(_whole(msgspec.json.encode(counts)))
            return
        counts.requests += 1
        counts.body_bytes += len(body)
        state.waiting += 1
        counts.at_once = max(counts.at_once, state.waiting)
        _, kind, count, wait_ms, *_ = self._url.split("/")
        self._reply(kind, int(count), int(wait_ms) / 1e3, body)

    def _reply(self, kind: str, count: int, wait_s: float, body: bytes) -> None:
        by_call = FINAL in body
        match kind:
            case "calls":
                reply = step(_done(body), count, by_call=by_call)
                self._loop.call_later(wait_s, partial(self._send, reply))
            case "many":
                reply = fan(count) if not _done(body) else step(1, 0, by_call=by_call)
                self._send(reply)
            case "hush":
                self._hushed = True
                self._send(
                    b"".join(_pieces(chat(*(words(WORD) for _ in range(count))))[: count + 1])
                )
            case _ if wait_s:
                self._sending = self._loop.create_task(self._trickle(text(count, by_call), wait_s))
            case _:
                self._send(b"".join(text(count, by_call)))

    def _send(self, reply: bytes) -> None:
        self._state.waiting -= 1
        self._transport.write(reply)

    async def _trickle(self, pieces: tuple[bytes, ...], apart_s: float) -> None:
        self._send(pieces[0])
        due = self._loop.time()
        for piece in pieces[1:]:
            due += apart_s
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            self._transport.write(piece)


def _done(body: bytes) -> int:
    """How many results have come: each tells the number of its parcel, and the last is the most."""
    found = _PARCEL.findall(body[-4_000:]) or _PARCEL.findall(body)
    return max(map(int, found)) + 1 if found else 0


def _whole(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


@cache
def text(count: int, by_call: bool) -> tuple[bytes, ...]:  # noqa: FBT001 - a key of the cache
    said = [words(WORD) for _ in range(count)]
    return _pieces(chat(*said, *([final()] if by_call else [])))


@cache
def step(done: int, count: int, *, by_call: bool) -> bytes:
    """The reply after so many results: the next call, or the answer."""
    if done < count:
        return _bytes(chat(called("look", f'{{"at": {done}', "}", id=f"call_{done}")))
    return _bytes(chat(final() if by_call else words(ANSWER)))


@cache
def fan(count: int) -> bytes:
    """All the calls in one reply."""
    calls = (called("nap", f'{{"at": {at}', "}", id=f"call_{at}", index=at) for at in range(count))
    return _bytes(chat(*calls))


def final(said: str = ANSWER) -> tuple[bytes, ...]:
    """The answer as a call."""
    return called("final_answer", msgspec.json.encode({"answer": said}).decode(), id="call_final")


def _bytes(answer: Answer) -> bytes:
    return b"".join(_pieces(answer))


def _pieces(answer: Answer) -> tuple[bytes, ...]:
    """The head, and then one HTTP chunk for each event, as servers send them."""
    acts = [act for act in answer.acts if isinstance(act, bytes)]
    chunks = (b"%x\r\n%b\r\n" % (len(act), act) for act in acts)
    return answer.head(), *chunks, b"0\r\n\r\n"


async def _serve() -> None:
    loop, over, state = asyncio.get_running_loop(), asyncio.Event(), _State()
    loop.add_signal_handler(signal.SIGTERM, over.set)
    loop.add_reader(sys.stdin, over.set)
    server = await loop.create_server(lambda: _Connection(state), "127.0.0.1", 0, backlog=BACKLOG)
    print(server.sockets[0].getsockname()[1], flush=True)
    await over.wait()


if __name__ == "__main__":
    asyncio.run(_serve())
