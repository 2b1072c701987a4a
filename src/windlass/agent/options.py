"""What can be said of an agent. Every one has a default."""

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

from windlass.agent.observers import RunObserver
from windlass.agent.openings import InstructionFunction
from windlass.agent.secrets import Secrets
from windlass.core.context import Compaction, Hydration
from windlass.core.errors import ConfigError
from windlass.core.limits import Budget, Limits, SessionLimits
from windlass.core.setup import LoopPolicy, Price, RetryPolicy
from windlass.core.suggestions import suggest_names
from windlass.models.options import ModelOptions
from windlass.ports import Approver, Clock, Gate, Journal, Model, Recaller, Timeouts, Tools


class AgentOptions(TypedDict, total=False):
    """How an agent is made."""

    name: str
    """What it is called: by its gate, by those that it works for, in traces."""
    instructions: str | InstructionFunction
    """What the model is told before all else; or a function of the run's briefing."""
    tools: Tools | Sequence[Callable[..., Any]]

    fallbacks: Sequence[Model | str]
    """Asked in turn when the attempts at the model before are spent."""
    key: str | None
    base_url: str | None
    options: ModelOptions | None
    price: Price | None
    """Of a model that is given by its name."""

    gate: Gate | None
    """Who says what may happen. Without one, an agent with an approver asks before it changes
    anything, and an agent without either may use its tools freely."""
    approver: Approver | None
    """Asks a person. Without one, a question suspends the run until `answer` is called."""
    secrets: Secrets | None
    """Values that nobody may see, by name or bare. They are masked in what the model, the journal,
    the watchers and the logs get, like the keys of the models, the environment's secrets, and what
    looks like a key. For an agent that must handle keys, give a mask of its own, which is used in
    place of all that: `Mask(key_like=False)` masks nothing."""

    limits: Limits | None
    session_limits: SessionLimits | None
    budgets: Sequence[Budget]
    """Limits that are shared with other runs, kept in the journal."""

    compaction: Compaction | None
    """How what the model is shown stays within its window."""
    summary_model: Model | str | None
    """Who sums up a conversation that grew too long; the model itself unless told."""
    hydration: Hydration | None
    """What of a prompt is looked up before the first step; nothing unless told."""
    knowledge: Recaller | None
    """Finds what is known about a prompt, to be shown beside it."""

    journal: Journal | None
    """Where sessions are kept; in memory unless told."""
    rules: LoopPolicy | None
    retries: RetryPolicy | None
    timeouts: Timeouts | None
    clock: Clock | None

    telemetry: RunObserver | None
    """Who is told of each run: `windlass.telemetry.Telemetry` makes spans and metrics of it."""


def check_agent_options(options: AgentOptions) -> None:
    """Refuse a word that is not known, rather than go on without it."""
    known = AgentOptions.__optional_keys__
    for option in options:
        if option not in known:
            raise ConfigError(f"Agent({option}=…) is not known.{suggest_names(option, known)}")
