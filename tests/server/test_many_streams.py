"""Many clients, slow clients and silent ones: none of them touches a run or another client."""

import asyncio
import resource
import socket
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest

from service import RunningService, listen_service
from windlass import Agent, ModelInfo
from windlass.server.limits import ServiceLimits
from windlass.testing import ScriptedModel, pause, say

pytestmark = [
    pytest.mark.slow,
    pytest.mark.realtime,
    pytest.mark.timeout(120),
    pytest.mark.one_process,
]
STREAMS = 2_000
PLENTY = ServiceLimits(
    connections=10_000, streams_per_caller=10_000, requests_per_s=1e6, requests_at_once=100_000
)


class RawStream:
    """A stream as bytes on a socket: the client costs as little as possible."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def read_until(self, text: bytes) -> bytes:
        return await self.reader.readuntil(text)


@asynccontextmanager
async def open_stream(
    running: RunningService, path: str, token: str, receive_bytes: int = 0
) -> AsyncGenerator[RawStream]:
    """Open a stream. `receive_bytes`: what the system takes for a client that reads nothing."""
    port = int(running.address.rpartition(":")[2])
    sock = socket.socket()
    if receive_bytes:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(
        sock=sock, limit=4096 if receive_bytes else 2**20
    )
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        "Accept: text/event-stream\r\n\r\n".encode()
    )
    try:
        yield RawStream(reader, writer)
    finally:
        writer.transport.abort()


def count_streams() -> int:
    """Return how many streams fit: each is a descriptor of the service and one of the client."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * STREAMS + 500
    if soft < wanted:
        soft = min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(STREAMS, (soft - 500) // 2)


@pytest.mark.contract("A2")
async def test_two_thousand_idle_streams_all_get_the_next_event() -> None:
    streams = count_streams()
    with ScriptedModel(["First.", "Second."]) as model:
        agent = Agent(model, name="helper")
        async with (
            listen_service(agent, limits=PLENTY) as running,
            running.open_client() as client,
            AsyncExitStack() as stack,
        ):
            body = {"prompt": "Hi.", "session": "many"}
            async with client.post("/runs", json=body) as started:
                assert started.status == 202
            token = await running.make_token()
            path = "/runs/many/events?follow=true"
            opened = [
                await stack.enter_async_context(open_stream(running, path, token))
                for _ in range(streams)
            ]
            await asyncio.gather(*(each.read_until(b'"outcome":"completed"') for each in opened))
            assert running.dispatcher.streams.total == streams
            async with client.post("/runs", json=body) as started:
                assert started.status == 202
            rests = await asyncio.gather(
                *(each.read_until(b'"outcome":"completed"') for each in opened)
            )
            # Each got the whole of the second run, and every fact of it once.
            facts = {tuple(read_ids(rest)) for rest in rests}
            assert len(facts) == 1
            [numbers] = facts
            assert numbers == tuple(range(numbers[0], numbers[-1] + 1))
            assert all(b"Second." in rest for rest in rests)


async def read_rest(reader: asyncio.StreamReader) -> bytes:
    """Return what comes until the connection is closed or reset."""
    data = b""
    with suppress(ConnectionError):
        while piece := await reader.read(65_536):
            data += piece
    return data


def read_ids(data: bytes) -> list[int]:
    lines = data.split(b"\n")
    return [int(line[4:]) for line in lines if line.startswith(b"id: ")]


@pytest.mark.contract("A2")
async def test_a_client_that_takes_nothing_is_cut_off_and_the_run_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "windlass")
    piece = "x" * 100_000
    script = [part for _ in range(60) for part in (say(piece), pause(0.02))]
    limits = ServiceLimits(stalled_write_s=0.3)
    info = ModelInfo("scripted:long", output_max=10_000_000)
    with ScriptedModel([script], info=info, token_chars=len(piece)) as model:
        agent = Agent(model, name="helper")
        async with listen_service(agent, limits=limits) as running, running.open_client() as client:
            async with client.post("/runs", json={"prompt": "Much.", "session": "much"}) as started:
                assert started.status == 202
            token = await running.make_token()
            path = "/runs/much/events"
            stream = {"Accept": "text/event-stream"}
            async with (
                open_stream(running, path, token, receive_bytes=4096) as slow,
                client.get(path, headers=stream) as events,
            ):
                # The other client gets all of it, to the end of the run.
                data = await events.read()
                assert b'"outcome":"completed"' in data
                assert data.count(b"x") >= 60 * len(piece)
                # The slow one gets what the system took for it, and then there is nothing more.
                taken = await read_rest(slow.reader)
                assert b'"outcome":"completed"' not in taken
            assert "its stream is cut off" in caplog.text
            # It comes back, and gets every fact.
            async with client.get(path, headers=stream) as events:
                numbers = read_ids(await events.read())
            assert numbers == list(range(1, numbers[-1] + 1))


@pytest.mark.contract("A4")
async def test_more_connections_than_the_service_takes_are_told_when_to_come_back() -> None:
    limits = ServiceLimits(connections=4)
    async with (
        listen_service(Agent(ScriptedModel([]), name="helper"), limits=limits) as running,
        AsyncExitStack() as stack,
    ):
        token = await running.make_token()
        opened = [
            await stack.enter_async_context(open_stream(running, "/events?list_only=true", token))
            for _ in range(4)
        ]
        for each in opened:
            assert b" 200 " in await each.read_until(b"\r\n")
        async with open_stream(running, "/runs", token) as refused:
            head = await refused.read_until(b"\r\n\r\n")
            assert b" 503 " in head
            assert b"Retry-After: 2\r\n" in head
            assert b"too_many_connections" in await refused.reader.read()
        opened[0].writer.transport.abort()
        # As soon as one is gone, there is room for another.
        head = b" 503 "
        while b" 503 " in head:
            async with open_stream(running, "/runs", token) as admitted:
                head = await admitted.read_until(b"\r\n\r\n")
        assert b" 200 " in head


@pytest.mark.contract("A4")
async def test_a_flood_of_connections_is_dropped_beyond_those_that_are_told() -> None:
    limits = ServiceLimits(connections=1)
    async with (
        listen_service(Agent(ScriptedModel([]), name="helper"), limits=limits) as running,
        AsyncExitStack() as stack,
    ):
        port = int(running.address.rpartition(":")[2])
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(80)]
        for _, writer in opened:
            stack.callback(writer.transport.abort)
        ends = [asyncio.ensure_future(reader.read()) for reader, _ in opened]
        done, open_still = await asyncio.wait(ends, timeout=2)
        assert len(done) == 80 - 65
        for each in open_still:
            each.cancel()
        await asyncio.gather(*ends, return_exceptions=True)


@pytest.mark.contract("A4")
async def test_too_many_streams_of_a_caller_are_refused_with_a_time() -> None:
    limits = ServiceLimits(streams_per_caller=2)
    async with (
        listen_service(Agent(ScriptedModel([]), name="helper"), limits=limits) as running,
        AsyncExitStack() as stack,
    ):
        token = await running.make_token()
        for _ in range(2):
            block = open_stream(running, "/events?list_only=true", token)
            await (await stack.enter_async_context(block)).read_until(b"retry:")
        async with open_stream(running, "/events", token) as refused:
            head = await refused.read_until(b"\r\n\r\n")
            assert b" 429 " in head
            assert b"Retry-After: 5\r\n" in head
        # Another caller is not affected.
        other = await running.make_token("bob")
        async with open_stream(running, "/events", other) as admitted:
            assert b" 200 " in await admitted.read_until(b"\r\n")
