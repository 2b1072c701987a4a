"""JSON to Cedar: arguments as values that Cedar has, with nothing in them that it reads as its own.

    text, true and false, whole numbers of 64 bits     as they are
    other numbers, and arguments declared `number`     decimal, if four places hold it
    a list                                             a set: order and repetition are lost
    an object                                          a record; what is null in it is left out
    null in a list, numbers that do not fit            a record, {"unfit": "null"}

The law: no value becomes another one that a condition would take for what it wants. A record in the
place of a number makes it an error to compare it, and an error denies. What the model writes is
data: the keys by which Cedar's JSON names entities and functions are refused.
"""

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, cast

from windlass.core.messages import ToolSpec

DEPTH_MAX = 48
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
PLACES = 4
ESCAPES = frozenset(["__entity", "__extn", "__expr"])


class Unfit(ValueError):
    """What cannot be put to Cedar at all."""


def arguments_of(tool: ToolSpec, arguments: Mapping[str, Any]) -> dict[str, object]:
    """The arguments of a call. Those that the tool calls numbers are decimals, however written."""
    known: Any = tool.parameters.get("properties")
    fields = cast("dict[str, Any]", known) if isinstance(known, dict) else {}
    numbers = {name for name, field in fields.items() if _is_number(field)}
    return {
        name: _decimal(value) if name in numbers and _is_count(value) else cedar_value(value, 1)
        for name, value in _fields(arguments).items()
    }


def cedar_value(value: object, depth: int = 0) -> object:
    """A value in Cedar's own JSON; raises Unfit."""
    if depth > DEPTH_MAX:
        raise Unfit("it is nested too deeply")
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if LONG_MIN <= value <= LONG_MAX else _unfit(str(value))
    if isinstance(value, float):
        return _decimal(value)
    if value is None:
        return _unfit("null")
    if isinstance(value, Mapping):
        fields = _fields(cast("Mapping[object, object]", value))
        return {name: cedar_value(one, depth + 1) for name, one in fields.items()}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes | bytearray):
        items = cast("Sequence[object]", value)
        return [cedar_value(one, depth + 1) for one in items]
    raise Unfit(f"a {type(value).__name__} is nothing that Cedar has")


def _fields(record: Mapping[Any, Any]) -> dict[str, Any]:
    """The fields of a record. Null is what is not given, as it is to the tools."""
    for name in record:
        if not isinstance(name, str):
            raise Unfit("the name of a field is no text")
        if name in ESCAPES:
            raise Unfit(f"{name!r} is a word of Cedar's own")
    return {_text(name): value for name, value in record.items() if value is not None}


def _text(text: str) -> str:
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise Unfit("a text in it is no Unicode")
    return text


def _is_number(field: object) -> bool:
    if not isinstance(field, dict):
        return False
    known = cast("dict[str, Any]", field)
    kinds: Any = known.get("type")
    either: Any = known.get("anyOf") or known.get("oneOf") or ()
    return kinds == "number" or "number" in (kinds or ()) or any(map(_is_number, either))


def _is_count(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _decimal(value: float) -> object:
    """The decimal of a number, as it is written; unfit if four places do not hold it."""
    if not math.isfinite(value):
        return _unfit(str(value))
    exact = Decimal(str(value))
    scaled = exact.scaleb(PLACES)
    if scaled != scaled.to_integral_value() or not LONG_MIN <= scaled <= LONG_MAX:
        return _unfit(str(value))
    return {"__extn": {"fn": "decimal", "arg": f"{exact:.{PLACES}f}"}}


def _unfit(text: str) -> dict[str, object]:
    return {"unfit": text}
