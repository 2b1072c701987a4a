"""Read the schema that a tool is given: plain JSON Schema, or a list of parameters.

Both become the JSON Schema of an object.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from windlass.core.errors import ConfigError
from windlass.core.schema import JsonSchema
from windlass.core.suggestions import suggest_names
from windlass.tools.annotations import Node

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
