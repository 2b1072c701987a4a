"""The text of a call's arguments in; arguments that are valid, or a refusal that teaches, out.

The law: what is valid is never changed, what is ambiguous is refused, what was cut off never runs.
Text is repaired first, then shape (R1); the schema has the last word on the result.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Literal, TypeAlias

import msgspec

from windlass.core.json_repair.coerce import complete, reshape
from windlass.core.json_repair.lenient import read
from windlass.core.json_repair.strict import Read, strict
from windlass.core.messages import Change
from windlass.core.schema import Fault, Json, Schema, faults, label, measure, outline

MESSAGE_MAX = 1_200
"""Characters of a refusal."""
FIELDS_MAX = 12
"""Received fields that a refusal names."""

Code: TypeAlias = Literal["invalid_arguments", "arguments_truncated"]


class Prepared(msgspec.Struct, frozen=True):
    """Arguments that fit the schema, and what was repaired to make them so."""

    arguments: dict[str, Json]
    changes: tuple[Change, ...] = ()


class Refused(msgspec.Struct, frozen=True):
    """No arguments; the message is for the model and holds nothing of what it sent."""

    code: Code
    message: str


def prepare(text: str, schema: Schema, *, cut: bool = False) -> Prepared | Refused:
    """Arguments from the text of a call. `cut`: the reply that holds it ended by length (R2)."""
    if cut and not text.strip():
        return _truncated(text, schema)
    match strict(text):
        case Read(dict() as arguments, changes):
            if schema.accepts(arguments):
                return Prepared(arguments, changes)
            return _reshaped(Read(arguments, changes), schema)
        case _ if cut:
            return _truncated(text, schema)
        case _:
            pass
    found = read(text)
    if isinstance(found, Read):
        return _reshaped(found, schema)
    if found.cut:
        return _truncated(text, schema)
    return _refused("invalid_arguments", f"Received: {len(text)} characters, {found.why}.", schema)


def _reshaped(found: Read, schema: Schema) -> Prepared | Refused:
    value, changes = reshape(schema, found.value)
    if isinstance(value, dict) and schema.accepts(value):
        if complete(schema.node, schema.node, value, found.open):
            return Prepared(value, (*found.changes, *changes))
    elif not found.open:
        return _invalid(found.value, faults(schema, value), schema)
    return _refused(
        "arguments_truncated",
        "The arguments end before they are closed, and fields may be missing. Send them whole.",
        schema,
    )


def _truncated(text: str, schema: Schema) -> Refused:
    said = f"The arguments were cut off after {len(text)} characters. Send them whole, or in parts."
    return _refused("arguments_truncated", said, schema)


def _invalid(received: Json, found: Iterable[Fault], schema: Schema) -> Refused:
    said = "; ".join(f"{fault.path}: {fault.message}" for fault in found)
    return _refused("invalid_arguments", f"Received: {_received(received)}. Wrong: {said}.", schema)


def _received(value: Json) -> str:
    if not isinstance(value, dict) or not value:
        return measure(value)
    fields = [f"{label(name)}: {measure(item)}" for name, item in islice(value.items(), FIELDS_MAX)]
    rest = len(value) - len(fields)
    return ", ".join(fields) + (f" and {rest} more" if rest else "")


def _refused(code: Code, said: str, schema: Schema) -> Refused:
    message = f"{said[: MESSAGE_MAX // 2]} Expected: {outline(schema)}."
    return Refused(
        code, message if len(message) <= MESSAGE_MAX else f"{message[: MESSAGE_MAX - 1]}…"
    )
