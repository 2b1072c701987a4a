"""Text that was meant to be JSON in, its only reading out.

Invariant: a value comes from the text alone. Nothing is added but commas and closing brackets. Text
with two possible readings is refused. Text that ends inside a value is `cut`.
"""

import math
import re
from collections.abc import Callable
from typing import Literal, NoReturn, TypeAlias

import msgspec

from windlass.core.json_repair.strict import (
    CROWDED,
    KEY_AHEAD,
    QUOTES,
    BrokenJson,
    ReadJson,
    StringRole,
    UnreadableJson,
    escape_controls,
    is_crowded,
    note_change,
    put_field,
    read_quoted,
    read_strict,
    same_json,
)
from windlass.core.messages import ArgumentChange
from windlass.core.schema import JsonValue, ValuePath

REPAIR_CHARS_MAX = 262_144
"""The most characters of broken text that are repaired. Strict JSON has no such limit."""
DEPTH_MAX = 64
UNWRAP_MAX = 3

Closer: TypeAlias = Literal["}", "]"]

_COMMENT = re.compile(r"(?://|#)[^\n]*|/\*.*?\*/", re.DOTALL)
# A comment with one of these may be the rest of a string whose quote was not escaped.
_SUSPICIOUS_COMMENT = re.compile(r'["{}\[\]]')
_ENDING = re.compile(r"```|</\w+>")
_NAME = re.compile(r"[A-Za-z_$][\w$-]*")
_NUMBER = re.compile(r"[+-]?(?:(?:0|[1-9]\d*)(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.+-])")
_NUMBER_END = re.compile(r"[\w.+-]+\Z")
_LITERALS: dict[str, bool | None] = {"true": True, "false": False, "null": None, "none": None}
_OPENER = {"}": "{", "]": "["}
_ESCAPED_OBJECT = re.compile(r'"?\s*\{(?:\s|\\[nrt])*\\"')
_PROSE = re.compile(r'[^{}\[\]"]*')
_DANGLING_KEY = re.compile(r"['`]\s*[:=]\s*\Z")


def read_lenient(text: str) -> ReadJson | BrokenJson:
    """Read the only value in a text, with prose, code fences or quotes around it."""
    found = read_strict(text)
    if isinstance(found, BrokenJson):
        found = _read_with(text, _LenientReader.read_surrounded)
    for _ in range(UNWRAP_MAX):
        match found:
            case ReadJson(str() as inner, changes) if inner.lstrip()[:1] in {"{", '"'}:
                found = _read_encoded(inner, changes)
            case _:
                break
    return found


def read_lenient_alone(text: str) -> ReadJson | BrokenJson:
    """Read a text that holds one complete value and nothing else."""
    found = _read_alone(text)
    if isinstance(found, ReadJson) and found.open:
        return BrokenJson("not closed", cut=True)
    return found


def _read_encoded(inner: str, changes: tuple[ArgumentChange, ...]) -> ReadJson | BrokenJson:
    found = _read_alone(inner)
    if isinstance(found, BrokenJson):
        return found
    unwrapped = ArgumentChange("arguments", "JSON inside a string unwrapped")
    return ReadJson(found.value, (*changes, unwrapped, *found.changes), found.open)


def _read_alone(text: str) -> ReadJson | BrokenJson:
    found = read_strict(text)
    if isinstance(found, BrokenJson):
        return _read_with(text, _LenientReader.read_alone)
    return found


def _read_with(text: str, how: "Callable[[_LenientReader], JsonValue]") -> ReadJson | BrokenJson:
    if is_crowded(text):
        return BrokenJson(CROWDED)
    if len(text) > REPAIR_CHARS_MAX:
        return BrokenJson(
            f"not JSON, and too long to be repaired (over {REPAIR_CHARS_MAX} characters)"
        )
    reader = _LenientReader(text.strip().lstrip("\ufeff"))
    try:
        value = how(reader)
    except UnreadableJson as stop:
        return BrokenJson(stop.why, stop.cut)
    return ReadJson(value, tuple(dict.fromkeys(reader.changes)), reader.open)


