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
DECIMAL_PLACES = 4
RESERVED_KEYS = frozenset(["__entity", "__extn", "__expr"])


class CedarValueError(ValueError):
    """What cannot be put to Cedar at all."""


def cedar_arguments(tool: ToolSpec, arguments: Mapping[str, Any]) -> dict[str, object]:
    """The arguments of a call. Those that the tool calls numbers are decimals, however written."""
    known: Any = tool.parameters.get("properties")
    fields = cast("dict[str, Any]", known) if isinstance(known, dict) else {}
    numbers = {name for name, field in fields.items() if _is_number_schema(field)}
    return {
        name: _to_decimal(value)
        if name in numbers and _is_plain_number(value)
        else cedar_value(value, 1)
        for name, value in _record_fields(arguments).items()
    }


def cedar_value(value: object, depth: int = 0) -> object:
    """A value in Cedar's own JSON; raises Unfit."""
    if depth > DEPTH_MAX:
        raise CedarValueError("it is nested too deeply")
    if isinstance(value, str):
        return _check_text(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if LONG_MIN <= value <= LONG_MAX else _unfit_record(str(value))
    if isinstance(value, float):
        return _to_decimal(value)
    if value is None:
        return _unfit_record("null")
    if isinstance(value, Mapping):
        fields = _record_fields(cast("Mapping[object, object]", value))
        return {name: cedar_value(one, depth + 1) for name, one in fields.items()}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes | bytearray):
        items = cast("Sequence[object]", value)
        return [cedar_value(one, depth + 1) for one in items]
    raise CedarValueError(f"a {type(value).__name__} is nothing that Cedar has")


def _record_fields(record: Mapping[Any, Any]) -> dict[str, Any]:
    """The fields of a record. Null is what is not given, as it is to the tools."""
    for name in record:
        if not isinstance(name, str):
            raise CedarValueError("the name of a field is no text")
        if name in RESERVED_KEYS:
            raise CedarValueError(f"{name!r} is a word of Cedar's own")
    return {_check_text(name): value for name, value in record.items() if value is not None}


def _check_text(text: str) -> str:
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise CedarValueError("a text in it is no Unicode")
    return text


def _is_number_schema(field: object) -> bool:
    if not isinstance(field, dict):
        return False
    known = cast("dict[str, Any]", field)
    kinds: Any = known.get("type")
    either: Any = known.get("anyOf") or known.get("oneOf") or ()
    return kinds == "number" or "number" in (kinds or ()) or any(map(_is_number_schema, either))


def _is_plain_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _to_decimal(value: float) -> object:
    """The decimal of a number, as it is written; unfit if four places do not hold it."""
    if not math.isfinite(value):
        return _unfit_record(str(value))
    exact = Decimal(str(value))
    scaled = exact.scaleb(DECIMAL_PLACES)
    if scaled != scaled.to_integral_value() or not LONG_MIN <= scaled <= LONG_MAX:
        return _unfit_record(str(value))
    return {"__extn": {"fn": "decimal", "arg": f"{exact:.{DECIMAL_PLACES}f}"}}


def _unfit_record(text: str) -> dict[str, object]:
    return {"unfit": text}
