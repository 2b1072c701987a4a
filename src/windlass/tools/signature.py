"""Read the signature and docstring of a function: what a model sees, and how to call it.

Invariant: a function that cannot be described by a schema fails here, when the tool is built, with
one line that names the tool, the parameter and the fix. Nothing is left for the first call to find.

Docstrings may be in the style of Google, NumPy or Sphinx. The parts about parameters and exceptions
are removed from the prose; everything else stays word for word. A library such as
`docstring_parser` drops prose that follows the parameters, and reads `x, y : int` as one parameter.
"""

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

from windlass.core.errors import ConfigError
from windlass.tools.run_context import RunContext
from windlass.tools.schemas import (
    ArgumentMismatch,
    ArgumentType,
    Node,
    build_schemas,
    read_annotation,
    simplify_schema,
)

_PARAMETER_SECTIONS = frozenset({"args", "arguments", "parameters", "params", "other parameters"})
_DROPPED_SECTIONS = frozenset({"raises", "warns"})
_PROSE_SECTIONS = frozenset(
    {"returns", "return", "yields", "example", "examples", "note", "notes", "warning", "see also"}
)
_KNOWN_SECTIONS = _PARAMETER_SECTIONS | _DROPPED_SECTIONS | _PROSE_SECTIONS

# The type in brackets may itself have brackets, as in `point (tuple(int, int)): ...`.
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\((?:[^()]|\([^()]*\))*\))?\s*:\s*(.*)")
_NUMPY_ENTRY = re.compile(r"\*{0,2}(\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")
_SPHINX_FIELD = re.compile(r":(\w+)(?:\s+([^:]*))?:\s*(.*)")
_SPHINX_PARAMETERS = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})
_SPHINX_DROPPED = frozenset({"type", "rtype", "raises", "raise", "except", "exception"})
ToolFunction = Callable[..., Any]
_EMPTY = inspect.Parameter.empty
_STAR_PREFIXES = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


class DocstringParts(msgspec.Struct, frozen=True):
    """The prose of a docstring, and the description of each parameter."""

    prose: str = ""
    parameters: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])


class _DocstringSection(msgspec.Struct):
    title: str
    style: str
    lines: list[str] = msgspec.field(default_factory=list[str])


def read_docstring(text: str | None) -> DocstringParts:
    """Split a docstring into prose and the descriptions of parameters."""
    prose: list[str] = []
    parameters: dict[str, str] = {}
    for section in _split_sections(inspect.cleandoc(text or "").splitlines()):
        name = section.title.strip().rstrip(":").lower()
        if name in _PARAMETER_SECTIONS:
            if section.style == "google":
                entries = _google_entries
            else:
                entries = _numpy_entries
            parameters.update(entries(section.lines))
        elif name not in _DROPPED_SECTIONS:
            prose += _prose_lines(section, parameters)
    joined = re.sub(r"\n{3,}", "\n\n", "\n".join(prose))
    return DocstringParts(joined.strip(), parameters)


def _split_sections(lines: Sequence[str]) -> Iterator[_DocstringSection]:
    """Yield the sections of a docstring. The first has no title."""
    section = _DocstringSection("", "")
    is_underline = False
    for line, line_below in zip_longest(lines, lines[1:], fillvalue=""):
        if is_underline:
            is_underline = False
            continue
        style = _heading_style(line, line_below)
        if style:
            yield section
            section = _DocstringSection(line, style)
            is_underline = style == "numpy"
        elif section.style == "google" and line and not line[0].isspace():
            # A Google section ends with its indent.
            yield section
            section = _DocstringSection("", "", [line])
        else:
            section.lines.append(line)
    yield section


def _heading_style(line: str, line_below: str) -> str:
    """Return the style in which a line begins a section; empty if it does not."""
    name = line.strip().lower()
    if name in _KNOWN_SECTIONS and re.fullmatch(r"\s*-{3,}\s*", line_below):
        return "numpy"
    if name.endswith(":") and name[:-1] in _KNOWN_SECTIONS and not line[:1].isspace():
        return "google"
    return ""


