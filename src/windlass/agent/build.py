"""The parts of an agent, from what its maker gave: models by name, a gate, one sound set-up."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from windlass.agent import lazy_imports
from windlass.agent.observers import RunObserver
from windlass.agent.openings import InstructionFunction, RunOpenings
from windlass.agent.options import AgentOptions
from windlass.agent.output import OutputType
from windlass.agent.runs import LiveRuns
from windlass.agent.secrets import build_mask
from windlass.core.context import Compaction
from windlass.core.errors import ConfigError
from windlass.core.limits import Limits, SessionLimits
from windlass.core.schema import JsonSchema
from windlass.core.secrets.mask import Mask
from windlass.core.setup import LoopPolicy, RetryPolicy, Setup
from windlass.environ import read_environment
from windlass.journals.memory import MemoryJournal
from windlass.ports import Approver, BlobStore, Gate, Journal, Model, SharedBudgets, Timeouts, World
from windlass.runtime.clock import RealClock
from windlass.tools.toolbox import Toolbox


@dataclass(frozen=True, slots=True)
class AgentParts:
    """What an agent is made of."""

    world: World
    setup: Setup
    mask: Mask | None = None
    instructions: InstructionFunction | None = None
    """Those that are made for each run."""
    observer: RunObserver | None = None

    @property
    def openings(self) -> RunOpenings:
        return RunOpenings(self.setup, self.world.clock, self.mask, self.instructions)

    @property
    def runs(self) -> LiveRuns:
        return LiveRuns(self.world, self.setup, self.mask, self.observer)


def build_parts(model: Model | str, output: OutputType[Any], options: AgentOptions) -> AgentParts:
    """The parts of an agent; raises ConfigError if they do not make a whole."""
    timeouts, instructions = options.get("timeouts") or Timeouts(), options.get("instructions", "")
    models = _resolve_models(model, options, timeouts)
    summariser = _resolve_summariser(models, options, timeouts)
    all_models = [*models, summariser] if summariser else models
    _check_model_names(all_models)
    world = _build_world(all_models, output, options, timeouts)
    settings = Setup(
        model=models[0].info,
        fallbacks=tuple(one.info for one in models[1:]),
        summariser=summariser.info if summariser else None,
        instructions="" if callable(instructions) else instructions,
        output_schema=output.schema,
        limits=options.get("limits") or Limits(),
        session_limits=options.get("session_limits") or SessionLimits(),
        budgets=tuple(options.get("budgets", ())),
        compaction=options.get("compaction") or Compaction(),
        hydration=options.get("hydration"),
        retries=options.get("retries") or RetryPolicy(),
        rules=options.get("rules") or LoopPolicy(),
    )
    mask = build_mask(options.get("secrets"), [*all_models, world.tools])
    setup = mask.mask_setup(_build_setup(world, settings))
    instruction_function = instructions if callable(instructions) else None
    return AgentParts(world, setup, mask, instruction_function, options.get("telemetry"))


def _resolve_summariser(
    models: Sequence[Model], options: AgentOptions, timeouts: Timeouts
) -> Model | None:
    """Who sums up, if anybody but the model itself; one that is there already is not made twice."""
    wanted = options.get("summary_model")
    if not isinstance(wanted, str):
        return wanted
    names = wanted, wanted.replace("/", ":", 1)
    known = next((one for one in models if one.info.name in names), None)
    return known or _resolve_model(wanted, timeouts, {})


def _check_model_names(models: Sequence[Model]) -> None:
    """A record names the model that answered: so a name is one model's."""
    known: dict[str, Model] = {}
    for one in models:
        if known.setdefault(one.info.name, one) is not one:
            raise ConfigError(f"two models are called {one.info.name}: leave one of them out")


def _resolve_models(model: Model | str, options: AgentOptions, timeouts: Timeouts) -> list[Model]:
    fallbacks = options.get("fallbacks", ())
    others = [fallbacks] if isinstance(fallbacks, str) else fallbacks
    return [
        _resolve_model(model, timeouts, options),
        *(_resolve_model(other, timeouts, {}) for other in others),
    ]


def _resolve_model(model: Model | str, timeouts: Timeouts, options: AgentOptions) -> Model:
    model_options = {
        "key": options.get("key"),
        "base_url": options.get("base_url"),
        "options": options.get("options"),
        "price": options.get("price"),
    }
    if not isinstance(model, str):
        if any(model_options.values()):
            words = ", ".join(f"{name}=" for name, value in model_options.items() if value)
            raise ConfigError(f"{words} goes with the name of a model, not with a model")
        return model
    return lazy_imports.resolve_model(
        model,
        environ=read_environment(),
        key=options.get("key"),
        base_url=options.get("base_url"),
        options=options.get("options"),
        timeouts=timeouts,
        price=options.get("price"),
    )


def _build_world(
    models: Sequence[Model], output: OutputType[Any], options: AgentOptions, timeouts: Timeouts
) -> World:
    tools = options.get("tools", ())
    toolbox = Toolbox(tools) if isinstance(tools, Sequence) else tools
    approver = options.get("approver")
    journal = options.get("journal") or MemoryJournal()
    return World(
        models={one.info.name: one for one in models},
        tools=toolbox,
        gate=_build_gate(options.get("gate"), approver),
        approver=approver,
        agent=options.get("name", ""),
        journal=journal,
        blobs=journal if isinstance(journal, BlobStore) else None,
        clock=options.get("clock") or RealClock(),
        timeouts=timeouts,
        schemas={spec.name: JsonSchema(spec.parameters) for spec in toolbox.specs},
        check_output=None if output.is_text else output.describe_mismatch,
        recall=options.get("knowledge"),
    )


def _build_gate(gate: Gate | None, approver: Approver | None) -> Gate | None:
    """Without a gate of its own, an agent with somebody to ask asks before it changes anything."""
    if gate is None and approver is not None:
        gate = lazy_imports.ask()
    return None if gate is None else lazy_imports.Granted(gate)


def _build_setup(world: World, settings: Setup) -> Setup:
    """What is recorded with each run: all that decides what it may do."""
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
        setup = msgspec.convert(msgspec.to_builtins(setup), type=Setup)
    except msgspec.ValidationError as error:
        raise ConfigError(f"a setting is not what it must be: {error}") from None
    _check_budgets(setup, world.journal)
    return setup


def _check_budgets(setup: Setup, journal: Journal) -> None:
    """A limit that could not be held is refused before anything is spent."""
    budgets = setup.budgets
    usd_limits = [("Limits", setup.limits.usd), ("SessionLimits", setup.session_limits.usd)]
    usd_limits += [(f"Budget {one.name}", one.usd) for one in budgets]
    all_models = (*setup.models, *((setup.summariser,) if setup.summariser else ()))
    unpriced = [info.name for info in all_models if info.price is None]
    for whose, usd in usd_limits:
        if usd is not None and unpriced:
            raise ConfigError(
                f"{whose}(usd=…): the price of {unpriced[0]} is not known, so that money cannot be "
                "limited. Give the model a price, or limit tokens."
            )
    if budgets and not isinstance(journal, SharedBudgets):
        raise ConfigError(f"{type(journal).__name__} keeps no budgets: use another journal")
    if len({one.name for one in budgets}) != len(budgets):
        raise ConfigError("two budgets have one name")
