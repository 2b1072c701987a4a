"""What must be true of every session, whatever happened in it."""

from dataclasses import replace

from proof.simulate.broken import RuleBroken, require
from proof.simulate.play import PlayedSession, play_plan
from proof.simulate.rules_of_effects import check_effects
from proof.simulate.rules_of_helpers import check_helpers
from proof.simulate.rules_of_leave import check_permissions
from proof.simulate.rules_of_money import check_money, check_shared_budget
from proof.simulate.rules_of_records import check_records
from proof.simulate.rules_of_watching import check_watching
from windlass.core.state import State

__all__ = ["RuleBroken", "check_rules"]


def check_rules(played: PlayedSession) -> None:
    """Raise Broken unless all rules hold."""
    for one in (played, *played.beside):
        _check_session(one)
    check_shared_budget(played)


def _check_session(played: PlayedSession) -> None:
    noticed = played.outside.problems
    require(not noticed, "; ".join(noticed[:3]))
    state = played.state
    check_records(played, state)
    check_watching(played)
    check_effects(played)
    check_permissions(played)
    check_money(played, state)
    check_helpers(played)
    _check_against_twin(played, state)


def _check_against_twin(played: PlayedSession, state: State) -> None:
    """J4: crashes leave no trace in the transcript, if interrupted writes can be looked up."""
    plan = played.plan
    asked = (call for call in plan.calls.values() if call.judgement in ("ask", "ask_other"))
    broken = any(call.attention in ("raise", "nonsense") for call in asked)
    if not played.has_crashed or not plan.reconciles or plan.depends_on_time:
        return
    if plan.more.provider_window is not None or (plan.more.attended and broken):
        return  # What came of it depends on who was there at the time.
    twin = play_plan(replace(plan, crashes=())).state
    require(twin.transcript == state.transcript, "J4: the transcript differs from the calm one")
