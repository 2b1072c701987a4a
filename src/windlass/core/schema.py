"""JSON Schemas of tools: is a value valid, what is wrong with it, what was expected.

Invariant: a message about a value never contains the value. It names types, sizes and what the
schema requires, because it reaches models, journals and logs.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.schema_work import (
    BACKTRACKS_MAX,
    JsonValue,
    SchemaNode,
    TooMuchWork,
    WorkCounter,
    find_schema_excess,
    has_branches,
    resolve_reference,
)

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

ValuePath: TypeAlias = Sequence[str | int]
"""The field names and indexes that lead to a value."""

FAULTS_MAX = 5
NODES_MAX = 10_000
"""In a larger value only the first error is looked for: the validator collects all errors before it
returns the first, at 10 µs each."""
REPORTED_WORK_MAX = 5_000
"""Evaluations up to which the errors of a value are listed. Listing one takes up to 200 µs."""
OUTLINE_DEPTH_MAX = 3
OUTLINE_FIELDS_MAX = 200
SHAPES_MAX = 32
"""Simple schemas that a union is expanded to. More are treated as one that fits anything."""
OPTIONS_MAX = 12
LITERAL_MAX = 200
FIELD_NAME = re.compile(r"[A-Za-z_$@][\w.$-]{0,39}")


JSON_FENCE = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*", re.DOTALL)
"""A reply that is one Markdown fence, as models like to write JSON."""


class SchemaError(ConfigError):
    """A tool's schema is not a JSON Schema."""


class SchemaFault(msgspec.Struct, frozen=True):
    """One error in a value: where it is, and what was expected there."""

    path: str
    message: str


TOO_MUCH_WORK = SchemaFault(
    "arguments", "too large or too deeply nested to be checked against the schema"
)
TOO_MUCH_TO_REPORT = SchemaFault("arguments", "does not fit the schema in any way that it allows")


