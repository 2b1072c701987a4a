"""A Python annotation in; its JSON Schema, and the way from JSON to its values, out.

msgspec speaks for all types that it knows. pydantic speaks for its own, and is imported only where
an annotation is pydantic's, so that who does not use it never waits for it.
"""

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

from windlass.core.errors import ForModel

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Node: TypeAlias = dict[str, Any]
REFERENCE_PREFIX = "#/$defs/"
_BOUNDS = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length")
_PYDANTIC_ATTRIBUTES = ("__get_pydantic_core_schema__", "__pydantic_validator__")
_SHORT_TYPES = (bool, int, float, complex, types.NoneType, Enum)


class ArgumentMismatch(ForModel):
    """A value does not fit its annotation: where, and why."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")


@dataclass(frozen=True, slots=True)
class ArgumentType:
    """An annotation, understood."""

    annotation: Any
    description: str
    needs_pydantic: bool

    def convert_value(self, name: str, value: object) -> Any:  # noqa: ANN401 - it is what was annotated
        """The value for a parameter of this name, from plain JSON; raises Misfit."""
        try:
            convert = _convert_with_pydantic if self.needs_pydantic else _convert_with_msgspec
            return convert(name, value, self.annotation)
        except ArgumentMismatch:
            raise
        except Exception as error:  # A validator of the user's may raise anything.
            raise ArgumentMismatch(name, f"{type(error).__name__}: {error}") from error


def read_annotation(annotation: object) -> ArgumentType:
    """Sort what stands in `Annotated` into constraints, and words for the model."""
    if get_origin(annotation) is not Annotated:
        return ArgumentType(annotation, "", _needs_pydantic(annotation))
    kind, *notes = get_args(annotation)
    said = [text for note in notes if (text := _note_description(note))]
    kept = [_to_msgspec_constraint(note) for note in notes if not isinstance(note, str)]
    whole: Any = kind
    for note in kept:
        whole = Annotated[whole, note]
    return ArgumentType(whole, said[-1] if said else "", _needs_pydantic(annotation))


def _note_description(note: object) -> str:
    """A description: a plain string, or what `Meta`, `Field` or `Doc` hold."""
    if isinstance(note, str):
        return note
    for attribute in ("description", "documentation"):
        text = getattr(note, attribute, None)
        if isinstance(text, str):
            return text
    return ""


def _to_msgspec_constraint(note: object) -> object:
    """What `annotated_types` says, in msgspec's words; anything else as it is."""
    if type(note).__module__ != "annotated_types":
        return note
    bounds = {name: getattr(note, name, None) for name in _BOUNDS}
    return msgspec.Meta(**{name: bound for name, bound in bounds.items() if bound is not None})


def _needs_pydantic(annotation: object) -> bool:
    """Whether only pydantic can speak for an annotation, or for a part of it."""
    if get_origin(annotation) is Literal:
        return False
    if any(hasattr(annotation, mark) for mark in _PYDANTIC_ATTRIBUTES):
        return True
    home = getattr(annotation, "__module__", None) or type(annotation).__module__
    if isinstance(home, str) and home.partition(".")[0] in {"pydantic", "pydantic_core"}:
        return True
    return any(map(_needs_pydantic, get_args(annotation)))


def build_schemas(shapes: Sequence[ArgumentType]) -> tuple[list[Node], Node]:
    """The schema of each shape, and the definitions that they share.

    Raises TypeError, in words that fit behind the name of a parameter.
    """
    definitions: Node = {}

    def model_schema(kind: type) -> Node:
        return _pydantic_schema(kind, definitions)

    plain = [shape.annotation for shape in shapes if not shape.needs_pydantic]
    found, shared = msgspec.json.schema_components(
        plain,
        schema_hook=lambda kind: _builtin_schema(kind) or model_schema(kind),
        ref_template=f"{REFERENCE_PREFIX}{{name}}",
    )
    told = iter(found)
    nodes = [
        model_schema(shape.annotation) if shape.needs_pydantic else next(told) for shape in shapes
    ]
    for name, node in shared.items():
        _add_definition(definitions, name, node)
    return nodes, definitions


