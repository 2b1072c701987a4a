"""Shared budgets in an SQLite file: the share of each run, and the sum of all shares.

The law: both change in one transaction, and drawing on a budget reads two rows, no matter how many
runs there were before.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from windlass.core.decide.reserving import budget_window
from windlass.core.limits import Amount, Budget
from windlass.journals.budget_math import BudgetSum, ShareChange, draw_share, settle_share
from windlass.sqlite_file import SqliteConnection


class ShareOwner(NamedTuple):
    """The run that has a share."""

    session: str
    run: int


def draw_budget(
    connection: SqliteConnection, budget: Budget, owner: ShareOwner, wanted: Amount, at: float
) -> Amount:
    """Raise the share of a run to `wanted`, or as far as the budget allows; returns the share."""

    def draw(promised: BudgetSum, share: BudgetSum) -> BudgetSum:
        return draw_share(budget, promised, share, wanted)

    return _change_share(connection, budget, owner, draw, at)


def settle_budget(
    connection: SqliteConnection, budget: Budget, owner: ShareOwner, spent: Amount, at: float
) -> None:
    """Set the share of a run to what it has spent in total."""

    def settle(_promised: BudgetSum, share: BudgetSum) -> BudgetSum:
        return settle_share(budget, share, spent)

    _change_share(connection, budget, owner, settle, at)


def promised_amount(connection: SqliteConnection, budget: Budget, at: float) -> Amount:
    """Return the sum of all shares in the window that contains the time `at`."""
    return _promised_sum(connection, budget, budget_window(budget, at)).as_amount(budget)


def forget_shares(connection: SqliteConnection, session: str) -> None:
    """Delete the shares of a session, so that a new session of that name has none.

    The sums of the budgets stay as they are: what was spent stays spent.
    """
    connection.execute("DELETE FROM shares WHERE session = ?", (session,))


def _change_share(
    connection: SqliteConnection,
    budget: Budget,
    owner: ShareOwner,
    change: ShareChange,
    at: float,
) -> Amount:
    key = (*owner, budget.name)
    row = connection.execute(
        "SELECT period, usd, tokens FROM shares WHERE session = ? AND run = ? AND budget = ?", key
    ).fetchone()
    if row is None:
        window = budget_window(budget, at)
        before = BudgetSum()
    else:
        window = row[0]
        before = _sum_from_row(row[1:])
    promised = _promised_sum(connection, budget, window)
    share = change(promised, before)
    # A run that got nothing is not tied to this window: the next one may have something for it.
    if share != before:
        connection.execute(
            "INSERT OR REPLACE INTO shares VALUES (?, ?, ?, ?, ?, ?)",
            (*key, window, *_row_from_sum(share)),
        )
        connection.execute(
            "INSERT OR REPLACE INTO pools VALUES (?, ?, ?, ?)",
            (budget.name, window, *_row_from_sum(promised.replace_share(share, before))),
        )
    return share.as_amount(budget)


def _promised_sum(connection: SqliteConnection, budget: Budget, window: str) -> BudgetSum:
    query = "SELECT usd, tokens FROM pools WHERE budget = ? AND period = ?"
    row = connection.execute(query, (budget.name, window)).fetchone()
    return _sum_from_row(row) if row else BudgetSum()


def _sum_from_row(row: Sequence[Any]) -> BudgetSum:
    return BudgetSum(Decimal(row[0]), row[1])


def _row_from_sum(amount: BudgetSum) -> tuple[str, int]:
    # Money is stored as text, because SQLite's numbers are not exact.
    return str(amount.usd), amount.tokens
