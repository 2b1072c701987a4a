"""The facts of a run that is spoken to from outside: steering, pauses, raised limits, mail.

Any process with the journal may post a message to a run (`core/mail.py`). The driver takes the
messages in order, and writes each of them down as one fact that carries the number of the message.
The fold remembers the last number, so that each message counts exactly once, whatever crashes in
between.

All of them are members of the union in `core/events.py`, which says what a fact declares.
"""

from typing import Any, ClassVar, Literal

import msgspec

from windlass.core.deltas import PlacedEvent
from windlass.core.limits import Amount, RaisedLimits
from windlass.core.messages import Charge, ContentPart, Label
from windlass.core.phrases import (
    count_attachments,
    format_amount,
    format_charge,
    format_count,
    join_texts,
    quote_text,
)
from windlass.core.question import Question
from windlass.core.text_clip import printable_line
from windlass.core.verdicts import Allow, Approval, Modify, VerifiedPerson

PauseCause = Literal["asked", "budget", "deaths", "rewound"]
"""Why a run is paused: a caller asked for it, money is used up, a call kills its process, or the
store may have lost what the run did last."""


class SessionProgress(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """How far a session had come when a driver looked at it."""

    session: str
    seq: int
    """The last record by which it got any further: a reply, a result, or its start or end."""


class RunQueued(PlacedEvent, frozen=True, tag="RunQueued"):
    """A run was accepted, and waits for its first driver.

    From here on it can be read, watched, steered, paused and cancelled. Its prompt stays in the
    mailbox until the driver, which knows the secrets of the agent, masks it into `RunStarted`.
    """

    masked_fields: ClassVar = ("caller", "agent", "context")
    from_outside: ClassVar = True
    run: int
    mail: int
    """The number of its prompt in the queue of the session. This fact does not take the prompt."""
    session_id: str = ""
    """A random name of the session, if this is its first fact."""
    caller: str = ""
    agent: str = ""
    key: str = ""
    """The caller's own name for this start: the same key never begins a second run."""
    digest: str = ""
    """Of the prompt in the mailbox, if the start has a key."""
    labels: tuple[Label, ...] = ()
    context: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])

    def describe(self) -> str:
        """Say in words what happened, for `windlass explain` and the terminal."""
        caller = f" on behalf of {printable_line(self.caller)}" if self.caller else ""
        return f"Run {self.run} was accepted{caller} and waits for a driver"


class SteeringGiven(PlacedEvent, frozen=True, tag="Steered"):
    """A person says something while the run works. The model sees it before the next step."""

    masked_fields: ClassVar = ("prompt", "by")
    from_outside: ClassVar = True
    prompt: tuple[ContentPart, ...]
    by: str = ""
    mail: int = 0
    """The number of the message in the control lane; 0 if it did not come by mail."""

    def describe(self) -> str:
        """Say in words what happened, for `windlass explain` and the terminal."""
        text = quote_text(join_texts(self.prompt))
        return f"{_person(self.by)} said during the run: {text}{count_attachments(self.prompt)}"


class SteeringTaken(PlacedEvent, frozen=True, tag="Heeded"):
    """The messages that a person gave during the run enter the conversation here."""

    masked_fields: ClassVar = ()

    def describe(self) -> str:
        """Say in words what happened, for `windlass explain` and the terminal."""
        return "The messages given during the run entered the conversation"


class RunPaused(PlacedEvent, frozen=True, tag="RunPaused"):
    """The run is to stop before its next request, until a caller continues it.

    Calls of the open step still run to their end. Then the driver releases the run. With the cause
    `budget` the rules paused it: its money or tokens are used up, and raising the limit continues
    it as well. With the cause `deaths` a call of it, or of a sub-agent, took its process down: the
    call runs one more time if a caller continues the run. With the cause `rewound` the store may
    have lost the last records of the run, so that it would do something again.
    """

    masked_fields: ClassVar = ("reason", "by")
    reason: str = ""
    by: str = ""
    cause: PauseCause = "asked"
    needed: Amount | None = None
    """What the next request could cost beyond what is left, if the budget is the cause."""
    mail: int = 0

    def describe(self) -> str:
        if self.cause != "asked":
            needed = f"; the next request needs {format_amount(self.needed)}" if self.needed else ""
            return f"The run paused: {printable_line(self.reason)}{needed}"
        reason = f": {quote_text(self.reason)}" if self.reason else ""
        return f"{_person(self.by)} paused the run{reason}"


