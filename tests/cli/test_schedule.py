"""`windlass schedule`: kept in the journal, for whichever service runs on it."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from windlass.cli.schedule import schedule

pytestmark = pytest.mark.contract("F4")


@pytest.fixture
def journal(tmp_path: Path) -> str:
    return str(tmp_path / "journal.db")


def call(journal: str, *words: str) -> Result:
    return CliRunner().invoke(schedule, [*words, "--journal", journal])


def names(journal: str) -> Sequence[str]:
    return [one["name"] for one in json.loads(call(journal, "list", "--json").stdout)]


def test_a_schedule_is_made_listed_paused_resumed_and_deleted(journal: str) -> None:
    made = call(
        journal, "create", "report", "--cron", "30 8 * * *", "--timezone", "Asia/Tokyo", "Do", "it."
    )
    assert made.exit_code == 0, made.output
    assert "cron 30 8 * * * (Asia/Tokyo)" in made.stdout
    assert "windlass serve" in made.stderr
    listed = call(journal, "list").stdout
    assert listed.splitlines()[0].startswith("SCHEDULE")
    assert "report" in listed
    assert json.loads(call(journal, "list", "--json").stdout)[0]["prompt"] == "Do it."
    assert "paused" in call(journal, "pause", "report", "--reason", "holiday").stdout
    assert "holiday" in call(journal, "list").stdout
    assert "Next: " in call(journal, "resume", "report").stdout
    assert "deleted" in call(journal, "delete", "report").stdout
    assert call(journal, "list").stdout == "No schedules.\n"


def test_intervals_and_single_times_can_be_given(journal: str) -> None:
    assert call(journal, "create", "a", "--every", "15m", "go").exit_code == 0
    once = call(journal, "create", "b", "--at", "2099-01-01T08:00", "go")
    assert "once at 2099-01-01T08:00:00Z" in once.stdout
    assert names(journal) == ["a", "b"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["create", "a", "go"], "one of --cron, --every and --at"),
        (["create", "a", "--every", "1h", "--cron", "* * * * *", "go"], "one of --cron"),
        (["create", "a", "--every", "soon", "go"], "write 90s, 15m"),
        (["create", "a", "--every", "1.5s", "go"], "whole seconds"),
        (["create", "a", "--cron", "nonsense", "go"], "five fields"),
        (["create", "a", "--at", "2001-01-01", "go"], "in the past"),
        (["create", "a", "--every", "1h", "--catch-up", "x", "go"], "--catch-up"),
        (["create", "a b", "--every", "1h", "go"], "name of a schedule"),
    ],
)
def test_mistakes_are_told(journal: str, words: list[str], message: str) -> None:
    result = call(journal, *words)
    assert result.exit_code != 0
    assert message in str(result.exception)


def test_an_unknown_schedule_is_told(journal: str) -> None:
    call(journal, "create", "a", "--every", "1h", "go")
    for word in ("pause", "resume", "delete"):
        result = call(journal, word, "b")
        assert "there is no schedule 'b'" in str(result.exception)
