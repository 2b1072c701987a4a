"""Read one quoted string from text that was meant to be JSON.

Invariant: a quote ends a string only where JSON could continue, and a quote inside is content only
where it can be nothing else. The strict JSON reader decodes the content.
"""

import re
from typing import Literal, TypeAlias

import msgspec

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
