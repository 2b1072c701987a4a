"""Verdicts on a call or a reply, the questions that ask a person for one, and what a call would do.

Invariant: a question is decided where its answer is accepted, by `tally`. The fold applies the same
function to the answers that facts record, so a store and a journal never disagree. A row holds no
free text: what a person wrote is in the message, which the driver masks.
"""

from typing import Any, Literal

import msgspec

from windlass.core.messages import Label


class Allow(
    msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="verdict", tag="allow"
):
    """The call may run as it is."""

    rule: str = ""
    """The rule that decided, for the record."""


class Deny(
    msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="verdict", tag="deny"
):
    """The call may not run. The model reads the reason."""

    reason: str
    rule: str = ""


class Modify(
    msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="verdict", tag="modify"
):
    """The call may run with other arguments."""

    arguments: dict[str, Any]
    reason: str
    rule: str = ""


class Ask(
    msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="verdict", tag="ask"
):
    """A person must decide. The run waits for as long as that takes."""

    question: str
    rule: str = ""
    expires_at: float | None = None
    """Seconds since the epoch after which only a denial is accepted; None: never."""
    arguments: dict[str, Any] | None = None
    """The arguments that would run if the answer is yes; None for those of the call."""


class InvalidCall(
    msgspec.Struct, frozen=True, omit_defaults=True, tag_field="verdict", tag="invalid"
):
    """The call is not made: an unknown tool, arguments that fit no schema, or one too many.

    Only the runtime gives this verdict, not a gate.
    """

    code: Literal[
        "unknown_tool",
        "invalid_arguments",
        "arguments_truncated",
        "too_many_calls",
        "repeated_call",
    ]
    message: str


class OutputMismatch(
    msgspec.Struct, frozen=True, omit_defaults=True, tag_field="verdict", tag="misfit"
):
    """A final reply does not fit the output type. Only the runtime gives this verdict."""

    message: str


class Grant(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a person allowed for the rest of a session.

    It answers a later question only while the session holds no labels beyond those it held when the
    grant was given.
    """

    tool: str
    digest: str = ""
    """Of the arguments, if the grant is for exactly these."""
    pattern: str = ""
    """Otherwise a pattern as in a rule, such as `bash(git status*)`."""
    labels: tuple[Label, ...] = ()
    described: str = ""
    """Of the tool's description and parameters; empty if the grant is for any."""


class AllowAlways(
    msgspec.Struct, frozen=True, omit_defaults=True, tag_field="verdict", tag="allow_always"
):
    """An answer: yes, and do not ask again in this session.

    Without a pattern it holds for exactly this call, with one for all calls that match it.
    """

    pattern: str = ""
    rule: str = ""


Verdict = Allow | Deny | Modify | Ask
"""What a gate may say."""
AnswerVerdict = Allow | Deny | Modify
"""What settles a question."""
PersonAnswer = AnswerVerdict | AllowAlways
"""What a person may answer."""


def is_sound_verdict(verdict: object, kinds: object) -> bool:
    """Whether this is a verdict of these kinds, with every field valid, so that it can be recorded.

    A gate is code of others: it may return anything.
    """
    try:
        msgspec.convert(msgspec.to_builtins(verdict), type=kinds)
    except (msgspec.ValidationError, TypeError):
        return False
    return isinstance(verdict, Allow | Deny | Modify | Ask)


AnswerKind = Literal["allow", "modify", "deny", "expiry"]
CLOCK = "the clock"
"""The author of the denial of a question that expired."""
APPROVER = "approver"
"""The author of what the approver of a run answers."""
EXPIRED_DENIAL = Deny("the question had expired", "expiry")


class QuestionTerms(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What an answer has to meet. Fields that are added later need a default."""

    digest: str
    """Of the arguments that were asked about."""
    expires_at: float | None = None
    """Seconds since the epoch after which only a denial is accepted; None: never."""


class GivenAnswer(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One answer to a question."""

    answer: AnswerKind
    by: str = ""
    at: float = 0.0
    """When the store accepted it, by the store's clock."""


class Decision(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """How a question was decided, and by whom."""

    answer: AnswerKind
    by: str = ""
    at: float = 0.0

    @property
    def is_allowed(self) -> bool:
        """Whether the call may run."""
        return self.answer in ("allow", "modify")

    def describe(self) -> str:
        """Return the decision in words."""
        if self.answer == "expiry":
            return "the question has expired, so the call is denied"
        words = {"allow": "allowed", "modify": "allowed with other arguments", "deny": "denied"}
        return f"the call was {words[self.answer]}{f' by {self.by}' if self.by else ''}"


class QuestionRow(msgspec.Struct, frozen=True, gc=False):
    """A question as a store keeps it beside the facts of its session."""

    call_id: str
    terms: QuestionTerms
    answers: tuple[GivenAnswer, ...] = ()
    decision: Decision | None = None
    via: str = ""
    """The message that decided it: its session, `#` and its number. Empty if none did."""
    is_settled: bool = False
    """Whether a fact has answered the question, or ended its run. No message changes it then."""


def tally(terms: QuestionTerms, answers: tuple[GivenAnswer, ...]) -> Decision | None:
    """Return what the answers to a question add up to; None while it stays open. Pure."""
    expires_at = terms.expires_at
    for given in answers:
        if given.answer == "expiry":
            # It counts only if the store's clock agrees with the one that reported it.
            if expires_at is not None and given.at >= expires_at:
                return Decision("expiry", CLOCK, given.at)
        elif expires_at is not None and given.at > expires_at:
            return Decision("expiry", CLOCK, given.at)
        else:
            return Decision(given.answer, given.by, given.at)
    return None


def classify_answer(verdict: PersonAnswer) -> AnswerKind:
    """Return the kind of an answer, without what the person wrote."""
    match verdict:
        case Allow() | AllowAlways():
            return "allow"
        case Modify():
            return "modify"
        case Deny():
            return "expiry" if verdict == EXPIRED_DENIAL else "deny"


class CallPreview(msgspec.Struct, frozen=True, gc=False):
    """What a call would change if it ran now. It is for a person and not recorded."""

    note: str
    """In words, such as "'notes.txt' would be created"."""
    diff: str = ""
    """The change as a unified diff; empty if there is none to show."""
    is_whole: bool = False
    """The diff leaves nothing out of what the call would do."""
    would_fail: bool = False
    """As things are now, the call cannot succeed; `note` says why."""
