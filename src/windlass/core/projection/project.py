"""Events in, what people and protocols show out.

Invariant: a projection does not depend on when its watcher came. A watcher that saw every event as
it happened, one that read the facts so far and then the text so far, and one that reads only the
facts afterwards all have the same projection. So everything in it comes from facts where there are
facts about it: a failed attempt drops its text by its `AttemptFailed`, not by the
`AttemptDiscarded` that only live watchers see.

What only a live watcher can have is named in `LIVE_ONLY`, and `without_live_parts` removes it.

A projection refuses nothing: it shows what was recorded, also to a watcher that came in the middle.
The fold (`core/fold/run.py`) is what checks records.
"""

from collections.abc import Iterable, Iterator
from functools import reduce
from typing import Literal, TypedDict, cast

from msgspec.structs import replace

from windlass.core.decide.reserving import worst_case_charge
from windlass.core.deltas import PlacedEvent
from windlass.core.events import (
    AnswerCounted,
    AnswerForwarded,
    AttemptDiscarded,
    AttemptFailed,
    AttemptRetrying,
    AttemptStarted,
    BudgetAllotted,
    BudgetAwaited,
    BudgetWaitEnded,
    CallAnswered,
    CallDelta,
    CallFinished,
    CallJudged,
    CallLate,
    CallProgress,
    CallStarted,
    CallWaiting,
    ContextCompacted,
    Delta,
    EntryKept,
    Event,
    Fact,
    KnowledgeRecalled,
    LimitsRaised,
    LookupsPlanned,
    MailRefused,
    ModelFellBack,
    NestedEvent,
    NoteGiven,
    PromptWithdrawn,
    ReleaseAsked,
    ReplyEnd,
    ReplyJudged,
    RunContinued,
    RunEnded,
    RunPaused,
    RunQueued,
    RunReleased,
    RunResumed,
    RunStarted,
    RunSuspended,
    SessionImported,
    SteeringGiven,
    SteeringTaken,
    StepProposed,
    StreamStalled,
    TextDelta,
    ThinkingDelta,
    UndoPlanned,
    UsageDelta,
)
from windlass.core.projection.calls import (
    CallFact,
    apply_call_fact,
    disown_calls,
    replace_call,
    take_over_calls,
)
from windlass.core.projection.changes import (
    add_charges,
    add_entry,
    add_notice,
    current_run,
    run_number,
    settle_tail,
)
from windlass.core.projection.entries import (
    EarlierEntry,
    ModelNoteEntry,
    NoticeEntry,
    Place,
    PromptEntry,
    SteeringEntry,
)
from windlass.core.projection.replies import (
    apply_attempt_failed,
    apply_attempt_started,
    apply_reply_judged,
    apply_run_ended,
    apply_step_proposed,
    take_steering,
)
from windlass.core.projection.runs import RunView
from windlass.core.projection.shared_log import SharedLog
from windlass.core.projection.streaming import StreamingReply
from windlass.core.projection.view import CallView, Entry, NestedView, Projection, ReplyEntry

LIVE_ONLY = (
    "CallView.progress",
    "CallView.agents",
    "ContextCompacted.messages_saved",
    "ContextCompacted.tokens_saved",
    "changed",
)
"""What only a live watcher can have, because no record of the session holds it.

- `progress`: what a running tool reported; it is kept nowhere.
- `agents`: sub-agents have sessions of their own. A watcher that came late is given those that
  work; for others it needs the facts of their sessions, as events of `nest_events`.
- `…_saved`: how much shorter a compaction made the view, which is not recorded.
- `changed`: places of deltas among them.
"""


def project_events(
    events: Iterable[Event], session: str = "", start: Projection | None = None
) -> Projection:
    """Return the projection of these events, or of those before and these.

    Facts from a journal, events from a watcher, or both, one after the other.
    """
    return reduce(apply_event, events, start or Projection(session))


def apply_event(view: Projection, event: Event) -> Projection:
    """Return the projection after one more event. One that is in it already changes nothing."""
    place = (event.seq, event.nth)
    if event.seq and place <= (view.seq, view.nth):
        return view
    if isinstance(event, Delta):
        view = _apply_delta(view, event, max(place, view.place))
        return replace(view, seq=max(event.seq, view.seq), nth=event.nth)
    view = _apply_fact(view, event)
    return replace(view, seq=event.seq, nth=0, at=max(view.at, event.at))


