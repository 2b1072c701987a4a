"""Checks all rules on a played session: what must be true whatever happened in it."""

from dataclasses import replace
from decimal import Decimal

from proof.simulate.plan_control import ControlPlan
from proof.simulate.play import PlayedSession, play_plan
from proof.simulate.rules.broken import RuleBroken, require
from proof.simulate.rules.effects import check_effects, is_code
from proof.simulate.rules.mail import check_mail
from proof.simulate.rules.money import check_money, check_shared_budget
from proof.simulate.rules.parking import check_parking
from proof.simulate.rules.permissions import check_permissions
from proof.simulate.rules.projecting import check_projection
from proof.simulate.rules.records import check_records
from proof.simulate.rules.undoing import check_undoing
from proof.simulate.rules.waiting import check_waiting
from proof.simulate.rules.watching import check_watching
from windlass.core.events import CallFinished, CallStarted, RunEnded, RunStarted
from windlass.core.fold.run import fold
from windlass.core.state import State

__all__ = ["RuleBroken", "check_rules"]


def check_rules(played: PlayedSession) -> None:
    """Raise RuleBroken unless all rules hold for the session and for those beside it."""
    for session in (played, *played.beside):
        _check_session(session)
    check_shared_budget(played)


def _check_session(played: PlayedSession) -> None:
    problems = played.outside.problems
    require(not problems, "; ".join(problems[:3]))
    state = played.state
    check_records(played, state)
    check_watching(played)
    check_projection(played)
    check_effects(played)
    check_permissions(played)
    check_money(played, state)
    check_waiting(played)
    check_mail(played)
    check_parking(played)
    check_undoing(played)
    _check_helpers(played)
    _check_rate_limit(played)
    _check_against_twin(played, state)


def _check_rate_limit(played: PlayedSession) -> None:
    """F1: each process may be refused once, before it has heard of the limit; a storm is more."""
    limit = played.outside.provider_limit
    if limit is not None:
        processes = max(1, len(played.drives))
        require(
            limit.refused <= processes, f"F1: {limit.refused} refusals in {processes} processes"
        )


def _check_helpers(played: PlayedSession) -> None:
    """M1, C6, S12: a sub-agent has one session, one end, and its whole cost is on its call."""
    keys = {fact.call_id: fact.key for fact in played.facts if isinstance(fact, CallStarted)}
    finished = {
        keys[fact.call_id]: fact
        for fact in played.facts
        if isinstance(fact, CallFinished) and fact.call_id in keys
    }
    for session, facts in played.inner.items():
        start = facts[0]
        ends = [fact for fact in facts if isinstance(fact, RunEnded)]
        require(isinstance(start, RunStarted) and start.parent == session, f"M1: {start}")
        # Code that was interrupted before it did anything may be run again, from its beginning.
        starts = [fact for fact in facts if isinstance(fact, RunStarted)]
        once = len(starts) == 1 or is_code(start)
        require(once, f"M1: {session} was worked on again after its end")
        require(len(ends) <= len(starts), f"M1: {session} has {len(ends)} ends")
        # A process that was stopped has stopped its helpers. One that died could not.
        left = played.has_crashed or played.was_let_go
        require(ends or left, f"C6: {session} is left open")
        end = finished.get(session)
        if end is not None:
            require(ends, f"M1: {session} is finished for its caller, but still open")
            state = fold(session, facts)
            paid = sum((charge.usd or Decimal(0) for charge in end.charges), Decimal(0))
            owed = state.ledger.known_usd
            require(paid == owed, f"M1: {session} cost {owed}, but {paid} is recorded")
            purposes = {charge.purpose for charge in end.charges}
            require(purposes <= {"subagent"}, f"S12: {purposes}")


def _check_against_twin(played: PlayedSession, state: State) -> None:
    """J4, D2, D5: crashes, releases and pauses leave no trace in the transcript.

    Unless interrupted writes cannot be reconciled.
    """
    plan = played.plan
    if not (played.has_crashed or played.was_let_go) or not plan.reconciles or plan.depends_on_time:
        return
    if plan.more.coded:
        return  # Nobody can find out what code did itself.
    asked = (call for call in plan.calls.values() if call.judgement in ("ask", "ask_other"))
    approver_breaks = any(call.attention in ("raise", "nonsense") for call in asked)
    if plan.more.provider_window is not None or (plan.more.attended and approver_breaks):
        return  # The outcome depends on which process was there at the time.
    answers = plan.control.answers_by_mail
    harmless = replace(plan.more, doses=0)
    control = ControlPlan(answers_by_mail=answers)
    undisturbed = replace(plan, crashes=(), control=control, more=harmless)
    twin = play_plan(undisturbed).state
    require(
        twin.transcript == state.transcript,
        "J4: the transcript differs from that of the same session without crashes",
    )
