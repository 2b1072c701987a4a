"""`tools`, `models`, `mcp` and `config`: what they print and what they write."""

import json
import sys
from pathlib import Path

import pytest

from cli_types import Cli

pytestmark = pytest.mark.realtime
OWN_SERVER = Path(__file__).parent.parent / "mcp" / "own_server.py"


def test_the_tools_in_lines_and_as_json(cli: Cli) -> None:
    said = cli("tools", "--tools", "read,bash")
    assert [line.split()[:2] for line in said.stdout.splitlines()] == [
        ["read", "read,"],  # Labels follow: what it shows is private, and strangers wrote it.
        ["bash", "write,"],
        ["read_artifact", "read"],
    ]
    listed = json.loads(cli("tools", "--json").stdout)
    assert {"name", "description", "parameters"} <= set(listed[0])


def test_the_models_of_a_provider_with_their_prices(cli: Cli) -> None:
    """P6: with the date of the prices."""
    said = cli("models", "anthropic").stdout
    assert "anthropic:claude-sonnet-5" in said
    assert "US dollars per million tokens" in said
    assert "any model name is passed on" in cli("models", "ollama").stdout


def test_the_providers_and_which_can_be_asked(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hidden-0123456789")
    said = cli("models").stdout
    assert "OPENAI_API_KEY is set" in said
    assert "sk-hidden" not in said


def test_settings_are_shown_with_their_places(cli: Cli, project: Path) -> None:
    (project / "windlass.toml").write_text('# here\nmodel = "ollama:qwen3"\n[agents.a]\n')
    assert cli("trust", "--yes").exit_code == 0
    lines = {
        line.split()[0]: line.split()[1:] for line in cli("config", "show").stdout.splitlines()
    }
    assert lines["model"][0] == "ollama:qwen3"
    assert "line 2" in cli("config", "show").stdout.replace("\n", " ")
    assert lines["max_steps"] == ["25", "default"]
    assert lines["agents"] == ["a"]
    assert cli("config", "get", "model").stdout == "ollama:qwen3\n"
    assert "windlass.toml" in cli("config", "path").stdout


def test_a_setting_is_written_and_all_else_stays(cli: Cli, project: Path, home: Path) -> None:
    file = project / "windlass.toml"
    file.write_text('# mine\nmodel = "a:b"  # old\n\n[agents.x]\nmodel = "c:d"\n')
    assert cli("config", "set", "model", "ollama:qwen3").exit_code == 0
    assert cli("config", "set", "max_usd", "0.5").exit_code == 0
    assert file.read_text() == (
        '# mine\nmodel = "ollama:qwen3"\nmax_usd = 0.5\n\n[agents.x]\nmodel = "c:d"\n'
    )
    assert cli("config", "set", "--user", "thinking", "fold").exit_code == 0
    assert (home / "windlass" / "config.toml").read_text() == 'thinking = "fold"\n'
    assert cli("config", "get", "thinking").stdout == "fold\n"


def test_servers_are_added_listed_and_removed(cli: Cli, project: Path) -> None:
    """T15: the usual file, which others write too."""
    assert "No MCP servers" in cli("mcp", "list").stdout
    added = cli("mcp", "add", "-e", "TOKEN=${TOKEN}", "own", "python", "-m", "server", "-v")
    assert added.exit_code == 0, added.output
    web = cli("mcp", "add", "web", "https://mcp.example/x", "-H", "Authorization=Bearer ${T}")
    assert web.exit_code == 0, web.output
    assert json.loads((project / ".mcp.json").read_text()) == {
        "mcpServers": {
            "own": {
                "command": "python",
                "args": ["-m", "server", "-v"],
                "env": {"TOKEN": "${TOKEN}"},
            },
            "web": {
                "type": "http",
                "url": "https://mcp.example/x",
                "headers": {"Authorization": "Bearer ${T}"},
            },
        }
    }
    assert cli("mcp", "add", "own", "other").exit_code == 2
    assert cli("mcp", "add", "--replace", "own", "other").exit_code == 0
    assert cli("mcp", "remove", "web").exit_code == 0
    assert cli("mcp", "list").stdout.split() == ["own", "other"]
    assert cli("mcp", "remove", "own").exit_code == 0
    assert not (project / ".mcp.json").exists()


@pytest.mark.slow
def test_a_server_is_tried(cli: Cli, tmp_path: Path) -> None:
    """T15: a real server, a real connection."""
    pytest.importorskip("mcp")
    assert cli("mcp", "add", "own", sys.executable, str(OWN_SERVER), str(tmp_path)).exit_code == 0
    tried = cli("mcp", "test", "own")
    assert tried.exit_code == 0, tried.output
    assert "own: " in tried.output
    assert cli("mcp", "add", "bad", sys.executable, "-c", "raise SystemExit(3)").exit_code == 0
    failed = cli("mcp", "test")
    assert (failed.exit_code, "✗ bad" in failed.output) == (1, True), failed.output


def test_every_command_and_subcommand_has_help(cli: Cli) -> None:
    for args in (
        *(("mcp", one) for one in ("add", "list", "login", "logout", "remove", "test")),
        *(("config", one) for one in ("show", "path", "get", "set")),
    ):
        said = cli(*args, "-h")
        assert (said.exit_code, "Usage: windlass" in said.output) == (0, True)


def test_secrets_are_set_listed_and_deleted_and_never_shown(cli: Cli) -> None:
    """G8: a model's key comes from a command of the person's own."""
    value = "correct-horse-battery"
    made = cli("secrets", "set", "MY_KEY", "--command", f"echo {value}")
    assert (made.exit_code, made.stdout) == (0, "MY_KEY is set.\n")
    assert cli("secrets", "list").stdout == f"MY_KEY  command: echo {value}\n"
    assert cli("secrets", "delete", "MY_KEY").exit_code == 0
    assert "There is no secret" in cli("secrets", "list").stdout
    assert cli("secrets", "delete", "MY_KEY").exit_code != 0


@pytest.mark.contract("G8")
def test_secrets_of_the_environment_and_of_dotenv_are_listed_by_name_alone(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each comes from, which one goes first, and what has no effect; never a value."""
    value = "correct-horse-battery-staple"
    monkeypatch.setenv("HARBOUR_TOKEN", f"{value}-1")
    lines = [f"HARBOUR_TOKEN={value}-2", f"TIDE_API_KEY={value}-3", "SIZE=3"]
    (project / ".env").write_text("\n".join(lines))
    for name in ("TIDE_API_KEY", "HARBOUR_TOKEN"):
        assert cli("secrets", "set", name, "--command", "pass show it").exit_code == 0
    untrusted = cli("secrets", "list").stdout.splitlines()
    assert "TIDE_API_KEY  .env  (not used: windlass trust)" in untrusted
    assert "TIDE_API_KEY  command: pass show it" in untrusted
    assert cli("trust", "--yes").exit_code == 0
    listed = cli("secrets", "list").stdout
    assert listed.splitlines() == [
        "HARBOUR_TOKEN  .env  (the environment goes first)",
        "HARBOUR_TOKEN  command: pass show it  (the environment goes first)",
        "HARBOUR_TOKEN  environment",
        "TIDE_API_KEY  .env",
        "TIDE_API_KEY  command: pass show it  (.env goes first)",
    ]
    assert value not in listed
    for name, place in (("TIDE_API_KEY", "the file .env"), ("HARBOUR_TOKEN", "the environment")):
        assert cli("secrets", "delete", name).exit_code == 0
        assert f"{name} is set in {place}" in cli("secrets", "delete", name).stderr