def _apply_delta(view: Projection, delta: Delta, place: Place) -> Projection:
    match delta:
        case TextDelta(text):
            return _add_text(view, "text", text)
        case ThinkingDelta(text):
            return _add_text(view, "thinking", text)
        case CallDelta():
            reply = view.reply or StreamingReply()
            return replace(view, reply=reply.add_call_fragment(delta))
        case UsageDelta(usage):
            return replace(view, reply=replace(view.reply or StreamingReply(), usage=usage))
        case AttemptDiscarded(attempt=attempt):
            is_newer = view.attempt is not None and view.attempt.attempt != attempt
            return view if is_newer else replace(view, reply=None)
        case CallProgress(call_id, text):
            call = view.find_call(call_id)
            if call is None or not call.is_open:
                return view
            return replace_call(view, replace(call, progress=text), place)
        case NestedEvent():
            return _apply_nested(view, delta, place)
        case AttemptRetrying() | StreamStalled() | ModelFellBack() | ReplyEnd() | RunSuspended():
            # The facts around it say the same.
            return view


def _add_text(view: Projection, kind: Literal["text", "thinking"], text: str) -> Projection:
    if not text:
        return view
    return replace(view, reply=(view.reply or StreamingReply()).add_text(kind, text))


def _apply_nested(view: Projection, delta: NestedEvent, place: Place) -> Projection:
    """Pass an event of a sub-agent on to the projection of its session."""
    call = view.find_call(delta.call_id)
    # What came from outside as JSON has to be decoded first: it is not an event yet.
    if call is None or not isinstance(delta.event, PlacedEvent):
        return view
    agents = {nested.session: nested for nested in call.agents}
    before = agents.get(delta.session) or NestedView(delta.agent, Projection(delta.session))
    inner = cast("Event", delta.event)
    after = replace(before, projection=apply_event(before.projection, inner))
    agents[delta.session] = after
    return replace_call(view, replace(call, agents=tuple(agents.values())), place)


def _apply_fact(view: Projection, fact: Fact) -> Projection:  # noqa: C901 - an arm per fact
    match fact:
        case AttemptStarted():
            return apply_attempt_started(view, fact)
        case AttemptFailed():
            return apply_attempt_failed(view, fact)
        case StepProposed():
            return apply_step_proposed(view, fact)
        case CallJudged() | CallAnswered() | AnswerCounted() | CallStarted() | CallWaiting():
            return _count_verdict(apply_call_fact(view, fact), fact)
        case CallFinished():
            return add_charges(apply_call_fact(view, fact), fact.charges)
        case ReplyJudged():
            return apply_reply_judged(view, fact)
        case RunQueued() | RunStarted():
            return _open_run(view, fact)
        case RunResumed():
            return _apply_run_resumed(view, fact)
        case RunEnded():
            return apply_run_ended(view, fact)
        case SteeringGiven():
            return _apply_steering_given(view, fact)
        case SteeringTaken():
            return take_steering(view, (fact.seq, 0))
        case NoteGiven(text):
            return add_entry(view, ModelNoteEntry(text, **_entry_fields(view, fact)))
        case LookupsPlanned() | UndoPlanned():
            return _apply_lookups_planned(view, fact)
        case ContextCompacted():
            return _apply_context_compacted(view, fact)
        case SessionImported():
            return add_notice(disown_calls(view, fact), fact)
        case BudgetAllotted(dry=is_news) | KnowledgeRecalled(text=is_news):
            return add_notice(view, fact) if is_news else view
        case BudgetWaitEnded():
            return _end_budget_wait(view, fact)
        case RunPaused() | RunContinued() | RunReleased() | LimitsRaised() | BudgetAwaited():
            return _apply_control_fact(view, fact)
        case CallLate() | AnswerForwarded() | MailRefused() | PromptWithdrawn() | ReleaseAsked():
            return add_notice(view, fact)
        case EntryKept():
            return view


class _EntryFields(TypedDict):
    seq: int
    at: float
    run: int
    changed: Place


def _entry_fields(view: Projection, fact: Fact) -> _EntryFields:
    return _EntryFields(seq=fact.seq, at=fact.at, run=run_number(view), changed=(fact.seq, 0))


def _count_verdict(view: Projection, fact: CallFact) -> Projection:
    """Count the repairs of a call that was judged, and what it had cost if it began earlier."""
    if not isinstance(fact, CallJudged):
        return view
    view = add_charges(view, fact.charges)
    if not fact.changes:
        return view
    run = current_run(view)
    return replace(view, run=replace(run, repairs=run.repairs + 1))


