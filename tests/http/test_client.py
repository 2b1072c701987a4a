"""The HTTP client against raw sockets: framing, bounds, pooling, and cancels in each phase."""

import asyncio
import gc
import gzip
import socket
import time
import zlib
from collections.abc import Mapping

import pytest

from raw_server import RawConnection, RawServer, answering, raw_server
from windlass.http import client
from windlass.http.client import IDLE_S, send_request
from windlass.http.connection import BUFFER_BYTES_MAX, HEAD_BYTES_MAX, PART_BYTES
from windlass.http.errors import HttpError
from windlass.http.inflating import INFLATED_BYTES_MAX, Inflater
from windlass.testing.clock import VirtualClock
from windlass.testing.fault_server import FaultServer, serve_in_thread
from windlass.testing.wire import stall, stream_answer

OK = b"HTTP/1.1 200 OK\r\n"
HELLO = OK + b"Content-Length: 5\r\n\r\nhello"


async def ask(
    url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b""
) -> tuple[int, bytes]:
    response = await send_request(method, url, headers=headers or {}, body=body or None)
    try:
        parts: list[bytes] = []
        while chunk := await response.read():
            parts.append(chunk)
        return response.status, b"".join(parts)
    finally:
        response.close()


async def expect_error(url: str) -> HttpError:
    with pytest.raises(HttpError) as caught:
        await ask(url)
    assert str(caught.value).isprintable()
    return caught.value


# ── framing ──────────────────────────────────────────────────────────────────

CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;note=x\r\nllo\r\n0\r\n\r\n"
TRAILED = CHUNKED[:-2] + b"Digest: abc\r\nOther: x\r\n\r\n"
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + HELLO
EMPTY_VALUE = OK + b"X-Empty:\r\nX-Next: y\r\nContent-Length: 5\r\n\r\nhello"
FRAMED = [HELLO, CHUNKED, TRAILED, CONTINUED, EMPTY_VALUE]


@pytest.mark.parametrize("answer", FRAMED, ids=["length", "chunks", "trailers", "1xx", "empty"])
@pytest.mark.realtime
async def test_a_response_is_the_same_however_it_is_split(answer: bytes) -> None:
    async def play(connection: RawConnection) -> None:
        for cut in range(1, len(answer)):
            await connection.read_request()
            await connection.send(answer[:cut])
            await asyncio.sleep(0.0005)
            await connection.send(answer[cut:])
        await connection.wait_until_left()

    async with raw_server(play) as server:
        for _ in range(1, len(answer)):
            assert await ask(server.url) == (200, b"hello")
    assert server.connections == 1


async def test_a_response_may_come_byte_by_byte() -> None:
    async def play(connection: RawConnection) -> None:
        for answer in FRAMED:
            await connection.read_request()
            for at in range(len(answer)):
                await connection.send(answer[at : at + 1])
                await asyncio.sleep(0)
        await connection.wait_until_left()

    async with raw_server(play) as server:
        for _ in FRAMED:
            assert await ask(server.url) == (200, b"hello")


async def test_a_response_may_end_with_its_connection() -> None:
    plain = OK + b"Content-Type: text/plain\r\n\r\nhello"
    async with raw_server(answering(plain, closes=True)) as server:
        assert await ask(server.url) == (200, b"hello")
        assert await ask(server.url) == (200, b"hello")
    assert server.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 99\r\n\r\nhello",
        CHUNKED[:-5],
        CHUNKED[:-2],
        OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    ],
)
async def test_a_response_that_is_cut_or_damaged_is_broken(answer: bytes) -> None:
    """S2: also if all that is missing is the last line break."""
    async with raw_server(answering(answer, closes=True)) as server:
        error = await expect_error(server.url)
    assert error.problem == "broken"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 000 Nothing\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 099 Nearly\r\nContent-Length: 5\r\n\r\nhello",
        OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
async def test_without_a_valid_head_the_connection_is_lost(answer: bytes) -> None:
    async with raw_server(answering(answer, closes=True)) as server:
        error = await expect_error(server.url)
    assert error.problem == "lost"


