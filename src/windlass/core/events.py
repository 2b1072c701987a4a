"""One closed union of events, in two kinds: facts and deltas.

A fact is written to the journal before anyone acts on it. A delta is only for watchers.

Every event has a place. `seq` is the number of the fact. A delta shares the number of the last
fact before it and counts on with `nth`. Places are unique within a session, so a watcher that names
the last fact it saw gets the rest: facts from the journal, then live deltas (`agent/runs.py`).

Each fact declares what the rest of the package must know about it:
- `masked_fields`: those whose text is masked before it is written. Others hold ids and numbers.
- `from_outside`: True if the world says it (a model, a person, a crash), so that a replay takes it
  from the record. Otherwise the rules decide it, and a replay compares it.
- `describe()`: its words for `windlass explain` and the terminal. Facts that need the session to
  be put into words have theirs in `core/audit/explain.py` instead.

A new fact goes into the union at the end. Pyright then refuses it until it has `masked_fields`,
words, and arms in `core/fold/run.py` and `core/projection/project.py`; and a new move, until the
loop and `core/audit/replay.py` have an arm for it. No type checker sees that `journals/codec.py`
must name a fact with attachments or long texts, and `testing/samples.py` needs a sample of each.
"""

from typing import Any, ClassVar, Literal

import msgspec

