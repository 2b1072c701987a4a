"""Rules for money: what the provider billed, against the limits and the recorded charges."""

import asyncio
from collections.abc import Iterator
from decimal import Decimal
from functools import reduce

from proof.simulate.agents import POOL
from proof.simulate.play import PlayedSession
from proof.simulate.rules.broken import require
from windlass.core.decide.reserving import own_spending
from windlass.core.events import AttemptStarted, ContextCompacted, RunResumed, StepProposed
from windlass.core.fold.run import fold
from windlass.core.limits import Budget
from windlass.core.messages import Charge, Ledger
from windlass.core.state import State

ZERO = Decimal(0)


def check_money(played: PlayedSession, state: State) -> None:
    _check_limits(played)
    _check_booked(played, state)
    _check_purposes(played, state)
    _check_totals(played, state)


def billed_usd(played: PlayedSession, run: int | None = None) -> Decimal:
    """Return what the provider billed for a run, or for all runs, including sub-agents."""
    requests = played.outside.billed_requests
    return sum((request.usd for request in requests if run in (None, request.run)), ZERO)


def _check_limits(played: PlayedSession) -> None:
    """B1, B2: with truthful usage, no run and no session costs more than its limit."""
    plan = played.plan
    steps = sum(isinstance(fact, StepProposed) for fact in played.facts)
    cap = plan.more.session_steps
    require(cap is None or steps <= cap, f"B1: {steps} replies, the session allows {cap}")
    if not plan.usage_reported:
        return
    for run in range(1, plan.runs + 1):
        spent = billed_usd(played, run)
        limit = plan.usd_max
        require(limit is None or spent <= limit, f"B2: run {run} cost {spent}, of {limit}")
    spent = billed_usd(played)
    limit = plan.more.session_usd
    require(limit is None or spent <= limit, f"B2: the session cost {spent}, of {limit}")


def _check_booked(played: PlayedSession, state: State) -> None:
    """B3, S12: everything that was billed is recorded."""
    if not played.plan.usage_reported:
        return
    helpers = [fold(key, facts) for key, facts in played.inner.items()]
    # If the process died, the charges of its open helpers are only in their own sessions.
    unreported = sum((helper.ledger.known_usd for helper in helpers if helper.is_active), ZERO)
    recorded = state.ledger.known_usd + unreported
    billed = billed_usd(played)
    require(recorded >= billed, f"B2: {billed} billed, {recorded} recorded")


def _check_totals(played: PlayedSession, state: State) -> None:
    """S12, X2: totals are the sums of the charges."""
    charges = list[Charge]()
    for fact in played.facts:
        charge = getattr(fact, "charge", None)
        if charge is not None:
            charges.append(charge)
        charges += getattr(fact, "charges", ())
    resumed = any(isinstance(fact, RunResumed) for fact in played.facts)
    ledger = reduce(Ledger.add, charges, Ledger())
    require(resumed or ledger == state.ledger, "S12: the totals are not the sums of the charges")
    if resumed or played.plan.troubles or not played.plan.usage_reported:
        return
    whole = (request for request in played.outside.billed_requests if request.whole)
    reported = sum(request.usage.total for request in whole)
    usage = state.ledger.usage
    if usage is not None and not usage.estimated:
        require(usage.total == reported, f"S12: {usage.total} counted, {reported} reported")


def _check_purposes(played: PlayedSession, state: State) -> None:
    """S12: each charge has the purpose of its request."""
    for fact in played.facts:
        if isinstance(fact, ContextCompacted | StepProposed) and fact.charge is not None:
            wanted = "compaction" if isinstance(fact, ContextCompacted) else "main"
            require(fact.charge.purpose == wanted, f"S12: {fact.charge}")
    requested = {fact.purpose for fact in played.facts if isinstance(fact, AttemptStarted)}
    charged = {charge.purpose for charge in state.ledger.charges if charge.purpose != "subagent"}
    require(charged <= requested, f"S12: charges for {charged}, requests for {requested}")


def check_shared_budget(played: PlayedSession) -> None:
    """B1, B2, B3: sessions side by side never spend more than their shared budget has.

    The budget counts what is on record of them. That is what was billed, unless a request was cut
    short by a cancel, a release or a fault.
    """
    limit = played.plan.more.budget_usd
    sessions = (played, *played.beside)
    if limit is None or not all(one.plan.usage_reported for one in sessions):
        return
    bill = sum(map(billed_usd, sessions), ZERO)
    require(bill <= limit, f"B2: {bill} billed, the budget was {limit}")
    known = asyncio.run(played.store.read_spending(Budget(POOL, limit))).usd or ZERO
    require(known >= bill, f"B2: {bill} billed, the budget counts {known}")
    # What a process that died held is settled when its session is next opened.
    if not any(one.has_crashed for one in sessions):
        recorded = sum(map(_recorded_usd, sessions), ZERO)
        require(known == recorded, f"B3: {recorded} recorded, the budget counts {known}")
        if not any(map(_has_estimates, sessions)):
            require(known == bill, f"B3: {bill} billed, the budget counts {known}")


def _ledgers(played: PlayedSession) -> Iterator[Ledger]:
    """Yield what each session spent itself; sub-agents draw on a shared budget themselves."""
    for state in (played.state, *(fold(key, facts) for key, facts in played.inner.items())):
        yield own_spending(state.ledger)


def _recorded_usd(played: PlayedSession) -> Decimal:
    return sum((ledger.known_usd for ledger in _ledgers(played)), ZERO)


def _has_estimates(played: PlayedSession) -> bool:
    """Whether a request was cut short: it counts as the most that it can have cost, by design."""
    charges = (charge for ledger in _ledgers(played) for charge in ledger.charges)
    return any(charge.usage is None or charge.usage.estimated for charge in charges)
