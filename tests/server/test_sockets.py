"""The service over real sockets: aiohttp on loopback."""

import asyncio

import aiohttp
import pytest

from service import listen_service
from windlass import Agent
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