class RunContinued(PlacedEvent, frozen=True, tag="RunContinued"):
    """A caller ends the pause of a run."""

    masked_fields: ClassVar = ("by",)
    from_outside: ClassVar = True
    by: str = ""
    mail: int = 0

    def describe(self) -> str:
        return f"{_person(self.by)} continued the run"


class RunReleased(PlacedEvent, frozen=True, tag="RunReleased"):
    """The driver releases a run that has not ended: any process can resume it.

    The attempt in flight is settled by what had streamed, and does not count as a failure. A call
    that had started and has no result is treated as after a crash.
    """

    masked_fields: ClassVar = ("reason",)
    from_outside: ClassVar = True
    reason: str = ""
    charge: Charge | None = None
    """Of the attempt that was in flight."""

    def describe(self) -> str:
        reason = f": {printable_line(self.reason)}" if self.reason else ""
        return f"The driver released the run{reason}{format_charge(self.charge)}"


class ReleaseAsked(PlacedEvent, frozen=True, tag="ReleaseAsked"):
    """A caller moves the run to another driver: the present one releases it soon."""

    masked_fields: ClassVar = ("reason", "by")
    from_outside: ClassVar = True
    reason: str = ""
    by: str = ""
    mail: int = 0

    def describe(self) -> str:
        reason = f": {quote_text(self.reason)}" if self.reason else ""
        return f"{_person(self.by)} moved the run to another driver{reason}"


class BudgetAwaited(PlacedEvent, frozen=True, tag="BudgetAwaited"):
    """The next request does not fit, only because other runs hold reserves of a shared budget.

    The run waits until one of them gives something back, at most `wait_s` seconds, and asks the
    budget again. It is not at work meanwhile, and needs no driver.
    """

    masked_fields: ClassVar = ()
    budget: str
    held: Amount
    """What runs outside of its own tree held in reserve."""
    wait_s: float
    """From the time of this fact."""

    @property
    def due_at(self) -> float:
        """When the budget is asked again, if nothing is given back before."""
        return self.at + self.wait_s

    def describe(self) -> str:
        budget = printable_line(self.budget)
        return f"The run waits for the budget {budget}: others hold {format_amount(self.held)}"


class BudgetWaitEnded(PlacedEvent, frozen=True, tag="BudgetWaitEnded"):
    """The run asks the budget again: another run gave something back, or the wait is over."""

    masked_fields: ClassVar = ("by",)
    from_outside: ClassVar = True
    budget: str
    by: str = ""
    mail: int = 0

    def describe(self) -> str:
        freed = ": another run gave some of it back" if self.mail else ""
        return f"The run asks the budget {printable_line(self.budget)} again{freed}"


class LimitsRaised(PlacedEvent, frozen=True, tag="LimitsRaised"):
    """A caller raises the limits of the run. They override those of any driver's setup."""

    masked_fields: ClassVar = ("by",)
    from_outside: ClassVar = True
    limits: RaisedLimits
    by: str = ""
    mail: int = 0

    def describe(self) -> str:
        return f"{_person(self.by)} raised the limits: {self.limits.describe()}"


