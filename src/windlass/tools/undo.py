"""The tools that undo calls of others, and what must be known before a call to undo it later.

Invariant: a snapshot never stops the call that it is for. Without one, the call runs, and whoever
undoes it finds that nothing was kept.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace as replace_struct

from windlass.core.decide.undoing import undo_tool_name
from windlass.core.errors import ModelRetry
from windlass.core.moves import ClearedCall
from windlass.tools.annotations import ArgumentMismatch
from windlass.tools.attempts import ToolAttempt, ToolRaised, ToolReturned, ToolStopped
from windlass.tools.function import Tool
from windlass.tools.outcomes import log_tool_error
from windlass.tools.run_context import RunContext

SNAPSHOT_S = 10.0
"""Seconds that a tool may take for a snapshot."""
SNAPSHOT_CHARS_MAX = 16_000
"""A snapshot is part of a record. What is longer belongs into a blob."""


def build_undo_tool(tool: Tool[..., Any]) -> Tool[..., Any]:
    """Return the tool that undoes calls of another one, with the same arguments."""
    undo = tool.undo
    if isinstance(undo, Tool):
        base = cast("Tool[..., Any]", undo)
    else:
        base = replace(
            tool,
            spec=replace_struct(tool.spec, effect="write", isolated=False),
            function=undo,
            signature=replace_struct(tool.signature, takes_context=True),
            reconcile=None,
            recover=None,
            address=None,
            bind_run=None,
            preview=None,
        )
    spec = replace_struct(
        tool.spec,
        name=undo_tool_name(tool.name),
        description=f"Undoes a call of {tool.name}.",
        effect=base.spec.effect,
        undo="",
        isolated=base.spec.isolated,
    )
    undo_tool = replace(base, spec=spec, endpoint=tool.endpoint, undo=None, snapshot=None)
    # Calls are undone one after another, whatever they change.
    return replace(undo_tool, resource=None, bind_folder=_bind_undo(tool))


def _bind_undo(tool: Tool[..., Any]) -> Callable[[Path], Tool[..., Any]] | None:
    """Return what makes the tool that undoes calls in another folder; None if it works in none."""
    bind = tool.bind_folder
    return None if bind is None else lambda folder: build_undo_tool(bind(folder))


async def take_snapshot(
    tool: Tool[..., Any], cleared: ClearedCall, context: RunContext[Any]
) -> str:
    """Return what the tool keeps of a call that is about to run; empty if that is nothing."""
    if tool.snapshot is None:
        return ""
    name = f"{tool.name} (snapshot)"
    try:
        arguments = tool.signature.convert_arguments(cleared.arguments)
    except ArgumentMismatch:
        return ""  # The call itself will say so.
    attempt = ToolAttempt(partial(tool.snapshot, context, **arguments), name, context.stopping)
    match await attempt.run(SNAPSHOT_S, 0.0):
        case ToolReturned(str(snapshot)) if len(snapshot) <= SNAPSHOT_CHARS_MAX:
            return snapshot
        case ToolReturned(None) | ToolRaised(ModelRetry()):
            pass
        case ToolRaised(error):
            log_tool_error(tool.name, "failed to take a snapshot", error)
        case ToolStopped():
            raise asyncio.CancelledError
        case _:
            problem = (
                f"a snapshot must be a str of at most {SNAPSHOT_CHARS_MAX} characters, in time"
            )
            log_tool_error(tool.name, "took no snapshot", TypeError(problem))
    return ""
