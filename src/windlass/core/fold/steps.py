"""How a step comes about: attempts at a model, a complete reply, and the verdict on it."""

from msgspec.structs import replace

from windlass.core.events import (
    AttemptFailed,
    AttemptStarted,
    BudgetAllotted,
    Fact,
    NoteGiven,
    ReplyJudged,
    StepProposed,
)
from windlass.core.fold.phases import raise_illegal_fact
from windlass.core.messages import Charge, TextPart, UserMessage
from windlass.core.state import CallState, PromptMeasure, RunState, State, StepState, add_messages
from windlass.core.tool_search import unwrap_call
from windlass.core.verdicts import Allow, Deny, OutputMismatch


def apply_attempt_started(state: State, run: RunState, fact: AttemptStarted) -> State:
    """Open an attempt, of a step or of a summary."""
    require_nothing_open(state, run, fact)
    run = replace(run, attempt=fact, model_calls=run.model_calls + 1)
    if run.allotments:
        # A dry budget is asked again before the next attempt: it may have been refilled.
        allotments = tuple(replace(allotment, dry=False) for allotment in run.allotments)
        run = replace(run, allotments=allotments)
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
        # Some of them may be inside of a call of `call_tool`.
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
    """Tell the model of a mistake of its own, and remember when."""
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
