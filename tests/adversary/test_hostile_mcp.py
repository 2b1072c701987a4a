"""MCP servers that attack whoever calls them: each call ends at once, with a clear result (T15)."""

import asyncio
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="needs the extra `mcp`")

from mcp_peers import Use, tool_caller
from windlass.core.json_repair.arguments import RefusedArguments, prepare_arguments
from windlass.core.schema import JsonSchema
from windlass.ports import CallContext
from windlass.testing.tools import call_context
from windlass.tools.mcp.config import mcp_settings
from windlass.tools.mcp.servers import McpServers

pytestmark = [pytest.mark.slow, pytest.mark.realtime, pytest.mark.contract("T15")]
SERVER = Path(__file__).resolve().parents[1] / "mcp" / "attacking_server.py"
TIMEOUT_S = 60
"""Of a call. No attack may make it wait for that."""
PATIENCE_S = 30


def hostile_servers(*attack: str) -> McpServers:
    command = {"command": sys.executable, "args": [str(SERVER), *attack], "timeout": TIMEOUT_S}
    return McpServers(mcp_settings({"mcpServers": {"own": command}}, {}))


@asynccontextmanager
async def hostile_tools(attack: str, context: CallContext | None = None) -> AsyncGenerator[Use]:
    async with hostile_servers(attack) as servers, asyncio.timeout(PATIENCE_S):
        yield tool_caller(await servers.tools(), context)


async def test_an_answer_that_is_too_deep_is_an_error_at_once() -> None:
    """900 levels: no reader of JSON takes them, and the call used to wait for its time-out."""
    async with hostile_tools("deep") as use:
        for _ in range(2):
            result = await use("look", path="a")
            assert result.kind == "error"
            assert "cannot be read" in result.text


async def test_a_schema_that_changes_after_it_was_listed_changes_no_call() -> None:
    """What was judged by the first schema is what the server gets, again and again."""
    async with hostile_tools("schema") as use:
        for path in ("a", "b"):
            result = await use("look", path=path)
            assert (result.kind, result.text) == ("value", f'{{"path": "{path}"}}')


async def test_a_flood_of_notifications_is_bounded_and_ends() -> None:
    """40,000 log and progress messages before the answer: few are shown, and the answer comes."""
    reports = list[str]()
    async with hostile_tools("flood", call_context(reports)) as use:
        result = await use("look", path="a")
    assert (result.kind, result.text) == ("value", '{"path": "a"}')
    assert 0 < len(reports) <= 1_000


@pytest.mark.contract("T9")
async def test_hostile_schemas_of_tools_are_refused_or_bounded() -> None:
    """A cycle of references, a huge enum, a costly pattern, a contradiction and a remote one."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port = str(listener.getsockname()[1])
        async with hostile_servers("schemas", port) as servers, asyncio.timeout(PATIENCE_S):
            tools = {tool.spec.name: tool.spec for tool in await servers.tools()}
            skipped = servers.servers["own"].skipped
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert set(skipped) == {"cycle", "enum", "remote"}
    assert "leads back to itself" in skipped["cycle"]
    assert "parts" in skipped["enum"]
    assert "which is not in it" in skipped["remote"]
    arguments = '{"path": "' + "a" * 60 + '!"}'
    for name in ("pattern", "never"):
        schema = JsonSchema(tools[f"own__{name}"].parameters)
        refused = prepare_arguments(arguments, schema)
        assert isinstance(refused, RefusedArguments)
        assert len(refused.message) < 2_000
