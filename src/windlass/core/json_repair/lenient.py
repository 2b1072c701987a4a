"""Text that was meant to be JSON in, its one reading out.

The law: a value comes from the text alone. Nothing is invented but commas and closers; text with
two readings has none here; text that ends inside a value is `cut`.
"""

import math
import re
from collections.abc import Callable
from typing import Literal, NoReturn, TypeAlias

import msgspec

from windlass.core.json_repair.strict import Broken, Read, note, put, same, strict
from windlass.core.json_repair.strings import KEY_AHEAD, QUOTES, Role, Unreadable, escaped, quoted
from windlass.core.messages import Change
from windlass.core.schema import Json, Path

LOOSE_MAX = 262_144
"""Characters of broken text that are read at all; strict JSON has no such bound."""
DEPTH_MAX = 64
UNWRAP_MAX = 3

Closer: TypeAlias = Literal["}", "]"]

_COMMENT = re.compile(r"(?://|#)[^\n]*|/\*.*?\*/", re.DOTALL)
# A comment with one of these may be the rest of a string whose quote was not escaped.
_SUSPECT = re.compile(r'["{}\[\]]')
_ENDING = re.compile(r"```|</\w+>")
_NAME = re.compile(r"[A-Za-z_$][\w$-]*")
_NUMBER = re.compile(r"[+-]?(?:(?:0|[1-9]\d*)(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.+-])")
_NUMBER_END = re.compile(r"[\w.+-]+\Z")
_LITERALS: dict[str, bool | None] = {"true": True, "false": False, "null": None, "none": None}
_OPENER = {"}": "{", "]": "["}
_ESCAPED_OBJECT = re.compile(r'"?\s*\{(?:\s|\\[nrt])*\\"')
_PROSE = re.compile(r'[^{}\[\]"]*')
_DANGLING_KEY = re.compile(r"['`]\s*[:=]\s*\Z")


def read(text: str) -> Read | Broken:
    """The one value that a text holds, with prose, fences or quotes around it."""
    found = strict(text)
    if isinstance(found, Broken):
        found = _loosely(text, _Reader.surrounded)
    for _ in range(UNWRAP_MAX):
        match found:
            case Read(str() as inner, changes) if inner.lstrip()[:1] in {"{", '"'}:
                found = _encoded(inner, changes)
            case _:
                break
    return found


def read_exactly(text: str) -> Read | Broken:
    """As `read`, but the text holds the value and nothing else, and is whole."""
    found = _alone(text)
    if isinstance(found, Read) and found.open:
        return Broken("not closed", cut=True)
    return found


def _encoded(inner: str, changes: tuple[Change, ...]) -> Read | Broken:
    found = _alone(inner)
    if isinstance(found, Broken):
        return found
    unwrapped = Change("arguments", "JSON inside a string unwrapped")
    return Read(found.value, (*changes, unwrapped, *found.changes), found.open)


def _alone(text: str) -> Read | Broken:
    found = strict(text)
    return _loosely(text, _Reader.alone) if isinstance(found, Broken) else found


def _loosely(text: str, how: "Callable[[_Reader], Json]") -> Read | Broken:
    if len(text) > LOOSE_MAX:
        return Broken(f"not JSON, and too long to be repaired (over {LOOSE_MAX} characters)")
    reader = _Reader(text.strip().lstrip("\ufeff"))
    try:
        value = how(reader)
    except Unreadable as stop:
        return Broken(stop.why, stop.cut)
    return Read(value, tuple(dict.fromkeys(reader.changes)), reader.open)


