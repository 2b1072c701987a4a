"""The work of a trial: what the model says step by step, and where each tool leaves its mark."""

from collections.abc import Sequence
from typing import Any

import msgspec

from windlass.core.messages import CallOutcome, Message, ToolResult, ToolResults

SESSION = "crash"
PROMPT = "Put the house in order."
ANSWER = "The house is in order."

ToolTarget = tuple[str, str]
"""A tool, and its argument `what`."""

STEPS: tuple[tuple[ToolTarget, ...], ...] = (
    (("look", "door"),),
    (("look", "roof"), ("look", "wall"), ("look", "floor")),
    (("note", "measured"),),
    (("book", "plumber"),),
    (("send", "ann"),),
    (("look", "cellar"), ("book", "painter")),
    (("note", "left"), ("note", "right")),
    (("send", "bob"),),
    (("book", "mason"), ("book", "joiner")),
    (("send", "cat"), ("look", "garden")),
    (("note", "locked"),),
    (("look", "key"),),
)
"""The calls of each reply. The reply after them is the answer."""

NOTES = "notes.txt"
"""Where a `note` leaves its mark."""
ROWS = "rows.db"
"""Where a `book` leaves its mark."""
SENT = "sent.txt"
"""Where a `send` leaves its mark."""
RECORDED = "recorded.txt"
"""Where the worker notes when each reply was on record."""
PIECE_S = 0.0005
"""Seconds between two pieces of a reply, so that kills can hit between them."""
EFFECT_S = 0.006
"""Seconds before and after each effect, so that kills can hit there too."""


def call_id(step: int, at: int) -> str:
    """Return the call id that the runtime gives: the same in every run of this script."""
    return f"c{step}_{at}"


def expected_keys(tool: str) -> dict[str, str]:
    """Return the expected effects of a tool: its argument by idempotency key."""
    return {
        f"{SESSION}/{call_id(step, at)}": what
        for step, calls in enumerate(STEPS, 1)
        for at, (name, what) in enumerate(calls)
        if name == tool
    }


def encode_arguments(what: str) -> str:
    return msgspec.json.encode({"what": what}).decode()


def count_replies(body: dict[str, Any]) -> int:
    """Return how many replies of the model a request contains."""
    return sum(message["role"] == "assistant" for message in body["messages"])


def results_by_call(messages: Sequence[Message]) -> dict[str, CallOutcome]:
    """Return the results in a transcript, by call id."""
    return {
        item.call.id: item
        for message in messages
        if isinstance(message, ToolResults)
        for item in message.items
    }


def settle_unknown_sends(
    messages: Sequence[Message], known: dict[str, CallOutcome]
) -> list[Message]:
    """Replace unknown results of `send` by those of another transcript, so that both compare."""
    return [
        ToolResults(tuple(_settle_result(item, known) for item in message.items))
        if isinstance(message, ToolResults)
        else message
        for message in messages
    ]


def _settle_result(item: CallOutcome, known: dict[str, CallOutcome]) -> CallOutcome:
    unknown = item.call.name == "send" and item.result.kind == "unknown"
    result: ToolResult = known[item.call.id].result if unknown else item.result
    return CallOutcome(item.call, result)
