"""One exit code for each class of outcome, and every one of them in the table."""

import re
from pathlib import Path
from typing import get_args

import pytest

from windlass.cli import exit_codes as exits
from windlass.core.errors import (
    ConfigError,
    JournalCorrupt,
    JournalFailed,
    NothingToDo,
    RunUnfinished,
    SessionBusy,
    SetupDrifted,
    WindlassError,
)
from windlass.core.events import Outcome


def test_every_outcome_has_a_code() -> None:
    """L4."""
    assert set(exits.OUTCOME_CODES) == set(get_args(Outcome))


def test_the_table_says_every_code_once() -> None:
    codes = {
        value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)
    }
    said = [int(found) for found in re.findall(r"^ *(\d+) ", exits.EXIT_CODE_TABLE, re.MULTILINE)]
    assert said == sorted(set(said))
    assert set(said) == codes


def test_the_page_has_every_code() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+(?:, \d+)*) \|", page, re.MULTILINE)
    told = {int(code) for row in rows for code in row.split(", ")}
    codes = {value for value in vars(exits).values() if type(value) is int}
    assert told == codes


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 2),
        (SetupDrifted(("x",)), 2),
        (JournalFailed("x"), 10),
        (JournalCorrupt("x"), 10),
        (SessionBusy("x"), 11),
        (RunUnfinished("x"), 11),
        (NothingToDo("x"), 12),
        (WindlassError("x"), 1),
        (RuntimeError("x"), 1),
    ],
)
def test_each_class_of_error_has_a_code(error: Exception, code: int) -> None:
    assert exits.exit_code_for(error) == code
