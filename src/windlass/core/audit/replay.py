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

from windlass.core.audit.call_wave import CallWave
from windlass.core.audit.compare import clip_value, fact_name, format_fact, same_fact
from windlass.core.decide.next_move import decide
from windlass.core.decide.reserving import covers_amount
from windlass.core.differences import OtherRules, ReplayDifference
from windlass.core.errors import IllegalFact
from windlass.core.events import (
    RULES,
    AttemptFailed,
    AttemptStarted,
    BudgetAllotted,
    CallAnswered,
    CallFinished,
    CallJudged,
    CallLate,
    CallStarted,
    ContextCompacted,
    Fact,
    KnowledgeRecalled,
    LookupsPlanned,
    NoteGiven,
    ReplyJudged,
    RunEnded,
    RunResumed,
    RunStarted,
    SteeringGiven,
    SteeringTaken,
    StepProposed,
)
from windlass.core.fold.run import apply_fact
from windlass.core.messages import ToolResult
from windlass.core.moves import (
    ClearedCall,
    Compact,
    DrawBudget,
    EndRun,
    JudgeCalls,
    JudgeReply,
    LookUp,
    Move,
    RecallKnowledge,
    RemindModel,
    RequestReply,
    RunCalls,
    Summarize,
    TakeSteering,
    WaitForAnswers,
)
from windlass.core.state import State, find_call
from windlass.core.verdicts import Ask


class ReplayResult(msgspec.Struct, frozen=True):
    """How far a session could be run again."""

    state: State
    """After the last record that is as the rules would have it."""
    difference: ReplayDifference | None = None
    """The first one; what comes after it says nothing."""
    other_rules: OtherRules | None = None
    """Why nothing can be said of what comes after: neither that it is the same, nor otherwise."""

    @property
    def is_same(self) -> bool:
        return self.difference is None and self.other_rules is None


def replay(session: str, facts: Iterable[Fact]) -> ReplayResult:
    """Run a session again from nothing, and stop at the first difference."""
    player, state, version = _Replayer(session), State(session), RULES
    for fact in facts:
        if isinstance(fact, RunStarted | RunResumed):
            version = fact.rules
        would = player.find_difference(state, fact)
        if would is not None and version != RULES:
            return ReplayResult(state, other_rules=OtherRules(fact.seq, version))
        if would is not None:
            return ReplayResult(state, ReplayDifference(fact.seq, *would))
        try:
            state = apply_fact(state, fact)
        except IllegalFact as error:
            # No rules of any version lead to a journal that cannot be read.
            told = (fact_name(fact), f"not go on with it: {error}")
            return ReplayResult(state, ReplayDifference(fact.seq, *told))
    return ReplayResult(state)


