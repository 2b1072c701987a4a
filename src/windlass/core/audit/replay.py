"""Run a session again from its journal, with no model and no tools.

What the rules decide is decided again and compared. What the world said, such as a reply or an
answer, is taken from the record: those facts are marked `from_outside`. Invariant: every move has
its arm here, so that a new move does not type-check until its facts are named.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_never

import msgspec

from windlass.core.audit.call_wave import CallWave
from windlass.core.audit.differences import (
    OtherRules,
    ReplayDifference,
    clip_value,
    format_fact,
    same_fact,
)
from windlass.core.decide.next_move import decide
from windlass.core.decide.reserving import covers_amount
from windlass.core.errors import IllegalFact
from windlass.core.events import (
    RULES_VERSION,
    AttemptStarted,
    BudgetAllotted,
    BudgetAwaited,
    BudgetWaitEnded,
    CallFinished,
    CallJudged,
    CallStarted,
    ContextCompacted,
    Fact,
    KnowledgeRecalled,
    LimitsRaised,
    LookupsPlanned,
    NoteGiven,
    ReplyJudged,
    RunContinued,
    RunEnded,
    RunPaused,
    RunQueued,
    RunReleased,
    RunResumed,
    RunStarted,
    SessionImported,
    SteeringGiven,
    SteeringTaken,
)
from windlass.core.fold.run import apply_fact
from windlass.core.messages import ToolResult
from windlass.core.moves import (
    AwaitBudget,
    ClearedCall,
    Compact,
    DrawBudget,
    EndRun,
    JudgeCalls,
    JudgeReply,
    LookUp,
    Move,
    PauseRun,
    RecallKnowledge,
    RemindModel,
    RequestReply,
    RunCalls,
    StayPaused,
    StayWaiting,
    Summarize,
    TakeSteering,
    WaitForAnswers,
)
from windlass.core.state import State, find_call
from windlass.core.verdicts import Ask


class ReplayResult(msgspec.Struct, frozen=True):
    """How far a session could be run again."""

    state: State
    """After the last record that the rules would have written as well."""
    difference: ReplayDifference | None = None
    """The first one. Records after it are not compared."""
    other_rules: OtherRules | None = None
    """Set if other rules made the rest of the session, so that it cannot be compared."""

    @property
    def is_same(self) -> bool:
        """Whether the rules lead to exactly these records."""
        return self.difference is None and self.other_rules is None


def replay(session: str, facts: Iterable[Fact]) -> ReplayResult:
    """Run a session again from nothing, and stop at the first difference."""
    replayer = _Replayer(session)
    state = State(session)
    version = RULES_VERSION
    for fact in facts:
        if isinstance(fact, RunStarted | RunResumed):
            version = fact.rules
        difference = replayer.find_difference(state, fact)
        if difference is not None and version != RULES_VERSION:
            return ReplayResult(state, other_rules=OtherRules(fact.seq, version))
        if difference is not None:
            return ReplayResult(state, difference)
        try:
            state = apply_fact(state, fact)
        except IllegalFact as error:
            # No version of the rules leads to a journal that cannot be folded.
            rules = f"not go on with it: {error}"
            return ReplayResult(state, ReplayDifference(fact.seq, type(fact).__name__, rules))
    return ReplayResult(state)


@dataclass(slots=True)
class _Replayer:
    """Follows a journal. It knows which move is being performed; no single fact says so."""

    session: str
    awaiting_verdicts: deque[str] = field(default_factory=deque[str])
    """Calls whose verdicts follow next: they are all recorded together."""
    wave: CallWave | None = None
    summary_upto: int | None = None
    """The message up to which the view is being summarized."""
    state_before_steering: State | None = None
    """The state before a person gave steering that has not been taken yet."""
    has_own_keys: bool = False
    """An effect started under this session's own name, so no other name may follow."""

    def find_difference(self, state: State, fact: Fact) -> ReplayDifference | None:
        """Return None if the fact is what comes next, else what the rules would do instead."""
        match fact:
            case RunStarted() | RunQueued():
                self._reset()
                number = state.run.number + (not state.is_queued) if state.run else 1
                if fact.run == number:
                    return None
                return ReplayDifference(fact.seq, f"run {fact.run}", f"begin run {number}")
            case RunResumed() | SessionImported() | RunReleased():
                # The next driver asks for a move, whatever the last one was doing.
                self._reset()
                return None
            case SteeringGiven() | LimitsRaised() | RunContinued() | BudgetWaitEnded():
                # The current move was decided before this was said.
                self.state_before_steering = self.state_before_steering or state
                return None
            case RunPaused(cause=cause, by=by) if cause == "asked" or by:
                # A caller paused it, or the sub-agent of a call did.
                self.state_before_steering = self.state_before_steering or state
                return None
            case CallJudged(_, Ask(rule="fork")) if _is_disowned_by_fork(state, fact):
                return None
            case RunEnded() if _is_external_end(fact):
                return None
            case _ if fact.from_outside:
                # The fold knows whether anyone had asked for it.
                return None
            case _:
                rules = self._check_decision(state, fact)
                if rules is None:
                    return None
                return ReplayDifference(fact.seq, format_fact(fact), rules)

    def _reset(self) -> None:
        self.awaiting_verdicts.clear()
        self.wave = None
        self.summary_upto = None
        self.state_before_steering = None

    def _check_decision(self, state: State, fact: Fact) -> str | None:
        """Return what the rules would do instead of this fact; None if it is theirs."""
        if not state.is_active:
            return None  # The fold says that no run is open.
        if state.run and state.run.attempt:
            upto = self.summary_upto
            self.summary_upto = None
            if isinstance(fact, ContextCompacted) and fact.how == "summary" and fact.upto == upto:
                return None
            return "wait for the model's reply"
        if self.awaiting_verdicts:
            return self._check_next_verdict(fact)
        if self.wave is not None and not self.wave.is_over:
            return self._check_wave(fact, self.wave)
        rules = self._check_move(state, fact)
        if rules is not None and self.state_before_steering is not None:
            # The move may have been decided before the steering was recorded.
            rules = self._check_move(self.state_before_steering, fact) and rules
        self.state_before_steering = None
        if _is_disowned_by_fork(state, fact):
            return None
        return rules

    def _check_move(self, state: State, fact: Fact) -> str | None:
        """Return None if the next move in a state leads to the fact, else what it would lead to."""
        move = decide(state)
        match move:
            case JudgeCalls(calls):
                self.awaiting_verdicts = deque(proposed.call.id for proposed in calls)
                return self._check_next_verdict(fact)
            case RunCalls():
                self.wave = CallWave.from_move(move, state.step_calls)
                return self._check_wave(fact, self.wave)
            case Summarize(upto=upto):
                self.summary_upto = upto
            case _:
                pass
        if _leads_to(move, fact):
            return None
        return _describe_move(move)

    def _check_next_verdict(self, fact: Fact) -> str | None:
        call_id = self.awaiting_verdicts.popleft()
        if isinstance(fact, CallJudged) and fact.call_id == call_id:
            return None
        return f"judge call {call_id}"

    def _check_wave(self, fact: Fact, wave: CallWave) -> str | None:
        match fact:
            case CallStarted(call_id, key):
                cleared = wave.waiting.get(call_id)
                fits = (
                    cleared is not None
                    and self._accepts_key(key, cleared)
                    and wave.try_start(call_id)
                )
            case CallFinished(call_id) | CallJudged(call_id):
                fits = wave.try_settle(call_id, fact)
            case _:
                fits = False
        return None if fits else wave.next_actions

    def _accepts_key(self, key: str, cleared: ClearedCall) -> bool:
        """A fork holds the keys of the session it began as first, and then its own."""
        if key == cleared.key:
            self.has_own_keys = self.has_own_keys or key.startswith(f"{self.session}/")
            return True
        return not self.has_own_keys and key.endswith(f"/{cleared.call.id}")


