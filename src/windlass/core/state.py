"""What the facts of a session add up to. Made by `fold`, and by nothing else."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from windlass.core.context import CompactionMethod
from windlass.core.events import AttemptFailed, AttemptStarted, BudgetAllotted, Outcome, StopReason
from windlass.core.faults import Fault
from windlass.core.messages import (
    ArgumentChange,
    AssistantMessage,
    FilePart,
    ImagePart,
    Label,
    Ledger,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    ToolResults,
    UserMessage,
)
from windlass.core.setup import Setup
from windlass.core.transcript import Transcript
from windlass.core.verdicts import Ask, Grant

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode

CallPhase = Literal["proposed", "asked", "cleared", "started", "interrupted", "closed"]
MESSAGE_OVERHEAD = 16
"""Tokens that a provider may add around a message, at the most."""
MEDIA_TOKENS = 2_000
"""Tokens that a picture or a page is taken for."""


class CallState(msgspec.Struct, frozen=True, gc=False):
    """One call of the open step, and how far it has come."""

    call: ToolCall
    phase: CallPhase = "proposed"
    arguments: str | None = None
    """The JSON text of the arguments that count; None until they are judged."""
    changes: tuple[ArgumentChange, ...] = ()
    resource: str | None = None
    question: Ask | None = None
    answered: bool = False
    """A person has said what becomes of it."""
    began: bool = False
    result: ToolResult | None = None

    @property
    def id(self) -> str:
        return self.call.id

    @property
    def decoded_arguments(self) -> dict[str, Any]:
        """The arguments, fresh: whoever gets them may scribble on them."""
        return _decode_object(self.arguments or "{}")


class StepState(msgspec.Struct, frozen=True, gc=False):
    """A reply with calls that are not all closed yet."""

    reply: AssistantMessage
    stop: StopReason
    calls: tuple[CallState, ...]
    hydrates: bool = False
    """The runtime made the calls, to look up what the prompt speaks of."""


class CallStreak(msgspec.Struct, frozen=True, gc=False):
    """How often in a row the same call gave the same result."""

    name: str = ""
    arguments: str = ""
    result: ToolResult | None = None
    count: int = 0
    noted_at: int = 0
    """At which count the model was told; zero if it was not."""


class RunState(msgspec.Struct, frozen=True, gc=False):
    """One prompt's way to its end."""

    number: int
    new_from: int
    elapsed_s: float = 0.0
    steps: int = 0
    model_calls: int = 0
    model: str = ""
    """Whom the last request went to; it stays there until that model's attempts are spent."""
    failures: tuple[AttemptFailed, ...] = ()
    """Of the step that is being asked for, at that model."""
    attempt: AttemptStarted | None = None
    asking_since: float | None = None
    """When the first request of the step that is being asked for went out."""
    reply: AssistantMessage | None = None
    """A reply without calls whose meaning is not settled yet."""
    stop: StopReason = "end"
    passed: bool = False
    """The reply was judged and may be the answer."""
    empties: int = 0
    misfits: int = 0
    denials: int = 0
    outages: int = 0
    """Steps in a row in which nothing came of the calls but outages."""
    choice_met: bool = False
    compacted: tuple[CompactionMethod, ...] = ()
    """What was done to make the view smaller for the step that is being asked for."""
    forced: bool = False
    """A provider's word that the prompt is too long was followed once."""
    pending: tuple[UserMessage, ...] = ()
    """What was said meanwhile and is not heeded yet."""
    hydrated: bool = False
    recalled: bool = False
    known: UserMessage | None = None
    """What was recalled: it stands beside the prompt as long as the run lasts."""
    landing: bool = False
    """The cap is reached, and one more reply without tools was asked for."""
    streak: CallStreak = CallStreak()
    caller: str = ""
    context: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    allotments: tuple[BudgetAllotted, ...] = ()
    """What each shared budget lets this run spend, as it last said."""
    text: str = ""
    partial: str = ""
    ledger: Ledger = Ledger()
    outcome: Outcome | None = None
    reason: str = ""
    fault: Fault | None = None


class PromptMeasure(msgspec.Struct, frozen=True, gc=False):
    """What a provider said that a prompt of this size was."""

    model: str
    tokens: int
    fixed: int
    size: int


