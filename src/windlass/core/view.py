"""State in, request out: the only thing that a model is ever shown.

A view is always a valid request. The transcript holds a step only when every call in it has its one
result, so that nothing has to be mended here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from windlass.core.messages import Message, ToolSpec
from windlass.core.setup import Setup, ToolChoice
from windlass.core.state import RunState, State


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request to a model."""

    model: str
    system: str
    messages: Sequence[Message]
    tools: tuple[ToolSpec, ...]
    tool_choice: ToolChoice
    output_max: int
    output_schema: dict[str, Any] | None = None


def build_prompt(
    state: State,
    setup: Setup,
    run: RunState,
    model: str,
    *,
    output_max: int,
    landing: bool = False,
) -> Prompt:
    """What the model is shown now."""
    asked = setup.rules.tool_choice
    choice = "auto" if run.choice_met else asked
    return Prompt(
        model=model,
        system=_system_text(setup),
        messages=state.shown,
        # The tools stay where they are, so that the prompt's beginning stays the same.
        tools=setup.tools,
        tool_choice="none" if landing else choice,
        output_max=output_max,
        output_schema=setup.output_schema,
    )


def _system_text(setup: Setup) -> str:
    if setup.output_schema is None:
        return setup.instructions
    schema = msgspec.json.encode(setup.output_schema).decode()
    told = f"When you are done, reply with nothing but one JSON value of this schema:\n{schema}"
    return f"{setup.instructions}\n\n{told}" if setup.instructions else told
