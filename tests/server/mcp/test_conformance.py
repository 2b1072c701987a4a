"""The server scenarios of the official conformance suite, through our own HTTP."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from typing_extensions import override

pytest.importorskip("mcp", reason="needs the extra `mcp`")

from mcp_clients import end_sdk_watcher
from mcp_conformance import build_fixture
from mcp_peers import fetch_or_skip
from mcp_raw_client import RawClient
from mcp_servers import conformance
from windlass import Agent
from windlass.server.aiohttp_server import listen
from windlass.server.dispatch import Dispatcher
from windlass.server.mcp import McpEndpoint
from windlass.server.mcp.mcp_routes import PATH, ROUTES
from windlass.server.messages import HttpRequest, Reply
from windlass.server.routing import Route
from windlass.server.service import Service
from windlass.testing import ScriptedModel

pytestmark = [
    pytest.mark.contract("A6"),
    pytest.mark.realtime,
    pytest.mark.slow,
    pytest.mark.mcp,
    pytest.mark.timeout(300),
]
VERSION = "2025-06-18"
SCENARIOS = 32
"""All of the pinned version."""


class TokenAdder(Dispatcher):
    """The suite sends no token, so it is added on the way in."""

    token = ""

    @override
    async def handle(self, request: HttpRequest) -> Reply:
        request.headers = {**request.headers, "authorization": f"Bearer {self.token}"}
        return await super().handle(request)


@asynccontextmanager
async def serve_fixture() -> AsyncIterator[str]:
    async with Service(Agent(ScriptedModel([]), name="nobody")) as service:
        endpoint = McpEndpoint(service, build_fixture())

        async def exchange(_: Service, request: HttpRequest) -> Reply:
            return await endpoint.handle(request)

        routes = [
            Route(method=route.method, path=PATH, handler=exchange, role="watch", name=route.name)
            for route in ROUTES
        ]
        dispatcher = TokenAdder(service, routes=routes)
        dispatcher.token = (await service.tokens.create("suite", ["watch"])).secret
        async with listen(dispatcher) as address:
            yield f"{address}{PATH}"


async def test_the_official_suite_is_content(tmp_path: Path) -> None:
    node, suite = fetch_or_skip(conformance)
    async with end_sdk_watcher(), serve_fixture() as url:
        process = await asyncio.create_subprocess_exec(
            node,
            suite,
            "server",
            "--url",
            url,
            "--suite",
            "all",
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(240):
            said = (await process.communicate())[0].decode()
    assert process.returncode == 0, said
    passed = re.findall(r"^✓ ([\w-]+): \d+ passed, 0 failed", said, re.MULTILINE)
    assert len(passed) == SCENARIOS, said


async def test_a_question_of_a_tool_needs_no_general_stream() -> None:
    """A6: the suite opens that stream in the background, and may call a tool before it is there."""
    async with end_sdk_watcher(), serve_fixture() as url, aiohttp.ClientSession() as http:
        client = RawClient([url.removesuffix(PATH)], "", http)
        who = {"name": "t", "version": "1"}
        hello = {"protocolVersion": VERSION, "capabilities": {"sampling": {}}, "clientInfo": who}
        body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
        async with http.post(url, json=body, headers=client.headers) as reply:
            client.headers["Mcp-Session-Id"] = reply.headers["mcp-session-id"]
            client.headers["MCP-Protocol-Version"] = VERSION
        await client.post(0, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        said = {"role": "assistant", "content": {"type": "text", "text": "Hello"}, "model": "m"}
        call = client.stream(0, "tools/call", name="test_sampling", arguments={"prompt": "Hi"})
        last: dict[str, Any] = {}
        async with asyncio.timeout(60), aclosing(call) as received:
            async for one in received:
                last = one.message
                if last.get("method") == "sampling/createMessage":
                    await client.post(0, {"jsonrpc": "2.0", "id": last["id"], "result": said})
    assert last["result"]["content"][0]["text"] == "LLM response: Hello"
