"""JSON to Cedar: arguments as Cedar values, with nothing in them that Cedar reads as code.

    text, true and false, whole numbers of 64 bits     as they are
    other numbers, and arguments declared `number`     decimal, if four decimal places are enough
    a list                                             a set: order and repetition are lost
    an object                                          a record; its null fields are left out
    null in a list, numbers that do not fit            a record, {"unfit": "null"}

Invariant: no value turns into another one that could satisfy a condition. Where a number does not
fit, there is a record: comparing it is an error, and an error denies. What the model writes is
data: the keys by which Cedar's JSON names entities and functions are refused.
"""

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, cast

from windlass.core.messages import ToolSpec

DEPTH_MAX = 48
LONG_MIN = -(2**63)
LONG_MAX = 2**63 - 1
DECIMAL_PLACES = 4
RESERVED_KEYS = frozenset(["__entity", "__extn", "__expr"])


class CedarValueError(ValueError):
    """A value that cannot be passed to Cedar at all."""


def cedar_arguments(tool: ToolSpec, arguments: Mapping[str, Any]) -> dict[str, object]:
    """The arguments of a call. Those declared as numbers are decimals, even if written as `1`."""
    properties: Any = tool.parameters.get("properties")
    if isinstance(properties, dict):
        schemas = cast("dict[str, Any]", properties)
    else:
        schemas = {}
    numbers = {name for name, schema in schemas.items() if _is_number_schema(schema)}
    values: dict[str, object] = {}
    for name, value in _record_fields(arguments).items():
        if name in numbers and isinstance(value, int | float) and not isinstance(value, bool):
            values[name] = _to_decimal(value)
        else:
            values[name] = cedar_value(value, 1)
    return values


def cedar_value(value: object, depth: int = 0) -> object:
    """A value in Cedar's own JSON. Raises CedarValueError."""
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
        return {name: cedar_value(field, depth + 1) for name, field in fields.items()}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes | bytearray):
        items = cast("Sequence[object]", value)
        return [cedar_value(item, depth + 1) for item in items]
    raise CedarValueError(f"Cedar has no value for a {type(value).__name__}")


def _record_fields(record: Mapping[Any, Any]) -> dict[str, Any]:
    """The fields of a record, without those that are null: tools treat these as not given, too."""
    for name in record:
        if not isinstance(name, str):
            raise CedarValueError("the name of a field is not text")
        if name in RESERVED_KEYS:
            raise CedarValueError(f"{name!r} is a reserved word of Cedar")
    return {_check_text(name): value for name, value in record.items() if value is not None}


def _check_text(text: str) -> str:
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise CedarValueError("a text in it is not valid Unicode")
    return text


def _is_number_schema(field: object) -> bool:
    if not isinstance(field, dict):
        return False
    schema = cast("dict[str, Any]", field)
    kinds: Any = schema.get("type")
    choices: Any = schema.get("anyOf") or schema.get("oneOf") or ()
    return kinds == "number" or "number" in (kinds or ()) or any(map(_is_number_schema, choices))


def _to_decimal(value: float) -> object:
    """The number as a decimal; a record that says `unfit` if four places are not enough."""
    if not math.isfinite(value):
        return _unfit_record(str(value))
    exact = Decimal(str(value))
    scaled = exact.scaleb(DECIMAL_PLACES)
    if scaled != scaled.to_integral_value() or not LONG_MIN <= scaled <= LONG_MAX:
        return _unfit_record(str(value))
    return {"__extn": {"fn": "decimal", "arg": f"{exact:.{DECIMAL_PLACES}f}"}}


def _unfit_record(text: str) -> dict[str, object]:
    return {"unfit": text}
