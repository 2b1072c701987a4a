"""`windlass webhook` and `windlass quota`: kept in the journal, for all services on it."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from windlass.cli.quota import quota
from windlass.cli.serve import serve
from windlass.cli.webhook import webhook


@pytest.fixture
def journal(tmp_path: Path) -> str:
    return str(tmp_path / "journal.db")


@pytest.mark.contract("A7")
def test_a_webhook_is_made_listed_and_deleted(journal: str) -> None:
    def call(*words: str) -> str:
        result = CliRunner().invoke(webhook, [*words, "--journal", journal])
        return f"{result.output}{result.exception or ''}"

    made = call("create", "phone", "https://example.com/topic", "--ntfy", "--event", "question")
    assert "shown only now: whsec_" in made
    listed = call("list")
    assert "phone" in listed
    assert "whsec_" not in listed
    assert "already" in call("create", "phone", "https://example.com/")
    assert "valid http" in call("create", "b", "ftp://example.com/")
    assert "NAME:VALUE" in call("create", "b", "https://example.com/", "--header", "x")
    assert "deleted" in call("delete", "phone")
    assert "there is no webhook 'phone'" in call("delete", "phone")
    assert call("list") == "No webhooks.\n"


@pytest.mark.contract("A4")
def test_a_quota_is_set_listed_and_deleted(journal: str) -> None:
    def call(*words: str) -> str:
        result = CliRunner().invoke(quota, [*words, "--journal", journal])
        return f"{result.output}{result.exception or ''}"

    assert "is set" in call("set", "q", "--runs-at-once", "5", "--usd-per-day", "2.50")
    assert "2.50" in call("list")
    assert "is set" in call("set", "q", "--caller", "kim", "--starts-per-min", "3")
    assert "kim" in call("list")
    assert "2.50" not in call("list")
    assert "above zero" in call("set", "q", "--usd-per-day", "-1")
    assert "name of a quota" in call("set", "a b", "--runs-at-once", "1")
    assert "deleted" in call("delete", "q")
    assert "there is no quota 'q'" in call("delete", "q")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["app:agents", "-m", "openai:gpt-5"], "app:agents brings its own"),
        (["app:agents", "--no-drive", "--journal", "memory:"], "cannot see a journal in memory"),
        (["app:agents", "--allow-origin", "foo"], "--allow-origin 'foo' is not an origin"),
        (["app:agents", "--allow-host", "http://x"], "--allow-host 'http://x' is not the name"),
    ],
)
def test_a_service_refuses_options_that_could_not_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], problem: str
) -> None:
    (tmp_path / "app.py").write_text(
        "from windlass import Agent\n"
        "from windlass.testing import ScriptedModel\n"
        "agents = Agent(ScriptedModel([]), name='helper')\n"
    )
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(serve, [*words, "--port", "0"])
    assert problem in f"{result.output}{result.exception or ''}"
