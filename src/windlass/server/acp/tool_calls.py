"""A call as an editor shows it: title, kind, state, places, and the change that it makes."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from acp.helpers import image_block, text_block, tool_content, tool_diff_content
from acp.schema import (
    ContentToolCallContent,
    FileEditToolCallContent,
    PlanEntry,
    PlanEntryStatus,
    TerminalToolCallContent,
    ToolCallLocation,
    ToolCallStatus,
    ToolKind,
)

from windlass.core.messages import ImagePart, TextPart, ToolResult
from windlass.core.projection.view import CallStatus, CallView
from windlass.core.text_clip import printable_line

TITLE_CHARS_MAX = 160
NESTED_LINES_MAX = 20
"""Calls of a sub-agent that are shown below its own call: the last ones."""
KINDS: Mapping[str, ToolKind] = {
    "read": "read",
    "read_artifact": "read",
    "skill": "read",
    "recall": "read",
    "glob": "search",
    "grep": "search",
    "write": "edit",
    "edit": "edit",
    "bash": "execute",
    "fetch": "fetch",
    "todo": "think",
}
"""What the tools of Windlass are for an editor. All others are `other`."""
STATES: Mapping[CallStatus, ToolCallStatus] = {
    "proposed": "pending",
    "asked": "pending",
    "cleared": "pending",
    "running": "in_progress",
    "waiting": "in_progress",
    "interrupted": "in_progress",
    "done": "completed",
    "failed": "failed",
    "denied": "failed",
    "invalid": "failed",
    "timed_out": "failed",
    "cancelled": "failed",
    "unknown": "failed",
}
PLAN_STATES: Mapping[str, PlanEntryStatus] = {
    "open": "pending",
    "doing": "in_progress",
    "done": "completed",
}
_TITLE_ARGUMENTS = ("command", "path", "pattern", "url", "query", "task", "prompt", "name")
"""The argument that says most about a call, if it has several."""

CallContent = ContentToolCallContent | FileEditToolCallContent | TerminalToolCallContent
ReadText = Callable[[str], str | None]
"""Reads a file of the workspace for a diff; None if there is none, or it may not be shown."""


class TodoItem(msgspec.Struct):
    """An entry of the model's own list of things to do."""

    text: str
    status: str = "open"


class TextEdit(msgspec.Struct):
    """One replacement of the tool `edit`."""

    old: str
    new: str


def make_title(name: str, arguments: Mapping[str, Any]) -> str:
    """Return one line about a call."""
    for key in _TITLE_ARGUMENTS:
        value = arguments.get(key)
        if isinstance(value, str) and value.strip():
            return printable_line(f"{name}: {value}", TITLE_CHARS_MAX)
    if not arguments:
        return printable_line(name, TITLE_CHARS_MAX)
    text = msgspec.json.encode(arguments).decode()
    return printable_line(f"{name}: {text}", TITLE_CHARS_MAX)


def find_kind(name: str) -> ToolKind:
    """Return what kind of work a tool does."""
    return KINDS.get(name, "other")


def find_locations(
    name: str, arguments: Mapping[str, Any], folder: Path
) -> list[ToolCallLocation] | None:
    """Return the file that a call of our own file tools is about."""
    path = arguments.get("path")
    if name not in ("read", "write", "edit") or not isinstance(path, str):
        return None
    offset = arguments.get("offset")
    line = offset if isinstance(offset, int) and offset > 0 else None
    return [ToolCallLocation(path=str(folder / path), line=line)]


def make_diffs(
    name: str, arguments: Mapping[str, Any], folder: Path, read_text: ReadText | None
) -> list[CallContent]:
    """Return what a call would change in a file; nothing for all other calls.

    `read_text`: reads the file as it is now; None if the change was made already.
    """
    path = arguments.get("path")
    if not isinstance(path, str):
        return []
    place = str(folder / path)
    if name == "write" and isinstance(arguments.get("content"), str):
        old = read_text(path) if read_text is not None else None
        return [tool_diff_content(place, arguments["content"], old)]
    if name != "edit":
        return []
    try:
        edits = msgspec.convert(arguments.get("edits"), list[TextEdit])
    except msgspec.ValidationError:
        return []
    return [tool_diff_content(place, edit.new, edit.old) for edit in edits]


def show_result(result: ToolResult) -> list[CallContent]:
    """Return the result of a call, text and pictures."""
    content: list[CallContent] = []
    for part in result.content:
        if isinstance(part, TextPart) and part.text:
            content.append(tool_content(text_block(part.text)))
        elif isinstance(part, ImagePart) and part.data is not None:
            # Inside the protocol, bytes are written as base64.
            data = msgspec.to_builtins(part.data)
            content.append(tool_content(image_block(data, part.media_type)))
    return content


def show_progress(call: CallView) -> list[CallContent]:
    """Return what a running call reported, and what the sub-agents below it do."""
    lines: list[str] = []
    for nested in call.agents:
        for entry in nested.projection.entries:
            for below in getattr(entry, "calls", ()):
                title = make_title(below.name, read_arguments(below))
                lines.append(f"{nested.agent}: {title} ({below.state})")
    lines = lines[-NESTED_LINES_MAX:]
    if call.progress:
        lines.append(call.progress)
    if call.waits_for is not None:
        lines.append("It waits for an answer.")
    return [tool_content(text_block("\n".join(lines)))] if lines else []


def read_arguments(call: CallView) -> dict[str, Any]:
    """Return the arguments that run, or those that the model wrote if they can be read."""
    text = call.arguments if call.arguments is not None else call.call.arguments
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}


def read_plan(call: CallView) -> list[PlanEntry] | None:
    """Return the list of things to do that a call of `todo` gives; None for all other calls."""
    if call.name != "todo" or call.state in ("invalid", "denied"):
        return None
    try:
        items = msgspec.convert(read_arguments(call).get("items"), list[TodoItem])
    except msgspec.ValidationError:
        return None
    return [
        PlanEntry(
            content=item.text,
            priority="medium",
            status=PLAN_STATES.get(item.status, "pending"),
        )
        for item in items
    ]
