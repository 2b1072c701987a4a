"""JSON Schemas of tools: is a value valid, what is wrong with it, what was expected.

The law: a message about a value never contains the value. It names types, sizes and what the schema
requires, because it reaches models, journals and logs (T9).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from windlass.core.errors import ConfigError

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | float | bool | None"
SchemaNode: TypeAlias = dict[str, JsonValue]
"""A schema, or a part of one, as plain JSON."""
ValuePath: TypeAlias = Sequence[str | int]
"""The field names and indexes that lead to a value."""

FAULTS_MAX = 5
NODES_MAX = 10_000
"""In a larger value only the first error is looked for: the validator collects all errors before it
returns the first, at 10 µs each."""
OUTLINE_DEPTH_MAX = 3
OPTIONS_MAX = 12
LITERAL_MAX = 200
FIELD_NAME = re.compile(r"[A-Za-z_$@][\w.$-]{0,39}")

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


class SchemaError(ConfigError):
    """A tool's schema is not a JSON Schema."""


class SchemaFault(msgspec.Struct, frozen=True):
    """One error in a value: where it is, and what was expected there."""

    path: str
    message: str


class JsonSchema:
    """A JSON Schema, checked and compiled once. References are never fetched from the network."""

    __slots__ = ("_validator", "node")

    def __init__(self, node: SchemaNode) -> None:
        """Compile a schema. Raises SchemaError if it is not a JSON Schema."""
        # Imported here, because it takes 11 ms and a program without tools does not need it.
        from jsonschema_rs import ValidationError, validator_for  # noqa: PLC0415

        self.node = node
        try:
            self._validator: Validator = validator_for(node, offline=True, mask="it")
        except ValidationError as error:
            raise SchemaError(
                f"not a JSON Schema at {format_path(error.instance_path)}: {error.message}"
            ) from None
        except (ValueError, RecursionError) as error:
            raise SchemaError(f"not a JSON Schema: {error}") from None

    def accepts(self, value: JsonValue) -> bool:
        """Whether a value is valid."""
        return self._validator.is_valid(value)

    def iter_errors(self, value: JsonValue) -> Iterator["ValidationError"]:
        """Iterate over the errors of a value; only the first one if the value is large."""
        if has_more_nodes(value, NODES_MAX):
            return self._iter_first_error(value)
        return self._validator.iter_errors(value)

    def _iter_first_error(self, value: JsonValue) -> Iterator["ValidationError"]:
        from jsonschema_rs import ValidationError  # noqa: PLC0415

        try:
            self._validator.validate(value)
        except ValidationError as error:
            yield error


def find_faults(schema: JsonSchema, value: JsonValue) -> tuple[SchemaFault, ...]:
    """Return the first few errors of a value."""
    return tuple(
        _describe_error(error, value) for error in islice(schema.iter_errors(value), FAULTS_MAX)
    )


def _describe_error(error: "ValidationError", value: JsonValue) -> SchemaFault:
    path = error.instance_path
    keyword = error.kind.name
    rule: JsonValue = error.kind.value
    if keyword == "required":
        return SchemaFault(format_path([*path, str(rule)]), "is required and missing")
    if keyword in {"additionalProperties", "unevaluatedProperties"}:
        names = ", ".join(field_label(str(name)) for name in _as_list(rule)[:FAULTS_MAX])
        return SchemaFault(format_path(path), f"has fields that do not exist: {names}")
    if keyword in KEYWORD_PHRASES:
        is_type = keyword == "type"
        value_text = " or ".join(map(str, _as_list(rule))) if is_type else _format_literal(rule)
        wanted = KEYWORD_PHRASES[keyword].format(value_text)
    else:
        wanted = FIXED_PHRASES.get(keyword, f"breaks the rule {keyword!r}")
    return SchemaFault(format_path(path), f"{wanted}, got {describe_size(_value_at(value, path))}")


def _as_list(rule: JsonValue) -> list[JsonValue]:
    return rule if isinstance(rule, list) else [rule]


def _value_at(value: JsonValue, path: ValuePath) -> JsonValue:
    for step in path:
        value = value[int(step)] if isinstance(value, list) else _field_of(value, str(step))
    return value


def _field_of(value: JsonValue, name: str) -> JsonValue:
    if isinstance(value, dict):
        return value.get(name)
    return None


