"""People who speak to a session through its mailbox, and drivers that let go of it."""

import asyncio
from contextlib import suppress

from proof.simulate.agents import build_agent
from proof.simulate.outside import OutsideWorld, ProcessPower, SimJournal, make_prompt
from proof.simulate.people import reply_to_question
from proof.simulate.plan_control import LetterKind, PlannedLetter, PlannedRelease
from windlass.agent.agent import Agent
from windlass.agent.answering import answer
from windlass.core.errors import NothingToDo, QuestionDecided, SessionBusy
from windlass.core.fold.run import fold
from windlass.core.limits import RaisedLimits
from windlass.core.mail import (
    AnswerMail,
    CancelMail,
    ContinueMail,
    Mail,
    PauseMail,
    PromptMail,
    RaiseLimitsMail,
    ReleaseMail,
    SteerMail,
)
from windlass.core.messages import TextPart
from windlass.core.question import Question
from windlass.core.verdicts import Allow, Deny
from windlass.runtime.running_calls import PROCESS_TURN, SuspectTurn
from windlass.testing.clock import VirtualClock

RAISED_S = 40.0
"""The limit of time that a message raises a run to."""


def start_control(
    outside: OutsideWorld, agent: Agent[str], process: int
) -> list[asyncio.Task[None]]:
    """Start the tasks that are planned to run beside a process."""
    control = outside.plan.control
    tasks = [
        asyncio.create_task(_post_later(outside, letter, f"Letter {process}.{nth}"))
        for nth, letter in enumerate(control.letters)
        if letter.process == process
    ]
    tasks += [
        asyncio.create_task(_release_later(outside, agent, release))
        for release in control.releases
        if release.process == process
    ]
    if process == 1 and control.queued_after_s is not None and outside.plan.runs > 1:
        tasks.append(asyncio.create_task(_queue_later(outside, control.queued_after_s)))
    return tasks


def start_rivals(
    outside: OutsideWorld, clock: VirtualClock, process: int
) -> list[asyncio.Task[None]]:
    """Start the sweeps of other processes that look for work at the same time as a process."""
    return [
        asyncio.create_task(_drive_too(outside, clock, rival.after_s))
        for rival in outside.plan.control.rivals
        if rival.process == process
    ]


async def _drive_too(outside: OutsideWorld, clock: VirtualClock, after_s: float) -> None:
    await asyncio.sleep(after_s)
    if not await outside.store.read(outside.plan.session):
        return  # No sweep knows of it yet.
    PROCESS_TURN.set(SuspectTurn())
    agent = build_agent(outside, ProcessPower(), clock)
    with suppress(SessionBusy):
        await agent.drive(outside.plan.session)


async def _queue_later(outside: OutsideWorld, after_s: float) -> None:
    await asyncio.sleep(after_s)
    plan = outside.plan
    message = PromptMail(
        prompt=(TextPart(make_prompt(plan, 2)),), pinned=plan.more.pinned[1], key="second"
    )
    for _ in range(2 if plan.control.is_queued_again else 1):
        await post_letter(outside, message, "second")


async def _release_later(outside: OutsideWorld, agent: Agent[str], release: PlannedRelease) -> None:
    await asyncio.sleep(release.after_s)
    agent.release(outside.plan.session, "planned", release.grace_s)


async def _post_later(outside: OutsideWorld, letter: PlannedLetter, text: str) -> None:
    await asyncio.sleep(letter.after_s)
    run = await outside.last_run() + (letter.kind == "stale")
    opening = await outside.last_opening()
    message = _make_message(letter.kind, run, opening, text)
    for _ in range(2 if letter.is_repeated else 1):
        await post_letter(outside, message, text)


def _make_message(kind: LetterKind, run: int, opening: int, text: str) -> Mail:
    match kind:
        case "steer":
            return SteerMail(run=run, prompt=(TextPart(text),))
        case "pause":
            return PauseMail(run=run, reason="planned")
        case "resume":
            return ContinueMail(run=run)
        case "cancel" | "stale":
            return CancelMail(run=run, reason="planned")
        case "release":
            return ReleaseMail(run=run, opening=opening, reason="planned")
        case "raise":
            return RaiseLimitsMail(run=run, limits=RaisedLimits(seconds=RAISED_S))


async def post_letter(outside: OutsideWorld, message: Mail, key: str) -> None:
    """Post a message from a process of its own. The same key never counts twice."""
    journal = SimJournal(outside, ProcessPower())
    with suppress(NothingToDo):
        await journal.post_mail(outside.plan.session, message, by="ann", key=key)


async def answer_by_mail(outside: OutsideWorld, waiting: tuple[Question, ...]) -> None:
    """Post the answers to all questions; the next driver takes them."""
    state = fold(outside.plan.session, await outside.store.read(outside.plan.session))
    for question in waiting:
        message = AnswerMail(
            run=state.run.number if state.run else 0,
            call_id=question.call_id,
            digest=question.digest,
            verdict=reply_to_question(outside, question),
            session=question.session if question.session != state.session else "",
        )
        key = f"answer {len(outside.posted)}"
        await post_letter(outside, message, key)
        await answer_second(outside, question.session, question)


async def answer_second(outside: OutsideWorld, session: str, question: Question) -> None:
    """Answer a question that has its answer, with the opposite, as another person may."""
    journal = SimJournal(outside, ProcessPower())
    reply = Deny("rather not") if len(outside.told) % 2 else Allow("why not")
    try:
        await answer(journal, session, question.call_id, reply, digest=question.digest, by="eve")
    except QuestionDecided as decided:
        outside.told.append((session, question.call_id, decided.decision))
    except NothingToDo:
        return  # The run has ended.
    else:
        outside.problems.append(f"G6: a second answer to {question.call_id} was accepted")
