"""A client of MCP without a library: a test says what it sends where, and when it is cut off."""

import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import aiohttp

from socket_client import check_reached

YES = {"action": "accept", "content": {"answer": "allow"}}
Message = dict[str, Any]


@dataclass
class Received:
    """A message of the server, and the id of its event."""

    event: str
    message: Message


class RawClient:
    """A client that has shaken hands. It sends each message to the replica that a test names."""

    def __init__(self, addresses: Sequence[str], token: str, http: aiohttp.ClientSession) -> None:
        self.addresses = addresses
        self.http = http
        self.headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/json, text/event-stream",
        }
        self.ids = count(1)

    async def shake_hands(self, version: str = "2025-11-25", **capabilities: Any) -> Message:
        hello = {
            "protocolVersion": version,
            "capabilities": capabilities,
            "clientInfo": {"name": "t", "version": "1"},
        }
        body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
        async with self.http.post(self._url(0), json=body, headers=self.headers) as reply:
            assert reply.status == 200
            self.headers["Mcp-Session-Id"] = reply.headers["mcp-session-id"]
            self.headers["MCP-Protocol-Version"] = version
            return (await reply.json())["result"]

    def _url(self, at: int) -> str:
        return f"{self.addresses[at]}/mcp"

    async def post(self, at: int, body: Message) -> int:
        """Send a notification or a response; returns the status of the reply."""
        async with self.http.post(self._url(at), json=body, headers=self.headers) as reply:
            await reply.read()
            return reply.status

    async def stream(
        self, at: int, method: str, number: int = 0, **params: Any
    ) -> AsyncGenerator[Received]:
        """Send a request, and yield what comes."""
        body = {
            "jsonrpc": "2.0",
            "id": number or next(self.ids),
            "method": method,
            "params": params,
        }
        async with self.http.post(self._url(at), json=body, headers=self.headers) as reply:
            check_reached(reply)
            assert reply.status == 200, await reply.text()
            async for one in self._read(reply):
                yield one

    async def resume(self, at: int, last: str) -> AsyncGenerator[Received]:
        """Come back to a stream after an event."""
        headers = {**self.headers, "Last-Event-ID": last}
        async with self.http.get(self._url(at), headers=headers) as reply:
            check_reached(reply)
            assert reply.status == 200, await reply.text()
            async for one in self._read(reply):
                yield one

    async def _read(self, reply: Any) -> AsyncGenerator[Received]:
        if reply.content_type == "application/json":
            yield Received("", await reply.json())
            return
        event = ""
        async for line in reply.content:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "id":
                event = value
            elif name == "data" or line == b"data: \n":
                yield Received(event, json.loads(value) if value else {})

    async def ask(self, at: int, method: str, **params: Any) -> Message:
        """Send a request, and return its response."""
        found = [one async for one in self.stream(at, method, **params)]
        return found[-1].message

    async def call(self, at: int, prompt: str, **params: Any) -> Message:
        arguments = {"prompt": prompt}
        return await self.ask(at, "tools/call", name="clerk", arguments=arguments, **params)

    async def answer_form(self, at: int, form: Message, result: Message = YES) -> None:
        body = {"jsonrpc": "2.0", "id": form["id"], "result": result}
        assert await self.post(at, body) == 202
