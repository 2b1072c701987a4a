"""What is wrong with a value that does not fit its schema, in words for the model."""

from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from windlass.core.schema import (
    FAULTS_MAX,
    JSON_FENCE,
    JsonSchema,
    SchemaFault,
    ValuePath,
    declared_fields,
    describe_size,
    field_label,
    format_literal,
    format_path,
    simple_schemas,
)
from windlass.core.schema_work import JsonValue, SchemaNode
from windlass.core.suggestions import find_near_names

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

MISFIT_CHARS_MAX = 600
FIELDS_SHOWN_MAX = 20
"""How many known fields of an inner object an error lists."""
KEYWORD_PHRASES = {
    "type": "expected {}",
    "enum": "expected one of {}",
    "const": "expected {}",
    "format": "expected the format {}",
    "pattern": "must match the pattern {}",
    "minimum": "must be at least {}",
    "maximum": "must be at most {}",
    "exclusiveMinimum": "must be more than {}",
    "exclusiveMaximum": "must be less than {}",
    "multipleOf": "must be a multiple of {}",
    "minLength": "must have at least {} characters",
    "maxLength": "must have at most {} characters",
    "minItems": "must have at least {} items",
    "maxItems": "must have at most {} items",
    "minProperties": "must have at least {} fields",
    "maxProperties": "must have at most {} fields",
}
"""What a keyword requires, with a place for its own value in the schema."""
FIXED_PHRASES = {
    "anyOf": "fits none of the allowed shapes",
    "oneOf": "fits none, or more than one, of the allowed shapes",
    "falseSchema": "has fields or items that do not exist",
    "not": "has a shape that is ruled out",
    "uniqueItems": "must have no item twice",
    "propertyNames": "has a field whose name is not allowed",
}
"""What a keyword requires, if its value is too long to show, or would show the content."""


def describe_misfit(node: SchemaNode, text: str) -> str | None:
    """Return what is wrong with a reply that must be JSON of a schema; None if it fits.

    The words are for the model. JSON inside of a Markdown fence counts.
    """
    fenced = JSON_FENCE.fullmatch(text)
    try:
        value = msgspec.json.decode(fenced.group(1) if fenced else text)
    except (msgspec.DecodeError, RecursionError) as error:
        problem = str(error)
    else:
        faults = find_faults(JsonSchema(node), value)
        if not faults:
            return None
        problem = "; ".join(f"{fault.path}: {fault.message}" for fault in faults[:3])
    problem = problem[:MISFIT_CHARS_MAX]
    return f"Your reply does not fit the schema: {problem}. Reply with only the JSON value."


def find_faults(schema: JsonSchema, value: JsonValue) -> tuple[SchemaFault, ...]:
    """Return the first few errors of a value."""
    unlisted = schema.find_unlisted_fault(value)
    if unlisted is not None:
        return (unlisted,)
    return tuple(
        _describe_error(_find_cause(error), value, schema)
        for error in islice(schema.iter_errors(value), FAULTS_MAX)
    )


def _find_cause(error: "ValidationError") -> "ValidationError":
    """Return the error inside a union if only one of its shapes was meant.

    A shape of another type, such as the null of an optional object, was not.
    """
    if error.kind.name not in {"anyOf", "oneOf"}:
        return error
    branches: list[list[ValidationError]] = getattr(error.kind, "context", None) or []
    place = error.instance_path
    meant = [
        errors
        for errors in branches
        if not any(one.kind.name == "type" and one.instance_path == place for one in errors)
    ]
    if len(meant) != 1 or not meant[0]:
        return error
    return _find_cause(meant[0][0])


def _describe_error(error: "ValidationError", value: JsonValue, schema: JsonSchema) -> SchemaFault:
    path = error.instance_path
    keyword = error.kind.name
    rule: JsonValue = error.kind.value
    if keyword == "required":
        return SchemaFault(format_path([*path, str(rule)]), "is required and missing")
    if keyword in {"additionalProperties", "unevaluatedProperties"}:
        fields = _fields_at(schema.node, path)
        unknown = [str(name) for name in _as_list(rule)[:FAULTS_MAX]]
        names = ", ".join(_name_unknown(name, fields, is_nested=bool(path)) for name in unknown)
        return SchemaFault(format_path(path), f"has fields that do not exist: {names}")
    if keyword in KEYWORD_PHRASES:
        is_type = keyword == "type"
        if is_type:
            value_text = " or ".join(map(str, _as_list(rule)))
        else:
            value_text = format_literal(rule)
        wanted = KEYWORD_PHRASES[keyword].format(value_text)
    else:
        wanted = FIXED_PHRASES.get(keyword, f"breaks the rule {keyword!r}")
    return SchemaFault(format_path(path), f"{wanted}, got {describe_size(_value_at(value, path))}")


def _name_unknown(name: str, fields: list[str], *, is_nested: bool) -> str:
    """Return an unknown field with the names that may have been meant.

    The fields of the arguments themselves are listed behind all errors anyway.
    """
    near = find_near_names(name, fields)
    if near:
        return f"{field_label(name)} (did you mean {' or '.join(map(field_label, near))}?)"
    if is_nested and fields:
        known = ", ".join(map(field_label, fields[:FIELDS_SHOWN_MAX]))
        return f"{field_label(name)} (known: {known})"
    return field_label(name)


def _fields_at(root: SchemaNode, path: ValuePath) -> list[str]:
    """Return the names of the fields that the objects at a place of a value may have."""
    nodes = simple_schemas(root, root)
    for step in path:
        inner = [_inner_schema(node, step) for node in nodes]
        nodes = tuple(found for node in inner for found in simple_schemas(root, node))
    return sorted({name for node in nodes for name in declared_fields(node)})


def _inner_schema(node: SchemaNode, step: str | int) -> JsonValue:
    """Return the schema of a field or an item."""
    if isinstance(step, int):
        return node.get("items")
    return declared_fields(node).get(step, node.get("additionalProperties"))


def _as_list(rule: JsonValue) -> list[JsonValue]:
    return rule if isinstance(rule, list) else [rule]


def _value_at(value: JsonValue, path: ValuePath) -> JsonValue:
    for step in path:
        if isinstance(value, list):
            value = value[int(step)]
        else:
            value = _field_of(value, str(step))
    return value


def _field_of(value: JsonValue, name: str) -> JsonValue:
    if isinstance(value, dict):
        return value.get(name)
    return None
