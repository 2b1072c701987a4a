"""Rules for runs that wait for a shared budget: nothing is spent or worked meanwhile."""

from collections.abc import Sequence

from proof.simulate.play import PlayedSession
from proof.simulate.rules.broken import require
from windlass.core.events import (
    AttemptStarted,
    BudgetAwaited,
    BudgetWaitEnded,
    Fact,
    RunEnded,
    RunResumed,
    RunStarted,
)
from windlass.core.fold.run import apply_fact
from windlass.core.state import State

WAIT_OVER = (BudgetWaitEnded, RunResumed, RunEnded)


def check_waiting(played: PlayedSession) -> None:
    """L4, B1, B2: a wait is on record, costs nothing, ends, and is within its limit."""
    for session, facts in ((played.plan.session, played.facts), *played.inner.items()):
        _check_session(session, facts)


def _check_session(session: str, facts: Sequence[Fact]) -> None:
    state = State(session)
    waited: BudgetAwaited | None = None
    for fact in facts:
        before = state.run.elapsed_s if state.run else 0.0
        state = apply_fact(state, fact)
        if waited is not None and not isinstance(fact, RunStarted):
            worked = state.run.elapsed_s if state.run else 0.0
            require(worked == before, f"L4: {worked - before} s of a wait count as work")
            require(not isinstance(fact, AttemptStarted), "B2: a request was made in a wait")
        if isinstance(fact, BudgetAwaited):
            waited = fact
            require(state.awaits_budget or state.is_paused, "L4: a wait that no list shows")
            limit_s = state.setup.rules.budget_wait_s if state.setup else 0.0
            since = state.run.budget_wait_since if state.run else None
            late_s = fact.due_at - (since or 0.0) - limit_s
            require(late_s <= 1.0, f"L4: a wait ends {late_s} s behind its limit")
        elif isinstance(fact, WAIT_OVER):
            waited = None
    require(waited is None or state.is_active, "L4: a run waits that has ended")