def _builtin_schema(kind: type) -> Node | None:
    """Types that msgspec leaves to us. Anything fits `object`."""
    if kind is object:
        return {"description": "Any JSON value."}
    return {"type": "string", "format": "path"} if issubclass(kind, PurePath) else None


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
    # Imported here: only an annotation of pydantic's leads to this line.
    from pydantic import TypeAdapter  # noqa: PLC0415

    return TypeAdapter(annotation)


def _convert_with_msgspec(name: str, value: object, annotation: Any) -> object:  # noqa: ANN401 - as above
    # Not strict: 3.0 is an integer in JSON Schema. Text that may be text stays text.
    try:
        return msgspec.convert(
            value, annotation, strict=False, str_keys=True, dec_hook=_decode_custom_type
        )
    except msgspec.ValidationError as error:
        why, _, path = str(error).partition(" - at `$")
        raise ArgumentMismatch(f"{name}{path.rstrip('`')}", why) from error


def _decode_custom_type(kind: type, value: object) -> object:
    if kind is object:
        return value
    if issubclass(kind, PurePath):
        if not isinstance(value, str):
            raise TypeError("Expected a path as `str`")
        return kind(value)
    try:
        return _validate_with_pydantic(value, kind)
    except ValueError as error:  # Its own words would hold the value.
        path, why = _first_error(error)
        raise ValueError(f"{path.removeprefix('.')}: {why}" if path else why) from error


def _convert_with_pydantic(name: str, value: object, annotation: Any) -> object:  # noqa: ANN401 - as above
    try:
        return _validate_with_pydantic(value, annotation)
    except ValueError as error:
        path, why = _first_error(error)
        raise ArgumentMismatch(f"{name}{path}", why) from error


def _validate_with_pydantic(value: object, annotation: Any) -> object:  # noqa: ANN401 - as above
    # As JSON, since that is where the value came from: strict models take it so.
    return _pydantic_adapter(annotation).validate_json(msgspec.json.encode(value))


def _first_error(error: ValueError) -> tuple[str, str]:
    """Where and why, without the value itself."""
    listed = getattr(error, "errors", None)
    if listed is None:
        return "", str(error)
    first = listed(include_input=False, include_url=False, include_context=False)[0]
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


_SCHEMA_MAPS = frozenset({"properties", "$defs", "patternProperties"})
_LITERAL_KEYWORDS = frozenset({"default", "enum", "const", "examples"})


def simplify_schema(node: Node) -> Node:
    """A schema without what only costs tokens: titles, and references to short lists."""
    definitions = cast("Mapping[str, Node]", node.get("$defs", {}))
    short = {
        f"{REFERENCE_PREFIX}{name}": inner for name, inner in definitions.items() if "enum" in inner
    }
    tidied = _simplify_node(node, short)
    left = {
        n: d for n, d in tidied.pop("$defs", {}).items() if f"{REFERENCE_PREFIX}{n}" not in short
    }
    return {**tidied, "$defs": left} if left else tidied


def _simplify_node(value: Any, short: Mapping[str, Node]) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, list):
        return [_simplify_node(item, short) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    node = cast("Node", value)
    inlined = short.get(str(node.get("$ref")))
    if inlined is not None:
        rest = {key: part for key, part in node.items() if key != "$ref"}
        return _simplify_node({**inlined, **rest}, short)
    return {
        key: _simplify_keyword(key, part, short) for key, part in node.items() if key != "title"
    }


def _simplify_keyword(key: str, part: Any, short: Mapping[str, Node]) -> Any:  # noqa: ANN401 - any JSON
    if key in _LITERAL_KEYWORDS:
        return part
    if key in _SCHEMA_MAPS:
        return {name: _simplify_node(inner, short) for name, inner in part.items()}
    return _simplify_node(part, short)
