"""The phases of a call: the one table that says which fact leads from which phase to which.

The fold looks every fact about a call up here, and refuses a pair that is absent as illegal. The
decision and the replay read the same table. `tools/phase_diagram.py` draws the diagram in the docs
from it.

The deaths of drivers say which calls are suspects, and whether a run leads nowhere. A driver has
died if another one takes its run over although it neither released the run nor left it to wait for
a person. Deaths are kept as the numbers of the facts by which those drivers opened the run, so that
a later fact can take one of them back.
"""

from collections.abc import Mapping
from typing import Literal, NoReturn

from msgspec.structs import replace

from windlass.core.control_facts import SessionProgress
from windlass.core.errors import IllegalFact
from windlass.core.events import (
    CallAnswered,
    CallFinished,
    CallJudged,
    CallStarted,
    CallWaiting,
    Fact,
)
from windlass.core.messages import ToolSpec
from windlass.core.setup import Setup
from windlass.core.state import CallPhase, CallState, Progress, RunState, State
from windlass.core.verdicts import Allow, Ask, Modify

PhaseFact = Literal[
    "CallJudged: allow",
    "CallJudged: ask",
    "CallJudged: deny",
    "CallAnswered: allow",
    "CallAnswered: deny",
    "CallStarted",
    "CallStarted: repeatable",
    "CallFinished",
    "CallWaiting",
    "RunResumed",
    "RunResumed: changed",
    "RunResumed: changed, repeatable",
    "SessionImported",
    "RunEnded",
]
"""The facts that move a call, as far as the table distinguishes them.

`allow` includes a changed call (Modify), and `deny` one that is invalid. `repeatable` is a tool
whose effect is not a write. `changed`: the gate or the tool is another than the one that allowed
the call, and no person did; or no signature proves to the driver that it was allowed.
"""

PhaseChange = CallJudged | CallAnswered | CallStarted | CallFinished | CallWaiting
"""The facts that are about one call."""

CALL_PHASES: Mapping[CallPhase, Mapping[PhaseFact, CallPhase]] = {
    "proposed": {
        "CallJudged: allow": "cleared",
        "CallJudged: ask": "asked",
        "CallJudged: deny": "closed",
        "RunResumed": "proposed",
        "RunResumed: changed": "proposed",
        "RunResumed: changed, repeatable": "proposed",
        "SessionImported": "proposed",
        "RunEnded": "closed",
    },
    "asked": {
        # In a fork: what was agreed to belongs to the old session.
        "CallJudged: ask": "asked",
        "CallAnswered: allow": "cleared",
        "CallAnswered: deny": "closed",
        "RunResumed": "asked",
        "RunResumed: changed": "asked",
        "RunResumed: changed, repeatable": "asked",
        "SessionImported": "proposed",
        "RunEnded": "closed",
    },
    "cleared": {
        # A permission may be taken back for a question, as long as the call has not started.
        "CallJudged: ask": "asked",
        "CallStarted": "started",
        "CallStarted: repeatable": "started",
        "RunResumed": "cleared",
        # Another gate, or another tool, has not allowed it.
        "RunResumed: changed": "proposed",
        "RunResumed: changed, repeatable": "proposed",
        "SessionImported": "proposed",
        "RunEnded": "closed",
    },
    "started": {
        "CallFinished": "closed",
        "CallWaiting": "waiting",
        # The driver died: it is not known whether the effect happened.
        "RunResumed": "interrupted",
        "RunResumed: changed": "interrupted",
        "RunResumed: changed, repeatable": "proposed",
        "SessionImported": "proposed",
        "RunEnded": "closed",
    },
    "waiting": {
        # The call runs again, and its sub-agent continues.
        "RunResumed": "interrupted",
        "RunResumed: changed": "interrupted",
        "RunResumed: changed, repeatable": "proposed",
        "SessionImported": "proposed",
        "RunEnded": "closed",
    },
    "interrupted": {
        # Judged again: by the tool's own `reconcile`, or by a person.
        "CallJudged: allow": "cleared",
        "CallJudged: ask": "asked",
        "CallJudged: deny": "closed",
        # A write has no entry here: it must never start a second time by itself.
        "CallStarted: repeatable": "started",
        "CallFinished": "closed",
        "RunResumed": "interrupted",
        "RunResumed: changed": "interrupted",
        "RunResumed: changed, repeatable": "proposed",
        "SessionImported": "proposed",
        "RunEnded": "closed",
    },
    "closed": {
        "RunResumed": "closed",
        "RunResumed: changed": "closed",
        "RunResumed: changed, repeatable": "closed",
        "SessionImported": "closed",
        "RunEnded": "closed",
    },
}

