"""The JSON Schema of a tool's arguments, and the conversion from JSON to the values of Python.

It comes from annotations, or it is given: as plain JSON Schema, or as a list of parameters. msgspec
handles all types that it knows. pydantic handles its own types, and is imported only if an
annotation needs it, so programs that do not use it never wait for it.
"""

import string
import types
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache
from pathlib import PurePath
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeAlias,
    Union,
    cast,
    get_args,
    get_origin,
)

import msgspec

from windlass.core.errors import ConfigError, ForModel
from windlass.core.schema import JsonSchema
from windlass.core.suggestions import suggest_names

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Node: TypeAlias = dict[str, Any]
REFERENCE_PREFIX = "#/$defs/"
_BOUNDS = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length")
_PYDANTIC_ATTRIBUTES = ("__get_pydantic_core_schema__", "__pydantic_validator__")
_SHORT_TYPES = (bool, int, float, complex, types.NoneType, Enum)
_SCHEMA_MAPS = frozenset({"properties", "$defs", "patternProperties"})
_LITERAL_KEYWORDS = frozenset({"default", "enum", "const", "examples"})
ParameterList: TypeAlias = Sequence[Mapping[str, Any]]
"""`[{"name": "path", "type": "string", "description": "The file.", "required": True}]`."""
_TYPE_ALIASES = {
    "str": "string",
    "text": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "tuple": "array",
    "dict": "object",
    "none": "null",
    "any": "",
}
_JSON_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")


class ArgumentMismatch(ForModel):
    """An argument does not match its annotation. The message says where and why."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")


class ArgumentType(msgspec.Struct, frozen=True):
    """The annotation of a parameter, split into type and description."""

    annotation: Any
    description: str
    needs_pydantic: bool

    def convert_value(self, name: str, value: object) -> Any:  # noqa: ANN401 - as annotated
        """Convert plain JSON to the value for a parameter; raises ArgumentMismatch."""
        try:
            if self.needs_pydantic:
                return _convert_with_pydantic(name, value, self.annotation)
            # Not strict, because 3.0 is an integer in JSON Schema. A string stays a string where
            # the type allows one.
            return msgspec.convert(
                value, self.annotation, strict=False, str_keys=True, dec_hook=_decode_custom_type
            )
        except ArgumentMismatch:
            raise
        except msgspec.ValidationError as error:
            reason, _, path = str(error).partition(" - at `$")
            raise ArgumentMismatch(f"{name}{path.rstrip('`')}", reason) from error
        except Exception as error:  # A validator in the annotation may raise anything.
            raise ArgumentMismatch(name, f"{type(error).__name__}: {error}") from error


def read_annotation(annotation: object) -> ArgumentType:
    """Split the notes in `Annotated` into constraints and a description for the model."""
    if get_origin(annotation) is not Annotated:
        return ArgumentType(annotation, "", _needs_pydantic(annotation))
    kind, *notes = get_args(annotation)
    description = ""
    constrained: Any = kind
    for note in notes:
        description = _note_description(note) or description
        if not isinstance(note, str):
            constrained = Annotated[constrained, _to_msgspec_constraint(note)]
    return ArgumentType(constrained, description, _needs_pydantic(annotation))


def _note_description(note: object) -> str:
    """Return the description in a note: a plain string, or one in `Meta`, `Field` or `Doc`."""
    if isinstance(note, str):
        return note
    for attribute in ("description", "documentation"):
        text = getattr(note, attribute, None)
        if isinstance(text, str):
            return text
    return ""


def _to_msgspec_constraint(note: object) -> object:
    """Convert a constraint of `annotated_types` to msgspec's; return other notes unchanged."""
    if type(note).__module__ != "annotated_types":
        return note
    bounds = {name: getattr(note, name, None) for name in _BOUNDS}
    return msgspec.Meta(**{name: bound for name, bound in bounds.items() if bound is not None})


def _needs_pydantic(annotation: object) -> bool:
    """Whether only pydantic can handle an annotation, or a part of it."""
    if get_origin(annotation) is Literal:
        return False
    if any(hasattr(annotation, attribute) for attribute in _PYDANTIC_ATTRIBUTES):
        return True
    module = getattr(annotation, "__module__", None) or type(annotation).__module__
    if isinstance(module, str) and module.partition(".")[0] in {"pydantic", "pydantic_core"}:
        return True
    return any(map(_needs_pydantic, get_args(annotation)))


