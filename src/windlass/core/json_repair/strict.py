"""JSON as it stands: one value out of a text, or the reason why there is none.

The law: no member of an object is lost. Most readers let the last of two fields with one name win;
here two that say the same are one, and two that differ have no meaning.
"""

import json
import re

import msgspec

from windlass.core.json_repair.strings import Unreadable
from windlass.core.messages import Change
from windlass.core.schema import Json, Path, spot

CHANGES_MAX = 100
"""Repairs of one call that are told one by one."""


DEPTH_MAX = 100
"""Containers within containers. No tool needs more."""
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)


class Read(msgspec.Struct, frozen=True):
    """A value, and what had to be overlooked to read it."""

    value: Json
    changes: tuple[Change, ...] = ()
    open: int = 0
    """Containers that the text left open at its very end, after a whole value."""


class Broken(msgspec.Struct, frozen=True):
    """Text without one reading."""

    why: str
    cut: bool = False


def strict(text: str) -> Read | Broken:
    """JSON as it stands. An empty buffer is `{}`; a field that is said twice must say the same."""
    if not text or text.isspace():
        return Read({})
    if _depth(text) > DEPTH_MAX:
        return Broken("nested too deeply")
    try:
        value: Json = msgspec.json.decode(text)
        # Each field has a colon: with no more colons than fields, none was lost.
        if isinstance(value, dict) and text.count(":") == len(value):
            return Read(value)
        return Read(value, _twice(text))
    except Unreadable as stop:
        return Broken(stop.why)
    except RecursionError:
        return Broken("nested too deeply")
    except ValueError:  # also what msgspec raises, and lone surrogates
        return Broken("not JSON")


def _depth(text: str) -> int:
    """How deep the text may be nested. A bound of our own: Python's depends on who calls."""
    if text.count("{") + text.count("[") <= DEPTH_MAX:
        return 0
    depth = deepest = 0
    for sign in _STRUCTURE.findall(text):
        depth += 1 if sign in "{[" else -1 if sign in "}]" else 0
        deepest = max(deepest, depth)
    return deepest


def note(changes: list[Change], path: Path, what: str) -> None:
    """Add a repair to a record that stays short however many there are."""
    if len(changes) < CHANGES_MAX:
        changes.append(Change(spot(path), what))
    elif len(changes) == CHANGES_MAX:
        changes.append(Change("arguments", "more repairs of these kinds"))


def same(one: Json, other: Json) -> bool:
    """Equal as JSON: `1` is neither `true` nor `1.0`."""
    return msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")


class _Twice(Exception):
    """Some object has two fields of one name."""


def _twice(text: str) -> tuple[Change, ...]:
    try:
        _UNIQUE.decode(text)
    except _Twice:
        twice: list[Change] = []
        json.loads(text, object_pairs_hook=lambda pairs: _joined(pairs, twice))
        return tuple(twice)
    return ()


def _unique(pairs: list[tuple[str, Json]]) -> None:
    if len(dict(pairs)) != len(pairs):
        raise _Twice


_UNIQUE = json.JSONDecoder(object_pairs_hook=_unique)


def _joined(pairs: list[tuple[str, Json]], twice: list[Change]) -> Json:
    fields: dict[str, Json] = {}
    for key, value in pairs:
        put(fields, key, value, (key,), twice)
    return fields


def put(fields: dict[str, Json], key: str, value: Json, at: Path, twice: list[Change]) -> None:
    """Add a field to an object that is being read."""
    if key in fields:
        if not same(fields[key], value):
            raise Unreadable("a field is given twice, with different values")
        note(twice, at, "the same field given twice")
    fields[key] = value
