"""Asking whoever is there: the questions of a run go to its approver, all at once.

Each answer is on record as soon as it is given, so that none is lost when the process dies while
others are still being thought about. An approver that breaks has said no.
"""

import asyncio
from functools import partial

from windlass.agent.approvals import EXPIRED, answered
from windlass.core.errors import ConfigError
from windlass.core.events import CallAnswered
from windlass.core.moves import Hold
from windlass.core.result import Question
from windlass.core.run_report import questions
from windlass.core.verdicts import Always, Answer, Deny, Reply, sound
from windlass.ports import Approver, Clock, World
from windlass.runtime.recorder import Recorder


async def consult(hold: Hold, world: World, recorder: Recorder) -> bool:
    """Whether every question of the hold has its answer on record."""
    approver = world.approver
    if approver is None:
        return False
    held = {call.id for call, _ in hold.questions}
    waiting = [one for one in questions(recorder.state) if one.call.id in held]
    now = world.clock.now()
    asking = [asyncio.create_task(_ask(approver, one, now)) for one in waiting]
    told = 0
    try:
        for task in asyncio.as_completed(asking):
            question, reply = await task
            if reply is None:
                continue
            await recorder.record(_answered(recorder, question, reply, world.clock))
            told += 1
    finally:
        for task in asking:
            task.cancel()
    return told == len(waiting)


def _answered(recorder: Recorder, question: Question, reply: Reply, clock: Clock) -> CallAnswered:
    """The answer as a fact; one that cannot be given so is a no."""
    answer = partial(
        answered,
        recorder.state,
        question.call.id,
        clock=clock,
        digest=question.digest,
        by="approver",
    )
    try:
        return answer(reply)
    except ConfigError as error:
        return answer(Deny(f"the approver's answer does not hold: {error}", "approver-failure"))


async def _ask(approver: Approver, question: Question, now: float) -> tuple[Question, Reply | None]:
    left = None if question.expires_at is None else max(0.0, question.expires_at - now)
    try:
        async with asyncio.timeout(left):
            reply = await approver(question)
    except TimeoutError:
        return question, EXPIRED
    except Exception as error:  # noqa: BLE001 - an approver that breaks has said no
        return question, Deny(f"the approver failed: {type(error).__name__}", "approver-failure")
    if reply is None or isinstance(reply, Always) or sound(reply, Answer):
        return question, reply
    return question, Deny("the approver gave no answer", "approver-failure")
