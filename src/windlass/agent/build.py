"""The parts of an agent, built from its options: models by name, a gate, and one sound setup.

Invariant: an agent that cannot keep its promises is refused here, before anything is spent.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import PurePath
from typing import Any

import msgspec
from msgspec.structs import replace
from typing_extensions import override

from windlass.agent import lazy_imports
from windlass.agent.approvals import as_async_approver
from windlass.agent.call_requests import LiveCallRequests
from windlass.agent.folder_store import FolderStore
from windlass.agent.nested_calls import NestedCallSession
from windlass.agent.openings import check_budgets
from windlass.agent.options import AgentOptions, build_mask
from windlass.agent.output import OutputType
from windlass.agent.parts import AgentParts
from windlass.core.errors import ConfigError
from windlass.core.limits import Limits, SessionLimits
from windlass.core.messages import ToolSpec
from windlass.core.rich_display import DisplayCard, RichDisplay
from windlass.core.schema import JsonSchema
from windlass.core.session_summary import check_text
from windlass.core.setup import DEFAULT_RETRIES, Compaction, LoopPolicy, Setup, fill_loop_defaults
from windlass.core.suggestions import suggest_names
from windlass.environ import read_environment
from windlass.journals.completing import complete_journal
from windlass.journals.memory import MemoryJournal
from windlass.ports import (
    Approver,
    BlobStore,
    Gate,
    GivenJournal,
    Journal,
    Model,
    Timeouts,
    Tools,
    UndoableTools,
    World,
)
from windlass.runtime.clock import RealClock
from windlass.runtime.governor import ProviderGovernor
from windlass.tools.toolbox import Toolbox


class BuiltAgent(RichDisplay):
    """What is shown of an agent: its parts, never its keys."""

    _parts: AgentParts

    @override
    def __repr__(self) -> str:
        setup = self._parts.setup
        name = f", name={self._parts.world.agent!r}" if self._parts.world.agent else ""
        return f"Agent({setup.model.name!r}{name}, {len(setup.tools)} tools)"

    @override
    def display_card(self) -> DisplayCard:
        """Return what is shown of this agent in a notebook."""
        world = self._parts.world
        setup = self._parts.setup
        rows = [
            ("model", setup.model.name),
            ("fallbacks", ", ".join(model.name for model in setup.fallbacks)),
            ("tools", ", ".join(tool.name for tool in setup.tools)),
            ("gate", setup.gate or "none: every call is allowed"),
            ("journal", type(world.journal).__name__),
            ("instructions", setup.instructions),
        ]
        filled = tuple((name, value) for name, value in rows if value)
        return DisplayCard("Agent", world.agent, rows=filled)


def parts_of(agent: BuiltAgent) -> AgentParts:
    """Return what an agent is made of.

    For the packages above this one (`server`, `fleet`, `evaluation`, `cli`, `project`), which show
    an agent, read its journal or mask with its secrets. Programs use the methods of `Agent`.
    """
    return agent._parts  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - this is their door


def build_parts(model: Model | str, output: OutputType[Any], options: AgentOptions) -> AgentParts:
    """Build the parts of an agent. Raises ConfigError if they do not fit together."""
    timeouts = options.get("timeouts") or Timeouts()
    instructions = options.get("instructions", "")
    function, text = (instructions, "") if callable(instructions) else (None, instructions)
    models = _resolve_models(model, options, timeouts)
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
    journal = complete_journal(given, parts.world.clock.now)
    governor = parts.world.governor
    if isinstance(governor, ProviderGovernor):
        governor = governor.share_through(journal)
    world = replace(parts.world, journal=journal, blobs=_blobs_only(journal), governor=governor)
    return replace(parts, world=world)


def _resolve_models(model: Model | str, options: AgentOptions, timeouts: Timeouts) -> list[Model]:
    fallbacks = options.get("fallbacks", ())
    others = [fallbacks] if isinstance(fallbacks, str) else fallbacks
    return [
        _resolve_model(model, timeouts, options),
        *(_resolve_model(other, timeouts, _shared_options(options)) for other in others),
    ]


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
        raise ConfigError(f"{names} is only for a model that is given by its name")
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
    journal = complete_journal(_open_journal(options.get("journal")), clock.now)
    return World(
        models={model.info.name: model for model in models},
        tools=toolbox,
        gate=_build_gate(options.get("gate"), approver),
        approver=approver,
        agent=check_text("name", options.get("name", "")),
        journal=journal,
        blobs=_blobs_only(journal),
        clock=clock,
        timeouts=timeouts,
        schemas={spec.name: JsonSchema(spec.parameters) for spec in _all_specs(toolbox)},
        check_output=None if output.is_text else output.describe_mismatch,
        recall=options.get("knowledge"),
        governor=_build_governor(options, journal),
        folders=options.get("folders") or FolderStore(),
        make_requests=partial(LiveCallRequests, observer=options.get("telemetry")),
        nest_calls=NestedCallSession,
    )


def _build_governor(options: AgentOptions, journal: Journal) -> ProviderGovernor:
    governor = options.get("governor")
    if governor is not None:
        return governor
    return ProviderGovernor(journal, clock=options.get("clock"))


def _all_specs(tools: Tools) -> tuple[ToolSpec, ...]:
    """Return the tools that are offered to a model, and those that undo calls of them."""
    return (*tools.specs, *(tools.undo_specs if isinstance(tools, UndoableTools) else ()))


def _open_journal(given: GivenJournal | str | None) -> GivenJournal:
    if isinstance(given, str | PurePath):
        return lazy_imports.open_journal(given)
    return given if given is not None else MemoryJournal()


def _blobs_only(store: BlobStore) -> BlobStore:
    """Return the blobs of a journal without the journal: a tool must not reach the facts."""

    class BlobAccess:
        # The store is not an attribute: nothing must lead from this object to the journal.
        async def put_blob(self, session: str, data: bytes) -> str:
            return await store.put_blob(session, data)

        async def get_blob(self, session: str, name: str) -> bytes | None:
            return await store.get_blob(session, name)

    return BlobAccess()


def _build_gate(gate: Gate | None, approver: Approver | None) -> Gate | None:
    if gate is None and approver is not None:
        # An agent that can ask a person asks before it changes anything.
        gate = lazy_imports.ask()
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
