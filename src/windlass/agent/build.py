"""The parts of an agent, from what its maker gave: models by name, a gate, one sound set-up."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from windlass.agent.lazy_imports import asking, granting, resolve
from windlass.agent.observers import Observer
from windlass.agent.openings import Instructions, Openings
from windlass.agent.options import AgentOptions
from windlass.agent.output import Output
from windlass.agent.runs import Runs
from windlass.agent.secrets import mask_of
from windlass.core.context import Compaction
from windlass.core.errors import ConfigError
from windlass.core.limits import Limits, SessionLimits
from windlass.core.schema import Schema
from windlass.core.secrets.mask import Mask
from windlass.core.setup import Retries, Rules, Setup
from windlass.environ import environment
from windlass.journals.memory import MemoryJournal
from windlass.ports import Approver, Blobs, Gate, Journal, Model, Pools, Timeouts, World
from windlass.runtime.clock import RealClock
from windlass.tools.toolbox import Toolbox


@dataclass(frozen=True, slots=True)
class Parts:
    """What an agent is made of."""

    world: World
    setup: Setup
    mask: Mask | None = None
    instructions: Instructions | None = None
    """Those that are made for each run."""
    observer: Observer | None = None

    @property
    def openings(self) -> Openings:
        return Openings(self.setup, self.world.clock, self.mask, self.instructions)

    @property
    def runs(self) -> Runs:
        return Runs(self.world, self.setup, self.mask, self.observer)


def assembled(model: Model | str, output: Output[Any], given: AgentOptions) -> Parts:
    """The parts of an agent; raises ConfigError if they do not make a whole."""
    timeouts, told = given.get("timeouts") or Timeouts(), given.get("instructions", "")
    models = _resolved(model, given, timeouts)
    summing = _summariser(models, given, timeouts)
    asked = [*models, summing] if summing else models
    _check_names(asked)
    world = _world(asked, output, given, timeouts)
    settings = Setup(
        model=models[0].info,
        fallbacks=tuple(one.info for one in models[1:]),
        summariser=summing.info if summing else None,
        instructions="" if callable(told) else told,
        output_schema=output.schema,
        limits=given.get("limits") or Limits(),
        session_limits=given.get("session_limits") or SessionLimits(),
        budgets=tuple(given.get("budgets", ())),
        compaction=given.get("compaction") or Compaction(),
        hydration=given.get("hydration"),
        retries=given.get("retries") or Retries(),
        rules=given.get("rules") or Rules(),
    )
    mask = mask_of(given.get("secrets"), [*asked, world.tools])
    setup = mask.setup(_set_up(world, settings))
    made = told if callable(told) else None
    return Parts(world, setup, mask, made, given.get("telemetry"))


def _summariser(models: Sequence[Model], given: AgentOptions, timeouts: Timeouts) -> Model | None:
    """Who sums up, if anybody but the model itself; one that is there already is not made twice."""
    asked = given.get("summary_model")
    if not isinstance(asked, str):
        return asked
    names = asked, asked.replace("/", ":", 1)
    known = next((one for one in models if one.info.name in names), None)
    return known or _one(asked, timeouts, {})


def _check_names(models: Sequence[Model]) -> None:
    """A record names the model that answered: so a name is one model's."""
    known: dict[str, Model] = {}
    for one in models:
        if known.setdefault(one.info.name, one) is not one:
            raise ConfigError(f"two models are called {one.info.name}: leave one of them out")


def _resolved(model: Model | str, given: AgentOptions, timeouts: Timeouts) -> list[Model]:
    fallbacks = given.get("fallbacks", ())
    others = [fallbacks] if isinstance(fallbacks, str) else fallbacks
    return [_one(model, timeouts, given), *(_one(other, timeouts, {}) for other in others)]


def _one(model: Model | str, timeouts: Timeouts, given: AgentOptions) -> Model:
    named = {
        "key": given.get("key"),
        "base_url": given.get("base_url"),
        "options": given.get("options"),
        "price": given.get("price"),
    }
    if not isinstance(model, str):
        if any(named.values()):
            words = ", ".join(f"{name}=" for name, value in named.items() if value)
            raise ConfigError(f"{words} goes with the name of a model, not with a model")
        return model
    return resolve(model, environ=environment(), timeouts=timeouts, **named)


def _world(
    models: Sequence[Model], output: Output[Any], given: AgentOptions, timeouts: Timeouts
) -> World:
    tools = given.get("tools", ())
    toolbox = Toolbox(tools) if isinstance(tools, Sequence) else tools
    approver = given.get("approver")
    journal = given.get("journal") or MemoryJournal()
    return World(
        models={one.info.name: one for one in models},
        tools=toolbox,
        gate=_gate(given.get("gate"), approver),
        approver=approver,
        agent=given.get("name", ""),
        journal=journal,
        blobs=journal if isinstance(journal, Blobs) else None,
        clock=given.get("clock") or RealClock(),
        timeouts=timeouts,
        schemas={spec.name: Schema(spec.parameters) for spec in toolbox.specs},
        fit=None if output.plain else output.misfit,
        recall=given.get("knowledge"),
    )


def _gate(gate: Gate | None, approver: Approver | None) -> Gate | None:
    """Without a gate of its own, an agent with somebody to ask asks before it changes anything."""
    if gate is None and approver is not None:
        gate = asking()
    return None if gate is None else granting(gate)


def _set_up(world: World, settings: Setup) -> Setup:
    """What is recorded with each run: all that decides what it may do."""
    gate = world.gate
    judged = gate is not None and gate.judges_replies
    try:
        setup = replace(
            settings,
            tools=world.tools.specs,
            gate=gate.name if gate else "",
            judge_replies=world.fit is not None or judged,
            withhold_replies=judged,
            recalls=world.recall is not None,
        )
        setup = msgspec.convert(msgspec.to_builtins(setup), type=Setup)
    except msgspec.ValidationError as error:
        raise ConfigError(f"a setting is not what it must be: {error}") from None
    _check_money(setup, world.journal)
    return setup


def _check_money(setup: Setup, journal: Journal) -> None:
    """A limit that could not be held is refused before anything is spent."""
    budgets = setup.budgets
    limited = [("Limits", setup.limits.usd), ("SessionLimits", setup.session_limits.usd)]
    limited += [(f"Budget {one.name}", one.usd) for one in budgets]
    asked = (*setup.models, *((setup.summariser,) if setup.summariser else ()))
    unknown = [info.name for info in asked if info.price is None]
    for whose, usd in limited:
        if usd is not None and unknown:
            raise ConfigError(
                f"{whose}(usd=…): the price of {unknown[0]} is not known, so that money cannot be "
                "limited. Give the model a price, or limit tokens."
            )
    if budgets and not isinstance(journal, Pools):
        raise ConfigError(f"{type(journal).__name__} keeps no budgets: use another journal")
    if len({one.name for one in budgets}) != len(budgets):
        raise ConfigError("two budgets have one name")
