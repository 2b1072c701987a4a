"""The state of a session: what its facts add up to. Only the fold makes it."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from windlass.core.context_facts import UndoneCall
from windlass.core.control_facts import BudgetAwaited, CallWaiting, RunPaused, SessionProgress
from windlass.core.errors import Fault
from windlass.core.events import AttemptFailed, AttemptStarted, BudgetAllotted, Outcome, StopReason
from windlass.core.limits import RaisedLimits
from windlass.core.messages import (
    ArgumentChange,
    AssistantMessage,
    Label,
    Ledger,
    Message,
    ToolCall,
    ToolResult,
    ToolResults,
    ToolSpec,
    UserMessage,
)
from windlass.core.setup import CompactionMethod, Setup, WorkFolder
from windlass.core.transcript import (
    Transcript,
    fixed_tokens_max,
    framing_tokens_max,
    message_tokens_max,
)
from windlass.core.verdicts import Approval, Ask, GivenAnswer, Grant

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode

CallPhase = Literal["proposed", "asked", "cleared", "started", "waiting", "interrupted", "closed"]
"""How far a call has come. `core/fold/phases.py` has the table of what may follow."""


class CallState(msgspec.Struct, frozen=True, gc=False):
    """One call of the open step, and how far it has come."""

    call: ToolCall
    phase: CallPhase = "proposed"
    arguments: str | None = None
    """The JSON text of the arguments that will run; None until the call is judged."""
    changes: tuple[ArgumentChange, ...] = ()
    resource: str | None = None
    question: Ask | None = None
    answered: bool = False
    """A person has decided about it."""
    approvals: tuple[Approval, ...] = ()
    """Who has to agree to it, even if it is asked about once more after a crash."""
    answers: tuple[GivenAnswer, ...] = ()
    """What was answered to the open question so far, if several people have to agree."""
    began: bool = False
    """It started at least once, so its effect may have happened."""
    began_with: str = ""
    """The JSON text of the arguments with which it last started. It stays when the call is judged
    again: a sub-agent may still work on them."""
    outer: ToolCall | None = None
    """The call as the model made it, if this one was inside `call_tool`."""
    imported: bool = False
    """It came with an imported session, and no decision about it was made here yet."""
    is_repeat: bool = False
    """It was not executed, because a note asked the model not to make the same call again."""
    doubted: bool = False
    """It had started, but nothing proves that it was allowed: it is judged before it runs again."""
    waits_for: CallWaiting | None = None
    """What its sub-agent waits for, in the phase `waiting`."""
    result: ToolResult | None = None
    died_with: tuple[int, ...] = ()
    """The drivers that died while it ran, since a person last let it run: the `opening_seq` of
    each. A call with any is a suspect, and runs alone."""

    @property
    def id(self) -> str:
        return self.call.id

    @property
    def decoded_arguments(self) -> dict[str, Any]:
        """A new copy of the arguments, which the receiver may change."""
        return _decode_object(self.arguments or "{}")


class StepState(msgspec.Struct, frozen=True, gc=False):
    """A reply with calls that are not all closed yet."""

    reply: AssistantMessage
    stop: StopReason
    calls: tuple[CallState, ...]
    hydrates: bool = False
    """The runtime made the calls, to look up what the prompt refers to."""


class CallStreak(msgspec.Struct, frozen=True, gc=False):
    """How often in a row the same call gave the same result."""

    name: str = ""
    arguments: str = ""
    result: ToolResult | None = None
    count: int = 0
    noted_at: int = 0
    """The count at which the model got a note; zero if it got none."""


class Progress(msgspec.Struct, frozen=True, gc=False):
    """How far a session has come. It is equal before and after whatever leads nowhere."""

    steps: int = 0
    messages: int = 0
    closed_calls: int = 0
    """Of the open step."""


class RunState(msgspec.Struct, frozen=True, gc=False):
    """One run: from a prompt to its end."""

    number: int
    new_from: int
    """Where the run begins in the transcript: the index of its prompt."""
    opening_seq: int = 0
    """The number of the fact by which the present driver opened the run: its fencing token."""
    opened_at: Progress = Progress()
    """How far the session had come then."""
    fruitless: tuple[int, ...] = ()
    """The drivers in a row that died before the run got any further: the `opening_seq` of each."""
    below: tuple[SessionProgress, ...] = ()
    """How far the sessions that work for its calls had come when a driver last looked."""
    elapsed_s: float = 0.0
    """Seconds at work in this run."""
    steps: int = 0
    """Complete replies in this run."""
    model_calls: int = 0
    """Requests in this run, also those that failed and those for summaries."""
    model: str = ""
    """The model of the last request. It stays until no attempts are left for it."""
    failures: tuple[AttemptFailed, ...] = ()
    """The failed attempts of the current step at that model."""
    failures_noted: int = 0
    """How many of them the model has had a note about, as far as it needs one."""
    attempt: AttemptStarted | None = None
    """The request that is under way."""
    asking_since: float | None = None
    """When the first request of the current step to that model went out."""
    reply: AssistantMessage | None = None
    """A reply without calls that has not been settled yet."""
    stop: StopReason = "end"
    """Why the last reply stopped."""
    passed: bool = False
    """The reply was judged and may be the output."""
    empties: int = 0
    """Empty replies in a row."""
    misfits: int = 0
    """Replies that did not fit the output type."""
    denials: int = 0
    """Final replies that the gate denied."""
    outages: int = 0
    """Steps in a row in which the calls gave nothing but outages."""
    choice_met: bool = False
    """The tool choice was satisfied once, so it is `auto` from now on."""
    compacted: tuple[CompactionMethod, ...] = ()
    """What was done to shorten the view for the current step."""
    forced: bool = False
    """The view was shortened once because a provider refused it as too long."""
    pending: tuple[UserMessage, ...] = ()
    """Messages given during the run that have not entered the conversation yet."""
    hydrated: bool = False
    """What the prompt refers to was looked up."""
    undoes: tuple[UndoneCall, ...] = ()
    """The calls of an earlier run that this run undoes; it asks no model."""
    is_undo: bool = False
    """The run undoes calls of an earlier one, if there are any."""
    not_undone: int = 0
    """How many of them could not be undone."""
    undo_due: bool = False
    """The run has ended, and its calls have to be undone by the next run."""
    still_running: tuple[str, ...] = ()
    """The calls that were abandoned while they ran, once the run has ended."""
    recalled: bool = False
    """The memory was asked what it knows about the prompt."""
    known: UserMessage | None = None
    """What was recalled. The model sees it next to the prompt as long as the run lasts."""
    landing: bool = False
    """The step limit is reached, and one last reply without tools was requested."""
    streak: CallStreak = CallStreak()
    caller: str = ""
    context: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    allotments: tuple[BudgetAllotted, ...] = ()
    """What each shared budget last allotted to this run, in all."""
    budget_wait: BudgetAwaited | None = None
    """Set while the run waits for what other runs hold of a shared budget."""
    budget_wait_since: float | None = None
    """When it began to wait for its next request; it may have asked the budget again since."""
    budget_waits: int = 0
    """How often it has waited for its next request."""
    pause: RunPaused | None = None
    """Set while the run is paused, or will be as soon as the open step is over."""
    pause_holds: bool = False
    """The pause has taken effect: no call begins either, whoever takes the run over."""
    queued_mail: int = 0
    """The number of its prompt in the queue while the run waits for its first driver, else 0."""
    is_released: bool = False
    """Its last driver released it, and no other has taken it over yet."""
    raised: RaisedLimits = RaisedLimits()
    """The limits that were raised in this run. They are in the setup of the state already."""
    key: str = ""
    """The caller's own name for the start of the run."""
    trace: str = ""
    """The trace that the run belongs to, as in a `traceparent` header."""
    on_partial: Literal["", "fail", "restart"] = ""
    text: str = ""
    """The last reply with words in it: the result of the run, if it completes."""
    partial: str = ""
    """What an attempt that failed had streamed."""
    ledger: Ledger = Ledger()
    outcome: Outcome | None = None
    reason: str = ""
    fault: Fault | None = None


