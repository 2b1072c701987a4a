"""Clients of AG-UI and A2A come back after the service was killed or stopped in mid-stream."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import aiohttp
import httpx
import pytest
from a2a.client import Client, ClientConfig, create_client
from a2a.types.a2a_pb2 import (
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)

from ag_ui_client import AgUiClient
from service_process import ServiceProcess, free_port, make_token, serve_process
from socket_client import SocketClient

pytestmark = [
    pytest.mark.slow,
    pytest.mark.realtime,
    pytest.mark.timeout(120),
    pytest.mark.contract("A2", "A3", "A6"),
]
End = Literal["killed", "stopped"]
both_ends = pytest.mark.parametrize("end", ["killed", "stopped"])
ANSWER = "All done."
GONE = (aiohttp.ClientError, httpx.HTTPError, ConnectionError)


def end_service(service: ServiceProcess, end: End) -> None:
    if end == "killed":
        service.kill()
    else:
        assert service.stop() == 0


def read_effects(folder: Path) -> list[str]:
    return (folder / "effects.txt").read_text().split()


async def read_until_gone(ui: AgUiClient, service: ServiceProcess, end: End) -> None:
    """Read a stream that breaks off, because the service ends after the first result."""
    async with ui.open() as events:
        while True:
            event = await anext(events)
            if event["type"] == "TOOL_CALL_RESULT":
                await asyncio.to_thread(end_service, service, end)


@both_ends
async def test_a_client_of_ag_ui_comes_back(tmp_path: Path, end: End) -> None:
    port = free_port()
    with serve_process(tmp_path, port) as first:
        http = SocketClient(first.address, await make_token(str(tmp_path / "sessions.db")))
        ui = AgUiClient(http, agent="writer")
        ui.say("Write.")
        with pytest.raises((*GONE, StopAsyncIteration)):
            await read_until_gone(ui, first, end)
    with serve_process(tmp_path, port):
        back = await ui.run()
        late = AgUiClient(http, agent="writer")
        await late.run()
    assert back.end["result"] == ANSWER
    assert read_effects(tmp_path) == ["0", "1", "2", "3"]
    assert [each["id"] for each in ui.messages][1:] == [each["id"] for each in late.messages][1:]
    assert [each.get("content") for each in ui.messages] == [
        each.get("content") for each in late.messages
    ]


@asynccontextmanager
async def open_peer(address: str, token: str) -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(headers=headers, timeout=30) as http:
        config = ClientConfig(httpx_client=http)
        yield await create_client(f"{address}/a2a/writer", config)


@both_ends
async def test_a_client_of_a2a_comes_back(tmp_path: Path, end: End) -> None:
    port = free_port()
    message = Message(message_id="m1", role=Role.ROLE_USER, parts=[Part(text="Write.")])
    task = Task()
    with serve_process(tmp_path, port) as first:
        token = await make_token(str(tmp_path / "sessions.db"))
        async with open_peer(first.address, token) as peer:
            items: Any = peer.send_message(SendMessageRequest(message=message))
            async with aclosing(items):
                async for item in items:
                    if item.HasField("task"):
                        task = item.task
                    if "note: done" in str(item.status_update):
                        break
            await asyncio.to_thread(end_service, first, end)
    with serve_process(tmp_path, port) as second:
        async with open_peer(second.address, token) as peer:
            async for _ in peer.subscribe(SubscribeToTaskRequest(id=task.id)):
                pass
            ended = await peer.get_task(GetTaskRequest(id=task.id))
    assert TaskState.Name(ended.status.state) == "TASK_STATE_COMPLETED"
    assert ended.artifacts[0].parts[0].text == ANSWER
    assert read_effects(tmp_path) == ["0", "1", "2", "3"]
