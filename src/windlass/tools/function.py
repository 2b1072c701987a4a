"""`@tool`: makes a tool, which a model may call, from a typed Python function."""

import inspect
import math
import re
import string
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import (
    Any,
    Generic,
    Literal,
    ParamSpec,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    final,
    get_args,
    overload,
)

import msgspec

from windlass.core.errors import ConfigError, ModelRetry
from windlass.core.messages import Effect, Label, ToolSpec
from windlass.core.suggestions import suggest_names
from windlass.core.verdicts import CallPreview
from windlass.logs import get_logger
from windlass.ports import CallerRun
from windlass.tools.process_calls import FunctionAddress, locate_function
from windlass.tools.run_context import RunContext
from windlass.tools.schemas import ParameterList, check_question, is_short_type, object_schema
from windlass.tools.signature import (
    DocstringParts,
    ToolFunction,
    ToolSignature,
    build_schema,
    read_docstring,
    read_signature,
    takes_context,
)

P = ParamSpec("P")
R = TypeVar("R")

_log = get_logger(__name__)
_NAME_PATTERN = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_LABELS: tuple[Label, ...] = ("untrusted", "private", "external")


class Reconciliation(Enum):
    """What a `reconcile` function may return instead of the value of the call."""

    NOT_DONE = "not_done"
    UNKNOWN = "unknown"


NOT_DONE = Reconciliation.NOT_DONE
"""The effect did not happen, so the call may run again."""
UNKNOWN = Reconciliation.UNKNOWN
"""It is not known whether the effect happened."""

ToolExecutor = Literal["thread", "process"]
ResourceRule: TypeAlias = str | Callable[[Mapping[str, Any]], str | None]


NestedPreview = Callable[
    [str, Mapping[str, Any], Sequence[str], Path | None], Awaitable[CallPreview | None]
]
"""Previews a call of a sub-agent: its tool, its arguments, the sub-agents below, and its folder."""


class ToolTraits(TypedDict, total=False):
    """How a tool may be used. Every option has a default."""

    effect: Effect
    """`read`, `idempotent` (running it twice is as good as once) or `write`, the default."""
    timeout: float | None
    """Seconds for a call, retries included; 60 by default, None for no limit."""
    resource: ResourceRule
    """What a call changes, as a pattern ("{path}") or a function of the arguments. Calls that
    change different resources may run at the same time."""
    reconcile: ToolFunction
    """Finds out whether a call that a crash interrupted took effect. It gets the context and the
    same arguments, and returns the value of the call, NOT_DONE or UNKNOWN; None means UNKNOWN."""
    preview: ToolFunction
    """Says what a call would change, for the person who is asked about it. It gets the same
    arguments, but no context, changes nothing, and returns a CallPreview, or words."""
    question: str
    """How a person is asked about a call, such as "Refund {amount} {currency} for order {order}?".
    By default, the question is made of the tool's name and its most telling arguments."""
    ask: bool
    """Whether a person is asked before each call, whatever the gate allows."""
    undo: "Tool[..., Any] | ToolFunction"
    """Reverts the effect of a call. It gets the context, whose `undoes` describes the call and its
    outcome, and the same arguments. A plain function counts as a `write`: give a tool with another
    effect, as `tool(take_back, effect="idempotent")`, if it may run twice."""
    snapshot: ToolFunction
    """Runs right before a call, with the context and the same arguments. The text that it returns
    is recorded, and `undo` finds it in `context.undoes.snapshot`."""
    untrusted: bool
    """The tool brings in text from outside."""
    private: bool
    """The tool reads secrets or private data."""
    external: bool
    """The tool sends data out."""
    retries: int
    """How often a `read` or `idempotent` call is retried if its infrastructure fails; 2 by default.
    """
    endpoint: str
    """Tools with the same endpoint share a circuit breaker. By default the tool's name."""
    executor: ToolExecutor
    """Where a sync function runs: `thread`, the default, or `process`. A process can be killed when
    the call is cancelled or times out. Its function must be at the top of a module and cannot take
    the context; arguments and result travel as plain data."""


class ToolOptions(ToolTraits, total=False):
    """The options of `@tool`."""

    name: str
    """The name that the model uses. By default the function's name."""
    description: str
    """The description that the model reads. By default the docstring."""


