"""Files that a person named themselves, in the folder that an agent can change.

`--policy rules.toml` is the person's own word. Nobody digests that file, so the agent must not be
able to rewrite it for the next run, by a tool or by a command.
"""

from pathlib import Path

import pytest

from shells import require_tier
from windlass.core.setup import ToolSpec
from windlass.core.verdicts import Allow, Ask
from windlass.ports import GateRequest
from windlass.project.agents import ProjectAgent, load_agent
from windlass.project.permissions import build_gate
from windlass.tools.run_context import RunContext

pytestmark = pytest.mark.contract("G4")
WRITE = ToolSpec(
    "write", "", parameters={"properties": {"path": {"type": "string"}}}, effect="write"
)
RULES = 'default = "allow"\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for kind in ("CONFIG", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / "own"))
    place = tmp_path / "project"
    (place / "rules").mkdir(parents=True)
    (place / "rules" / "own.toml").write_text(RULES)
    (place / "servers.json").write_text('{"mcpServers": {}}')
    return place


def load(folder: Path) -> ProjectAgent:
    flags = {"policy": "rules/own.toml", "mcp_config": "servers.json"}
    return load_agent(flags, folder, trust=False)


@pytest.mark.parametrize(
    ("path", "verdict"),
    [("rules/own.toml", Ask), ("rules/../servers.json", Ask), ("notes.txt", Allow)],
)
async def test_a_tool_does_not_rewrite_them_unasked(folder: Path, path: str, verdict: type) -> None:
    agent = load(folder)
    gate = build_gate(agent.loaded, folder, agent.project)
    request = GateRequest("s", "c", WRITE, {"path": path, "content": "x"})
    assert type(await gate.judge(request)) is verdict


REWRITE = """
echo x > rules/own.toml; rm -f rules/own.toml; mv rules away; echo x > servers.json
echo x > new; mv new rules/own.toml; ln -sf /dev/null servers.json
cat rules/own.toml; echo y > free
"""


@pytest.mark.slow
@pytest.mark.realtime
@pytest.mark.contract("T13")
async def test_a_command_cannot_rewrite_them(folder: Path) -> None:
    require_tier("bubblewrap")
    async with load(folder).open_toolbox() as (toolbox, _):
        bash = next(one for one in toolbox.tools if one.spec.name == "bash")
        result = await bash(RunContext(deps=None), REWRITE)
    assert (folder / "rules" / "own.toml").read_text() == RULES
    assert (folder / "servers.json").read_text() == '{"mcpServers": {}}'
    assert (folder / "free").read_text() == "y\n"
    assert RULES.strip() in result.text
