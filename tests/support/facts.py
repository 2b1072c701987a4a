"""Builds legal sequences of facts: each fact of a story is stamped and folded at once."""

from decimal import Decimal
from typing import Any, Self, TypeVar

import msgspec
import pytest
from msgspec.structs import replace

from windlass.core.decide.compacting import format_summary
from windlass.core.decide.next_move import decide
from windlass.core.decide.reserving import covers_amount
from windlass.core.errors import Fault, FaultKind, IllegalFact
from windlass.core.events import (
    RULES_VERSION,
    AttemptFailed,
    AttemptStarted,
    BudgetAllotted,
    CallFinished,
    CallJudged,
    CallStarted,
    ContextCompacted,
    Fact,
    Outcome,
    Reservation,
    RunEnded,
    RunResumed,
    RunStarted,
    SteeringGiven,
    StepProposed,
    StopReason,
)
from windlass.core.fold.run import apply_fact
from windlass.core.limits import Amount, Limits
from windlass.core.messages import (
    AssistantMessage,
    Charge,
    Effect,
    Label,
    Message,
    ReplyPart,
    TextPart,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
)
from windlass.core.moves import (
    ClearedCall,
    Compact,
    DrawBudget,
    EndRun,
    Move,
    RequestReply,
    RunCalls,
    Summarize,
)
from windlass.core.setup import LoopPolicy, ModelInfo, Price, Setup
from windlass.core.state import CallState, RunState, State
from windlass.core.verdicts import Allow

MODEL = "test:model"
SESSION = "session"
PRICE = Price(Decimal(3), Decimal(15))
MoveT = TypeVar("MoveT", bound=Move)


def make_spec(name: str, effect: Effect = "read", *labels: Label) -> ToolSpec:
    return ToolSpec(name, f"{name} things", {"type": "object"}, effect, labels)


TOOLS = (make_spec("look"), make_spec("touch", "idempotent"), make_spec("send", "write"))


def make_setup(
    *, limits: Limits | None = None, rules: LoopPolicy | None = None, **settings: Any
) -> Setup:
    """Return a setup with three tools, one of each effect."""
    model = settings.pop("model", ModelInfo(MODEL))
    tools = settings.pop("tools", TOOLS)
    return Setup(
        model=model, tools=tools, limits=limits or Limits(), rules=rules or LoopPolicy(), **settings
    )


def make_charge(tokens: int, output: int, usd: str | None = None, *, model: str = MODEL) -> Charge:
    money = None if usd is None else Decimal(usd)
    return Charge(model, usage=Usage(tokens, output), usd=money)


def make_call(call_id: str, name: str = "look", arguments: str = "{}") -> ToolCall:
    return ToolCall(call_id, name, arguments)


def value_result(text: str = "done") -> ToolResult:
    return ToolResult.from_text("value", text)


def make_fault(kind: FaultKind = "server", *, retryable: bool = True) -> Fault:
    return Fault(kind, f"a fault: {kind}", retryable)


def failed_attempt(kind: FaultKind = "server", **details: Any) -> AttemptFailed:
    """Return a failed attempt that may be tried again, unless the details say otherwise."""
    return AttemptFailed(make_fault(kind, retryable=details.pop("retryable", True)), **details)


