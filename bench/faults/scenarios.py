"""What goes wrong on the wire, and what becomes of a run that is worth its name.

Each scenario is what the server does first; from then on it answers well. The bytes come from the
same tables that the tests use.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from windlass.testing.chat_wire import DONE, called, chat, finish, usage, words
from windlass.testing.fault_server import Asked
from windlass.testing.wire import Answer, answer, crlf, pieces, wait
from windlass.testing.wire_faults import FAULTS

EXPECTED = "Hello there."
FINAL = b'"final_answer"'
"""A peer that ends by calling a tool of this name lists it."""

_FAULTS = {fault.name: fault.answer for fault in FAULTS}
_BROKEN = r"connect|closed|incomplete|reset|stream|network|peer|broke off|read"
_ID = r"\bid\b|tool_call_id|duplicate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    name: str
    first: Answer | Callable[[Asked], Answer]
    recoverable: bool = True
    """Whether asking again, or going on, gives the right answer."""
    hint: str = _BROKEN
    """What an error must mention to be clear."""
    calls: tuple[str, ...] | None = None
    """The arguments of the calls that must run; None if it is about no call."""
    cut: bool = False
    """The answer itself is a part: what counts is whether anyone is told."""
    slow: bool = False
    """It takes minutes: it gets a process of its own, beside the others."""

    def clear(self, kind: str, message: str) -> bool:
        return kind not in BUGS and bool(re.search(self.hint, f"{kind} {message}", re.IGNORECASE))


BUGS = {
    "AssertionError",
    "AttributeError",
    "IndexError",
    "JSONDecodeError",
    "KeyError",
    "TypeError",
    "UnboundLocalError",
    "UnicodeDecodeError",
}
"""Errors of a program, not of a provider: they say nothing to whoever must act."""


def good(asked: Asked) -> Answer:
    """The right answer, in the way that this peer ends a run."""
    said = (words("Hello"), words(" there."))
    if FINAL not in asked.body:
        return chat(*said)
    arguments = msgspec.json.encode({"answer": EXPECTED}).decode()
    return chat(*said, called("final_answer", arguments, id="call_final"))


def script(scenario: Scenario) -> Callable[[Asked], Answer]:
    """The fault first, and from then on the right answer."""
    left = [scenario.first]

    def respond(asked: Asked) -> Answer:
        if not left:
            return good(asked)
        first = left.pop()
        return first if isinstance(first, Answer) else first(asked)

    return respond


def _two(**more: str | int | None) -> Answer:
    """Two calls; the second one is odd."""
    second = called("look", '{"at": 2}', **{"index": 1, "id": "call_1", **more})
    return chat(called("look", '{"at": 1}', id="call_1"), second)


_CUT = called("pay", '{"amount": 1', id="call_1")

SCENARIOS: tuple[Scenario, ...] = (
    Scenario(name="closed before the head", first=_FAULTS["closed_at_once"]),
    Scenario(name="500, then fine", first=_FAULTS["server_error"], hint="500|server|oops"),
    Scenario(name="529, then fine", first=_FAULTS["overloaded"], hint="529|overloaded"),
    Scenario(
        name="429 with Retry-After 2 s",
        first=_FAULTS["retry_after_seconds"],
        hint="429|rate|slow down",
    ),
    Scenario(name="dropped in the text", first=_FAULTS["dropped_in_text"]),
    Scenario(name="reset in the text", first=_FAULTS["reset_in_text"]),
    Scenario(
        name="dropped in the arguments",
        first=answer(*called("look", '{"at":'), *(_FAULTS["dropped_in_text"].acts[-1:])),
        calls=(),
    ),
    Scenario(name="no end marker", first=_FAULTS["no_end_marker"]),
    Scenario(
        name="broken chunk in the text",
        first=_FAULTS["broken_json"],
        hint=r"json|malformed|decode|pars|chunk",
    ),
    Scenario(
        name="error event in the text",
        first=_FAULTS["error_in_stream"],
        hint="upstream broke|502",
    ),
    Scenario(name="empty reply, then fine", first=chat(), hint="empty|no (text|content|output)"),
    Scenario(
        name="text cut by length",
        first=answer(words("Hello"), finish("length"), usage(), DONE),
        recoverable=False,
        hint="length|truncat|max_?tokens|token limit",
        cut=True,
    ),
    Scenario(
        name="arguments cut by length",
        first=answer(*_CUT, finish("length"), usage(), DONE),
        hint="truncat|length|max_?tokens|limit|json|pars|argument",
        calls=(),
    ),
    Scenario(
        name="arguments cut, unsaid",
        first=answer(*_CUT, finish("tool_calls"), usage(), DONE),
        hint="truncat|json|pars|argument|invalid",
        calls=(),
    ),
    Scenario(
        name="call of an unknown tool",
        first=chat(called("lok", '{"at": 1}')),
        hint="lok|unknown|not found",
        calls=(),
    ),
    Scenario(name="two calls, one id", first=_two(), hint=_ID, calls=("1", "2")),
    Scenario(name="a call without an id", first=_two(id=None), hint=_ID, calls=("1", "2")),
    Scenario(
        name="two calls, one index", first=_two(index=0, id="call_2"), hint=_ID, calls=("1", "2")
    ),
    Scenario(name="byte by byte, CRLF", first=lambda asked: pieces(crlf(good(asked)))),
    Scenario(
        name="context overflow",
        first=_FAULTS["too_long"],
        recoverable=False,
        hint="context|maximum|length|token",
    ),
    Scenario(name="401", first=_FAULTS["unauthorized"], recoverable=False, hint="401|auth|bad key"),
    Scenario(
        name="a web page with 200",
        first=_FAULTS["web_page"],
        recoverable=False,
        hint="html|content.?type|page|without content|no generations",
    ),
    Scenario(
        name="silent before the head",
        first=_FAULTS["stall_before_head"],
        hint="time|stall|silent",
        slow=True,
    ),
    Scenario(
        name="silent in the text",
        first=_FAULTS["stall_after_text"],
        hint="time|stall|silent",
        slow=True,
    ),
    Scenario(
        name="pings and no content",
        first=answer(*(part for _ in range(200) for part in (wait(5), b": ping\n\n"))),
        hint="time|stall|silent",
        slow=True,
    ),
)
