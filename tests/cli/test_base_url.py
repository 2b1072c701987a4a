"""`openai-compatible:` from the command line: where its server is, and who may say so."""

import asyncio
from pathlib import Path

import pytest

from cli_types import Cli
from windlass.cli import command_context
from windlass.cli.command_context import CommandContext, load_context
from windlass.core.errors import ConfigError
from windlass.project.local_servers import LocalServer
from windlass.testing import FaultServer
from windlass.testing.chat_wire import text_answer

pytestmark = [pytest.mark.realtime, pytest.mark.contract("P2")]
MODEL = "openai-compatible:m"
FOUND = LocalServer("llamacpp", 8080, ("qwen",))


@pytest.fixture(autouse=True)
def nothing_found(monkeypatch: pytest.MonkeyPatch) -> None:
    set_servers(monkeypatch)


def set_servers(monkeypatch: pytest.MonkeyPatch, *servers: LocalServer) -> None:
    async def find_servers() -> list[LocalServer]:
        await asyncio.sleep(0)
        return list(servers)

    monkeypatch.setattr(command_context, "find_servers", find_servers)


@pytest.mark.parametrize("way", ["flag", "variable", "file"])
def test_the_address_is_given_in_three_ways(
    way: str, cli: Cli, server: FaultServer, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.add_answers(text_answer("Done."))
    flags = ["--base-url", server.url] if way == "flag" else []
    if way == "variable":
        monkeypatch.setenv("WINDLASS_BASE_URL", server.url)
    if way == "file":
        (project / "windlass.toml").write_text(f'base_url = "{server.url}"\n')
    done = cli("run", "-q", "--trust", "-m", MODEL, *flags, "go")
    assert (done.exit_code, done.stdout) == (0, "Done.\n")


def test_without_an_address_the_error_says_how_to_give_one(cli: Cli) -> None:
    done = cli("run", "-m", MODEL, "go")
    assert done.exit_code == 2
    for way in ("--base-url http://localhost:8000/v1", "WINDLASS_BASE_URL", "base_url"):
        assert way in " ".join(done.stderr.split())


def test_a_server_that_was_found_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    set_servers(monkeypatch, FOUND)
    said = " ".join(cli("run", "-m", MODEL, "go").stderr.split())
    assert "add --base-url http://127.0.0.1:8080/v1" in said
    assert "Running on this machine: http://127.0.0.1:8080/v1 (llamacpp)." in said


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(("answer", "url"), [("", FOUND.url), ("n", None)])
def test_a_server_that_was_found_is_offered(
    answer: str, url: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_servers(monkeypatch, FOUND)
    monkeypatch.setattr(command_context, "read_stdin_line", lambda: answer)
    context = load_context({"model": MODEL})
    object.__setattr__(context.terminal, "question_prompt", object())
    if url is None:
        with pytest.raises(ConfigError, match="--base-url"):
            context.with_chosen_model()
        return
    chosen: CommandContext = context.with_chosen_model()
    assert chosen.agent.settings.base_url == url
    chosen.agent.check_model()


def test_the_file_of_a_project_cannot_send_a_key_away(
    cli: Cli, project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P3: a key belongs to its provider; only the person at the keyboard may send it elsewhere."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789abcdef")
    (project / "windlass.toml").write_text('base_url = "https://models.invalid/v1"\n')
    done = cli("run", "--trust", "-m", "openai:gpt-5", "go")
    assert done.exit_code == 2
    assert "would send OPENAI_API_KEY to https://models.invalid/v1" in " ".join(done.stderr.split())
    trusting = load_context({"model": MODEL}, trust=True)
    assert trusting.agent.checked_base_url() == "https://models.invalid/v1"
    flags = {"model": "openai:gpt-5", "base_url": "https://mine.invalid/v1"}
    assert load_context(flags, trust=True).agent.checked_base_url() == "https://mine.invalid/v1"
    assert home.is_dir()


def test_another_provider_has_its_own_address(project: Path) -> None:
    context = load_context({"model": MODEL, "base_url": "http://localhost:1/v1"})
    assert context.agent.with_model("openai-compatible:n").settings.base_url
    assert not context.agent.with_model("openai:gpt-5").settings.base_url
    assert project.is_dir()
