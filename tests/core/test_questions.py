"""The one rule that decides a question."""

import pytest

from windlass.core.errors import QuestionDecided
from windlass.core.verdicts import (
    CLOCK,
    EXPIRED_DENIAL,
    Allow,
    AllowAlways,
    AnswerKind,
    Approval,
    Decision,
    Deny,
    GivenAnswer,
    LentRoles,
    Modify,
    PersonAnswer,
    QuestionRow,
    QuestionTerms,
    Starter,
    VerifiedPerson,
    classify_answer,
    find_disqualification,
    list_missing,
    tally,
)

TERMS = QuestionTerms("digest", expires_at=100.0)


@pytest.mark.contract("G6")
@pytest.mark.parametrize(
    ("answer", "at", "decided"),
    [
        ("allow", 99.0, "allow"),
        ("modify", 100.0, "modify"),
        ("deny", 99.0, "deny"),
        ("allow", 100.1, "expiry"),
        ("deny", 100.1, "expiry"),
        ("expiry", 99.9, None),
        ("expiry", 100.0, "expiry"),
    ],
)
def test_an_answer_counts_until_the_question_expires(
    answer: AnswerKind, at: float, decided: AnswerKind | None
) -> None:
    """G6: by the time at which it was accepted; an expiry is believed only if it is one."""
    decision = tally(TERMS, (GivenAnswer(answer, "ann", at),))
    by = CLOCK if decided == "expiry" else "ann"
    assert decision == (None if decided is None else Decision(decided, by, at))


@pytest.mark.contract("G6")
def test_the_first_answer_decides_and_none_leaves_it_open() -> None:
    answers = (GivenAnswer("expiry", CLOCK, 1.0), GivenAnswer("deny", "ann", 2.0))
    assert tally(QuestionTerms("digest"), (*answers, GivenAnswer("allow", "bob", 3.0))) == Decision(
        "deny", "ann", 2.0
    )
    assert tally(QuestionTerms("digest"), ()) is None


@pytest.mark.parametrize(
    ("verdict", "kind"),
    [
        (Allow(), "allow"),
        (AllowAlways("send"), "allow"),
        (Modify({}, "rather"), "modify"),
        (Deny("no"), "deny"),
        (EXPIRED_DENIAL, "expiry"),
    ],
)
def test_a_row_holds_the_kind_of_an_answer_and_no_text(
    verdict: PersonAnswer, kind: AnswerKind
) -> None:
    assert classify_answer(verdict) == kind


def test_a_decision_is_told_in_words() -> None:
    decisions = [
        Decision("allow", "ann"),
        Decision("modify"),
        Decision("deny", "bob"),
        Decision("expiry", CLOCK),
    ]
    told = [str(QuestionDecided("c1", decision)) for decision in decisions]
    assert [text.partition("closed: ")[2] for text in told] == [
        "the call was allowed by ann",
        "the call was allowed with other arguments",
        "the call was denied by bob",
        "the question has expired, so the call is denied",
    ]


def agree(
    name: str, *roles: str, answer: AnswerKind = "allow", at: float = 2.0, **more: str
) -> GivenAnswer:
    lent = (LentRoles(more["lent_by"], ("finance",)),) if "lent_by" in more else ()
    person = VerifiedPerson(name, more.get("caller", name), roles, lent)
    return GivenAnswer(answer, name, at, person, more.get("digest", ""))


TWO = Approval("finance", 2, not_starter=True)
TWO_PEOPLE = QuestionTerms("digest", approvals=(TWO,), starter=Starter("ann", "ann"))
OWNER = GivenAnswer("allow", "owner", 2.0)


@pytest.mark.contract("G10")
@pytest.mark.parametrize(
    ("answers", "decided"),
    [
        ([agree("bea", "finance")], None),
        ([agree("bea", "finance"), agree("bea", "finance")], None),
        ([agree("bea", "finance"), agree("carl")], None),
        ([agree("bea", "finance"), agree("ann", "finance")], None),
        ([agree("bea", "finance"), OWNER], None),
        ([OWNER, OWNER, GivenAnswer("deny", "approver", 2.0)], None),
        ([agree("bea", "finance"), agree("carl", "finance")], "allow"),
        ([agree("bea", "finance"), agree("carl", "finance", answer="deny")], "deny"),
        ([agree("carl", answer="deny")], None),
        ([agree("bea", "finance"), agree("dora", lent_by="carl")], "allow"),
        ([agree("bea", "finance"), agree("dora", lent_by="ann")], None),
        ([agree("bea", "finance"), agree("bea", lent_by="carl")], None),
    ],
)
def test_it_takes_as_many_different_people_of_a_role_as_were_asked_for(
    answers: list[GivenAnswer], decided: AnswerKind | None
) -> None:
    """G10: neither the starter, nor an owner, nor one person twice; one no decides."""
    decision = tally(TWO_PEOPLE, tuple(answers))
    assert (decision and decision.answer) == decided


@pytest.mark.contract("G10")
def test_other_arguments_begin_the_count_anew() -> None:
    """G10: who agreed before agreed to something else."""
    changed = agree("carl", "finance", answer="modify", digest="other")
    answers = (agree("bea", "finance"), changed)
    assert tally(TWO_PEOPLE, answers) is None
    assert QuestionRow("c", TWO_PEOPLE, answers).digest == "other"
    assert list_missing(TWO_PEOPLE, answers) == [Approval("finance", 1, not_starter=True)]
    again = tally(TWO_PEOPLE, (*answers, agree("bea", "finance")))
    assert again is not None
    assert again.answer == "allow"


@pytest.mark.contract("G10")
def test_others_may_answer_once_the_question_has_waited_long_enough() -> None:
    approval = Approval("finance", escalate_to="board", escalate_after_s=60.0)
    terms = QuestionTerms("digest", approvals=(approval,), asked_at=100.0)
    assert find_disqualification(terms, agree("eve", "board", at=159.0))
    assert not find_disqualification(terms, agree("eve", "board", at=160.0))
    assert not find_disqualification(terms, agree("bea", "finance", at=101.0))


@pytest.mark.contract("G10")
def test_without_a_person_everybody_of_the_callers_tokens_counts_as_the_starter() -> None:
    terms = QuestionTerms("d", approvals=(Approval(not_starter=True),), starter=Starter("shop"))
    assert tally(terms, (agree("ann", caller="shop"),)) is None
    assert tally(terms, (agree("bea", caller="bea"),)) is not None


@pytest.mark.contract("G10")
def test_every_approval_of_a_question_is_needed() -> None:
    """G9: two gates that ask for different people both get them."""
    terms = QuestionTerms("d", approvals=(Approval("finance"), Approval("legal")))
    bea, carl = agree("bea", "finance"), agree("carl", "legal")
    assert tally(terms, (bea,)) is None
    assert tally(terms, (bea, carl)) is not None
    assert tally(terms, (agree("dora", "finance", "legal"),)) is not None
