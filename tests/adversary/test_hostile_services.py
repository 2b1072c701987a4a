"""Another program listens where a service should be, and answers the client as it likes."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from windlass import SessionImported
from windlass.client import AsyncClient, ServiceError

pytestmark = [pytest.mark.slow, pytest.mark.contract("A14")]
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def make_reply(status: int, body: bytes = b"", **headers: str) -> bytes:
    given = {"Content-Length": str(len(body)), "Connection": "close"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in given.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def make_fact(seq: int) -> bytes:
    fact = msgspec.json.encode(SessionImported("elsewhere", seq=seq, at=1.0)).decode()
    return f"event: fact\nid: {seq}\ndata: {fact}\n\n".encode()


class HostileService:
    """Sends the same bytes to each request, and counts the requests."""

    def __init__(self, reply: bytes) -> None:
        self.reply = reply
        self.requests = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.requests += 1
        writer.write(self.reply)
        await writer.drain()
        writer.close()

    def play(self, use: Callable[[AsyncClient], Awaitable[object]]) -> ServiceError:
        """Use a client, which gives up within a second, and return the error that it raises."""

        async def main() -> ServiceError:
            server = await asyncio.start_server(self.handle, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            client = AsyncClient(f"http://127.0.0.1:{port}", "wl_x", timeout_s=20, retry_s=1.0)
            async with server:
                with pytest.raises(ServiceError) as raised:
                    # The bound is that of a client that would wait as long as it is told.
                    await asyncio.wait_for(use(client), 20)
            return raised.value

        return asyncio.run(main())


async def start(client: AsyncClient) -> object:
    return await client.start("Hi.")


async def watch(client: AsyncClient) -> list[int]:
    return [event.seq async for event in client.watch("s") if hasattr(event, "seq")]


@pytest.mark.parametrize(
    ("use", "reply"),
    [
        (start, make_reply(200, b"<html>")),
        (start, make_reply(200, b'{"session": 5}')),
        (start, make_reply(200, b"[" * 200_000)),
        (start, make_reply(307, Location="http://127.0.0.1:9/")),
        (start, make_reply(400, b"\xff\xfe")),
        (watch, make_reply(302, Location="http://127.0.0.1:9/")),
        (watch, STREAM + b"event: snapshot\ndata: {\n\n"),
        (watch, STREAM + b"event: fact\ndata: {x\n\n"),
        (watch, STREAM + b"event: fact\ndata: " + b"x" * (17 * 2**20)),
    ],
    ids=range(9),
)
def test_what_no_service_says_is_an_error_of_the_client(
    use: Callable[[AsyncClient], Awaitable[object]], reply: bytes
) -> None:
    hostile = HostileService(reply)
    assert hostile.play(use).code == "not_the_service"
    assert hostile.requests == 1


@pytest.mark.parametrize("use", [start, watch])
@pytest.mark.parametrize("wanted", ["999999999", "9" * 400, "30"])
def test_a_service_does_not_say_how_long_the_client_waits(
    use: Callable[[AsyncClient], Awaitable[object]], wanted: str
) -> None:
    """It gives up at once if it may not ask again within the time that it has."""
    hostile = HostileService(make_reply(503, b"{}", Retry_After=wanted))
    hostile.play(use)
    assert hostile.requests == 1


def test_facts_that_come_again_are_not_shown_again_and_not_waited_for() -> None:
    hostile = HostileService(STREAM + make_fact(2) + make_fact(1) + make_fact(2) + make_fact(-1))
    seen: list[int] = []

    async def collect(client: AsyncClient) -> None:
        async for event in client.watch("s"):
            assert isinstance(event, SessionImported)
            seen.append(event.seq)

    assert hostile.play(collect).code == "unreachable"
    assert seen == [2]


def test_the_words_of_a_service_steer_no_terminal() -> None:
    body = {"error": {"code": "x", "message": "\x1b]0;owned\x07no\nroot@host:", "hint": "\x9b2J"}}
    refused = HostileService(make_reply(400, json.dumps(body).encode())).play(start)
    assert str(refused).isprintable()
    assert "no root@host:" in refused.message