@final
@dataclass(frozen=True, eq=False)
class Tool(Generic[P, R]):
    """A function that a model may call. It can still be called like the function itself."""

    spec: ToolSpec
    function: Callable[P, R]
    signature: ToolSignature = field(repr=False)
    timeout_s: float | None = 60.0
    retries: int = 2
    resource: ResourceRule | None = field(default=None, repr=False)
    reconcile: ToolFunction | None = field(default=None, repr=False)
    endpoint: str = ""
    source: str = ""
    """Where the tool comes from, for error messages about two tools with the same name."""
    recover: Callable[[], Sequence[str]] | None = field(default=None, repr=False)
    """Ends what a dead process left running, and returns a line about each."""
    address: FunctionAddress | None = field(default=None, repr=False)
    """Where its own process finds the function; None if it runs in this process."""
    bind_run: Callable[[CallerRun], Callable[P, R]] | None = field(default=None, repr=False)
    """Makes the function for one run; only for tools that have sessions of their own."""
    bind_reconcile: Callable[[CallerRun], ToolFunction] | None = field(default=None, repr=False)
    """Makes `reconcile` for one run, in the same way."""
    only_by_model: bool = False
    """Whether code that calls tools must leave it alone: only a call of the model has a meaning."""
    preview: ToolFunction | None = field(default=None, repr=False)
    """Says what a call would change."""
    team: Mapping[str, NestedPreview] = field(default_factory=dict[str, NestedPreview], repr=False)
    """By the name of each sub-agent that the tool gives tasks to: what previews its calls."""
    undo: "Tool[..., Any] | ToolFunction | None" = field(default=None, repr=False)
    """Takes the effect of a call back."""
    snapshot: ToolFunction | None = field(default=None, repr=False)
    """Returns what `undo` must know, before the call runs."""
    bind_folder: "Callable[[Path], Tool[..., Any]] | None" = field(default=None, repr=False)
    """Makes the same tool for another folder; only for tools that work in one."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def __wrapped__(self) -> Callable[P, R]:
        return self.function

    @property
    def has_short_result(self) -> bool:
        """Whether its return type rules out a long result."""
        return is_short_type(self.signature.return_annotation)

    def find_resource(self, arguments: Mapping[str, Any]) -> str | None:
        """Return what a call would change; None, which means "anything", if it is not known."""
        declared: Mapping[str, Any] = self.spec.parameters.get("properties", {})
        defaults = {name: node["default"] for name, node in declared.items() if "default" in node}
        try:
            match self.resource:
                case None:
                    return None
                case str(pattern):
                    return pattern.format_map({**defaults, **arguments})
                case compute_resource:
                    return compute_resource({**defaults, **arguments})
        except ModelRetry:
            # The call names something that its tool refuses, and the tool itself will say so.
            return None
        except Exception:  # noqa: BLE001 - a resource that is not known may be anything
            _log.warning("the resource of tool %s cannot be computed", self.name, exc_info=True)
            return None

    @classmethod
    def from_schema(
        cls,
        name: str,
        description: str,
        parameters: Mapping[str, Any] | ParameterList,
        function: Callable[P, R],
        **traits: Unpack[ToolTraits],
    ) -> "Tool[P, R]":
        """Make a tool from a JSON Schema, or from a list of {name, type, description, required}.

        The function gets the arguments by name, as plain JSON. Its first parameter may be the
        context of the run, if it is annotated as RunContext. Raises ConfigError if the schema or
        an option is invalid.
        """
        signature = ToolSignature(None, takes_context(function, name), inspect.Parameter.empty)
        options: ToolOptions = {**traits, "name": name, "description": description}
        return _build_tool(
            function, signature, object_schema(parameters, name), DocstringParts(), options
        )


@overload
def tool(fn: Callable[P, R], /, **options: Unpack[ToolOptions]) -> Tool[P, R]: ...
@overload
def tool(
    fn: None = None, /, **options: Unpack[ToolOptions]
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    fn: Callable[P, R] | None = None, /, **options: Unpack[ToolOptions]
) -> Tool[P, R] | Callable[[Callable[P, R]], Tool[P, R]]:
    """Make a tool from a typed function, sync or async: `@tool`, or `@tool(effect="read")`.

    Name, description and parameters come from the function's name, docstring and annotations.
    See `ToolOptions` for all options. Raises ConfigError if the function cannot be a tool.
    """
    if fn is None:
        return lambda function: tool(function, **options)
    if isinstance(fn, Tool):
        raise ConfigError(f"{fn.name!r} is already a tool: pass its options where it is made")
    if not callable(fn):
        raise ConfigError(f"a tool is made from a function, and {fn!r} is not callable")
    name = options.get("name") or _function_name(fn)
    docs = read_docstring(getattr(fn, "__doc__", None) if inspect.isroutine(fn) else None)
    signature = read_signature(fn, name)
    return _build_tool(fn, signature, build_schema(signature, docs.parameters, name), docs, options)


def as_tool(given: "Tool[..., Any] | ToolFunction") -> "Tool[..., Any]":
    """Return a tool unchanged, or make one from a plain function with the default options."""
    if isinstance(given, Tool):
        return cast("Tool[..., Any]", given)
    return tool(given)


def bind_tool(given: "Tool[..., Any]", run: CallerRun) -> "Tool[..., Any]":
    """Return a tool for one run: one that works in the run's folder, or has sessions of its own.

    Raises WorkspaceMissing, or ConfigError if the tool cannot work in the folder.
    """
    folder = None if given.bind_folder is None else run.find_folder()
    if folder is not None and given.bind_folder is not None:
        given = given.bind_folder(folder)
    if given.bind_run is None:
        return given
    reconcile = given.reconcile
    if given.bind_reconcile is not None:
        reconcile = given.bind_reconcile(run)
    return replace(given, function=given.bind_run(run), reconcile=reconcile)


def _function_name(fn: ToolFunction) -> str:
    name = getattr(fn, "__name__", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise ConfigError(f"{name or fn!r} has no name that a model could use: pass name=")
    return name


def _build_tool(
    fn: Callable[P, R],
    signature: ToolSignature,
    schema: dict[str, Any],
    docs: DocstringParts,
    options: ToolOptions,
) -> Tool[P, R]:
    name = options.get("name") or _function_name(fn)
    _check_options(name, options)
    spec = ToolSpec(
        name,
        options.get("description") or docs.prose,
        schema,
        options.get("effect", "write"),
        tuple(label for label in _LABELS if options.get(label)),
        asks=options.get("ask", False),
        undo=_undo_effect(options.get("undo")),
        question=check_question(name, options.get("question", ""), schema),
    )
    _check_functions(options, spec)
    address = None
    if options.get("executor") == "process":
        spec = msgspec.structs.replace(spec, isolated=True)
        has_context, is_plain = signature.takes_context, signature.parameters is None
        address = locate_function(fn, name, takes_context=has_context, is_plain=is_plain)
    return Tool(
        spec,
        fn,
        signature,
        options.get("timeout", 60.0),
        options.get("retries", 2),
        options.get("resource"),
        options.get("reconcile"),
        options.get("endpoint", name),
        f"{getattr(fn, '__module__', '')}.{getattr(fn, '__qualname__', name)}",
        address=address,
        preview=options.get("preview"),
        undo=options.get("undo"),
        snapshot=options.get("snapshot"),
    )


def _undo_effect(undo: "Tool[..., Any] | ToolFunction | None") -> Effect | Literal[""]:
    if isinstance(undo, Tool):
        return undo.spec.effect
    return "" if undo is None else "write"


def _check_options(name: str, options: ToolOptions) -> None:
    """Raise ConfigError for options that are unknown or invalid."""
    known = ToolOptions.__optional_keys__
    for option in options:
        if option not in known:
            near = suggest_names(option, known)
            raise ConfigError(f"tool {name!r}: there is no option {option!r}.{near}")
    if not _NAME_PATTERN.fullmatch(name):
        raise ConfigError(
            f"tool {name!r}: a name must have 1 to 64 letters, digits, '_' or '-': pass another "
            "one as name="
        )
    effect = options.get("effect", "write")
    if effect not in get_args(Effect):
        near = suggest_names(effect, get_args(Effect))
        raise ConfigError(f"tool {name!r}: there is no effect {effect!r}.{near}")
    executor = options.get("executor", "thread")
    if executor not in get_args(ToolExecutor):
        near = suggest_names(executor, get_args(ToolExecutor))
        raise ConfigError(f"tool {name!r}: there is no executor {executor!r}.{near}")
    timeout = options.get("timeout", 60.0)
    if timeout is not None and not (math.isfinite(timeout) and timeout > 0):
        raise ConfigError(
            f"tool {name!r}: timeout={timeout}: must be above zero, or None for no limit"
        )
    if options.get("retries", 2) < 0:
        raise ConfigError(f"tool {name!r}: retries={options.get('retries')}: must be zero or more")


def _check_functions(options: ToolOptions, spec: ToolSpec) -> None:
    """Raise ConfigError if what goes with the function of a tool does not fit its parameters."""
    resource = options.get("resource")
    if isinstance(resource, str):
        _check_resource(resource, spec)
    for option in ("reconcile", "snapshot", "undo"):
        function = options.get(option)
        if function is not None:
            _check_parameters(option, function, spec, RunContext(deps=None))
    if options.get("snapshot") is not None and not spec.undo:
        raise ConfigError(f"tool {spec.name!r}: snapshot= is only of use with undo=")
    if spec.undo and spec.effect == "read":
        raise ConfigError(f"tool {spec.name!r}: there is nothing to undo in a read")
    preview = options.get("preview")
    if preview is not None:
        _check_parameters("preview", preview, spec)


def _check_resource(pattern: str, spec: ToolSpec) -> None:
    parameters = [*spec.parameters.get("properties", {})]
    try:
        parsed = list(string.Formatter().parse(pattern))
    except ValueError as error:
        raise ConfigError(f"tool {spec.name!r}: resource={pattern!r}: {error}") from None
    for _, placeholder, _, _ in parsed:
        # `{order.id}` and `{order[id]}` name the parameter `order`.
        if placeholder is not None and re.split(r"[.\[]", placeholder)[0] not in parameters:
            near = suggest_names(placeholder, parameters)
            raise ConfigError(
                f"tool {spec.name!r}: resource={pattern!r}: {placeholder!r} is not a parameter."
                f"{near}"
            )


def _check_parameters(
    option: str, function: ToolFunction, spec: ToolSpec, *context: RunContext[None]
) -> None:
    names = [*spec.parameters.get("properties", {})]
    try:
        inspect.signature(function).bind(*context, **dict.fromkeys(names))
    except TypeError:
        expected = ", ".join(["context", *names] if context else names)
        only = "" if context else ", and no context"
        raise ConfigError(f"tool {spec.name!r}: {option} must take ({expected}){only}") from None
