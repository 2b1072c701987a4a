"""The service over real sockets: aiohttp on loopback."""

import asyncio
import socket
from collections.abc import AsyncGenerator

import aiohttp
import pytest

from service import listen_service
from windlass import Agent
from windlass.server import Caller, ServiceLimits, StartRequest
from windlass.testing import ScriptedModel, pause, say

pytestmark = [pytest.mark.slow, pytest.mark.realtime]


@pytest.mark.contract("A2")
async def test_a_client_that_goes_away_stops_nothing_and_comes_back() -> None:
    with ScriptedModel([[say("One"), pause(0.5), say(" two."), pause(0.5)]]) as model:
        block = listen_service(Agent(model, name="helper"))
        async with block as running, running.open_client() as client:
            async with client.post("/runs", json={"prompt": "Count."}) as started:
                assert started.status == 202
                session = (await started.json())["session"]
            stream = {"Accept": "text/event-stream"}
            seen: list[int] = []
            async with client.get(f"/runs/{session}/events", headers=stream) as events:
                assert events.headers["Content-Type"] == "text/event-stream"
                async for line in events.content:
                    if line.startswith(b"id: "):
                        seen.append(int(line[4:]))
                    if b"One" in line:
                        break
            stream["Last-Event-ID"] = str(seen[-1])
            async with client.get(f"/runs/{session}/events", headers=stream) as events:
                rest = (await events.read()).decode()
            assert '"text":"One' in rest
            seen += [int(line[4:]) for line in rest.splitlines() if line.startswith("id: ")]
            assert seen == list(range(1, seen[-1] + 1))
            assert "completed" in rest


async def test_streams_end_when_the_service_stops() -> None:
    with ScriptedModel(["Hello."]) as model:
        async with listen_service(Agent(model, name="helper")) as running:
            token = await running.make_token()
            headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
            client = aiohttp.ClientSession(running.address, headers=headers)
            async with client.post("/runs", json={"prompt": "Hi."}) as started:
                session = (await started.json())["session"]
            events = await client.get(f"/runs/{session}/events?follow=true")
            await asyncio.sleep(0.3)
        with pytest.raises(aiohttp.ClientError):
            await events.read()
        await client.close()


async def open_raw(address: str, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.removeprefix("http://").partition(":")
    connection = socket.socket()
    # The kernel would take megabytes for a client that reads nothing.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=connection, limit=2**12)
    writer.write(data)
    await writer.drain()
    return reader, writer


@pytest.mark.one_process
@pytest.mark.contract("A4")
async def test_a_client_that_reads_nothing_is_cut_off_and_slows_nothing_down() -> None:
    # More than the buffers of both sockets hold, so that writing to the client has to wait.
    flood = "x" * 12_000_000
    limits = ServiceLimits(keep_alive_s=0.5, stalled_write_s=1.0)
    with ScriptedModel([[pause(1.0), say("Fine.")]]) as model:
        block = listen_service(Agent(model, name="helper"), limits=limits)
        async with block as running, running.open_client() as client:
            token = await running.make_token()
            ann = Caller("ann", frozenset({"start"}))
            await running.service.start_run(ann, StartRequest(prompt=flood, session="s"))
            head = (
                "GET /runs/s/events HTTP/1.1\r\nHost: localhost\r\n"
                f"Authorization: Bearer {token}\r\nAccept: text/event-stream\r\n\r\n"
            )
            _, writer = await open_raw(running.address, head.encode())
            while running.dispatcher.streams.total == 0:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
            # The run ends although the client has taken none of it, and the client is given up.
            while True:
                async with client.get("/runs?state=completed") as read:
                    if (await read.json())["sessions"]:
                        break
                await asyncio.sleep(0.05)
            while running.dispatcher.streams.total:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.05)
            writer.close()


