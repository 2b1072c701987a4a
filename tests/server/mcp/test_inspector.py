"""The official inspector of MCP servers, over HTTP and over pipes, in both eras of the protocol."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="needs the extra `mcp`")

from mcp_clients import listen_for_mcp
from mcp_servers import node_program
from node_clients import require_packages
from windlass import Agent, tool
from windlass.gates.presets import ask
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing import ScriptedModel, call

pytestmark = [
    pytest.mark.contract("A6"),
    pytest.mark.realtime,
    pytest.mark.slow,
    pytest.mark.timeout(180),
]
WAIT_S = 90
APP = """
from windlass import Agent
from windlass.testing import ScriptedModel

agents = [Agent(ScriptedModel(["Hello from the pipe."]), name="clerk")]
"""


async def inspect(folder: Path, *words: str) -> tuple[int, str]:
    """Run the inspector in a folder; its exit code and what it said."""
    program = require_packages("mcp") / "node_modules/.bin/mcp-inspector"
    node = node_program()
    env = {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder / "data")}
    env["PATH"] = f"{Path(node).parent}{os.pathsep}{env['PATH']}"
    process = await asyncio.create_subprocess_exec(
        node,
        str(program),
        "--cli",
        *words,
        cwd=folder,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(WAIT_S):
        said = (await process.communicate())[0].decode()
    return process.returncode or 0, said


def result_in(said: str) -> dict[str, Any]:
    """The JSON object that the inspector printed."""
    start = said.index("{")
    return json.JSONDecoder().raw_decode(said[start:])[0]


@tool
def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_inspector_lists_and_calls_agents(tmp_path: Path, era: str) -> None:
    """Text, a question that waits, the same run again, and errors."""
    with SqliteJournal(tmp_path / "s.db") as journal:
        script = ScriptedModel(["Hello.", call("send", {"to": "bob"})])
        agent = Agent(script, name="clerk", tools=[send], gate=ask(), journal=journal)
        async with listen_for_mcp(agent) as running:
            token = await running.make_token()
            place = (
                f"{running.address}/mcp",
                "--transport",
                "http",
                "--header",
                f"Authorization: Bearer {token}",
                "--protocol-era",
                era,
            )
            code, said = await inspect(tmp_path, *place, "--method", "tools/list", "--strict")
            assert code == 0, said
            assert [one["name"] for one in result_in(said)["tools"]] == ["clerk"]
            calls = (*place, "--method", "tools/call", "--tool-name")
            _, said = await inspect(tmp_path, *calls, "clerk", "--tool-arg", "prompt=Hi.")
            found = result_in(said)["structuredContent"]
            assert (found["outcome"], found["text"]) == ("completed", "Hello.")
            _, said = await inspect(tmp_path, *calls, "clerk", "--tool-arg", "prompt=Write.")
            assert "Send to bob?" in said, said
            sessions: Any = running.service.journal
            session = next(
                one.session for one in await sessions.sessions() if one.state == "waiting"
            )
            arguments = ("--tool-arg", f"session={session}")
            _, said = await inspect(tmp_path, *calls, "clerk", *arguments)
            assert "Send to bob?" in said
            _, said = await inspect(tmp_path, *calls, "nobody", "--tool-arg", "prompt=Hi.")
            assert "nobody" in said
            code, said = await inspect(
                tmp_path, f"{running.address}/mcp", "--transport", "http", "--stored-auth-only",
                "--method", "tools/list",
            )  # fmt: skip
            assert code != 0, said


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_inspector_calls_agents_over_pipes(tmp_path: Path, era: str) -> None:
    (tmp_path / "app.py").write_text(APP)
    journal = str(tmp_path / "s.db")
    target = (sys.executable, "-m", "windlass.cli", "mcp", "serve", "app:agents")
    code, said = await inspect(
        tmp_path,
        *target,
        "--journal",
        journal,
        "--protocol-era",
        era,
        "--method",
        "tools/call",
        "--tool-name",
        "clerk",
        "--tool-arg",
        "prompt=Hi.",
    )
    assert code == 0, said
    found = result_in(said)["structuredContent"]
    assert found["text"] == "Hello from the pipe."
    with SqliteJournal(journal) as kept:
        assert [one.session for one in await kept.sessions()] == [found["session"]]
