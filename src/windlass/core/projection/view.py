"""What a projection consists of: entries, calls, runs, and the session as people see it.

Everything here is frozen, so a projection is its own snapshot: a program can keep one per session,
hand it out, and continue. Two projections share whatever did not change between them.

Each part that can change has `changed`, the place (`seq`, `nth`) of the event that changed it last.
An encoder that has sent everything up to a place asks `changed_since` for the rest.
"""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Literal

import msgspec

from windlass.core.events import (
    AttemptStarted,
    CallWaiting,
    StepProposed,
    StopReason,
)
from windlass.core.messages import (
    ArgumentChange,
    Charge,
    Ledger,
    ReplyPart,
    ToolCall,
    ToolResult,
    Usage,
)
from windlass.core.projection.entries import (
    EarlierEntry,
    FailureEntry,
    FallbackEntry,
    ModelNoteEntry,
    NoticeEntry,
    Place,
    PromptEntry,
    SteeringEntry,
    ViewEntry,
    join_texts,
)
from windlass.core.projection.runs import RunStatus, RunView
from windlass.core.projection.shared_log import JoinedLog, SharedLog
from windlass.core.projection.streaming import StreamingReply
from windlass.core.question import Question
from windlass.core.setup import Setup, digest
from windlass.core.state import waits_for_person
from windlass.core.verdicts import (
    Allow,
    AnswerVerdict,
    Ask,
    Deny,
    GivenAnswer,
    InvalidCall,
    OutputMismatch,
    Verdict,
    VerifiedPerson,
    list_agreed,
)

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode

OpenCallState = Literal["proposed", "asked", "cleared", "running", "waiting", "interrupted"]
ClosedCallState = Literal[
    "done", "failed", "denied", "invalid", "timed_out", "cancelled", "unknown"
]
CallStatus = OpenCallState | ClosedCallState
"""How far a call has come, or how it ended.

`cleared`: it may run. `waiting`: its sub-agent waits for a person, or is paused. `interrupted`:
its driver died, and it is not known yet whether the call took effect. `done`: it gave a value.
`failed`: it gave an error. `unknown`: it is not known what it did.
"""
OPEN_STATES: frozenset[CallStatus] = frozenset(
    ("proposed", "asked", "cleared", "running", "waiting", "interrupted")
)


class NestedView(msgspec.Struct, frozen=True, gc=False):
    """A sub-agent that works for a call, with its own projection session."""

    agent: str
    projection: "Projection"

    @property
    def session(self) -> str:
        """The session of the sub-agent."""
        return self.projection.session


class CallView(msgspec.Struct, frozen=True, gc=False):
    """A call, from the model's proposal to its result. Times are seconds since the epoch."""

    call: ToolCall
    """As the model wrote it."""
    state: CallStatus = "proposed"
    arguments: str | None = None
    """The JSON text of the arguments that run; None until the call is judged."""
    changes: tuple[ArgumentChange, ...] = ()
    """Repairs of the arguments, and changes by the gate or a person."""
    verdict: Verdict | InvalidCall | None = None
    """What the gate decided."""
    answer: AnswerVerdict | None = None
    """What a person decided."""
    answered_by: str = ""
    answers: tuple[GivenAnswer, ...] = ()
    """Who agreed to it, if several people have to."""
    person: VerifiedPerson | None = None
    """Who decided and from where, if a service verified that."""
    question: Ask | None = None
    """The question that is open now."""
    waits_for: CallWaiting | None = None
    """What its sub-agent waits for, with the questions that it asks."""
    key: str = ""
    """The idempotency key; empty until the call has started."""
    starts: int = 0
    """How often it was started: more than once only after a crash."""
    asked_at: float | None = None
    """When a person was first asked about it."""
    answered_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    result: ToolResult | None = None
    abandoned: bool = False
    """The end of its run closed it, and not the tool."""
    charges: tuple[Charge, ...] = ()
    """What the call paid to models of its own."""
    progress: str = ""
    """What the running tool reported last. Only a live watcher has it."""
    agents: tuple[NestedView, ...] = ()
    """The sub-agents that work for it. Only a live watcher has them; see `nest_events`."""
    changed: Place = (0, 0)

    @property
    def id(self) -> str:
        """The id of the call."""
        return self.call.id

    @property
    def name(self) -> str:
        """The name of the tool that is called."""
        return self.call.name

    @property
    def is_open(self) -> bool:
        """Whether the call has no result yet."""
        return self.state in OPEN_STATES

    @property
    def rule(self) -> str:
        """The rule that decided about the call; empty if none is known."""
        decision = self.answer or self.verdict
        return "" if isinstance(decision, InvalidCall) or decision is None else decision.rule

    @property
    def decoded_arguments(self) -> dict[str, Any]:
        """A new copy of the arguments that run; empty before the call is judged."""
        return _decode_object(self.arguments or "{}")


class ReplyEntry(ViewEntry, frozen=True, tag="reply"):
    """A reply of the model with its calls, or calls that the runtime made (`lookup`)."""

    parts: tuple[ReplyPart, ...] = ()
    """Text, thinking and calls in the model's order; empty while the reply is withheld."""
    requested_at: float | None = None
    """When the request for it went out; None for calls that the runtime made."""
    model: str = ""
    step: int = 0
    stop: StopReason = "end"
    calls: tuple[CallView, ...] = ()
    charge: Charge | None = None
    kind: Literal["reply", "partial", "lookup", "undo"] = "reply"
    """`partial`: the run ended before the reply was complete."""
    withheld: bool = False
    """The gate has not allowed it, so its content is not shown."""
    verdict: Allow | Deny | OutputMismatch | None = None

    @property
    def text(self) -> str:
        """The text of the reply, without thinking and calls."""
        return join_texts(self.parts)