class _Reader:
    """Recursive descent over one text."""

    __slots__ = ("at", "changes", "open", "stack", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.open = 0
        self.stack: list[str] = []
        self.changes: list[Change] = []

    def note(self, path: Path, what: str) -> None:
        note(self.changes, path, what)

    def stop(self, why: str) -> NoReturn:
        """At the end of the text, whatever is missing may have been cut off."""
        raise Unreadable(why, cut=self.at >= len(self.text))

    def alone(self) -> Json:
        value = self.value((), role="item")
        if self.skip(()):
            self.stop("more text after the value")
        return value

    def surrounded(self) -> Json:
        if _ESCAPED_OBJECT.match(self.text):
            return self.unescaped()
        begin = re.search(r"[{\[]", self.text)
        if begin is None:
            raise Unreadable("no JSON object")
        lead = self.text[: begin.start()].strip()
        wrapped = lead in {'"', "'", "`"}
        if lead and not wrapped:
            self.prose(lead, opening=begin.group())
        self.at = begin.start()
        value = self.value((), role="item")
        while self.skip(()) == "{":
            if not same(value, self.value((), role="item")):
                raise Unreadable("several objects that differ")
            self.note((), "the same object given twice")
        self.tail(lead if wrapped else "")
        return value

    def unescaped(self) -> Json:
        """All quotes have a backslash: the inside of a JSON string without its quotes."""
        body = self.text.removeprefix('"')
        try:
            inner: Json = msgspec.json.decode(f'"{escaped(body)}"')
        except ValueError:
            raise Unreadable("half-escaped quotes", cut=not body.endswith(("}", '"'))) from None
        self.note((), "escaped quotes unescaped")
        return inner

    def prose(self, lead: str, opening: str) -> None:
        if opening == "[" or not _PROSE.fullmatch(lead) or _DANGLING_KEY.search(lead):
            raise Unreadable("text before the object that may be a part of it")
        self.note((), "code fence removed" if lead.startswith("```") else "text around the object")

    def tail(self, wrap: str) -> None:
        rest = self.text[self.at :].strip()
        trimmed = rest.lstrip("}] \t\r\n")
        if trimmed != rest:
            self.note((), "extra closers removed")
        if wrap and not self.open:
            if not trimmed.startswith(wrap):
                raise Unreadable("a quote before the object, and none after it")
            trimmed = trimmed.removeprefix(wrap)
            self.note((), "quotes around the object removed")
        if not _PROSE.fullmatch(trimmed):
            raise Unreadable("text after the object that may be a part of it")
        if trimmed.replace("```", ""):
            self.note((), "text around the object")

    def skip(self, path: Path) -> str:
        """The next character that is neither space nor comment; '' at the end."""
        while True:
            while self.text[self.at : self.at + 1].isspace():
                self.at += 1
            comment = _COMMENT.match(self.text, self.at)
            if comment is None:
                return self.text[self.at : self.at + 1]
            if _SUSPECT.search(comment.group()):
                self.stop("a comment that may be content")
            self.note(path, "comment removed")
            self.at = comment.end()

    def value(self, path: Path, role: Role) -> Json:
        char = self.skip(path)
        if char == "{":
            return self.container(path, "}")
        if char == "[":
            return self.container(path, "]")
        if char in QUOTES:
            return self.string(path, role)
        if number := _NUMBER.match(self.text, self.at):
            return self.number(path, number.group())
        if word := _NAME.match(self.text, self.at):
            return self.word(path, word.group())
        if number := _NUMBER_END.match(self.text, self.at):
            self.at = number.end()
        return self.stop("no value where one is expected")

    def container(self, path: Path, closer: Closer) -> Json:
        if len(self.stack) == DEPTH_MAX:
            raise Unreadable("nested too deeply")
        self.at += 1
        self.stack.append(_OPENER[closer])
        value = self.fields(path) if closer == "}" else self.items(path)
        self.stack.pop()
        return value

    def fields(self, path: Path) -> Json:
        fields: dict[str, Json] = {}
        while self.skip(path) != "}":
            key = self.key(path)
            if self.skip(path) != ":":
                self.stop("no colon after a field's name")
            self.at += 1
            value = self.value((*path, key), role="field")
            put(fields, key, value, (*path, key), self.changes)
            if self.ends(path, "}"):
                return fields
        self.at += 1
        return fields

    def items(self, path: Path) -> Json:
        items: list[Json] = []
        while self.skip(path) != "]":
            items.append(self.value((*path, len(items)), role="item"))
            if self.ends(path, "]"):
                return items
        self.at += 1
        return items

    def ends(self, path: Path, closer: Closer) -> bool:
        """Whether the container ends after this value; if not, the next one follows."""
        char = self.skip(path)
        if char == closer:
            self.at += 1
            return True
        if char == ",":
            self.at += 1
            if self.skip(path) == closer:
                self.note(path, "trailing comma removed")
            return False
        if char == "":
            self.open += 1
        # An ending, or the closer of an outer container, shows that the model had gone on:
        # this container was not cut off, its closer was forgotten.
        if char == "" or _ENDING.match(self.text, self.at) or _OPENER.get(char) in self.stack:
            self.note(path, "missing closer added")
            return True
        if KEY_AHEAD.match(self.text, self.at) if closer == "}" else char == "{":
            self.note(path, "missing comma added")
            return False
        return self.stop("no comma or closer after a value")

    def key(self, path: Path) -> str:
        if self.text[self.at : self.at + 1] in QUOTES:
            return self.string(path, role="key")
        name = _NAME.match(self.text, self.at)
        if name is None:
            self.stop("no field name where one is expected")
        self.at = name.end()
        self.note((*path, name.group()), "field name quoted")
        return name.group()

    def string(self, path: Path, role: Role) -> str:
        found = quoted(self.text, self.at, role)
        self.at = found.end
        for what in found.changes:
            self.note(path, what)
        return found.value

    def number(self, path: Path, digits: str) -> Json:
        self.at += len(digits)
        if self.at == len(self.text):
            self.stop("a number at the very end")
        try:
            value = int(digits) if digits.lstrip("+-").isdigit() else float(digits)
        except ValueError:  # Python refuses integers of thousands of digits.
            raise Unreadable("a number that is too long") from None
        if isinstance(value, float) and math.isinf(value):
            raise Unreadable("a number that is too large")
        if digits.startswith(("+", ".", "-.")):
            self.note(path, "number spelled as JSON")
        return value

    def word(self, path: Path, word: str) -> bool | None:
        self.at += len(word)
        if word.lower() not in _LITERALS:
            self.stop("a word without quotes")
        if word not in _LITERALS or word == "none":
            self.note(path, "literal spelled as JSON")
        return _LITERALS[word.lower()]
