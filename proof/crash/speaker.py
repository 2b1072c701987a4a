"""The processes that are killed while a run is spoken to: its driver, and whoever posts.

Both find out from the journal what is to be done. A poster notes each key before it posts and each
receipt after it, so that it is known what the store had acknowledged when it died; the next poster
posts what has no receipt again, with the same key.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from typing_extensions import override

from proof.crash.worker import append_mark, read_marks
from windlass.agent.agent import Agent
from windlass.core.errors import NothingToDo, SessionBusy, WindlassError
from windlass.core.fold.run import fold
from windlass.core.limits import Limits, RaisedLimits
from windlass.core.mail import (
    AnswerMail,
    CancelMail,
    ContinueMail,
    Mail,
    PauseMail,
    RaiseLimitsMail,
    SteerMail,
)
from windlass.core.messages import TextPart
from windlass.core.result import open_questions
from windlass.core.state import State
from windlass.core.verdicts import Allow, Ask, Deny, Verdict
from windlass.journals.postgres.journal import PostgresJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.ports import GateRequest
from windlass.testing.gates import FixedGate
from windlass.testing.script_words import call
from windlass.testing.scripted_model import ScriptedModel
from windlass.tools.function import tool
from windlass.tools.run_context import RunContext

SESSION = "spoken-to"
SENT = "sent.txt"
"""The calls whose effect has happened."""
TRIED = "tried.txt"
"""Keys that a poster was about to post."""
RECEIPTS = "receipts.txt"
"""`key@number` for each message that the store acknowledged."""
STEPS_MAX = 5_000
EFFECT_S = 0.004
POST_S = 0.03
"""Seconds between two messages, on average."""
ASKED_EVERY = 4
"""Every so many calls need an answer."""
SpokenJournal = SqliteJournal | PostgresJournal


class SpeakingJob(NamedTuple):
    """The folder of a trial, and where its journal is."""

    trial: str
    folder: str
    seed: int
    dsn: str = ""

    def open_journal(self) -> SpokenJournal:
        if self.dsn:
            return PostgresJournal(self.dsn, schema=f"spoken_{self.trial}")
        return SqliteJournal(Path(self.folder, "sessions.db"))

    @asynccontextmanager
    async def journal(self) -> AsyncGenerator[SpokenJournal]:
        journal = self.open_journal()
        try:
            yield journal
        finally:
            if isinstance(journal, PostgresJournal):
                await journal.aclose()
            else:
                journal.close()


class AskSometimes(FixedGate):
    """Asks about some of the calls."""

    def __init__(self) -> None:
        super().__init__(Allow())

    @override
    async def judge(self, request: GateRequest) -> Verdict:
        if request.arguments.get("number", 0) % ASKED_EVERY == 0:
            return Ask("May I send it?", "every so many")
        return Allow()


def make_agent(job: SpeakingJob, journal: SpokenJournal) -> Agent[str]:
    """Make an agent whose model asks for one effect after the other, without an end."""

    @tool(effect="write")
    async def send(context: RunContext[None], number: int) -> str:
        """Do something that must not happen twice."""
        await asyncio.sleep(EFFECT_S)
        append_mark(Path(job.folder, SENT), context.call_id)
        await asyncio.sleep(EFFECT_S)
        return f"sent {number}"

    # Each process has numbers of its own: a model that repeats itself would be stopped as stuck.
    first = time.time_ns()
    script = [call("send", {"number": first + nth}) for nth in range(STEPS_MAX)]
    return Agent(
        ScriptedModel(script),
        name="clerk",
        tools=[send],
        gate=AskSometimes(),
        journal=journal,
        limits=Limits(steps=STEPS_MAX),
    )


def run_driver(job: SpeakingJob) -> None:
    """Drive the session whenever it needs it, until its run has ended."""
    asyncio.run(_drive(job))


async def _drive(job: SpeakingJob) -> None:
    async with job.journal() as journal:
        agent = make_agent(job, journal)
        while not (await read_state(journal)).seq:
            with suppress(SessionBusy):
                await agent.start("Go.", session=SESSION, key="once")
        while (await read_state(journal)).is_active:
            with suppress(SessionBusy):
                await agent.drive(SESSION)
            await asyncio.sleep(0.01)
        await agent.drive(SESSION)  # Refuses what was posted too late.
        await agent.aclose()


def run_poster(job: SpeakingJob) -> None:
    """Speak to the run until it has ended."""
    asyncio.run(_speak(job))


async def _speak(job: SpeakingJob) -> None:
    folder = Path(job.folder)
    tried = read_marks(folder / TRIED)
    chance = random.Random(f"{job.seed}/{len(tried)}")
    received = {line.partition("@")[0] for line in read_marks(folder / RECEIPTS)}
    again = deque(key for key in tried if key not in received)
    async with job.journal() as journal:
        while True:
            state = await read_state(journal)
            if state.run is not None and not state.is_active:
                return
            if state.seq:
                key = again.popleft() if again else f"k{time.time_ns()}"
                await _post(journal, state, key, folder, chance)
            await asyncio.sleep(chance.expovariate(1 / POST_S))


async def _post(
    journal: SpokenJournal, state: State, key: str, folder: Path, chance: random.Random
) -> None:
    message = _choose_message(state, chance)
    append_mark(folder / TRIED, key)
    with suppress(NothingToDo):
        receipt = await journal.post_mail(SESSION, message, by="ann", key=key)
        append_mark(folder / RECEIPTS, f"{key}@{receipt.number}")


def _choose_message(state: State, chance: random.Random) -> Mail:
    run = state.run.number if state.run else 1
    questions = open_questions(state)
    if questions and chance.random() < 0.7:  # noqa: PLR2004 - mostly
        question = chance.choice(questions)
        verdict = chance.choice((Allow("a person"), Deny("no")))
        return AnswerMail(
            run=run, call_id=question.call_id, digest=question.digest, verdict=verdict
        )
    if state.is_paused and chance.random() < 0.7:  # noqa: PLR2004 - mostly
        return ContinueMail(run=run)
    kind = chance.choice(("steer", "steer", "steer", "pause", "resume", "raise", "stale"))
    match kind:
        case "pause":
            return PauseMail(run=run)
        case "resume":
            return ContinueMail(run=run)
        case "raise":
            return RaiseLimitsMail(run=run, limits=RaisedLimits(steps=STEPS_MAX + state.seq))
        case "stale":
            return CancelMail(run=run + 1)
        case _:
            return SteerMail(run=run, prompt=(TextPart("Hurry."),))


async def read_state(journal: SpokenJournal) -> State:
    """Read the session anew. A store that is busy for a moment is asked again."""
    while True:
        try:
            return fold(SESSION, await journal.read(SESSION))
        except WindlassError:
            await asyncio.sleep(0.1)
