"""JSON Schemas of tools: is a value valid, what is wrong with it, what was expected.

The law: no word about a value holds the value. Faults speak of kinds, sizes and what the schema
asks for, since they reach models, journals and logs (T9).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from windlass.core.errors import ConfigError

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
Node: TypeAlias = dict[str, Json]
"""A schema, or a part of one, as plain JSON."""
Path: TypeAlias = Sequence[str | int]
"""The fields and items that lead to a value."""

FAULTS_MAX = 5
NODES_MAX = 10_000
"""The validator lists all errors of a value before it gives the first, at 10 µs each. In a value
with more nodes than this we ask for the first error alone."""
OUTLINE_DEPTH_MAX = 3
OPTIONS_MAX = 12
LITERAL_MAX = 200
NAME = re.compile(r"[A-Za-z_$@][\w.$-]{0,39}")

RULES = {
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
"""What a keyword asks for, around its own value in the schema."""
BARE_RULES = {
    "anyOf": "fits none of the allowed shapes",
    "oneOf": "fits none, or more than one, of the allowed shapes",
    "falseSchema": "has fields or items that do not exist",
    "not": "has a shape that is ruled out",
    "uniqueItems": "must have no item twice",
    "propertyNames": "has a field whose name is not allowed",
}
"""What a keyword asks for, where its value is too long to be told, or would tell the content."""


class SchemaError(ConfigError):
    """A tool's schema is not a JSON Schema."""


class Fault(msgspec.Struct, frozen=True):
    """One thing that is wrong with a value: where, and what was expected there."""

    path: str
    message: str


class Schema:
    """A JSON Schema, checked and compiled once, when it is built. References are never fetched."""

    __slots__ = ("_validator", "node")

    def __init__(self, node: Node) -> None:
        # Imported here: it costs 11 ms, and a program without tools has no need of it.
        from jsonschema_rs import ValidationError, validator_for  # noqa: PLC0415

        self.node = node
        try:
            self._validator: Validator = validator_for(node, offline=True, mask="it")
        except ValidationError as error:
            raise SchemaError(
                f"not a JSON Schema at {spot(error.instance_path)}: {error.message}"
            ) from None
        except (ValueError, RecursionError) as error:
            raise SchemaError(f"not a JSON Schema: {error}") from None

    def accepts(self, value: Json) -> bool:
        return self._validator.is_valid(value)

    def errors(self, value: Json) -> Iterator["ValidationError"]:
        if exceeds(value, NODES_MAX):
            return self._first_error(value)
        return self._validator.iter_errors(value)

    def _first_error(self, value: Json) -> Iterator["ValidationError"]:
        from jsonschema_rs import ValidationError  # noqa: PLC0415

        try:
            self._validator.validate(value)
        except ValidationError as error:
            yield error


def faults(schema: Schema, value: Json) -> tuple[Fault, ...]:
    """The first few things that are wrong with a value."""
    return tuple(_fault(error, value) for error in islice(schema.errors(value), FAULTS_MAX))


def _fault(error: "ValidationError", value: Json) -> Fault:
    path, keyword = error.instance_path, error.kind.name
    rule: Json = error.kind.value
    if keyword == "required":
        return Fault(spot([*path, str(rule)]), "is required and missing")
    if keyword in {"additionalProperties", "unevaluatedProperties"}:
        names = ", ".join(label(str(name)) for name in _listed(rule)[:FAULTS_MAX])
        return Fault(spot(path), f"has fields that do not exist: {names}")
    if keyword in RULES:
        said = " or ".join(map(str, _listed(rule))) if keyword == "type" else _literal(rule)
        wanted = RULES[keyword].format(said)
    else:
        wanted = BARE_RULES.get(keyword, f"breaks the rule {keyword!r}")
    return Fault(spot(path), f"{wanted}, got {measure(_at(value, path))}")


def _listed(rule: Json) -> list[Json]:
    return rule if isinstance(rule, list) else [rule]