@dataclass(slots=True)
class _Replayer:
    """Follows a journal; knows what is being performed, which no single fact says."""

    session: str
    awaiting_verdicts: deque[str] = field(default_factory=deque[str])
    """Calls whose verdicts are to follow: they are all recorded together."""
    wave: CallWave | None = None
    summary_upto: int | None = None
    """The message up to which the view is being summed up."""
    state_before_steering: State | None = None
    """The state before a person said something that is not heeded yet."""
    has_own_keys: bool = False
    """An effect began under this session's name: from here on, no other name can come."""

    def find_difference(self, state: State, fact: Fact) -> tuple[str, str] | None:
        """None if the fact is what comes next; else what it is, and what the rules would do."""
        match fact:
            case RunStarted():
                self._reset()
                run = state.run.number + 1 if state.run else 1
                return None if fact.run == run else (f"run {fact.run}", f"begin run {run}")
            case RunResumed():
                # Whatever the last driver was doing, the next one asks anew what to do.
                self._reset()
                return None
            case CallLate() | CallAnswered() | StepProposed() | AttemptFailed():
                # The world's to say; the fold knows whether it had been asked.
                return None
            case CallJudged(_, Ask(rule="fork")) if _is_disowned_by_fork(state, fact):
                return None
            case SteeringGiven():
                # What is being done was decided before it was said.
                self.state_before_steering = self.state_before_steering or state
                return None
            case RunEnded() if _is_external_end(fact):
                return None
            case (
                RunEnded()
                | AttemptStarted()
                | CallJudged()
                | CallStarted()
                | CallFinished()
                | ReplyJudged()
                | NoteGiven()
                | BudgetAllotted()
                | ContextCompacted()
                | SteeringTaken()
                | LookupsPlanned()
                | KnowledgeRecalled()
            ):
                would = self._check_decision(state, fact)
                return None if would is None else (format_fact(fact), would)
            case _:
                assert_never(fact)

    def _reset(self) -> None:
        self.awaiting_verdicts.clear()
        self.wave = self.summary_upto = self.state_before_steering = None

    def _check_decision(self, state: State, fact: Fact) -> str | None:
        if not state.is_active:
            return None  # The fold says that no run is open.
        if state.run and state.run.attempt:
            return self._check_summary(fact)
        if self.awaiting_verdicts:
            return self._check_next_verdict(fact)
        if self.wave is not None and not self.wave.is_over:
            return self._check_wave(fact, self.wave)
        would = self._check_move(decide(state), fact)
        if would is not None and self.state_before_steering is not None:
            would = self._check_move(decide(self.state_before_steering), fact) and would
        self.state_before_steering = None
        return None if _is_disowned_by_fork(state, fact) else would

    def _check_summary(self, fact: Fact) -> str | None:
        """Only a summary is a reply that is no step."""
        wanted, self.summary_upto = self.summary_upto, None
        match fact:
            case ContextCompacted(upto, how="summary") if upto == wanted:
                return None
            case _:
                return "wait for the model's reply"

    def _check_move(self, move: Move, fact: Fact) -> str | None:
        """None if the move leads to the fact; else what it would lead to."""
        match move:
            case RequestReply():
                return None if same_fact(fact, _expected_attempt(move)) else _describe_request(move)
            case JudgeCalls(calls):
                self.awaiting_verdicts = deque(one.call.id for one in calls)
                return self._check_next_verdict(fact)
            case RunCalls():
                self.wave = CallWave.from_move(move)
                return self._check_wave(fact, self.wave)
            case JudgeReply():
                return None if isinstance(fact, ReplyJudged) else "judge the reply"
            case RemindModel(text):
                told = NoteGiven(text, "same_call")
                return None if same_fact(fact, told) else f"tell the model: {clip_value(text)}"
            case DrawBudget(budget, wanted):
                drawn = isinstance(fact, BudgetAllotted) and _matches_draw(fact, move)
                return None if drawn else f"draw {clip_value(wanted)} in all from {budget.name}"
            case Compact(upto, note, how):
                shorter = same_fact(fact, ContextCompacted(upto, note, how))
                return None if shorter else f"shorten the view before message {upto} ({how})"
            case Summarize(upto=upto):
                self.summary_upto = upto
                return (
                    None
                    if same_fact(fact, _expected_summary_attempt(move))
                    else f"sum up all before message {upto}"
                )
            case TakeSteering():
                return None if isinstance(fact, SteeringTaken) else "heed what was said meanwhile"
            case LookUp(calls):
                return (
                    None
                    if same_fact(fact, LookupsPlanned(calls))
                    else f"look up {clip_value(calls)}"
                )
            case RecallKnowledge():
                return None if isinstance(fact, KnowledgeRecalled) else "recall what is known"
            case WaitForAnswers(questions):
                ids = ", ".join(call.id for call, _ in questions)
                return f"wait for an answer about {ids}"
            case EndRun(outcome, reason, fault=fault):
                ended = isinstance(fact, RunEnded)
                same = ended and (outcome, reason, fault) == (fact.outcome, fact.reason, fact.fault)
                return None if same else f"end the run as {outcome} ({clip_value(reason)})"
            case _:
                assert_never(move)

    def _check_next_verdict(self, fact: Fact) -> str | None:
        call_id = self.awaiting_verdicts.popleft()
        judged = isinstance(fact, CallJudged) and fact.call_id == call_id
        return None if judged else f"judge call {call_id}"

    def _check_wave(self, fact: Fact, wave: CallWave) -> str | None:
        match fact:
            case CallStarted(call_id, key):
                cleared = wave.waiting.get(call_id)
                if (
                    cleared is None
                    or not self._accepts_key(key, cleared)
                    or not wave.try_start(call_id)
                ):
                    return wave.next_actions
            case CallFinished(call_id) | CallJudged(call_id):
                if not wave.try_settle(call_id, fact):
                    return wave.next_actions
            case _:
                return wave.next_actions
        return None

    def _accepts_key(self, key: str, cleared: ClearedCall) -> bool:
        """A session that began as another one holds that one's keys first, and then its own."""
        if key == cleared.key:
            self.has_own_keys = self.has_own_keys or key.startswith(f"{self.session}/")
            return True
        return not self.has_own_keys and key.endswith(f"/{cleared.call.id}")


def _is_external_end(end: RunEnded) -> bool:
    """Whether a run ended by what no rule decides: a cancel, a deadline, a journal, a bug."""
    broken = end.fault is not None and end.fault.kind in ("journal", "bug")
    return end.outcome in ("cancelled", "timed_out") or (end.outcome == "failed" and broken)


def _is_disowned_by_fork(state: State, fact: Fact) -> bool:
    """Whether a fork says of a call that it is the old session's to make, or to know the end of."""
    match fact:
        case CallFinished(call_id, ToolResult("unknown")) | CallJudged(
            call_id, Ask(rule="interrupted")
        ):
            call = find_call(state, call_id)
            return call is not None and call.phase == "interrupted"
        case CallJudged(call_id, Ask(rule="fork")):
            call = find_call(state, call_id)
            return call is not None and call.phase == "cleared" and call.answered
        case _:
            return False


def _matches_draw(fact: BudgetAllotted, move: DrawBudget) -> bool:
    return fact.budget == move.budget.name and fact.dry is not covers_amount(
        fact.amount, move.total_wanted
    )


def _expected_attempt(move: RequestReply) -> AttemptStarted:
    return AttemptStarted(move.step, move.attempt, move.prompt.model, move.reserved, move.landing)


def _expected_summary_attempt(move: Summarize) -> AttemptStarted:
    model = move.prompt.model
    return AttemptStarted(move.step, 1, model, move.reserved, purpose="compaction")


def _describe_request(move: RequestReply) -> str:
    return f"make the request {format_fact(_expected_attempt(move))}"