class JsonSchema:
    """A JSON Schema, checked and compiled once. References are never fetched from the network.

    Neither a schema nor a value can keep the validator busy: both are measured first, and refused
    if they exceed the bounds in `core/schema_work.py`.
    """

    __slots__ = ("_has_branches", "_validator", "node")

    def __init__(self, node: SchemaNode) -> None:
        """Compile a schema. Raises SchemaError if it is not a JSON Schema, or is too large."""
        # Imported here, because it takes 11 ms and a program without tools does not need it.
        from jsonschema_rs import FancyRegexOptions, ValidationError, validator_for  # noqa: PLC0415

        excess = find_schema_excess(node)
        if excess is not None:
            raise SchemaError(f"not a JSON Schema that can be used: {excess}")
        self.node = node
        self._has_branches = has_branches(node)
        patterns = FancyRegexOptions(backtrack_limit=BACKTRACKS_MAX)
        try:
            self._validator: Validator = validator_for(
                node, offline=True, mask="it", pattern_options=patterns
            )
        except ValidationError as error:
            raise SchemaError(
                f"not a JSON Schema at {format_path(error.instance_path)}: {error.message}"
            ) from None
        except (ValueError, RecursionError) as error:
            raise SchemaError(f"not a JSON Schema: {error}") from None

    def accepts(self, value: JsonValue) -> bool:
        """Whether a value is valid. A value that would take too long to check is not."""
        return self._count_work(value) is not None and self._validator.is_valid(value)

    def iter_errors(self, value: JsonValue) -> Iterator["ValidationError"]:
        """Iterate over the errors of a value; only the first one if the value is large."""
        if has_more_nodes(value, NODES_MAX):
            return self._iter_first_error(value)
        return self._validator.iter_errors(value)

    def find_unlisted_fault(self, value: JsonValue) -> SchemaFault | None:
        """Return the fault of a value whose errors would take too long to list, or None."""
        work = self._count_work(value)
        if work is None:
            return TOO_MUCH_WORK
        if work <= REPORTED_WORK_MAX:
            return None
        return TOO_MUCH_TO_REPORT if not self._validator.is_valid(value) else None

    def _count_work(self, value: JsonValue) -> int | None:
        """Return the largest report that a value may need, or None if it cannot be checked."""
        if not self._has_branches:
            return 0
        counter = WorkCounter(self.node)
        try:
            work = counter.count(value)
        except TooMuchWork:
            return None
        # Without unions, only the first error is listed if there may be many.
        return counter.largest_union if has_more_nodes(value, NODES_MAX) else work

    def _iter_first_error(self, value: JsonValue) -> Iterator["ValidationError"]:
        from jsonschema_rs import ValidationError  # noqa: PLC0415

        try:
            self._validator.validate(value)
        except ValidationError as error:
            yield error


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

    References are followed, unions and lists of types are expanded. A schema that is too deep, too
    wide or too complex becomes `{}`, which fits anything: the validator has the last word anyway.
    """
    found: list[SchemaNode] = []
    steps = 0
    stack: list[tuple[JsonValue, int]] = [(node, depth)]
    while stack:
        part, left = stack.pop()
        steps += 1
        if steps > SHAPES_MAX * 8 or len(found) > SHAPES_MAX:
            return ({},)
        if not isinstance(part, dict) or left == 0:
            found.append({})
            continue
        inner = _expand_schema(root, part)
        if inner is None:
            found.extend(_split_types(part))
        else:
            # The last one is popped first, and the order of the schema is to be kept.
            stack.extend((each, left - 1) for each in reversed(inner[: SHAPES_MAX * 8 + 1]))
    return tuple(found)


def _expand_schema(root: SchemaNode, node: SchemaNode) -> list[JsonValue] | None:
    """Return the schemas that a reference or a union means, or None if it is neither."""
    match node:
        case {"$ref": str() as ref}:
            return [resolve_reference(root, ref)]
        case {"type": _} | {"properties": _}:
            return None
        case {"anyOf": list() as spread} | {"oneOf": list() as spread} | {"allOf": [*spread]}:
            if "allOf" in node and len(spread) != 1:
                return [None]
            return spread
        case _:
            return None


def _split_types(node: SchemaNode) -> list[SchemaNode]:
    kinds = node.get("type")
    if not isinstance(kinds, list):
        return [node]
    return [{**node, "type": kind} for kind in kinds[: SHAPES_MAX + 1]]


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
    return _Outline(schema.node).describe_fields(schema.node, OUTLINE_DEPTH_MAX) or "no fields"


class _Outline:
    """One description of a schema, of at most OUTLINE_FIELDS_MAX fields in all."""

    def __init__(self, root: SchemaNode) -> None:
        self._root = root
        self._fields_left = OUTLINE_FIELDS_MAX

    def describe_fields(self, node: SchemaNode, depth: int) -> str:
        required = required_fields(node)
        fields: list[str] = []
        for name, part in declared_fields(node).items():
            if self._fields_left == 0:
                fields.append("…")
                break
            self._fields_left -= 1
            presence = "required" if name in required else "optional"
            fields.append(f"{name}: {self._describe_value(part, depth)} ({presence})")
        return ", ".join(fields)

    def _describe_value(self, node: JsonValue, depth: int) -> str:
        parts = simple_schemas(self._root, node)
        return " or ".join(dict.fromkeys(self._describe_simple(part, depth) for part in parts))

    def _describe_simple(self, node: SchemaNode, depth: int) -> str:
        match node:
            case {"const": only}:
                return format_literal(only)
            case {"enum": list() as options}:
                return " | ".join(map(format_literal, islice(options, OPTIONS_MAX)))
            case {"type": "array"} if depth:
                return f"list of {self._describe_value(node.get('items'), depth - 1)}"
            case {"type": "object", "properties": _} if depth:
                return f"{{{self.describe_fields(node, depth - 1)}}}"
            case {"type": str() as kind}:
                return kind
            case _:
                return "any"


def format_literal(value: JsonValue) -> str:
    text = msgspec.json.encode(value).decode()
    if len(text) <= LITERAL_MAX:
        return text
    return f"{text[:LITERAL_MAX]}…"