class StartKey(msgspec.Struct, frozen=True, gc=False):
    """A start that must not happen twice."""

    key: str
    run: int
    digest: str
    """Of the prompt: the same key with another prompt is a mistake of the caller."""


class PromptMeasure(msgspec.Struct, frozen=True, gc=False):
    """How many tokens a provider counted for a prompt of this size."""

    model: str
    tokens: int
    fixed: int
    size: int
    framing: int = 0


class State(msgspec.Struct, frozen=True, gc=False):
    """A whole session."""

    session: str
    seq: int = 0
    at: float = 0.0
    created: float = 0.0
    """When the first fact was recorded."""
    updated: float = 0.0
    """When the last fact was recorded, even if it says nothing about a driver at work."""
    title: str = ""
    """The beginning of the first prompt, on one line."""
    agent: str = ""
    """The name of the agent of the last run."""
    parent: str = ""
    """The session that this one works for; empty if it works for none.

    Only the facts say it: any session may have a name with a slash.
    """
    runs: int = 0
    """The runs that were accepted."""
    setup: Setup | None = None
    """What decides in the open run: the recorded setup, with the limits that were raised."""
    recorded_setup: Setup | None = None
    """The last setup on record. The next run begins with its limits."""
    transcript: Transcript = msgspec.field(default_factory=Transcript)
    shown: Transcript = msgspec.field(default_factory=Transcript)
    """The view of the model: the transcript, or what compaction left of it."""
    shown_from: int = 0
    """The message at which the view resumes, after the summary of what was before it."""
    masked_upto: int = 0
    """Results before this message are masked in the view."""
    has_own_view: bool = False
    """The view is not the transcript itself any more."""
    summary: str = ""
    """The text that replaces the beginning that was left out."""
    size: int = 0
    """The most tokens that the view can have: its bytes, because no token is shorter than one.

    A little is added for each message, and a picture or a document counts as a fixed number.
    """
    framing: int = 0
    """The most tokens that a provider may add around the calls and results in the view.

    It counts only for what is reserved: how long a view is estimated to be goes by its words.
    """
    fixed: int = 0
    """The most tokens that the instructions and the tool specs can have."""
    offered: tuple[ToolSpec, ...] = ()
    """The tools that a model is shown now: see `Setup.offered_tools`."""
    measure: PromptMeasure | None = None
    """What the provider counted last, as long as the view has only grown since."""
    calibration: tuple[tuple[str, float], ...] = ()
    """How many bytes a token of each model had, by its last usage."""
    no_summary_before: int = 0
    """The step before which no summary is tried, because one failed."""
    steps: int = 0
    """Complete replies, over all runs."""
    run: RunState | None = None
    """The last run, even if it has ended."""
    step: StepState | None = None
    """The reply whose calls are not all closed yet."""
    ledger: Ledger = Ledger()
    elapsed_s: float = 0.0
    """Seconds at work, over all runs."""
    labels: frozenset[Label] = frozenset()
    """What the session holds: outside text, private data. A label is never removed."""
    sources: tuple[tuple[Label, str], ...] = ()
    """What first brought each label, in words."""
    grants: tuple[Grant, ...] = ()
    """What a person allowed for the rest of the session."""
    has_artifacts: bool = False
    """A result was shortened, or removed from the view, and can be read by its id. Never unset."""
    mail_taken: int = 0
    """The last message of the control lane that became a fact."""
    prompts_taken: int = 0
    """The last message of the queue of prompts that became a fact."""
    withdrawn: tuple[int, ...] = ()
    """The prompts behind it that were withdrawn before their turn."""
    start_keys: tuple[StartKey, ...] = ()
    """The starts that a caller named, over all runs."""
    folder: WorkFolder | None = None
    """The folder that the tools work in; None for the one that the agent was built with."""
    has_folder: bool = False
    """A run has begun here, so that the next one works in the same folder."""

    @property
    def is_active(self) -> bool:
        """Whether a run is open."""
        return self.run is not None and self.run.outcome is None

    @property
    def is_queued(self) -> bool:
        """Whether the last run waits for its first driver."""
        return self.run is not None and self.run.queued_mail > 0 and self.run.outcome is None

    @property
    def has_conversation(self) -> bool:
        """Whether a run has begun here, so that no conversation from elsewhere fits any more."""
        return self.has_folder or len(self.transcript) > 0

    @property
    def takes_steering(self) -> bool:
        """Whether a run is open whose model can be steered. A run that undoes has no model."""
        return self.run is not None and self.run.outcome is None and not self.run.is_undo

    @property
    def step_calls(self) -> tuple[CallState, ...]:
        """The calls of the open step; empty if no step is open."""
        return self.step.calls if self.step else ()

    def child_session_name(self, call_id: str) -> str:
        """Return the name of the session that works for a call of the last run.

        A call that undoes another one continues the session of that one.
        """
        undoes = self.run.undoes if self.run else ()
        worked_for = next((undone.call_id for undone in undoes if undone.by == call_id), call_id)
        return f"{self.session}/{worked_for}"

    @property
    def unfinished_calls(self) -> tuple[str, ...]:
        """The ids of the calls of the open step that have no result yet."""
        return tuple(call.id for call in self.step_calls if call.phase != "closed")

    @property
    def is_waiting(self) -> bool:
        """Whether nothing can continue until a person answers, here or in a sub-agent."""
        if self.step is None:
            return False
        # As `waits_for_person` says, without counting: it is asked for every fact of a step.
        is_waiting = False
        for call in self.step.calls:
            if call.phase == "proposed":
                return False
            is_waiting = is_waiting or call.phase in ("asked", "waiting")
        return is_waiting

    @property
    def awaits_budget(self) -> bool:
        """Whether the open run waits for a shared budget, and for nothing else."""
        run = self.run
        if run is None or run.outcome is not None or run.pause is not None:
            return False
        return run.budget_wait is not None

    @property
    def is_paused(self) -> bool:
        """Whether the run is paused and no driver has it: it was released, or is in the queue."""
        run = self.run
        if run is None or run.outcome is not None or run.pause is None:
            return False
        return run.is_released or run.queued_mail > 0


