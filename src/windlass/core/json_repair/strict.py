"""Read strict JSON: one value from a text, or the reason why there is none.

Invariant: no member of an object is lost. Most readers let the last of two fields with one name
win. Here two equal ones count as one, and two that differ are refused.

JSON from outside is counted before it is parsed. A parser makes an object of each key, object and
list, and a byte of JSON can become a hundred bytes of memory. The work is bounded by the length of
the text: a few searches of the whole text do it.

A quoted string is also read from text that was only meant to be JSON. Invariant: a quote ends a
string only where JSON could continue, and a quote inside is content only where it can be nothing
else. The strict JSON reader decodes the content.
"""

import json
import re
from typing import Literal, TypeAlias

import msgspec

from windlass.core.messages import ArgumentChange
from windlass.core.schema import JsonValue, ValuePath, format_path

STRINGS_PER_KEY = 2
"""JSON with more strings than this for each key that is allowed counts as too much as well."""


def has_many_keys(data: bytes, keys_max: int) -> bool:
    """Return whether JSON has more keys, objects and lists than `keys_max`.

    Also if it has more than STRINGS_PER_KEY times as many strings.
    """
    if count_keys(data) <= keys_max:  # Those in strings are counted too, so it has no more.
        return False
    plain = cut_escapes(data)
    if plain.count(b'"') > 2 * STRINGS_PER_KEY * keys_max:
        return True
    return count_keys(cut_strings(plain)) > keys_max


def count_keys(data: bytes) -> int:
    """Return the number of keys, objects and lists in JSON without strings."""
    return data.count(b":") + data.count(b"[") + data.count(b"{")


def cut_escapes(data: bytes) -> bytes:
    """Return JSON without escaped quotes, so that each quote begins or ends a string."""
    return data.replace(b"\\\\", b"").replace(b'\\"', b"")


def cut_strings(plain: bytes) -> bytes:
    """Return JSON without its strings. It must not have escaped quotes."""
    return b"".join(plain.split(b'"')[::2])


StringRole: TypeAlias = Literal["key", "field", "item"]
"""Where a string occurs: as the name of a field, as its value, or in a list."""

QUOTES = {
    '"': '"',
    "'": "'",
    "\u201c": "\u201c\u201d",
    "\u201d": "\u201d",
    "\u2018": "\u2018\u2019",
    "\u2019": "\u2019",
}
"""Opening quotes, each with the quotes that may end it."""

LOOK_BACK_CHARS = 64
"""How many characters to look back."""

_STEPS = {
    quote: re.compile(rf"\\u[0-9a-fA-F]{{4}}|\\.|\\\Z|[{closers}]", re.DOTALL)
    for quote, closers in QUOTES.items()
}
_CAN_FOLLOW_STRING = re.compile(r"\s*(?:[,}\]]|\Z|//|/\*|#|```|</\w+>)")
KEY_AHEAD = re.compile(r"\s*([\"'])[A-Za-z_][\w-]{0,63}\1\s*:")
_COLON = re.compile(r"\s*:")
_COMMA_BEFORE = re.compile(r",\s*\Z")
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_LETTER_ESCAPE = re.compile(r"\\[bfnrtu]")
_TORN_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
# A backslash before these is literal: a regex or a Windows path that was not escaped. Any other
# (`\x41`, `\$`, `\e`) means different things in different languages.
_LITERAL_ESCAPE = re.compile(r"\\[A-DF-MO-Zcdg-mo-qswyz.()\[\]{}*+?|^-]")
_CONTROL = re.compile(r"[\x00-\x1f]")