async def test_a_status_that_is_none_is_an_error_at_once() -> None:
    """S2: a server that keeps the connection open does not hold up who asked."""
    async with raw_server(answering(b"HTTP/1.1 000 Nothing\r\n\r\n")) as server:
        error = await expect_error(server.url)
    assert (error.problem, "000" in str(error)) == ("lost", True)


async def test_headers_that_come_twice_are_joined() -> None:
    answer = OK + b"WWW-Authenticate: Basic\r\nwww-authenticate: Bearer\r\nX: \xc3\xa9\xff\r\n"
    async with raw_server(answering(answer + b"Content-Length: 0\r\n\r\n")) as server:
        response = await send_request("GET", server.url, headers={})
        assert await response.read() == b""
    assert response.headers["www-authenticate"] == "Basic, Bearer"
    assert response.headers["x"] == "é\ufffd"


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
async def test_a_status_without_a_body_ends_at_once(status: bytes) -> None:
    answer = b"HTTP/1.1 " + status + b"\r\nContent-Encoding: gzip\r\n\r\n"
    async with raw_server(answering(answer, answer)) as server:
        for _ in range(2):
            assert await ask(server.url) == (int(status[:3]), b"")
    assert server.connections == 1


async def test_the_answer_to_head_has_no_body() -> None:
    async with raw_server(answering(OK + b"Content-Length: 5\r\n\r\n")) as server:
        assert await ask(server.url, method="HEAD") == (200, b"")
        await server.left.wait()


# ── bounds ───────────────────────────────────────────────────────────────────

LONG = b"x" * (HEAD_BYTES_MAX + 1)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (OK + b"X: " + LONG + b"\r\nContent-Length: 0\r\n\r\n", "lost"),
        (OK + b"X: y\r\n" * 20_000 + b"Content-Length: 0\r\n\r\n", "lost"),
        (OK + LONG + LONG, "lost"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000, "lost"),
        (CHUNKED[:-2] + b"X: " + LONG + LONG, "broken"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n1;" + LONG + LONG, "broken"),
    ],
    ids=["value", "fields", "name", "1xx", "trailer", "extension"],
)
async def test_a_head_without_end_is_refused(answer: bytes, problem: str) -> None:
    """S2: nothing of it is kept."""

    async def play(connection: RawConnection) -> None:
        await connection.read_request()
        for at in range(0, len(answer), 10_000):
            await connection.send(answer[at : at + 10_000])
            await asyncio.sleep(0)
        await connection.wait_until_left()

    async with raw_server(play) as server:
        assert (await expect_error(server.url)).problem == problem


async def test_a_head_that_comes_in_one_read_has_the_same_bound() -> None:
    answer = OK + b"X: " + LONG + b"\r\nContent-Length: 5\r\n\r\nhello"
    async with raw_server(answering(answer)) as server:
        assert (await expect_error(server.url)).problem == "lost"


def pack(data: bytes, encoding: str) -> bytes:
    if encoding == "gzip":
        return gzip.compress(data, mtime=0)
    packed = zlib.compress(data)
    return packed[2:-4] if encoding == "raw" else packed


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "raw"])
@pytest.mark.realtime
async def test_a_compressed_body_is_inflated_however_it_is_split(encoding: str) -> None:
    packed = pack(b"hello, " * 20, encoding)
    name = "gzip" if encoding == "gzip" else "deflate"
    head = OK + f"Content-Encoding: {name}\r\nContent-Length: {len(packed)}\r\n\r\n".encode()

    async def play(connection: RawConnection) -> None:
        for cut in range(len(packed)):
            await connection.read_request()
            await connection.send(head + packed[:cut])
            await asyncio.sleep(0.0005)
            await connection.send(packed[cut:])
        await connection.wait_until_left()

    async with raw_server(play) as server:
        for _ in range(len(packed)):
            assert await ask(server.url) == (200, b"hello, " * 20)


