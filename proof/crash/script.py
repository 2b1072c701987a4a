"""The work that is killed: what the model says, step by step, and what of it leaves a mark."""

from collections.abc import Sequence
from typing import Any

import msgspec

from windlass.core.messages import CallResult, Message, Result, Results

SESSION = "crash"
PROMPT = "Put the house in order."
ANSWER = "The house is in order."

Named = tuple[str, str]
"""A tool, and what it is to do it to."""

STEPS: tuple[tuple[Named, ...], ...] = (
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


def keys_of(tool: str) -> dict[str, str]:
    """What is expected of a tool: by idempotency key, what it did it to."""
    return {
        f"{SESSION}/{call_id(step, at)}": what
        for step, calls in enumerate(STEPS, 1)
        for at, (name, what) in enumerate(calls)
        if name == tool
    }


def arguments(what: str) -> str:
    return msgspec.json.encode({"what": what}).decode()


def steps_done(body: dict[str, Any]) -> int:
    """How many replies a request shows that the model has given."""
    return sum(message["role"] == "assistant" for message in body["messages"])


def results_in(messages: Sequence[Message]) -> dict[str, CallResult]:
    """What became of each call, by its id."""
    return {
        item.call.id: item
        for message in messages
        if isinstance(message, Results)
        for item in message.items
    }


def settled(messages: Sequence[Message], known: dict[str, CallResult]) -> list[Message]:
    """A transcript in which a letter whose fate is unknown is told as in another one."""
    return [
        Results(tuple(_settled(item, known) for item in message.items))
        if isinstance(message, Results)
        else message
        for message in messages
    ]


def _settled(item: CallResult, known: dict[str, CallResult]) -> CallResult:
    unknown = item.call.name == "send" and item.result.kind == "unknown"
    result: Result = known[item.call.id].result if unknown else item.result
    return CallResult(item.call, result)
