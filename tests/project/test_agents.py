"""An agent from settings, without a command line: its tools, its prompt, its gate, its output."""

import shutil
from pathlib import Path

import pytest

from windlass.core.errors import ConfigError
from windlass.journals.memory import MemoryJournal
from windlass.project.agents import build_instructions, load_agent, schema_type
from windlass.project.launches import launch_context, load_recorded_agent
from windlass.testing import FaultServer, serve_in_thread
from windlass.testing.chat_wire import text_answer

pytestmark = pytest.mark.realtime


def test_settings_come_from_the_folder_and_flags_go_before_them(project: Path) -> None:
    (project / "windlass.toml").write_text('model = "ollama:a"\nmax_steps = 3\n')
    agent = load_agent({"model": "ollama:b"}, project, trust=True)
    assert (agent.settings.model, agent.settings.max_steps) == ("ollama:b", 3)
    assert agent.with_model("ollama:c").settings.model == "ollama:c"
    with pytest.raises(ConfigError, match="unknown provider"):
        agent.with_model("nope:c").check_model()


async def test_a_toolbox_needs_no_model(project: Path) -> None:
    agent = load_agent({"tools": "read-only,-fetch"}, project)
    async with agent.open_toolbox() as (toolbox, failures):
        assert {spec.effect for spec in toolbox.specs} == {"read"}
        assert "fetch" not in {spec.name for spec in toolbox.specs}
    assert failures == {}
    prompt = build_instructions(agent.settings, toolbox, agent.project)
    # A caller of a service works in another folder with the same instructions.
    assert "relative paths start there" in prompt
    assert str(project) not in prompt


async def test_an_agent_that_is_opened_can_run_and_its_session_finds_it_again(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J4: with nothing but the journal and the session's name, from another folder."""
    journal = MemoryJournal()
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    flags = {"model": "openai-chat:m", "tools": "none", "max_steps": "none"}
    with serve_in_thread(FaultServer()) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789abcdef")
        server.add_answers(text_answer('{"n": 3}'))
        agent = load_agent(flags, project, schema)
        async with agent.open_session(journal) as opened:
            context = launch_context(agent)
            result = await opened.agent.run("Count.", session="s", context=context)
    assert result.output == {"n": 3}
    monkeypatch.chdir(project.parent)
    again = await load_recorded_agent(journal, "s", {"max_usd": "2"})
    assert (again.folder, again.schema) == (project, schema)
    assert (again.settings.model, again.settings.max_steps) == ("openai-chat:m", None)
    assert again.settings.max_usd == 2
    shutil.move(project, project.parent / "elsewhere")
    with pytest.raises(ConfigError, match="which no longer exists"):
        await load_recorded_agent(journal, "s", {})


def test_a_schema_is_an_output_type() -> None:
    kind = schema_type({"type": "object", "required": ["n"]})
    assert kind.model_json_schema()["required"] == ["n"]
    assert kind.model_validate_json('{"n": 1}') == {"n": 1}
    with pytest.raises(ValueError, match="n"):
        kind.model_validate_json("{}")
    with pytest.raises(ConfigError):
        schema_type({"type": "nonsense"})
