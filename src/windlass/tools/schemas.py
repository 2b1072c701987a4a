"""Schemas that a tool brings along: plain JSON Schema, or a list of parameters.

Both come out as the JSON Schema of an object.
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
    """The schema of a tool's arguments, checked."""
    given = (
        dict(parameters) if isinstance(parameters, Mapping) else _schema_from_list(parameters, tool)
    )
    if given.get("type", "object") != "object":
        raise ConfigError(
            f"tool {tool!r}: the schema is of type {given['type']!r}: arguments are an object, "
            'so write {"type": "object", "properties": {...}}'
        )
    node: Node = {"type": "object", "properties": {}, **given}
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
            raise ConfigError(f"tool {tool!r}: a listed parameter has no name: add a 'name'")
        if name in properties:
            raise ConfigError(f"tool {tool!r}: parameter {name!r} is listed twice: rename one")
        rest = {
            key: value for key, value in listed.items() if key not in {"name", "required", "type"}
        }
        properties[name] = {**_type_schema(listed.get("type", ""), name, tool), **rest}
        if listed.get("required"):
            required.append(name)
    schema: Node = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": required} if required else schema


def _type_schema(given: object, name: str, tool: str) -> Node:
    """A type in JSON Schema's words; no type means any."""
    if isinstance(given, list):
        return {"type": given}
    said = str(given).strip().lower()
    known = _TYPE_ALIASES.get(said, said)
    if known and known not in _JSON_TYPES:
        near = suggest_names(known, _JSON_TYPES)
        raise ConfigError(f"tool {tool!r}: parameter {name!r} has the unknown type {said!r}.{near}")
    return {"type": known} if known else {}
