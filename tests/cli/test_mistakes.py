"""What people get wrong: each mistake is told in a line or a few, with what to do; no traceback."""

from pathlib import Path

import pytest

from cli_types import Cli

pytestmark = pytest.mark.realtime
RUN = ("run", "-m", "openai-chat:m", "go")

MISTAKES: dict[str, tuple[tuple[str, ...], int, str]] = {
    "no prompt": (("run", "-m", "openai-chat:m"), 2, "the prompt is empty"),
    "no model": (("run", "go"), 2, "no model is configured: set ANTHROPIC_API_KEY"),
    "no model to serve": (("serve",), 2, "then windlass serve -m ollama:MODEL Without"),
    "no folder to serve from": (
        ("serve", "--journal", "nowhere/x.db"),
        2,
        "Correct the path, or add --create to make it.",
    ),
    "no such flag": ((*RUN, "--modle", "x"), 2, "No such option '--modle'"),
    "another program's flag": ((*RUN, "--json"), 2, "Did you mean '--output-format json'?"),
    "a provider that is not": (("run", "-m", "opnai:x", "go"), 2, "Did you mean openai"),
    "no provider": (("run", "-m", "gpt-5", "go"), 2, "names no provider"),
    "no key": (("run", "-m", "anthropic:claude-sonnet-5", "go"), 2, "Set ANTHROPIC_API_KEY"),
    "no money": ((*RUN, "--max-usd", "-1"), 2, "--max-usd=-1: it must be US dollars above zero"),
    "half a step": ((*RUN, "--max-steps", "1.5"), 2, "--max-steps=1.5: it must be a whole number"),
    "no time": ((*RUN, "--timeout", "soon"), 2, "--timeout=soon: it must be a time"),
    "no mode": ((*RUN, "--permission-mode", "yolo"), 2, "'yolo' is not one of 'ask'"),
    "no format": ((*RUN, "--output-format", "xml"), 2, "'xml' is not one of 'text'"),
    "no tool": ((*RUN, "--tools", "reed"), 2, "no tool 'reed'. Did you mean read"),
    "no agent": ((*RUN, "--agent", "x"), 2, "there is no agent 'x'"),
    "no policy": ((*RUN, "--policy", "none.toml"), 2, "cannot be read: No such file"),
    "a bad policy": ((*RUN, "--policy", "bad.toml"), 2, "bad.toml"),
    "no servers": ((*RUN, "--mcp-config", "none.json"), 2, "there is no such file"),
    "bad servers": ((*RUN, "--mcp-config", "bad.json"), 2, "bad.json"),
    "no schema": ((*RUN, "--output-schema", "none.json"), 2, "--output-schema none.json: No such"),
    "a bad schema": ((*RUN, "--output-schema", "bad.json"), 2, "--output-schema bad.json"),
    "no picture": ((*RUN, "--image", "none.png"), 2, "No such file"),
    "no system": ((*RUN, "-s", "@none.txt"), 2, "--system none.txt: No such file"),
    "a folder as system": ((*RUN, "-s", "@."), 2, "Is a directory"),
    "nothing to continue": ((*RUN, "-c"), 12, "there is no session of"),
    "an unknown session": ((*RUN, "-r", "zzz"), 12, "there is no session 'zzz'"),
    "a fork of nothing": ((*RUN, "--fork"), 2, "--fork copies a session"),
    "keep and not keep": ((*RUN, "-c", "--no-session"), 2, "--no-session records nothing"),
    "nothing to resume": (("resume",), 12, "there is no unfinished session"),
    "nothing abandoned": (("resume", "--all"), 12, "there is no run to resume"),
    "one and all": (("resume", "x", "--all"), 2, "not both"),
    "approve what": (("approve", "zzz"), 12, "there is no session 'zzz'"),
    "deny what": (("deny", "zzz", "c1_0"), 12, "there is no session 'zzz'"),
    "chat with a pipe": (("chat", "-m", "openai-chat:m"), 2, "a chat needs a terminal"),
    "no setting": (("config", "get", "modle"), 2, "'modle' is not a setting. Did you mean model"),
    "a bad value": (("config", "set", "max_steps", "0"), 2, "max_steps must be a whole number"),
    "no server to remove": (("mcp", "remove", "x"), 12, "there is no server 'x'"),
    "no server to test": (("mcp", "test", "x"), 12, "there is no server 'x'"),
    "a bad pair": (("mcp", "add", "x", "cmd", "-e", "KEY"), 2, "--env takes NAME=VALUE"),
    "a bad provider": (("models", "opnai"), 2, "Did you mean openai"),
    "no shell": (("completion", "tcsh"), 2, "'tcsh' is not one of 'bash'"),
}


