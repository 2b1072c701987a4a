"""The setting `interpreter`: a person switches the tool `python` on, and no project can."""

from pathlib import Path

import pytest

from windlass import Agent
from windlass.core.messages import ToolResults
from windlass.project.agents import build_toolbox, load_agent
from windlass.project.effects import describe_effects
from windlass.project.layers import LoadedSettings
from windlass.project.permissions import build_gate
from windlass.project.settings import SETTING_KEYS, InterpreterMode, Settings
from windlass.project.trust import open_project
from windlass.testing import ScriptedModel, call
from windlass.tools import Toolbox

pytestmark = [pytest.mark.realtime, pytest.mark.slow]


def make_toolbox(folder: Path, mode: InterpreterMode) -> Toolbox:
    loaded = LoadedSettings(Settings(interpreter=mode), {}, {})
    return build_toolbox(loaded, folder, open_project(folder))


def test_the_interpreter_is_off_unless_a_person_switches_it_on(tmp_path: Path) -> None:
    assert "python" not in [spec.name for spec in make_toolbox(tmp_path, "off").specs]
    assert Settings().interpreter == "off"
    assert SETTING_KEYS["interpreter"].of_person


@pytest.mark.parametrize("table", ["", "[agents.x]\n"])
@pytest.mark.parametrize("mode", ["on", "tools"])
def test_a_trusted_project_cannot_switch_the_interpreter_on(
    tmp_path: Path, mode: str, table: str
) -> None:
    """G6: what its file says has no effect, as the person who trusts it is told."""
    (tmp_path / "windlass.toml").write_text(f'model = "ollama:a"\n{table}interpreter = "{mode}"\n')
    flags = {"agent": "x"} if table else {}
    agent = load_agent(flags, tmp_path, trust=True)
    assert agent.settings.interpreter == "off"
    told = list(describe_effects(open_project(tmp_path).snapshot))
    assert any("never has an effect: interpreter" in line for line in told)


@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs a system Python")
@pytest.mark.contract("G5", "G6")
async def test_its_code_reads_files_and_is_denied_what_would_be_asked(tmp_path: Path) -> None:
    """With the tools, the gate and the sandbox that the command line has by default."""
    (tmp_path / "a.txt").write_text("first\n")
    folder = tmp_path
    loaded = LoadedSettings(Settings(interpreter="tools"), {}, {})
    toolbox = make_toolbox(folder, "tools")
    (python,) = [spec for spec in toolbox.specs if spec.name == "python"]
    assert set(python.labels) == {"untrusted", "private"}
    code = (
        "print('first' in read(path='a.txt'))\n"
        "try: write(path='b.txt', content='x')\n"
        "except ToolError as error: print(error.kind, error)\n"
    )
    with ScriptedModel([call("python", {"code": code}), "Done."]) as model:
        agent = Agent(
            model,
            tools=toolbox,
            gate=build_gate(loaded, folder, open_project(folder)),
            approver=lambda question: question.tool == "python",
        )
        result = await agent.run("Go.")
        await agent.aclose()
    (message,) = [one for one in result.messages if isinstance(one, ToolResults)]
    shown = message.items[0].result.text.splitlines()
    assert shown[0] == "True"
    assert shown[1].startswith("denied")
    assert "Call write directly, not from python" in shown[1]
    assert not (folder / "b.txt").exists()
