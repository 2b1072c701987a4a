"""A request to an MCP server says which call it belongs to (O1)."""

import sys
from pathlib import Path

import pytest

from collector import SpanCollector, span_place
from windlass import Agent, ToolResults
from windlass.telemetry import Telemetry
from windlass.testing import ScriptedModel, call
from windlass.tools.mcp.config import mcp_settings
from windlass.tools.mcp.servers import McpServers

SERVER = Path(__file__).with_name("meta_server.py")


@pytest.mark.contract("O1")
@pytest.mark.realtime
@pytest.mark.slow
@pytest.mark.mcp
@pytest.mark.timeout(120)
async def test_a_request_carries_the_span_of_its_call(collector: SpanCollector) -> None:
    pytest.importorskip("mcp")
    settings = {"mcpServers": {"own": {"command": sys.executable, "args": [str(SERVER)]}}}
    async with McpServers(mcp_settings(settings, {})) as servers:
        agent = Agent(
            ScriptedModel([call("own__which"), "Done."]),
            tools=[*await servers.tools()],
            telemetry=Telemetry(tracer_provider=collector.tracers),
        )
        result = await agent.run("Which?")
        await agent.aclose()
    results = next(one for one in result.messages if isinstance(one, ToolResults))
    span = span_place(collector.only_span("execute_tool own__which"))
    told = results.items[0].result.text
    assert told.startswith(f"00-{span.trace_id:032x}-{span.span_id:016x}-")
