"""A call that a model wrote out as JSON text: its name, and its arguments as they stand.

The law: nothing is mended here. What is no JSON goes on as raw text to the repair stage, which
keeps a record of what it does (R4); what was cut off stays cut, so that it never runs (R2).
"""

import re
from typing import NamedTuple

import msgspec

from windlass.core.json_repair.lenient import read_lenient
from windlass.core.json_repair.strict import ReadJson, read_strict

_ARGUMENTS = ("arguments", "parameters")
_FENCE = re.compile(r"```[a-zA-Z_]*[ \t]*\n(.*?)\s*```", re.DOTALL)
_NAME_FIELD = re.compile(r"""["']name["']\s*:\s*(?:"([^"\\\n]*)"|'([^'\\\n]*)')""")
_ARGUMENTS_KEY = re.compile(r"""["'](?:arguments|parameters)["']\s*:\s*""")
_STRING = re.compile(r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"')
_OPEN_STRING = re.compile(r'"[^"\\\n]*(?:\\.[^"\\\n]*)*\\?\Z')
_INSIDE = re.compile(r'["\\]')
_OUTSIDE = re.compile(r'["{}\[\]]')

_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class WrittenCall(NamedTuple):
    """A call as far as it can be read; a name that cannot be found is empty."""

    name: str
    arguments: str
    complete: bool
    """The text was one JSON object, closed."""


def parse_call(body: str, *, cut: bool = False) -> WrittenCall:
    """The call that a text holds. `cut`: the text ended before its writer was done."""
    text = strip_code_fence(body.strip())
    fields = _object_fields(text)
    if fields is None:
        return _guess_call(text, cut=cut)
    name = _decode_name(fields.pop("name", None))
    value = next((fields[key] for key in _ARGUMENTS if key in fields), None)
    if value is not None:
        arguments = bytes(value).decode()
        return WrittenCall(name, "" if arguments == "null" else arguments, complete=True)
    # The arguments may stand where the name does; that is for the schema to say.
    return WrittenCall(name, text if fields or not name else "", complete=True)


def strip_code_fence(text: str) -> str:
    """What is inside a code fence, if the text is one."""
    fenced = _FENCE.fullmatch(text)
    return fenced[1] if fenced else text


def ends_in_string(text: str) -> bool:
    """Whether JSON text ends inside a string, where a marker is content."""
    return _OPEN_STRING.search(_STRING.sub("", text)) is not None


def _object_fields(text: str) -> dict[str, msgspec.Raw] | None:
    """The fields of the one object that a text is, verbatim."""
    match read_strict(text):
        case ReadJson(dict()) if text:
            return _decode_object(text)
        case _:
            return None


def _decode_name(value: msgspec.Raw | None) -> str:
    name: object = msgspec.json.decode(value) if value is not None else ""
    return name if isinstance(name, str) else ""


def _guess_call(text: str, *, cut: bool) -> WrittenCall:
    key = _ARGUMENTS_KEY.search(text)
    names = list(_NAME_FIELD.finditer(text, 0, key.start() if key else len(text)))
    said = {name[1] or name[2] or "" for name in names}
    called = said.pop() if len(said) == 1 else ""  # Two names are none.
    if key is None:
        rest = text[names[0].end() :] if names else text
        return WrittenCall(called, text if re.search(r"\w", rest) else "", complete=False)
    rest = text[key.end() :]
    if not cut:
        return WrittenCall(called, _trim_arguments(rest), complete=False)
    # Arguments that look whole are not: nobody knows what was to follow.
    looks_whole = isinstance(read_strict(rest), ReadJson)
    return WrittenCall(called, text if looks_whole else rest, complete=False)


def _trim_arguments(rest: str) -> str:
    """The arguments at the end of an object, with or without the closer of that object."""
    without = rest.removesuffix("}").rstrip()
    for text in (without, rest):
        found = read_lenient(text)
        if isinstance(found, ReadJson) and isinstance(found.value, dict) and not found.open:
            return text
    return without


class BracketCounter:
    """Follows JSON as it streams, and tells where the value that began is closed."""

    __slots__ = ("_depth", "_escaped", "_string")

    def __init__(self, depth: int = 0) -> None:
        self._depth = depth
        self._string = False
        self._escaped = False

    def find_close(self, text: str) -> int | None:
        """The place in this text right behind the last closer; None if that is yet to come."""
        at = 0
        while at < len(text):
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            found = (_INSIDE if self._string else _OUTSIDE).search(text, at)
            if found is None:
                return None
            at = found.end()
            match found[0]:
                case '"':
                    self._string = not self._string
                case "\\":
                    self._escaped = True
                case "{" | "[":
                    self._depth += 1
                case _:
                    self._depth -= 1
                    if self._depth <= 0:
                        return at
        return None
