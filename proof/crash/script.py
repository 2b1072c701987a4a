"""The work that is killed: what the model says, step by step, and what of it leaves a mark."""

from collections.abc import Sequence
from typing import Any

import msgspec

from windlass.core.messages import CallOutcome, Message, ToolResult, ToolResults

SESSION = "crash"
PROMPT = "Put the house in order."
ANSWER = "The house is in order."

ToolTarget = tuple[str, str]
"""A tool, and what it is to do it to."""

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
"""The calls of each reply; the one after them is the answer."""

NOTES, ROWS, SENT = "notes.txt", "rows.db", "sent.txt"
"""Where a `note`, a `book` and a `send` leave their mark."""
PIECE_S, EFFECT_S = 0.0005, 0.006
"""Between two pieces of a reply, and before and after each effect: so that kills come between."""


def call_id(step: int, at: int) -> str:
    """What the runtime names a call: the same in every run of this script."""
    return f"c{step}_{at}"


def expected_keys(tool: str) -> dict[str, str]:
    """What is expected of a tool: by idempotency key, what it did it to."""
    return {
        f"{SESSION}/{call_id(step, at)}": what
        for step, calls in enumerate(STEPS, 1)
        for at, (name, what) in enumerate(calls)
        if name == tool
    }


def encode_arguments(what: str) -> str:
    return msgspec.json.encode({"what": what}).decode()


def count_replies(body: dict[str, Any]) -> int:
    """How many replies a request shows that the model has given."""
    return sum(message["role"] == "assistant" for message in body["messages"])


def results_by_call(messages: Sequence[Message]) -> dict[str, CallOutcome]:
    """What became of each call, by its id."""
    return {
        item.call.id: item
        for message in messages
        if isinstance(message, ToolResults)
        for item in message.items
    }


def settle_unknown_sends(
    messages: Sequence[Message], known: dict[str, CallOutcome]
) -> list[Message]:
    """A transcript in which a letter whose fate is unknown is told as in another one."""
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