class UnreadableJson(ValueError):
    """A text has no single reading. `cut`: it ends before it is complete."""

    def __init__(self, why: str, *, cut: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.cut = cut


class QuotedString(msgspec.Struct, frozen=True):
    """A string, where it ends, and the changes that were needed to read it."""

    value: str
    end: int
    changes: tuple[str, ...]


def read_quoted(text: str, begin: int, role: StringRole) -> QuotedString:
    """Read the string that begins with this quote. Raises UnreadableJson if it is ambiguous."""
    quote = text[begin]
    if text.startswith(quote * 3, begin):
        return _read_triple_quoted(text, begin, role)
    pieces: list[str] = []
    signs: set[str] = set()
    at = begin + 1
    inner = 0
    while True:
        step = _STEPS[quote].search(text, at)
        if step is None:
            raise UnreadableJson("a string without its end", cut=True)
        pieces.append(_escape_plain(text[at : step.start()]))
        at = step.end()
        if step.group().startswith("\\"):
            signs.add(step.group())
            pieces.append(_read_escape(text, step))
        elif _ends_string(text, at, role):
            break
        elif _is_content(text, step.start(), role, opens=inner % 2 == 0, first=at == begin + 2):
            inner += quote == '"'
            pieces.append(_escape_plain(step.group()))
        else:
            raise UnreadableJson("a quote inside a string that is not escaped")
    if inner % 2:
        raise UnreadableJson("an odd number of quotes that are not escaped")
    if role != "field" and _CONTROL.search(text, begin, at):
        # Two names or items with the quotes between them lost would look the same.
        raise UnreadableJson("a line break in a name or a list item")
    return QuotedString(_decode_pieces(pieces), at, _describe_changes(text[begin:at], signs, inner))


def escape_controls(text: str) -> str:
    """Return the text with its control characters escaped as in JSON."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def _read_triple_quoted(text: str, begin: int, role: StringRole) -> QuotedString:
    marks = text[begin] * 3
    end = text.find(marks, begin + 3)
    if end < 0:
        raise UnreadableJson("a string without its end", cut=True)
    value = text[begin + 3 : end]
    if "\\" in value or not _ends_string(text, end + 3, role):
        raise UnreadableJson("a string in triple quotes with two readings")
    return QuotedString(
        _decode_pieces([_escape_plain(value)]), end + 3, ("triple quotes replaced",)
    )


def _ends_string(text: str, after: int, role: StringRole) -> bool:
    if role == "key" or _CAN_FOLLOW_STRING.match(text, after):
        return True
    return role == "field" and KEY_AHEAD.match(text, after) is not None


def _is_content(text: str, at: int, role: StringRole, *, opens: bool, first: bool) -> bool:
    """Whether a quote that ends no string is an apostrophe, or one of a pair around words."""
    before = text[at - 1]
    after = text[at + 1]
    if text[at] in "'\u2018\u2019":
        return before.isalpha() and after.isalpha()
    if text[at] != '"' or role != "field" or before == '"' or _COLON.match(text, at + 1):
        return False
    if opens:
        # After a comma it may start the next field, with the quote before it lost.
        lost = _COMMA_BEFORE.search(text, max(0, at - LOOK_BACK_CHARS), at)
        return not (lost or first or before.isalnum() or after.isspace() or after == '"')
    return not (before.isspace() or after.isalnum())


def _escape_plain(run: str) -> str:
    return escape_controls(run.replace('"', '\\"'))


def _read_escape(text: str, step: re.Match[str]) -> str:
    sign = step.group()
    if _ESCAPE.fullmatch(sign):
        return sign
    if sign == "\\'":
        return "'"
    if _LITERAL_ESCAPE.fullmatch(sign):
        return f"\\{sign}"
    torn = _TORN_ESCAPE.match(text, step.start()) is not None
    raise UnreadableJson("a backslash with two readings", cut=torn)


def _decode_pieces(pieces: list[str]) -> str:
    try:
        return msgspec.json.decode(f'"{"".join(pieces)}"', type=str)
    except ValueError:
        raise UnreadableJson("half of a surrogate pair") from None


def _describe_changes(source: str, signs: set[str], inner: int) -> tuple[str, ...]:
    kept = any(map(_LITERAL_ESCAPE.fullmatch, signs))
    if kept and any(map(_LETTER_ESCAPE.match, signs)):
        # `C:\Users\new`: the second backslash may be content, or the start of a line break.
        raise UnreadableJson("backslashes with two readings")
    said = {
        "quotes replaced": source[0] != '"',
        "quotes inside a string escaped": inner > 0,
        "backslashes escaped": kept or "\\'" in signs,
        "control characters escaped": _CONTROL.search(source) is not None,
    }
    return tuple(what for what, holds in said.items() if holds)


CHANGES_MAX = 100
"""Repairs of one call that are listed one by one."""


DEPTH_MAX = 100
"""Levels of nested containers. No tool needs more."""
KEYS_MAX = 100_000
"""Keys, objects and lists. No tool needs more, and each costs time and memory."""
CROWDED = f"with more than {KEYS_MAX} keys and lists"
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)


class ReadJson(msgspec.Struct, frozen=True):
    """A value, and the changes that were needed to read it."""

    value: JsonValue
    changes: tuple[ArgumentChange, ...] = ()
    open: int = 0
    """Containers that the text left open at its end, after a complete value."""


class BrokenJson(msgspec.Struct, frozen=True):
    """Text that has no single reading. `cut`: it ends before it is complete."""

    why: str
    cut: bool = False


def read_strict(text: str) -> ReadJson | BrokenJson:
    """Read a text as JSON. An empty text is `{}`. A field given twice must have equal values."""
    if not text or text.isspace():
        return ReadJson({})
    # Each key and each list takes a character, so a text must be long to have too many of them.
    if len(text) > KEYS_MAX and is_crowded(text):
        return BrokenJson(CROWDED)
    if text.count("{") + text.count("[") > DEPTH_MAX and _nesting_depth(text) > DEPTH_MAX:
        return BrokenJson("nested too deeply")
    try:
        value: JsonValue = msgspec.json.decode(text)
        # Each field has a colon: with no more colons than fields, no duplicate was lost.
        if isinstance(value, dict) and text.count(":") == len(value):
            return ReadJson(value)
        return ReadJson(value, _find_duplicates(text))
    except UnreadableJson as stop:
        return BrokenJson(stop.why)
    except RecursionError:
        return BrokenJson("nested too deeply")
    except ValueError:  # also what msgspec raises, and lone surrogates
        return BrokenJson("not JSON")


def is_crowded(text: str) -> bool:
    """Whether a text has more keys, objects and lists than are read."""
    return has_many_keys(text.encode("utf-8", "surrogatepass"), KEYS_MAX)


def _nesting_depth(text: str) -> int:
    """Return how deep a text may be nested. Python's own limit depends on the caller's stack."""
    depth = deepest = 0
    for sign in _STRUCTURE.findall(text):
        depth += 1 if sign in "{[" else -1 if sign in "}]" else 0
        deepest = max(deepest, depth)
    return deepest


def note_change(changes: list[ArgumentChange], path: ValuePath, what: str) -> None:
    """Add a repair to a list that stays short no matter how many there are."""
    if len(changes) < CHANGES_MAX:
        changes.append(ArgumentChange(format_path(path), what))
    elif len(changes) == CHANGES_MAX:
        changes.append(ArgumentChange("arguments", "more repairs of these kinds"))


def same_json(one: JsonValue, other: JsonValue) -> bool:
    """Whether two values are equal as JSON: `1` is neither `true` nor `1.0`."""
    return msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")


class _DuplicateField(Exception):
    """Some object has two fields of one name."""


def _find_duplicates(text: str) -> tuple[ArgumentChange, ...]:
    try:
        _UNIQUE_DECODER.decode(text)
    except _DuplicateField:
        twice: list[ArgumentChange] = []
        json.loads(text, object_pairs_hook=lambda pairs: _join_duplicates(pairs, twice))
        return tuple(twice)
    return ()


def _require_unique(pairs: list[tuple[str, JsonValue]]) -> None:
    if len(dict(pairs)) != len(pairs):
        raise _DuplicateField


_UNIQUE_DECODER = json.JSONDecoder(object_pairs_hook=_require_unique)


def _join_duplicates(pairs: list[tuple[str, JsonValue]], twice: list[ArgumentChange]) -> JsonValue:
    fields: dict[str, JsonValue] = {}
    for key, value in pairs:
        put_field(fields, key, value, (key,), twice)
    return fields


def put_field(
    fields: dict[str, JsonValue],
    key: str,
    value: JsonValue,
    at: ValuePath,
    twice: list[ArgumentChange],
) -> None:
    """Add a field to an object that is being read. Raises UnreadableJson if two differ."""
    if key in fields:
        if not same_json(fields[key], value):
            raise UnreadableJson("a field is given twice, with different values")
        note_change(twice, at, "the same field given twice")
    fields[key] = value
