"""Which calls of a step run next, side by side, and what each of them may spend.

After a driver died, suspects run alone, and a poison call not at all. A suspect is a call that ran
when a driver died. Any of the calls that ran then may have taken the process down, so suspects run
one at a time. If a driver dies again meanwhile, the suspect that ran is parked. Calls that ran
beside it for the first time become suspects.

If the model repeats a call, it gets a note, and some calls do not run. Equal calls are counted with
equal results in a row (`CallStreak`). A call that only reads may be repeated until the run is
stuck. A write has its effect each time, so the note comes one call sooner, and after it the same
write is not executed again.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from windlass.core.decide.reserving import equal_share, remaining_for_run
from windlass.core.fold.calls import call_as_run, same_arguments
from windlass.core.fold.phases import NEXT_ACTION
from windlass.core.limits import Amount
from windlass.core.messages import ToolCall, ToolSpec
from windlass.core.setup import Setup
from windlass.core.state import CallState, RunState, State, StepState, find_call
from windlass.core.tool_search import unwrap_call

REPEAT_NOTE = (
    "You have called this function already, and you have its result above. Do not call it again. "
    "Answer the user now, in a sentence, with that result."
)
"""Tried with models of 1.5 billion weights: asked to try another way, they refuse to answer."""


def needs_repeat_note(setup: Setup, run: RunState) -> bool:
    """Whether the model has made the same call so often that it must get a note."""
    streak = run.streak
    note_at = setup.rules.same_call_note
    if streak.noted_at or streak.count < min(note_at, max(1, note_at - 1)):
        return False
    # The call may be inside of a call of `call_tool`.
    name = unwrap_call(ToolCall("", streak.name, streak.arguments)).name
    spec = next((spec for spec in setup.tools if spec.name == name), None)
    if spec is not None and spec.effect == "write":
        note_at = max(1, note_at - 1)
    return streak.count >= note_at


def repeats_write(state: State, call_id: str, spec: ToolSpec, arguments: dict[str, Any]) -> bool:
    """Whether a call is the write that a note asked the model not to make again."""
    call = find_call(state, call_id)
    run = state.run
    if call is None or run is None or spec.effect != "write" or not run.streak.noted_at:
        return False
    text = msgspec.json.encode(arguments).decode()
    as_run = call_as_run(replace(call, arguments=text))
    streak = run.streak
    return as_run.name == streak.name and same_arguments(as_run.arguments, streak.arguments)


DEATHS_MAX = 2
"""How many drivers may die while a call runs, before it is parked."""
PlannedCall = tuple[CallState, ToolSpec]


def choose_calls(calls: Sequence[PlannedCall]) -> tuple[PlannedCall, ...]:
    """Return the calls of a wave that run next: all that are no suspects, else one suspect."""
    clear = [planned for planned in calls if not planned[0].died_with]
    if clear:
        return tuple(clear)
    suspects = [planned for planned in calls if not is_poison(*planned)]
    return tuple(suspects[:1])


def is_poison(call: CallState, spec: ToolSpec) -> bool:
    """Whether a call took its process down, and must not start again by itself.

    A write that was interrupted does not start by itself: its tool is asked whether it took effect.
    """
    is_settled_first = call.phase == "interrupted" and spec.effect == "write"
    return len(call.died_with) >= DEATHS_MAX and not is_settled_first


def explain_poison(call: CallState) -> str:
    """Return why a run is parked, and what can be done about it."""
    return (
        f"parked: {len(call.died_with)} drivers died while {call.call.name} ran (call {call.id}). "
        "Resume the run to let the call run once more, or cancel the run"
    )


class WavePlan(NamedTuple):
    """Calls that may run side by side."""

    calls: tuple[PlannedCall, ...]
    share: Amount
    """What each of them may spend on models of its own."""
    timeout_s: float | None
    """How long each may take, beside the limit of its own tool."""
    poison: CallState | None
    """The next call must not run, because it took its process down."""


def plan_wave(state: State, setup: Setup, run: RunState, step: StepState) -> WavePlan:
    """Plan the next calls of a step whose calls are all judged and answered.

    While the sub-agent of a call waits, no other call begins, as while the run itself asks: a run
    that is on record as waiting does nothing. No call overtakes one that took its process down.
    """
    ready = [call for call in step.calls if NEXT_ACTION[call.phase] in ("run", "wait")]
    wave = next_wave(ready, setup)
    ready_calls = [planned for planned in wave if NEXT_ACTION[planned[0].phase] == "run"]
    calls = () if state.is_waiting else choose_calls(ready_calls)
    poison = None
    for call, spec in ready_calls:
        if call.died_with and is_poison(call, spec):
            poison = call
            break
    remaining = remaining_for_run(state, setup, run)
    if step.hydrates and setup.hydration:
        timeout_s = setup.hydration.seconds
    else:
        timeout_s = None
    return WavePlan(calls, equal_share(remaining, len(wave)), timeout_s, poison)


def share_of_wave(began_from: State, setup: Setup) -> Amount:
    """Return what each call of a running wave may spend, by the limits that hold now.

    `began_from` is the state in which the wave was planned: what was left then is divided.
    """
    if began_from.run is None or began_from.step is None:
        return Amount()
    return plan_wave(began_from, setup, began_from.run, began_from.step).share


def next_wave(calls: Iterable[CallState], setup: Setup) -> list[PlannedCall]:
    """Return the next calls that may run together, in the model's order.

    Reads run together, unless calls must run one after another. A write runs only with calls that
    name other resources than its own.
    """
    wave: list[PlannedCall] = []
    for call in calls:
        if wave and not setup.rules.parallel_tool_calls:
            break
        # A tool may have disappeared since its call was cleared. It counts as a write here, and the
        # toolbox reports to the model that it is gone.
        spec = setup.find_tool(call.call.name) or ToolSpec(call.call.name, "", {})
        planned = (call, spec)
        if wave and not all(_can_run_together(planned, other) for other in wave):
            break
        wave.append(planned)
    return wave


def _can_run_together(planned: PlannedCall, other: PlannedCall) -> bool:
    if planned[1].effect == other[1].effect == "read":
        return True
    resource = planned[0].resource
    other_resource = other[0].resource
    return resource is not None and other_resource is not None and resource != other_resource
