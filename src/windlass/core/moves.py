"""The moves: what `decide` can tell the loop to do.

They are sealed: only `decide` can make one, and only from what the journal says. So a call that was
not judged cannot be dispatched.
"""

from dataclasses import InitVar, dataclass
from typing import Any, final

from windlass.core.context_facts import NoteReason
from windlass.core.control_facts import BudgetAwaited, PauseCause
from windlass.core.errors import Fault
from windlass.core.events import AttemptFailed, Outcome, Reservation, RunPaused
from windlass.core.limits import Amount, Budget
from windlass.core.messages import AssistantMessage, ToolCall, ToolSpec
from windlass.core.setup import CompactionMethod
from windlass.core.state import CallState
from windlass.core.verdicts import Ask
from windlass.core.view import Prompt


class _MoveSeal:
    """Proof that `decide` made a value."""


_SEAL = _MoveSeal()


@final
@dataclass(frozen=True, slots=True)
class RequestReply:
    """Send one request to the model."""

    prompt: Prompt
    reserved: Reservation
    step: int
    """The number in the session, so that call ids made from it are unique there."""
    attempt: int
    wait_s: float
    """Seconds to wait before the request."""
    landing: bool
    """The last reply of the run, with the tools switched off."""
    last_failure: AttemptFailed | None
    """The attempt before this one, if it failed."""
    failed_attempts: int
    """How many attempts of this step failed so far."""
    fell_back_from: str
    """The model that has no attempts left, if this is the first request to another one."""
    seal: InitVar[_MoveSeal]

    @property
    def must_discard(self) -> bool:
        """Whether watchers saw text of the attempt before, and must hear that it does not count."""
        return self.last_failure is not None and self.last_failure.visible


@final
@dataclass(frozen=True, slots=True)
class ProposedCall:
    """A call that the model made and that is not judged yet."""

    call: ToolCall
    spec: ToolSpec | None
    maybe_cut_off: bool
    """The reply was cut off at the output limit, so the arguments may be incomplete."""
    seal: InitVar[_MoveSeal]
    calls_max: int | None = None
    """Set if this call is beyond the number of calls that a reply may make."""


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
    """The name of this effect: the same for every try of this call, and no other call's."""
    interrupted: bool
    """It had started when a driver died, so its effect may have happened already."""
    spending_left: Amount
    """The most it may spend on models of its own."""
    seal: InitVar[_MoveSeal]
    is_suspect: bool = False
    """A driver died while it ran, so no other suspect may run in this process in the meantime."""

    @property
    def repeatable(self) -> bool:
        """Whether the effect may happen twice."""
        return self.spec.effect != "write"


@final
@dataclass(frozen=True, slots=True)
class RunCalls:
    """Run these calls together."""

    calls: tuple[ClearedCall, ...]
    at_once_max: int
    ask_if_unknown: bool
    timeout_s: float | None
    """The most seconds for each, beside the limit of its own tool."""
    seal: InitVar[_MoveSeal]


@final
@dataclass(frozen=True, slots=True)
class JudgeReply:
    """Judge a final reply."""

    reply: AssistantMessage
    check_output: bool
    """The reply was not cut off or refused, so it must also fit the output type."""
    seal: InitVar[_MoveSeal]


@final
@dataclass(frozen=True, slots=True)
class RemindModel:
    """Tell the model that it repeats the same call, or that the provider refused its reply."""

    text: str
    why: NoteReason
    seal: InitVar[_MoveSeal]


@final
@dataclass(frozen=True, slots=True)
class DrawBudget:
    """Ask a shared budget to let this run spend this total."""

    budget: Budget
    total_wanted: Amount
    seal: InitVar[_MoveSeal]


@final
@dataclass(frozen=True, slots=True)
class AwaitBudget:
    """Begin to wait for what other runs hold of a shared budget."""

    budget: str
    held: Amount
    wait_s: float
    seal: InitVar[_MoveSeal]


@final
@dataclass(frozen=True, slots=True)
class Compact:
    """Make the view shorter without the help of a model."""

    upto: int
    note: str
    how: CompactionMethod
    seal: InitVar[_MoveSeal]


@final
@dataclass(frozen=True, slots=True)
class Summarize:
    """Ask a model to summarize the beginning of the view."""

    prompt: Prompt
    reserved: Reservation
    step: int
    upto: int
    seal: InitVar[_MoveSeal]


@final
@dataclass(frozen=True, slots=True)
class TakeSteering:
    """Put the messages given during the run into the conversation."""

    seal: InitVar[_MoveSeal]


@final
@dataclass(frozen=True, slots=True)
class LookUp:
    """Look up what the prompt refers to."""

    calls: tuple[ToolCall, ...]
    seal: InitVar[_MoveSeal]


@final
@dataclass(frozen=True, slots=True)
class RecallKnowledge:
    """Ask the memory what it knows about the prompt."""

    text: str
    seal: InitVar[_MoveSeal]


@final
@dataclass(frozen=True, slots=True)
class WaitForAnswers:
    """Wait for a person to answer these questions."""

    questions: tuple[tuple[CallState, Ask], ...]
    seal: InitVar[_MoveSeal]
    waiting: tuple[CallState, ...] = ()
    """Calls whose sub-agents wait, for answers or for their pause to end."""


@final
@dataclass(frozen=True, slots=True)
class StayWaiting:
    """Wait for a shared budget, here or without a driver, until it is time to ask it again."""

    wait: BudgetAwaited
    seal: InitVar[_MoveSeal]


@final
@dataclass(frozen=True, slots=True)
class PauseRun:
    """Pause the run: its money or tokens are used up, or its next call kills its process."""

    reason: str
    needed: Amount | None
    seal: InitVar[_MoveSeal]
    cause: PauseCause = "budget"


@final
@dataclass(frozen=True, slots=True)
class StayPaused:
    """Release the run until a caller continues it."""

    pause: RunPaused
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
    | AwaitBudget
    | Compact
    | Summarize
    | TakeSteering
    | LookUp
    | RecallKnowledge
    | WaitForAnswers
    | StayWaiting
    | PauseRun
    | StayPaused
    | EndRun
)
FinalMove = WaitForAnswers | StayWaiting | StayPaused | EndRun
"""The moves that the loop leaves to its driver."""
