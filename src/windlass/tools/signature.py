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
from windlass.tools.annotations import (
    ArgumentMismatch,
    ArgumentType,
    Node,
    build_schemas,
    read_annotation,
    simplify_schema,
)
from windlass.tools.run_context import RunContext

ToolFunction = Callable[..., Any]
_EMPTY = inspect.Parameter.empty
_STAR_PREFIXES = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


@dataclass(frozen=True, slots=True)
class ToolParameter:
    """One argument that the model gives."""

    name: str
    argument_type: ArgumentType
    default: Any
    positional_only: bool
    """Positional-only: it cannot be passed by its name."""

    @property
    def is_required(self) -> bool:
        return self.default is _EMPTY

    def convert_argument(self, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - what was annotated
        if self.name in arguments:
            return self.argument_type.convert_value(self.name, arguments[self.name])
        if self.is_required:
            raise ArgumentMismatch(self.name, "is required and missing")
        return self.default


@dataclass(frozen=True, slots=True)
class ToolSignature:
    """How to call a function with what a model wrote."""

    parameters: tuple[ToolParameter, ...] | None
    """None: plain JSON goes in by name, as it is."""
    takes_context: bool
    return_annotation: object = None

    def bind_arguments(
        self, arguments: Mapping[str, Any], context: RunContext[Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """What to call the function with; raises Misfit."""
        places: list[Any] = [context] if self.takes_context else []
        names = self.convert_arguments(arguments)
        places += [names.pop(one.name) for one in self.parameters or () if one.positional_only]
        return places, names

    def convert_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Each argument by name, in its Python type, defaults filled in; raises Misfit."""
        if self.parameters is None:
            return dict(arguments)
        return {one.name: one.convert_argument(arguments) for one in self.parameters}


def read_signature(function: ToolFunction, tool: str) -> ToolSignature:
    """Understand a function, or say what is wrong with it."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(
            f"tool {tool!r} is a generator: return the whole value; for progress, RunContext.report"
        )
    hints, declared = _read_type_hints(function, tool), list(_open_parameters(function, tool))
    takes_context = bool(declared) and is_context_annotation(hints.get(declared[0].name))
    given = declared[1:] if takes_context else declared
    parameters = tuple(_read_parameter(one, hints, tool) for one in given)
    return ToolSignature(parameters, takes_context, hints.get("return", _EMPTY))


def takes_context(function: ToolFunction, tool: str) -> bool:
    """Whether a function's first parameter is the run's context."""
    first = next(_open_parameters(function, tool), None)
    return first is not None and is_context_annotation(
        _read_type_hints(function, tool).get(first.name)
    )


def is_context_annotation(annotation: object) -> bool:
    return RunContext in (annotation, get_origin(annotation))


def _open_parameters(function: ToolFunction, tool: str) -> Iterator[inspect.Parameter]:
    """The parameters that are still open: what a partial has bound by name is not the model's."""
    try:
        declared = inspect.signature(function).parameters.values()
    except ValueError:
        raise ConfigError(
            f"tool {tool!r} has no signature to read: wrap it in a function with annotations"
        ) from None
    bound = function.keywords if isinstance(function, functools.partial) else {}
    return (one for one in declared if one.name not in bound)


def _read_type_hints(function: ToolFunction, tool: str) -> dict[str, Any]:
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


def _read_parameter(one: inspect.Parameter, hints: Mapping[str, Any], tool: str) -> ToolParameter:
    where = f"tool {tool!r}: parameter {one.name!r}"
    if one.kind in _STAR_PREFIXES:
        starred = f"{_STAR_PREFIXES[one.kind]}{one.name}"
        raise ConfigError(f"{where}: {starred} cannot be described to a model: name each parameter")
    if one.name not in hints:
        fix = f"annotate it, for example `{one.name}: str`"
        if one.name in {"self", "cls"}:
            fix = f"make the tool from the bound method, tool(thing.{tool})"
        raise ConfigError(f"{where} has no type: {fix}")
    if is_context_annotation(hints[one.name]):
        raise ConfigError(f"{where} is the run's context: make it the first parameter")
    if type(one.default).__module__ == "pydantic.fields":
        raise ConfigError(f"{where}: write Annotated[..., Field(...)], with the default after `=`")
    by_place = one.kind is inspect.Parameter.POSITIONAL_ONLY
    return ToolParameter(one.name, read_annotation(hints[one.name]), one.default, by_place)


def build_schema(signature: ToolSignature, documented: Mapping[str, str], tool: str) -> Node:
    """The JSON Schema of a function's arguments."""
    parameters = signature.parameters or ()
    for one in parameters:  # One by one first, so that a fault has a name.
        _build_parameter_schemas([one], tool)
    nodes, definitions = _build_parameter_schemas(parameters, tool)
    properties: Node = {}
    for one, node in zip(parameters, nodes, strict=True):
        told = one.argument_type.description or documented.get(one.name, "")
        properties[one.name] = {
            **node,
            **({"description": told} if told else {}),
            **_default_entry(one),
        }
    schema: Node = {"type": "object", "properties": properties, "additionalProperties": False}
    required = [one.name for one in parameters if one.is_required]
    if required:
        schema["required"] = required
    return simplify_schema({**schema, "$defs": definitions})


def _build_parameter_schemas(
    parameters: "tuple[ToolParameter, ...] | list[ToolParameter]", tool: str
) -> tuple[list[Node], Node]:
    try:
        return build_schemas([one.argument_type for one in parameters])
    except Exception as error:
        names = ", ".join(repr(one.name) for one in parameters)
        reason = _explain_schema_error(error)
        raise ConfigError(
            f"tool {tool!r}: parameter {names} cannot become a JSON Schema: {reason}"
        ) from error


def _explain_schema_error(error: Exception) -> str:
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


def _default_entry(one: ToolParameter) -> Node:
    """The default for the model to read, where JSON can hold it. None says nothing."""
    if one.is_required or one.default is None:
        return {}
    try:
        return {"default": msgspec.to_builtins(one.default)}
    except (TypeError, ValueError, OverflowError):
        return {}
