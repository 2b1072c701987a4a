"""Makes legal sequences of facts: a story is told fact by fact, stamped, and folded at once."""

from decimal import Decimal
from typing import Any, Self, TypeVar

import msgspec
import pytest
from msgspec.structs import replace

from windlass.core.decide.next_move import decide
from windlass.core.decide.reserving import covers
from windlass.core.decide.summarizing import summed_up
from windlass.core.errors import IllegalFact
from windlass.core.events import (
    RULES,
    Allotted,
    AttemptFailed,
    AttemptStarted,
    CallFinished,
    CallJudged,
    CallStarted,
    Compacted,
    Fact,
    Outcome,
    Reservation,
    RunEnded,
    RunResumed,
    RunStarted,
    Steered,
    StepProposed,
    Stop,
)
from windlass.core.faults import Fault, FaultKind
from windlass.core.fold.run import apply
from windlass.core.limits import Amount, Limits
from windlass.core.messages import (
    Assistant,
    Charge,
    Effect,
    Label,
    Message,
    Result,
    Said,
    Text,
    ToolCall,
    ToolSpec,
    Usage,
)
from windlass.core.moves import Act, Cleared, Draw, Finish, Move, Reason, Shrink, Summarise
from windlass.core.setup import ModelInfo, Price, Rules, Setup
from windlass.core.state import Call, Run, State
from windlass.core.verdicts import Allow

MODEL = "test:model"
SESSION = "session"
PRICE = Price(Decimal(3), Decimal(15))
MoveT = TypeVar("MoveT", bound=Move)


def tool(name: str, effect: Effect = "read", *labels: Label) -> ToolSpec:
    return ToolSpec(name, f"{name} things", {"type": "object"}, effect, labels)


TOOLS = (tool("look"), tool("touch", "idempotent"), tool("send", "write"))


def made_for(*, limits: Limits | None = None, rules: Rules | None = None, **settings: Any) -> Setup:
    """A set-up with three tools, one of each effect."""
    model = settings.pop("model", ModelInfo(MODEL))
    tools = settings.pop("tools", TOOLS)
    return Setup(
        model=model, tools=tools, limits=limits or Limits(), rules=rules or Rules(), **settings
    )


def paid(tokens: int, output: int, usd: str | None = None, *, model: str = MODEL) -> Charge:
    money = None if usd is None else Decimal(usd)
    return Charge(model, usage=Usage(tokens, output), usd=money)


def call(call_id: str, name: str = "look", arguments: str = "{}") -> ToolCall:
    return ToolCall(call_id, name, arguments)


def value(text: str = "done") -> Result:
    return Result.say("value", text)


def fault(kind: FaultKind = "server", *, retryable: bool = True) -> Fault:
    return Fault(kind, f"a fault: {kind}", retryable)


def broken(kind: FaultKind = "server", **details: Any) -> AttemptFailed:
    """An attempt that failed in a way that may be tried again, unless told otherwise."""
    return AttemptFailed(fault(kind, retryable=details.pop("retryable", True)), **details)