@pytest.fixture(autouse=True)
def _files(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    (project / "bad.toml").write_text('allow = ["bash(ls"]')
    (project / "bad.json").write_text('{"type": "nonsense", "mcpServers": 3}')


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_what_to_do(cli: Cli, mistake: str) -> None:
    args, code, told = MISTAKES[mistake]
    done = cli(*args)
    assert (done.exit_code, told in " ".join(done.output.split())) == (code, True), done.output
    assert "Traceback" not in done.output
    assert len(done.output.splitlines()) <= 6


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("model = 'x", "windlass.toml is not valid TOML"),
        ("\nmodle = 'x'", "windlass.toml, line 2: 'modle' is not a setting. Did you mean model"),
        ("max_usd = 'much'", "windlass.toml, line 1: max_usd must be US dollars above zero"),
    ],
)
def test_a_broken_settings_file_stops_every_command_that_needs_it(
    cli: Cli, project: Path, text: str, told: str
) -> None:
    (project / "windlass.toml").write_text(text)
    for command in (["run", "go"], ["tools"], ["config", "show"], ["models"], ["resume"]):
        done = cli(*command)
        assert (done.exit_code, told in " ".join(done.output.split())) == (2, True), done.output
        assert "Traceback" not in done.output


def test_a_money_limit_needs_a_known_price(cli: Cli) -> None:
    """P6."""
    done = cli(*RUN, "--max-usd", "1")
    assert done.exit_code == 2
    assert "the price of openai-chat:m is not known" in done.output


def test_a_journal_on_a_disk_that_is_full(cli: Cli) -> None:
    """Nothing was asked of the model, since nothing could be written down."""
    done = cli(*RUN, "--journal", "/dev/full")
    assert (done.exit_code in (2, 10), "Traceback" in done.output) == (True, False), done.output


def test_a_journal_on_a_disk_that_cannot_be_written(cli: Cli) -> None:
    """`/proc` takes no new files, whoever asks."""
    done = cli(*RUN, "--journal", "/proc/windlass/j.db")
    assert (done.exit_code, "Traceback" in done.output) == (10, False), done.output


def test_a_journal_where_a_file_is_in_the_way(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "file").write_text("x")
    monkeypatch.setenv("WINDLASS_JOURNAL", "file/deep/j.db")
    done = cli(*RUN)
    assert (done.exit_code, "Name another file with WINDLASS_JOURNAL" in done.output) == (10, True)


def test_a_journal_that_is_none(cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "file").write_text("this is no journal at all, but long enough to be looked at" * 20)
    monkeypatch.setenv("WINDLASS_JOURNAL", "file")
    done = cli(*RUN)
    assert (done.exit_code, "Traceback" in done.output) == (2, False), done.output


def test_standard_input_that_is_no_text(cli: Cli) -> None:
    done = cli("run", "-m", "openai-chat:m", "-", stdin=b"\xff\xfe")
    assert (done.exit_code, "Traceback" in done.output) == (2, False), done.output


@pytest.mark.slow
def test_a_server_that_does_not_answer_is_told_at_the_end(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S2: who it was, and what to look at."""
    monkeypatch.setattr("windlass.runtime.recorder.RealClock.sleep", _at_once)
    done = cli(*RUN)
    assert done.exit_code == 1
    assert "127.0.0.1:9 refuses connections" in done.output


async def _at_once(_clock: object, _seconds: float) -> None:
    """Nobody waits for a retry."""
