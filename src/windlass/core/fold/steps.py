"""How a step comes about, and what the model sees of the steps before it.

A step has attempts at a model, a complete reply, and the verdict on it. Compaction and recalled
knowledge change what the model sees; the transcript itself never changes.

Invariant: the running prompt, pinned messages and open calls are in every view, and a call is never
without its result.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

from msgspec.structs import replace

from windlass.core.events import (
    AttemptFailed,
    AttemptStarted,
    BudgetAllotted,
    BudgetAwaited,
    ContextCompacted,
    Fact,
    KnowledgeRecalled,
    LookupsPlanned,
    NoteGiven,
    ReplyJudged,
    SteeringGiven,
    SteeringTaken,
    StepProposed,
    UndoPlanned,
)
from windlass.core.fold.phases import raise_illegal_fact
from windlass.core.messages import (
    AssistantMessage,
    CallOutcome,
    Charge,
    Message,
    TextPart,
    ToolResult,
    ToolResults,
    UserMessage,
)
from windlass.core.setup import ARTIFACT_READER
from windlass.core.state import (
    CallState,
    PromptMeasure,
    RunState,
    State,
    StepState,
    add_labels,
    add_messages,
    mark_artifacts,
)
from windlass.core.tool_search import unwrap_call
from windlass.core.transcript import Transcript, framing_tokens_max, message_tokens_max
from windlass.core.verdicts import Allow, Deny, OutputMismatch


def apply_attempt_started(state: State, run: RunState, fact: AttemptStarted) -> State:
    """Open an attempt, of a step or of a summary."""
    require_nothing_open(state, run, fact)
    if run.budget_wait is not None:
        raise_illegal_fact(fact, f"the run waits for the budget {run.budget_wait.budget}")
    run = replace(run, attempt=fact, model_calls=run.model_calls + 1)
    if run.allotments:
        # A dry budget is asked again before the next attempt: it may have been refilled.
        allotments = tuple(replace(allotment, dry=False) for allotment in run.allotments)
        run = replace(run, allotments=allotments)
    if run.budget_waits:
        run = replace(run, budget_wait_since=None, budget_waits=0)
    if fact.purpose != "main":
        return replace(state, run=run)
    if fact.model != run.model:
        # Each model has its own attempts and its own clock.
        run = replace(run, model=fact.model, failures=(), failures_noted=0, asking_since=None)
    since = fact.at if run.asking_since is None else run.asking_since
    run = replace(run, asking_since=since, landing=run.landing or fact.landing)
    return replace(state, run=run)


def apply_attempt_failed(state: State, run: RunState, fact: AttemptFailed) -> State:
    """Settle a failed attempt, and count it against the step."""
    if run.attempt is None:
        raise_illegal_fact(fact, "no attempt is open")
    state = settle_open_attempt(state, run, fact.charge)
    if run.attempt.purpose != "main":
        return _postpone_summary(state, current_run(state))
    failed = replace(current_run(state), failures=(*run.failures, fact), partial=fact.partial)
    return replace(state, run=failed)


def _postpone_summary(state: State, run: RunState) -> State:
    """Try no summary for a while. A summary that fails must not fail the step."""
    cool_down = state.setup.compaction.cool_down if state.setup else 0
    run = replace(run, compacted=(*run.compacted, "summary"))
    return replace(state, run=run, no_summary_before=state.steps + cool_down)


def apply_step_proposed(state: State, run: RunState, fact: StepProposed) -> State:
    """Take a complete reply: open a step if it has calls, else leave it to be judged."""
    if run.attempt is None or run.attempt.purpose != "main":
        raise_illegal_fact(fact, "no attempt is open")
    state = _calibrate_tokens(settle_open_attempt(state, run, fact.charge), fact)
    reply = fact.reply
    calls = reply.calls
    text = reply.text
    is_blank = not text.strip()
    is_empty = is_blank and not calls and fact.stop in ("end", "calls")
    run = replace(
        current_run(state),
        steps=run.steps + 1,
        failures=(),
        failures_noted=0,
        asking_since=None,
        partial="",
        compacted=(),
        forced=False,
        stop=fact.stop,
        passed=False,
        text=run.text if is_blank else text,
        reply=None if calls or is_empty else reply,
        empties=run.empties + 1 if is_empty else 0,
    )
    state = replace(state, steps=state.steps + 1, run=run)
    if calls:
        opened: dict[str, CallState] = {}
        # Some of them may be inside a call of `call_tool`.
        is_search = state.setup is not None and state.setup.searches_tools
        for call in calls:
            if call.id in opened or state.transcript.has_call(call.id):
                raise_illegal_fact(fact, "two calls have one id")
            inner = unwrap_call(call) if is_search else call
            opened[call.id] = CallState(inner, outer=None if inner is call else call)
        return replace(state, step=StepState(reply, fact.stop, tuple(opened.values())))
    # A blank reply stays out of the transcript: no provider accepts it back.
    if is_blank:
        return state
    return add_messages(state, reply)


def _calibrate_tokens(state: State, fact: StepProposed) -> State:
    """Learn how many bytes a token of this model has from what the provider counted."""
    usage = fact.charge.usage if fact.charge else None
    if fact.charge is None or usage is None or usage.estimated or usage.input < 1:
        return state
    model = fact.charge.model
    size = state.fixed + state.size
    others = (entry for entry in state.calibration if entry[0] != model)
    return replace(
        state,
        measure=PromptMeasure(model, usage.input, state.fixed, state.size, state.framing),
        calibration=(*others, (model, size / usage.input)),
    )


def apply_reply_judged(state: State, run: RunState, fact: ReplyJudged) -> State:
    """Let a final reply pass, or tell the model why it does not count."""
    if run.reply is None or run.passed:
        raise_illegal_fact(fact, "no reply waits to be judged")
    match fact.verdict:
        case Allow():
            return replace(state, run=replace(run, passed=True))
        case OutputMismatch(message):
            withheld = state.setup is not None and state.setup.withhold_replies
            text = "" if withheld else run.text
            run = replace(run, reply=None, text=text, misfits=run.misfits + 1)
            note = message
        case Deny(reason):
            run = replace(run, reply=None, text="", denials=run.denials + 1)
            note = f"Your reply was withheld: {reason}. Answer in another way."
    return add_messages(replace(state, run=run), UserMessage((TextPart(note),), note=True))


def apply_note_given(state: State, run: RunState, fact: NoteGiven) -> State:
    """Tell the model of its own mistake, and remember when."""
    require_nothing_open(state, run, fact)
    match fact.why:
        case "same_call":
            run = replace(run, streak=replace(run.streak, noted_at=run.streak.count))
        case "refused_reply":
            run = replace(run, failures_noted=len(run.failures))
    return add_messages(replace(state, run=run), UserMessage((TextPart(fact.text),), note=True))


def apply_budget_allotted(state: State, run: RunState, fact: BudgetAllotted) -> State:
    """Remember what a shared budget lets this run spend in all. The last word counts."""
    require_nothing_open(state, run, fact)
    if state.setup is None or all(budget.name != fact.budget for budget in state.setup.budgets):
        raise_illegal_fact(fact, f"no budget {fact.budget} is set")
    others = tuple(entry for entry in run.allotments if entry.budget != fact.budget)
    return replace(state, run=replace(run, allotments=(*others, fact)))


def apply_budget_awaited(state: State, run: RunState, fact: BudgetAwaited) -> State:
    """Wait for a shared budget that had too little."""
    require_nothing_open(state, run, fact)
    allotments = (each for each in run.allotments if each.budget == fact.budget)
    if run.budget_wait is not None or not any(each.dry and each.held for each in allotments):
        raise_illegal_fact(fact, f"nothing shows that others hold some of {fact.budget}")
    since = fact.at if run.budget_wait_since is None else run.budget_wait_since
    waits = run.budget_waits + 1
    run = replace(run, budget_wait=fact, budget_wait_since=since, budget_waits=waits)
    return replace(state, run=run)


def require_nothing_open(state: State, run: RunState, fact: Fact) -> None:
    """Raise IllegalFact if an attempt, a step or a reply is not settled yet."""
    if run.attempt is not None or state.step is not None or run.reply is not None:
        raise_illegal_fact(fact, "an attempt, a step or a reply is open")


def settle_open_attempt(state: State, run: RunState, charge: Charge | None) -> State:
    """Close the open attempt, and charge the run and the session for it."""
    if charge is None:
        return replace(state, run=replace(run, attempt=None))
    charged = run.ledger.add(charge)
    # In the first run of a session, both ledgers are the same.
    ledger = charged if state.ledger == run.ledger else state.ledger.add(charge)
    return replace(state, run=replace(run, attempt=None, ledger=charged), ledger=ledger)


def current_run(state: State) -> RunState:
    """Return the run of a state that has one."""
    if state.run is None:  # pragma: no cover - every caller holds an open run
        raise AssertionError
    return state.run


MASK_MIN = 200
"""Characters from which on a result is worth masking."""


def apply_context_compacted(state: State, run: RunState, fact: ContextCompacted) -> State:
    """Make the view shorter: by a note, a summary, or masked results."""
    if fact.how == "summary":
        if run.attempt is None or run.attempt.purpose != "compaction":
            raise_illegal_fact(fact, "no summary was requested")
        state = settle_open_attempt(state, run, fact.charge)
    else:
        require_nothing_open(state, run, fact)
    run = replace(
        current_run(state),
        compacted=(*run.compacted, fact.how),
        forced=run.forced or bool(run.failures),
        # The prompt is another one now, so failures of the old prompt do not count.
        failures=(),
        asking_since=None,
    )
    if fact.how == "mask":
        if not max(state.masked_upto, state.shown_from) < fact.upto < len(state.transcript):
            raise_illegal_fact(fact, f"results before message {fact.upto} cannot be masked")
        # The ids of the calls now take the place of the results.
        state = mark_artifacts(replace(state, run=run, masked_upto=fact.upto))
        return rebuild_view(state)
    within = state.shown_from < fact.upto < len(state.transcript)
    if not within or isinstance(state.transcript[fact.upto], ToolResults):
        raise_illegal_fact(fact, f"the view cannot begin at message {fact.upto}")
    return rebuild_view(replace(state, run=run, shown_from=fact.upto, summary=fact.note))


def rebuild_view(state: State) -> State:
    """Return the state with its view built from the transcript again."""
    has_own_view = bool(state.shown_from or state.masked_upto)
    if has_own_view:
        shown = Transcript(list(_view_messages(state)))
    else:
        shown = state.transcript
    size = sum(map(message_tokens_max, shown))
    results = (message for message in shown if isinstance(message, ToolResults))
    framing = sum(map(framing_tokens_max, results))
    return replace(
        state, shown=shown, has_own_view=has_own_view, size=size, framing=framing, measure=None
    )


def _view_messages(state: State) -> Iterator[Message]:
    """Yield a note for what is left out, the messages that must stay, then the rest."""
    first = state.shown_from
    run = state.run
    prompt = state.transcript[run.new_from] if run and not run.queued_mail else None
    rest = state.transcript[first:]
    in_rest = set(map(id, rest))
    # Messages that must stay are in the present view already. Searching it, and not the whole
    # transcript, keeps the cost from growing with the session.
    staying = (message for message in state.shown if message is prompt or is_pinned(message))
    if first:
        yield UserMessage((TextPart(state.summary),), note=True)
    before_rest = (message for message in staying if id(message) not in in_rest)
    for message in chain(before_rest, _mask_old_results(state, rest)):
        yield message
        if message is prompt and run is not None and run.known is not None:
            yield run.known


def _mask_old_results(state: State, rest: Sequence[Message]) -> Iterator[Message]:
    """Yield the rest of the messages of the view, with old results masked."""
    readable = state.setup is not None and state.setup.find_tool(ARTIFACT_READER) is not None
    for at, message in enumerate(rest, state.shown_from):
        yield _mask_message(message, readable=readable) if at < state.masked_upto else message


def is_pinned(message: Message) -> bool:
    """Whether a message is in every view, as the running prompt is."""
    return isinstance(message, UserMessage) and message.pinned


def _mask_message(message: Message, *, readable: bool) -> Message:
    if not isinstance(message, ToolResults):
        return message
    return ToolResults(tuple(_mask_outcome(item, readable=readable) for item in message.items))


def _mask_outcome(outcome: CallOutcome, *, readable: bool) -> CallOutcome:
    size = len(outcome.result.text)
    if size < MASK_MIN and all(isinstance(part, TextPart) for part in outcome.result.content):
        return outcome
    if readable:
        hint = f' {ARTIFACT_READER}(id="{outcome.call.id}") reads it.'
    else:
        hint = ""
    text = f"[This old result ({size} characters) was removed to save space.{hint}]"
    return replace(outcome, result=ToolResult.from_text(outcome.result.kind, text))


def mask_saving(message: Message) -> int:
    """Return by how many tokens a message would shrink if its results were masked."""
    if not isinstance(message, ToolResults):
        return 0
    masked = _mask_message(message, readable=True)
    return message_tokens_max(message) - message_tokens_max(masked)


def apply_steering_given(state: State, run: RunState, fact: SteeringGiven) -> State:
    """Keep a message of a person until the model can be asked again."""
    if run.is_undo:
        raise_illegal_fact(fact, "the run undoes another one and asks no model")
    message = UserMessage(fact.prompt)
    return replace(state, run=replace(run, pending=(*run.pending, message)))


def apply_steering_taken(state: State, run: RunState, fact: SteeringTaken) -> State:
    """Put the waiting messages into the conversation. A reply from before is not the last one."""
    if not run.pending or run.attempt is not None or state.step is not None:
        raise_illegal_fact(fact, "no steering waits, or an attempt or a step is open")
    messages = run.pending
    run = replace(run, pending=(), reply=None)
    return add_messages(replace(state, run=run), *messages)


def apply_lookups_planned(state: State, run: RunState, fact: LookupsPlanned) -> State:
    """Open a step of the runtime's own calls."""
    require_nothing_open(state, run, fact)
    if run.steps or run.hydrated or not fact.calls:
        raise_illegal_fact(fact, "lookups are planned once, before the first step")
    if len({call.id for call in fact.calls}) != len(fact.calls):
        raise_illegal_fact(fact, "two calls have one id")
    calls = tuple(map(CallState, fact.calls))
    step = StepState(AssistantMessage(fact.calls), "calls", calls, hydrates=True)
    return replace(state, run=replace(run, hydrated=True), step=step)