def has_more_nodes(value: JsonValue, nodes_max: int) -> bool:
    """Whether a value has more nodes than this. No more than that are visited."""
    left = nodes_max
    stack = [value]
    while stack and left >= 0:
        left -= 1
        match stack.pop():
            case dict() as fields:
                stack.extend(islice(fields.values(), nodes_max + 1))
            case list() as items:
                stack.extend(items[: nodes_max + 1])
            case _:
                pass
    return left < 0


def json_type_of(value: JsonValue) -> str:
    """Return the narrowest JSON Schema type of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def describe_size(value: JsonValue) -> str:
    """Return the type and the size of a value, and nothing of its content."""
    match value:
        case str():
            return f"string of {len(value)} characters"
        case list():
            return f"list of {len(value)} items"
        case dict():
            return f"object of {len(value)} fields"
        case _:
            return json_type_of(value)


def field_label(name: str) -> str:
    """Return the name of a field, or only its length if it looks like content."""
    if FIELD_NAME.fullmatch(name):
        return name
    return f"<name of {len(name)} characters>"


def format_path(path: ValuePath) -> str:
    """Return a path as text: `edits[0].old`, or `arguments` for the whole value."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{field_label(part)}" for part in path)
    return "".join(parts).removeprefix(".") or "arguments"


def simple_schemas(root: SchemaNode, node: JsonValue, depth: int = 8) -> tuple[SchemaNode, ...]:
    """Return the simple schemas of which a value has to fit one.

    References are followed, unions and lists of types are expanded. A schema that is too deep or
    too complex becomes `{}`, which fits anything: the validator has the last word anyway.
    """
    if not isinstance(node, dict) or depth == 0:
        return ({},)
    match node:
        case {"$ref": str() as ref}:
            return simple_schemas(root, _resolve_reference(root, ref), depth - 1)
        case {"type": list() as kinds}:
            return tuple({**node, "type": kind} for kind in kinds)
        case {"type": _} | {"properties": _}:
            return (node,)
        case {"anyOf": list() as spread} | {"oneOf": list() as spread} | {"allOf": [*spread]}:
            if "allOf" in node and len(spread) != 1:
                return ({},)
            return tuple(leaf for part in spread for leaf in simple_schemas(root, part, depth - 1))
        case _:
            return (node,)


def _resolve_reference(root: SchemaNode, ref: str) -> JsonValue:
    found: JsonValue = root
    for step in ref.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        found = _field_of(found, name)
    return found


def declared_fields(node: SchemaNode) -> SchemaNode:
    declared = node.get("properties")
    if isinstance(declared, dict):
        return declared
    return {}


def required_fields(node: SchemaNode) -> frozenset[str]:
    names = node.get("required")
    if isinstance(names, list):
        return frozenset(map(str, names))
    return frozenset()


def outline_schema(schema: JsonSchema) -> str:
    """Return the expected fields as text: `path: string (required), limit: integer (optional)`."""
    return _outline_fields(schema.node, schema.node, OUTLINE_DEPTH_MAX) or "no fields"


def _outline_fields(root: SchemaNode, node: SchemaNode, depth: int) -> str:
    required = required_fields(node)
    fields: list[str] = []
    for name, part in declared_fields(node).items():
        presence = "required" if name in required else "optional"
        fields.append(f"{name}: {_outline_value(root, part, depth)} ({presence})")
    return ", ".join(fields)


def _outline_value(root: SchemaNode, node: JsonValue, depth: int) -> str:
    shapes = dict.fromkeys(
        _outline_simple(root, part, depth) for part in simple_schemas(root, node)
    )
    return " or ".join(shapes)


def _outline_simple(root: SchemaNode, node: SchemaNode, depth: int) -> str:
    match node:
        case {"const": only}:
            return _format_literal(only)
        case {"enum": list() as options}:
            return _join_options(options)
        case {"type": "array"} if depth:
            return f"list of {_outline_value(root, node.get('items'), depth - 1)}"
        case {"type": "object", "properties": _} if depth:
            return f"{{{_outline_fields(root, node, depth - 1)}}}"
        case {"type": str() as kind}:
            return kind
        case _:
            return "any"


def _join_options(options: Iterable[JsonValue]) -> str:
    return " | ".join(map(_format_literal, islice(options, OPTIONS_MAX)))


def _format_literal(value: JsonValue) -> str:
    text = msgspec.json.encode(value).decode()
    if len(text) <= LITERAL_MAX:
        return text
    return f"{text[:LITERAL_MAX]}…"