from windlass.core.context_facts import (
    ContextCompacted,
    KnowledgeRecalled,
    LookupsPlanned,
    NoteGiven,
    UndoPlanned,
)
from windlass.core.control_facts import (
    AnswerCounted,
    AnswerForwarded,
    BudgetAwaited,
    BudgetWaitEnded,
    CallWaiting,
    LimitsRaised,
    MailRefused,
    PromptWithdrawn,
    ReleaseAsked,
    RunContinued,
    RunPaused,
    RunQueued,
    RunReleased,
    SessionProgress,
    SteeringGiven,
    SteeringTaken,
)
from windlass.core.deltas import (
    AttemptDiscarded,
    AttemptRetrying,
    CallDelta,
    CallProgress,
    ModelFellBack,
    NestedEvent,
    PlacedEvent,
    ReplyEnd,
    ReplyRestarted,
    RunSuspended,
    StopReason,
    StreamOpened,
    StreamStalled,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.errors import Fault, Outcome
from windlass.core.limits import Amount, Reservation
from windlass.core.messages import (
    ArgumentChange,
    AssistantMessage,
    Charge,
    ContentPart,
    Label,
    Message,
    Purpose,
    ToolResult,
)
from windlass.core.phrases import format_amount
from windlass.core.setup import Setup, WorkFolder
from windlass.core.text_clip import printable_line
from windlass.core.verdicts import (
    Allow,
    AnswerVerdict,
    Deny,
    Grant,
    InvalidCall,
    OutputMismatch,
    Verdict,
    VerifiedPerson,
)

VOCABULARY_VERSION = 1
"""The version of the facts and their fields, which each record begins with.

It grows when a program could misread a record of another version (see `UPCASTS` in
`journals/codec.py`). A new field that has a default does not raise it.
"""
RULES_VERSION = 4
"""The version of the rules, which each run records when it is opened and when it is resumed.

Raise it when a replay of an older session would differ: when `decide`, the fold, the notes, the
estimates or the reservations change. A new field, or a new option that no session has used yet,
does not require that.
"""


class RunStarted(PlacedEvent, frozen=True, tag="RunStarted"):
    """A prompt opens a run. Without a setup, the setup of the previous run stays in force."""

    masked_fields: ClassVar = ("prompt", "setup", "caller", "context", "agent", "earlier")
    from_outside: ClassVar = True
    run: int
    prompt: tuple[ContentPart, ...]
    setup: Setup | None = None
    caller: str = ""
    """On whose behalf the run works, as the host program says."""
    context: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    """What the host program says about the run. Only the gate sees it; no model can write it."""
    pinned: bool = False
    """The prompt stays in view, however long the session grows."""
    parent: str = ""
    """The session and call that this session works for."""
    labels: tuple[Label, ...] = ()
    """What the prompt brings along: outside text, private data."""
    rules: int = 0
    """The version of the rules that decide in this run."""
    agent: str = ""
    """The name of the agent; empty if it has none."""
    earlier: tuple[Message, ...] = ()
    """A conversation from elsewhere; only the first run of a session can continue one."""
    key: str = ""
    """The caller's own name for this start: the same key never begins a second run."""
    trace: str = ""
    """The trace that the run belongs to, as in a `traceparent` header. A resume continues it."""
    mail: int = 0
    """The number of the prompt in the queue of the session; 0 if it was not in the queue."""
    on_partial: Literal["", "fail", "restart"] = ""
    """What happens when a reply breaks off after some of it was seen. Fixed here, so that it never
    depends on who watches; empty: as the setup says."""
    driver: str = ""
    """A random name of the driver. Without it, two drivers that open a run at the same place, while
    a clock does not advance, would write the same record, and each would take it for its own."""
    folder: WorkFolder | None = None
    """The folder that the tools work in; None for the one that the agent was built with."""


class RunResumed(PlacedEvent, frozen=True, tag="RunResumed"):
    """Another driver takes over a run that has not ended."""

    masked_fields: ClassVar = ("drift", "setup", "reaped")
    from_outside: ClassVar = True
    drift: tuple[str, ...] = ()
    setup: Setup | None = None
    reaped: tuple[str, ...] = ()
    """Processes that the dead driver left running, and that were ended."""
    rules: int = 0
    """The version of the rules that decide from here on."""
    driver: str = ""
    """A random name of the driver, as in `RunStarted`."""
    below: tuple[SessionProgress, ...] | None = None
    """How far the sessions have come that work for open calls of the run; None: not looked at."""
    doubted: tuple[str, ...] = ()
    """Calls whose recorded permission no signature proves to the new driver: judged again."""


class AttemptStarted(PlacedEvent, frozen=True, tag="AttemptStarted"):
    """A request goes out. From here on it may cost what is reserved."""

    masked_fields: ClassVar = ()
    step: int
    attempt: int
    model: str
    reserved: Reservation
    landing: bool = False
    """The step limit is reached: this last reply is requested with the tools switched off."""
    purpose: Purpose = "main"


class AttemptFailed(PlacedEvent, frozen=True, tag="AttemptFailed"):
    """A request gave no complete reply. `visible`: a watcher saw some of its text."""

    masked_fields: ClassVar = ("fault", "partial")
    from_outside: ClassVar = True
    fault: Fault
    charge: Charge | None = None
    established: bool = False
    visible: bool = False
    partial: str = ""
    wait_s: float = 0.0


class StepProposed(PlacedEvent, frozen=True, tag="StepProposed"):
    """A complete reply, as the model gave it, before anything in it was judged."""

    masked_fields: ClassVar = ("reply",)
    from_outside: ClassVar = True
    reply: AssistantMessage
    stop: StopReason
    charge: Charge | None = None


class CallJudged(PlacedEvent, frozen=True, tag="CallJudged"):
    """The verdict on a call. `arguments` is None if those of the model stay unchanged."""

    masked_fields: ClassVar = ("verdict", "arguments", "resource")
    call_id: str
    verdict: Verdict | InvalidCall
    arguments: dict[str, Any] | None = None
    changes: tuple[ArgumentChange, ...] = ()
    resource: str | None = None
    digest: str = ""
    """Of the arguments that `Ask` asks about: what an answer is bound to. Empty for others."""
    charges: tuple[Charge, ...] = ()
    """What models had cost a call that began earlier, if it is judged again and does not run."""


class CallAnswered(PlacedEvent, frozen=True, tag="CallAnswered"):
    """A person's answer to `Ask`, bound to the digest of the exact arguments."""

    masked_fields: ClassVar = ("verdict", "by")
    from_outside: ClassVar = True
    call_id: str
    verdict: AnswerVerdict
    digest: str
    by: str = ""
    grant: Grant | None = None
    """What the person also allowed for the rest of the session."""
    mail: int = 0
    """The number of the message that brought the answer; 0 if it did not come by mail."""
    accepted_at: float = 0.0
    """When the store accepted it, which decides whether it came in time; 0.0: when recorded."""
    signature: str = ""
    """Proves who gave it: someone with the user's own key to a file, or a service to Postgres,
    with the id of its key. `verify` checks it."""
    person: VerifiedPerson | None = None
    """Who it was and from where, if a service verified that."""


class CallStarted(PlacedEvent, frozen=True, tag="CallStarted"):
    """The effect begins. The key is the same each time this call is tried."""

    masked_fields: ClassVar = ("snapshot",)
    call_id: str
    key: str
    name: str = ""
    """The name of the tool."""
    snapshot: str = ""
    """What its tool must know to undo it, taken right before."""


class CallFinished(PlacedEvent, frozen=True, tag="CallFinished"):
    """The effect is over."""

    masked_fields: ClassVar = ("result",)
    call_id: str
    result: ToolResult
    charges: tuple[Charge, ...] = ()
    """What the tool paid to models of its own, such as those of a sub-agent."""
    name: str = ""
    """The name of the tool."""


class CallLate(PlacedEvent, frozen=True, tag="CallLate"):
    """A result that came after its call had been given up. It is kept and changes nothing."""

    masked_fields: ClassVar = ("result",)
    from_outside: ClassVar = True
    call_id: str
    result: ToolResult


class SessionImported(PlacedEvent, frozen=True, tag="SessionImported"):
    """The facts before are from a file of `source`: no permission counts, `calls` begin again."""

    masked_fields: ClassVar = ("source",)
    from_outside: ClassVar = True
    source: str = ""
    calls: tuple[str, ...] = ()

    def describe(self) -> str:
        return (
            f"Imported from a file of {printable_line(self.source)}: no earlier permission counts"
        )


class EntryKept(PlacedEvent, frozen=True, tag="Entry"):
    """An entry of a stream beside the sessions (`journals/completing.py`). No session has one."""

    masked_fields: ClassVar = ()
    from_outside: ClassVar = True
    body: str

    def describe(self) -> str:
        return f"An entry of {len(self.body):,} characters was kept beside the sessions"


class ReplyJudged(PlacedEvent, frozen=True, tag="ReplyJudged"):
    """A final reply passed, was denied, or did not fit the output type."""

    masked_fields: ClassVar = ("verdict",)
    verdict: Allow | Deny | OutputMismatch


class BudgetAllotted(PlacedEvent, frozen=True, tag="Allotted"):
    """The total that a shared budget lets this run spend. `dry`: it has no more for now."""

    masked_fields: ClassVar = ()
    budget: str
    amount: Amount
    dry: bool = False
    held: Amount | None = None
    """If it is dry: what runs outside of this one's tree hold in reserve. None: nothing."""

    def describe(self) -> str:
        budget = printable_line(self.budget)
        more = "; it has no more for now" if self.dry else ""
        return f"The budget {budget} gives this run {format_amount(self.amount)} in all{more}"


class RunEnded(PlacedEvent, frozen=True, tag="RunEnded"):
    """The only end of a run. It settles the open attempt and closes the calls in flight."""

    masked_fields: ClassVar = ("reason", "fault", "partial", "by")
    outcome: Outcome
    reason: str = ""
    fault: Fault | None = None
    partial: str = ""
    charge: Charge | None = None
    """Of the attempt that was in flight."""
    charges: tuple[Charge, ...] = ()
    """Of the calls that were in flight."""
    by: str = ""
    """Who cancelled it, if the cancel came from outside its process."""
    mail: int = 0
    """The number of the message that cancelled it; 0 if none did."""
    prompt: int = 0
    """The number of its prompt in the queue, if the run ended before a driver had begun it."""
    undo: bool = False
    """The session is not finished: the next run undoes the calls of this one."""
    still_running: tuple[str, ...] = ()
    """The ids of the calls that were abandoned while they ran. Code in a thread cannot be stopped,
    so they may still take effect; a result that still comes is recorded as `CallLate`."""


InRunFact = (
    RunResumed
    | AttemptStarted
    | AttemptFailed
    | StepProposed
    | CallJudged
    | CallAnswered
    | AnswerCounted
    | CallStarted
    | CallFinished
    | ReplyJudged
    | NoteGiven
    | BudgetAllotted
    | BudgetAwaited
    | BudgetWaitEnded
    | ContextCompacted
    | SteeringGiven
    | SteeringTaken
    | LookupsPlanned
    | UndoPlanned
    | KnowledgeRecalled
    | RunPaused
    | RunContinued
    | RunReleased
    | LimitsRaised
    | CallWaiting
    | AnswerForwarded
    | ReleaseAsked
    | RunEnded
)
"""The facts that only an open run can have."""
SessionFact = RunQueued | CallLate | SessionImported | MailRefused | PromptWithdrawn | EntryKept
"""The facts that need no open run, besides the start of one."""
Fact = RunStarted | InRunFact | SessionFact
"""What a journal keeps. Each is written before anyone acts on it."""
ContentPiece = TextDelta | ThinkingDelta | CallDelta | UsageDelta | ReplyEnd
"""What a reply consists of."""
ReplyPiece = ContentPiece | StreamOpened | ReplyRestarted
"""What a model streams."""
Delta = (
    ContentPiece
    | AttemptDiscarded
    | AttemptRetrying
    | StreamStalled
    | ModelFellBack
    | CallProgress
    | NestedEvent
    | RunSuspended
)
Event = Fact | Delta
"""What a watcher of a run sees: facts, and the deltas between them."""
NestedEvent.event_type = Event
