"""Facts in, state out.

The same check runs before a fact is written and when it is read back. So an illegal fact never gets
into a journal, and a journal that holds one is refused.
"""

from collections.abc import Iterable, Sequence
from functools import reduce

from msgspec.structs import replace

from windlass.core.decide.reserving import worst_case_charge
from windlass.core.events import (
    AttemptFailed,
    AttemptStarted,
    BudgetAllotted,
    CallAnswered,
    CallFinished,
    CallJudged,
    CallLate,
    CallStarted,
    ContextCompacted,
    EntryKept,
    Fact,
    InRunFact,
    KnowledgeRecalled,
    LookupsPlanned,
    MailRefused,
    NoteGiven,
    PromptWithdrawn,
    ReplyJudged,
    RunContinued,
    RunEnded,
    RunPaused,
    RunQueued,
    RunResumed,
    RunStarted,
    SessionFact,
    SessionImported,
    SteeringGiven,
    SteeringTaken,
    StepProposed,
)
from windlass.core.fold.calls import (
    abandoned_result,
    add_charges,
    apply_call_answered,
    apply_call_finished,
    apply_call_judged,
    apply_call_started,
    close_call,
    disown_call,
    raise_illegal_fact,
    take_over_call,
)
from windlass.core.fold.control import (
    MAIL_FACT_TYPES,
    advance_mail_cursor,
    apply_control_fact,
    apply_prompt_withdrawn,
    apply_run_queued,
    note_start_key,
    raise_setup,
    take_from_queue,
)
from windlass.core.fold.phases import blame_call, find_fruitless, measure_progress
from windlass.core.fold.steps import (
    apply_attempt_failed,
    apply_attempt_started,
    apply_budget_allotted,
    apply_context_compacted,
    apply_knowledge_recalled,
    apply_lookups_planned,
    apply_note_given,
    apply_reply_judged,
    apply_steering_given,
    apply_steering_taken,
    apply_step_proposed,
    current_run,
    rebuild_view,
    settle_open_attempt,
)
from windlass.core.limits import RaisedLimits
from windlass.core.messages import (
    AssistantMessage,
    ContentPart,
    TextPart,
    ToolResults,
    UserMessage,
)
from windlass.core.phrases import join_texts
from windlass.core.setup import Setup, digest
from windlass.core.state import (
    RunState,
    StartKey,
    State,
    add_labels,
    add_messages,
    measure_setup,
)
from windlass.core.text_clip import clip_line
from windlass.core.transcript import find_conversation_fault

TITLE_CHARS_MAX = 120
"""Length of the title of a session, in characters."""

# Sets of classes, made once: each fact of each run goes through these tests.
OUTSIDE_FACTS = frozenset((CallAnswered, CallLate, MailRefused, PromptWithdrawn, SteeringGiven))
"""The facts that a process may write that does not drive the run."""
_NOT_AT_WORK = OUTSIDE_FACTS | {RunResumed, SessionImported}
_WITHOUT_RUN = RunStarted | SessionFact
_IN_QUEUE = (RunPaused, RunContinued, SteeringGiven, RunEnded)
"""What may happen to a run that waits for its first driver."""
_AFTER_RELEASE = (RunResumed, SteeringGiven, CallAnswered)


def fold(session: str, facts: Iterable[Fact]) -> State:
    """Return the state that these facts add up to. Raises IllegalFact if one cannot follow."""
    return reduce(apply_fact, facts, State(session))


def apply_fact(state: State, fact: Fact) -> State:
    """Return the state after one more fact. Raises IllegalFact if it cannot follow."""
    seq = state.seq + 1
    if fact.seq != seq:
        raise_illegal_fact(fact, f"record {seq} was expected")
    # Asked of every fact of every run, so with the cheapest test there is.
    kind = type(fact)
    is_outside = kind in OUTSIDE_FACTS and may_come_from_outside(state, fact)
    # A clock that is set back takes no time away.
    at = state.at if is_outside else max(state.at, fact.at)
    created = state.created if state.seq else fact.at
    updated = max(state.updated, fact.at)
    passed_s = fact.at - state.at if fact.worked_s is None else fact.worked_s
    if passed_s > 0 and state.run is not None and counts_as_work(state, fact):
        # Time at work, as the fact says, else by the wall clock.
        run = replace(state.run, elapsed_s=state.run.elapsed_s + passed_s)
        state = replace(state, run=run, elapsed_s=state.elapsed_s + passed_s)
    ends_queued = isinstance(fact, RunEnded) and fact.prompt > 0
    if ends_queued or (kind in MAIL_FACT_TYPES and getattr(fact, "mail", 0)):
        state = advance_mail_cursor(state, fact)
    if isinstance(fact, _WITHOUT_RUN):
        after = _apply_without_run(state, fact)
    else:
        after = _apply_in_run(state, fact)
    return replace(after, seq=seq, at=at, created=created, updated=updated)


