"""Parses a call that a model wrote out as JSON text: its name, and its arguments unchanged.

Invariant: nothing is repaired here. Text that is not JSON is passed raw to the repair stage, which
records what it does. A call that was cut off stays cut off, so that it never runs.
"""

import re
from typing import NamedTuple

import msgspec

from windlass.core.json_repair.lenient import read_lenient
from windlass.core.json_repair.strict import ReadJson, read_strict

_ARGUMENT_KEYS = ("arguments", "parameters")
_FENCE = re.compile(r"```[a-zA-Z_]*[ \t]*\n(.*?)\s*```", re.DOTALL)
_NAME_FIELD = re.compile(r"""["']name["']\s*:\s*(?:"([^"\\\n]*)"|'([^'\\\n]*)')""")
_ARGUMENTS_KEY = re.compile(r"""["'](?:arguments|parameters)["']\s*:\s*""")
_STRING = re.compile(r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"')
_OPEN_STRING = re.compile(r'"[^"\\\n]*(?:\\.[^"\\\n]*)*\\?\Z')
_IN_STRING = re.compile(r'["\\]')
_OUT_OF_STRING = re.compile(r'["{}\[\]]')

_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class WrittenCall(NamedTuple):
    """A call as far as it can be read. A name that cannot be found is empty."""

    name: str
    arguments: str
    complete: bool
    """The text was one closed JSON object."""


def parse_call(body: str, *, cut: bool = False) -> WrittenCall:
    """Return the call that a text holds. `cut`: the text ended before the model was done."""
    text = strip_code_fence(body.strip())
    fields = _object_fields(text)
    if fields is None:
        return _guess_call(text, cut=cut)
    name = _decode_name(fields.pop("name", None))
    value = next((fields[key] for key in _ARGUMENT_KEYS if key in fields), None)
    if value is not None:
        arguments = bytes(value).decode()
        if arguments == "null":
            arguments = ""
        return WrittenCall(name, arguments, complete=True)
    # The arguments may be next to the name, without their own field. The tool's schema decides
    # whether they are, so the whole text is passed on.
    return WrittenCall(name, text if fields or not name else "", complete=True)


def strip_code_fence(text: str) -> str:
    """Return the content of a code fence if the text is one, else the text."""
    fenced = _FENCE.fullmatch(text)
    return fenced[1] if fenced else text


def ends_in_string(text: str) -> bool:
    """Whether JSON text ends inside a string, where a marker would be content."""
    return _OPEN_STRING.search(_STRING.sub("", text)) is not None


def _object_fields(text: str) -> dict[str, msgspec.Raw] | None:
    """Return the fields, verbatim, if the text is one JSON object."""
    match read_strict(text):
        case ReadJson(dict()) if text:
            return _decode_object(text)
        case _:
            return None


def _decode_name(value: msgspec.Raw | None) -> str:
    if value is None:
        return ""
    name: object = msgspec.json.decode(value)
    return name if isinstance(name, str) else ""


def _guess_call(text: str, *, cut: bool) -> WrittenCall:
    key = _ARGUMENTS_KEY.search(text)
    matches = list(_NAME_FIELD.finditer(text, 0, key.start() if key else len(text)))
    names = {match[1] or match[2] or "" for match in matches}
    # With two different names it is not clear which one is meant.
    name = names.pop() if len(names) == 1 else ""
    if key is None:
        rest = text[matches[0].end() :] if matches else text
        return WrittenCall(name, text if re.search(r"\w", rest) else "", complete=False)
    rest = text[key.end() :]
    if not cut:
        return WrittenCall(name, _trim_arguments(rest), complete=False)
    # Arguments of a cut call may look complete, but it is unknown what was to follow. The whole
    # text is passed on instead, so that they are refused.
    looks_complete = isinstance(read_strict(rest), ReadJson)
    return WrittenCall(name, text if looks_complete else rest, complete=False)


def _trim_arguments(rest: str) -> str:
    """Return the arguments at the end of an object, without the bracket that closes that object."""
    without_closer = rest.removesuffix("}").rstrip()
    for text in (without_closer, rest):
        found = read_lenient(text)
        if isinstance(found, ReadJson) and isinstance(found.value, dict) and not found.open:
            return text
    return without_closer


class BracketCounter:
    """Follows JSON as it streams, and finds where the value that began is closed."""

    __slots__ = ("_depth", "_in_string", "_is_escaped")

    def __init__(self, depth: int = 0) -> None:
        self._depth = depth
        self._in_string = False
        self._is_escaped = False

    def find_close(self, text: str, at: int = 0) -> int | None:
        """Return the position behind the last closing bracket; None if it has not come yet."""
        while at < len(text):
            if self._is_escaped:
                self._is_escaped = False
                at += 1
                continue
            found = (_IN_STRING if self._in_string else _OUT_OF_STRING).search(text, at)
            if found is None:
                return None
            at = found.end()
            match found[0]:
                case '"':
                    self._in_string = not self._in_string
                case "\\":
                    self._is_escaped = True
                case "{" | "[":
                    self._depth += 1
                case _:
                    self._depth -= 1
                    if self._depth <= 0:
                        return at
        return None
