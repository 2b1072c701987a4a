"""Facts in, state out.

The same check runs before a fact is written and when it is read back, so an illegal fact never gets
into a journal, and a journal that holds one is not believed.
"""

from collections.abc import Iterable
from functools import reduce
from typing import assert_never

from msgspec.structs import replace

from windlass.core.calls import (
    call_answered,
    call_finished,
    call_judged,
    call_started,
    close,
    given_up,
    illegal,
)
from windlass.core.events import (
    AttemptFailed,
    AttemptStarted,
    CallAnswered,
    CallFinished,
    CallJudged,
    CallLate,
    CallStarted,
    Compacted,
    Fact,
    InRun,
    NoteGiven,
    ReplyJudged,
    RunEnded,
    RunResumed,
    RunStarted,
    StepProposed,
)
from windlass.core.messages import Assistant, Charge, Results, Text, Usage, User
from windlass.core.setup import Setup
from windlass.core.state import Call, Measure, Run, State, Step, fixed_size, say, weigh
from windlass.core.transcript import Transcript
from windlass.core.verdicts import Allow, Deny, Misfit


def fold(session: str, facts: Iterable[Fact]) -> State:
    """The state that these facts add up to."""
    return reduce(apply, facts, State(session))


def apply(state: State, fact: Fact) -> State:
    """The state after one more fact; raises IllegalFact if it cannot follow."""
    if fact.seq != state.seq + 1:
        illegal(fact, f"record {state.seq + 1} was expected")
    after = _after(_tick(state, fact), fact)
    # A late result is no work, and a clock that is set back takes no time away.
    at = state.at if isinstance(fact, CallLate) else max(state.at, fact.at)
    return replace(after, seq=fact.seq, at=at)


def _tick(state: State, fact: Fact) -> State:
    """Time at work passes; time between two drivers, or waiting for a person, does not."""
    idle = not state.active or state.waiting or isinstance(fact, RunResumed | CallLate)
    if idle or state.run is None or fact.at <= state.at:
        return state
    elapsed_s = state.run.elapsed_s + fact.at - state.at
    return replace(state, run=replace(state.run, elapsed_s=elapsed_s))


def _after(state: State, fact: Fact) -> State:
    if isinstance(fact, RunStarted):
        return _run_started(state, fact)
    if isinstance(fact, CallLate):
        return state
    if state.run is None or state.run.outcome is not None:
        illegal(fact, "no run is open")
    return _in_run(state, state.run, fact)


def _in_run(state: State, run: Run, fact: InRun) -> State:
    match fact:
        case RunResumed():
            return _run_resumed(state, run, fact)
        case AttemptStarted():
            return _attempt_started(state, run, fact)
        case AttemptFailed():
            return _attempt_failed(state, run, fact)
        case StepProposed():
            return _step_proposed(state, run, fact)
        case CallJudged():
            return call_judged(state, fact)
        case CallAnswered():
            return call_answered(state, fact)
        case CallStarted():
            return call_started(state, fact)
        case CallFinished():
            return call_finished(state, fact)
        case ReplyJudged():
            return _reply_judged(state, run, fact)
        case NoteGiven():
            return _note_given(state, run, fact)
        case Compacted():
            return _compacted(state, run, fact)
        case RunEnded():
            return _run_ended(state, run, fact)
        case _:
            assert_never(fact)


def _run_started(state: State, fact: RunStarted) -> State:
    if state.active:
        illegal(fact, "the run before it has not ended")
    if fact.setup is None and state.setup is None:
        illegal(fact, "a first run needs a set-up")
    run = Run(number=fact.run, new_from=len(state.transcript))
    state = replace(state, run=run, step=None)
    return say(_set_up(state, fact.setup), User(fact.prompt))


def _run_resumed(state: State, run: Run, fact: RunResumed) -> State:
    """An attempt that was under way may have been paid for: it counts as all that was reserved."""
    if run.attempt is not None:
        reserved = run.attempt.reserved
        usage = Usage(reserved.input, reserved.output, estimated=True)
        state = _charge(state, run, Charge(run.attempt.model, usage=usage, usd=reserved.usd))
    if state.step is not None:
        calls = tuple(
            replace(call, phase="interrupted") if call.phase == "started" else call
            for call in state.step.calls
        )
        state = replace(state, step=replace(state.step, calls=calls))
    state = replace(state, run=replace(_run(state), asking_since=None))
    return _set_up(state, fact.setup)


def _set_up(state: State, setup: Setup | None) -> State:
    return state if setup is None else replace(state, setup=setup, fixed=fixed_size(setup))


def _attempt_started(state: State, run: Run, fact: AttemptStarted) -> State:
    _nothing_open(state, run, fact)
    if fact.model != run.model:
        run = replace(run, model=fact.model, failures=(), asking_since=None)
    return replace(
        state,
        run=replace(
            run,
            attempt=fact,
            model_calls=run.model_calls + 1,
            asking_since=fact.at if run.asking_since is None else run.asking_since,
            landing=run.landing or fact.landing,
        ),
    )