def _google_entries(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield entries such as `path (str): The file.`, which deeper lines continue."""
    for head, deeper in _group_by_indent(lines):
        found = _GOOGLE_ENTRY.fullmatch(head)
        if found:
            yield found[1], _join_lines([found[2], *deeper])


def _numpy_entries(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield entries such as `path : str`, with their description on the deeper lines below."""
    for head, deeper in _group_by_indent(lines):
        found = _NUMPY_ENTRY.fullmatch(head)
        if found:
            for name in found[1].split(","):
                yield name.strip(" *"), _join_lines(deeper)


def _group_by_indent(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each line of the outermost indent, with the deeper lines below it."""
    filled = [line for line in lines if line.strip()]
    indent = min((len(line) - len(line.lstrip()) for line in filled), default=0)
    groups: list[tuple[str, list[str]]] = []
    for line in filled:
        if not line[indent:][:1].isspace():
            groups.append((line.strip(), []))
        elif groups:
            groups[-1][1].append(line)
    yield from groups


def _prose_lines(section: _DocstringSection, parameters: dict[str, str]) -> Iterator[str]:
    """Yield the lines of a section that stay prose, and move its Sphinx fields to `parameters`."""
    if section.title:
        yield section.title
        if section.style == "numpy":
            yield "-" * len(section.title)
    in_field = False
    parameter = ""
    for line in section.lines:
        found = _SPHINX_FIELD.fullmatch(line)
        if found is None:
            # An indented line continues a field, and is dropped or kept with it.
            in_field = in_field and line[:1].isspace()
            if not in_field:
                yield line
            elif parameter:
                parameters[parameter] = _join_lines([parameters[parameter], line])
            continue
        kind = found[1]
        parameter = ""
        in_field = kind in _SPHINX_DROPPED
        if kind in _SPHINX_PARAMETERS and (found[2] or "").split():
            in_field = True
            parameter = found[2].split()[-1].lstrip("*")  # `:param int count:` has the type first.
            parameters[parameter] = found[3].strip()
        elif kind in {"return", "returns"}:
            yield f"Returns: {found[3]}"
        elif not in_field:
            yield line


def _join_lines(lines: Sequence[str]) -> str:
    return " ".join(" ".join(lines).split())


class ToolParameter(msgspec.Struct, frozen=True):
    """One argument that the model gives."""

    name: str
    argument_type: ArgumentType
    default: Any
    positional_only: bool

    @property
    def is_required(self) -> bool:
        return self.default is _EMPTY


class ToolSignature(msgspec.Struct, frozen=True):
    """How to call a function with the arguments that a model wrote."""

    parameters: tuple[ToolParameter, ...] | None
    """None: the arguments are passed by name, as plain JSON."""
    takes_context: bool
    return_annotation: object = None
    deps_type: type | None = None
    """What the deps in the context must be, if the annotation names a class."""

    def bind_arguments(
        self, arguments: Mapping[str, Any], context: RunContext[Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and named arguments for the function; raises ArgumentMismatch."""
        positional: list[Any] = [context] if self.takes_context else []
        named = self.convert_arguments(arguments)
        positional += [named.pop(one.name) for one in self.parameters or () if one.positional_only]
        return positional, named

    def convert_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return each argument by name, in its Python type, with defaults filled in.

        Raises ArgumentMismatch.
        """
        if self.parameters is None:
            return dict(arguments)
        converted: dict[str, Any] = {}
        for one in self.parameters:
            if one.name in arguments:
                value = one.argument_type.convert_value(one.name, arguments[one.name])
            elif one.is_required:
                raise ArgumentMismatch(one.name, "is required and missing")
            else:
                value = one.default
            converted[one.name] = value
        return converted


def read_signature(function: ToolFunction, tool: str) -> ToolSignature:
    """Read a function's parameters; raises ConfigError if it cannot be a tool."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(
            f"tool {tool!r} is a generator: return the whole value, and report progress with "
            "RunContext.report"
        )
    hints = _read_type_hints(function, tool)
    declared = list(_open_parameters(function, tool))
    takes_context = bool(declared) and is_context_annotation(hints.get(declared[0].name))
    deps_type = None
    if takes_context:
        deps_type = _deps_type(hints[declared[0].name])
        del declared[0]
    parameters = tuple(_read_parameter(parameter, hints, tool) for parameter in declared)
    return ToolSignature(parameters, takes_context, hints.get("return", _EMPTY), deps_type)


def _deps_type(annotation: object) -> type | None:
    """Return the class in `RunContext[…]`; None if it is not one that values can be checked by."""
    (named,) = get_args(annotation) or (None,)
    is_checkable = isinstance(named, type) and named not in (object, Any, type(None))
    if not is_checkable or getattr(named, "_is_protocol", False) or is_typeddict(named):
        return None
    return named


def takes_context(function: ToolFunction, tool: str) -> bool:
    """Whether a function's first parameter is the context of the run."""
    first = next(_open_parameters(function, tool), None)
    if first is None:
        return False
    return is_context_annotation(_read_type_hints(function, tool).get(first.name))


def is_context_annotation(annotation: object) -> bool:
    return RunContext in (annotation, get_origin(annotation))


def _open_parameters(function: ToolFunction, tool: str) -> Iterator[inspect.Parameter]:
    """Yield the parameters that are open. Those that a partial has bound are not the model's."""
    try:
        declared = inspect.signature(function).parameters.values()
    except ValueError:
        raise ConfigError(
            f"tool {tool!r} has no signature to read: wrap it in a function with annotations"
        ) from None
    if isinstance(function, functools.partial):
        bound = function.keywords
    else:
        bound = {}
    return (parameter for parameter in declared if parameter.name not in bound)


def _read_type_hints(function: ToolFunction, tool: str) -> dict[str, Any]:
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function):  # An object with `__call__`.
        function = getattr(type(function), "__call__", function)  # noqa: B004
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise ConfigError(
            f"tool {tool!r}: the annotation {error.name!r} is not defined in its module: "
            "import or define it at the top of the module"
        ) from None
    except TypeError as error:
        raise ConfigError(f"tool {tool!r}: an annotation cannot be read: {error}") from None