class MailRefused(PlacedEvent, frozen=True, tag="MailRefused"):
    """A message that could not be taken: it was for another run, or too late. It changes nothing.

    It belongs to the session, not to a run: a message may come when no run is open.
    """

    masked_fields: ClassVar = ("reason", "by")
    from_outside: ClassVar = True
    mail: int
    kind: str
    """The tag of the message, such as `cancel`."""
    reason: str
    lane: Literal["control", "prompts"] = "control"
    by: str = ""

    def describe(self) -> str:
        kind = printable_line(self.kind)
        return f"A message ({kind}) was refused: {printable_line(self.reason)}"


class PromptWithdrawn(PlacedEvent, frozen=True, tag="PromptWithdrawn"):
    """A prompt that waits behind a run begins no run. Those before it in the queue still wait."""

    masked_fields: ClassVar = ("by",)
    from_outside: ClassVar = True
    prompt: int
    """The number of the prompt in the queue."""
    by: str = ""
    mail: int = 0

    def describe(self) -> str:
        return f"{_person(self.by)} withdrew prompt {self.prompt} of the queue"


class NestedQuestion(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A question of a sub-agent, as it is recorded; `read` returns it as it is asked at the top."""

    session: str
    """The session of the sub-agent. An answer names it, besides the call."""
    call_id: str
    tool: str
    arguments: str
    """The JSON text of what would run if the answer is yes."""
    question: str
    digest: str
    expires_at: float | None = None
    agents: tuple[str, ...] = ()
    """Who works for whom, the outermost first; the last one asks."""
    rule: str = ""
    approvals: tuple[Approval, ...] = ()
    agreed: tuple[str, ...] = ()

    def read(self, chain: tuple[str, ...] = ()) -> Question:
        """Return the question. `chain` leads to the asking agent, if that is not on record."""
        return Question(
            self.session,
            self.call_id,
            self.tool,
            msgspec.json.decode(self.arguments, type=dict[str, Any]),
            self.question,
            self.digest,
            self.rule,
            self.expires_at,
            self.agents or chain,
            approvals=self.approvals,
            agreed=self.agreed,
        )


class CallWaiting(PlacedEvent, frozen=True, tag="CallWaiting"):
    """The sub-agent of a call waits for a person, so this run waits as well.

    It is recorded when no other call of the step can move. When the run is resumed, the call runs
    again, and its sub-agent continues.
    """

    masked_fields: ClassVar = ("questions",)
    from_outside: ClassVar = True
    call_id: str
    session: str
    """The session of the sub-agent."""
    questions: tuple[NestedQuestion, ...] = ()
    """Empty if the sub-agent is paused."""

    def describe(self) -> str:
        waits = (
            format_count(len(self.questions), "answer") if self.questions else "its pause to end"
        )
        return f"Call {printable_line(self.call_id)} waits: its sub-agent waits for {waits}"


class AnswerForwarded(PlacedEvent, frozen=True, tag="AnswerForwarded"):
    """An answer for a question of a sub-agent was passed on to the sub-agent's session."""

    masked_fields: ClassVar = ("by",)
    from_outside: ClassVar = True
    session: str
    call_id: str
    """The call in the sub-agent's session."""
    by: str = ""
    mail: int = 0

    def describe(self) -> str:
        call = printable_line(self.call_id)
        return f"{_person(self.by)} answered {call} of {printable_line(self.session)}"


class AnswerCounted(PlacedEvent, frozen=True, tag="AnswerCounted"):
    """A person agreed to a call to which others have to agree too. The question stays open.

    With other arguments (`Modify`), the question is about those from now on, and who agreed before
    has to be asked again.
    """

    masked_fields: ClassVar = ("verdict", "by")
    from_outside: ClassVar = True
    call_id: str
    verdict: Allow | Modify
    digest: str
    by: str = ""
    mail: int = 0
    accepted_at: float = 0.0
    signature: str = ""
    person: VerifiedPerson | None = None

    def describe(self) -> str:
        call = printable_line(self.call_id)
        return f"{_person(self.by)} agreed to {call}; others have to agree too"


def _person(by: str) -> str:
    return printable_line(by) if by else "Somebody"
