"""The reasons not to ask the model again, and how a run then ends."""

from typing import NamedTuple

from windlass.core.decide.retrying import choose_model
from windlass.core.events import Outcome
from windlass.core.faults import Fault
from windlass.core.setup import Setup
from windlass.core.state import RunState, State


class RunEnding(NamedTuple):
    """How a run ends that goes no further."""

    outcome: Outcome
    reason: str
    fault: Fault | None = None


def check_time_limits(state: State, setup: Setup, run: RunState) -> tuple[Outcome, str] | None:
    """The limit of time that has been reached."""
    seconds, session = setup.limits.seconds, setup.session_limits.seconds
    if seconds is not None and run.elapsed_s >= seconds:
        return "timed_out", f"the limit of {seconds:g} s is reached"
    if session is not None and state.elapsed_s >= session:
        return "timed_out", f"the session's limit of {session:g} s is reached"
    return None


def check_exhausted(state: State, setup: Setup, run: RunState) -> RunEnding | None:
    """What has been tried often enough."""
    rules = setup.rules
    if choose_model(setup, run) is None:
        fault = run.failures[-1].fault
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
    if run.streak.noted_at and run.streak.count >= run.streak.noted_at + rules.same_call_stop:
        reason = f"{run.streak.name} gave the same result {run.streak.count} times"
        return RunEnding("stuck", reason)
    return _check_step_caps(state, setup, run)


def _check_step_caps(state: State, setup: Setup, run: RunState) -> RunEnding | None:
    cap, session_cap = setup.limits.steps, setup.session_limits.steps
    if cap is not None and run.steps >= cap and (run.steps > cap or setup.rules.on_limit == "stop"):
        return RunEnding("max_steps", f"the cap of {cap} steps is reached")
    if session_cap is not None and state.steps >= session_cap:
        return RunEnding("max_steps", f"the session's cap of {session_cap} steps is reached")
    return None


def explain_no_room(run: RunState) -> str:
    """Why no further request can be paid for."""
    dry = [one.budget for one in run.allotments if one.dry]
    if dry:
        return f"the budget {dry[0]} has no room for the next request"
    return "the next request does not fit into what is left"