@pytest.mark.one_process
@pytest.mark.contract("A4")
async def test_a_request_that_comes_too_slowly_is_cut_off() -> None:
    limits = ServiceLimits(receive_s=0.5)
    async with listen_service(Agent(ScriptedModel([]), name="helper"), limits=limits) as running:
        token = await running.make_token()
        half_head = b"GET /healthz HTTP/1.1\r\nHost: local"
        reader, writer = await open_raw(running.address, half_head)
        assert await reader.read() == b""
        writer.close()
        half_body = (
            "POST /runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {token}\r\nContent-Length: 100\r\n\r\n{{"
        )
        reader, writer = await open_raw(running.address, half_body.encode())
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        writer.close()


@pytest.mark.one_process
@pytest.mark.contract("A4")
async def test_bodies_and_connections_are_bounded() -> None:
    limits = ServiceLimits(body_bytes=1_000, connections=3)
    block = listen_service(Agent(ScriptedModel([]), name="helper"), limits=limits)
    async with block as running, running.open_client() as client:
        async with client.post("/runs", json={"prompt": "x" * 2_000}) as refused:
            assert refused.status == 413

        async def endless() -> AsyncGenerator[bytes]:
            for _ in range(100):
                yield b"x" * 100

        json_type = {"Content-Type": "application/json"}
        async with client.post("/runs", data=endless(), headers=json_type) as refused:
            assert refused.status == 413
        idle = [await open_raw(running.address, b"") for _ in range(3)]
        async with client.get("/healthz") as refused:
            assert refused.status == 503
            assert int(refused.headers["Retry-After"]) >= 1
        for _, writer in idle:
            writer.close()


@pytest.mark.one_process
@pytest.mark.parametrize(
    "data",
    [
        b"\x00\xff\xfe\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /%ff%fe HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /runs/%00/events HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET " + b"/a" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /runs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 30_000 + b"\r\n\r\n",
    ],
    ids=range(8),
)
async def test_broken_requests_are_refused_and_the_service_goes_on(data: bytes) -> None:
    limits = ServiceLimits(receive_s=0.5)
    async with listen_service(Agent(ScriptedModel([]), name="helper"), limits=limits) as running:
        reader, writer = await open_raw(running.address, data)
        reply = await reader.read()
        assert reply == b"" or reply.split(b" ")[1].startswith(b"4")
        writer.close()
        async with running.open_client() as client, client.get("/healthz") as healthy:
            assert healthy.status == 200


@pytest.mark.one_process
@pytest.mark.contract("A4")
async def test_a_target_that_names_another_host_is_refused() -> None:
    """A4: the host in the target counts more than the header, so they have to agree."""
    async with listen_service(Agent(ScriptedModel([]), name="helper")) as running:
        own = running.address.removeprefix("http://")
        statuses: dict[str, bytes] = {}
        for target in (f"http://{own}/healthz", "http://evil.example/healthz", "/healthz"):
            head = f"GET {target} HTTP/1.1\r\nHost: {own}\r\nConnection: close\r\n\r\n"
            reader, writer = await open_raw(running.address, head.encode())
            statuses[target] = (await reader.readline()).split()[1]
            writer.close()
        assert list(statuses.values()) == [b"200", b"421", b"200"]


@pytest.mark.one_process
@pytest.mark.contract("A4")
@pytest.mark.parametrize("length", ["Content-Length: 100", "Transfer-Encoding: chunked"])
async def test_a_connection_that_is_cut_in_a_body_is_one_short_line_of_the_log(
    length: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A4: else a client without a token fills the log with tracebacks."""
    caplog.set_level("INFO", "windlass")
    async with listen_service(Agent(ScriptedModel([]), name="helper")) as running:
        before = len(caplog.records)
        for _ in range(5):
            head = f"POST /login HTTP/1.1\r\nHost: localhost\r\n{length}\r\n\r\n"
            reader, writer = await open_raw(running.address, head.encode() + b'5\r\n{"cod')
            await asyncio.sleep(0.1)
            writer.transport.abort()
            del reader
        while len(caplog.records) < before + 5:  # noqa: ASYNC110 - the log tells nobody
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.2)
        lines = caplog.records[before:]
    assert [line.getMessage() for line in lines] == ["POST logIn"] * 5
    assert {(line.levelname, line.exc_info) for line in lines} == {("INFO", None)}
