"""State in, request out: the system prompt, the messages and the tools that a model is shown.

A view is always a valid request. The transcript holds a step only when every call in it has its one
result, so nothing has to be repaired here.
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
    """`provider:model`."""
    system: str
    messages: Sequence[Message]
    tools: tuple[ToolSpec, ...]
    tool_choice: ToolChoice
    output_max: int
    """The most output tokens to ask for."""
    output_schema: dict[str, Any] | None = None
    parallel_tool_calls: bool = True
    """Whether the reply may make several calls."""


def build_prompt(
    state: State,
    setup: Setup,
    run: RunState,
    model: str,
    *,
    output_max: int,
    landing: bool = False,
) -> Prompt:
    """Return the next request to a model. `landing`: the last one, with the tools switched off."""
    choice = "auto" if run.choice_met else setup.rules.tool_choice
    return Prompt(
        model=model,
        system=setup.instructions if setup.output_schema is None else _describe_output(setup),
        messages=state.shown,
        # The specs stay even when the tools are off, so that a provider's prompt cache still hits.
        tools=state.offered,
        tool_choice="none" if landing else choice,
        output_max=output_max,
        output_schema=setup.output_schema,
        parallel_tool_calls=setup.rules.parallel_tool_calls,
    )


def _describe_output(setup: Setup) -> str:
    """Return the instructions, and what a final reply must look like."""
    schema = msgspec.json.encode(setup.output_schema).decode()
    format_text = f"When you are done, reply with one JSON value of this schema only:\n{schema}"
    if setup.instructions:
        return f"{setup.instructions}\n\n{format_text}"
    return format_text