Entry = (
    PromptEntry
    | EarlierEntry
    | SteeringEntry
    | ModelNoteEntry
    | ReplyEntry
    | FailureEntry
    | FallbackEntry
    | NoticeEntry
)


class Projection(msgspec.Struct, frozen=True, gc=False):
    """A session as people and protocols see it, after one of its events.

    Only `project.py` makes one.
    """

    session: str = ""
    seq: int = 0
    """The last fact that is in it."""
    nth: int = 0
    """The last delta after that fact that is in it."""
    at: float = 0.0
    """When the last fact happened."""
    settled: SharedLog[Entry] = msgspec.field(default_factory=SharedLog[Entry])
    """The entries that never change again."""
    tail: tuple[Entry, ...] = ()
    """The last reply, whose calls may still change, and the entries after it."""
    pending: tuple[SteeringEntry, ...] = ()
    """Messages given during the run that have not entered the conversation yet."""
    attempt: AttemptStarted | None = None
    """The request that is under way."""
    reply: StreamingReply | None = None
    """What that request has streamed so far."""
    retry_at: float | None = None
    """When the next attempt is made, if the last one failed."""
    failures: int = 0
    """Failed attempts of the current step."""
    held_reply: StepProposed | None = None
    """A reply that must not be shown before the gate has allowed it."""
    runs: SharedLog[RunView] = msgspec.field(default_factory=SharedLog[RunView])
    """The runs before the last one."""
    run: RunView | None = None
    """The last run, even if it has ended."""
    steps: int = 0
    """Complete replies, over all runs."""
    ledger: Ledger = Ledger()
    """What was spent, over all runs."""
    setup: Setup | None = None
    """The configuration that the last run was opened or resumed with."""

    @property
    def place(self) -> Place:
        """The place of the last event that is in it."""
        return self.seq, self.nth

    @property
    def entries(self) -> Sequence[Entry]:
        """The conversation in order. An entry never changes its index."""
        return JoinedLog(self.settled, self.tail)

    @property
    def usage(self) -> Usage | None:
        """The tokens of all attempts on record, or None if no usage is known."""
        return self.ledger.usage

    @property
    def cost(self) -> Decimal | None:
        """US dollars, or None when a price or the usage is unknown."""
        return self.ledger.usd

    @property
    def open_calls(self) -> tuple[CallView, ...]:
        """The calls that have no result yet."""
        return tuple(call for call in self.step_calls if call.is_open)

    @property
    def step_calls(self) -> tuple[CallView, ...]:
        """The calls of the last reply."""
        return tuple(
            call for entry in self.tail if isinstance(entry, ReplyEntry) for call in entry.calls
        )

    @property
    def questions(self) -> tuple[Question, ...]:
        """The questions that wait for a person, here and in sub-agents."""
        return tuple(_find_questions(self, ()))

    @property
    def status(self) -> RunStatus:
        """What the session waits for now."""
        if self.run is None or not self.run.is_open:
            return RunStatus("prompt", self.at)
        wait = self.run.budget_wait
        if wait is not None and self.run.pause is None:
            return RunStatus("budget", wait.at, wait.due_at)
        if self.run.released or self.run.queued:
            return RunStatus("driver" if self.run.pause is None else "continue", self.at)
        if self.attempt is not None:
            return RunStatus("model", self.attempt.at)
        if self.retry_at is not None:
            return RunStatus("retry", self.at, self.retry_at)
        return _calls_status(self.step_calls, self.at)

    def find_call(self, call_id: str) -> CallView | None:
        """Return a call of the last reply, or None."""
        return next((call for call in self.step_calls if call.id == call_id), None)

    def changed_since(self, place: Place) -> Iterator[tuple[int, Entry]]:
        """Yield the entries that are new or changed after a place, with their indices.

        It costs only as much as there is to yield. What the model writes now is in `reply`.
        """
        start = len(self.settled)
        while start and self.settled[start - 1].changed > place:
            start -= 1
        for at, entry in enumerate(self.settled.since(start), start):
            yield at, entry
        for at, entry in enumerate(self.tail, len(self.settled)):
            if entry.changed > place:
                yield at, entry


def _calls_status(calls: Sequence[CallView], at: float) -> RunStatus:
    running = [call for call in calls if call.state == "running"]
    if running:
        since = min(call.started_at or at for call in running)
        waits = all(_waits_in_subagent(call) for call in running)
        names = tuple(call.name for call in running)
        return RunStatus("person" if waits else "tools", since, tools=names)
    states = [call.state for call in calls]
    waiting = states.count("waiting")
    if waits_for_person(states.count("proposed"), states.count("asked"), waiting):
        return RunStatus("person", at)
    return RunStatus("runtime", at)


def _waits_in_subagent(call: CallView) -> bool:
    return any(agent.projection.status.waits_for == "person" for agent in call.agents)


def _find_questions(projection: Projection, chain: tuple[str, ...]) -> Iterator[Question]:
    for call in projection.open_calls:
        if call.question is not None:
            arguments = call.decoded_arguments
            yield Question(
                projection.session,
                call.id,
                call.name,
                arguments,
                call.question.question,
                digest(arguments),
                call.question.rule,
                call.question.expires_at,
                chain,
                approvals=call.question.approvals,
                agreed=tuple(given.by for given in list_agreed(call.answers)),
            )
        if call.waits_for is not None:
            # On record, so that a late watcher is asked the same.
            yield from _nested_questions(call.waits_for, chain)
            continue
        for nested in call.agents:
            yield from _find_questions(nested.projection, (*chain, nested.agent))


def _nested_questions(fact: CallWaiting, chain: tuple[str, ...]) -> Iterator[Question]:
    # Recorded with all agents above it, so the ones above here are among them.
    return (asked.read(chain) for asked in fact.questions)
