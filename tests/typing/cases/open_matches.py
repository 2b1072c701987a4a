"""A match that forgets a variant does not type-check: a new one must break the build (style 17)."""

from typing import assert_never

from windlass.core.moves import (
    Act,
    Draw,
    Finish,
    Gate,
    Hear,
    Heed,
    Hold,
    Hydrate,
    Move,
    Reason,
    Recall,
    Remind,
    Shrink,
    Summarise,
)
from windlass.core.events import (
    Allotted,
    AttemptFailed,
    AttemptStarted,
    CallAnswered,
    CallFinished,
    CallJudged,
    CallLate,
    CallStarted,
    Compacted,
    Fact,
    Heeded,
    Hydrated,
    NoteGiven,
    Recalled,
    ReplyJudged,
    RunEnded,
    RunResumed,
    RunStarted,
    Steered,
    StepProposed,
)
from windlass.core.verdicts import Allow, Answer, Ask, Deny, Modify, Verdict


def every_move(move: Move) -> str:
    match move:
        case Reason() | Gate() | Act() | Hear() | Remind() | Shrink() | Hold() | Finish():
            return "performed"
        case Draw() | Heed() | Hydrate() | Recall() | Summarise():
            return "performed"


def a_move_is_forgotten(move: Move) -> None:
    # expect: Unhandled type: "Remind"
    match move:
        case Reason() | Gate() | Act() | Hear() | Shrink() | Hold() | Finish():
            pass
        case Draw() | Heed() | Hydrate() | Recall() | Summarise():
            pass


def every_fact(fact: Fact) -> None:
    match fact:
        case RunStarted() | RunResumed() | RunEnded() | NoteGiven() | ReplyJudged() | Compacted():
            pass
        case Allotted() | Steered() | Heeded() | Hydrated() | Recalled():
            pass
        case AttemptStarted() | AttemptFailed() | StepProposed():
            pass
        case CallJudged() | CallAnswered() | CallStarted() | CallFinished() | CallLate():
            pass
        case _:
            assert_never(fact)


def a_fact_is_forgotten(fact: Fact) -> None:
    match fact:
        case RunStarted() | RunResumed() | RunEnded() | NoteGiven() | ReplyJudged() | Compacted():
            pass
        case Allotted() | Steered() | Heeded() | Hydrated() | Recalled():
            pass
        case AttemptStarted() | AttemptFailed() | StepProposed():
            pass
        case CallJudged() | CallAnswered() | CallStarted() | CallLate():
            pass
        case _:
            # expect: Type "CallFinished" is not assignable to type "Never"
            assert_never(fact)


def a_fact_is_forgotten_silently(fact: Fact) -> None:
    # expect: Unhandled type: "CallFinished"
    match fact:
        case RunStarted() | RunResumed() | RunEnded() | NoteGiven() | ReplyJudged() | Compacted():
            pass
        case Allotted() | Steered() | Heeded() | Hydrated() | Recalled():
            pass
        case AttemptStarted() | AttemptFailed() | StepProposed():
            pass
        case CallJudged() | CallAnswered() | CallStarted() | CallLate():
            pass


def a_verdict_is_forgotten(verdict: Verdict) -> None:
    # expect: Unhandled type: "Ask"
    match verdict:
        case Allow() | Deny() | Modify():
            pass


def a_question_is_no_answer(question: Ask) -> Answer:
    # expect: "Ask" is not assignable to "Allow"
    return question
