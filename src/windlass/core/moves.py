"""The moves: what the loop can be told to do.

They are sealed: only `decide` can make one, and only from what the journal says, so that a call
which nobody judged cannot be dispatched.
"""

from dataclasses import InitVar, dataclass
from typing import Any, final

from windlass.core.context import How
from windlass.core.events import AttemptFailed, Outcome, Reservation
from windlass.core.faults import Fault
from windlass.core.limits import Amount, Budget
from windlass.core.messages import Assistant, ToolCall, ToolSpec
from windlass.core.state import Call
from windlass.core.verdicts import Ask
from windlass.core.view import Prompt


class _Seal:
    """Proof that `decide` made a value."""


_SEAL = _Seal()


@final
@dataclass(frozen=True, slots=True)
class Reason:
    """Ask the model once."""

    prompt: Prompt
    reserved: Reservation
    step: int
    """Of the session, so that call ids made from it are unique there."""
    attempt: int
    wait_s: float
    landing: bool
    last: AttemptFailed | None
    """The attempt before, which failed."""
    failed: int
    """Its number."""
    moved_from: str
    """The model whose attempts are spent, if this is the first one at another."""
    seal: InitVar[_Seal]

    @property
    def discard(self) -> bool:
        """Watchers saw text of the attempt before; they are told that it does not count."""
        return self.last is not None and self.last.visible


@final
@dataclass(frozen=True, slots=True)
class Proposed:
    """A call that the model made and nobody has judged."""

    call: ToolCall
    spec: ToolSpec | None
    cut: bool
    """The reply ended by length, so that the arguments may not be whole."""
    seal: InitVar[_Seal]


@final
@dataclass(frozen=True, slots=True)
class Gate:
    """Judge these calls."""

    calls: tuple[Proposed, ...]
    tools: tuple[ToolSpec, ...]
    seal: InitVar[_Seal]


@final
@dataclass(frozen=True, slots=True)
class Cleared:
    """A call that the journal says may run."""

    call: ToolCall
    arguments: dict[str, Any]
    spec: ToolSpec
    key: str
    """Names this effect: the same each time this call is tried, and no other call's."""
    interrupted: bool
    """It had started when a driver died, so that its effect may have happened already."""
    left: Amount
    """What it may spend on models of its own."""
    seal: InitVar[_Seal]

    @property
    def repeatable(self) -> bool:
        return self.spec.effect != "write"


@final
@dataclass(frozen=True, slots=True)
class Act:
    """Run these calls together."""

    calls: tuple[Cleared, ...]
    at_once_max: int
    ask_unknown: bool
    seconds: float | None
    """How long each may take beside its tool's own limit."""
    seal: InitVar[_Seal]


@final
@dataclass(frozen=True, slots=True)
class Hear:
    """Judge a final reply."""

    reply: Assistant
    whole: bool
    """It came to its end by itself, so that it must fit the output type too."""
    seal: InitVar[_Seal]


@final
@dataclass(frozen=True, slots=True)
class Remind:
    """Tell the model that it goes round in circles."""

    text: str
    seal: InitVar[_Seal]


@final
@dataclass(frozen=True, slots=True)
class Draw:
    """Ask a shared budget to let this run spend so much in all."""

    budget: Budget
    wanted: Amount
    seal: InitVar[_Seal]


@final
@dataclass(frozen=True, slots=True)
class Shrink:
    """Make the view shorter, in a way that needs nobody's help."""

    upto: int
    note: str
    how: How
    seal: InitVar[_Seal]


@final
@dataclass(frozen=True, slots=True)
class Summarise:
    """Have the beginning of the view summed up."""

    prompt: Prompt
    reserved: Reservation
    step: int
    upto: int
    seal: InitVar[_Seal]


@final
@dataclass(frozen=True, slots=True)
class Heed:
    """Take up what a person said meanwhile."""

    seal: InitVar[_Seal]


@final
@dataclass(frozen=True, slots=True)
class Hydrate:
    """Look up what the prompt speaks of."""

    calls: tuple[ToolCall, ...]
    seal: InitVar[_Seal]


@final
@dataclass(frozen=True, slots=True)
class Recall:
    """Find what is known about the prompt."""

    text: str
    seal: InitVar[_Seal]


@final
@dataclass(frozen=True, slots=True)
class Hold:
    """Wait for a person to answer these."""

    questions: tuple[tuple[Call, Ask], ...]
    seal: InitVar[_Seal]


@final
@dataclass(frozen=True, slots=True)
class Finish:
    """End the run."""

    outcome: Outcome
    reason: str
    seal: InitVar[_Seal]
    fault: Fault | None = None


Move = (
    Reason
    | Gate
    | Act
    | Hear
    | Remind
    | Draw
    | Shrink
    | Summarise
    | Heed
    | Hydrate
    | Recall
    | Hold
    | Finish
)
