"""Which calls of a step may run side by side."""

from collections.abc import Iterable

from windlass.core.messages import ToolSpec
from windlass.core.setup import Setup
from windlass.core.state import CallState

PlannedCall = tuple[CallState, ToolSpec]


def next_wave(calls: Iterable[CallState], setup: Setup) -> list[PlannedCall]:
    """The next calls that may run together, in the model's order.

    Reads run together; a write only with calls that name other resources than its own.
    """
    wave: list[PlannedCall] = []
    for call in calls:
        # A tool that is gone since its call was cleared counts as a write; the toolbox says so.
        spec = setup.find_tool(call.call.name) or ToolSpec(call.call.name, "", {})
        if not all(_can_run_together((call, spec), other) for other in wave):
            break
        wave.append((call, spec))
    return wave


def _can_run_together(one: PlannedCall, other: PlannedCall) -> bool:
    if one[1].effect == other[1].effect == "read":
        return True
    mine, theirs = one[0].resource, other[0].resource
    return mine is not None and theirs is not None and mine != theirs
