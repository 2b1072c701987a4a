"""Read strict JSON: one value from a text, or the reason why there is none.

Invariant: no member of an object is lost. Most readers let the last of two fields with one name
win. Here two equal ones count as one, and two that differ are refused.
"""

import json
import re

import msgspec

from windlass.core.json_bounds import has_many_keys
from windlass.core.json_repair.strings import UnreadableJson
from windlass.core.messages import ArgumentChange
from windlass.core.schema import JsonValue, ValuePath, format_path

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
    """Add a repair to a list that stays short however many there are."""
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
