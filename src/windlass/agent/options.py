"""The options of an agent and of one run, and what they are called elsewhere.

Invariant: an option that does not exist is refused instead of ignored. The options of a run are
checked where the run is planned (`openings.py`).

`AgentParts` is what an agent is made of: the world that it touches, its setup and its secrets.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, TypedDict, cast, runtime_checkable

import msgspec
from typing_extensions import override

from windlass.agent.event_stream import RunObserver
from windlass.agent.folder_store import FolderStore
from windlass.core.errors import ConfigError
from windlass.core.limits import Budget, Limits, SessionLimits
from windlass.core.messages import ContentPart, DisplayCard, Label, Message, RichDisplay, TextPart
from windlass.core.secrets.mask import VALUE_CHARS_MIN, Mask, Secret
from windlass.core.session_summary import describe_half
from windlass.core.setup import Compaction, Hydration, LoopPolicy, Price, RetryPolicy, Setup
from windlass.core.suggestions import suggest_names
from windlass.environ import find_secrets, read_dotenv, read_process_environment
from windlass.models.options import ModelOptions
from windlass.ports import (
    Approver,
    Clock,
    Gate,
    GivenJournal,
    Model,
    Recaller,
    Timeouts,
    Tools,
    World,
)
from windlass.runtime.governor import ProviderGovernor

KEY_CHARS_MIN = 8
"""A shorter key is a placeholder, for a server that wants none."""

OTHER_NAMES = {
    "api_key": "key",
    "checkpointer": "journal",
    "deps": "tools=Toolbox([…], deps=…), and toolbox.with_deps(…) for other ones",
    "deps_type": "RunContext[…] in the tool, and tools=Toolbox([…], deps=…)",
    "functions": "tools",
    "guardrails": "gate",
    "handoffs": "tools=[delegate(agent)]",
    "max_iterations": "limits=Limits(steps=…)",
    "max_steps": "limits=Limits(steps=…)",
    "max_tokens": "limits=Limits(tokens=…)",
    "max_turns": "limits=Limits(steps=…)",
    "max_usd": "limits=Limits(usd=…)",
    "history": "messages",
    "memory": "journal or knowledge",
    "message_history": "messages",
    "model_settings": "options=ModelOptions(…)",
    "output_validator": "output_type, or a gate that judges replies",
    "policy": "gate",
    "prompt": "instructions",
    "result_type": "output_type",
    "session_id": "session",
    "system": "instructions",
    "system_prompt": "instructions",
    "thread_id": "session",
    "temperature": "options=ModelOptions(temperature=…)",
    "timeout": "limits=Limits(seconds=…) or timeouts",
    "toolsets": "tools",
    "usage_limits": "limits=Limits(…)",
}
"""What options are called elsewhere."""
_TOOLS = "@tool above the function, and Agent(model, tools=[function])"
_STREAM = "async with agent.stream(prompt) as events"
OTHER_METHODS = {
    "ainvoke": "await agent.run(prompt)",
    "astream": _STREAM,
    "chat": "agent.run(prompt, session=…)",
    "instructions": "Agent(model, instructions=function)",
    "invoke": "agent.run_sync(prompt)",
    "iter": _STREAM,
    "output_validator": "Agent(model, output_type=…), or a gate that judges replies",
    "run_stream": _STREAM,
    "run_stream_events": _STREAM,
    "run_streamed": _STREAM,
    "system_prompt": "Agent(model, instructions=function)",
    "tool": _TOOLS,
    "tool_plain": _TOOLS,
}
"""What methods of an agent are called elsewhere, and what to write here."""

EarlierMessage: TypeAlias = Message | Mapping[str, Any]
"""A message of Windlass, or a chat message in the JSON of OpenAI or Anthropic."""
PromptInput: TypeAlias = str | Sequence[str | ContentPart]
Secrets: TypeAlias = Mapping[str, str] | Collection[str] | Mask
"""Secret values, with or without names; or a mask of your own, which is used as it is."""


@dataclass(frozen=True, slots=True)
class Briefing:
    """What instructions may depend on, if they are a function."""

    session: str
    run: int
    """The number of the run in its session, from 1."""
    caller: str
    context: Mapping[str, Any]


InstructionFunction = Callable[[Briefing], str]


class AgentOptions(TypedDict, total=False):
    """The options of an agent. Each has a default."""

    name: str
    """The name of the agent: for its gate, for its callers if it is a sub-agent, and in traces."""
    instructions: str | InstructionFunction
    """The system prompt, or a function that makes it for each run."""
    tools: Tools | Sequence[Callable[..., Any]]

    fallbacks: Sequence[Model | str]
    """Models that are asked in turn when all attempts at the one before have failed."""
    key: str | None
    """The API key, for a model that is given by its name; from the environment by default."""
    base_url: str | None
    """The address of the server, for a model that is given by its name."""
    options: ModelOptions | None
    """Settings such as temperature, for a model that is given by its name."""
    price: Price | None
    """The price of a model that is given by its name, if it is not in our list."""
    strict_models: bool
    """Refuse a model that its provider's list does not have. By default that is a warning, because
    new models appear daily."""

    gate: Gate | None
    """Decides which calls may run. Without a gate, an agent with an approver asks before it changes
    anything, and an agent without either may use its tools freely."""
    approver: Approver | None
    """Asks a person. Without one, a question suspends the run until `answer` is called."""
    secrets: Secrets | None
    """Values that must stay hidden. They are masked in what the model, the journal, the watchers
    and the logs get, like the keys of the models, the secrets of the environment, and everything
    that looks like a key. For an agent that must handle keys, give a mask of your own, which is
    used instead of all that: `Mask(key_like=False)` masks nothing."""

    limits: Limits | None
    """What one run may use."""
    session_limits: SessionLimits | None
    """What all runs of one session may use together."""
    budgets: Sequence[Budget]
    """Limits that are shared with other runs, and kept in the journal."""

    compaction: Compaction | None
    """How a long conversation is kept within the model's window."""
    summary_model: Model | str | None
    """Writes the summaries of long conversations; the model itself by default."""
    hydration: Hydration | None
    """What is looked up for a prompt before the first step; nothing by default."""
    knowledge: Recaller | None
    """Finds what is known about a prompt, to be shown to the model next to it."""

    journal: GivenJournal | str | None
    """Where sessions are kept; in memory by default. A path or URL opens the journal of that name,
    as `sessions.db` or `postgresql://…`; closing the agent closes it."""
    rules: LoopPolicy | None
    """How the loop itself behaves, for example how many calls run at once."""
    retries: RetryPolicy | None
    """How often and after which wait a failed request is made again."""
    timeouts: Timeouts | None
    """How long a model may be silent."""
    folders: FolderStore | None
    """Where callers have their folders, for `own_folder`; below the state folder by default."""
    clock: Clock | None
    """Time and random numbers; the machine's own by default."""

    governor: ProviderGovernor | None
    """Holds requests back by the rate limits of their providers. Each agent has one; give several
    agents the same one if they share a limit of `requests_at_once`."""

    telemetry: RunObserver | None
    """Observes each run: `windlass.telemetry.Telemetry` makes spans and metrics of it."""


