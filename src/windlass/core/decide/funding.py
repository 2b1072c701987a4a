"""Whether the next request can be paid for: by the run, by the session, by the shared budgets."""

from typing import NamedTuple

from windlass.core.decide.reserving import (
    covers_amount,
    own_spending,
    remaining_amount,
    reserve_within,
    total_needed,
)
from windlass.core.events import Reservation
from windlass.core.limits import Amount, Budget
from windlass.core.setup import ModelInfo, Setup
from windlass.core.state import RunState, State


class BudgetDrawNeeded(NamedTuple):
    """A shared budget must first let the run spend so much in all."""

    budget: Budget
    total_wanted: Amount


def reserve_request(
    state: State, setup: Setup, run: RunState, model: ModelInfo, input_tokens: int
) -> Reservation | BudgetDrawNeeded | None:
    """What a request of so many tokens may use; None if it cannot be paid for."""
    room = [
        remaining_amount(setup.limits, run.ledger),
        remaining_amount(setup.session_limits, state.ledger),
    ]
    reserved = reserve_within(model, input_tokens, *room)
    if reserved is None or not setup.budgets:
        return reserved
    mine = own_spending(run.ledger)
    for budget in setup.budgets:
        need = total_needed(budget, reserved, mine)
        held = next((one for one in run.allotments if one.budget == budget.name), None)
        if held is None or not (held.dry or covers_amount(held.amount, need)):
            return BudgetDrawNeeded(budget, need)
        room.append(remaining_amount(held.amount, mine))
    return reserve_within(model, input_tokens, *room)
