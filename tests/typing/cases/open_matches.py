"""A match that forgets a variant does not type-check: a new one must break the build (style 17).

That a match with all the variants does type-check is shown by the fold and by the loop.
"""

from typing import assert_never

from windlass.core.events import Fact, RunStarted
from windlass.core.moves import EndRun, Move
from windlass.core.verdicts import Allow, AnswerVerdict, Ask, Deny, Modify, Verdict


def every_verdict(verdict: Verdict) -> str:
    match verdict:
        case Allow() | Deny() | Modify() | Ask():
            return "judged"


def a_move_is_forgotten(move: Move) -> None:
    # expect: Unhandled type:
    match move:
        case EndRun():
            pass


def a_fact_is_forgotten(fact: Fact) -> None:
    match fact:
        case RunStarted():
            pass
        case _:
            # expect: is not assignable to type "Never"
            assert_never(fact)


def a_fact_is_forgotten_silently(fact: Fact) -> None:
    # expect: Unhandled type:
    match fact:
        case RunStarted():
            pass


def a_verdict_is_forgotten(verdict: Verdict) -> None:
    # expect: Unhandled type: "Ask"
    match verdict:
        case Allow() | Deny() | Modify():
            pass


def a_question_is_no_answer(question: Ask) -> AnswerVerdict:
    # expect: "Ask" is not assignable to "Allow"
    return question
