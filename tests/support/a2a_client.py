"""A client of A2A without a socket: everything is checked against the protocol's own messages."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from a2a.types.a2a_pb2 import ListTasksResponse, StreamResponse, Task
from google.protobuf.json_format import ParseDict

from service import DirectClient
from windlass.server.messages import StreamReply


class A2aClient:
    """An agent that talks to one of ours."""

    def __init__(self, http: DirectClient, path: str = "/a2a/helper") -> None:
        self.http = http
        self.path = path
        self.sent = 0

    def make_message(self, *parts: Any, **fields: Any) -> dict[str, Any]:
        """Make a message; a text is a part of its own."""
        self.sent += 1
        made = [{"text": part} if isinstance(part, str) else part for part in parts]
        return {"messageId": f"m{self.sent}", "role": "ROLE_USER", "parts": made, **fields}

    async def call(self, method: str, params: Any, **headers: str) -> dict[str, Any]:
        """Return the whole reply."""
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        reply = (await self.http.post(self.path, body, {"A2A-Version": "1.0", **headers})).data
        assert (reply["jsonrpc"], reply["id"]) == ("2.0", 7)
        return reply

    async def send(self, *parts: Any, configuration: Any = None, **fields: Any) -> dict[str, Any]:
        """Send a message and return the task."""
        params: dict[str, Any] = {"message": self.make_message(*parts, **fields)}
        if configuration:
            params["configuration"] = configuration
        reply = await self.call("SendMessage", params)
        assert "result" in reply, reply
        return check_task(reply["result"]["task"])

    async def refuse(self, method: str, params: Any, **headers: str) -> tuple[int, str]:
        """Return the number and the reason of an error."""
        error = (await self.call(method, params, **headers))["error"]
        return error["code"], error["data"][0]["reason"]

    async def get(self, name: str, **fields: Any) -> dict[str, Any]:
        return check_task((await self.call("GetTask", {"id": name, **fields}))["result"])

    async def list_tasks(self, **fields: Any) -> dict[str, Any]:
        page = (await self.call("ListTasks", fields))["result"]
        ParseDict(page, ListTasksResponse())
        return page

    async def stream(self, *parts: Any, **fields: Any) -> list[dict[str, Any]]:
        """Send a message and return all items of the stream."""
        message = self.make_message(*parts, **fields)
        async with self.open("SendStreamingMessage", {"message": message}) as items:
            return [item async for item in items]

    @asynccontextmanager
    async def open(self, method: str, params: Any) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """Open a stream; leaving the block closes the connection."""
        body = {"jsonrpc": "2.0", "id": "s", "method": method, "params": params}
        reply = await self.http.send("POST", self.path, body)
        assert isinstance(reply, StreamReply), reply.body
        try:
            yield self._read(reply)
        finally:
            await reply.close()

    async def _read(self, reply: StreamReply) -> AsyncIterator[dict[str, Any]]:
        async for chunk in reply.chunks:
            for frame in chunk.decode().split("\n\n"):
                if frame.startswith("data: "):
                    item = msgspec.json.decode(frame.removeprefix("data: "))
                    assert item["id"] == "s"
                    ParseDict(item["result"], StreamResponse())
                    yield item["result"]


def check_task(task: dict[str, Any]) -> dict[str, Any]:
    ParseDict(task, Task())
    return task


def answer_of(items: list[dict[str, Any]]) -> str:
    """Return the artifact as a client puts it together."""
    text = ""
    for item in items:
        if "task" in item:
            for artifact in item["task"].get("artifacts", ()):
                text = artifact["parts"][0]["text"]
        elif "artifactUpdate" in item:
            update = item["artifactUpdate"]
            piece = update["artifact"]["parts"][0]["text"]
            text = text + piece if update.get("append") else piece
    return text


def state_of(item: dict[str, Any]) -> str:
    """Return the state that a task or a status update tells."""
    status = item["task"] if "task" in item else item["statusUpdate"]
    return status["status"]["state"].removeprefix("TASK_STATE_")
