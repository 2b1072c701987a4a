"""A function's signature in; the schema of its arguments, and the way to call it, out.

The law: what cannot become a schema fails here, when the tool is built, in one line that names the
tool, the parameter and the fix. Nothing of it is left for the first call to find.
"""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_origin, get_type_hints

import msgspec

from windlass.core.errors import ConfigError
from windlass.tools.annotations import Misfit, Node, Shape, schemas_of, shape_of, tidy
from windlass.tools.run_context import RunContext

Function = Callable[..., Any]
_EMPTY = inspect.Parameter.empty
_STARS = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument that the model gives."""

    name: str
    shape: Shape
    default: Any
    by_place: bool
    """Positional-only: it cannot be passed by its name."""

    @property
    def required(self) -> bool:
        return self.default is _EMPTY

    def value(self, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - what was annotated
        if self.name in arguments:
            return self.shape.convert(self.name, arguments[self.name])
        if self.required:
            raise Misfit(self.name, "is required and missing")
        return self.default


@dataclass(frozen=True, slots=True)
class Signature:
    """How to call a function with what a model wrote."""

    parameters: tuple[Parameter, ...] | None
    """None: plain JSON goes in by name, as it is."""
    takes_context: bool
    returns: object = None

    def bind(
        self, arguments: Mapping[str, Any], context: RunContext[Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """What to call the function with; raises Misfit."""
        places: list[Any] = [context] if self.takes_context else []
        names = self.values(arguments)
        places += [names.pop(one.name) for one in self.parameters or () if one.by_place]
        return places, names

    def values(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Each argument by name, in its Python type, defaults filled in; raises Misfit."""
        if self.parameters is None:
            return dict(arguments)
        return {one.name: one.value(arguments) for one in self.parameters}


def read_signature(function: Function, tool: str) -> Signature:
    """Understand a function, or say what is wrong with it."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(
            f"tool {tool!r} is a generator: return the whole value; for progress, RunContext.report"
        )
    hints, declared = _hints(function, tool), list(_declared(function, tool))
    takes_context = bool(declared) and is_context(hints.get(declared[0].name))
    given = declared[1:] if takes_context else declared
    parameters = tuple(_parameter(one, hints, tool) for one in given)
    return Signature(parameters, takes_context, hints.get("return", _EMPTY))


def takes_context(function: Function, tool: str) -> bool:
    """Whether a function's first parameter is the run's context."""
    first = next(_declared(function, tool), None)
    return first is not None and is_context(_hints(function, tool).get(first.name))


def is_context(annotation: object) -> bool:
    return RunContext in (annotation, get_origin(annotation))


def _declared(function: Function, tool: str) -> Iterator[inspect.Parameter]:
    """The parameters that are still open: what a partial has bound by name is not the model's."""
    try:
        declared = inspect.signature(function).parameters.values()
    except ValueError:
        raise ConfigError(
            f"tool {tool!r} has no signature to read: wrap it in a function with annotations"
        ) from None
    bound = function.keywords if isinstance(function, functools.partial) else {}
    return (one for one in declared if one.name not in bound)


def _hints(function: Function, tool: str) -> dict[str, Any]:
    plain = function
    while isinstance(plain, functools.partial):
        plain = plain.func
    if not inspect.isroutine(plain):
        plain = getattr(type(plain), "__call__", plain)  # noqa: B004 - an object that is called
    try:
        return get_type_hints(plain, include_extras=True)
    except NameError as error:
        raise ConfigError(
            f"tool {tool!r}: the annotation {error.name!r} is not known in its module: "
            "import it, or define it, at the top of the module"
        ) from None
    except TypeError as error:
        raise ConfigError(f"tool {tool!r}: an annotation cannot be read: {error}") from None


def _parameter(one: inspect.Parameter, hints: Mapping[str, Any], tool: str) -> Parameter:
    where = f"tool {tool!r}: parameter {one.name!r}"
    if one.kind in _STARS:
        starred = f"{_STARS[one.kind]}{one.name}"
        raise ConfigError(f"{where}: {starred} cannot be described to a model: name each parameter")
    if one.name not in hints:
        fix = f"annotate it, for example `{one.name}: str`"
        if one.name in {"self", "cls"}:
            fix = f"make the tool from the bound method, tool(thing.{tool})"
        raise ConfigError(f"{where} has no type: {fix}")
    if is_context(hints[one.name]):
        raise ConfigError(f"{where} is the run's context: make it the first parameter")
    if type(one.default).__module__ == "pydantic.fields":
        raise ConfigError(f"{where}: write Annotated[..., Field(...)], with the default after `=`")
    by_place = one.kind is inspect.Parameter.POSITIONAL_ONLY
    return Parameter(one.name, shape_of(hints[one.name]), one.default, by_place)


def schema_of(signature: Signature, documented: Mapping[str, str], tool: str) -> Node:
    """The JSON Schema of a function's arguments."""
    parameters = signature.parameters or ()
    for one in parameters:  # One by one first, so that a fault has a name.
        _checked([one], tool)
    nodes, definitions = _checked(parameters, tool)
    properties: Node = {}
    for one, node in zip(parameters, nodes, strict=True):
        told = one.shape.description or documented.get(one.name, "")
        properties[one.name] = {**node, **({"description": told} if told else {}), **_default(one)}
    schema: Node = {"type": "object", "properties": properties, "additionalProperties": False}
    required = [one.name for one in parameters if one.required]
    if required:
        schema["required"] = required
    return tidy({**schema, "$defs": definitions})


def _checked(
    parameters: "tuple[Parameter, ...] | list[Parameter]", tool: str
) -> tuple[list[Node], Node]:
    try:
        return schemas_of([one.shape for one in parameters])
    except Exception as error:
        names = ", ".join(repr(one.name) for one in parameters)
        raise ConfigError(
            f"tool {tool!r}: parameter {names} cannot become a JSON Schema: {_reason(error)}"
        ) from error


def _reason(error: Exception) -> str:
    """What is wrong with an annotation, and what to do about it, in a line."""
    last = (str(error).strip().splitlines() or [type(error).__name__])[-1]
    if "more than one dict-like" in last:
        return (
            "it may be one of two objects: make them msgspec.Struct with tag=True, or use pydantic"
        )
    if "more than one str-like" in last:
        return "it may be one of two kinds of text: keep one of them"
    if "has no JSON form" in last:
        return f"{last}: use text, numbers, lists or a dataclass"
    return last


def _default(one: Parameter) -> Node:
    """The default for the model to read, where JSON can hold it. None says nothing."""
    if one.required or one.default is None:
        return {}
    try:
        return {"default": msgspec.to_builtins(one.default)}
    except (TypeError, ValueError, OverflowError):
        return {}
