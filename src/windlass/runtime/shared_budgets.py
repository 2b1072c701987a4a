"""Budgets that many runs share: drawing on them before a request, giving back after the run.

What a run did not need is given back when it has ended, or when its session is next opened: what a
killed process held counts as spent until then, so that a budget is never overdrawn. A sub-agent's
spending is in its caller's ledger too, but the sub-agent draws on the budgets itself.
"""

from windlass.core.decide.reserving import covers_amount, own_spending, spent_amount
from windlass.core.errors import WindlassError
from windlass.core.events import BudgetAllotted
from windlass.core.moves import DrawBudget
from windlass.core.state import State
from windlass.logs import get_logger
from windlass.ports import Journal

_log = get_logger(__name__)


async def draw_on_budget(move: DrawBudget, journal: Journal, state: State) -> BudgetAllotted:
    """Ask a shared budget for what the next request may cost; it may grant less."""
    budget, wanted = move.budget, move.total_wanted
    number = state.run.number if state.run else 0
    amount = await journal.draw_budget(budget, state.session, number, wanted)
    return BudgetAllotted(budget.name, amount, dry=not covers_amount(amount, wanted))


async def settle_budgets(journal: Journal, state: State) -> None:
    """Tell each budget what the last run of a session has cost in all."""
    run = state.run
    if run is None or state.setup is None:
        return
    spent = spent_amount(own_spending(run.ledger))
    for budget in state.setup.budgets:
        try:
            await journal.settle_budget(budget, state.session, run.number, spent)
        except WindlassError as error:
            _log.warning("the budget %s was not settled: %s", budget.name, error)
