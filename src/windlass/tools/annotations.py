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
REFERENCE = "#/$defs/"
_BOUNDS = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length")
_PYDANTIC_MARKS = ("__get_pydantic_core_schema__", "__pydantic_validator__")
_SHORT = (bool, int, float, complex, types.NoneType, Enum)


class Misfit(ForModel):
    """A value does not fit its annotation: where, and why."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")


@dataclass(frozen=True, slots=True)
class Shape:
    """An annotation, understood."""

    annotation: Any
    description: str
    by_pydantic: bool

    def convert(self, name: str, value: object) -> Any:  # noqa: ANN401 - it is what was annotated
        """The value for a parameter of this name, from plain JSON; raises Misfit."""
        try:
            convert = _from_pydantic if self.by_pydantic else _from_msgspec
            return convert(name, value, self.annotation)
        except Misfit:
            raise
        except Exception as error:  # A validator of the user's may raise anything.
            raise Misfit(name, f"{type(error).__name__}: {error}") from error


def shape_of(annotation: object) -> Shape:
    """Sort what stands in `Annotated` into constraints, and words for the model."""
    if get_origin(annotation) is not Annotated:
        return Shape(annotation, "", _is_pydantic(annotation))
    kind, *notes = get_args(annotation)
    said = [text for note in notes if (text := _words(note))]
    kept = [_constraint(note) for note in notes if not isinstance(note, str)]
    whole: Any = kind
    for note in kept:
        whole = Annotated[whole, note]
    return Shape(whole, said[-1] if said else "", _is_pydantic(annotation))


def _words(note: object) -> str:
    """A description: a plain string, or what `Meta`, `Field` or `Doc` hold."""
    if isinstance(note, str):
        return note
    for attribute in ("description", "documentation"):
        text = getattr(note, attribute, None)
        if isinstance(text, str):
            return text
    return ""


def _constraint(note: object) -> object:
    """What `annotated_types` says, in msgspec's words; anything else as it is."""
    if type(note).__module__ != "annotated_types":
        return note
    bounds = {name: getattr(note, name, None) for name in _BOUNDS}
    return msgspec.Meta(**{name: bound for name, bound in bounds.items() if bound is not None})


def _is_pydantic(annotation: object) -> bool:
    """Whether only pydantic can speak for an annotation, or for a part of it."""
    if get_origin(annotation) is Literal:
        return False
    if any(hasattr(annotation, mark) for mark in _PYDANTIC_MARKS):
        return True
    home = getattr(annotation, "__module__", None) or type(annotation).__module__
    if isinstance(home, str) and home.partition(".")[0] in {"pydantic", "pydantic_core"}:
        return True
    return any(map(_is_pydantic, get_args(annotation)))


def schemas_of(shapes: Sequence[Shape]) -> tuple[list[Node], Node]:
    """The schema of each shape, and the definitions that they share.

    Raises TypeError, in words that fit behind the name of a parameter.
    """
    definitions: Node = {}

    def model(kind: type) -> Node:
        return _pydantic_schema(kind, definitions)

    plain = [shape.annotation for shape in shapes if not shape.by_pydantic]
    found, shared = msgspec.json.schema_components(
        plain,
        schema_hook=lambda kind: _known(kind) or model(kind),
        ref_template=f"{REFERENCE}{{name}}",
    )
    told = iter(found)
    nodes = [model(shape.annotation) if shape.by_pydantic else next(told) for shape in shapes]
    for name, node in shared.items():
        _define(definitions, name, node)
    return nodes, definitions


def _known(kind: type) -> Node | None:
    """Types that msgspec leaves to us. Anything fits `object`."""
    if kind is object:
        return {"description": "Any JSON value."}
    return {"type": "string", "format": "path"} if issubclass(kind, PurePath) else None


def _pydantic_schema(annotation: object, definitions: Node) -> Node:
    if not _is_pydantic(annotation):
        name = getattr(annotation, "__name__", str(annotation))
        raise TypeError(f"{name} has no JSON form")
    node = _adapter(annotation).json_schema(ref_template=f"{REFERENCE}{{model}}")
    for name, inner in node.pop("$defs", {}).items():
        _define(definitions, name, inner)
    return node


