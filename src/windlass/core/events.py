"""One closed union of events, in two kinds.

A fact is written before anyone acts on it; a delta is for whoever watches.

Every event has a place: `seq` is the number of the fact, and a delta shares the number of the last
fact before it and counts on from there with `nth`. So places are unique within a session, and a
watcher that names the last place it saw can be told the rest.
"""

from decimal import Decimal
from typing import Any, Literal

import msgspec

from windlass.core.deltas import (
    AttemptDiscarded,
    AttemptRetrying,
    CallDelta,
    CallProgress,
    ModelFellBack,
    NestedEvent,
    PlacedEvent,
    ReplyEnd,
    RunSuspended,
    StopReason,
    StreamStalled,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.faults import Fault
from windlass.core.limits import Amount
from windlass.core.messages import (
    ArgumentChange,
    AssistantMessage,
    Charge,
    ContentPart,
    Label,
    Purpose,
    ToolCall,
    ToolResult,
)
from windlass.core.setup import Setup
from windlass.core.verdicts import (
    Allow,
    AnswerVerdict,
    Deny,
    Grant,
    InvalidCall,
    OutputMismatch,
    Verdict,
)

VOCABULARY_VERSION = 1
"""The version of this vocabulary. It grows when an old reader could misread a new journal."""
RULES = 1
"""The version of the rules, which each run records when it is opened and when it is resumed.

Raise it when the same facts lead to another move, or to other words for the model: when `decide`,
the fold, the notes, the estimates or what is reserved change, so that a replay of a session that
was made before would differ. A new field, or a choice that nobody had made, does not raise it.
"""

Outcome = Literal[
    "completed",
    "max_steps",
    "budget_exceeded",
    "timed_out",
    "cancelled",
    "refused",
    "truncated",
    "empty_reply",
    "stuck",
    "policy_denied",
    "failed",
    "suspended",
]


class Reservation(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What an attempt may cost at the most."""

    input: int
    output: int
    usd: Decimal | None = None


class RunStarted(PlacedEvent, frozen=True, tag="RunStarted"):
    """A prompt opens a run. No set-up means the one of the run before."""

    run: int
    prompt: tuple[ContentPart, ...]
    setup: Setup | None = None
    caller: str = ""
    """On whose behalf, as the program that runs the agent says."""
    context: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    """What that program says about the run, for the gate alone: no model can write it."""
    pinned: bool = False
    """The prompt stays in view, however long the session grows."""
    parent: str = ""
    """The session and call that this one works for."""
    labels: tuple[Label, ...] = ()
    """What the prompt brings along: outside text, private data."""
    rules: int = 0
    """The version of the rules that decide in this run; 0: made before it was recorded."""


class RunResumed(PlacedEvent, frozen=True, tag="RunResumed"):
    """Another driver takes over a run that has not ended."""

    drift: tuple[str, ...] = ()
    setup: Setup | None = None
    reaped: tuple[str, ...] = ()
    """What the dead driver had left running, and was ended."""
    rules: int = 0
    """The version of the rules that decide from here on; 0: made before it was recorded."""


class AttemptStarted(PlacedEvent, frozen=True, tag="AttemptStarted"):
    """A request goes out; from here on it may cost what is reserved."""

    step: int
    attempt: int
    model: str
    reserved: Reservation
    landing: bool = False
    """The cap of steps is reached: this one more reply is asked for with the tools switched off."""
    purpose: Purpose = "main"


class AttemptFailed(PlacedEvent, frozen=True, tag="AttemptFailed"):
    """A request gave no whole reply. `visible`: a watcher saw some of its text."""

    fault: Fault
    charge: Charge | None = None
    established: bool = False
    visible: bool = False
    partial: str = ""
    wait_s: float = 0.0


class StepProposed(PlacedEvent, frozen=True, tag="StepProposed"):
    """A whole reply, as the model gave it, before anyone judged it."""

    reply: AssistantMessage
    stop: StopReason
    charge: Charge | None = None


class CallJudged(PlacedEvent, frozen=True, tag="CallJudged"):
    """A call's verdict. No arguments means those that the model wrote, unchanged."""

    call_id: str
    verdict: Verdict | InvalidCall
    arguments: dict[str, Any] | None = None
    changes: tuple[ArgumentChange, ...] = ()
    resource: str | None = None


class CallAnswered(PlacedEvent, frozen=True, tag="CallAnswered"):
    """A person's answer to `Ask`, bound to the digest of the exact arguments."""

    call_id: str
    verdict: AnswerVerdict
    digest: str
    by: str = ""
    grant: Grant | None = None
    """What was allowed along with it for the rest of the session."""


class CallStarted(PlacedEvent, frozen=True, tag="CallStarted"):
    """The effect begins. The key is the same each time this call is tried."""

    call_id: str
    key: str


class CallFinished(PlacedEvent, frozen=True, tag="CallFinished"):
    """The effect is over."""

    call_id: str
    result: ToolResult
    charges: tuple[Charge, ...] = ()
    """What the tool paid to models of its own, such as a sub-agent's."""


class CallLate(PlacedEvent, frozen=True, tag="CallLate"):
    """A result that came when its call had been given up. It is kept, and changes nothing."""

    call_id: str
    result: ToolResult


class ReplyJudged(PlacedEvent, frozen=True, tag="ReplyJudged"):
    """A final reply passed, was denied, or did not fit the output type."""

    verdict: Allow | Deny | OutputMismatch


class NoteGiven(PlacedEvent, frozen=True, tag="NoteGiven"):
    """The runtime tells the model something, as a note in the transcript."""

    text: str
    why: Literal["same_call"]


class BudgetAllotted(PlacedEvent, frozen=True, tag="Allotted"):
    """What a shared budget lets this run spend in all. `dry`: it has no more for now."""

    budget: str
    amount: Amount
    dry: bool = False


class ContextCompacted(PlacedEvent, frozen=True, tag="Compacted"):
    """What the model is shown gets shorter from here on; the transcript keeps all of it.

    Up to a message, what came before is left out for a note, or summed up in one, or the results
    of its calls are masked.
    """

    upto: int
    note: str = ""
    how: Literal["window", "summary", "mask"] = "window"
    charge: Charge | None = None


class SteeringGiven(PlacedEvent, frozen=True, tag="Steered"):
    """A person says something while the run is under way. It is heeded before the next step."""

    prompt: tuple[ContentPart, ...]
    by: str = ""


class SteeringTaken(PlacedEvent, frozen=True, tag="Heeded"):
    """What was said meanwhile goes into the conversation here."""


class LookupsPlanned(PlacedEvent, frozen=True, tag="Hydrated"):
    """What a prompt speaks of is looked up before the first step, by calls like any other."""

    calls: tuple[ToolCall, ...]


class KnowledgeRecalled(PlacedEvent, frozen=True, tag="Recalled"):
    """What is known about a prompt: shown beside it in this run, and not kept in the conversation.

    Nothing may be known, and then it is empty.
    """

    text: str
    labels: tuple[Label, ...] = ()


class RunEnded(PlacedEvent, frozen=True, tag="RunEnded"):
    """The one end of a run. It settles an attempt and closes the calls that were under way."""

    outcome: Outcome
    reason: str = ""
    fault: Fault | None = None
    partial: str = ""
    charge: Charge | None = None
    """Of the attempt that was under way."""
    charges: tuple[Charge, ...] = ()
    """Of the calls that were under way."""


InRunFact = (
    RunResumed
    | AttemptStarted
    | AttemptFailed
    | StepProposed
    | CallJudged
    | CallAnswered
    | CallStarted
    | CallFinished
    | ReplyJudged
    | NoteGiven
    | BudgetAllotted
    | ContextCompacted
    | SteeringGiven
    | SteeringTaken
    | LookupsPlanned
    | KnowledgeRecalled
    | RunEnded
)
"""The facts that only an open run can have."""
Fact = RunStarted | InRunFact | CallLate
ReplyPiece = TextDelta | ThinkingDelta | CallDelta | UsageDelta | ReplyEnd
"""What a model streams."""
Delta = (
    ReplyPiece
    | AttemptDiscarded
    | AttemptRetrying
    | StreamStalled
    | ModelFellBack
    | CallProgress
    | NestedEvent
    | RunSuspended
)
Event = Fact | Delta