def _attempt_failed(state: State, run: Run, fact: AttemptFailed) -> State:
    if run.attempt is None:
        illegal(fact, "no attempt is open")
    state = _charge(state, run, fact.charge)
    failed = replace(_run(state), failures=(*run.failures, fact), partial=fact.partial)
    return replace(state, run=failed)


def _step_proposed(state: State, run: Run, fact: StepProposed) -> State:
    if run.attempt is None:
        illegal(fact, "no attempt is open")
    state = _charge(state, run, fact.charge)
    reply, calls = fact.reply, fact.reply.calls
    blank = not reply.text.strip()
    empty = blank and not calls and fact.stop in ("end", "calls")
    state = replace(
        state,
        steps=state.steps + 1,
        measure=_measured(state, fact),
        run=replace(
            _run(state),
            steps=run.steps + 1,
            failures=(),
            asking_since=None,
            partial="",
            shrunk=False,
            stop=fact.stop,
            passed=False,
            text=run.text if blank else reply.text,
            reply=None if calls or empty else reply,
            empties=run.empties + 1 if empty else 0,
        ),
    )
    if calls:
        new = {call.id for call in calls if not state.transcript.has_call(call.id)}
        if len(new) != len(calls):
            illegal(fact, "two calls have one id")
        return replace(state, step=Step(reply, fact.stop, tuple(map(Call, calls))))
    # A reply that says nothing is left out of the transcript: no provider takes it back.
    return state if blank else say(state, reply)


def _measured(state: State, fact: StepProposed) -> Measure | None:
    usage = fact.charge.usage if fact.charge else None
    if fact.charge is None or usage is None or usage.estimated:
        return state.measure
    return Measure(fact.charge.model, usage.input, state.fixed, state.size)


def _reply_judged(state: State, run: Run, fact: ReplyJudged) -> State:
    if run.reply is None or run.passed:
        illegal(fact, "no reply waits to be judged")
    match fact.verdict:
        case Allow():
            return replace(state, run=replace(run, passed=True))
        case Misfit(message):
            run = replace(run, reply=None, misfits=run.misfits + 1)
            told = message
        case Deny(reason):
            run = replace(run, reply=None, text="", denials=run.denials + 1)
            told = f"Your reply was withheld: {reason}. Answer in another way."
    return say(replace(state, run=run), User((Text(told),), note=True))


def _note_given(state: State, run: Run, fact: NoteGiven) -> State:
    _nothing_open(state, run, fact)
    run = replace(run, streak=replace(run.streak, noted_at=run.streak.count))
    return say(replace(state, run=run), User((Text(fact.text),), note=True))


def _compacted(state: State, run: Run, fact: Compacted) -> State:
    _nothing_open(state, run, fact)
    within = state.shown_from < fact.upto < len(state.transcript)
    if not within or isinstance(state.transcript[fact.upto], Results):
        illegal(fact, f"the view cannot begin at message {fact.upto}")
    kept = state.transcript[fact.upto :]
    # The prompt of the running run stays in view, wherever the rest begins.
    prompt = [state.transcript[run.new_from]] if run.new_from < fact.upto else []
    shown = Transcript([User((Text(fact.note),), note=True), *prompt, *kept])
    run = replace(run, shrunk=True, failures=(), asking_since=None)
    size = sum(map(weigh, shown))
    return replace(state, run=run, shown=shown, shown_from=fact.upto, size=size, measure=None)


def _nothing_open(state: State, run: Run, fact: Fact) -> None:
    if run.attempt is not None or state.step is not None or run.reply is not None:
        illegal(fact, "an attempt, a step or a reply is open")


def _run_ended(state: State, run: Run, fact: RunEnded) -> State:
    """The open calls are closed, so that the next request is valid, whatever happened."""
    if fact.outcome == "suspended":
        illegal(fact, "a pause is not an end")
    state = _charge(state, run, fact.charge)
    for call in state.step.calls if state.step else ():
        if call.phase != "closed":
            state = close(state, call, given_up(call, fact))
    if fact.partial.strip():
        state = say(state, Assistant((Text(fact.partial),)))
    ended = replace(
        _run(state),
        outcome=fact.outcome,
        reason=fact.reason,
        fault=fact.fault,
        partial=fact.partial or run.partial,
    )
    return replace(state, run=ended)


def _charge(state: State, run: Run, charge: Charge | None) -> State:
    """Settle the open attempt."""
    run = replace(run, attempt=None)
    if charge is None:
        return replace(state, run=run)
    run = replace(run, ledger=run.ledger.add(charge))
    return replace(state, run=run, ledger=state.ledger.add(charge))


def _run(state: State) -> Run:
    if state.run is None:  # pragma: no cover - every caller holds an open run
        raise AssertionError
    return state.run
