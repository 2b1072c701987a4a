"""Facts in, state out.

The same check runs before a fact is written and when it is read back, so an illegal fact never gets
into a journal, and a journal that holds one is not believed.
"""

from collections.abc import Iterable
from functools import reduce
from typing import assert_never

from msgspec.structs import replace

from windlass.core.decide.reserving import worst
from windlass.core.events import (
    Allotted,
    AttemptFailed,
    AttemptStarted,
    CallAnswered,
    CallFinished,
    CallJudged,
    CallLate,
    CallStarted,
    Compacted,
    Fact,
    Heeded,
    Hydrated,
    InRun,
    NoteGiven,
    Recalled,
    ReplyJudged,
    RunEnded,
    RunResumed,
    RunStarted,
    Steered,
    StepProposed,
)
from windlass.core.fold.calls import (
    call_answered,
    call_finished,
    call_judged,
    call_started,
    charged,
    close,
    given_up,
    illegal,
    taken_over,
)
from windlass.core.fold.context import compacted, heeded, hydrated, recalled, rendered, steered
from windlass.core.fold.steps import (
    allotted,
    attempt_failed,
    attempt_started,
    charge,
    current,
    note_given,
    reply_judged,
    step_proposed,
)
from windlass.core.messages import Assistant, Text, User
from windlass.core.setup import Setup
from windlass.core.state import Run, State, fixed_size, holding, say


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
    passed_s = fact.at - state.at
    run = replace(state.run, elapsed_s=state.run.elapsed_s + passed_s)
    return replace(state, run=run, elapsed_s=state.elapsed_s + passed_s)


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
            return attempt_started(state, run, fact)
        case AttemptFailed():
            return attempt_failed(state, run, fact)
        case StepProposed():
            return step_proposed(state, run, fact)
        case CallJudged():
            return call_judged(state, fact)
        case CallAnswered():
            return call_answered(state, fact)
        case CallStarted():
            return call_started(state, fact)
        case CallFinished():
            return call_finished(state, fact)
        case ReplyJudged():
            return reply_judged(state, run, fact)
        case NoteGiven():
            return note_given(state, run, fact)
        case Allotted():
            return allotted(state, run, fact)
        case Compacted():
            return compacted(state, run, fact)
        case Steered():
            return steered(state, run, fact)
        case Heeded():
            return heeded(state, run, fact)
        case Hydrated():
            return hydrated(state, run, fact)
        case Recalled():
            return recalled(state, run, fact)
        case RunEnded():
            return _run_ended(state, run, fact)
        case _:
            assert_never(fact)


def _run_started(state: State, fact: RunStarted) -> State:
    if state.active:
        illegal(fact, "the run before it has not ended")
    if fact.setup is None and state.setup is None:
        illegal(fact, "a first run needs a set-up")
    run = Run(
        number=fact.run,
        new_from=len(state.transcript),
        caller=fact.caller,
        context=fact.context,
    )
    aside = state.run is not None and state.run.known is not None
    state = _set_up(replace(state, run=run, step=None), fact.setup)
    state = say(state, User(fact.prompt, pinned=fact.pinned))
    state = holding(state, fact.labels, f"the prompt of run {fact.run}")
    # What was recalled for the run before is not shown any more.
    return rendered(state) if aside else state


def _run_resumed(state: State, run: Run, fact: RunResumed) -> State:
    """An attempt that was under way may have been paid for: it counts as all that was reserved."""
    if run.attempt is not None:
        state = charge(state, run, worst(run.attempt))
    if state.step is not None:
        calls = tuple(taken_over(call, state.setup, fact.setup) for call in state.step.calls)
        state = replace(state, step=replace(state.step, calls=calls))
    # What a budget promised to a dead driver may have gone back meanwhile.
    state = replace(state, run=replace(current(state), asking_since=None, allotments=()))
    return _set_up(state, fact.setup)


def _set_up(state: State, setup: Setup | None) -> State:
    return state if setup is None else replace(state, setup=setup, fixed=fixed_size(setup))


def _run_ended(state: State, run: Run, fact: RunEnded) -> State:
    """The open calls are closed, so that the next request is valid, whatever happened."""
    if fact.outcome == "suspended":
        illegal(fact, "a pause is not an end")
    state = charged(charge(state, run, fact.charge), fact.charges)
    for call in state.step.calls if state.step else ():
        if call.phase != "closed":
            state = close(state, call, given_up(call, fact))
    if fact.partial.strip():
        state = say(state, Assistant((Text(fact.partial),)))
    state = say(state, *run.pending)
    withheld = state.setup is not None and state.setup.withhold_replies
    unjudged = withheld and run.reply is not None and not run.passed
    ended = replace(
        current(state),
        outcome=fact.outcome,
        reason=fact.reason,
        fault=fact.fault,
        text="" if unjudged else run.text,
        partial="" if withheld else fact.partial or run.partial,
        pending=(),
    )
    return replace(state, run=ended)
