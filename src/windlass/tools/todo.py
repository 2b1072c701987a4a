"""The tool `todo`: the model's own list of things to do.

Invariant: nothing is stored here. The model gives the whole list each time, and the list lives in
the record of that call. So it survives whatever the session survives, in any process.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from windlass.tools.function import Tool, tool

ITEMS_MAX = 100

TodoStatus = Literal["open", "doing", "done"]
_STATUS_MARKS: dict[TodoStatus, str] = {"open": "[ ]", "doing": "[>]", "done": "[x]"}


# The class name is part of the schema that the model reads.
@dataclass(frozen=True)
class Item:
    """One thing to do."""

    text: Annotated[str, Meta(min_length=1, max_length=500, description="What to do.")]
    status: Annotated[TodoStatus, "Only one item at a time is `doing`."] = "open"


def todo_tool() -> Tool[..., Any]:
    """Build the tool `todo`."""
    return tool(_format_todo_list, name="todo", effect="read", retries=0)


def _format_todo_list(
    items: Annotated[
        list[Item], Meta(max_length=ITEMS_MAX, description="The whole list, in order.")
    ],
) -> str:
    """Keep a to-do list, for work of several steps.

    Give the whole list each time, including the items that are done.
    """
    if not items:
        return "The list is empty."
    lines = [f"{_STATUS_MARKS[item.status]} {' '.join(item.text.split())}" for item in items]
    done = sum(item.status == "done" for item in items)
    return "\n".join([f"{done} of {len(items)} done:", *lines])
