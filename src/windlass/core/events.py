"""One closed union of events, in two kinds.

A fact is written before anyone acts on it; a delta is for whoever watches.

Every event has a place: `seq` is the number of the fact, and a delta shares the number of the last
fact before it and counts on from there with `nth`. So places are unique within a session, and a
watcher that names the last place it saw can be told the rest.
"""

from decimal import Decimal
from typing import Any, Literal

import msgspec

from windlass.core.faults import Fault
from windlass.core.messages import Assistant, Change, Charge, Content, Result, Usage
from windlass.core.setup import Setup
from windlass.core.verdicts import Allow, Answer, Deny, Invalid, Misfit, Verdict

VERSION = 1
"""The version of this vocabulary. It grows when an old reader could misread a new journal."""

Outcome = Literal[
    "completed",
    "max_steps",
    "budget_exceeded",
    "timed_out",
    "cancelled",
    "refused",
    "truncated",
    "empty_reply",
    "stuck",
    "policy_denied",
    "failed",
    "suspended",
]
Stop = Literal["end", "calls", "length", "refusal"]


class Reservation(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an attempt may cost at the most."""

    input: int
    output: int
    usd: Decimal | None = None


class Placed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Something that happened at a place in a session."""

    seq: int = 0
    nth: int = 0
    at: float = 0.0

    @property
    def place(self) -> str:
        return f"{self.seq}.{self.nth}" if self.nth else str(self.seq)


class RunStarted(Placed, frozen=True):
    """A prompt opens a run. No set-up means the one of the run before."""

    run: int
    prompt: tuple[Content, ...]
    setup: Setup | None = None


class RunResumed(Placed, frozen=True):
    """Another driver takes over a run that has not ended."""

    drift: tuple[str, ...] = ()
    setup: Setup | None = None
    reaped: tuple[str, ...] = ()
    """What the dead driver had left running, and was ended."""


class AttemptStarted(Placed, frozen=True):
    """A request goes out; from here on it may cost what is reserved."""

    step: int
    attempt: int
    model: str
    reserved: Reservation
    landing: bool = False
    """The cap of steps is reached: this one more reply is asked for with the tools switched off."""


class AttemptFailed(Placed, frozen=True):
    """A request gave no whole reply. `visible`: a watcher saw some of its text."""

    fault: Fault
    charge: Charge | None = None
    established: bool = False
    visible: bool = False
    partial: str = ""
    wait_s: float = 0.0


class StepProposed(Placed, frozen=True):
    """A whole reply, as the model gave it, before anyone judged it."""

    reply: Assistant
    stop: Stop
    charge: Charge | None = None


class CallJudged(Placed, frozen=True):
    """A call's verdict. No arguments means those that the model wrote, unchanged."""

    call_id: str
    verdict: Verdict | Invalid
    arguments: dict[str, Any] | None = None
    changes: tuple[Change, ...] = ()
    resource: str | None = None


class CallAnswered(Placed, frozen=True):
    """A person's answer to `Ask`, bound to the digest of the exact arguments."""

    call_id: str
    verdict: Answer
    digest: str
    by: str = ""


class CallStarted(Placed, frozen=True):
    """The effect begins. The key is the same each time this call is tried."""

    call_id: str
    key: str


class CallFinished(Placed, frozen=True):
    """The effect is over."""

    call_id: str
    result: Result


class CallLate(Placed, frozen=True):
    """A result that came when its call had been given up. It is kept, and changes nothing."""

    call_id: str
    result: Result


class ReplyJudged(Placed, frozen=True):
    """A final reply passed, was denied, or did not fit the output type."""

    verdict: Allow | Deny | Misfit


class NoteGiven(Placed, frozen=True):
    """The runtime tells the model something, as a note in the transcript."""

    text: str
    why: Literal["same_call"]


class Compacted(Placed, frozen=True):
    """From here on the view leaves out what came before a message; the transcript keeps it."""

    upto: int
    note: str


class RunEnded(Placed, frozen=True):
    """The one end of a run. It settles an attempt and closes the calls that were under way."""

    outcome: Outcome
    reason: str = ""
    fault: Fault | None = None
    partial: str = ""
    charge: Charge | None = None


class TextDelta(Placed, frozen=True):
    text: str


class ThinkingDelta(Placed, frozen=True):
    text: str
    signature: str | None = None


class CallDelta(Placed, frozen=True):
    """A fragment of a call. Not visible output: a call counts only when the reply is whole."""

    index: int | None = None
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    signature: str | None = None
    origin: str = ""


class UsageDelta(Placed, frozen=True):
    """The attempt's usage so far; a later one replaces it."""

    usage: Usage


class ReplyEnd(Placed, frozen=True):
    """The provider's end marker. A stream without one is incomplete."""

    stop: Stop = "end"


class AttemptDiscarded(Placed, frozen=True):
    """What was shown of this attempt does not count; the step starts again."""

    step: int
    attempt: int
    reason: str


class Retrying(Placed, frozen=True):
    """The step will ask again, after a while."""

    step: int
    attempt: int
    wait_s: float
    reason: str


class Stalled(Placed, frozen=True):
    """The model fell silent, and is not waited for any longer."""

    step: int
    attempt: int


class FellBack(Placed, frozen=True):
    """The attempts at one model are spent; the next one is asked."""

    step: int
    model: str
    instead_of: str


class CallProgress(Placed, frozen=True):
    """A running tool says how it is getting on."""

    call_id: str
    text: str


class RunSuspended(Placed, frozen=True):
    """The run waits for a person. Not an end: the last event only of this watch."""

    call_ids: tuple[str, ...]


InRun = (
    RunResumed
    | AttemptStarted
    | AttemptFailed
    | StepProposed
    | CallJudged
    | CallAnswered
    | CallStarted
    | CallFinished
    | ReplyJudged
    | NoteGiven
    | Compacted
    | RunEnded
)
"""The facts that only an open run can have."""
Fact = RunStarted | InRun | CallLate
Piece = TextDelta | ThinkingDelta | CallDelta | UsageDelta | ReplyEnd
"""What a model streams."""
Delta = Piece | AttemptDiscarded | Retrying | Stalled | FellBack | CallProgress | RunSuspended
Event = Fact | Delta
