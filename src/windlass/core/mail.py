"""Messages to a run from outside its process: what anyone with the journal can post.

A message is not a fact. It lies in the mailbox of its session until the driver takes it, in order,
and writes the fact that follows from it, with the number of the message. There are two lanes with
cursors of their own, so that a prompt in the queue never holds up a cancel.

Invariant: every message but a prompt names the run that it is for, and an answer also its call and
the digest of the arguments. A message that no longer applies is refused by a fact (`MailRefused`),
so that a cancel that comes late can never stop the next run.

Tags and fields are frozen like those of facts: a message may wait for days, for a newer version.
"""

from typing import Any, Literal

import msgspec

from windlass.core.limits import Budget, RaisedLimits
from windlass.core.messages import ContentPart, Label, Message
from windlass.core.verdicts import Grant, PersonAnswer, VerifiedPerson

MailLane = Literal["control", "prompts"]


class MailMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """What all messages have."""

    run: int
    """The number of the run that it is for, in its session."""


class SteerMail(MailMessage, frozen=True, tag="steer"):
    """Say something to the model before its next step."""

    prompt: tuple[ContentPart, ...]


class CancelMail(MailMessage, frozen=True, tag="cancel"):
    """End the run."""

    reason: str = "cancelled"


class PauseMail(MailMessage, frozen=True, tag="pause"):
    """Stop the run before its next request, until a caller continues it."""

    reason: str = ""


class ContinueMail(MailMessage, frozen=True, tag="resume"):
    """End the pause of the run."""


class AnswerMail(MailMessage, frozen=True, tag="answer"):
    """Answer a question, for exactly the arguments of its digest."""

    call_id: str
    digest: str
    verdict: PersonAnswer
    session: str = ""
    """The session of the sub-agent that asks; empty if the run itself does."""
    accepted_at: float = 0.0
    """When the store accepted it for the run at the top, which passed it on; 0 if it did not."""
    signature: str = ""
    """That of the message to the run at the top, which passed it on; empty if it did not."""
    grant: Grant | None = None
    """What `AllowAlways` allows for the rest of the session, as it was when the person answered."""
    person: VerifiedPerson | None = None
    """Who answers, if a service verified that. Only a service sets it."""


class ReleaseMail(MailMessage, frozen=True, tag="release"):
    """Have the driver release the run, so that another one resumes it."""

    opening: int
    """The number of the fact by which that driver opened the run. A later driver refuses the
    message: the run has moved already."""
    reason: str = ""


class BudgetFreedMail(MailMessage, frozen=True, tag="budget_freed"):
    """Ask a shared budget again that the run waits for: another run gave some of it back."""

    budget: str


class RaiseLimitsMail(MailMessage, frozen=True, tag="raise_limits"):
    """Raise the limits of the run."""

    limits: RaisedLimits


class WithdrawMail(MailMessage, frozen=True, tag="withdraw"):
    """Begin no run with a prompt that waits behind this one."""

    prompt: int
    """The number of the prompt in the queue."""


class PromptMail(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="prompt"
):
    """Begin a run when the runs before it have ended."""

    prompt: tuple[ContentPart, ...]
    key: str = ""
    """The caller's own name for this start: the same key never begins a second run."""
    caller: str = ""
    context: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    pinned: bool = False
    labels: tuple[Label, ...] = ()
    """What the prompt brings along: outside text, private data."""
    trace: str = ""
    """The trace that the run is to belong to, as in a `traceparent` header."""
    agent: str = ""
    """The name of the agent that is to begin the run; empty if any agent may."""
    earlier: tuple[Message, ...] = ()
    """A conversation from elsewhere that a new session continues."""
    budgets: tuple[Budget, ...] = ()
    """Shared budgets that the run draws on, besides those of the agent."""
    own_folder: bool = False
    """Work in a folder of the caller's own, in the store of the worker that begins the run."""
    on_partial: Literal["", "fail", "restart"] = ""
    """What happens when a reply breaks off after some of it was seen; empty: as the agent that
    begins the run is set up."""


ControlMail = (
    SteerMail
    | CancelMail
    | PauseMail
    | ContinueMail
    | AnswerMail
    | ReleaseMail
    | BudgetFreedMail
    | RaiseLimitsMail
    | WithdrawMail
)
Mail = ControlMail | PromptMail


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A message in the mailbox of a session."""

    number: int
    """Its place in its lane, from 1, without gaps."""
    at: float
    """When the store accepted it. The expiry of a question is judged by it."""
    message: Mail
    by: str = ""
    key: str = ""
    """Set by a poster that may have to post again: a key is accepted once per session."""
    signature: str = ""
    """Proves who posted it: someone with the user's own key to a file, a service to Postgres."""

    @property
    def lane(self) -> MailLane:
        return lane_of(self.message)


class MailReceipt(msgspec.Struct, frozen=True):
    """Proof that a message is durable, and its place in its lane."""

    session: str
    lane: MailLane
    number: int
    at: float
    """When the store accepted it."""


def lane_of(message: Mail) -> MailLane:
    """Return the lane that a message belongs to."""
    return "prompts" if isinstance(message, PromptMail) else "control"


def kind_of(message: Mail) -> str:
    """Return the tag of a message, such as `cancel`."""
    return str(message.__struct_config__.tag)