@pytest.mark.parametrize("behind", [b"", b"\0", bytes(10)], ids=["nothing", "a byte", "padding"])
async def test_files_of_one_body_are_joined_however_they_are_split(behind: bytes) -> None:
    """S2: a file may end with a read, and the mark of the next may be divided."""
    one, two = pack(b"one", "gzip"), pack(b"two", "gzip")
    packed = one + two + behind
    for cut in range(1, len(packed)):
        sent = [[packed[:cut]], [packed[cut:]], []]

        async def read_chunks(sent: list[list[bytes]] = sent) -> list[bytes]:
            return sent.pop(0) if sent else []

        inflater, parts = Inflater("gzip"), list[bytes]()
        while part := await inflater.read(read_chunks):
            parts.append(part)
        assert b"".join(parts) == b"onetwo", cut
        assert not sent, "the body was not read to its end"


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_bomb_is_inflated_piece_by_piece(encoding: str) -> None:
    """S2: who reads decides how much comes out."""
    bomb = pack(b"x" * 50_000_000, encoding)
    head = f"Content-Encoding: {encoding}\r\nContent-Length: {len(bomb)}\r\n\r\n".encode()
    async with raw_server(answering(OK + head + bomb)) as server:
        response = await send_request("GET", server.url, headers={})
        for _ in range(3):
            assert 0 < len(await response.read()) <= INFLATED_BYTES_MAX
        assert len(await response.read_up_to(1_000_000)) == 1_000_000
        response.close()


@pytest.mark.parametrize(
    ("encoding", "body", "read"),
    [
        ("gzip", pack(b"one", "gzip") + pack(b"two", "gzip"), b"onetwo"),
        ("gzip", pack(b"one", "gzip") + bytes(10), b"one"),
        ("gzip", pack(b"one", "gzip")[:-8], b"one"),
        ("gzip", b"", b""),
    ],
    ids=["members", "padding", "no checksum", "empty"],
)
async def test_what_servers_make_of_gzip(encoding: str, body: bytes, read: bytes) -> None:
    head = f"Content-Encoding: {encoding}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    async with raw_server(answering(OK + head + body)) as server:
        assert await ask(server.url) == (200, read)


async def test_a_body_of_empty_files_leaves_turns_to_others() -> None:
    """S2: it inflates to nothing, so that no reader could stop it."""
    files = 10_000
    sent = [[pack(b"", "gzip") * files], []]
    turns = 0

    async def read_chunks() -> list[bytes]:
        return sent.pop(0)

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    assert await Inflater("gzip").read(read_chunks) == b""
    counting.cancel()
    assert turns > files / 2


@pytest.mark.parametrize(
    ("encoding", "told"), [("gzip", "decompressed"), ("br", "compression 'br'")]
)
async def test_what_cannot_be_inflated_is_broken(encoding: str, told: str) -> None:
    head = f"Content-Encoding: {encoding}\r\nContent-Length: 8\r\n\r\n".encode()
    async with raw_server(answering(OK + head + b"not gzip")) as server:
        error = await expect_error(server.url)
    assert error.problem == "broken"
    assert told in str(error)


async def test_a_reader_that_is_slow_slows_the_server() -> None:
    sent = 0

    async def flood(connection: RawConnection) -> None:
        nonlocal sent
        await connection.read_request()
        await connection.send(OK + b"Content-Length: 1000000000\r\n\r\n")
        while True:
            await connection.send(b"x" * 65_536)
            sent += 65_536

    async with raw_server(flood) as server:
        response = await send_request("GET", server.url, headers={})
        await asyncio.sleep(1)
        held = sum(map(len, response.chunks))
        assert held <= 2 * BUFFER_BYTES_MAX
        before = sent
        while sent == before:
            assert await response.read()
        response.close()


# ── what is sent ─────────────────────────────────────────────────────────────


async def test_a_request_is_sent_as_it_is_written() -> None:
    heads: list[tuple[str, bytes]] = []

    async def play(connection: RawConnection) -> None:
        heads.append(await connection.read_request())
        await connection.send(HELLO)

    async with raw_server(play) as server:
        url = f"{server.url}/a%3Ab/é x?q=%2F&r=a b#part"
        sent = {"accept": "text/x", "X-Key": "ä", "content-length": "99"}
        await ask(url, method="POST", headers=sent, body=b"body")
    head, body = heads[0]
    assert head == (
        "POST /a%3Ab/%C3%A9%20x?q=%2F&r=a%20b HTTP/1.1\r\n"
        f"Host: 127.0.0.1:{server.port}\r\naccept: text/x\r\nX-Key: ä\r\nContent-Length: 4\r\n"
        "Accept-Encoding: identity\r\nUser-Agent: windlass\r\n\r\n"
    )
    assert body == b"body"