class _LenientReader:
    """Reads one text by recursive descent."""

    __slots__ = ("at", "changes", "open", "stack", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.open = 0
        self.stack: list[str] = []
        self.changes: list[ArgumentChange] = []

    def note_change(self, path: ValuePath, what: str) -> None:
        note_change(self.changes, path, what)

    def raise_unreadable(self, why: str) -> NoReturn:
        """Raise UnreadableJson. At the end of the text, the rest may have been cut off."""
        raise UnreadableJson(why, cut=self.at >= len(self.text))

    def read_alone(self) -> JsonValue:
        value = self.read_value((), role="item")
        if self.skip_space(()):
            self.raise_unreadable("more text after the value")
        return value

    def read_surrounded(self) -> JsonValue:
        if _ESCAPED_OBJECT.match(self.text):
            return self.read_unescaped()
        begin = re.search(r"[{\[]", self.text)
        if begin is None:
            raise UnreadableJson("no JSON object")
        lead = self.text[: begin.start()].strip()
        wrapped = lead in {'"', "'", "`"}
        if lead and not wrapped:
            self.check_prose(lead, opening=begin.group())
        self.at = begin.start()
        value = self.read_value((), role="item")
        while self.skip_space(()) == "{":
            if not same_json(value, self.read_value((), role="item")):
                raise UnreadableJson("several objects that differ")
            self.note_change((), "the same object given twice")
        self.check_tail(lead if wrapped else "")
        return value

    def read_unescaped(self) -> JsonValue:
        """Read the inside a JSON string without its quotes: every quote has a backslash."""
        body = self.text.removeprefix('"')
        try:
            inner: JsonValue = msgspec.json.decode(f'"{escape_controls(body)}"')
        except ValueError:
            raise UnreadableJson("half-escaped quotes", cut=not body.endswith(("}", '"'))) from None
        self.note_change((), "escaped quotes unescaped")
        return inner

    def check_prose(self, lead: str, opening: str) -> None:
        if opening == "[" or not _PROSE.fullmatch(lead) or _DANGLING_KEY.search(lead):
            raise UnreadableJson("text before the object that may be a part of it")
        self.note_change(
            (), "code fence removed" if lead.startswith("```") else "text around the object"
        )

    def check_tail(self, wrap: str) -> None:
        rest = self.text[self.at :].strip()
        trimmed = rest.lstrip("}] \t\r\n")
        if trimmed != rest:
            self.note_change((), "extra closers removed")
        if wrap and not self.open:
            if not trimmed.startswith(wrap):
                raise UnreadableJson("a quote before the object, and none after it")
            trimmed = trimmed.removeprefix(wrap)
            self.note_change((), "quotes around the object removed")
        if not _PROSE.fullmatch(trimmed):
            raise UnreadableJson("text after the object that may be a part of it")
        if trimmed.replace("```", ""):
            self.note_change((), "text around the object")

    def skip_space(self, path: ValuePath) -> str:
        """Skip space and comments. Return the next character, or '' at the end."""
        while True:
            while self.text[self.at : self.at + 1].isspace():
                self.at += 1
            comment = _COMMENT.match(self.text, self.at)
            if comment is None:
                return self.text[self.at : self.at + 1]
            if _SUSPICIOUS_COMMENT.search(comment.group()):
                self.raise_unreadable("a comment that may be content")
            self.note_change(path, "comment removed")
            self.at = comment.end()

    def read_value(self, path: ValuePath, role: StringRole) -> JsonValue:
        char = self.skip_space(path)
        if char == "{":
            return self.read_container(path, "}")
        if char == "[":
            return self.read_container(path, "]")
        if char in QUOTES:
            return self.read_string(path, role)
        if number := _NUMBER.match(self.text, self.at):
            return self.read_number(path, number.group())
        if word := _NAME.match(self.text, self.at):
            return self.read_word(path, word.group())
        if number := _NUMBER_END.match(self.text, self.at):
            self.at = number.end()
        return self.raise_unreadable("no value where one is expected")

    def read_container(self, path: ValuePath, closer: Closer) -> JsonValue:
        if len(self.stack) == DEPTH_MAX:
            raise UnreadableJson("nested too deeply")
        self.at += 1
        self.stack.append(_OPENER[closer])
        if closer == "}":
            value = self.read_fields(path)
        else:
            value = self.read_items(path)
        self.stack.pop()
        return value

    def read_fields(self, path: ValuePath) -> JsonValue:
        fields: dict[str, JsonValue] = {}
        while self.skip_space(path) != "}":
            key = self.read_key(path)
            if self.skip_space(path) != ":":
                self.raise_unreadable("no colon after a field's name")
            self.at += 1
            value = self.read_value((*path, key), role="field")
            put_field(fields, key, value, (*path, key), self.changes)
            if self.ends_container(path, "}"):
                return fields
        self.at += 1
        return fields

    def read_items(self, path: ValuePath) -> JsonValue:
        items: list[JsonValue] = []
        while self.skip_space(path) != "]":
            items.append(self.read_value((*path, len(items)), role="item"))
            if self.ends_container(path, "]"):
                return items
        self.at += 1
        return items

    def ends_container(self, path: ValuePath, closer: Closer) -> bool:
        """Whether the container ends after this value. If not, the next value follows."""
        char = self.skip_space(path)
        if char == closer:
            self.at += 1
            return True
        if char == ",":
            self.at += 1
            if self.skip_space(path) == closer:
                self.note_change(path, "trailing comma removed")
            return False
        if char == "":
            self.open += 1
        # An ending, or the closer of an outer container, shows that the model went on. So this
        # container was not cut off: its closer was forgotten.
        if char == "" or _ENDING.match(self.text, self.at) or _OPENER.get(char) in self.stack:
            self.note_change(path, "missing closer added")
            return True
        if KEY_AHEAD.match(self.text, self.at) if closer == "}" else char == "{":
            self.note_change(path, "missing comma added")
            return False
        return self.raise_unreadable("no comma or closer after a value")

    def read_key(self, path: ValuePath) -> str:
        if self.text[self.at : self.at + 1] in QUOTES:
            return self.read_string(path, role="key")
        name = _NAME.match(self.text, self.at)
        if name is None:
            self.raise_unreadable("no field name where one is expected")
        self.at = name.end()
        self.note_change((*path, name.group()), "field name quoted")
        return name.group()

    def read_string(self, path: ValuePath, role: StringRole) -> str:
        found = read_quoted(self.text, self.at, role)
        self.at = found.end
        for what in found.changes:
            self.note_change(path, what)
        return found.value

    def read_number(self, path: ValuePath, digits: str) -> JsonValue:
        self.at += len(digits)
        if self.at == len(self.text):
            self.raise_unreadable("a number at the very end")
        try:
            if digits.lstrip("+-").isdigit():
                value = int(digits)
            else:
                value = float(digits)
        except ValueError:  # Python refuses integers of thousands of digits.
            raise UnreadableJson("a number that is too long") from None
        if isinstance(value, float) and math.isinf(value):
            raise UnreadableJson("a number that is too large")
        if digits.startswith(("+", ".", "-.")):
            self.note_change(path, "number spelled as JSON")
        return value

    def read_word(self, path: ValuePath, word: str) -> bool | None:
        self.at += len(word)
        if word.lower() not in _LITERALS:
            self.raise_unreadable("a word without quotes")
        if word not in _LITERALS or word == "none":
            self.note_change(path, "literal spelled as JSON")
        return _LITERALS[word.lower()]
