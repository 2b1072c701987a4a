"""Shared budgets in an SQLite file: the share of each run, and the sum of all shares.

Invariant: both change in one transaction, and drawing on a budget reads two rows, no matter how
many runs there were before.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from windlass.core.decide.reserving import budget_window
from windlass.core.limits import Amount, Budget
from windlass.journals.record_rules import BudgetSum, ShareChange, is_in_tree
from windlass.journals.sqlite.anchors import AnchorBook, PoolRow
from windlass.sqlite_file import SqliteConnection


def promised_amount(connection: SqliteConnection, budget: Budget, window: str) -> Amount:
    """Return the sum of all shares in a window."""
    pool = _find_pool(connection, budget, window)
    promised = BudgetSum() if pool is None else _sum_from_row(pool[2:])
    return promised.as_amount(budget)


def reserved_amount(connection: SqliteConnection, budget: Budget, window: str, tree: str) -> Amount:
    """Return what runs outside of a tree of sessions hold in reserve in a window."""
    rows = connection.execute(
        "SELECT session, held_usd, held_tokens FROM shares WHERE budget = ? AND period = ? "
        "AND (held_usd <> '0' OR held_tokens <> 0)",
        (budget.name, window),
    )
    held = BudgetSum()
    for session, *amounts in rows:
        if not is_in_tree(session, tree):
            held = held.add(_sum_from_row(amounts))
    return held.as_amount(budget)


def forget_shares(connection: SqliteConnection, session: str) -> None:
    """Delete the shares of a session, so that a new session of that name has none.

    The sums of the budgets stay as they are: what was spent stays spent.
    """
    connection.execute("DELETE FROM shares WHERE session = ?", (session,))


def change_share(
    connection: SqliteConnection, change: ShareChange, at: float, book: AnchorBook | None = None
) -> Amount:
    """Change the share of a run, in the transaction of the writer; returns the share."""
    budget = change.budget
    key = (change.session, change.run, budget.name)
    row = connection.execute(
        "SELECT period, usd, tokens, held_usd, held_tokens FROM shares "
        "WHERE session = ? AND run = ? AND budget = ?",
        key,
    ).fetchone()
    if row is None:
        window = budget_window(budget, at)
        before = held_before = BudgetSum()
    else:
        window = row[0]
        before = _sum_from_row(row[1:3])
        held_before = _sum_from_row(row[3:])
    pool = _find_pool(connection, budget, window)
    promised = BudgetSum() if pool is None else _sum_from_row(pool[2:])
    share = change.find_share(promised, before)
    # A run that got nothing is not tied to this window: the next one may have something for it.
    held = change.find_held(share)
    if share != before or held != held_before:
        connection.execute(
            "INSERT OR REPLACE INTO shares VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*key, window, *_row_from_sum(share), *_row_from_sum(held)),
        )
    if share != before:
        changed = (budget.name, window, *_row_from_sum(promised.replace_share(share, before)))
        connection.execute("INSERT OR REPLACE INTO pools VALUES (?, ?, ?, ?)", changed)
        if book is not None:
            book.change_pool(connection, pool, changed)
    return share.as_amount(budget)


def _find_pool(connection: SqliteConnection, budget: Budget, window: str) -> PoolRow | None:
    query = "SELECT budget, period, usd, tokens FROM pools WHERE budget = ? AND period = ?"
    row = connection.execute(query, (budget.name, window)).fetchone()
    return None if row is None else (row[0], row[1], row[2], row[3])


def _sum_from_row(row: Sequence[Any]) -> BudgetSum:
    return BudgetSum(Decimal(row[0]), row[1])


def _row_from_sum(amount: BudgetSum) -> tuple[str, int]:
    # Money is stored as text, because SQLite's numbers are not exact.
    # Nothing is always the same text: an index leaves it out.
    return str(amount.usd) if amount.usd else "0", amount.tokens