def _read_parameter(
    parameter: inspect.Parameter, hints: Mapping[str, Any], tool: str
) -> ToolParameter:
    name = parameter.name
    where = f"tool {tool!r}: parameter {name!r}"
    if parameter.kind in _STAR_PREFIXES:
        raise ConfigError(
            f"{where}: {_STAR_PREFIXES[parameter.kind]}{name} cannot be described to a model: "
            "declare each parameter by name"
        )
    if name not in hints:
        fix = f"annotate it, for example `{name}: str`"
        if name in {"self", "cls"}:
            fix = f"make the tool from the bound method, tool(thing.{tool})"
        raise ConfigError(f"{where} has no type: {fix}")
    if is_context_annotation(hints[name]):
        raise ConfigError(f"{where} is the context of the run: make it the first parameter")
    if type(parameter.default).__module__ == "pydantic.fields":
        raise ConfigError(f"{where}: write Annotated[..., Field(...)], with the default after `=`")
    positional_only = parameter.kind is inspect.Parameter.POSITIONAL_ONLY
    return ToolParameter(name, read_annotation(hints[name]), parameter.default, positional_only)


def build_schema(signature: ToolSignature, descriptions: Mapping[str, str], tool: str) -> Node:
    """Build the JSON Schema of a function's arguments; raises ConfigError."""
    parameters = signature.parameters or ()
    # First one by one, so that an error names the parameter.
    for parameter in parameters:
        _build_parameter_schemas([parameter], tool)
    nodes, definitions = _build_parameter_schemas(parameters, tool)
    properties: Node = {}
    for parameter, node in zip(parameters, nodes, strict=True):
        entry = dict(node)
        name = parameter.name
        description = parameter.argument_type.description or descriptions.get(name, "")
        if description:
            entry["description"] = description
        properties[name] = {**entry, **_default_entry(parameter)}
    schema: Node = {"type": "object", "properties": properties, "additionalProperties": False}
    required = [parameter.name for parameter in parameters if parameter.is_required]
    if required:
        schema["required"] = required
    return simplify_schema({**schema, "$defs": definitions})


def _build_parameter_schemas(
    parameters: Sequence[ToolParameter], tool: str
) -> tuple[list[Node], Node]:
    try:
        return build_schemas([parameter.argument_type for parameter in parameters])
    except Exception as error:
        names = ", ".join(repr(parameter.name) for parameter in parameters)
        reason = _explain_schema_error(error)
        raise ConfigError(
            f"tool {tool!r}: parameter {names} cannot become a JSON Schema: {reason}"
        ) from error


def _explain_schema_error(error: Exception) -> str:
    """Say in one line what is wrong with an annotation, and what to do about it."""
    last_line = (str(error).strip().splitlines() or [type(error).__name__])[-1]
    if "more than one dict-like" in last_line:
        return (
            "it may be one of two objects: make them msgspec.Struct with tag=True, or use pydantic"
        )
    if "more than one str-like" in last_line:
        return "it may be one of two kinds of text: keep one of them"
    if "has no JSON form" in last_line:
        return f"{last_line}: use text, numbers, lists or a dataclass"
    return last_line


def _default_entry(parameter: ToolParameter) -> Node:
    """Return the default for the schema, if JSON can express it. None would tell nothing."""
    if parameter.is_required or parameter.default is None:
        return {}
    try:
        return {"default": msgspec.to_builtins(parameter.default)}
    except (TypeError, ValueError, OverflowError):
        return {}
