"""What goes wrong on the wire, and what becomes of a run that is worth its name.

Each scenario is what the server does first; from then on it answers well. The bytes come from the
same tables that the tests use.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from proof.wire_faults import FAULTS
from windlass.testing.chat_wire import (
    DONE,
    call_chunks,
    chat_answer,
    finish_chunk,
    text_chunk,
    usage_chunk,
)
from windlass.testing.fault_server import ReceivedRequest
from windlass.testing.wire import WireAnswer, split_pieces, stream_answer, wait, with_crlf

EXPECTED = "Hello there."
FINAL = b'"final_answer"'
"""A peer that ends a run by calling a tool of this name offers that tool."""

_FAULTS = {fault.name: fault.answer for fault in FAULTS}
_BROKEN = r"connect|closed|incomplete|reset|stream|network|peer|broke off|read"
_ID = r"\bid\b|tool_call_id|duplicate"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultScenario:
    name: str
    first: WireAnswer | Callable[[ReceivedRequest], WireAnswer]
    recoverable: bool = True
    """Whether a retry, or simply going on, leads to the right answer."""
    hint: str = _BROKEN
    """What an error must mention to be clear."""
    calls: tuple[str, ...] | None = None
    """The arguments of the calls that must run; None if the scenario has no calls."""
    cut: bool = False
    """The answer is truncated: what counts is whether the caller learns that."""
    slow: bool = False
    """It takes minutes, so it gets its own process beside the others."""

    def is_clear(self, kind: str, message: str) -> bool:
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


def right_answer(asked: ReceivedRequest) -> WireAnswer:
    """Return the right answer, in the way in which this peer ends a run."""
    texts = (text_chunk("Hello"), text_chunk(" there."))
    if FINAL not in asked.body:
        return chat_answer(*texts)
    arguments = msgspec.json.encode({"answer": EXPECTED}).decode()
    return chat_answer(*texts, call_chunks("final_answer", arguments, id="call_final"))


def script_answers(scenario: FaultScenario) -> Callable[[ReceivedRequest], WireAnswer]:
    """Answer with the fault first, and then always with the right answer."""
    left = [scenario.first]

    def respond(asked: ReceivedRequest) -> WireAnswer:
        if not left:
            return right_answer(asked)
        first = left.pop()
        return first if isinstance(first, WireAnswer) else first(asked)

    return respond


def _two_calls(**more: str | int | None) -> WireAnswer:
    """Return two calls, of which the second one is unusual."""
    second = call_chunks("look", '{"at": 2}', **{"index": 1, "id": "call_1", **more})
    return chat_answer(call_chunks("look", '{"at": 1}', id="call_1"), second)


_CUT = call_chunks("pay", '{"amount": 1', id="call_1")

SCENARIOS: tuple[FaultScenario, ...] = (
    FaultScenario(name="closed before the head", first=_FAULTS["closed_at_once"]),
    FaultScenario(name="500, then fine", first=_FAULTS["server_error"], hint="500|server|oops"),
    FaultScenario(name="529, then fine", first=_FAULTS["overloaded"], hint="529|overloaded"),
    FaultScenario(
        name="429 with Retry-After 2 s",
        first=_FAULTS["retry_after_seconds"],
        hint="429|rate|slow down",
    ),
    FaultScenario(name="dropped in the text", first=_FAULTS["dropped_in_text"]),
    FaultScenario(name="reset in the text", first=_FAULTS["reset_in_text"]),
    FaultScenario(
        name="dropped in the arguments",
        first=stream_answer(
            *call_chunks("look", '{"at":'), *(_FAULTS["dropped_in_text"].acts[-1:])
        ),
        calls=(),
    ),
    FaultScenario(name="no end marker", first=_FAULTS["no_end_marker"]),
    FaultScenario(
        name="broken chunk in the text",
        first=_FAULTS["broken_json"],
        hint=r"json|malformed|decode|pars|chunk",
    ),
    FaultScenario(
        name="error event in the text",
        first=_FAULTS["error_in_stream"],
        hint="upstream broke|502",
    ),
    FaultScenario(
        name="empty reply, then fine", first=chat_answer(), hint="empty|no (text|content|output)"
    ),
    FaultScenario(
        name="text cut by length",
        first=stream_answer(text_chunk("Hello"), finish_chunk("length"), usage_chunk(), DONE),
        recoverable=False,
        hint="length|truncat|max_?tokens|token limit",
        cut=True,
    ),
    FaultScenario(
        name="arguments cut by length",
        first=stream_answer(*_CUT, finish_chunk("length"), usage_chunk(), DONE),
        hint="truncat|length|max_?tokens|limit|json|pars|argument",
        calls=(),
    ),
    FaultScenario(
        name="arguments cut, unsaid",
        first=stream_answer(*_CUT, finish_chunk("tool_calls"), usage_chunk(), DONE),
        hint="truncat|json|pars|argument|invalid",
        calls=(),
    ),
    FaultScenario(
        name="call of an unknown tool",
        first=chat_answer(call_chunks("lok", '{"at": 1}')),
        hint="lok|unknown|not found",
        calls=(),
    ),
    FaultScenario(name="two calls, one id", first=_two_calls(), hint=_ID, calls=("1", "2")),
    FaultScenario(
        name="a call without an id", first=_two_calls(id=None), hint=_ID, calls=("1", "2")
    ),
    FaultScenario(
        name="two calls, one index",
        first=_two_calls(index=0, id="call_2"),
        hint=_ID,
        calls=("1", "2"),
    ),
    FaultScenario(
        name="byte by byte, CRLF", first=lambda asked: split_pieces(with_crlf(right_answer(asked)))
    ),
    FaultScenario(
        name="context overflow",
        first=_FAULTS["too_long"],
        recoverable=False,
        hint="context|maximum|length|token",
    ),
    FaultScenario(
        name="401", first=_FAULTS["unauthorized"], recoverable=False, hint="401|auth|bad key"
    ),
    FaultScenario(
        name="a web page with 200",
        first=_FAULTS["web_page"],
        recoverable=False,
        hint="html|content.?type|page|without content|no generations",
    ),
    FaultScenario(
        name="silent before the head",
        first=_FAULTS["stall_before_head"],
        hint="time|stall|silent",
        slow=True,
    ),
    FaultScenario(
        name="silent in the text",
        first=_FAULTS["stall_after_text"],
        hint="time|stall|silent",
        slow=True,
    ),
    FaultScenario(
        name="pings and no content",
        first=stream_answer(*(part for _ in range(200) for part in (wait(5), b": ping\n\n"))),
        hint="time|stall|silent",
        slow=True,
    ),
)
