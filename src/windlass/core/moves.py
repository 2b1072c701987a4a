"""The moves: what the loop can be told to do.

They are sealed: only `decide` can make one, and only from what the journal says, so that a call
which nobody judged cannot be dispatched.
"""

from dataclasses import InitVar, dataclass
from typing import Any, final

from windlass.core.context import CompactionMethod
from windlass.core.events import AttemptFailed, Outcome, Reservation
from windlass.core.faults import Fault
from windlass.core.limits import Amount, Budget
from windlass.core.messages import AssistantMessage, ToolCall, ToolSpec
from windlass.core.state import CallState
from windlass.core.verdicts import Ask
from windlass.core.view import Prompt


class _MoveSeal:
    """Proof that `decide` made a value."""


_SEAL = _MoveSeal()


@final
@dataclass(frozen=True, slots=True)
class RequestReply:
    """Ask the model once."""

    prompt: Prompt
    reserved: Reservation
    step: int
    """Of the session, so that call ids made from it are unique there."""
    attempt: int
    wait_s: float
    landing: bool
    last_failure: AttemptFailed | None
    """The attempt before, which failed."""
    failed_attempts: int
    """Its number."""
    fell_back_from: str
    """The model whose attempts are spent, if this is the first one at another."""
    seal: InitVar[_MoveSeal]

    @property
    def must_discard(self) -> bool:
        """Watchers saw text of the attempt before; they are told that it does not count."""
        return self.last_failure is not None and self.last_failure.visible


@final
@dataclass(frozen=True, slots=True)
class ProposedCall:
    """A call that the model made and nobody has judged."""

    call: ToolCall
    spec: ToolSpec | None
    maybe_cut_off: bool
    """The reply ended by length, so that the arguments may not be whole."""
    seal: InitVar[_MoveSeal]


@final
@dataclass(frozen=True, slots=True)
class JudgeCalls:
    """Judge these calls."""

    calls: tuple[ProposedCall, ...]
    tools: tuple[ToolSpec, ...]
    seal: InitVar[_MoveSeal]


@final
@dataclass(frozen=True, slots=True)
class ClearedCall:
    """A call that the journal says may run."""

    call: ToolCall
    arguments: dict[str, Any]
    spec: ToolSpec
    key: str
    """Names this effect: the same each time this call is tried, and no other call's."""
    interrupted: bool
    """It had started when a driver died, so that its effect may have happened already."""
    spending_left: Amount
    """What it may spend on models of its own."""
    seal: InitVar[_MoveSeal]

    @property
    def repeatable(self) -> bool:
        return self.spec.effect != "write"


@final
@dataclass(frozen=True, slots=True)
class RunCalls:
    """Run these calls together."""

    calls: tuple[ClearedCall, ...]
    at_once_max: int
    ask_if_unknown: bool
    timeout_s: float | None
    """How long each may take beside its tool's own limit."""
    seal: InitVar[_MoveSeal]


@final
@dataclass(frozen=True, slots=True)
class JudgeReply:
    """Judge a final reply."""

    reply: AssistantMessage
    check_output: bool
    """It came to its end by itself, so that it must fit the output type too."""
    seal: InitVar[_MoveSeal]


@final
@dataclass(frozen=True, slots=True)
class RemindModel:
    """Tell the model that it goes round in circles."""

    text: str
    seal: InitVar[_MoveSeal]


@final
@dataclass(frozen=True, slots=True)
class DrawBudget:
    """Ask a shared budget to let this run spend so much in all."""

    budget: Budget
    total_wanted: Amount
    seal: InitVar[_MoveSeal]


@final
@dataclass(frozen=True, slots=True)
class Compact:
    """Make the view shorter, in a way that needs nobody's help."""

    upto: int
    note: str
    how: CompactionMethod
    seal: InitVar[_MoveSeal]


@final
@dataclass(frozen=True, slots=True)
class Summarize:
    """Have the beginning of the view summed up."""

    prompt: Prompt
    reserved: Reservation
    step: int
    upto: int
    seal: InitVar[_MoveSeal]


@final
@dataclass(frozen=True, slots=True)
class TakeSteering:
    """Take up what a person said meanwhile."""

    seal: InitVar[_MoveSeal]


@final
@dataclass(frozen=True, slots=True)
class LookUp:
    """Look up what the prompt speaks of."""

    calls: tuple[ToolCall, ...]
    seal: InitVar[_MoveSeal]


@final
@dataclass(frozen=True, slots=True)
class RecallKnowledge:
    """Find what is known about the prompt."""

    text: str
    seal: InitVar[_MoveSeal]


@final
@dataclass(frozen=True, slots=True)
class WaitForAnswers:
    """Wait for a person to answer these."""

    questions: tuple[tuple[CallState, Ask], ...]
    seal: InitVar[_MoveSeal]


@final
@dataclass(frozen=True, slots=True)
class EndRun:
    """End the run."""

    outcome: Outcome
    reason: str
    seal: InitVar[_MoveSeal]
    fault: Fault | None = None


Move = (
    RequestReply
    | JudgeCalls
    | RunCalls
    | JudgeReply
    | RemindModel
    | DrawBudget
    | Compact
    | Summarize
    | TakeSteering
    | LookUp
    | RecallKnowledge
    | WaitForAnswers
    | EndRun
)
