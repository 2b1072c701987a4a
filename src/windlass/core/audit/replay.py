"""A session run again from its journal, with no model and no tools.

What the rules decide is decided anew and compared; what the world said, such as a reply, a verdict
or a cancel, is taken from the record. The law: every move and every fact has its arm here, so that
a new one does not compile until it is said what it leads to, or who says it.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_never

import msgspec

from windlass.core.audit.call_wave import Wave
from windlass.core.audit.compare import alike, clip, named, shown
from windlass.core.decide.next_move import decide
from windlass.core.decide.reserving import covers
from windlass.core.differences import Difference, OtherRules
from windlass.core.errors import IllegalFact
from windlass.core.events import (
    RULES,
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
    NoteGiven,
    Recalled,
    ReplyJudged,
    RunEnded,
    RunResumed,
    RunStarted,
    Steered,
    StepProposed,
)
from windlass.core.fold.run import apply
from windlass.core.messages import Result
from windlass.core.moves import (
    Act,
    Cleared,
    Draw,
    Finish,
    Gate,
    Hear,
    Heed,
    Hold,
    Hydrate,
    Move,
    Reason,
    Recall,
    Remind,
    Shrink,
    Summarise,
)
from windlass.core.state import State, call_of
from windlass.core.verdicts import Ask


class Replayed(msgspec.Struct, frozen=True):
    """How far a session could be run again."""

    state: State
    """After the last record that is as the rules would have it."""
    difference: Difference | None = None
    """The first one; what comes after it says nothing."""
    other_rules: OtherRules | None = None
    """Why nothing can be said of what comes after: neither that it is the same, nor otherwise."""

    @property
    def same(self) -> bool:
        return self.difference is None and self.other_rules is None


def replay(session: str, facts: Iterable[Fact]) -> Replayed:
    """Run a session again from nothing, and stop at the first difference."""
    player, state, version = _Player(session), State(session), RULES
    for fact in facts:
        if isinstance(fact, RunStarted | RunResumed):
            version = fact.rules
        would = player.otherwise(state, fact)
        if would is not None and version != RULES:
            return Replayed(state, other_rules=OtherRules(fact.seq, version))
        if would is not None:
            return Replayed(state, Difference(fact.seq, *would))
        try:
            state = apply(state, fact)
        except IllegalFact as error:
            # No rules of any version lead to a journal that cannot be read.
            told = (named(fact), f"not go on with it: {error}")
            return Replayed(state, Difference(fact.seq, *told))
    return Replayed(state)


@dataclass(slots=True)
class _Player:
    """Follows a journal; knows what is being performed, which no single fact says."""

    session: str
    judging: deque[str] = field(default_factory=deque[str])
    """Calls whose verdicts are to follow: they are all recorded together."""
    wave: Wave | None = None
    summing_upto: int | None = None
    """The message up to which the view is being summed up."""
    unsteered: State | None = None
    """The state before a person said something that is not heeded yet."""
    own: bool = False
    """An effect began under this session's name: from here on, no other name can come."""

    def otherwise(self, state: State, fact: Fact) -> tuple[str, str] | None:
        """None if the fact is what comes next; else what it is, and what the rules would do."""
        match fact:
            case RunStarted():
                self._begin_anew()
                run = state.run.number + 1 if state.run else 1
                return None if fact.run == run else (f"run {fact.run}", f"begin run {run}")
            case RunResumed():
                # Whatever the last driver was doing, the next one asks anew what to do.
                self._begin_anew()
                return None
            case CallLate() | CallAnswered() | StepProposed() | AttemptFailed():
                # The world's to say; the fold knows whether it had been asked.
                return None
            case CallJudged(_, Ask(rule="fork")) if _disowned(state, fact):
                return None
            case Steered():
                # What is being done was decided before it was said.
                self.unsteered = self.unsteered or state
                return None
            case RunEnded() if _from_outside(fact):
                return None
            case (
                RunEnded()
                | AttemptStarted()
                | CallJudged()
                | CallStarted()
                | CallFinished()
                | ReplyJudged()
                | NoteGiven()
                | Allotted()
                | Compacted()
                | Heeded()
                | Hydrated()
                | Recalled()
            ):
                would = self._decided(state, fact)
                return None if would is None else (shown(fact), would)
            case _:
                assert_never(fact)

    def _begin_anew(self) -> None:
        self.judging.clear()
        self.wave = self.summing_upto = self.unsteered = None

    def _decided(self, state: State, fact: Fact) -> str | None:
        if not state.active:
            return None  # The fold says that no run is open.
        if state.run and state.run.attempt:
            return self._summed_up(fact)
        if self.judging:
            return self._next_verdict(fact)
        if self.wave is not None and not self.wave.over:
            return self._next_of_wave(fact, self.wave)
        would = self._led_to(decide(state), fact)
        if would is not None and self.unsteered is not None:
            would = self._led_to(decide(self.unsteered), fact) and would
        self.unsteered = None
        return None if _disowned(state, fact) else would

    def _summed_up(self, fact: Fact) -> str | None:
        """Only a summary is a reply that is no step."""
        wanted, self.summing_upto = self.summing_upto, None
        match fact:
            case Compacted(upto, how="summary") if upto == wanted:
                return None
            case _:
                return "wait for the model's reply"

    def _led_to(self, move: Move, fact: Fact) -> str | None:
        """None if the move leads to the fact; else what it would lead to."""
        match move:
            case Reason():
                return None if alike(fact, _attempt(move)) else _asking(move)
            case Gate(calls):
                self.judging = deque(one.call.id for one in calls)
                return self._next_verdict(fact)
            case Act():
                self.wave = Wave.of(move)
                return self._next_of_wave(fact, self.wave)
            case Hear():
                return None if isinstance(fact, ReplyJudged) else "judge the reply"
            case Remind(text):
                told = NoteGiven(text, "same_call")
                return None if alike(fact, told) else f"tell the model: {clip(text)}"
            case Draw(budget, wanted):
                drawn = isinstance(fact, Allotted) and _drawn(fact, move)
                return None if drawn else f"draw {clip(wanted)} in all from {budget.name}"
            case Shrink(upto, note, how):
                shorter = alike(fact, Compacted(upto, note, how))
                return None if shorter else f"shorten the view before message {upto} ({how})"
            case Summarise(upto=upto):
                self.summing_upto = upto
                return None if alike(fact, _summary(move)) else f"sum up all before message {upto}"
            case Heed():
                return None if isinstance(fact, Heeded) else "heed what was said meanwhile"
            case Hydrate(calls):
                return None if alike(fact, Hydrated(calls)) else f"look up {clip(calls)}"
            case Recall():
                return None if isinstance(fact, Recalled) else "recall what is known"
            case Hold(questions):
                ids = ", ".join(call.id for call, _ in questions)
                return f"wait for an answer about {ids}"
            case Finish(outcome, reason, fault=fault):
                ended = isinstance(fact, RunEnded)
                same = ended and (outcome, reason, fault) == (fact.outcome, fact.reason, fact.fault)
                return None if same else f"end the run as {outcome} ({clip(reason)})"
            case _:
                assert_never(move)

    def _next_verdict(self, fact: Fact) -> str | None:
        call_id = self.judging.popleft()
        judged = isinstance(fact, CallJudged) and fact.call_id == call_id
        return None if judged else f"judge call {call_id}"

    def _next_of_wave(self, fact: Fact, wave: Wave) -> str | None:
        match fact:
            case CallStarted(call_id, key):
                cleared = wave.waiting.get(call_id)
                if cleared is None or not self._same_key(key, cleared) or not wave.starts(call_id):
                    return wave.would
            case CallFinished(call_id) | CallJudged(call_id):
                if not wave.settles(call_id, fact):
                    return wave.would
            case _:
                return wave.would
        return None

    def _same_key(self, key: str, cleared: Cleared) -> bool:
        """A session that began as another one holds that one's keys first, and then its own."""
        if key == cleared.key:
            self.own = self.own or key.startswith(f"{self.session}/")
            return True
        return not self.own and key.endswith(f"/{cleared.call.id}")


