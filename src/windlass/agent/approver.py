"""Asking whoever is there: the questions of a run go to its approver, all at once.

Each answer is on record as soon as it is given, so that none is lost when the process dies while
others are still being thought about. An approver that breaks has said no.
"""

import asyncio
from functools import partial

from windlass.agent.approvals import EXPIRED_DENIAL, make_answer
from windlass.core.errors import ConfigError
from windlass.core.events import CallAnswered
from windlass.core.moves import WaitForAnswers
from windlass.core.result import Question
from windlass.core.run_report import open_questions
from windlass.core.verdicts import AllowAlways, AnswerVerdict, Deny, PersonAnswer, is_sound_verdict
from windlass.ports import Approver, Clock, World
from windlass.runtime.recorder import Recorder


async def consult_approver(hold: WaitForAnswers, world: World, recorder: Recorder) -> bool:
    """Whether every question of the hold has its answer on record."""
    approver = world.approver
    if approver is None:
        return False
    held_ids = {call.id for call, _ in hold.questions}
    waiting = [one for one in open_questions(recorder.state) if one.call.id in held_ids]
    now = world.clock.now()
    asking = [asyncio.create_task(_ask_approver(approver, one, now)) for one in waiting]
    answered_count = 0
    try:
        for task in asyncio.as_completed(asking):
            question, reply = await task
            if reply is None:
                continue
            await recorder.record(_answer_or_deny(recorder, question, reply, world.clock))
            answered_count += 1
    finally:
        for task in asking:
            task.cancel()
    return answered_count == len(waiting)


def _answer_or_deny(
    recorder: Recorder, question: Question, reply: PersonAnswer, clock: Clock
) -> CallAnswered:
    """The answer as a fact; one that cannot be given so is a no."""
    answer_with = partial(
        make_answer,
        recorder.state,
        question.call.id,
        clock=clock,
        digest=question.digest,
        by="approver",
    )
    try:
        return answer_with(reply)
    except ConfigError as error:
        return answer_with(
            Deny(f"the approver's answer does not hold: {error}", "approver-failure")
        )


async def _ask_approver(
    approver: Approver, question: Question, now: float
) -> tuple[Question, PersonAnswer | None]:
    left_s = None if question.expires_at is None else max(0.0, question.expires_at - now)
    try:
        async with asyncio.timeout(left_s):
            reply = await approver(question)
    except TimeoutError:
        return question, EXPIRED_DENIAL
    except Exception as error:  # noqa: BLE001 - an approver that breaks has said no
        return question, Deny(f"the approver failed: {type(error).__name__}", "approver-failure")
    if reply is None or isinstance(reply, AllowAlways) or is_sound_verdict(reply, AnswerVerdict):
        return question, reply
    return question, Deny("the approver gave no answer", "approver-failure")