class Story:
    """A session, told one fact at a time; each comes a second after the one before."""

    def __init__(self, setup: Setup | None = None, **settings: Any) -> None:
        self.setup = setup or made_for(**settings)
        self.state = State(SESSION)
        self.facts: list[Fact] = []

    def stamped(self, fact: Fact, after_s: float = 1.0) -> Fact:
        return replace(fact, seq=self.state.seq + 1, at=self.state.at + after_s)

    def tell(self, *facts: Fact, after_s: float = 1.0) -> Self:
        for fact in facts:
            placed = self.stamped(fact, after_s)
            self.state = apply(self.state, placed)
            self.facts.append(placed)
        return self

    def refuses(self, fact: Fact) -> str:
        """Check that a fact cannot follow, and that trying it changed nothing; why it cannot."""
        before = msgspec.to_builtins(tuple(self.state.transcript))
        with pytest.raises(IllegalFact) as refusal:
            apply(self.state, self.stamped(fact))
        assert msgspec.to_builtins(tuple(self.state.transcript)) == before
        return str(refusal.value)

    def asked(
        self, prompt: str = "Hello", setup: Setup | None = None, *, pinned: bool = False
    ) -> Self:
        """A run begins."""
        number = self.state.run.number + 1 if self.state.run else 1
        first = self.setup if self.state.setup is None else None
        return self.tell(
            RunStarted(number, (Text(prompt),), setup or first, pinned=pinned, rules=RULES)
        )

    def trying(
        self, reserved: Reservation | None = None, *, landing: bool = False, model: str = MODEL
    ) -> Self:
        """A request goes out."""
        run = self.run
        return self.tell(
            AttemptStarted(
                self.state.steps + 1,
                len(run.failures) + 1,
                model,
                reserved or Reservation(100, 100),
                landing,
            )
        )

    def failing(self, failure: AttemptFailed, after_s: float = 1.0) -> Self:
        return self.trying().tell(failure, after_s=after_s)

    def replied(self, *parts: Said | str, stop: Stop = "end", charge: Charge | None = None) -> Self:
        """A whole reply comes to a new request."""
        said = tuple(Text(part) if isinstance(part, str) else part for part in parts)
        return self.trying().tell(StepProposed(Assistant(said, MODEL), stop, charge))

    def called(self, *calls: ToolCall, stop: Stop = "calls") -> Self:
        return self.replied(*calls, stop=stop)

    def allowed(self, *call_ids: str) -> Self:
        return self.tell(*(CallJudged(call_id, Allow()) for call_id in call_ids))

    def began(self, *call_ids: str) -> Self:
        return self.tell(*(CallStarted(call_id, f"{SESSION}/{call_id}") for call_id in call_ids))

    def finished(self, *call_ids: str, text: str = "done") -> Self:
        return self.tell(*(CallFinished(call_id, value(text)) for call_id in call_ids))

    def did(self, *calls: ToolCall, text: str = "done") -> Self:
        """A whole step: called, allowed, run."""
        ids = [one.id for one in calls]
        return self.called(*calls).allowed(*ids).began(*ids).finished(*ids, text=text)

    def said(self, text: str) -> Self:
        """A person says something meanwhile."""
        return self.tell(Steered((Text(text),), by="ann"))

    def shrunk(self) -> Self:
        """The view is made shorter as decided."""
        move = self.go(Shrink)
        return self.tell(Compacted(move.upto, move.note, move.how))

    def summing_up(self) -> int:
        """A summary is asked for as decided; up to which message."""
        move = self.go(Summarise)
        purpose = "compaction"
        self.tell(AttemptStarted(move.step, 1, move.prompt.model, move.reserved, purpose=purpose))
        return move.upto

    def summed_up(self, text: str = "Goals: none.", charge: Charge | None = None) -> Self:
        """A summary is asked for as decided, and comes."""
        return self.tell(Compacted(self.summing_up(), summed_up(text), "summary", charge))

    def drew(self, amount: Amount | None = None) -> Self:
        """A budget gives what is wanted of it, or another amount."""
        budget, wanted = (move := self.go(Draw)).budget, move.wanted
        given = wanted if amount is None else amount
        return self.tell(Allotted(budget.name, given, dry=not covers(given, wanted)))

    def resumed(self, after_s: float = 1.0) -> Self:
        return self.tell(RunResumed(rules=RULES), after_s=after_s)

    def ended(self, outcome: Outcome = "cancelled", **details: Any) -> Self:
        return self.tell(RunEnded(outcome, **details))

    def go(self, kind: type[MoveT]) -> MoveT:
        """The next move, which must be of this kind."""
        move = decide(self.state)
        assert isinstance(move, kind), move
        return move

    @property
    def wave(self) -> list[str]:
        """The ids of the calls that run next."""
        return [cleared.call.id for cleared in self.go(Act).calls]

    @property
    def cleared(self) -> Cleared:
        """The one call that runs next."""
        (cleared,) = self.go(Act).calls
        return cleared

    @property
    def outcome(self) -> Outcome:
        return self.go(Finish).outcome

    @property
    def shown(self) -> list[Message]:
        """What the model is shown next."""
        return list(self.go(Reason).prompt.messages)

    @property
    def run(self) -> Run:
        assert self.state.run is not None
        return self.state.run

    def phase(self, call_id: str) -> str:
        return self.open_call(call_id).phase

    def open_call(self, call_id: str) -> Call:
        assert self.state.step is not None
        (found,) = (one for one in self.state.step.calls if one.id == call_id)
        return found
