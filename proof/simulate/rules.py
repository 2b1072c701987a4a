"""What must be true of every session, whatever happened in it."""

from dataclasses import replace

from proof.simulate.broken import Broken, require
from proof.simulate.play import Played, play
from proof.simulate.rules_of_effects import check_effects
from proof.simulate.rules_of_helpers import check_helpers
from proof.simulate.rules_of_leave import check_leave
from proof.simulate.rules_of_money import check_money, check_pool
from proof.simulate.rules_of_records import check_records
from proof.simulate.rules_of_watching import check_watching
from windlass.core.state import State

__all__ = ["Broken", "check"]


def check(played: Played) -> None:
    """Raise Broken unless all rules hold."""
    for one in (played, *played.beside):
        _check_session(one)
    check_pool(played)


def _check_session(played: Played) -> None:
    noticed = played.outside.noticed
    require(not noticed, "; ".join(noticed[:3]))
    state = played.state
    check_records(played, state)
    check_watching(played)
    check_effects(played)
    check_leave(played)
    check_money(played, state)
    check_helpers(played)
    _same_as_undisturbed(played, state)


def _same_as_undisturbed(played: Played, state: State) -> None:
    """J4: crashes leave no trace in the transcript, if interrupted writes can be looked up."""
    plan = played.plan
    asked = (call for call in plan.calls.values() if call.judgement in ("ask", "ask_other"))
    broken = any(call.attention in ("raise", "nonsense") for call in asked)
    if not played.crashed or not plan.reconciles or plan.timed:
        return
    if plan.more.provider_window is not None or (plan.more.attended and broken):
        return  # What came of it depends on who was there at the time.
    twin = play(replace(plan, crashes=())).state
    require(twin.transcript == state.transcript, "J4: the transcript differs from the calm one")
