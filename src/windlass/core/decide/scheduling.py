"""Which calls of a step may run side by side."""

from collections.abc import Iterable

from windlass.core.messages import ToolSpec
from windlass.core.setup import Setup
from windlass.core.state import Call

Planned = tuple[Call, ToolSpec]


def next_wave(calls: Iterable[Call], setup: Setup) -> list[Planned]:
    """The next calls that may run together, in the model's order.

    Reads run together; a write only with calls that name other resources than its own.
    """
    wave: list[Planned] = []
    for call in calls:
        # A tool that is gone since its call was cleared counts as a write; the toolbox says so.
        spec = setup.tool(call.call.name) or ToolSpec(call.call.name, "", {})
        if not all(_side_by_side((call, spec), other) for other in wave):
            break
        wave.append((call, spec))
    return wave


def _side_by_side(one: Planned, other: Planned) -> bool:
    if one[1].effect == other[1].effect == "read":
        return True
    mine, theirs = one[0].resource, other[0].resource
    return mine is not None and theirs is not None and mine != theirs
