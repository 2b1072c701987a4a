"""The setup of a run: the model, the tools, the limits.

It is recorded with the run, so that the journal alone says what may happen next.

It says also what a model sees: how the view stays small, and what is looked up beforehand.
"""

import hashlib
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from windlass.core.limits import (
    Budget,
    Limits,
    Money,
    SessionLimits,
    check_numbers,
    make_exact,
)
from windlass.core.messages import ToolSpec
from windlass.core.suggestions import SettingsStruct
from windlass.core.tool_search import CALL_TOOL, SEARCH_TOOLS

NAME_CHARS_MAX = 48
"""How much of a caller's name is part of the name of its folder."""
_UNUSUAL = re.compile(r"[^A-Za-z0-9_@-]")
_FOLDER_NAME = re.compile(r"[A-Za-z0-9_@-]{0,48}-[0-9a-f]{16}")


class WorkFolder(msgspec.Struct, frozen=True, gc=False):
    """A folder of a caller's own, as a run records it. It is not a path: stores can be moved."""

    store: str
    """The random id of the store that holds the folder."""
    name: str
    """The name of the folder in the store."""

    @property
    def is_sound(self) -> bool:
        """Whether the name is one that `name_folder` makes, so that it cannot lead elsewhere."""
        return _FOLDER_NAME.fullmatch(self.name) is not None


def name_folder(caller: str) -> str:
    """Return the name of a caller's folder: readable, and different for different callers."""
    readable = _UNUSUAL.sub("_", caller)[:NAME_CHARS_MAX]
    return f"{readable}-{hashlib.sha256(caller.encode()).hexdigest()[:16]}"


CompactionMethod = Literal["mask", "summary", "window"]
"""Mask the results of old calls, summarize the beginning, or leave it out."""


class Compaction(SettingsStruct, frozen=True, kw_only=True, omit_defaults=True):
    """How the view of a model stays within its window. The transcript is never changed."""

    strategies: tuple[CompactionMethod, ...] = ("mask", "summary", "window")
    """Tried in this order, until the view is small enough."""
    window: int | None = None
    """Tokens to stay within. None: the window of the model, if it is known."""
    trigger: float = 0.8
    """The share of the window that must be full before anything is done."""
    target: float = 0.5
    """The share of the window that stays full afterwards."""
    cool_down: int = 5
    """Steps without another summary after one failed."""
    summary_tokens: int = 2_000
    """The most tokens of a summary."""

    def __post_init__(self) -> None:
        check_numbers(self, "window", "trigger", "target", "cool_down", "summary_tokens")
        if not self.target < self.trigger <= 1:
            raise ValueError(
                f"Compaction(target={self.target}, trigger={self.trigger}): "
                "it must be target < trigger <= 1"
            )


class Reference(SettingsStruct, frozen=True, omit_defaults=True):
    """Something that a prompt may refer to, and the tool that looks it up."""

    pattern: str
    """A regular expression. Its first group, or the whole match, is looked up."""
    tool: str
    argument: str
    """The argument of the tool that takes it."""


FILE_SUFFIXES = (
    "c|cc|cfg|conf|cpp|cs|css|csv|go|h|hpp|html|ini|ipynb|java|json|jsonl|js|jsx|kt|lock|log|md|php"
    "|proto|ps1|py|pyi|rb|rs|rst|sh|sql|svg|swift|tex|toml|ts|tsx|txt|xml|yaml|yml|zig"
)
FILE_REFERENCE = Reference(
    rf"(?<![\w/@.:-])((?:\.{{0,2}}/)?(?:[\w.-]+/)*[\w.-]*\w\.(?:{FILE_SUFFIXES}))(?![\w/-]|\.\w)",
    "read",
    "path",
)
"""A path with the suffix of a text file. `example.com` and `e.g.` do not match."""
URL_REFERENCE = Reference(r"https?://[^\s<>\"'`)\]]+[^\s<>\"'`)\].,;:!?]", "fetch", "url")


class Hydration(SettingsStruct, frozen=True, kw_only=True, omit_defaults=True):
    """What is looked up before the first step: files, addresses and ids that the prompt names."""

    references: tuple[Reference, ...] = (URL_REFERENCE, FILE_REFERENCE)
    calls_max: int = 5
    seconds: float = 20.0
    """How long each lookup may take."""
    tokens_max: int = 8_000
    """Of everything that is found together."""

    def __post_init__(self) -> None:
        check_numbers(self, "calls_max", "seconds", "tokens_max")
        for reference in self.references:
            try:
                re.compile(reference.pattern)
            except re.error as error:
                raise ValueError(
                    f"Reference({reference.pattern!r}): not a regular expression: {error}"
                ) from None


READS_AT_ONCE = 32
"""Reads that run at the same time, unless a policy says otherwise."""
TOOLS_OFFERED = 40
"""Tools that a model is offered, unless a policy says otherwise."""
CALLS_PER_REPLY = 128
"""Calls of one reply that may run, unless a policy says otherwise."""
ARTIFACT_READER = "read_artifact"
"""The tool that reads what was too long to show. It joins the others when there is such a thing."""
ToolChoice = str
"""`auto`, `none`, `required`, or the name of a tool."""


