"""What a call would change, asked of its tool before it runs.

Invariant: a preview answers in time, is bounded, and never fails for whoever asks. It is a help for
the person who decides: what runs is what the arguments say.
"""

import asyncio
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from windlass.core.call_preview import CallPreview
from windlass.core.errors import ModelRetry
from windlass.tools.annotations import ArgumentMismatch
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

PREVIEW_S = 2.0
"""Seconds that a tool may take to say what a call would change."""
DIFF_CHARS_MAX = 20_000
NOTE_CHARS_MAX = 1_000


async def preview_call(tool: Tool[..., Any], arguments: Mapping[str, Any]) -> CallPreview | None:
    """Return what a call would change, and whether it can be undone; None for a read."""
    preview = await _ask_for_preview(tool, arguments)
    if tool.spec.effect == "read" or (preview is not None and preview.would_fail):
        return preview
    undo = "It can be undone." if tool.spec.undo else "It cannot be undone."
    if preview is None:
        return CallPreview(undo)
    return replace(preview, note=f"{preview.note} {undo}")


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