def _from_outside(end: RunEnded) -> bool:
    """Whether a run ended by what no rule decides: a cancel, a deadline, a journal, a bug."""
    broken = end.fault is not None and end.fault.kind in ("journal", "bug")
    return end.outcome in ("cancelled", "timed_out") or (end.outcome == "failed" and broken)


def _disowned(state: State, fact: Fact) -> bool:
    """Whether a fork says of a call that it is the old session's to make, or to know the end of."""
    match fact:
        case CallFinished(call_id, Result("unknown")) | CallJudged(
            call_id, Ask(rule="interrupted")
        ):
            call = call_of(state, call_id)
            return call is not None and call.phase == "interrupted"
        case CallJudged(call_id, Ask(rule="fork")):
            call = call_of(state, call_id)
            return call is not None and call.phase == "cleared" and call.answered
        case _:
            return False


def _drawn(fact: Allotted, move: Draw) -> bool:
    return fact.budget == move.budget.name and fact.dry is not covers(fact.amount, move.wanted)


def _attempt(move: Reason) -> AttemptStarted:
    return AttemptStarted(move.step, move.attempt, move.prompt.model, move.reserved, move.landing)


def _summary(move: Summarise) -> AttemptStarted:
    model = move.prompt.model
    return AttemptStarted(move.step, 1, model, move.reserved, purpose="compaction")


def _asking(move: Reason) -> str:
    return f"make the request {shown(_attempt(move))}"