class Price(SettingsStruct, frozen=True, omit_defaults=True):
    """US dollars for a million tokens, never below zero. Cache prices fall back to input."""

    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None

    if TYPE_CHECKING:
        # A field is a Decimal, but a caller may write an int, a float or a text.
        def __init__(
            self,
            input: Money,  # noqa: A002 - the name of the field
            output: Money,
            cache_read: Money | None = None,
            cache_write: Money | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            make_exact(self, name)
        check_numbers(self, *self.__struct_fields__, zero_allowed=True)


class ModelInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the runtime must know about a model to plan a request."""

    name: str
    """`provider:model`."""
    price: Price | None = None
    window: int | None = None
    """Tokens of input and output together."""
    output_max: int = 8_192
    """The most output tokens to ask for in one reply."""


class RetryPolicy(SettingsStruct, frozen=True, kw_only=True, omit_defaults=True):
    """How often and how long one step asks a model.

    All attempts of a step at one model share one count and one clock; a fallback gets new ones.
    """

    establish_max: int = 4
    """Requests in all, as long as none of them opened a stream."""
    attempts_max: int = 6
    """Requests in all."""
    wait_base_s: float = 1.0
    """The most seconds before the second request. It doubles with each failure."""
    wait_max_s: float = 16.0
    """The most seconds between two requests, unless the provider asks for more."""
    retry_after_max_s: float = 60.0
    """If the provider asks to wait longer than this, the step ends at once."""
    budget_s: float = 300.0
    """The most seconds from the first request of a step to the start of its last one.

    An agent without its own policy has `DEFAULT_RETRIES`, with 900 s. The default here stays
    as it is: journals leave out a field that has its default.
    """

    def __post_init__(self) -> None:
        check_numbers(self, "establish_max", "attempts_max", "budget_s")


DEFAULT_RETRIES = RetryPolicy(budget_s=900.0)
"""Enough for all attempts at a model that says nothing: 5 time-outs of 120 s, and 31 s of waits."""


class LoopPolicy(SettingsStruct, frozen=True, kw_only=True, omit_defaults=True):
    """The choices that a caller can make about the loop."""

    on_partial: Literal["fail", "restart"] = "restart"
    """When a stream breaks after a watcher saw some of its text: ask again, or end the run as
    failed. Each run records its own choice when it starts."""
    on_limit: Literal["stop", "answer"] = "stop"
    """At the step limit: stop, or request one more reply with the tools switched off."""
    on_budget: Literal["stop", "pause"] = "stop"
    """When the money or the tokens are used up: end the run, or pause it until the limit is raised.
    """
    budget_wait_s: float = 600.0
    """How long a run waits for a shared budget whose rest other runs hold in reserve, before
    `on_budget` applies. The wait is not time at work. 0: not at all."""
    on_failure: Literal["keep", "undo"] = "keep"
    """When a run ends in any other way than completed: keep what its calls did, or undo it, as far
    as their tools can, by its own run."""
    on_unknown: Literal["tell", "ask"] = "tell"
    """A write that a crash interrupted and no tool can check: tell the model, or ask a person."""
    tool_choice: ToolChoice = "auto"
    """It holds until it is satisfied once. After that it is `auto`."""
    parallel_tool_calls: bool = True
    """Whether a reply may make several calls. If not, providers that know such a setting receive
    it, and if a reply still makes several, they run one after another."""
    calls_at_once_max: int = 5
    """Calls of one step that run at the same time."""
    tools_offered_max: int | None = None
    """If an agent has more tools than this, the model is offered two in their place: one that
    searches for tools, and one that calls them. By default 40; 0 never does so. In records, None is
    the rule of their time: all tools are offered."""
    reads_at_once_max: int | None = None
    """Reads of one step that run at the same time. By default 32, or `calls_at_once_max` if that is
    set to another number. In records, None is the rule of their time: `calls_at_once_max`."""
    calls_per_reply_max: int | None = None
    """Calls of one reply that may run; the model learns that the others did not. By default 128. In
    records, None is the rule of their time: no bound."""
    same_call_note: int = 3
    """After this many equal calls with equal results in a row, the model gets a note."""
    same_call_stop: int = 2
    """This many more of them after the note end the run as `stuck`."""
    misfits_max: int = 2
    """How many replies that do not fit the output type are requested again."""
    denials_max: int = 3
    """How many final replies the gate may deny before the run ends as `policy_denied`."""
    outages_max: int = 3
    """This many steps in a row with nothing but tool outages end the run as `failed`."""

    def __post_init__(self) -> None:
        check_numbers(
            self,
            "calls_at_once_max",
            "reads_at_once_max",
            "calls_per_reply_max",
            "same_call_note",
            "same_call_stop",
            "denials_max",
            "outages_max",
        )
        check_numbers(self, "budget_wait_s", zero_allowed=True)


def fill_loop_defaults(policy: LoopPolicy) -> LoopPolicy:
    """Return the policy of a new run, with today's defaults written out.

    A default that is left out of a record must keep its meaning forever, so defaults that have
    changed are recorded in full.
    """
    reads = policy.reads_at_once_max
    if reads is None and policy.calls_at_once_max == LoopPolicy().calls_at_once_max:
        reads = READS_AT_ONCE
    return replace(
        policy,
        reads_at_once_max=reads,
        calls_per_reply_max=policy.calls_per_reply_max or CALLS_PER_REPLY,
        tools_offered_max=TOOLS_OFFERED
        if policy.tools_offered_max is None
        else policy.tools_offered_max,
    )


OUTPUT_KEY = "windlass_output"
"""The key, in the context of a run, of the JSON Schema that its caller wants the reply to fit."""


class Setup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that decides what a run may do."""

    model: ModelInfo
    fallbacks: tuple[ModelInfo, ...] = ()
    """Asked in turn when no attempts are left for the model before."""
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    gate: str = ""
    """The name and digest of the policy in force; empty if none is set."""
    judge_replies: bool = False
    """Whether final replies are judged before they count."""
    withhold_replies: bool = False
    """Whether the gate judges them, so that watchers see none before its verdict."""
    output_schema: dict[str, Any] | None = None
    limits: Limits = Limits()
    session_limits: SessionLimits = SessionLimits()
    budgets: tuple[Budget, ...] = ()
    compaction: Compaction = Compaction()
    summariser: ModelInfo | None = None
    """The model that writes summaries. None: the model of the run."""
    hydration: Hydration | None = None
    recalls: bool = False
    """Whether the memory is asked what it knows about a prompt."""
    retries: RetryPolicy = RetryPolicy()
    rules: LoopPolicy = LoopPolicy()

    @property
    def models(self) -> tuple[ModelInfo, ...]:
        """The model and its fallbacks, in the order in which they are asked."""
        return (self.model, *self.fallbacks)

    def find_tool(self, name: str) -> ToolSpec | None:
        """Return the spec of a tool, or None if there is no such tool."""
        for spec in self.tools:
            if spec.name == name:
                return spec
        return None

    def offered_tools(self, *, has_artifacts: bool) -> tuple[ToolSpec, ...]:
        """Return the tools that a model is shown now.

        The reader of artifacts costs tokens in every request, so it joins when there is something
        to read. If the tools are searched for, only those that do it are shown, which stay the
        same for the whole run.
        """
        if self.searches_tools:
            shown = (SEARCH_TOOLS, CALL_TOOL, *((ARTIFACT_READER,) if has_artifacts else ()))
            return tuple(spec for spec in self.tools if spec.name in shown)
        return self.callable_tools(has_artifacts=has_artifacts)

    def callable_tools(self, *, has_artifacts: bool) -> tuple[ToolSpec, ...]:
        """Return the tools that may be called now: also those that must be searched for."""
        if has_artifacts:
            return self.tools
        return tuple(spec for spec in self.tools if not spec.needs_artifact)

    @property
    def searches_tools(self) -> bool:
        """Whether the model is offered a search in place of the tools."""
        tools = self.tools
        if len(tools) < 2 or tools[-1].name != CALL_TOOL or tools[-2].name != SEARCH_TOOLS:  # noqa: PLR2004 - a pair
            return False
        return bool(self.rules.tools_offered_max)


def describe_drift(recorded: Setup, offered: Setup) -> Iterator[str]:
    """Yield, in words, how the setup of a resuming agent differs from the recorded one."""
    if recorded.model.name != offered.model.name:
        yield f"model {recorded.model.name} became {offered.model.name}"
    if [info.name for info in recorded.fallbacks] != [info.name for info in offered.fallbacks]:
        yield "the fallback models differ"
    if recorded.instructions != offered.instructions:
        yield "the instructions differ"
    if recorded.gate != offered.gate:
        yield f"policy {recorded.gate or 'none'} became {offered.gate or 'none'}"
    if recorded.output_schema != offered.output_schema:
        yield "the output type differs"
    before = {spec.name: spec for spec in recorded.tools}
    after = {spec.name: spec for spec in offered.tools}
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            yield f"tool {name} is gone"
        elif name not in before:
            yield f"tool {name} is new"
        elif _as_called(before[name]) != _as_called(after[name]):
            yield f"tool {name} changed"


def digest_configuration(setup: Setup) -> str:
    """Return a name for all that `describe_drift` compares: equal names mean no drift."""
    models = [info.name for info in setup.models]
    tools = sorted((_as_called(spec) for spec in setup.tools), key=lambda spec: spec.name)
    return digest((models, setup.instructions, setup.gate, setup.output_schema, tools))


def _as_called(spec: ToolSpec) -> ToolSpec:
    """Return what a call of a tool means, whatever decides when and where it runs or is undone."""
    return replace(spec, needs_artifact=False, undo="", isolated=False)


def digest(value: object) -> str:
    """Return a short, stable name for a value, the same in every process."""
    canonical = msgspec.json.encode(value, order="deterministic")
    return hashlib.blake2b(canonical, digest_size=16).hexdigest()
