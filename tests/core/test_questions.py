"""The one rule that decides a question."""

import pytest

from windlass.core.errors import QuestionDecided
from windlass.core.verdicts import (
    CLOCK,
    EXPIRED_DENIAL,
    Allow,
    AllowAlways,
    AnswerKind,
    Decision,
    Deny,
    GivenAnswer,
    Modify,
    PersonAnswer,
    QuestionTerms,
    classify_answer,
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