def apply_undo_planned(state: State, run: RunState, fact: UndoPlanned) -> State:
    """Open the one step of a run that undoes calls."""
    require_nothing_open(state, run, fact)
    if run.steps or run.model_calls or run.hydrated or run.is_undo:
        raise_illegal_fact(fact, "calls are undone by a run that does nothing else")
    if [call.id for call in fact.calls] != [undone.by for undone in fact.undone]:
        raise_illegal_fact(fact, "each call must undo one other")
    new = {call.id for call in fact.calls if not state.transcript.has_call(call.id)}
    if len(new) != len(fact.calls):
        raise_illegal_fact(fact, "two calls have one id")
    state = replace(state, run=replace(run, is_undo=True, undoes=fact.undone))
    if not fact.calls:
        return state
    calls = tuple(map(CallState, fact.calls))
    step = StepState(AssistantMessage(fact.calls), "calls", calls, hydrates=True)
    return replace(state, step=step)


def apply_knowledge_recalled(state: State, run: RunState, fact: KnowledgeRecalled) -> State:
    """Show what is known beside the prompt, in the view of this run only."""
    require_nothing_open(state, run, fact)
    if run.steps or run.recalled:
        raise_illegal_fact(fact, "knowledge is recalled once, before the first step")
    if fact.text.strip():
        note = UserMessage((TextPart(fact.text),), note=True)
    else:
        note = None
    state = replace(state, run=replace(run, recalled=True, known=note))
    if note is None:
        return state
    state = add_labels(state, fact.labels, "what was recalled")
    shown = Transcript(list(state.shown)).append(note)
    return replace(
        state, shown=shown, has_own_view=True, size=state.size + message_tokens_max(note)
    )