def check_agent_options(options: AgentOptions) -> None:
    """Raise ConfigError for an option that does not exist."""
    known = AgentOptions.__optional_keys__
    for option in options:
        if option not in known:
            raise ConfigError(f"Agent() has no option {option!r}.{suggest_option(option, known)}")


def suggest_option(option: str, known: Collection[str]) -> str:
    """Return a sentence to append to an error: what the option is called here."""
    if option in OTHER_NAMES:
        return f" Did you mean {OTHER_NAMES[option]}?"
    return suggest_names(option, known)


OnBusy = Literal["refuse", "queue", "steer", "replace"]
OnPartial = Literal["fail", "restart"]


class RunOptions(TypedDict, total=False):
    """The options of one run. Each has a default."""

    caller: str
    """On whose behalf the run is: for the gate, and for instructions that are a function."""
    context: Mapping[str, Any]
    """What the gate may rely on. No model and no tool can write it."""
    pinned: bool
    """The prompt stays in the model's view, however long the session grows."""
    labels: Sequence[Label]
    """What the prompt brings along: `untrusted` text, `private` data."""
    messages: Sequence[EarlierMessage]
    """A conversation from elsewhere that a new session continues: `result.messages` of another run,
    or chat messages as OpenAI's or Anthropic's API writes them."""
    key: str
    """Your own name for this start. The same key never begins a second run: it gives the run that
    it began, in any process. Without `session`, it also names the session."""
    limits: Limits
    """Limits of this run that are stricter than the agent's. They bind every driver. A limit that
    is not stricter changes nothing."""
    output_schema: Mapping[str, Any]
    """A JSON Schema that the final reply must fit, for this run, in place of the agent's output
    type. A reply that does not fit is asked for again, as with a type."""
    tags: Mapping[str, str]
    """Keys and values of your own, by which sessions are listed and costs are added up: at most 16,
    such as `{"team": "billing"}`."""
    priority: int
    """A run with a higher one goes before others that wait, in the queues of workers and for the
    rate limits of providers. By default 0."""
    on_busy: OnBusy
    """What to do if the session has an open run, or a driver: `refuse` raises an error, `queue`
    keeps the prompt until its turn comes, `steer` says it to the open run, and `replace` cancels
    the open run first."""
    drive: bool
    """Whether this process drives the run, which is the default. If not, the prompt waits in the
    queue of its session until a worker or a sweep of an agent with the same name begins it."""
    on_partial: OnPartial
    """What happens when a reply breaks off after some of it was shown: `restart` asks again and has
    watchers drop what they showed, `fail` ends the run and keeps the partial text. By default as
    the agent's LoopPolicy says, which is `restart`. It is fixed when the run starts."""
    trace: str
    """The trace that the run belongs to, as in a `traceparent` header; by default, the one that is
    current if the agent has telemetry."""
    budgets: Sequence[Budget]
    """Shared budgets that this run draws on, besides those of the agent. They stay with the run,
    even if another agent drives it."""
    own_folder: bool
    """Whether a new session works in a folder of its caller's own, in `folders` of the agent,
    instead of the one that its tools were built with. A session keeps its folder."""


