"""The parts of an agent, built from its options: models by name, a gate, and one sound setup.

Invariant: an agent that cannot keep its promises is refused here, before anything is spent.

An output type gives the schema that the model gets, and the check of its final reply.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import PurePath
from typing import Any, Generic, Protocol, cast

import msgspec
from msgspec.structs import replace

from windlass.agent import lazy_features, lazy_imports
from windlass.agent.approvals import as_async_approver
from windlass.agent.event_stream import RunObserver
from windlass.agent.folder_store import FolderStore
from windlass.agent.openings import check_budgets
from windlass.agent.options import AgentOptions, AgentParts, build_mask
from windlass.core.errors import ConfigError
from windlass.core.limits import Limits, SessionLimits
from windlass.core.messages import ToolSpec
from windlass.core.result import OutputT
from windlass.core.schema import JSON_FENCE, JsonSchema
from windlass.core.session_summary import check_text
from windlass.core.setup import DEFAULT_RETRIES, Compaction, LoopPolicy, Setup, fill_loop_defaults
from windlass.core.suggestions import suggest_names
from windlass.environ import read_environment
from windlass.journals.memory import MemoryJournal
from windlass.ports import (
    Approver,
    BlobStore,
    CallContext,
    CallerRun,
    CallRequests,
    Clock,
    Gate,
    GivenJournal,
    Journal,
    Model,
    NestedCalls,
    NestingCall,
    Timeouts,
    Tools,
    UndoableTools,
    World,
)
from windlass.runtime.governor import ProviderGovernor
from windlass.runtime.recorder import RealClock
from windlass.tools.toolbox import Toolbox

MISMATCH_CHARS_MAX = 600


class OutputType(Generic[OutputT]):
    """The type that a final reply must have."""

    def __init__(self, output_type: type[OutputT]) -> None:
        self._type = output_type
        self.is_text = output_type is str
        self.schema: dict[str, Any] | None = None if self.is_text else _schema_of(output_type)

    def describe_mismatch(self, text: str) -> str | None:
        """Return what is wrong with a reply, in words for the model; None if it fits."""
        try:
            self.parse(text)
        except ValueError as error:
            problem = str(error)[:MISMATCH_CHARS_MAX]
            return f"Your reply does not fit the schema: {problem}. Reply with only the JSON value."
        return None

    def parse(self, text: str) -> OutputT:
        """Return the value in a reply. Raises ValueError if the reply does not fit."""
        if self.is_text:
            return cast("OutputT", text)
        fenced = JSON_FENCE.fullmatch(text)
        body = fenced.group(1) if fenced else text
        if _is_pydantic(self._type):
            return cast("_PydanticModel", self._type).model_validate_json(body)
        return msgspec.json.decode(body, type=self._type)


class _PydanticModel(Protocol):
    def model_json_schema(self) -> dict[str, Any]: ...

    def model_validate_json(self, json_data: str) -> Any: ...  # noqa: ANN401 - of the user's type


def _is_pydantic(output_type: object) -> bool:
    """Recognized by its methods, so that pydantic need not be imported."""
    return hasattr(output_type, "model_json_schema")


def _schema_of(output_type: type[Any]) -> dict[str, Any]:
    if _is_pydantic(output_type):
        return cast("_PydanticModel", output_type).model_json_schema()
    try:
        return msgspec.json.schema(output_type)
    except TypeError as error:
        raise ConfigError(f"output_type={output_type!r} has no JSON schema: {error}") from error


def build_parts(model: Model | str, output: OutputType[Any], options: AgentOptions) -> AgentParts:
    """Build the parts of an agent. Raises ConfigError if they do not fit together."""
    timeouts = options.get("timeouts") or Timeouts()
    instructions = options.get("instructions", "")
    function, text = (instructions, "") if callable(instructions) else (None, instructions)
    fallbacks = options.get("fallbacks", ())
    others = [fallbacks] if isinstance(fallbacks, str) else fallbacks
    models = [
        _resolve_model(model, timeouts, options),
        *(_resolve_model(other, timeouts, _shared_options(options)) for other in others),
    ]
    summariser = _resolve_summariser(models, options, timeouts)
    all_models = [*models]
    if summariser is not None:
        all_models.append(summariser)
    _check_model_names(all_models)
    world = _build_world(all_models, output, options, timeouts)
    settings = Setup(
        model=models[0].info,
        fallbacks=tuple(fallback.info for fallback in models[1:]),
        summariser=summariser.info if summariser else None,
        instructions=check_text("instructions", text),
        output_schema=output.schema,
        limits=options.get("limits") or Limits(),
        session_limits=options.get("session_limits") or SessionLimits(),
        budgets=tuple(options.get("budgets", ())),
        compaction=options.get("compaction") or Compaction(),
        hydration=options.get("hydration"),
        retries=options.get("retries") or DEFAULT_RETRIES,
        rules=fill_loop_defaults(options.get("rules") or LoopPolicy()),
    )
    mask = build_mask(options.get("secrets"), [*all_models, world.tools])
    setup = mask.mask_setup(_build_setup(world, settings))
    return AgentParts(world, setup, mask, function, options.get("telemetry"))


def replace_journal(parts: AgentParts, given: GivenJournal) -> AgentParts:
    """Return the parts of the same agent with another journal."""
    journal = lazy_imports.complete_journal(given, parts.world.clock.now)
    governor = parts.world.governor
    if isinstance(governor, ProviderGovernor):
        governor = governor.share_through(journal)
    world = replace(parts.world, journal=journal, blobs=_blobs_only(journal), governor=governor)
    return replace(parts, world=world)


def _resolve_model(model: Model | str, timeouts: Timeouts, options: AgentOptions) -> Model:
    key = options.get("key")
    base_url = options.get("base_url")
    model_options = options.get("options")
    price = options.get("price")
    if isinstance(model, str):
        return lazy_imports.resolve_model(
            model,
            environ=read_environment(),
            key=key,
            base_url=base_url,
            options=model_options,
            timeouts=timeouts,
            price=price,
            strict=options.get("strict_models", False),
        )
    given = {"key": key, "base_url": base_url, "options": model_options, "price": price}
    if any(given.values()):
        names = ", ".join(f"{name}=" for name, value in given.items() if value)
        raise ConfigError(f"{names} can only be used with a model name")
    return model


def _resolve_summariser(
    models: Sequence[Model], options: AgentOptions, timeouts: Timeouts
) -> Model | None:
    """Return the model that writes summaries; None if the main model does it itself."""
    wanted = options.get("summary_model")
    if not isinstance(wanted, str):
        return wanted
    names = (wanted, wanted.replace("/", ":", 1))
    for model in models:
        if model.info.name in names:
            return model
    return _resolve_model(wanted, timeouts, _shared_options(options))


def _shared_options(options: AgentOptions) -> AgentOptions:
    """Return what holds for all models of an agent, not only for the first."""
    return {"strict_models": options.get("strict_models", False)}


def _check_model_names(models: Sequence[Model]) -> None:
    """Records name the model that answered, so that no two models may have one name."""
    models_by_name: dict[str, Model] = {}
    for model in models:
        name = model.info.name
        if models_by_name.setdefault(name, model) is not model:
            raise ConfigError(f"two models have the name {name}: leave one of them out")


def _build_world(
    models: Sequence[Model], output: OutputType[Any], options: AgentOptions, timeouts: Timeouts
) -> World:
    tools = options.get("tools", ())
    toolbox = Toolbox(tools) if isinstance(tools, Sequence) else tools
    if isinstance(toolbox, Toolbox):
        toolbox.check_deps()
        offered_max = fill_loop_defaults(options.get("rules") or LoopPolicy()).tools_offered_max
        offered = [spec for spec in toolbox.specs if not spec.needs_artifact]
        if offered_max and len(offered) > offered_max:
            toolbox = toolbox.with_search()
    approver = as_async_approver(options.get("approver"))
    clock = options.get("clock") or RealClock()
    journal = _open_journal(options.get("journal"), clock)
    return World(
        models={model.info.name: model for model in models},
        tools=toolbox,
        gate=_build_gate(options.get("gate"), approver, _all_specs(toolbox)),
        approver=approver,
        agent=check_text("name", options.get("name", "")),
        journal=journal,
        blobs=_blobs_only(journal),
        clock=clock,
        timeouts=timeouts,
        schemas={spec.name: _compile_schema(spec) for spec in _all_specs(toolbox)},
        check_output=None if output.is_text else output.describe_mismatch,
        recall=options.get("knowledge"),
        governor=_build_governor(options, journal),
        folders=options.get("folders") or FolderStore(),
        make_requests=partial(_make_requests, options.get("telemetry")),
        nest_calls=_nest_calls,
    )


def _build_governor(options: AgentOptions, journal: Journal) -> ProviderGovernor:
    governor = options.get("governor")
    if governor is not None:
        return governor
    return ProviderGovernor(journal, clock=options.get("clock"))


def _all_specs(tools: Tools) -> tuple[ToolSpec, ...]:
    """Return the tools that are offered to a model, and those that undo calls of them."""
    return (*tools.specs, *(tools.undo_specs if isinstance(tools, UndoableTools) else ()))


def _compile_schema(spec: ToolSpec) -> JsonSchema:
    check_text(f"tool {spec.name!r}: description", spec.description)
    return JsonSchema(spec.parameters)


def _open_journal(given: GivenJournal | str | None, clock: Clock) -> Journal:
    if given is None:
        return MemoryJournal()
    if isinstance(given, str | PurePath):
        given = lazy_features.open_journal(given)
    return lazy_imports.complete_journal(given, clock.now)


def _make_requests(
    observer: RunObserver | None, run: CallerRun, call_id: str, context: CallContext
) -> CallRequests:
    return lazy_features.LiveCallRequests(run, call_id, context, observer=observer)


def _nest_calls(run: CallerRun, nesting: NestingCall) -> NestedCalls:
    return lazy_features.NestedCallSession(run, nesting)


def _blobs_only(store: BlobStore) -> BlobStore:
    """Return the blobs of a journal without the journal: a tool must not reach the facts."""

    class BlobAccess:
        # The store is not an attribute: nothing must lead from this object to the journal.
        async def put_blob(self, session: str, data: bytes) -> str:
            return await store.put_blob(session, data)

        async def get_blob(self, session: str, name: str) -> bytes | None:
            return await store.get_blob(session, name)

    return BlobAccess()


def _build_gate(
    gate: Gate | None, approver: Approver | None, specs: Sequence[ToolSpec]
) -> Gate | None:
    if gate is None and approver is not None:
        # An agent that can ask a person asks before it changes anything.
        gate = lazy_imports.ask()
    asking = [spec.name for spec in specs if spec.asks]
    if asking:
        gate = lazy_imports.ask_about(asking, gate)
    if gate is None:
        return None
    # A person may answer a question for more than one call: the grant then lifts later ones.
    return lazy_imports.GrantGate(gate)


def _build_setup(world: World, settings: Setup) -> Setup:
    """Return what is recorded with each run: everything that decides what the run may do."""
    gate = world.gate
    judges_replies = gate is not None and gate.judges_replies
    try:
        setup = replace(
            settings,
            tools=world.tools.specs,
            gate=gate.name if gate else "",
            judge_replies=world.check_output is not None or judges_replies,
            withhold_replies=judges_replies,
            recalls=world.recall is not None,
        )
        # Structs do not check their fields, so this does, as if it were read from a journal.
        setup = msgspec.convert(msgspec.to_builtins(setup), type=Setup)
    except msgspec.ValidationError as error:
        raise ConfigError(f"a setting has the wrong type: {error}") from None
    check_budgets(setup)
    _check_tool_choice(setup)
    return setup


def _check_tool_choice(setup: Setup) -> None:
    """Raise ConfigError for a tool choice that no reply could satisfy."""
    choice = setup.rules.tool_choice
    # The choice is for the first reply, before which there is no artifact to read.
    names = [spec.name for spec in setup.offered_tools(has_artifacts=False)]
    if choice in ("auto", "none") or choice in names:
        return
    if choice == "required":
        if names:
            return
        raise ConfigError('LoopPolicy(tool_choice="required"): the agent has no tools')
    words = ("auto", "none", "required", *names)
    raise ConfigError(
        f"LoopPolicy(tool_choice={choice!r}): there is no such tool.{suggest_names(choice, words)}"
        " Give auto, none, required or the name of a tool."
    )
