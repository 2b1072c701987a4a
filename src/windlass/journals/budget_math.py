"""What a budget that many runs share may give, and what is left of it: the arithmetic alone.

A run has a share of the budget: what it may spend in all. The shares of one window never add up to
more than the budget, as long as each run spends no more than its share. A store keeps the shares
and their sum, and changes both in one transaction.
"""

from decimal import Decimal
from typing import NamedTuple

from windlass.core.limits import Amount, Budget
from windlass.core.messages import EXACT_MATH

ZERO_USD = Decimal(0)


class BudgetSum(NamedTuple):
    """So much money and so many tokens, with nothing left open."""

    usd: Decimal = ZERO_USD
    tokens: int = 0

    def replace_share(self, after: "BudgetSum", before: "BudgetSum") -> "BudgetSum":
        """This sum, once one of the shares in it has changed."""
        usd = EXACT_MATH.add(self.usd, EXACT_MATH.subtract(after.usd, before.usd))
        return BudgetSum(usd, self.tokens + after.tokens - before.tokens)

    def as_amount(self, budget: Budget) -> Amount:
        """As much of it as the budget counts."""
        usd = None if budget.usd is None else self.usd
        return Amount(usd, None if budget.tokens is None else self.tokens)


def draw_share(budget: Budget, promised: BudgetSum, share: BudgetSum, wanted: Amount) -> BudgetSum:
    """The share of a run that wants so much in all, when so much is promised to all runs."""
    usd, tokens = share
    if budget.usd is not None and wanted.usd is not None:
        room = max(EXACT_MATH.subtract(budget.usd, promised.usd), ZERO_USD)
        usd = max(usd, min(wanted.usd, EXACT_MATH.add(usd, room)))
    if budget.tokens is not None and wanted.tokens is not None:
        room = max(budget.tokens - promised.tokens, 0)
        tokens = max(tokens, min(wanted.tokens, tokens + room))
    return BudgetSum(usd, tokens)


def settle_share(budget: Budget, share: BudgetSum, spent: Amount) -> BudgetSum:
    """The share of a run that has spent so much in all: exactly that, even if it was more."""
    usd, tokens = share
    if budget.usd is not None and spent.usd is not None:
        usd = max(spent.usd, ZERO_USD)
    if budget.tokens is not None and spent.tokens is not None:
        tokens = max(spent.tokens, 0)
    return BudgetSum(usd, tokens)