def name_session(agent: str, caller: str, key: str) -> str:
    """Return the session of a start that has a key and names no session: always the same one."""
    return hashlib.sha256(msgspec.json.encode([agent, caller, key])).hexdigest()[:32]


def check_prompt(prompt: PromptInput) -> tuple[ContentPart, ...]:
    """Return the parts of a prompt. Raises ConfigError if it is empty or cannot be recorded."""
    try:
        if isinstance(prompt, str):
            parts = (TextPart(prompt),)
        else:
            parts = tuple(TextPart(part) if isinstance(part, str) else part for part in prompt)
        msgspec.convert(msgspec.to_builtins(parts), type=tuple[ContentPart, ...])
        msgspec.json.encode(parts)
    except UnicodeEncodeError as error:
        raise ConfigError(describe_half("prompt", error)) from None
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"the prompt must be a str, or a list of strings and parts: {error}"
        ) from None
    if all(isinstance(part, TextPart) and not part.text.strip() for part in parts):
        raise ConfigError("the prompt is empty")
    return parts


@runtime_checkable
class HoldsSecrets(Protocol):
    """A model or a set of tools that holds secrets."""

    @property
    def secrets(self) -> Mapping[str, Secret]: ...


def build_mask(given: Secrets | None, parts: Sequence[object] = ()) -> Mask:
    """Return the mask of an agent: what is given, the secrets of its parts, and the environment's.

    Raises ConfigError for a value that is too short to be distinguished from ordinary words.
    """
    if isinstance(given, Mask):
        return given
    named = _name_values(given or ())
    for name, value in named.items():
        if len(value.strip()) < VALUE_CHARS_MIN:
            raise ConfigError(
                f"secrets[{name!r}] is shorter than {VALUE_CHARS_MIN} characters: "
                "masking it would also mask ordinary words"
            )
    part_secrets = {
        name: secret.reveal()
        for part in parts
        if isinstance(part, HoldsSecrets)
        for name, secret in part.secrets.items()
        if len(secret.reveal()) >= KEY_CHARS_MIN
    }
    # Includes variables that a `.env` file may not set: their values are still secrets.
    environment = find_secrets({**read_dotenv(Path.cwd()), **read_process_environment()})
    # If one value has two names, the mask shows the first: so the names that were given come first.
    return Mask((*named.items(), *part_secrets.items(), *environment.items()))


def _name_values(given: Mapping[str, str] | Collection[str]) -> dict[str, str]:
    if isinstance(given, Mapping):
        return dict(cast("Mapping[str, str]", given))
    values = [given] if isinstance(given, str) else list(given)
    return {str(number): value for number, value in enumerate(values, 1)}


class AgentParts(msgspec.Struct, frozen=True):
    """The parts of an agent; also of one that works for a call, such as code or a bare model."""

    world: World
    setup: Setup
    mask: Mask
    instructions: InstructionFunction | None = None
    """Makes the instructions of each run, if they are a function."""
    observer: RunObserver | None = None


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