def build_schemas(argument_types: Sequence[ArgumentType]) -> tuple[list[Node], Node]:
    """Build the schema of each type, and the definitions that they share.

    Raises TypeError, with a text that fits behind the name of a parameter.
    """
    definitions: Node = {}

    def model_schema(kind: type) -> Node:
        return _pydantic_schema(kind, definitions)

    # All at once, so that msgspec puts a type that two parameters share into one definition.
    plain = [given.annotation for given in argument_types if not given.needs_pydantic]
    plain_nodes, shared = msgspec.json.schema_components(
        plain,
        schema_hook=lambda kind: _builtin_schema(kind) or model_schema(kind),
        ref_template=f"{REFERENCE_PREFIX}{{name}}",
    )
    remaining = iter(plain_nodes)
    nodes = [
        model_schema(given.annotation) if given.needs_pydantic else next(remaining)
        for given in argument_types
    ]
    for name, node in shared.items():
        _add_definition(definitions, name, node)
    return nodes, definitions


def _builtin_schema(kind: type) -> Node | None:
    """Return the schema of a type that neither msgspec nor pydantic handles."""
    if kind is object:
        return {"description": "Any JSON value."}
    if issubclass(kind, PurePath):
        return {"type": "string", "format": "path"}
    return None


def _pydantic_schema(annotation: object, definitions: Node) -> Node:
    if not _needs_pydantic(annotation):
        name = getattr(annotation, "__name__", str(annotation))
        raise TypeError(f"{name} has no JSON form")
    node = _pydantic_adapter(annotation).json_schema(ref_template=f"{REFERENCE_PREFIX}{{model}}")
    for name, inner in node.pop("$defs", {}).items():
        _add_definition(definitions, name, inner)
    return node


def _add_definition(definitions: Node, name: str, node: Node) -> None:
    if definitions.setdefault(name, node) != node:
        raise TypeError(f"two types are called {name}; rename one")


@cache
def _pydantic_adapter(annotation: Any) -> "TypeAdapter[Any]":  # noqa: ANN401 - any annotation
    # Imported here, because only an annotation of pydantic leads to this line.
    from pydantic import TypeAdapter  # noqa: PLC0415

    return TypeAdapter(annotation)


def _decode_custom_type(kind: type, value: object) -> object:
    if kind is object:
        return value
    if issubclass(kind, PurePath):
        if not isinstance(value, str):
            raise TypeError("Expected a path as `str`")
        return kind(value)
    try:
        return _validate_with_pydantic(value, kind)
    except ValueError as error:  # Its own message would contain the value.
        path, reason = _first_error(error)
        if path:
            reason = f"{path.removeprefix('.')}: {reason}"
        raise ValueError(reason) from error


def _convert_with_pydantic(name: str, value: object, annotation: Any) -> object:  # noqa: ANN401 - as above
    try:
        return _validate_with_pydantic(value, annotation)
    except ValueError as error:
        path, reason = _first_error(error)
        raise ArgumentMismatch(f"{name}{path}", reason) from error


def _validate_with_pydantic(value: object, annotation: Any) -> object:  # noqa: ANN401 - as above
    # Validated as JSON, because a strict model accepts some values, such as dates, only from JSON.
    return _pydantic_adapter(annotation).validate_json(msgspec.json.encode(value))


def _first_error(error: ValueError) -> tuple[str, str]:
    """Return path and message of pydantic's first error, without the value itself.

    The value may be a secret, and the message goes to the model and the log.
    """
    list_errors = getattr(error, "errors", None)
    if list_errors is None:
        return "", str(error)
    first = list_errors(include_input=False, include_url=False, include_context=False)[0]
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"])
    return "".join(steps), str(first["msg"])


