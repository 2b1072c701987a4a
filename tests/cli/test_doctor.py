"""`windlass doctor`: what this machine can do."""

import pytest
from click.testing import CliRunner

from windlass.cli import main

KEY = "sk-canary-0123456789"


@pytest.mark.realtime
def test_it_says_what_there_is_and_shows_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """T13, P3: the sandbox in force is named; a key is named and never shown."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    found = CliRunner().invoke(main, ["doctor"])
    assert found.exit_code == 0, found.output
    lines = dict(line.split(maxsplit=1) for line in found.output.splitlines())
    assert "bubblewrap" in lines["sandbox"] or "process" in lines["sandbox"]
    assert "can be written" in lines["journal"]
    assert lines["openai"] == "OPENAI_API_KEY is set"
    assert lines["anthropic"] == "ANTHROPIC_API_KEY is not set"
    assert KEY not in found.output
