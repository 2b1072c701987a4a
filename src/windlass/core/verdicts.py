"""Verdicts on a call or a reply, the questions that ask a person for one, and what a call would do.

Invariant: a question is decided where its answer is accepted, by `tally`. The fold applies the same
function to the answers that facts record, so a store and a journal never disagree. A row holds no
free text: what a person wrote is in the message, which the driver masks.
"""

from collections.abc import Mapping
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


class Approval(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Who has to agree to a call: people whose identity a service verified, and nobody else."""

    role: str = ""
    """A group that they belong to, or their role in the team; empty: any verified person."""
    people: int = 1
    """How many different people have to agree."""
    not_starter: bool = False
    """Never the person who started the run at the top, nor whom that person lent a role to."""
    expires_after_s: float | None = None
    """Seconds after which the question is answered with a no; None: never."""
    escalate_to: str = ""
    """Another group or role, whose people may answer too once nobody did for a while."""
    escalate_after_s: float = 0.0
    """Seconds after which they may."""

    def describe(self) -> str:
        """Return what is needed in words, such as "2 people of finance, but not the starter"."""
        who = "1 person" if self.people == 1 else f"{self.people} people"
        if self.role:
            who += f" of {self.role}"
        return f"{who}, but not the one who started the run" if self.not_starter else who


class Starter(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Who started the run at the top. Without a person, everybody who uses the caller's tokens."""

    caller: str = ""
    person: str = ""


class LentRoles(msgspec.Struct, frozen=True, gc=False):
    """Roles that a person has because another one is away."""

    by: str
    roles: tuple[str, ...]


class VerifiedPerson(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A person whose identity a service verified, as they were when they answered."""

    name: str
    caller: str = ""
    roles: tuple[str, ...] = ()
    """Their groups, and their roles in the team for the agent of the run."""
    lent: tuple[LentRoles, ...] = ()
    origin: str = ""
    """From where: the way in and the address, such as "page, 192.0.2.7"."""

    def is_starter(self, starter: Starter) -> bool:
        """Whether this person started the run, or may have."""
        if starter.person:
            return self.name == starter.person
        return self.caller == starter.caller


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
    approvals: tuple[Approval, ...] = ()
    """Who has to agree; all of these. Empty: anyone who may answer."""
    asked_at: float = 0.0
    """When it was asked, if it has approvals. The runtime sets it, and the starter."""
    starter: Starter = Starter()


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


PERSON_KEY = "windlass_person"
"""The key in the context of a run under which a service names the person who started it."""
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
    approvals: tuple[Approval, ...] = ()
    asked_at: float = 0.0
    starter: Starter = Starter()


def terms_of(question: Ask, digest: str) -> QuestionTerms:
    """Return what an answer to a question about these arguments has to meet."""
    return QuestionTerms(
        digest, question.expires_at, question.approvals, question.asked_at, question.starter
    )


def stamp_question(question: Ask, caller: str, context: Mapping[str, Any], now: float) -> Ask:
    """Return a question for certain people, with what its answers are counted by.

    `caller` and `context` are those of the run: a sub-agent has them from the run at the top.
    """
    ends = [now + one.expires_after_s for one in question.approvals if one.expires_after_s]
    if question.expires_at is not None:
        ends.append(question.expires_at)
    starter = Starter(caller, str(context.get(PERSON_KEY, "")))
    return msgspec.structs.replace(
        question, expires_at=min(ends, default=None), asked_at=now, starter=starter
    )


class GivenAnswer(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One answer to a question."""

    answer: AnswerKind
    by: str = ""
    at: float = 0.0
    """When the store accepted it, by the store's clock."""
    person: VerifiedPerson | None = None
    """Who it was, if a service verified that; None for the owner of a file, and for programs."""
    digest: str = ""
    """Of the arguments that a `modify` puts in."""
    via: str = ""
    """The message that brought it: its session, `#` and its number."""


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

    @property
    def digest(self) -> str:
        """Of the arguments that the next answer is about: one who agreed may have changed them."""
        changed = [given.digest for given in self.answers if given.answer == "modify"]
        return changed[-1] if changed else self.terms.digest


def tally(terms: QuestionTerms, answers: tuple[GivenAnswer, ...]) -> Decision | None:
    """Return what the answers to a question add up to; None while it stays open. Pure.

    One no decides. An answer with other arguments begins again: those who agreed before it agreed
    to something else.
    """
    expires_at = terms.expires_at
    for at, given in enumerate(answers):
        if given.answer == "expiry":
            # It counts only if the store's clock agrees with the one that reported it.
            if expires_at is not None and given.at >= expires_at:
                return Decision("expiry", CLOCK, given.at)
        elif expires_at is not None and given.at > expires_at:
            return Decision("expiry", CLOCK, given.at)
        elif not terms.approvals or (
            not find_disqualification(terms, given)
            and (given.answer == "deny" or not list_missing(terms, answers[: at + 1]))
        ):
            return Decision(given.answer, given.by, given.at)
    return None


def list_agreed(answers: tuple[GivenAnswer, ...]) -> tuple[GivenAnswer, ...]:
    """Return the answers that agree to the arguments as they are now."""
    begin = max((at for at, given in enumerate(answers) if given.answer == "modify"), default=0)
    return tuple(given for given in answers[begin:] if given.answer in ("allow", "modify"))


def list_missing(terms: QuestionTerms, answers: tuple[GivenAnswer, ...]) -> list[Approval]:
    """Return the approvals that these answers do not give, each with the people still needed."""
    agreed = list_agreed(answers)
    missing: list[Approval] = []
    for approval in terms.approvals:
        counted = [given for given in agreed if _counts(approval, terms, given)]
        names = {given.person.name for given in counted if given.person is not None}
        left = max(1, approval.people) - len(names)
        if left > 0:
            missing.append(msgspec.structs.replace(approval, people=left))
    return missing


def find_disqualification(terms: QuestionTerms, given: GivenAnswer) -> str:
    """Return why a person may not answer a question, in words; empty if they may."""
    if given.answer == "expiry" or not terms.approvals:
        return ""
    if any(_counts(approval, terms, given) for approval in terms.approvals):
        return ""
    needed = ", and ".join(approval.describe() for approval in terms.approvals)
    if given.person is None:
        return f"it needs {needed}, and {given.by or 'this'} is no person whom a service verified"
    return f"it needs {needed}, and {given.person.name} does not count towards that"


def _counts(approval: Approval, terms: QuestionTerms, given: GivenAnswer) -> bool:
    """Whether an answer counts towards an approval."""
    person = given.person
    if person is None or (approval.not_starter and person.is_starter(terms.starter)):
        return False
    lent = [one for one in person.lent if not approval.not_starter or not _is_lent_by(one, terms)]
    if not approval.role:
        # A person who has nothing but what the starter lent answers for the starter.
        return bool(person.roles or lent or not person.lent)
    wanted = {approval.role}
    if approval.escalate_to and given.at >= terms.asked_at + approval.escalate_after_s:
        wanted.add(approval.escalate_to)
    return not wanted.isdisjoint((*person.roles, *(role for one in lent for role in one.roles)))


def _is_lent_by(lent: LentRoles, terms: QuestionTerms) -> bool:
    return lent.by in (terms.starter.person or terms.starter.caller, terms.starter.caller)


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
