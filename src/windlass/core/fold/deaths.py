"""What the deaths of drivers say about a run: who is a suspect, and whether it leads nowhere.

A driver has died if another one takes its run over although it neither released the run nor left it
to wait for a person. Deaths are kept as the numbers of the facts by which those drivers opened the
run, so that a later fact can take one of them back.
"""

from msgspec.structs import replace

from windlass.core.control_facts import SessionProgress
from windlass.core.fold.phases import is_repeatable
from windlass.core.setup import Setup
from windlass.core.state import CallState, Progress, RunState, State


def blame_call(call: CallState, setup: Setup | None, run: RunState) -> CallState:
    """Return a call as the next driver sees it: a suspect if the last driver died while it ran."""
    if run.is_released or call.phase != "started":
        return call
    spec = setup.find_tool(call.call.name) if setup else None
    if spec is not None and spec.isolated:
        return call
    return replace(call, died_with=(*call.died_with, run.opening_seq))


def pardon_call(call: CallState) -> CallState:
    """Return a call that a person lets run one more time: it stays a suspect, and runs alone."""
    if not call.died_with:
        return call
    return replace(call, died_with=call.died_with[-1:])


def measure_progress(state: State) -> Progress:
    """Return how far a session has come."""
    closed = sum(call.phase == "closed" for call in state.step_calls)
    return Progress(state.steps, len(state.transcript), closed)


def find_fruitless(
    state: State, run: RunState, below: tuple[SessionProgress, ...] | None
) -> tuple[int, ...]:
    """Return the drivers in a row that died without progress, when the run is taken over.

    `below` says how far the sessions have come that work for the run; None if it is not known.
    """
    if below is not None and below != run.below:
        return ()
    if measure_progress(state) != run.opened_at:
        return ()
    if run.is_released or state.is_waiting or _waits_for_turn(state):
        return run.fruitless
    return (*run.fruitless, run.opening_seq)


def _waits_for_turn(state: State) -> bool:
    """Whether a suspect of the open step has to wait until no other suspect runs."""
    return any(
        call.died_with
        and (
            call.phase == "cleared"
            or (call.phase == "interrupted" and is_repeatable(call, state.setup))
        )
        for call in state.step_calls
    )
