"""Finds the calls that a model wrote out as text: alone, in a code fence, or among words.

    I will read it first.
    ```json
    {"name": "read", "arguments": {"path": "a.txt"}}
    ```

Invariant: an object counts as a call only if it is closed, has no other fields, names a tool on
offer and has arguments that the tool accepts. Anything else is text. Braces that are doubled, as
the chat templates of some models show them by mistake, are undone before that.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from windlass.core.json_repair.arguments import PreparedArguments, prepare_arguments
from windlass.core.messages import ToolSpec
from windlass.core.schema import JsonSchema
from windlass.models.text_protocols.call_text import BracketCounter, parse_call

PLAIN_TEXT_ORIGIN = "plain_text"
"""Marks a call that was found in the text."""
FENCED_TEXT_ORIGIN = "fenced_text"
"""Marks a call that was found in the text, in a code fence."""
TEXT_ORIGINS = frozenset((PLAIN_TEXT_ORIGIN, FENCED_TEXT_ORIGIN))

HEAD_CHARS_MAX = 400
"""Text is held back for at most this many characters before it must look like a call."""

_CALL_KEYS = frozenset(("name", "arguments", "parameters", "type", "id"))
_START = re.compile(r"```|\{")
_PARTIAL_START = re.compile(r"`{1,2}\Z")
_FENCE_LINE = re.compile(r"```[a-zA-Z_]*[ \t]*\r?\n\s*(?:\[\s*)?")
_PARTIAL_FENCE_LINE = re.compile(r"```[a-zA-Z_]*[ \t]*\r?\Z")
_DOUBLED = re.compile(r"\{\s*(?=\{)")
_STRING_OR_PAIR = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|\{\{|\}\}', re.DOTALL)
_FIRST_KEY = re.compile(r'"([^"\\]*)("?)')
_NAME_VALUE = re.compile(r'\s*:\s*"([^"\\]*)("?)')
_OPEN_FENCE_AT_END = re.compile(r"```[a-zA-Z_]*[ \t]*\r?\n\s*\[?\s*\Z|\[\s*\Z")
_LAYOUT_AT_START = re.compile(r"\s*[\],]?\s*(?:```[ \t]*(?:\r?\n|\Z))?")

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class FoundCall(NamedTuple):
    """A call in a text, as its tool accepts it."""

    name: str
    arguments: str
    origin: str


def find_start(text: str, at: int) -> int:
    """Return where a call or its code fence may begin, from `at` on; the text's length if nowhere.

    One or two backticks at the end may become a fence.
    """
    found = _START.search(text, at) or _PARTIAL_START.search(text, at)
    return found.start() if found else len(text)


class CallHead(NamedTuple):
    """Where the object of a call begins, behind its fence and the brace that doubles it."""

    object_at: int
    origin: str
    is_doubled: bool


def read_head(text: str, at: int, tools: Mapping[str, ToolSpec]) -> CallHead | bool | None:
    """Read what begins at a place that `find_start` returned.

    Returns False if no call begins there, and None if more text has to decide.
    """
    begin = at
    origin = PLAIN_TEXT_ORIGIN
    if not text.startswith("{", at):
        fence = _FENCE_LINE.match(text, at)
        if fence is None:
            may_be_fence = "```".startswith(text[at:]) or _PARTIAL_FENCE_LINE.match(text, at)
            return None if may_be_fence else False
        begin = fence.end()
        origin = FENCED_TEXT_ORIGIN
    doubled = _DOUBLED.match(text, begin)
    if doubled is not None:
        begin = doubled.end()
    begins = _begins_like_call(text[begin : begin + HEAD_CHARS_MAX], tools)
    if begins is None and len(text) - at > HEAD_CHARS_MAX:
        return False
    return CallHead(begin, origin, doubled is not None) if begins else begins


def _begins_like_call(body: str, tools: Mapping[str, ToolSpec]) -> bool | None:
    """Whether a call begins like this; None if that cannot be decided yet."""
    if not body:
        return None
    if body[0] != "{":
        return False
    inner = body[1:].lstrip()
    if not inner:
        return None
    key = _FIRST_KEY.match(inner)
    if key is None:
        return False
    if not key[2]:
        return _may_become(key[1], _CALL_KEYS)
    if key[1] != "name":
        return key[1] in _CALL_KEYS
    name = _NAME_VALUE.match(inner, key.end())
    if name is None:
        return None
    if name[2]:
        return name[1] in tools
    return _may_become(name[1], tools)


def _may_become(start: str, names: Mapping[str, object] | frozenset[str]) -> bool | None:
    """Return None if a name begins like this, so that more text has to decide; else False."""
    return None if any(name.startswith(start) for name in names) else False


def read_call(text: str, origin: str, tools: Mapping[str, ToolSpec]) -> FoundCall | None:
    """Return the call that a whole object is, or None."""
    for candidate in (text, _undouble_braces(text)):
        try:
            fields = _decode_object(candidate)
        except (msgspec.DecodeError, RecursionError):
            continue
        return _fit_call(candidate, fields, origin, tools)
    return None


def _undouble_braces(text: str) -> str:
    """Return the text with doubled braces made single, outside of strings."""
    return _STRING_OR_PAIR.sub(
        lambda found: found[0][0] if found[0] in ("{{", "}}") else found[0], text
    )


def _fit_call(
    text: str, fields: dict[str, Any], origin: str, tools: Mapping[str, ToolSpec]
) -> FoundCall | None:
    call = parse_call(text)
    spec = tools.get(call.name)
    arguments = fields.get("arguments", fields.get("parameters"))
    if spec is None or not fields.keys() <= _CALL_KEYS or not isinstance(arguments, dict):
        return None
    prepared = prepare_arguments(call.arguments, JsonSchema(spec.parameters))
    if not isinstance(prepared, PreparedArguments):
        return None
    return FoundCall(call.name, call.arguments, origin)


class CallStart(NamedTuple):
    """Where a call may begin in a text."""

    at: int
    head: CallHead | bool | None
    """Its beginning; None if more text has to decide; False if no call begins, up to the end."""
    in_fence: bool
    """Whether a code fence is open before it."""


def find_call_start(
    text: str, at: int, tools: Mapping[str, ToolSpec], *, in_fence: bool
) -> CallStart:
    """Return the first place from `at` on where a call begins, or may begin."""
    while (at := find_start(text, at)) < len(text):
        is_fence = text.startswith("```", at)
        if not (is_fence and in_fence):  # A fence that closes another one opens none.
            head = read_head(text, at, tools)
            if head is not False:
                return CallStart(at, head, in_fence)
        if is_fence:
            in_fence = not in_fence
        at += 3 if is_fence else 1
    return CallStart(len(text), head=False, in_fence=in_fence)


def split_calls(text: str, tools: Mapping[str, ToolSpec]) -> Iterator[str | FoundCall]:
    """Yield the calls of a whole text and the words around them, in their order.

    Code fences, brackets and commas around calls are layout and not words.
    """
    words_from = 0
    start = find_call_start(text, 0, tools, in_fence=False)
    while start.at < len(text):
        end = None
        head = start.head
        if isinstance(head, CallHead):
            end = BracketCounter().find_close(text, head.object_at)
        if not isinstance(head, CallHead) or end is None:
            start = find_call_start(text, start.at + 1, tools, in_fence=start.in_fence)
            continue
        call = read_call(text[head.object_at : end], head.origin, tools)
        if call is not None:
            before = text[words_from : start.at]
            yield from _words(before, after_call=words_from > 0, before_call=True)
            yield call
            if head.is_doubled and text.startswith("}", end):
                end += 1
            words_from = end
        in_fence = start.in_fence or (call is None and head.origin == FENCED_TEXT_ORIGIN)
        start = find_call_start(text, end, tools, in_fence=in_fence)
    yield from _words(text[words_from:], after_call=words_from > 0, before_call=False)


def _words(text: str, *, after_call: bool, before_call: bool) -> Iterator[str]:
    """Yield the text without the layout of the calls around it, if any words are left."""
    if before_call:
        text = _OPEN_FENCE_AT_END.sub("", text)
    if after_call:
        text = text[_end_of_layout(text) :]
    if text.strip() or not (after_call or before_call):
        yield text


def _end_of_layout(text: str) -> int:
    found = _LAYOUT_AT_START.match(text)
    return found.end() if found else 0