def _open_run(view: Projection, fact: RunQueued | RunStarted) -> Projection:
    """A run is accepted, or begun: then it may have been accepted before."""
    view = settle_tail(view)
    queued = view.run if view.run is not None and view.run.queued else None
    if view.run is not None and queued is None:
        view = replace(view, runs=view.runs.append(view.run))
    if isinstance(fact, RunQueued):
        first = len(view.settled)
        run = RunView(fact.run, first, fact.at, caller=fact.caller, agent=fact.agent, queued=True)
        return add_notice(replace(view, run=run, pending=(), held_reply=None), fact)
    first = len(view.settled) + len(fact.earlier)
    run = RunView(fact.run, first, fact.at, caller=fact.caller, agent=fact.agent)
    if queued is not None:
        run = replace(run, pause=queued.pause)
    view = replace(
        view,
        run=run,
        setup=fact.setup or view.setup,
        # What was said in the queue is still to be read.
        pending=() if queued is None else view.pending,
        attempt=None,
        reply=None,
        retry_at=None,
        failures=0,
        held_reply=None,
    )
    fields = _entry_fields(view, fact)
    earlier = (EarlierEntry(message, **fields) for message in fact.earlier)
    return add_entry(view, *earlier, PromptEntry(fact.prompt, fact.caller, **fields))


def _apply_run_resumed(view: Projection, fact: RunResumed) -> Projection:
    """Another driver resumes. The attempt in flight may have been paid for in full."""
    if view.attempt is not None:
        view = add_charges(view, (worst_case_charge(view.attempt),))
    view = take_over_calls(view, fact, view.setup)
    view = replace(
        view,
        setup=fact.setup or view.setup,
        attempt=None,
        reply=None,
        retry_at=None,
        run=replace(current_run(view), released=False, budget_wait=None),
    )
    return add_notice(view, fact)


def _apply_control_fact(
    view: Projection, fact: RunPaused | RunContinued | RunReleased | LimitsRaised | BudgetAwaited
) -> Projection:
    """Show what a caller did to the run from outside, or that its driver released it."""
    run = current_run(view)
    match fact:
        case BudgetAwaited():
            run = replace(run, budget_wait=fact)
        case RunPaused():
            run = replace(run, pause=fact)
        case RunContinued():
            run = replace(run, pause=None)
        case LimitsRaised(limits):
            over = run.pause is not None and run.pause.cause == "budget"
            pause = None if over else run.pause
            run = replace(run, raised=run.raised.merge(limits), pause=pause)
        case RunReleased():
            view = add_charges(view, (fact.charge,))
            view = replace(view, attempt=None, reply=None, retry_at=None)
            run = replace(current_run(view), released=True)
    return add_notice(replace(view, run=run), fact)


def _end_budget_wait(view: Projection, fact: BudgetWaitEnded) -> Projection:
    run = current_run(view)
    if run.budget_wait is None or run.budget_wait.budget != fact.budget:
        return view
    return add_notice(replace(view, run=replace(run, budget_wait=None)), fact)


def _apply_steering_given(view: Projection, fact: SteeringGiven) -> Projection:
    entry = SteeringEntry(fact.prompt, fact.by, **_entry_fields(view, fact))
    return replace(view, pending=(*view.pending, entry))


def _apply_lookups_planned(view: Projection, fact: LookupsPlanned | UndoPlanned) -> Projection:
    fields = _entry_fields(view, fact)
    calls = tuple(CallView(call, changed=fields["changed"]) for call in fact.calls)
    kind = "undo" if isinstance(fact, UndoPlanned) else "lookup"
    return add_entry(view, ReplyEntry(parts=fact.calls, calls=calls, kind=kind, **fields))


def _apply_context_compacted(view: Projection, fact: ContextCompacted) -> Projection:
    view = add_charges(replace(view, attempt=None, reply=None), (fact.charge,))
    run = current_run(view)
    view = replace(view, run=replace(run, compactions=run.compactions + 1))
    return add_notice(view, fact)


def nest_events(
    call_id: str, agent: str, session: str, events: Iterable[Event]
) -> Iterator[NestedEvent]:
    """Yield the events of a sub-agent's session as events of the session that it works for.

    With them a watcher that came late, or that reads a journal, has the view of the sub-agent.
    """
    return (NestedEvent(call_id, agent, session, event) for event in events)


def without_live_parts(view: Projection) -> Projection:
    """Return the projection without what only a live watcher can have; see LIVE_ONLY.

    For comparing two views: what is held back from both of them is left out as well.
    """
    entries = [_strip_entry(entry) for entry in view.entries]
    pending = tuple(replace(entry, changed=(0, 0)) for entry in view.pending)
    return replace(
        view,
        nth=0,
        settled=SharedLog(entries),
        tail=(),
        pending=pending,
        held_reply=None,
        reply=view.reply.join_chunks() if view.reply else None,
    )


def _strip_entry(entry: Entry) -> Entry:
    entry = replace(entry, changed=(0, 0))
    if isinstance(entry, NoticeEntry) and isinstance(entry.fact, ContextCompacted):
        return replace(entry, fact=replace(entry.fact, messages_saved=0, tokens_saved=0))
    if isinstance(entry, ReplyEntry):
        calls = tuple(replace(call, progress="", agents=(), changed=(0, 0)) for call in entry.calls)
        return replace(entry, calls=calls)
    return entry
