"""Shared budgets in a SQLite file: the share of each run, and what all of them come to.

The law: both are changed in one transaction, and a draw reads two rows, however many runs there
were before it.
"""

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from windlass.core.decide.reserving import budget_window
from windlass.core.limits import Amount, Budget
from windlass.journals.budget_math import BudgetSum, draw_share, settle_share
from windlass.journals.sqlite.file import SqliteConnection


class ShareOwner(NamedTuple):
    """Whose share it is."""

    session: str
    number: int


def draw_budget(
    file: SqliteConnection, budget: Budget, run: ShareOwner, wanted: Amount, at: float
) -> Amount:
    """Raise the share of a run, as far as the budget allows."""
    return _change_share(
        file, budget, run, lambda whole, share: draw_share(budget, whole, share, wanted), at
    )


def settle_budget(
    file: SqliteConnection, budget: Budget, run: ShareOwner, spent: Amount, at: float
) -> None:
    """Make the share of a run what it has spent in all."""
    _change_share(file, budget, run, lambda _, share: settle_share(budget, share, spent), at)


def promised_amount(file: SqliteConnection, budget: Budget, at: float) -> Amount:
    """What all shares of the present window come to."""
    return _promised_sum(file, budget, budget_window(budget, at)).as_amount(budget)


def forget_shares(file: SqliteConnection, session: str) -> None:
    """What was spent stays spent; but another session of this name starts anew."""
    file.execute("DELETE FROM shares WHERE session = ?", (session,))


def _change_share(
    file: SqliteConnection,
    budget: Budget,
    run: ShareOwner,
    after: Callable[[BudgetSum, BudgetSum], BudgetSum],
    at: float,
) -> Amount:
    mine = (*run, budget.name)
    row = file.execute(
        "SELECT period, usd, tokens FROM shares WHERE session = ? AND run = ? AND budget = ?", mine
    ).fetchone()
    period, before = (
        (row[0], _sum_from_row(row[1:])) if row else (budget_window(budget, at), BudgetSum())
    )
    promised = _promised_sum(file, budget, period)
    share = after(promised, before)
    # A run that got nothing has no share yet: the next window may have something for it.
    if share != before:
        file.execute(
            "INSERT OR REPLACE INTO shares VALUES (?, ?, ?, ?, ?, ?)",
            (*mine, period, *_row_from_sum(share)),
        )
        file.execute(
            "INSERT OR REPLACE INTO pools VALUES (?, ?, ?, ?)",
            (budget.name, period, *_row_from_sum(promised.replace_share(share, before))),
        )
    return share.as_amount(budget)


def _promised_sum(file: SqliteConnection, budget: Budget, period: str) -> BudgetSum:
    place = (budget.name, period)
    found = "SELECT usd, tokens FROM pools WHERE budget = ? AND period = ?"
    row = file.execute(found, place).fetchone()
    return _sum_from_row(row) if row else BudgetSum()


def _sum_from_row(row: Sequence[Any]) -> BudgetSum:
    return BudgetSum(Decimal(row[0]), row[1])


def _row_from_sum(amount: BudgetSum) -> tuple[str, int]:
    return str(amount.usd), amount.tokens
