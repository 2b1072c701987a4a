"""`windlass doctor`: what there is, what is missing, what is wrong; and no key is ever shown."""

from pathlib import Path

import pytest

from cli_types import Cli

KEY = "sk-never-to-be-seen-0123456789"

pytestmark = pytest.mark.realtime


def lines(output: str) -> dict[str, tuple[str, str]]:
    """The mark and the words of each finding, by its name."""
    found = (line.split(maxsplit=2) for line in output.splitlines() if line[:1] != " ")
    return {parts[1]: (parts[0], " ".join(parts[2:])) for parts in found if len(parts) > 1}


def test_it_says_what_there_is_and_shows_no_key(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """T13, P3: the sandbox in force is named; a key is named and never shown."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    done = cli("doctor")
    assert done.exit_code == 0, done.output
    found = lines(done.output)
    assert "bubblewrap" in found["sandbox"][1] or "process" in found["sandbox"][1]
    assert found["openai"] == ("✓", "OPENAI_API_KEY is set")
    assert found["anthropic"] == ("·", "ANTHROPIC_API_KEY is not set")
    assert found["journal"][0] == "✓"
    assert KEY not in done.output


def test_what_is_wrong_is_marked_and_fails(cli: Cli, project: Path) -> None:
    (project / "windlass.toml").write_text("modle = 1")
    (project / ".mcp.json").write_text("{")
    done = cli("doctor")
    found = lines(done.output)
    assert done.exit_code == 1
    assert (found["settings"][0], found["mcp"][0]) == ("✗", "✗")
    assert "line 1" in done.output


def test_a_policy_that_cannot_be_read_is_wrong(cli: Cli, project: Path) -> None:
    (project / "windlass.toml").write_text('policy = "rules.toml"')
    (project / "rules.toml").write_text('allow = ["bash(ls"]')
    done = cli("doctor")
    assert (done.exit_code, lines(done.output)["policy"][0]) == (1, "✗")
