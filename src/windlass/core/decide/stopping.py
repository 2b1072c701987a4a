"""The reasons not to ask the model again, and how a run then ends."""

from typing import NamedTuple

from windlass.core.decide.retrying import choose_model, explain_partial
from windlass.core.events import Outcome
from windlass.core.faults import Fault
from windlass.core.setup import Setup
from windlass.core.state import RunState, State


class RunEnding(NamedTuple):
    """How a run ends that goes no further."""

    outcome: Outcome
    reason: str
    fault: Fault | None = None


def check_time_limits(state: State, setup: Setup, run: RunState) -> RunEnding | None:
    """Return the ending if the run or the session has used up its time."""
    run_limit_s = setup.limits.seconds
    session_limit_s = setup.session_limits.seconds
    if run_limit_s is not None and run.elapsed_s >= run_limit_s:
        return RunEnding("timed_out", f"the limit of {run_limit_s:g} s is reached")
    if session_limit_s is not None and state.elapsed_s >= session_limit_s:
        return RunEnding("timed_out", f"the session's limit of {session_limit_s:g} s is reached")
    return None


def check_exhausted(state: State, setup: Setup, run: RunState) -> RunEnding | None:
    """Return the ending if something has been tried often enough."""
    rules = setup.rules
    if run.failures and choose_model(setup, run) is None:
        fault = explain_partial(setup.rules, run)
        return RunEnding("failed", fault.message, fault)
    if run.empties > 1:
        return RunEnding("empty_reply", "the model said nothing, twice")
    if run.misfits > rules.misfits_max:
        fault = Fault("output_misfit", "the replies did not fit the output type")
        return RunEnding("failed", fault.message, fault)
    if run.outages >= rules.outages_max:
        fault = Fault("tools", f"the tools were out of order in {run.outages} steps in a row")
        return RunEnding("failed", fault.message, fault)
    if run.denials >= rules.denials_max:
        return RunEnding("policy_denied", f"{run.denials} replies were denied")
    streak = run.streak
    if streak.noted_at and streak.count >= streak.noted_at + rules.same_call_stop:
        return RunEnding("stuck", f"{streak.name} gave the same result {streak.count} times")
    cap = setup.limits.steps
    session_cap = setup.session_limits.steps
    # With `on_limit="answer"` the model gets one more step, without tools.
    if cap is not None and run.steps >= cap and (run.steps > cap or setup.rules.on_limit == "stop"):
        return RunEnding("max_steps", f"the limit of {cap} steps is reached")
    if session_cap is not None and state.steps >= session_cap:
        return RunEnding("max_steps", f"the session's limit of {session_cap} steps is reached")
    return None


def explain_no_room(run: RunState) -> str:
    """Return why no further request can be paid for."""
    dry = [allotment.budget for allotment in run.allotments if allotment.dry]
    if dry:
        return f"the budget {dry[0]} has no room for the next request"
    return "the next request does not fit into what is left of the limits"