async def test_credentials_of_the_address_are_sent_unless_there_are_others() -> None:
    heads: list[str] = []

    async def play(connection: RawConnection) -> None:
        heads.append(await connection.read_head())
        await connection.send(HELLO)

    async with raw_server(play) as server:
        url = server.url.replace("//", "//me:p%40ss@")
        await ask(url)
        await ask(url, headers={"authorization": "Bearer k"})
    assert "Authorization: Basic bWU6cEBzcw==\r\n" in heads[0]
    assert "Basic" not in heads[1]
    assert "me:" not in "".join(heads)


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "a\r\nHost: other", "a\0b", "\ud800"])
async def test_a_header_cannot_begin_another_one(value: str) -> None:
    """P3: the error does not show it."""
    async with raw_server(answering(HELLO)) as server:
        with pytest.raises(HttpError) as caught:
            await ask(server.url, headers={"X-Key": value + "secret"})
        assert caught.value.problem == "request"
        assert "secret" not in str(caught.value)
    assert server.connections == 0


async def test_a_large_body_leaves_turns_to_others() -> None:
    received: list[bytes] = []

    async def play(connection: RawConnection) -> None:
        head = await connection.read_head()
        size = int(head.lower().split("content-length: ")[1].split("\r\n")[0])
        received.append(await connection.reader.readexactly(size))
        await connection.send(HELLO)
        await connection.wait_until_left()

    body = bytes(range(256)) * (PART_BYTES // 64)
    async with raw_server(play) as server:
        asking = asyncio.create_task(ask(server.url, method="POST", body=body))
        turns = 0
        while not asking.done():
            await asyncio.sleep(0)
            turns += 1
        assert await asking == (200, b"hello")
    assert received == [body]
    assert turns > len(body) // PART_BYTES


async def test_a_server_may_answer_before_it_has_read_everything() -> None:
    async def play(connection: RawConnection) -> None:
        await connection.read_head()
        await connection.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        await asyncio.sleep(5)

    async with raw_server(play) as server:
        body = b"x" * 50_000_000
        assert await ask(server.url, method="POST", body=body) == (413, b"no")
        assert await ask(server.url, method="POST", body=body) == (413, b"no")
    assert server.connections == 2


# ── connections ──────────────────────────────────────────────────────────────


async def test_a_connection_is_used_again_until_it_was_idle_for_too_long() -> None:
    async with raw_server(answering(*[HELLO] * 9)) as server:
        for _ in range(3):
            await ask(server.url)
            await asyncio.sleep(IDLE_S * 0.9)
        assert server.connections == 1
        await asyncio.wait_for(server.left.wait(), IDLE_S * 1.2)
        await ask(server.url)
    assert server.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        HELLO + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged",
        HELLO + b"HTTP/1.1 200 O",
        HELLO + b"H",
    ],
    ids=["close", "1.0", "second", "part", "byte"],
)
async def test_what_must_not_be_used_again(answer: bytes) -> None:
    """What stands behind a response must never become the answer to the next request."""
    async with raw_server(answering(answer, answer)) as server:
        assert await ask(server.url) == (200, b"hello")
        assert await ask(server.url) == (200, b"hello")
    assert server.connections == 2


async def test_what_comes_unasked_ends_the_connection() -> None:
    async def play(connection: RawConnection) -> None:
        await connection.read_request()
        await connection.send(HELLO)
        await asyncio.sleep(1)
        await connection.send(OK + b"Content-Length: 6\r\n\r\nforged")
        await connection.wait_until_left()

    async with raw_server(play) as server:
        await ask(server.url)
        await asyncio.wait_for(server.left.wait(), 2)
        assert await ask(server.url) == (200, b"hello")