class State(msgspec.Struct, frozen=True, gc=False):
    """A session, whole."""

    session: str
    seq: int = 0
    at: float = 0.0
    setup: Setup | None = None
    transcript: Transcript = msgspec.field(default_factory=Transcript)
    shown: Transcript = msgspec.field(default_factory=Transcript)
    """The transcript, or what compaction has left of it."""
    shown_from: int = 0
    masked_upto: int = 0
    """Results of calls before this message are masked in the view."""
    apart: bool = False
    """The view is no longer the transcript itself."""
    summary: str = ""
    """What stands for the beginning that was left out."""
    size: int = 0
    """Tokens of what is shown at the most: a token is at least one byte."""
    fixed: int = 0
    """Tokens of the instructions and the tool specs at the most."""
    measure: PromptMeasure | None = None
    calibration: tuple[tuple[str, float], ...] = ()
    """How many bytes a token of each model was, when it last said."""
    no_summary_before: int = 0
    """The step up to which no summary is tried, since one failed."""
    steps: int = 0
    run: RunState | None = None
    step: StepState | None = None
    ledger: Ledger = Ledger()
    elapsed_s: float = 0.0
    """Time at work, over all runs."""
    labels: frozenset[Label] = frozenset()
    """What the session has come to hold: outside text, private data. It never forgets."""
    sources: tuple[tuple[Label, str], ...] = ()
    """Which call first brought each label, in words."""
    grants: tuple[Grant, ...] = ()
    """What a person allowed for the rest of the session."""

    @property
    def is_active(self) -> bool:
        return self.run is not None and self.run.outcome is None

    @property
    def is_waiting(self) -> bool:
        """Whether nothing can move until a person answers."""
        if self.step is None:
            return False
        phases = [call.phase for call in self.step.calls]
        return waits_for_person(phases.count("proposed"), phases.count("asked"))


def waits_for_person(proposed: int, asked: int) -> bool:
    """Whether nothing can move until a person answers, from the calls in these two phases."""
    return asked > 0 and proposed == 0


def find_call(state: State, call_id: str) -> CallState | None:
    calls = state.step.calls if state.step else ()
    return next((call for call in calls if call.id == call_id), None)


def add_messages(state: State, *messages: Message) -> State:
    """The transcript grows by these messages."""
    transcript = state.transcript.append(*messages)
    shown = state.shown.append(*messages) if state.apart else transcript
    size = state.size + sum(map(message_tokens_max, messages))
    return replace(state, transcript=transcript, shown=shown, size=size)


def add_labels(state: State, labels: Sequence[Label], source: str) -> State:
    """The session has come to hold what these labels say, from this source."""
    if state.labels.issuperset(labels):
        return state
    new = ((label, source) for label in labels if label not in state.labels)
    return replace(state, labels=state.labels.union(labels), sources=(*state.sources, *new))


def message_tokens_max(message: Message) -> int:
    """The tokens of a message at the most."""
    match message:
        case UserMessage(parts):
            return MESSAGE_OVERHEAD + sum(map(_part_tokens_max, parts))
        case AssistantMessage(parts):
            return MESSAGE_OVERHEAD + sum(map(_part_tokens_max, parts))
        case ToolResults(items):
            return sum(
                MESSAGE_OVERHEAD + sum(map(_part_tokens_max, item.result.content)) for item in items
            )


def fixed_tokens_max(setup: Setup) -> int:
    """What the instructions and the tool specs weigh at the most."""
    specs = sum(
        MESSAGE_OVERHEAD
        + len(spec.name)
        + len(spec.description.encode())
        + _json_bytes(spec.parameters)
        for spec in setup.tools
    )
    instructions = len(setup.instructions.encode())
    # What is said about the output type stands around its schema.
    output = 8 * MESSAGE_OVERHEAD + _json_bytes(setup.output_schema) if setup.output_schema else 0
    return MESSAGE_OVERHEAD + instructions + specs + output


def _json_bytes(value: object) -> int:
    return len(msgspec.json.encode(value))


def _part_tokens_max(part: TextPart | ThinkingPart | ToolCall | ImagePart | FilePart) -> int:
    match part:
        case TextPart(text):
            return len(text.encode())
        case ThinkingPart(text, signature):
            return len(text.encode()) + len(signature or "")
        case ToolCall():
            words = part.name + part.arguments + (part.signature or "")
            return MESSAGE_OVERHEAD + len(words.encode())
        case ImagePart() | FilePart():
            return MEDIA_TOKENS
