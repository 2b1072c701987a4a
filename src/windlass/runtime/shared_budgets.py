"""Giving back to the shared budgets what a run did not need.

It is done when a run has ended, and made good when its session is next opened: what a killed
process held stays counted as spent until then, so that a budget is never overdrawn. What sub-agents
spend is in the ledger of whoever they work for, too, but they draw on the budgets themselves.
"""

from windlass.core.decide.reserving import own_spending, spent_amount
from windlass.core.errors import WindlassError
from windlass.core.state import State
from windlass.logs import get_logger
from windlass.ports import Journal, SharedBudgets

_log = get_logger(__name__)


async def settle_budgets(journal: Journal, state: State) -> None:
    """Tell each budget what the last run of a session has cost in all."""
    run, setup = state.run, state.setup
    if run is None or setup is None or not isinstance(journal, SharedBudgets):
        return
    for budget in setup.budgets:
        try:
            await journal.settle_budget(
                budget, state.session, run.number, spent_amount(own_spending(run.ledger))
            )
        except WindlassError as error:
            _log.warning("the budget %s was not settled: %s", budget.name, error)