NEXT_ACTION: Mapping[CallPhase, Literal["judge", "answer", "run", "wait", "none"]] = {
    "proposed": "judge",
    "asked": "answer",
    "cleared": "run",
    "started": "run",
    "waiting": "wait",
    "interrupted": "run",
    "closed": "none",
}
"""What the decision does with a call in each phase."""


def next_phase(call: CallState, fact: PhaseFact) -> CallPhase | None:
    """Return the phase that a fact leads a call to, or None if the fact is illegal there."""
    return CALL_PHASES[call.phase].get(fact)


def classify_fact(
    fact: PhaseChange,
    call: CallState,
    setup: Setup | None,
) -> PhaseFact:
    """Return the column of the table that a fact about a call belongs to."""
    match fact:
        case CallJudged(verdict=Allow() | Modify()):
            return "CallJudged: allow"
        case CallJudged(verdict=Ask()):
            return "CallJudged: ask"
        case CallJudged():
            return "CallJudged: deny"
        case CallAnswered(verdict=Allow() | Modify()):
            return "CallAnswered: allow"
        case CallAnswered():
            return "CallAnswered: deny"
        case CallStarted():
            if is_repeatable(call, setup):
                return "CallStarted: repeatable"
            return "CallStarted"
        case CallFinished():
            return "CallFinished"
        case CallWaiting():
            return "CallWaiting"


def classify_resume(
    call: CallState, before: Setup | None, after: Setup | None, *, doubted: bool = False
) -> PhaseFact:
    """Return the column of the table for a driver that takes a call over, perhaps with changes.

    `doubted`: the driver does not believe what is recorded about the call.
    """
    name = call.call.name
    has_changed = after is not None and (
        before is None
        or before.gate != after.gate
        or _called_tool(before, name) != _called_tool(after, name)
    )
    # What a person allowed stays allowed.
    if not doubted and (not has_changed or call.answered):
        return "RunResumed"
    if is_repeatable(call, before):
        return "RunResumed: changed, repeatable"
    return "RunResumed: changed"


def _called_tool(setup: Setup, name: str) -> ToolSpec | None:
    """Return what a call of this name does in a setup, wherever it runs, undoable or not."""
    spec = setup.find_tool(name)
    return None if spec is None else replace(spec, undo="", isolated=False)


def is_repeatable(call: CallState, setup: Setup | None) -> bool:
    """Whether the effect of a call may happen twice. An unknown tool counts as a write."""
    spec = setup.find_tool(call.call.name) if setup else None
    return spec is not None and spec.effect != "write"


def blame_call(call: CallState, setup: Setup | None, run: RunState) -> CallState:
    """Return a call as the next driver sees it: a suspect if the last driver died while it ran."""
    if run.is_released or call.phase != "started":
        return call
    spec = setup.find_tool(call.call.name) if setup else None
    if spec is not None and spec.isolated:
        return call
    return replace(call, died_with=(*call.died_with, run.opening_seq))


def pardon_call(call: CallState) -> CallState:
    """Return a call that a person lets run one more time: it stays a suspect, and runs alone."""
    if not call.died_with:
        return call
    return replace(call, died_with=call.died_with[-1:])


def measure_progress(state: State) -> Progress:
    """Return how far a session has come."""
    closed = sum(call.phase == "closed" for call in state.step_calls)
    return Progress(state.steps, len(state.transcript), closed)


def find_fruitless(
    state: State, run: RunState, below: tuple[SessionProgress, ...] | None
) -> tuple[int, ...]:
    """Return the drivers in a row that died without progress, when the run is taken over.

    `below` says how far the sessions have come that work for the run; None if it is not known.
    """
    if below is not None and below != run.below:
        return ()
    if measure_progress(state) != run.opened_at:
        return ()
    if run.is_released or state.is_waiting or _waits_for_turn(state):
        return run.fruitless
    return (*run.fruitless, run.opening_seq)


def _waits_for_turn(state: State) -> bool:
    """Whether a suspect of the open step has to wait until no other suspect runs."""
    return any(
        call.died_with
        and (
            call.phase == "cleared"
            or (call.phase == "interrupted" and is_repeatable(call, state.setup))
        )
        for call in state.step_calls
    )


def raise_illegal_fact(fact: Fact, why: str) -> NoReturn:
    """Raise IllegalFact for a fact that cannot follow the facts before it."""
    raise IllegalFact(f"{type(fact).__name__} cannot be record {fact.seq}: {why}")
