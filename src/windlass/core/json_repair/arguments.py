"""The text of a call's arguments in; valid arguments, or a refusal that explains itself, out.

Invariant: valid arguments are never changed, ambiguous ones are refused, truncated ones never run.
The text is repaired first, then the shape. The schema has the last word on the result.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Literal, TypeAlias

import msgspec

from windlass.core.json_repair.coerce import coerce_to_schema, is_complete
from windlass.core.json_repair.lenient import read_lenient
from windlass.core.json_repair.strict import ReadJson, read_strict
from windlass.core.messages import ArgumentChange
from windlass.core.schema import (
    JsonSchema,
    JsonValue,
    SchemaFault,
    describe_size,
    field_label,
    outline_schema,
)
from windlass.core.schema_faults import find_faults

MESSAGE_MAX = 1_200
"""The most characters of a refusal."""
FIELDS_MAX = 12
"""The most received fields that a refusal names."""

RefusalCode: TypeAlias = Literal["invalid_arguments", "arguments_truncated"]


class PreparedArguments(msgspec.Struct, frozen=True):
    """Arguments that fit the schema, and what was repaired to make them so."""

    arguments: dict[str, JsonValue]
    changes: tuple[ArgumentChange, ...] = ()


class RefusedArguments(msgspec.Struct, frozen=True):
    """Arguments that cannot be used. The message is for the model, and repeats nothing it sent."""

    code: RefusalCode
    message: str


def prepare_arguments(
    text: str, schema: JsonSchema, *, cut: bool = False
) -> PreparedArguments | RefusedArguments:
    """Read the arguments of a call. `cut`: its reply was cut off at the output limit."""
    if cut and not text.strip():
        return _refuse_truncated(text, schema)
    match read_strict(text):
        case ReadJson(dict() as arguments, changes):
            if schema.accepts(arguments):
                return PreparedArguments(arguments, changes)
            return _prepare_reshaped(ReadJson(arguments, changes), schema)
        case _ if cut:
            return _refuse_truncated(text, schema)
        case _:
            pass
    found = read_lenient(text)
    if isinstance(found, ReadJson):
        return _prepare_reshaped(found, schema)
    if found.cut:
        return _refuse_truncated(text, schema)
    return _build_refusal(
        "invalid_arguments", f"Received: {len(text)} characters, {found.why}.", schema
    )


def _prepare_reshaped(found: ReadJson, schema: JsonSchema) -> PreparedArguments | RefusedArguments:
    value, changes = coerce_to_schema(schema, found.value)
    if isinstance(value, dict) and schema.accepts(value):
        if is_complete(schema.node, schema.node, value, found.open):
            return PreparedArguments(value, (*found.changes, *changes))
    elif not found.open:
        return _refuse_invalid(found.value, find_faults(schema, value), schema)
    return _build_refusal(
        "arguments_truncated",
        "The arguments end before they are closed, and fields may be missing. Send them whole.",
        schema,
    )


def _refuse_truncated(text: str, schema: JsonSchema) -> RefusedArguments:
    said = f"The arguments were cut off after {len(text)} characters. Send them whole, or in parts."
    return _build_refusal("arguments_truncated", said, schema)


def _refuse_invalid(
    received: JsonValue, found: Iterable[SchemaFault], schema: JsonSchema
) -> RefusedArguments:
    said = "; ".join(f"{fault.path}: {fault.message}" for fault in found)
    return _build_refusal(
        "invalid_arguments", f"Received: {_describe_received(received)}. Wrong: {said}.", schema
    )


def _describe_received(value: JsonValue) -> str:
    if not isinstance(value, dict) or not value:
        return describe_size(value)
    fields = [
        f"{field_label(name)}: {describe_size(item)}"
        for name, item in islice(value.items(), FIELDS_MAX)
    ]
    rest = len(value) - len(fields)
    return ", ".join(fields) + (f" and {rest} more" if rest else "")


def _build_refusal(code: RefusalCode, said: str, schema: JsonSchema) -> RefusedArguments:
    message = f"{said[: MESSAGE_MAX // 2]} Expected: {outline_schema(schema)}."
    return RefusedArguments(
        code, message if len(message) <= MESSAGE_MAX else f"{message[: MESSAGE_MAX - 1]}…"
    )
