"""The entries of a projection that are made by one fact and never change again."""

from collections.abc import Sequence

import msgspec

from windlass.core.events import (
    AnswerForwarded,
    AttemptFailed,
    BudgetAllotted,
    BudgetAwaited,
    BudgetWaitEnded,
    CallLate,
    ContextCompacted,
    KnowledgeRecalled,
    LimitsRaised,
    MailRefused,
    PromptWithdrawn,
    ReleaseAsked,
    RunContinued,
    RunEnded,
    RunPaused,
    RunQueued,
    RunReleased,
    RunResumed,
    SessionImported,
)
from windlass.core.messages import ContentPart, Message, ReplyPart, TextPart
from windlass.core.verdicts import Deny, OutputMismatch

Place = tuple[int, int]
"""The place of an event in its session: `seq` and `nth`."""

NoticeFact = (
    RunQueued
    | RunResumed
    | ContextCompacted
    | BudgetAllotted
    | BudgetAwaited
    | BudgetWaitEnded
    | KnowledgeRecalled
    | CallLate
    | SessionImported
    | RunPaused
    | RunContinued
    | RunReleased
    | LimitsRaised
    | AnswerForwarded
    | MailRefused
    | PromptWithdrawn
    | ReleaseAsked
    | RunEnded
)
"""The facts that the view shows unchanged."""


class ViewEntry(msgspec.Struct, frozen=True, gc=False, kw_only=True, tag_field="entry"):
    """An entry in the conversation as people see it: the base of all kinds."""

    seq: int = 0
    """The number of the fact that made it."""
    at: float = 0.0
    run: int = 0
    changed: Place = (0, 0)


class PromptEntry(ViewEntry, frozen=True, tag="prompt"):
    """A prompt, which begins a run."""

    parts: tuple[ContentPart, ...]
    caller: str = ""

    @property
    def text(self) -> str:
        """The text of the prompt, without its attachments."""
        return join_texts(self.parts)


class EarlierEntry(ViewEntry, frozen=True, tag="earlier"):
    """A message of a conversation from elsewhere, which the session went on with."""

    message: Message


class SteeringEntry(ViewEntry, frozen=True, tag="steering"):
    """What a person said during a run. It is `pending` until it enters the conversation."""

    parts: tuple[ContentPart, ...]
    by: str = ""

    @property
    def text(self) -> str:
        """The text of the message, without its attachments."""
        return join_texts(self.parts)


class ModelNoteEntry(ViewEntry, frozen=True, tag="note"):
    """A note from the runtime to the model."""

    text: str
    verdict: Deny | OutputMismatch | None = None
    """The verdict on a reply, if the note is about one."""


class FailureEntry(ViewEntry, frozen=True, tag="failure"):
    """An attempt that gave no complete reply. Whatever was shown of it does not count."""

    fact: AttemptFailed
    model: str = ""
    step: int = 0
    attempt: int = 1
    purpose: str = "main"
    requested_at: float | None = None
    """When the request went out; None for a watcher that came later."""
    retried: bool = False
    """Another attempt at the same step followed, of this model or of a fallback."""


class FallbackEntry(ViewEntry, frozen=True, tag="fallback"):
    """No attempts are left for one model, so another one was asked."""

    model: str
    instead_of: str


class NoticeEntry(ViewEntry, frozen=True, tag="notice"):
    """Something that happened to the run, as it was recorded."""

    fact: NoticeFact


def join_texts(parts: Sequence[ContentPart | ReplyPart]) -> str:
    """Return the text of these parts, without all that is not text or that the program added."""
    return "".join(
        part.text for part in parts if isinstance(part, TextPart) and not part.by_program
    )
