"""Shared budgets in a SQLite file: the share of each run, and what all of them come to.

The law: both are changed in one transaction, and a draw reads two rows, however many runs there
were before it.
"""

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from windlass.core.decide.reserving import window
from windlass.core.limits import Amount, Budget
from windlass.journals.budget_math import Sum, drawn, settled
from windlass.journals.sqlite.file import File


class Run(NamedTuple):
    """Whose share it is."""

    session: str
    number: int


def draw(file: File, budget: Budget, run: Run, wanted: Amount, at: float) -> Amount:
    """Raise the share of a run, as far as the budget allows."""
    return _change(file, budget, run, lambda whole, share: drawn(budget, whole, share, wanted), at)


def settle(file: File, budget: Budget, run: Run, spent: Amount, at: float) -> None:
    """Make the share of a run what it has spent in all."""
    _change(file, budget, run, lambda _, share: settled(budget, share, spent), at)


def spent(file: File, budget: Budget, at: float) -> Amount:
    """What all shares of the present window come to."""
    return _promised(file, budget, window(budget, at)).of(budget)


def forget(file: File, session: str) -> None:
    """What was spent stays spent; but another session of this name starts anew."""
    file.execute("DELETE FROM shares WHERE session = ?", (session,))


def _change(
    file: File, budget: Budget, run: Run, after: Callable[[Sum, Sum], Sum], at: float
) -> Amount:
    mine = (*run, budget.name)
    row = file.execute(
        "SELECT period, usd, tokens FROM shares WHERE session = ? AND run = ? AND budget = ?", mine
    ).fetchone()
    period, before = (row[0], _sum(row[1:])) if row else (window(budget, at), Sum())
    promised = _promised(file, budget, period)
    share = after(promised, before)
    # A run that got nothing has no share yet: the next window may have something for it.
    if share != before:
        file.execute(
            "INSERT OR REPLACE INTO shares VALUES (?, ?, ?, ?, ?, ?)",
            (*mine, period, *_row(share)),
        )
        file.execute(
            "INSERT OR REPLACE INTO pools VALUES (?, ?, ?, ?)",
            (budget.name, period, *_row(promised.plus(share, before))),
        )
    return share.of(budget)


def _promised(file: File, budget: Budget, period: str) -> Sum:
    place = (budget.name, period)
    found = "SELECT usd, tokens FROM pools WHERE budget = ? AND period = ?"
    row = file.execute(found, place).fetchone()
    return _sum(row) if row else Sum()


def _sum(row: Sequence[Any]) -> Sum:
    return Sum(Decimal(row[0]), row[1])


def _row(amount: Sum) -> tuple[str, int]:
    return str(amount.usd), amount.tokens
