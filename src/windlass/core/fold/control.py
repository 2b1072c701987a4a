"""What messages from outside change: pauses, raised limits, a release, the cursors of the mailbox.

Invariant: each message counts exactly once. A fact that carries the number of a message is legal
only if that number lies beyond the cursor of its lane, so a message that was taken before a crash
is never taken again after it.

Facts also open and settle the questions of a session: stores keep a row of each. Also here is a run
between its acceptance and its first driver, with the prompts that wait behind a run.

Invariant: an accepted run has one prompt, which stays in the mailbox until the driver that begins
the run takes it. The run ends in the queue, or it is begun by exactly that prompt. A prompt behind
an open run is not a run yet; it can be withdrawn by its number.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

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
    SteeringGiven,
)
from windlass.core.events import (
    CallAnswered,
    CallJudged,
    Fact,
    RunEnded,
    RunStarted,
    SessionImported,
    UndoPlanned,
)
from windlass.core.fold.calls import (
    apply_call_waiting,
    encode_arguments,
    read_given,
    replace_call,
)
from windlass.core.fold.phases import pardon_call, raise_illegal_fact
from windlass.core.fold.steps import (
    apply_budget_awaited,
    apply_undo_planned,
    current_run,
    rebuild_view,
    settle_open_attempt,
)
from windlass.core.limits import RaisedLimits
from windlass.core.mail import MailLane
from windlass.core.messages import ArgumentChange
from windlass.core.setup import Setup, digest
from windlass.core.state import RunState, StartKey, State, find_call
from windlass.core.verdicts import (
    Ask,
    Decision,
    GivenAnswer,
    Modify,
    QuestionRow,
    classify_answer,
    find_disqualification,
    tally,
    terms_of,
)

_SETTLING_FACTS = frozenset((AnswerCounted, CallAnswered, MailRefused, RunEnded, SessionImported))


def bind_question(state: State, fact: CallJudged) -> CallJudged:
    """Return a verdict that asks a question with the digest of what it asks about.

    `state` is the one after the fact. Other verdicts are returned unchanged.
    """
    if not isinstance(fact.verdict, Ask):
        return fact
    call = find_call(state, fact.call_id)
    return fact if call is None else replace(fact, digest=digest(call.decoded_arguments))


def touches_questions(facts: Iterable[Fact], *, has_open: bool) -> bool:
    """Whether facts may open or settle a question; `has_open`: some are open before them."""
    for fact in facts:
        kind = type(fact)  # asked of every fact that is written
        if kind in _SETTLING_FACTS and has_open:
            return True
        if isinstance(fact, CallJudged) and isinstance(fact.verdict, Ask):
            return True
    return False


def advance_questions(
    session: str, unsettled: Mapping[str, QuestionRow], facts: Iterable[Fact]
) -> dict[str, QuestionRow]:
    """Return the rows that facts change, by call, from those that are not settled. Pure."""
    rows = dict(unsettled)
    for fact in facts:
        match fact:
            case CallJudged(call_id=call_id, verdict=Ask() as question) if fact.digest:
                rows[call_id] = QuestionRow(call_id, terms_of(question, fact.digest))
            case CallAnswered(call_id=call_id) if call_id in rows:
                rows[call_id] = _settle_answered(rows[call_id], fact)
            case AnswerCounted(call_id=call_id) if call_id in rows:
                rows[call_id] = _count_answer(rows[call_id], read_given(fact))
            case MailRefused(mail=number, lane="control"):
                via = name_message(session, number)
                rows = {call_id: _reopen(row, via) for call_id, row in rows.items()}
            case RunEnded() | SessionImported():
                rows = {call_id: replace(row, is_settled=True) for call_id, row in rows.items()}
            case _:
                pass
    return {call_id: row for call_id, row in rows.items() if row != unsettled.get(call_id)}


def name_message(session: str, number: int) -> str:
    """Return what names a control message: it is the key under which an answer is passed on."""
    return f"{session}#{number}"


def _settle_answered(row: QuestionRow, fact: CallAnswered) -> QuestionRow:
    answered = Decision(classify_answer(fact.verdict), fact.by, fact.accepted_at or fact.at)
    return replace(row, decision=row.decision or answered, is_settled=True)


def _count_answer(row: QuestionRow, recorded: GivenAnswer) -> QuestionRow:
    """Return a question with an answer as it is on record: a fork has no message of it."""
    known = [
        replace(given, digest=recorded.digest) if _is_same(given, recorded) else given
        for given in row.answers
    ]
    if not any(_is_same(given, recorded) for given in row.answers):
        known.append(recorded)
    return replace(row, answers=tuple(known))


def _is_same(given: GivenAnswer, recorded: GivenAnswer) -> bool:
    return given.at == recorded.at and given.person == recorded.person


def _reopen(row: QuestionRow, via: str) -> QuestionRow:
    """Return a question whose answer the driver could not take, so that another one may come."""
    left = tuple(given for given in row.answers if given.via != via)
    if row.via == via:
        return replace(row, answers=left, decision=None, via="")
    return replace(row, answers=left)


def apply_answer_counted(state: State, fact: AnswerCounted) -> State:
    """Take the answer of a person who agreed, and of whom alone it does not depend."""
    call = find_call(state, fact.call_id)
    if call is None or call.question is None:
        raise_illegal_fact(fact, "nobody asked")
    if fact.digest != digest(call.decoded_arguments):
        raise_illegal_fact(fact, "it answers for other arguments")
    terms = terms_of(call.question, fact.digest)
    given = read_given(fact)
    answers = (*call.answers, given)
    if find_disqualification(terms, given) or tally(terms, answers) is not None:
        raise_illegal_fact(fact, "it does not count, or decides the question")
    call = replace(call, answers=answers)
    if isinstance(fact.verdict, Modify):
        change = ArgumentChange("", f"{fact.by}: {fact.verdict.reason}")
        text = encode_arguments(fact.verdict.arguments)
        call = replace(call, arguments=text, changes=(*call.changes, change), resource=None)
    return replace_call(state, call)


ControlFact = (
    BudgetAwaited
    | BudgetWaitEnded
    | RunPaused
    | RunContinued
    | RunReleased
    | LimitsRaised
    | CallWaiting
    | UndoPlanned
    | AnswerForwarded
    | ReleaseAsked
    | AnswerCounted
)
_MAIL_FACTS = (
    AnswerCounted,
    AnswerForwarded,
    BudgetWaitEnded,
    CallAnswered,
    LimitsRaised,
    MailRefused,
    PromptWithdrawn,
    ReleaseAsked,
    RunContinued,
    RunEnded,
    RunPaused,
    RunStarted,
    SteeringGiven,
)
MAIL_FACT_TYPES = frozenset(_MAIL_FACTS)


def mail_places(fact: Fact) -> Sequence[tuple[MailLane, int]]:
    """Return the lanes and the numbers of the messages that a fact takes; mostly none.

    Stores use it too: the numbers that they give out begin after those on record.
    """
    if type(fact) not in MAIL_FACT_TYPES:  # asked of every fact that is folded
        return ()
    places: list[tuple[MailLane, int]] = []
    match fact:
        case RunStarted(mail=number):
            places.append(("prompts", number))
        case MailRefused(mail=number, lane=lane):
            places.append((lane, number))
        case RunEnded(mail=number, prompt=prompt):
            places.append(("control", number))
            places.append(("prompts", prompt))
        case _ if isinstance(fact, _MAIL_FACTS):
            places.append(("control", fact.mail))
        case _:
            pass
    return [place for place in places if place[1]]


def advance_mail_cursor(state: State, fact: Fact) -> State:
    """Move the cursor of a lane to each message that a fact takes."""
    for lane, number in mail_places(fact):
        taken = state.prompts_taken if lane == "prompts" else state.mail_taken
        if number <= taken:
            raise_illegal_fact(fact, f"message {number} was taken already")
        if lane == "control":
            state = replace(state, mail_taken=number)
            continue
        # Withdrawn prompts before this one never begin: the cursor has passed them.
        withdrawn = tuple(each for each in state.withdrawn if each > number)
        state = replace(state, prompts_taken=number, withdrawn=withdrawn)
    return state


def apply_control_fact(state: State, run: RunState, fact: ControlFact) -> State:
    """Apply what a caller did to a run from outside, or why its driver released it."""
    match fact:
        case BudgetAwaited():
            return apply_budget_awaited(state, run, fact)
        case BudgetWaitEnded():
            return _apply_budget_wait_ended(state, run, fact)
        case RunPaused():
            if run.pause is not None:
                raise_illegal_fact(fact, "the run is paused already")
            return replace(state, run=replace(run, pause=fact))
        case RunContinued():
            return _apply_run_continued(state, run, fact)
        case RunReleased():
            return _apply_run_released(state, run, fact)
        case LimitsRaised():
            return _apply_limits_raised(state, run, fact)
        case CallWaiting():
            return apply_call_waiting(state, fact)
        case UndoPlanned():
            return apply_undo_planned(state, run, fact)
        case AnswerForwarded() | ReleaseAsked():
            return state
        case AnswerCounted():
            return apply_answer_counted(state, fact)


def _apply_budget_wait_ended(state: State, run: RunState, fact: BudgetWaitEnded) -> State:
    """Ask the budgets again: what they allotted may have been given back during the wait.

    If the message comes before the wait is on record, or for a reply that is to be shorter, what
    was given back is asked for as well. If it comes when the wait is over, it changes nothing.
    """
    wait = run.budget_wait
    is_short = any(each.budget == fact.budget and each.dry for each in run.allotments)
    if not is_short or (wait is not None and wait.budget != fact.budget):
        return state
    return replace(state, run=replace(run, budget_wait=None, allotments=()))


def _apply_run_continued(state: State, run: RunState, fact: RunContinued) -> State:
    """End the pause of the run. What was held against its calls counts no more."""
    if run.pause is None:
        raise_illegal_fact(fact, "the run is not paused")
    if state.step is not None:
        calls = tuple(pardon_call(call) for call in state.step.calls)
        state = replace(state, step=replace(state.step, calls=calls))
    return replace(state, run=replace(run, pause=None, pause_holds=False, fruitless=()))


def _apply_run_released(state: State, run: RunState, fact: RunReleased) -> State:
    """Settle the attempt in flight by what had streamed. No time counts until a driver resumes."""
    if run.is_released:
        raise_illegal_fact(fact, "the run is released already")
    if fact.charge is not None and run.attempt is None:
        raise_illegal_fact(fact, "no attempt is open")
    state = settle_open_attempt(state, run, fact.charge)
    run = current_run(state)
    return replace(state, run=replace(run, is_released=True, pause_holds=run.pause is not None))


def _apply_limits_raised(state: State, run: RunState, fact: LimitsRaised) -> State:
    """Raise the limits of the run, above those of any setup. A pause for lack of money is over."""
    pause = run.pause
    if pause is not None and pause.cause == "budget":
        pause = None
    raised = run.raised.merge(fact.limits)
    holds = run.pause_holds and pause is not None
    run = replace(run, raised=raised, pause=pause, pause_holds=holds)
    setup = None if state.setup is None else raise_setup(state.setup, run)
    return replace(state, run=run, setup=setup)


def raises_limits(state: State, limits: RaisedLimits) -> bool:
    """Return whether new totals are higher than those in force."""
    setup = state.setup
    if setup is None:
        return False
    raised = (limits.raise_run(setup.limits), limits.raise_session(setup.session_limits))
    return raised != (setup.limits, setup.session_limits)


def raise_setup(setup: Setup, run: RunState) -> Setup:
    """Return a setup with the limits that were raised in this run."""
    if run.raised == _NOT_RAISED:
        return setup
    limits = run.raised.raise_run(setup.limits)
    session_limits = run.raised.raise_session(setup.session_limits)
    return replace(setup, limits=limits, session_limits=session_limits)


_NOT_RAISED = RunState(number=0, new_from=0).raised


def apply_run_queued(state: State, fact: RunQueued) -> State:
    """Let a run exist whose prompt is still in the mailbox."""
    if state.is_active:
        raise_illegal_fact(fact, "the run before it has not ended")
    if state.run is not None and state.run.undo_due:
        raise_illegal_fact(fact, "what the run before it did is to be undone first")
    if fact.mail <= state.prompts_taken or fact.mail in state.withdrawn:
        raise_illegal_fact(fact, f"prompt {fact.mail} was taken already")
    had_recalled = state.run is not None and state.run.known is not None
    run = RunState(
        number=fact.run,
        new_from=len(state.transcript),
        caller=fact.caller,
        context=fact.context,
        key=fact.key,
        queued_mail=fact.mail,
    )
    state = replace(state, run=run, step=None, runs=state.runs + 1, agent=fact.agent)
    state = note_start_key(state, StartKey(fact.key, fact.run, fact.digest))
    return rebuild_view(state) if had_recalled else state


def note_start_key(state: State, start: StartKey) -> State:
    """Remember a start that must not happen twice. That of a queued run is replaced."""
    if not start.key:
        return state
    others = (known for known in state.start_keys if known.run != start.run)
    return replace(state, start_keys=(*others, start))


def find_start(state: State, key: str) -> StartKey | None:
    """Return the start that a caller named so in this session, if there was one."""
    return next((start for start in state.start_keys if start.key == key), None)


def take_from_queue(state: State, fact: RunStarted) -> RunState:
    """Return the queued run that a driver begins. No other open run may be before it."""
    run = state.run
    if run is None or not run.queued_mail:
        raise_illegal_fact(fact, "the run before it has not ended")
    if (fact.run, fact.mail) != (run.number, run.queued_mail):
        raise_illegal_fact(fact, f"run {run.number} waits in the queue before it")
    return run


def apply_prompt_withdrawn(state: State, fact: PromptWithdrawn) -> State:
    """Note a prompt that begins no run, although it has not had its turn."""
    number = fact.prompt
    if number <= state.prompts_taken or number in state.withdrawn:
        raise_illegal_fact(fact, f"prompt {number} was taken already")
    if state.run is not None and state.is_queued and state.run.queued_mail == number:
        raise_illegal_fact(fact, f"prompt {number} is run {state.run.number}: cancel that one")
    return replace(state, withdrawn=(*state.withdrawn, number))
