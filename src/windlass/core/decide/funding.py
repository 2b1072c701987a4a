"""Whether the next request can be paid for: by the run, by the session, by the shared budgets."""

from typing import NamedTuple

from windlass.core.decide.reserving import covers, left, own, reserve, wanted
from windlass.core.events import Reservation
from windlass.core.limits import Amount, Budget
from windlass.core.setup import ModelInfo, Setup
from windlass.core.state import Run, State


class Short(NamedTuple):
    """A shared budget must first let the run spend so much in all."""

    budget: Budget
    wanted: Amount


def fund(
    state: State, setup: Setup, run: Run, model: ModelInfo, tokens: int
) -> Reservation | Short | None:
    """What a request of so many tokens may use; None if it cannot be paid for."""
    room = [left(setup.limits, run.ledger), left(setup.session_limits, state.ledger)]
    reserved = reserve(model, tokens, *room)
    if reserved is None or not setup.budgets:
        return reserved
    mine = own(run.ledger)
    for budget in setup.budgets:
        need = wanted(budget, reserved, mine)
        held = next((one for one in run.allotments if one.budget == budget.name), None)
        if held is None or not (held.dry or covers(held.amount, need)):
            return Short(budget, need)
        room.append(left(held.amount, mine))
    return reserve(model, tokens, *room)