def is_short_type(annotation: object) -> bool:
    """Whether a value of this type is always short when it is shown to a model."""
    origin = get_origin(annotation)
    if origin is Literal:
        return True
    if origin is Annotated:
        return is_short_type(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return all(map(is_short_type, get_args(annotation)))
    return annotation is None or (
        isinstance(annotation, type) and issubclass(annotation, _SHORT_TYPES)
    )


def simplify_schema(node: Node) -> Node:
    """Return a schema without what only costs tokens, and with its objects closed.

    Titles and references to enums are left out. An object with fields takes no others, unless its
    type says so: a field that is silently dropped would be replaced by its default.
    """
    definitions = cast("Mapping[str, Node]", node.get("$defs", {}))
    enums = {
        f"{REFERENCE_PREFIX}{name}": inner for name, inner in definitions.items() if "enum" in inner
    }
    simplified = _simplify_node(node, enums)
    definitions_left = {
        name: inner
        for name, inner in simplified.pop("$defs", {}).items()
        if f"{REFERENCE_PREFIX}{name}" not in enums
    }
    if definitions_left:
        simplified["$defs"] = definitions_left
    return simplified


def _simplify_node(value: Any, enums: Mapping[str, Node]) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, list):
        return [_simplify_node(item, enums) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    node = cast("Node", value)
    enum = enums.get(str(node.get("$ref")))
    if enum is not None:
        rest = {key: part for key, part in node.items() if key != "$ref"}
        return _simplify_node({**enum, **rest}, enums)
    simplified = {
        key: _simplify_keyword(key, part, enums) for key, part in node.items() if key != "title"
    }
    if "properties" in simplified:
        simplified.setdefault("additionalProperties", False)
    return simplified


def _simplify_keyword(key: str, part: Any, enums: Mapping[str, Node]) -> Any:  # noqa: ANN401 - any JSON
    if key in _LITERAL_KEYWORDS:
        return part
    if key in _SCHEMA_MAPS:
        return {name: _simplify_node(inner, enums) for name, inner in part.items()}
    return _simplify_node(part, enums)


def object_schema(parameters: Mapping[str, Any] | ParameterList, tool: str) -> Node:
    """Return the schema of a tool's arguments; raises ConfigError if it is not valid."""
    if isinstance(parameters, Mapping):
        schema = dict(parameters)
    else:
        schema = _schema_from_list(parameters, tool)
    if schema.get("type", "object") != "object":
        raise ConfigError(
            f"tool {tool!r}: the schema has the type {schema['type']!r}, but arguments are an "
            'object: write {"type": "object", "properties": {...}}'
        )
    node: Node = {"type": "object", "properties": {}, **schema}
    try:
        JsonSchema(node)
    except ConfigError as error:
        raise ConfigError(f"tool {tool!r}: {error}") from None
    return node


def _schema_from_list(parameters: ParameterList, tool: str) -> Node:
    properties: Node = {}
    required: list[str] = []
    for listed in parameters:
        name = listed.get("name")
        if not isinstance(name, str) or not name:
            raise ConfigError(f"tool {tool!r}: a parameter in the list has no name: add a 'name'")
        if name in properties:
            raise ConfigError(f"tool {tool!r}: parameter {name!r} is listed twice: rename one")
        rest = {
            key: value for key, value in listed.items() if key not in {"name", "required", "type"}
        }
        properties[name] = {**_type_schema(listed.get("type", ""), name, tool), **rest}
        if listed.get("required"):
            required.append(name)
    schema: Node = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    return schema


def _type_schema(given: object, name: str, tool: str) -> Node:
    """Return the schema of a type name; no type means any value."""
    if isinstance(given, list):
        return {"type": given}
    written = str(given).strip().lower()
    json_type = _TYPE_ALIASES.get(written, written)
    if json_type and json_type not in _JSON_TYPES:
        near = suggest_names(json_type, _JSON_TYPES)
        raise ConfigError(
            f"tool {tool!r}: parameter {name!r} has the unknown type {written!r}.{near}"
        )
    return {"type": json_type} if json_type else {}


def check_question(name: str, question: str, schema: Mapping[str, Any]) -> str:
    """Return the template of a tool's question. Raises ConfigError if a call could not fill it."""
    known = frozenset(schema.get("properties", {}))
    try:
        parsed = string.Formatter().parse(question)
        named = {place for _, place, _, _ in parsed if place is not None}
    except ValueError as error:
        raise ConfigError(f"tool {name!r}: its question is not a template: {error}") from None
    for place in sorted(named - known):
        near = suggest_names(place, known)
        raise ConfigError(f"tool {name!r}: its question names {place!r}, not a parameter.{near}")
    return question
