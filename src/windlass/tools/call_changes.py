"""What a call would change, what must be kept before it runs, and the tools that undo it.

Invariant: a preview answers in time, is bounded, and never fails for its caller. It helps the
person who decides: what runs is what the arguments say. A snapshot never stops the call that it is
for. Without one, the call runs, and undoing it finds that nothing was kept.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace as replace_struct

from windlass.core.decide.undoing import undo_tool_name
from windlass.core.errors import ModelRetry
from windlass.core.moves import ClearedCall
from windlass.core.verdicts import CallPreview
from windlass.tools.attempts import (
    AttemptOutcome,
    ToolAttempt,
    ToolRaised,
    ToolReturned,
    ToolStopped,
    ToolTimedOut,
)
from windlass.tools.function import Tool
from windlass.tools.outcomes import log_tool_error
from windlass.tools.run_context import RunContext
from windlass.tools.schemas import ArgumentMismatch

SNAPSHOT_S = 10.0
"""Seconds that a tool may take for a snapshot."""
SNAPSHOT_CHARS_MAX = 16_000
"""A snapshot is part of a record. What is longer belongs into a blob."""
PREVIEW_S = 2.0
"""Seconds that a tool may take to say what a call would change."""
DIFF_CHARS_MAX = 20_000
NOTE_CHARS_MAX = 1_000


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


async def preview_call(tool: Tool[..., Any], arguments: Mapping[str, Any]) -> CallPreview | None:
    """Return what a call would change, and whether it can be undone; None for a read."""
    preview = await _ask_for_preview(tool, arguments)
    if tool.spec.effect == "read" or (preview is not None and preview.would_fail):
        return preview
    undo = "It can be undone." if tool.spec.undo else "It cannot be undone."
    if preview is None:
        return CallPreview(undo)
    return replace_struct(preview, note=f"{preview.note} {undo}")


async def _ask_for_preview(
    tool: Tool[..., Any], arguments: Mapping[str, Any]
) -> CallPreview | None:
    if tool.preview is None:
        return None
    try:
        job = partial(tool.preview, **tool.signature.convert_arguments(arguments))
    except ArgumentMismatch as mismatch:
        return _bound_preview(_expect_failure(mismatch))
    attempt = ToolAttempt(job, f"{tool.name} (preview)", threading.Event())
    preview = _read_outcome(tool.name, await attempt.run(PREVIEW_S, 0.0))
    return None if preview is None else _bound_preview(preview)


def _read_outcome(name: str, outcome: AttemptOutcome) -> CallPreview | None:
    match outcome:
        case ToolReturned(CallPreview() as preview):
            return preview
        case ToolReturned(str(words)):
            return CallPreview(words) if words else None
        case ToolReturned(value):
            error = TypeError(f"a preview must be str or CallPreview, not {type(value).__name__}")
            log_tool_error(name, "failed to preview", error)
        case ToolRaised(ModelRetry() as refusal):
            return _expect_failure(refusal)
        case ToolRaised(error):
            log_tool_error(name, "failed to preview", error)
        case ToolTimedOut():
            return CallPreview("What would change is not known: it took too long to find out.")
        case ToolStopped():
            raise asyncio.CancelledError
    return None


def _expect_failure(error: Exception) -> CallPreview:
    return CallPreview(f"As things are now, the call would fail: {error}", would_fail=True)


def _bound_preview(preview: CallPreview) -> CallPreview:
    """Cut a preview at its bounds, and make it text that can be sent."""
    diff = preview.diff
    is_whole = preview.is_whole and len(diff) <= DIFF_CHARS_MAX
    if len(diff) > DIFF_CHARS_MAX:
        kept = diff[:DIFF_CHARS_MAX].rpartition("\n")[0]
        diff = f"{kept}\n[{diff.count(chr(10), len(kept))} more lines]"
    note = _encodable(preview.note[:NOTE_CHARS_MAX])
    return CallPreview(note, _encodable(diff), is_whole, preview.would_fail)


def _encodable(text: str) -> str:
    """Return a text in which bytes that are not UTF-8 are shown as their codes."""
    return text.encode("utf-8", "backslashreplace").decode()
