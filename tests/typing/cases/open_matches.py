"""A match that forgets a variant does not type-check: a new one must break the build (style 17)."""

from typing import assert_never

from windlass.core.moves import (
    RunCalls,
    DrawBudget,
    EndRun,
    JudgeCalls,
    JudgeReply,
    TakeSteering,
    WaitForAnswers,
    LookUp,
    Move,
    RequestReply,
    RecallKnowledge,
    RemindModel,
    Compact,
    Summarize,
)
from windlass.core.events import (
    BudgetAllotted,
    AttemptFailed,
    AttemptStarted,
    CallAnswered,
    CallFinished,
    CallJudged,
    CallLate,
    CallStarted,
    ContextCompacted,
    Fact,
    SteeringTaken,
    LookupsPlanned,
    NoteGiven,
    KnowledgeRecalled,
    ReplyJudged,
    RunEnded,
    RunResumed,
    RunStarted,
    SteeringGiven,
    StepProposed,
)
from windlass.core.verdicts import Allow, AnswerVerdict, Ask, Deny, Modify, Verdict


def every_move(move: Move) -> str:
    match move:
        case (
            RequestReply()
            | JudgeCalls()
            | RunCalls()
            | JudgeReply()
            | RemindModel()
            | Compact()
            | WaitForAnswers()
            | EndRun()
        ):
            return "performed"
        case DrawBudget() | TakeSteering() | LookUp() | RecallKnowledge() | Summarize():
            return "performed"


def a_move_is_forgotten(move: Move) -> None:
    # expect: Unhandled type: "Remind"
    match move:
        case (
            RequestReply()
            | JudgeCalls()
            | RunCalls()
            | JudgeReply()
            | Compact()
            | WaitForAnswers()
            | EndRun()
        ):
            pass
        case DrawBudget() | TakeSteering() | LookUp() | RecallKnowledge() | Summarize():
            pass


def every_fact(fact: Fact) -> None:
    match fact:
        case (
            RunStarted()
            | RunResumed()
            | RunEnded()
            | NoteGiven()
            | ReplyJudged()
            | ContextCompacted()
        ):
            pass
        case (
            BudgetAllotted()
            | SteeringGiven()
            | SteeringTaken()
            | LookupsPlanned()
            | KnowledgeRecalled()
        ):
            pass
        case AttemptStarted() | AttemptFailed() | StepProposed():
            pass
        case CallJudged() | CallAnswered() | CallStarted() | CallFinished() | CallLate():
            pass
        case _:
            assert_never(fact)


def a_fact_is_forgotten(fact: Fact) -> None:
    match fact:
        case (
            RunStarted()
            | RunResumed()
            | RunEnded()
            | NoteGiven()
            | ReplyJudged()
            | ContextCompacted()
        ):
            pass
        case (
            BudgetAllotted()
            | SteeringGiven()
            | SteeringTaken()
            | LookupsPlanned()
            | KnowledgeRecalled()
        ):
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
        case (
            RunStarted()
            | RunResumed()
            | RunEnded()
            | NoteGiven()
            | ReplyJudged()
            | ContextCompacted()
        ):
            pass
        case (
            BudgetAllotted()
            | SteeringGiven()
            | SteeringTaken()
            | LookupsPlanned()
            | KnowledgeRecalled()
        ):
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


def a_question_is_no_answer(question: Ask) -> AnswerVerdict:
    # expect: "Ask" is not assignable to "Allow"
    return question
