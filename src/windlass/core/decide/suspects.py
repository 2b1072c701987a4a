"""Which calls may run after a driver died: suspects run alone, and a poison call not at all.

A suspect is a call that ran when a driver died. Any of the calls that ran then may have taken the
process down, so suspects run one at a time. If a driver dies again meanwhile, the suspect that ran
is parked. Calls that ran beside it for the first time become suspects.
"""

from collections.abc import Sequence

from windlass.core.messages import ToolSpec
from windlass.core.state import CallState

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
