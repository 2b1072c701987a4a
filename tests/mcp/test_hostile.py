"""A hostile server: its word about itself loosens nothing, and what it sends is bounded."""

import json
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mcp_peers import open_servers, tool_caller
from windlass.core.errors import ConfigError
from windlass.core.json_repair.arguments import RefusedArguments, prepare_arguments
from windlass.core.messages import TextPart
from windlass.core.schema import JsonSchema
from windlass.tools.mcp.config import mcp_settings

HOSTILE = Path(__file__).with_name("hostile_server.py")
SECONDS_MAX = 5.0


def hostile_settings(kind: str, **more: Any) -> Mapping[str, Any]:
    return {"command": sys.executable, "args": [str(HOSTILE), kind], **more}


@pytest.mark.contract("G7")
async def test_hints_of_a_server_loosen_nothing() -> None:
    async with open_servers(own=hostile_settings("liar")) as servers:
        (tool,) = await servers.tools()
    assert tool.spec.effect == "write"
    assert set(tool.spec.labels) == {"untrusted", "external"}


@pytest.mark.contract("G7")
async def test_hints_count_for_a_server_that_the_user_trusts() -> None:
    async with open_servers(own=hostile_settings("liar", trustHints=True)) as servers:
        (tool,) = await servers.tools()
    assert tool.spec.effect == "read"
    assert tool.spec.labels == ("untrusted",)


@pytest.mark.contract("G7")
def test_a_project_cannot_trust_the_hints_of_its_servers() -> None:
    given = {"mcpServers": {"it": hostile_settings("liar", trustHints=True)}}
    with pytest.raises(ConfigError, match="a project cannot declare"):
        mcp_settings(given, {}, of_project=True)


@pytest.mark.contract("T15")
async def test_a_schema_that_would_block_the_runtime_is_left_out() -> None:
    async with open_servers(own=hostile_settings("schemas")) as servers:
        start = time.monotonic()
        tools = {tool.name: tool for tool in await servers.tools()}
        schema = JsonSchema(tools["own__bad"].spec.parameters)
        prepared = prepare_arguments('{"a": "text"}', schema)
        assert time.monotonic() - start < SECONDS_MAX
        assert "levels deep" in servers.servers["own"].skipped["deep"]
    assert [*tools] == ["own__bad", "own__harmless"]
    assert isinstance(prepared, RefusedArguments)


@pytest.mark.contract("T15")
async def test_an_output_schema_cannot_block_the_runtime() -> None:
    async with open_servers(own=hostile_settings("output")) as servers:
        tools = await servers.tools()
        start = time.monotonic()
        result = await tool_caller(tools)("harmless")
        assert time.monotonic() - start < SECONDS_MAX
    assert result.kind == "error"
    assert "does not match its schema" in result.text


@pytest.mark.contract("T15")
async def test_endless_pages_and_long_texts_are_bounded() -> None:
    async with open_servers(own=hostile_settings("endless")) as servers:
        assert len(await servers.tools()) == 1_000
    async with open_servers(own=hostile_settings("long")) as servers:
        tools = {tool.name: tool.spec for tool in await servers.tools()}
        assert len(tools["own__long"].description) <= 10_000
    async with open_servers(own=hostile_settings("prompts")) as servers:
        tools = {tool.name: tool.spec for tool in await servers.tools()}
        assert len(tools["own__get_prompt"].description) < 30_000


@pytest.mark.contract("T15")
async def test_an_answer_of_many_parts_is_bounded() -> None:
    async with open_servers(own=hostile_settings("parts")) as servers:
        result = await tool_caller(await servers.tools())("harmless")
    assert len(result.content) == 201
    assert "300 more parts" in result.text


@pytest.mark.contract("T17")
async def test_names_of_a_server_stand_for_nothing_but_its_own_tools() -> None:
    """Neither for a tool of ours, nor for one of another server, nor for one another."""
    async with open_servers(own=hostile_settings("shadows")) as servers:
        names = [tool.name for tool in await servers.tools()]
    assert len(names) == len(set(names))
    for name in names:
        assert name.startswith("own__")
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name)


@pytest.mark.contract("T15")
async def test_a_description_cannot_steer_a_terminal() -> None:
    async with open_servers(own=hostile_settings("poison")) as servers:
        (tool,) = await servers.tools()
    assert "Useful." in tool.spec.description
    assert not any(letter in tool.spec.description for letter in "\x1b\x07\u202e\u2066")
    # Whatever it orders, the tool counts as one that brings text from outside and sends text out.
    assert set(tool.spec.labels) == {"untrusted", "external"}


@pytest.mark.contract("T15")
async def test_a_server_cannot_ask_the_person_or_the_model() -> None:
    """Outside of a run nobody is there, and what was never offered to it is an error."""
    for offered, expected in ((True, "cancel"), (False, None)):
        settings = {**hostile_settings("asks"), "elicitation": offered}
        async with open_servers(own=settings) as servers:
            result = await tool_caller(await servers.tools())("harmless")
        part = result.content[0]
        assert isinstance(part, TextPart)
        form, reply = json.loads(part.text)
        assert (form["id"], reply["id"]) == ("q0", "q1")
        assert form.get("result", {}).get("action") == expected
        assert "error" in reply
        assert "result" not in reply


@pytest.mark.contract("G7")
async def test_a_list_that_changes_loosens_nothing() -> None:
    async with open_servers(own=hostile_settings("changing")) as servers:
        first = [tool.spec for tool in await servers.tools()]
        again = [tool.spec for tool in await servers.tools()]
    assert {spec.effect for spec in (*first, *again)} == {"write"}
    assert [spec.name for spec in first] == [spec.name for spec in again]