@pytest.mark.realtime
async def test_a_stale_connection_is_found_before_anything_is_sent() -> None:
    """The loop has not seen the end yet: nothing is sent into it, and nothing is sent twice."""
    requests: list[str] = []

    async def play(connection: RawConnection) -> None:
        requests.append(await connection.read_head())
        await connection.send(HELLO)
        connection.writer.transport.abort()

    async with raw_server(play) as server:
        for _ in range(3):
            await ask(server.url, method="POST")
            # Not one turn of the client's loop in between, but for those of the server.
            await asyncio.sleep(0)
            time.sleep(0.01)  # noqa: ASYNC251 - the loop must not see the connection close
    assert len(requests) == 3


async def test_nothing_is_sent_a_second_time() -> None:
    """A server that goes while a request is under way may have acted on it."""
    requests: list[str] = []

    async def play(connection: RawConnection) -> None:
        requests.append(await connection.read_head())
        await connection.send(HELLO)
        requests.append(await connection.read_head())

    async with raw_server(play) as server:
        await ask(server.url, method="POST")
        error = await expect_error(server.url)
    assert error.problem == "lost"
    assert len(requests) == 2


async def test_requests_to_addresses_that_were_checked_share_no_connection() -> None:
    async with raw_server(answering(HELLO)) as server:
        for _ in range(2):
            url = f"http://name.invalid:{server.port}/"
            response = await send_request("GET", url, headers={}, addresses=["127.0.0.1"])
            assert await response.read() == b"hello"
        assert server.connections == 2


def test_connections_end_with_their_loop() -> None:
    """Also those in use; an open socket would warn, and warnings are errors here."""

    async def leave_open(url: str) -> None:
        await ask(url)
        await send_request("GET", url, headers={})
        await send_request("GET", url, headers={})

    whole, stalled = stream_answer(b"x"), stream_answer(b"x", stall())
    with serve_in_thread(FaultServer(whole, stalled, stalled, whole, stalled, stalled)) as server:
        for _ in range(2):
            asyncio.run(leave_open(server.url))
            gc.collect()
    assert client._pools == {}


# ── cancels ──────────────────────────────────────────────────────────────────


async def cancel_at_each_await(server: RawServer, body: bytes) -> int:
    """Cancel a request after one turn of the loop, after two, and so on, until it is done."""
    for turns in range(2_000):
        task = asyncio.create_task(ask(server.url, method="POST", body=body))
        for _ in range(turns):
            await asyncio.sleep(0)
        if task.done():
            assert await task == (200, b"hello")
            return turns
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    pytest.fail("the request was never done")


@pytest.mark.parametrize("size", [10, PART_BYTES * 3], ids=["small", "large"])
@pytest.mark.realtime
async def test_a_cancel_at_any_await_leaves_nothing_open(size: int) -> None:
    """C1: connecting, sending, waiting for the head, reading."""
    open_now: set[int] = set()

    async def play(connection: RawConnection) -> None:
        open_now.add(id(connection))
        try:
            while True:
                await connection.read_request()
                await connection.send(CHUNKED[:-9])
                await asyncio.sleep(0)
                await connection.send(CHUNKED[-9:])
        finally:
            open_now.discard(id(connection))

    async with raw_server(play) as server:
        assert await cancel_at_each_await(server, b"x" * size) > 3
        for _ in range(200):
            await asyncio.sleep(0.001)
        assert len(open_now) <= 1
        gc.collect()


async def test_a_cancel_while_a_name_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that wait for the same name are not disturbed by it."""
    asked = 0
    found = asyncio.Event()

    async def look_up(*_: object, **__: object) -> list[object]:
        nonlocal asked
        asked += 1
        await found.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
    async with raw_server(answering(HELLO)) as server:
        url = f"http://name.invalid:{server.port}/"
        first, second = (asyncio.create_task(ask(url)) for _ in range(2))
        await asyncio.sleep(0.1)
        first.cancel()
        await asyncio.wait([first])
        found.set()
        assert await second == (200, b"hello")
    assert first.cancelled()
    assert asked == 1


async def test_connecting_has_a_limit_and_a_response_has_none(clock: VirtualClock) -> None:
    async def play(connection: RawConnection) -> None:
        await connection.read_request()
        await asyncio.sleep(1_000)
        await connection.send(HELLO)

    async with raw_server(play) as server:
        response = await send_request("GET", server.url, headers={}, connect_s=1)
        assert await response.read() == b"hello"
    assert clock.elapsed_s >= 1_000
