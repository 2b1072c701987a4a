"""Which agents `windlass serve` has: those of the settings, or what a module has."""

import sys
from pathlib import Path

import pytest

from service import run_service
from windlass import Agent, ConfigError
from windlass.cli.agent_source import (
    import_agents,
    load_project_agents,
    open_project_agents,
)
from windlass.core.errors import FolderNotTrusted
from windlass.journals import MemoryJournal
from windlass.project import load_agent, open_project
from windlass.server import Service
from windlass.testing import ScriptedModel

SETTINGS = """
model = "ollama:qwen3"
tools = ["read-only"]

[agents.reviewer]
instructions = "Review what you are shown."
"""


@pytest.mark.contract("A1")
async def test_the_agents_of_a_project_are_served_and_can_be_resumed_in_a_terminal(
    tmp_path: Path,
) -> None:
    (tmp_path / "windlass.toml").write_text(SETTINGS)
    project = open_project(tmp_path).as_trusted()
    default = load_agent({}, tmp_path, project=project)
    agents = load_project_agents(default, {}, project)
    assert list(agents) == ["default", "reviewer"]
    journal = MemoryJournal()
    async with open_project_agents(agents, journal) as served:
        # What `windlass resume` needs to build the same agent again is in the context of each run.
        assert served.contexts["reviewer"]["windlass"]["folder"] == str(tmp_path)
        async with run_service(served.agents, journal=journal, shows=["all"]) as running:
            ann = await running.make_client("ann")
            listed = (await ann.get("/agents")).data["agents"]
            assert [agent["name"] for agent in listed] == ["default", "reviewer"]
            assert {tool["effect"] for tool in listed[0]["tools"]} == {"read"}
            trial = await ann.post(
                "/agents/default/trial", {"tool": "read", "arguments": {"path": "a.txt"}}
            )
            assert trial.data["verdict"]["verdict"] == "allow"
            unknown = await ann.post("/agents/default/trial", {"tool": "rm", "arguments": {}})
            assert unknown.data["error"]["code"] == "tool_not_found"


def test_a_project_that_nobody_trusts_serves_nothing(tmp_path: Path) -> None:
    (tmp_path / "windlass.toml").write_text(SETTINGS)
    with pytest.raises(FolderNotTrusted):
        load_agent({}, tmp_path)


@pytest.mark.parametrize("made", ["agent", "[agent]", "{'a': agent}", "lambda: [agent]"])
def test_a_module_has_agents(made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "served.py").write_text(
        "from windlass import Agent\nfrom windlass.testing import ScriptedModel\n"
        f"agent = Agent(ScriptedModel([]), name='a')\nagents = {made}\n"
    )
    monkeypatch.delitem(sys.modules, "served", raising=False)
    found = import_agents("served:agents")
    monkeypatch.delitem(sys.modules, "served", raising=False)
    assert not isinstance(found, Service)
    assert len(found) == 1


@pytest.mark.parametrize("target", ["json", "json:", ":x", "no_such_module:x", "json:dumps2"])
def test_what_is_not_there_is_said_plainly(target: str) -> None:
    with pytest.raises(ConfigError, match=r"no_such|MODULE:NAME|has no 'dumps2'"):
        import_agents(target)


@pytest.mark.parametrize("target", ["./bad.py:dic", "bad.py:dic", "../lib/bad:dic", ".bad:dic"])
def test_a_file_instead_of_a_module_is_told_with_the_right_form(target: str) -> None:
    with pytest.raises(ConfigError, match=r"is not the name of a module.*app:agents"):
        import_agents(target)


def test_a_mistyped_name_is_told_apart_from_one_that_is_not_an_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "mistyped.py").write_text("agents = []\nother = 5\n")
    with pytest.raises(
        ConfigError, match=r"the module mistyped has no 'agent'\. Did you mean agents"
    ):
        import_agents("mistyped:agent")
    with pytest.raises(ConfigError, match="'mistyped:other' is not an Agent"):
        import_agents("mistyped:other")
    monkeypatch.delitem(sys.modules, "mistyped", raising=False)


def test_agents_of_different_journals_need_one_for_all(tmp_path: Path) -> None:
    agents = [
        Agent(ScriptedModel([]), name=name, journal=str(tmp_path / f"{name}.db"))
        for name in ("a", "b")
    ]
    with pytest.raises(ConfigError, match="different journals"):
        Service(agents)
    with pytest.raises(ConfigError, match="two agents"):
        Service([agents[0], agents[0]])
