"""The hour, day or month that a moment counts for."""

from datetime import datetime, timedelta, timezone
from typing import Literal

import pytest

from windlass.core.decide.reserving import budget_window
from windlass.core.limits import Budget

Per = Literal["hour", "day", "month"]


def seen_from(hours: int, *moment: int) -> float:
    """A moment by the clock of a place so many hours east of Greenwich."""
    return datetime(*moment, tzinfo=timezone(timedelta(hours=hours))).timestamp()


@pytest.mark.parametrize(
    ("per", "said"),
    [(None, ""), ("hour", "2026-03-01T23"), ("day", "2026-03-01"), ("month", "2026-03")],
)
def test_it_is_told_in_utc(per: Per | None, said: str) -> None:
    budget = Budget("team", tokens=1, per=per)
    assert budget_window(budget, seen_from(0, 2026, 3, 1, 23, 59, 59)) == said
    assert budget_window(budget, seen_from(9, 2026, 3, 2, 8, 0, 0)) == said
    assert budget_window(budget, seen_from(0, 2026, 3, 1, 23, 0, 0) + 0.25) == said


@pytest.mark.parametrize(
    ("per", "first"), [("hour", (5, 7, 1)), ("day", (5, 8, 0)), ("month", (6, 1, 0))]
)
def test_a_new_window_begins_at_its_first_second(per: Per, first: tuple[int, ...]) -> None:
    budget = Budget("team", tokens=1, per=per)
    begin = seen_from(0, 2026, *first, 0, 0)
    assert budget_window(budget, begin) != budget_window(budget, begin - 0.001)
    assert budget_window(budget, begin) == budget_window(budget, begin + 3599)
