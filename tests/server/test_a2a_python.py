"""The A2A client for Python over a real socket, plain and streamed."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast
from uuid import uuid4

import httpx
import pytest
from a2a.client import Client, ClientConfig, create_client
from a2a.types.a2a_pb2 import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import (
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from google.protobuf.json_format import ParseDict

from openai_agents import WORDS, HelperAgent
from service import RunningService, listen_service

pytestmark = [
    pytest.mark.slow,
    pytest.mark.realtime,
    pytest.mark.timeout(120),
    pytest.mark.contract("A6"),
]
both_modes = pytest.mark.parametrize("streaming", [False, True], ids=["plain", "streamed"])


@dataclass
class SeenTask:
    """A task as a client puts it together from what it is told."""

    task: Task
    text: str = ""
    items: int = 0

    @property
    def state(self) -> str:
        return TaskState.Name(self.task.status.state)

    def take(self, item: StreamResponse) -> None:
        self.items += 1
        if item.HasField("task"):
            self.task = item.task
            self.text = "".join(part.text for each in item.task.artifacts for part in each.parts)
        elif item.HasField("status_update"):
            self.task.status.CopyFrom(item.status_update.status)
        elif item.HasField("artifact_update"):
            piece = item.artifact_update.artifact.parts[0].text
            self.text = self.text + piece if item.artifact_update.append else piece


class Peer:
    """An agent that talks to the helper with the client of the protocol."""

    def __init__(self, client: Client, helper: HelperAgent, running: RunningService) -> None:
        self.client = client
        self.helper = helper
        self.running = running

    def make_request(self, content: Any, *, at_once: bool = False, **fields: Any) -> Any:
        part = Part(text=content) if isinstance(content, str) else ParseDict(content, Part())
        message = Message(message_id=uuid4().hex, role=Role.ROLE_USER, parts=[part], **fields)
        request = SendMessageRequest(message=message)
        request.configuration.return_immediately = at_once
        return request

    async def send(self, content: Any, **fields: Any) -> SeenTask:
        return await gather(self.client.send_message(self.make_request(content, **fields)))

    async def subscribe(self, name: str) -> SeenTask:
        return await gather(self.client.subscribe(SubscribeToTaskRequest(id=name)))


async def gather(items: AsyncIterator[StreamResponse]) -> SeenTask:
    seen = SeenTask(Task())
    async for item in items:
        seen.take(item)
    return seen


@asynccontextmanager
async def connect(*, streaming: bool, caller: str = "ann") -> AsyncGenerator[Peer]:
    helper = HelperAgent(pause_s=0.1)
    async with listen_service(helper.agent) as running:
        headers = {"Authorization": f"Bearer {await running.make_token(caller)}"}
        async with httpx.AsyncClient(headers=headers, timeout=30) as http:
            config = ClientConfig(streaming=streaming, httpx_client=http)
            client = await create_client(f"{running.address}/a2a/helper", config)
            yield Peer(client, helper, running)


@both_modes
async def test_text_in_one_context(*, streaming: bool) -> None:
    async with connect(streaming=streaming) as peer:
        first = await peer.send("Hello.")
        assert (first.state, first.text) == ("TASK_STATE_COMPLETED", "Hello, world.")
        assert (first.items > 2) == streaming
        second = await peer.send("Recall.", context_id=first.task.context_id)
        assert second.text == "Hello."
        read = await peer.client.get_task(GetTaskRequest(id=first.task.id, history_length=1))
        assert [part.text for each in read.history for part in each.parts] == ["Hello, world."]
        page = await peer.client.list_tasks(ListTasksRequest(context_id=first.task.context_id))
        assert [task.id for task in page.tasks] == [second.task.id, first.task.id]


@both_modes
async def test_tools_of_the_agent(*, streaming: bool) -> None:
    async with connect(streaming=streaming) as peer:
        seen = await peer.send("Add.")
        assert (seen.state, seen.text) == ("TASK_STATE_COMPLETED", "The sum is 5.")


@pytest.mark.replicated
@both_modes
@pytest.mark.parametrize("approved", [True, False], ids=["given", "denied"])
async def test_an_approval(*, streaming: bool, approved: bool) -> None:
    async with connect(streaming=streaming) as peer:
        asked = await peer.send("Send it.")
        assert asked.state == "TASK_STATE_INPUT_REQUIRED"
        assert "Ann" in str(asked.task.status.message)
        answer = {"data": {"approved": approved, "reason": "Not today."}}
        done = await peer.send(answer, task_id=asked.task.id)
        assert done.state == "TASK_STATE_COMPLETED"
        assert done.text == ("It was sent." if approved else "It was not sent.")
        assert peer.helper.sent == (["Ann"] if approved else [])


async def test_an_approval_that_is_given_elsewhere_while_the_client_subscribes() -> None:
    async with connect(streaming=True) as peer:
        asked = await peer.send("Send it.")
        # A task that asks is still open: whoever subscribes is told what it asks.
        again = await peer.subscribe(asked.task.id)
        assert again.state == "TASK_STATE_INPUT_REQUIRED"
        async with peer.running.open_client() as http:
            question = (await (await http.get("/questions")).json())["questions"][0]
            body = {"call_id": question["call_id"], "answer": {"verdict": "allow"}}
            await http.post(f"/runs/{question['session']}/answers", json=body)
        done = await peer.send({"data": {"approved": False}}, task_id=asked.task.id)
        assert done.text == "It was sent."
        assert peer.helper.sent == ["Ann"]


@pytest.mark.replicated
@both_modes
async def test_a_cancel(*, streaming: bool) -> None:
    async with connect(streaming=streaming) as peer:
        begun = await peer.client.send_message(peer.make_request("Wait.", at_once=True)).__anext__()
        name = begun.task.id
        await asyncio.sleep(0.3)
        ended = await peer.client.cancel_task(CancelTaskRequest(id=name))
        assert TaskState.Name(ended.status.state) == "TASK_STATE_CANCELED"
        with pytest.raises(TaskNotCancelableError):
            await peer.client.cancel_task(CancelTaskRequest(id=name))


@pytest.mark.replicated
@pytest.mark.contract("A2")
async def test_a_client_that_comes_back_in_the_middle() -> None:
    async with connect(streaming=True) as peer:
        items = peer.client.send_message(peer.make_request("Count."))
        seen = SeenTask(Task())
        async for item in items:
            seen.take(item)
            if seen.text:
                break
        await cast("AsyncGenerator[StreamResponse]", items).aclose()
        assert len(seen.text) < len(WORDS)
        back = await peer.subscribe(seen.task.id)
        assert back.text.strip() == WORDS
        assert back.state == "TASK_STATE_COMPLETED"
        with pytest.raises(UnsupportedOperationError):
            await peer.subscribe(seen.task.id)


@both_modes
async def test_errors(*, streaming: bool) -> None:
    async with connect(streaming=streaming) as peer:
        failed = await peer.send("Fail.")
        assert failed.state == "TASK_STATE_FAILED"
        assert "the key of the model is wrong" in failed.task.status.message.parts[0].text
        with pytest.raises(TaskNotFoundError):
            await peer.client.get_task(GetTaskRequest(id="nothing#1"))
        with pytest.raises(UnsupportedOperationError):
            await peer.send("More.", task_id=failed.task.id)
