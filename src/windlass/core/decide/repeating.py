"""When the model repeats a call: the note that it gets, and the calls that do not run.

Equal calls are counted with equal results in a row (`CallStreak`). A call that only reads may be
repeated until the run is stuck. A write has its effect each time, so the note comes one call
sooner, and after it the same write is not executed again.
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from windlass.core.fold.calls import call_as_run, same_arguments
from windlass.core.messages import ToolCall, ToolSpec
from windlass.core.setup import Setup
from windlass.core.state import RunState, State, find_call
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
