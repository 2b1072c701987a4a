"""The arithmetic of a budget that many runs share.

Each run has a share of the budget: the total that it may spend. A store keeps the shares and their
sum, and changes both in one transaction.

Invariant: the shares of one window never add up to more than the budget, as long as each run spends
no more than its share.
"""

from decimal import Decimal
from typing import NamedTuple

from windlass.core.limits import Amount, Budget
from windlass.core.messages import EXACT_MATH

ZERO_USD = Decimal(0)


class BudgetSum(NamedTuple):
    """An amount of money and tokens. Unlike an `Amount`, neither of the two can be None."""

    usd: Decimal = ZERO_USD
    tokens: int = 0

    def replace_share(self, after: "BudgetSum", before: "BudgetSum") -> "BudgetSum":
        """Return this sum after one of the shares in it has changed."""
        usd = EXACT_MATH.add(self.usd, EXACT_MATH.subtract(after.usd, before.usd))
        return BudgetSum(usd, self.tokens + after.tokens - before.tokens)

    def as_amount(self, budget: Budget) -> Amount:
        """Return the sum without what the budget does not limit."""
        usd = None if budget.usd is None else self.usd
        tokens = None if budget.tokens is None else self.tokens
        return Amount(usd, tokens)


class ShareChange(NamedTuple):
    """A change of the share that a run has in a budget."""

    budget: Budget
    session: str
    run: int
    amount: Amount
    is_spent: bool = False
    """Whether the amount was spent in all; otherwise it is the total that the run wants."""

    def find_share(self, promised: BudgetSum, share: BudgetSum) -> BudgetSum:
        """Return the new share of the run, from the sum of all shares and its own before."""
        if self.is_spent:
            return self._settle(share)
        return self._draw(promised, share)

    def _draw(self, promised: BudgetSum, share: BudgetSum) -> BudgetSum:
        """Raise the share to the total that the run wants, or as far as the budget allows.

        `promised` is the sum of all shares, this one included. A share never shrinks here.
        """
        budget, wanted = self.budget, self.amount
        usd, tokens = share
        if budget.usd is not None and wanted.usd is not None:
            unpromised = max(EXACT_MATH.subtract(budget.usd, promised.usd), ZERO_USD)
            usd = max(usd, min(wanted.usd, EXACT_MATH.add(usd, unpromised)))
        if budget.tokens is not None and wanted.tokens is not None:
            unpromised = max(budget.tokens - promised.tokens, 0)
            tokens = max(tokens, min(wanted.tokens, tokens + unpromised))
        return BudgetSum(usd, tokens)

    def _settle(self, share: BudgetSum) -> BudgetSum:
        """Set the share to the total that was spent, even if that is more than it was."""
        budget, spent = self.budget, self.amount
        usd, tokens = share
        if budget.usd is not None and spent.usd is not None:
            usd = max(spent.usd, ZERO_USD)
        if budget.tokens is not None and spent.tokens is not None:
            tokens = max(spent.tokens, 0)
        return BudgetSum(usd, tokens)
