"""A real service, killed and stopped in the middle of a stream: nothing lost, nothing twice."""

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest

from service_process import free_port, make_token, serve_process
from stream_client import StreamClient

pytestmark = [pytest.mark.slow, pytest.mark.realtime]


def assert_done_once(client: StreamClient, folder: Path) -> None:
    assert client.seen == list(range(1, client.seen[-1] + 1))
    assert client.facts[-1] == "RunEnded"
    assert (folder / "effects.txt").read_text().split() == ["0", "1", "2", "3"]


@pytest.mark.contract("A2")
@pytest.mark.contract("A3")
async def test_a_killed_service_goes_on_and_a_client_sees_every_event_once(tmp_path: Path) -> None:
    port = free_port()
    token = await make_token(str(tmp_path / "sessions.db"))
    with serve_process(tmp_path, port) as service:
        client = StreamClient(service.address, token)
        await client.start("Write four lines.")
        await client.read_until("CallFinished", 2)
        # The next reply streams now: no call is under way.
        await client.read_until("AttemptStarted", 3)
        service.kill()
    with serve_process(tmp_path, port):
        # Nobody asks for the run: the service finds it by itself.
        await client.read_until("RunEnded")
    assert_done_once(client, tmp_path)
    assert "RunResumed" in client.facts


@pytest.mark.contract("A3")
async def test_a_stopped_service_lets_go_of_its_runs_and_the_next_goes_on(tmp_path: Path) -> None:
    port = free_port()
    token = await make_token(str(tmp_path / "sessions.db"))
    with serve_process(tmp_path, port) as service:
        client = StreamClient(service.address, token)
        await client.start("Write four lines.")
        await client.read_until("CallFinished", 2)
        watching = asyncio.create_task(client.read_until("RunEnded"))
        await asyncio.sleep(0.2)
        code = await asyncio.to_thread(service.stop)
        assert code == 0
        # The stream has ended, without an end of the run.
        await asyncio.gather(watching, return_exceptions=True)
        assert "RunEnded" not in client.facts
    with serve_process(tmp_path, port):
        await client.read_until("RunEnded")
    assert_done_once(client, tmp_path)
    assert "RunReleased" in client.facts


@pytest.mark.contract("A8")
async def test_readiness_goes_false_before_the_service_stops(tmp_path: Path) -> None:
    port = free_port()
    with serve_process(tmp_path, port, "--drain-delay", "5") as service:
        async with aiohttp.ClientSession(service.address) as client:
            async with client.get("/readyz") as reply:
                assert reply.status == 200
            service.process.terminate()
            statuses = set[int]()
            while 503 not in statuses:
                async with client.get("/readyz") as reply:
                    statuses.add(reply.status)
            async with client.get("/healthz") as reply:
                assert reply.status == 200
        service.process.terminate()
        assert await asyncio.to_thread(service.process.wait, 30) == 0


@pytest.mark.contract("A8")
async def test_the_log_has_ids_and_no_content(tmp_path: Path) -> None:
    port = free_port()
    token = await make_token(str(tmp_path / "sessions.db"))
    with serve_process(tmp_path, port) as service:
        client = StreamClient(service.address, token)
        await client.start("A prompt that nobody may log.")
        await client.read_until("RunEnded")
    log = (tmp_path / "service.log").read_text()
    lines = [json.loads(line) for line in log.splitlines()]
    requests = [line for line in lines if line.get("route") == "startRun"]
    assert requests[0]["status"] == 202
    assert any(line.get("session") == client.session for line in lines)
    for secret in ("A prompt that nobody", "Line 1", "wrote 1", token):
        assert secret not in log
