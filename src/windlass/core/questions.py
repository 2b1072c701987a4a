"""Questions as a store keeps them, and the one rule that decides them.

Invariant: a question is decided where its answer is accepted, by `tally`. The fold applies the same
function to the answers that facts record, so a store and a journal never disagree. A row holds no
free text: what a person wrote is in the message, which the driver masks.
"""

from typing import Literal

import msgspec

from windlass.core.verdicts import Allow, AllowAlways, Deny, Modify, PersonAnswer

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
