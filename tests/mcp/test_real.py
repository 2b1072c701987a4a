"""Servers that are not ours, in both eras of the protocol, over both transports."""

import asyncio
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from mcp_peers import fetch_or_skip, open_servers, serve_port, wait_until
from mcp_servers import node_server, python_server
from windlass import Agent
from windlass.core.messages import ImagePart, ToolResult
from windlass.testing import ScriptedModel, call, say
from windlass.testing.tools import call_context, cleared_call
from windlass.tools.mcp.servers import McpServers
from windlass.tools.toolbox import Toolbox

OLD, NEW = "2025-11-25", "2026-07-28"


def era(servers: McpServers) -> str:
    connection = next(iter(servers.servers.values()))._link._connection
    assert connection is not None
    assert connection.client is not None
    return connection.client.protocol_version


async def use(servers: McpServers, name: str, /, **arguments: Any) -> ToolResult:
    box = Toolbox(await servers.tools())
    spec = next(spec for spec in box.specs if spec.name == name)
    return await box.run(cleared_call(spec, arguments), call_context())


async def test_time_new_era() -> None:
    async with open_servers(
        time={"command": fetch_or_skip(python_server, "mcp-server-time")}
    ) as servers:
        result = await use(servers, "time__get_current_time", timezone="Europe/Paris")
        assert era(servers) == NEW
        assert '"timezone": "Europe/Paris"' in result.text
        wrong = await use(servers, "time__get_current_time", timezone="Nowhere/Atall")
        assert wrong.kind == "error"


async def test_git_new_era(tmp_path: Path) -> None:
    def git(*args: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), *args], check=True, capture_output=True)

    git("init")
    (tmp_path / "a.txt").write_text("a")
    program = fetch_or_skip(python_server, "mcp-server-git")
    # What the server says of its tools counts only if the user's own settings trust it.
    settings = {"command": program, "args": ["--repository", str(tmp_path)], "trustHints": True}
    async with open_servers(git=settings) as servers:
        effects = {tool.name: tool.spec.effect for tool in await servers.tools()}
        assert effects["git__git_status"] == "read"
        assert effects["git__git_commit"] == "write"
        result = await use(servers, "git__git_status", repo_path=str(tmp_path))
        assert "a.txt" in result.text
        assert era(servers) == NEW


async def test_sqlite_old_era(tmp_path: Path) -> None:
    program = fetch_or_skip(python_server, "mcp-server-sqlite")
    settings = {"command": program, "args": ["--db-path", str(tmp_path / "db")]}
    async with open_servers(
        sqlite={**settings, "tools": {"read_*": {"effect": "read"}}}
    ) as servers:
        names = {tool.name: tool.spec.effect for tool in await servers.tools()}
        assert era(servers) == OLD
        assert names["sqlite__read_query"] == "read"
        assert {"sqlite__read_resource", "sqlite__get_prompt"} <= names.keys()
        await use(servers, "sqlite__create_table", query="create table t (n integer)")
        await use(servers, "sqlite__write_query", query="insert into t values (42)")
        read = await use(servers, "sqlite__read_query", query="select n from t")
        assert "42" in read.text
        memo = await use(servers, "sqlite__read_resource", uri="memo://insights")
        assert memo.kind == "value"


async def test_everything_over_stdio() -> None:
    node, program = fetch_or_skip(node_server, "server-everything")
    async with open_servers(every={"command": node, "args": [program, "stdio"]}) as servers:
        await check_everything(servers)


async def test_everything_over_http(port: int) -> None:
    node, program = fetch_or_skip(node_server, "server-everything")
    with serve_port(node, program, "streamableHttp", port=port, PORT=str(port)) as process:
        settings = {"type": "http", "url": f"http://127.0.0.1:{port}/mcp"}
        async with open_servers(every=settings) as servers:
            await check_everything(servers)
            process.kill()
            process.wait()
            lost = await use_again(servers)
            assert lost.kind == "error"
            with serve_port(node, program, "streamableHttp", port=port, PORT=str(port)):
                await asyncio.sleep(1)
                assert (await use(servers, "every__echo", message="back")).text == "Echo: back"


async def use_again(servers: McpServers) -> ToolResult:
    try:
        return await use(servers, "every__echo", message="x")
    except Exception as error:  # noqa: BLE001 - listing fails as a call would
        return ToolResult.from_text("error", str(error))


async def check_everything(servers: McpServers) -> None:
    heard: list[str] = []
    box = Toolbox(await servers.tools())
    specs = {spec.name: spec for spec in box.specs}
    context = call_context()
    assert era(servers) == OLD

    async def ask(name: str, /, **arguments: Any) -> ToolResult:
        return await box.run(cleared_call(specs[f"every__{name}"], arguments), context)

    assert (await ask("echo", message="hi")).text == "Echo: hi"
    assert any(isinstance(part, ImagePart) for part in (await ask("get-tiny-image")).content)
    weather = await ask("get-structured-content", location="Chicago")
    assert weather.text.count("temperature") == 1
    link = await ask("get-resource-links", count=1)
    assert "[resource demo://" in link.text
    context = call_context(heard)
    await ask("trigger-long-running-operation", duration=1, steps=2)
    assert len(heard) == 2
    assert "demo://resource" in (await ask("list_resources")).text
    assert (await ask("get_prompt", name="simple-prompt")).text.startswith("user: ")


async def test_filesystem_is_killed_in_the_middle_of_a_call(tmp_path: Path) -> None:
    node, program = fetch_or_skip(node_server, "server-filesystem")
    (tmp_path / "a.txt").write_text("hello")
    async with open_servers(fs={"command": node, "args": [program, str(tmp_path)]}) as servers:
        path = str(tmp_path / "a.txt")
        assert "hello" in (await use(servers, "fs__read_text_file", path=path)).text
        pid = pid_of(program, str(tmp_path))
        box = Toolbox(await servers.tools())
        spec = next(spec for spec in box.specs if spec.name == "fs__edit_file")
        # Stopped, so that the call is surely under way when the server is killed.
        os.kill(pid, signal.SIGSTOP)
        edits = [{"oldText": "hello", "newText": "bye"}]
        cut = asyncio.ensure_future(
            box.run(cleared_call(spec, {"path": path, "edits": edits}), call_context())
        )
        await asyncio.sleep(0.3)
        os.kill(pid, signal.SIGKILL)
        result = await cut
        assert result.kind == "error"
        assert "SIGKILL" in result.text
        assert "not known" in result.text
        assert "hello" in (await use(servers, "fs__read_text_file", path=path)).text


def pid_of(*words: str) -> int:
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_text().split("\0")
        except OSError:
            continue
        if set(words) <= set(command) and command[0].endswith("node"):
            return int(entry.name)
    raise AssertionError(words)


async def test_an_agent_asks_a_real_server() -> None:
    async with open_servers(
        time={"command": fetch_or_skip(python_server, "mcp-server-time")}
    ) as servers:
        zones = {"source_timezone": "UTC", "target_timezone": "Asia/Tokyo"}
        model = ScriptedModel(
            [
                call("time__convert_time", {**zones, "time": "12:00"}),
                say("It is nine in the evening."),
            ]
        )
        agent = Agent(model, tools=await servers.tools())
        result = await agent.run("When it is noon in UTC, what time is it in Tokyo?")
        await agent.aclose()
    assert result.text == "It is nine in the evening."
    assert "21:00:00+09:00" in str(result.messages)
    await wait_until(lambda: not servers.servers["time"].is_connected)