def _leads_to(move: Move, fact: Fact) -> bool:  # noqa: C901 - an arm per move
    """Whether a move that records one fact records this one."""
    match move:
        case RequestReply():
            return same_fact(fact, _expected_attempt(move))
        case Summarize():
            return same_fact(fact, _expected_summary_attempt(move))
        case JudgeReply():
            return isinstance(fact, ReplyJudged)
        case RemindModel(text, why):
            return same_fact(fact, NoteGiven(text, why))
        case AwaitBudget(budget, held, wait_s):
            return same_fact(fact, BudgetAwaited(budget, held, wait_s))
        case DrawBudget():
            return isinstance(fact, BudgetAllotted) and _matches_draw(fact, move)
        case Compact(upto, note, how):
            return same_fact(fact, ContextCompacted(upto, note, how))
        case TakeSteering():
            return isinstance(fact, SteeringTaken)
        case LookUp(calls):
            return same_fact(fact, LookupsPlanned(calls))
        case RecallKnowledge():
            return isinstance(fact, KnowledgeRecalled)
        case EndRun(outcome, reason, fault=fault):
            end = (outcome, reason, fault)
            return isinstance(fact, RunEnded) and end == (fact.outcome, fact.reason, fact.fault)
        case PauseRun(reason, needed, cause=cause):
            return same_fact(fact, RunPaused(reason, cause=cause, needed=needed))
        case WaitForAnswers() | StayWaiting() | StayPaused() | JudgeCalls() | RunCalls():
            return False
        case _:
            assert_never(move)