def waits_for_person(proposed: int, asked: int, waiting: int) -> bool:
    """Whether nothing can move until a person answers, from the calls in these phases.

    No call of a step starts while another one asks or waits for its sub-agent.
    """
    return proposed == 0 and (asked > 0 or waiting > 0)


def find_call(state: State, call_id: str) -> CallState | None:
    """Return a call of the open step, or None."""
    for call in state.step.calls if state.step else ():
        if call.call.id == call_id:
            return call
    return None


def add_messages(state: State, *messages: Message) -> State:
    """Return the state with these messages at the end of the transcript and the view."""
    transcript = state.transcript.append(*messages)
    if state.has_own_view:
        shown = state.shown.append(*messages)
    else:
        shown = transcript
    size = state.size
    framing = state.framing
    for message in messages:
        size += message_tokens_max(message)
        if isinstance(message, ToolResults):
            framing += framing_tokens_max(message)
    return replace(state, transcript=transcript, shown=shown, size=size, framing=framing)


def add_labels(state: State, labels: Sequence[Label], source: str) -> State:
    """Return the state with these labels, and with their source if they are new."""
    if state.labels.issuperset(labels):
        return state
    new = ((label, source) for label in labels if label not in state.labels)
    return replace(state, labels=state.labels.union(labels), sources=(*state.sources, *new))


def mark_artifacts(state: State) -> State:
    """Return the state of a session that has an artifact: the tool that reads it is offered now."""
    if state.has_artifacts:
        return state
    return measure_setup(replace(state, has_artifacts=True))


def measure_setup(state: State) -> State:
    """Return the state with the tools of each request, and the size of all before its messages."""
    if state.setup is None:
        return state
    has_artifacts = state.has_artifacts
    offered = state.setup.offered_tools(has_artifacts=has_artifacts)
    fixed = fixed_tokens_max(state.setup, has_artifacts=has_artifacts)
    return replace(state, offered=offered, fixed=fixed)