def counts_as_work(state: State, fact: Fact) -> bool:
    """Whether the time up to this fact is time at work.

    Time in the queue, between two drivers, in a pause, or waiting for a person or for a shared
    budget does not count.
    """
    run = state.run
    if run is None or run.outcome is not None or run.is_released or run.queued_mail:
        return False
    if run.budget_wait is not None:  # It holds nothing, and does nothing.
        return False
    return type(fact) not in _NOT_AT_WORK and not state.is_waiting


def may_come_from_outside(state: State, fact: Fact) -> bool:
    """Whether the fact says nothing about a driver at work: anyone may write it, days later.

    If a driver is at work, its own next fact counts the time from its last one. While the run waits
    for a person, the answer is what ends the waiting.
    """
    if isinstance(fact, CallAnswered):
        return not state.is_waiting
    return type(fact) in OUTSIDE_FACTS


def _apply_without_run(state: State, fact: RunStarted | SessionFact) -> State:
    """Apply a fact that needs no open run."""
    if isinstance(fact, EntryKept):
        raise_illegal_fact(fact, "it belongs to a stream beside the sessions")
    match fact:
        case RunStarted():
            return _apply_run_started(state, fact)
        case RunQueued():
            return apply_run_queued(state, fact)
        case SessionImported():
            return _apply_session_imported(state, fact)
        case PromptWithdrawn():
            return apply_prompt_withdrawn(state, fact)
        case CallLate() | MailRefused():
            return state


def _apply_in_run(state: State, fact: InRunFact) -> State:  # noqa: C901 - an arm per fact
    run = state.run
    if run is None or run.outcome is not None:
        raise_illegal_fact(fact, "no run is open")
    # Without a driver, a person can still steer the run and answer its questions.
    if run.is_released and not isinstance(fact, _AFTER_RELEASE):
        raise_illegal_fact(fact, "the run was released, and no driver has resumed it")
    if run.queued_mail and not isinstance(fact, _IN_QUEUE):
        raise_illegal_fact(fact, "the run waits in the queue, and no driver has begun it")
    match fact:
        # The facts of every step come first: the arms are tried in order.
        case AttemptStarted():
            return apply_attempt_started(state, run, fact)
        case StepProposed():
            return apply_step_proposed(state, run, fact)
        case CallJudged():
            return apply_call_judged(state, fact)
        case CallStarted():
            return apply_call_started(state, fact)
        case CallFinished():
            return apply_call_finished(state, fact)
        case RunResumed():
            return _apply_run_resumed(state, run, fact)
        case AttemptFailed():
            return apply_attempt_failed(state, run, fact)
        case CallAnswered():
            return apply_call_answered(state, fact)
        case ReplyJudged():
            return apply_reply_judged(state, run, fact)
        case NoteGiven():
            return apply_note_given(state, run, fact)
        case BudgetAllotted():
            return apply_budget_allotted(state, run, fact)
        case ContextCompacted():
            return apply_context_compacted(state, run, fact)
        case SteeringGiven():
            return apply_steering_given(state, run, fact)
        case SteeringTaken():
            return apply_steering_taken(state, run, fact)
        case LookupsPlanned():
            return apply_lookups_planned(state, run, fact)
        case KnowledgeRecalled():
            return apply_knowledge_recalled(state, run, fact)
        case RunEnded():
            return _apply_run_ended(state, run, fact)
        case _:
            return apply_control_fact(state, run, fact)


def _apply_run_started(state: State, fact: RunStarted) -> State:
    queued = take_from_queue(state, fact) if state.is_active else None
    if fact.setup is None and state.setup is None:
        raise_illegal_fact(fact, "a first run needs a setup")
    had_recalled = state.run is not None and state.run.known is not None
    state = _install_setup(state, fact.setup or state.recorded_setup)
    if fact.earlier:
        state = _add_earlier_messages(state, fact)
    run = RunState(
        number=fact.run,
        new_from=len(state.transcript),
        opening_seq=fact.seq,
        caller=fact.caller,
        context=fact.context,
        key=fact.key,
        trace=fact.trace,
        on_partial=fact.on_partial,
    )
    if queued is not None:
        # A pause in the queue stays in force, and what was said meanwhile is still to be read.
        run = replace(run, pause=queued.pause, pending=queued.pending)
    if fact.key:
        state = note_start_key(state, StartKey(fact.key, fact.run, digest(fact.prompt)))
    state = replace(state, run=run, step=None, folder=fact.folder, has_folder=True)
    state = replace(
        state,
        runs=state.runs + (queued is None),
        agent=fact.agent,
        title=state.title or make_title(fact.prompt),
        # A person may continue the session of a sub-agent, which does not give it another parent.
        parent=state.parent or fact.parent.rpartition("/")[0],
    )
    state = add_messages(state, UserMessage(fact.prompt, pinned=fact.pinned))
    state = replace(state, run=replace(run, opened_at=measure_progress(state)))
    state = add_labels(state, fact.labels, f"the prompt of run {fact.run}")
    # Knowledge recalled for the previous run leaves the view with that run.
    return rebuild_view(state) if had_recalled else state


def make_title(prompt: Sequence[ContentPart]) -> str:
    """Return the title of a session that begins with a prompt."""
    return clip_line(join_texts(prompt), TITLE_CHARS_MAX)


