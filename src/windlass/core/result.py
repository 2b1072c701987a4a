"""What a run gives back, whichever way it ended."""

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Generic, TypeVar

from windlass.core.events import Outcome
from windlass.core.faults import Fault
from windlass.core.messages import Ledger, Message, ToolCall, Usage

OutputT = TypeVar("OutputT")


@dataclass(frozen=True, slots=True)
class Question:
    """A call that waits for a person's answer."""

    call: ToolCall
    arguments: dict[str, object]
    question: str
    digest: str
    expires_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult(Generic[OutputT]):
    """All that a run did, said and paid for. Nothing of it is lost when the run ends early."""

    outcome: Outcome
    reason: str
    output: OutputT | None
    text: str
    partial_text: str
    messages: tuple[Message, ...] = field(repr=False)
    """The whole session, this run included."""
    new_from: int = field(repr=False)
    ledger: Ledger = field(repr=False)
    steps: int
    model_calls: int
    duration_s: float
    session_id: str
    run: int
    error: Fault | None
    gated: bool
    """Whether a gate was set; without one, every call of a registered tool was allowed."""
    recorded: bool
    """Whether the journal confirmed the end. False only when the journal failed or hung."""
    questions: tuple[Question, ...] = ()

    @property
    def usage(self) -> Usage | None:
        return self.ledger.usage

    @property
    def cost(self) -> Decimal | None:
        """US dollars, or None when a price or the usage is unknown."""
        return self.ledger.usd

    @property
    def completed(self) -> bool:
        return self.outcome == "completed"

    def all_messages(self) -> tuple[Message, ...]:
        return self.messages

    def new_messages(self) -> tuple[Message, ...]:
        return self.messages[self.new_from :]