def _at(value: Json, path: Path) -> Json:
    for step in path:
        value = value[int(step)] if isinstance(value, list) else _field(value, str(step))
    return value


def _field(value: Json, name: str) -> Json:
    return value.get(name) if isinstance(value, dict) else None


def exceeds(value: Json, nodes_max: int) -> bool:
    """Whether a value has more nodes than this; at most so many are looked at."""
    left, stack = nodes_max, [value]
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


def kind_of(value: Json) -> str:
    """The JSON Schema type of a value, the narrowest that holds."""
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


def measure(value: Json) -> str:
    """A value in words that hold nothing of it but kind and size."""
    match value:
        case str():
            return f"string of {len(value)} characters"
        case list():
            return f"list of {len(value)} items"
        case dict():
            return f"object of {len(value)} fields"
        case _:
            return kind_of(value)


def label(name: str) -> str:
    """A field's name, if it looks like one. Content that landed in a name is only measured."""
    return name if NAME.fullmatch(name) else f"<name of {len(name)} characters>"


def spot(path: Path) -> str:
    """A place in a value: `edits[0].old`; `arguments` for the whole."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{label(part)}" for part in path)
    return "".join(parts).removeprefix(".") or "arguments"


def branches(root: Node, node: Json, depth: int = 8) -> tuple[Node, ...]:
    """The simple schemas of which a value has to fit one.

    References are followed, unions and lists of types are spread. What is too deep or too clever
    is `{}`, which fits anything: the validator has the last word on every value anyway.
    """
    if not isinstance(node, dict) or depth == 0:
        return ({},)
    match node:
        case {"$ref": str() as ref}:
            return branches(root, _pointed(root, ref), depth - 1)
        case {"type": list() as kinds}:
            return tuple({**node, "type": kind} for kind in kinds)
        case {"type": _} | {"properties": _}:
            return (node,)
        case {"anyOf": list() as spread} | {"oneOf": list() as spread} | {"allOf": [*spread]}:
            if "allOf" in node and len(spread) != 1:
                return ({},)
            return tuple(leaf for part in spread for leaf in branches(root, part, depth - 1))
        case _:
            return (node,)


def _pointed(root: Node, ref: str) -> Json:
    found: Json = root
    for step in ref.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        found = _field(found, name)
    return found


def properties(node: Node) -> Node:
    declared = node.get("properties")
    return declared if isinstance(declared, dict) else {}


def required(node: Node) -> frozenset[str]:
    names = node.get("required")
    return frozenset(map(str, names)) if isinstance(names, list) else frozenset()


def outline(schema: Schema) -> str:
    """The expected fields in one line: `path: string (required), limit: integer (optional)`."""
    return _fields(schema.node, schema.node, OUTLINE_DEPTH_MAX) or "no fields"


def _fields(root: Node, node: Node, depth: int) -> str:
    needed = required(node)
    return ", ".join(
        f"{name}: {_shape(root, part, depth)} ({'required' if name in needed else 'optional'})"
        for name, part in properties(node).items()
    )


def _shape(root: Node, node: Json, depth: int) -> str:
    shapes = dict.fromkeys(_simple(root, part, depth) for part in branches(root, node))
    return " or ".join(shapes)


def _simple(root: Node, node: Node, depth: int) -> str:
    match node:
        case {"const": only}:
            return _literal(only)
        case {"enum": list() as options}:
            return _options(options)
        case {"type": "array"} if depth:
            return f"list of {_shape(root, node.get('items'), depth - 1)}"
        case {"type": "object", "properties": _} if depth:
            return f"{{{_fields(root, node, depth - 1)}}}"
        case {"type": str() as kind}:
            return kind
        case _:
            return "any"


def _options(options: Iterable[Json]) -> str:
    return " | ".join(map(_literal, islice(options, OPTIONS_MAX)))


def _literal(value: Json) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= LITERAL_MAX else f"{text[:LITERAL_MAX]}…"