def _add_earlier_messages(state: State, fact: RunStarted) -> State:
    """Begin the transcript with a conversation from elsewhere.

    Its tools did not run here, so each result counts as text from outside, and as whatever the tool
    of that name brings in.
    """
    if state.has_conversation:
        raise_illegal_fact(fact, "only the first run of a session can bring earlier messages")
    fault = find_conversation_fault(fact.earlier)
    if fault is not None:
        raise_illegal_fact(fact, f"its earlier messages are not a conversation: {fault}")
    for message in fact.earlier:
        for item in message.items if isinstance(message, ToolResults) else ():
            spec = state.setup.find_tool(item.call.name) if state.setup else None
            labels = spec.labels if spec else ()
            source = f"{item.call.name} ({item.call.id}) in the earlier messages"
            state = add_labels(state, ("untrusted", *labels), source)
    return add_messages(state, *fact.earlier)


def _apply_run_resumed(state: State, run: RunState, fact: RunResumed) -> State:
    """An attempt in flight may have been paid for: its whole reservation counts as spent."""
    fruitless = find_fruitless(state, run, fact.below)
    if run.attempt is not None:
        state = settle_open_attempt(state, run, worst_case_charge(run.attempt))
    if state.step is not None:
        before = state.setup
        blamed = (blame_call(call, before, run) for call in state.step.calls)
        calls = tuple(take_over_call(call, before, fact.setup, fact) for call in blamed)
        state = replace(state, step=replace(state.step, calls=calls))
    # A budget may have taken back meanwhile what it allotted to the dead driver.
    run = current_run(state)
    reopened = replace(
        run,
        opening_seq=fact.seq,
        opened_at=measure_progress(state),
        fruitless=fruitless,
        below=run.below if fact.below is None else fact.below,
        asking_since=None,
        budget_wait=None,
        allotments=(),
        is_released=False,
    )
    return _install_setup(replace(state, run=reopened), fact.setup, reopened)


def _apply_session_imported(state: State, fact: SessionImported) -> State:
    """Void every permission, because the author of the file may have invented it."""
    if fact.calls != state.unfinished_calls:
        raise_illegal_fact(fact, "it does not name the calls that are unfinished")
    if state.step is not None:
        calls = tuple(disown_call(call, fact) for call in state.step.calls)
        state = replace(state, step=replace(state.step, calls=calls))
    if state.is_queued and state.run is not None:
        # Its prompt was in the mailbox, which is not in the file.
        run = replace(state.run, outcome="cancelled", reason="its prompt was left behind")
        state = replace(state, run=replace(run, queued_mail=0), withdrawn=())
    if state.run is not None:
        # Nor may it say how much can be spent, or whose trace the run belongs to.
        run = replace(
            state.run, caller="", context={}, allotments=(), raised=RaisedLimits(), trace=""
        )
        run = replace(run, budget_wait=None, budget_wait_since=None, budget_waits=0)
        state = _install_setup(replace(state, run=run), state.recorded_setup)
    # A start key in the file does not belong to a start that was made here. Nor does the file
    # decide which folder of this machine the session works in, or for whom.
    state = replace(state, grants=(), start_keys=(), folder=None, has_folder=False, parent="")
    return add_labels(state, ("untrusted",), "the file it was imported from")


def _install_setup(state: State, setup: Setup | None, run: RunState | None = None) -> State:
    """Let a recorded setup decide from here on, with the limits that were raised in the run."""
    if setup is None:
        return state
    effective = setup if run is None else raise_setup(setup, run)
    return measure_setup(replace(state, setup=effective, recorded_setup=setup))


def _apply_run_ended(state: State, run: RunState, fact: RunEnded) -> State:
    """Close the open calls, so that the next request is valid whatever happened."""
    if fact.outcome in ("suspended", "paused", "released"):
        raise_illegal_fact(fact, f"a run that is {fact.outcome} has not ended")
    if fact.prompt != run.queued_mail:
        raise_illegal_fact(
            fact, "it must name the prompt of a run that was not begun, and no other"
        )
    state = add_charges(settle_open_attempt(state, run, fact.charge), fact.charges)
    for call in state.step_calls:
        if call.phase != "closed":
            state = close_call(state, call, abandoned_result(call, fact))
    if fact.partial.strip():
        state = add_messages(state, AssistantMessage((TextPart(fact.partial),)))
    if not run.queued_mail:
        state = add_messages(state, *run.pending)
    # With a gate on replies, a reply that was not allowed must not reach the caller.
    withheld = state.setup is not None and state.setup.withhold_replies
    unjudged = withheld and run.reply is not None and not run.passed
    ended = replace(
        current_run(state),
        outcome=fact.outcome,
        reason=fact.reason,
        fault=fact.fault,
        text="" if unjudged else run.text,
        partial="" if withheld else fact.partial or run.partial,
        pending=(),
        pause=None,
        budget_wait=None,
        queued_mail=0,
        undo_due=fact.undo,
        still_running=fact.still_running,
    )
    return replace(state, run=ended)