def _define(definitions: Node, name: str, node: Node) -> None:
    if definitions.setdefault(name, node) != node:
        raise TypeError(f"two types are called {name}; rename one")


@cache
def _adapter(annotation: Any) -> "TypeAdapter[Any]":  # noqa: ANN401 - any annotation
    # Imported here: only an annotation of pydantic's leads to this line.
    from pydantic import TypeAdapter  # noqa: PLC0415

    return TypeAdapter(annotation)


def _from_msgspec(name: str, value: object, annotation: Any) -> object:  # noqa: ANN401 - as above
    # Not strict: 3.0 is an integer in JSON Schema. Text that may be text stays text.
    try:
        return msgspec.convert(value, annotation, strict=False, str_keys=True, dec_hook=_decode)
    except msgspec.ValidationError as error:
        why, _, path = str(error).partition(" - at `$")
        raise Misfit(f"{name}{path.rstrip('`')}", why) from error


def _decode(kind: type, value: object) -> object:
    if kind is object:
        return value
    if issubclass(kind, PurePath):
        if not isinstance(value, str):
            raise TypeError("Expected a path as `str`")
        return kind(value)
    try:
        return _validated(value, kind)
    except ValueError as error:  # Its own words would hold the value.
        path, why = _first_error(error)
        raise ValueError(f"{path.removeprefix('.')}: {why}" if path else why) from error


def _from_pydantic(name: str, value: object, annotation: Any) -> object:  # noqa: ANN401 - as above
    try:
        return _validated(value, annotation)
    except ValueError as error:
        path, why = _first_error(error)
        raise Misfit(f"{name}{path}", why) from error


def _validated(value: object, annotation: Any) -> object:  # noqa: ANN401 - as above
    # As JSON, since that is where the value came from: strict models take it so.
    return _adapter(annotation).validate_json(msgspec.json.encode(value))


def _first_error(error: ValueError) -> tuple[str, str]:
    """Where and why, without the value itself."""
    listed = getattr(error, "errors", None)
    if listed is None:
        return "", str(error)
    first = listed(include_input=False, include_url=False, include_context=False)[0]
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"])
    return "".join(steps), str(first["msg"])


def is_short(annotation: object) -> bool:
    """Whether a value of this type is always short when it is shown to a model."""
    origin = get_origin(annotation)
    if origin is Literal:
        return True
    if origin is Annotated:
        return is_short(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return all(map(is_short, get_args(annotation)))
    return annotation is None or (isinstance(annotation, type) and issubclass(annotation, _SHORT))


_MAPS = frozenset({"properties", "$defs", "patternProperties"})
_LITERALS = frozenset({"default", "enum", "const", "examples"})


def tidy(node: Node) -> Node:
    """A schema without what only costs tokens: titles, and references to short lists."""
    definitions = cast("Mapping[str, Node]", node.get("$defs", {}))
    short = {f"{REFERENCE}{name}": inner for name, inner in definitions.items() if "enum" in inner}
    tidied = _tidied(node, short)
    left = {n: d for n, d in tidied.pop("$defs", {}).items() if f"{REFERENCE}{n}" not in short}
    return {**tidied, "$defs": left} if left else tidied


def _tidied(value: Any, short: Mapping[str, Node]) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, list):
        return [_tidied(item, short) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    node = cast("Node", value)
    inlined = short.get(str(node.get("$ref")))
    if inlined is not None:
        rest = {key: part for key, part in node.items() if key != "$ref"}
        return _tidied({**inlined, **rest}, short)
    return {key: _keyword(key, part, short) for key, part in node.items() if key != "title"}


def _keyword(key: str, part: Any, short: Mapping[str, Node]) -> Any:  # noqa: ANN401 - any JSON
    if key in _LITERALS:
        return part
    if key in _MAPS:
        return {name: _tidied(inner, short) for name, inner in part.items()}
    return _tidied(part, short)