class Story:
    """A session that grows fact by fact, each a second after the one before."""

    def __init__(self, setup: Setup | None = None, **settings: Any) -> None:
        self.setup = setup or make_setup(**settings)
        self.state = State(SESSION)
        self.facts: list[Fact] = []

    def stamp_fact(self, fact: Fact, after_s: float = 1.0) -> Fact:
        return replace(fact, seq=self.state.seq + 1, at=self.state.at + after_s)

    def add(self, *facts: Fact, after_s: float = 1.0) -> Self:
        for fact in facts:
            placed = self.stamp_fact(fact, after_s)
            self.state = apply_fact(self.state, placed)
            self.facts.append(placed)
        return self

    def check_refused(self, fact: Fact) -> str:
        """Check that a fact is illegal here, and that trying it changed nothing. Returns why."""
        before = msgspec.to_builtins(tuple(self.state.transcript))
        with pytest.raises(IllegalFact) as refusal:
            apply_fact(self.state, self.stamp_fact(fact))
        assert msgspec.to_builtins(tuple(self.state.transcript)) == before
        return str(refusal.value)

    def start_run(
        self, prompt: str = "Hello", setup: Setup | None = None, *, pinned: bool = False
    ) -> Self:
        """Start a run."""
        number = self.state.run.number + 1 if self.state.run else 1
        first = self.setup if self.state.setup is None else None
        return self.add(
            RunStarted(
                number, (TextPart(prompt),), setup or first, pinned=pinned, rules=RULES_VERSION
            )
        )

    def start_attempt(
        self, reserved: Reservation | None = None, *, landing: bool = False, model: str = MODEL
    ) -> Self:
        """Start an attempt."""
        run = self.run
        return self.add(
            AttemptStarted(
                self.state.steps + 1,
                len(run.failures) + 1,
                model,
                reserved or Reservation(100, 100),
                landing,
            )
        )

    def fail_attempt(self, failure: AttemptFailed, after_s: float = 1.0) -> Self:
        return self.start_attempt().add(failure, after_s=after_s)

    def take_reply(
        self, *parts: ReplyPart | str, stop: StopReason = "end", charge: Charge | None = None
    ) -> Self:
        """Start an attempt, and add its whole reply."""
        said = tuple(TextPart(part) if isinstance(part, str) else part for part in parts)
        return self.start_attempt().add(StepProposed(AssistantMessage(said, MODEL), stop, charge))

    def take_calls(self, *calls: ToolCall, stop: StopReason = "calls") -> Self:
        return self.take_reply(*calls, stop=stop)

    def allow_calls(self, *call_ids: str) -> Self:
        return self.add(*(CallJudged(call_id, Allow()) for call_id in call_ids))

    def start_calls(self, *call_ids: str) -> Self:
        return self.add(*(CallStarted(call_id, f"{SESSION}/{call_id}") for call_id in call_ids))

    def finish_calls(self, *call_ids: str, text: str = "done") -> Self:
        return self.add(*(CallFinished(call_id, value_result(text)) for call_id in call_ids))

    def do_step(self, *calls: ToolCall, text: str = "done") -> Self:
        """Add a whole step: its calls are proposed, allowed, started and finished."""
        ids = [one.id for one in calls]
        return (
            self.take_calls(*calls)
            .allow_calls(*ids)
            .start_calls(*ids)
            .finish_calls(*ids, text=text)
        )

    def steer(self, text: str) -> Self:
        """Add a message of a person to the running agent."""
        return self.add(SteeringGiven((TextPart(text),), by="ann"))

    def compact(self) -> Self:
        """Compact the view as decided."""
        move = self.expect_move(Compact)
        return self.add(ContextCompacted(move.upto, move.note, move.how))

    def start_summary(self) -> int:
        """Start a summary as decided. Returns up to which message it goes."""
        move = self.expect_move(Summarize)
        purpose = "compaction"
        self.add(AttemptStarted(move.step, 1, move.prompt.model, move.reserved, purpose=purpose))
        return move.upto

    def take_summary(self, text: str = "Goals: none.", charge: Charge | None = None) -> Self:
        """Start a summary as decided, and add it."""
        return self.add(
            ContextCompacted(self.start_summary(), format_summary(text), "summary", charge)
        )

    def draw_budget(self, amount: Amount | None = None) -> Self:
        """Let a budget grant what the run wants, or another amount."""
        budget, wanted = (move := self.expect_move(DrawBudget)).budget, move.total_wanted
        given = wanted if amount is None else amount
        return self.add(BudgetAllotted(budget.name, given, dry=not covers_amount(given, wanted)))

    def resume(self, after_s: float = 1.0) -> Self:
        return self.add(RunResumed(rules=RULES_VERSION), after_s=after_s)

    def end_run(self, outcome: Outcome = "cancelled", **details: Any) -> Self:
        return self.add(RunEnded(outcome, **details))

    def expect_move(self, kind: type[MoveT]) -> MoveT:
        """Return the next move, which must be of this kind."""
        move = decide(self.state)
        assert isinstance(move, kind), move
        return move

    @property
    def next_call_ids(self) -> list[str]:
        """The ids of the calls that run next."""
        return [cleared.call.id for cleared in self.expect_move(RunCalls).calls]

    @property
    def next_call(self) -> ClearedCall:
        """The one call that runs next."""
        (cleared,) = self.expect_move(RunCalls).calls
        return cleared

    @property
    def outcome(self) -> Outcome:
        return self.expect_move(EndRun).outcome

    @property
    def shown_messages(self) -> list[Message]:
        """The messages of the next request."""
        return list(self.expect_move(RequestReply).prompt.messages)

    @property
    def run(self) -> RunState:
        assert self.state.run is not None
        return self.state.run

    def call_phase(self, call_id: str) -> str:
        return self.open_call(call_id).phase

    def open_call(self, call_id: str) -> CallState:
        assert self.state.step is not None
        (found,) = (one for one in self.state.step.calls if one.id == call_id)
        return found