def _describe_move(move: Move) -> str:  # noqa: C901 - an arm per move
    """Return what a move would do, in words that follow "the rules would"."""
    match move:
        case RequestReply():
            return f"make the request {format_fact(_expected_attempt(move))}"
        case Summarize(upto=upto):
            return f"summarize all before message {upto}"
        case JudgeReply():
            return "judge the reply"
        case RemindModel(text):
            return f"tell the model: {clip_value(text)}"
        case AwaitBudget(budget):
            return f"wait for the budget {clip_value(budget)}"
        case StayWaiting(wait):
            return f"wait until others give back some of {clip_value(wait.budget)}"
        case DrawBudget(budget, total):
            return f"draw {clip_value(total)} in all from {budget.name}"
        case Compact(upto, _, how):
            return f"shorten the view before message {upto} ({how})"
        case TakeSteering():
            return "take the steering into the conversation"
        case LookUp(calls):
            return f"look up {clip_value(calls)}"
        case RecallKnowledge():
            return "recall what is known"
        case WaitForAnswers(questions):
            return f"wait for an answer about {', '.join(call.id for call, _ in questions)}"
        case PauseRun(reason):
            return f"pause the run ({clip_value(reason)})"
        case StayPaused():
            return "wait until somebody continues the run"
        case EndRun(outcome, reason):
            return f"end the run as {outcome} ({clip_value(reason)})"
        case JudgeCalls(calls):
            return f"judge call {calls[0].call.id}"
        case RunCalls(calls):
            return f"start {calls[0].key}"
        case _:
            assert_never(move)


def _is_external_end(end: RunEnded) -> bool:
    """Whether a run ended by something no rule decides: a cancel, a deadline, a journal, a bug."""
    if end.outcome == "failed":
        return end.fault is not None and end.fault.kind in ("journal", "bug")
    return end.outcome in ("cancelled", "timed_out")


def _is_disowned_by_fork(state: State, fact: Fact) -> bool:
    """Whether a fork leaves a call to the session that it was forked from.

    The old session alone may run the call, or knows how it ended; so a fork asks about it, or
    records its result as unknown.
    """
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
    is_covered = covers_amount(fact.amount, move.total_wanted)
    return fact.budget == move.budget.name and fact.dry is not is_covered


def _expected_attempt(move: RequestReply) -> AttemptStarted:
    return AttemptStarted(move.step, move.attempt, move.prompt.model, move.reserved, move.landing)


def _expected_summary_attempt(move: Summarize) -> AttemptStarted:
    model = move.prompt.model
    return AttemptStarted(move.step, 1, model, move.reserved, purpose="compaction")
