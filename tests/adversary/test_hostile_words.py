"""Words of others that would steer a terminal, and links that lead out of a project."""

import json
import logging
from pathlib import Path

import pytest
from click.testing import CliRunner

from windlass.cli import main
from windlass.knowledge.skills import Skills
from windlass.testing.tools import call_context, cleared_call
from windlass.tools import Toolbox, tool

ESCAPE = "\x1b]0;owned\x07\x1b[2J"


@pytest.mark.contract("U1")
def test_names_of_mcp_servers_cannot_steer_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    servers = {f"evil{ESCAPE}\nsecond": {"command": f"true{ESCAPE}"}}
    Path(".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    result = CliRunner().invoke(main, ["mcp", "list"])
    assert "evil" in result.output
    assert "\x1b" not in result.output
    assert "\x07" not in result.output
    assert sum("evil" in line for line in result.output.splitlines()) == 1
    assert sum("second" in line for line in result.output.splitlines()) == 1


@pytest.mark.contract("T7")
async def test_an_exception_of_a_tool_is_one_printable_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool
    def fail() -> str:
        """Fail."""
        raise RuntimeError(ESCAPE + "x\n" * 100_000)

    box = Toolbox([fail])
    with caplog.at_level(logging.WARNING):
        result = await box.run(cleared_call(box.specs[0], {}), call_context())
    assert result.kind == "error"
    assert "tool fail failed: RuntimeError" in caplog.text
    assert "\x1b" not in caplog.text
    assert "Traceback" not in caplog.text
    assert len(caplog.text) < 1_000


@pytest.mark.contract("X5")
def test_a_folder_of_skills_that_leads_out_of_the_project_is_not_read(tmp_path: Path) -> None:
    outside = tmp_path / "outside" / "secret"
    outside.mkdir(parents=True)
    (outside / "SKILL.md").write_text("---\nname: secret\ndescription: private\n---\nbody\n")
    project = tmp_path / "project"
    project.mkdir()
    (project / "skills").symlink_to(outside.parent)
    skills = Skills.from_project(project)
    assert len(skills) == 0
    assert "leads out of" in skills.problems[0]
