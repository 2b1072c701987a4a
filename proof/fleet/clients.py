"""The clients of a fleet: they begin runs and speak to them, and note what was acknowledged."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from proof.fleet.app import AGENT
from proof.fleet.history import PostedMessage, SessionHistory
from proof.fleet.provider import write_prompt
from windlass.core.errors import NothingToDo, WindlassError
from windlass.core.mail import ContinueMail, Mail, PromptMail, SteerMail
from windlass.core.messages import TextPart
from windlass.journals.postgres.journal import PostgresJournal

SPOKEN_TO = 0.3
"""The part of the runs that a person speaks to."""
AGAIN_S = 0.3
"""How long a client waits before it posts a message again that was not acknowledged."""
TRIES_MAX = 100


class FleetClients:
    """Begin runs at a steady rate, and remember them."""

    def __init__(self, journal: PostgresJournal, seed: int) -> None:
        self._journal = journal
        self._random = random.Random(seed)
        self._tasks: set[asyncio.Task[None]] = set()
        self.histories: dict[str, SessionHistory] = {}
        self.spoken_to: set[str] = set()
        self.parked: set[str] = set()
        """Sessions that waited for a person because many drivers in a row died in them."""

    async def run(self, seconds: float, runs_per_s: float) -> None:
        """Begin runs for some time, and return when everything was acknowledged."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + seconds
        while loop.time() < ends_at:
            session = f"s{len(self.histories) + 1}"
            self.histories[session] = SessionHistory(session)
            self._start(self._begin(session))
            await asyncio.sleep(self._random.expovariate(runs_per_s))
        await asyncio.gather(*self._tasks)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _begin(self, session: str) -> None:
        text = write_prompt(session)
        prompt = PromptMail(prompt=(TextPart(text),), agent=AGENT, key=session)
        await self._post(session, text, lambda: prompt)
        if self._random.random() < SPOKEN_TO:
            self.spoken_to.add(session)
            await asyncio.sleep(self._random.uniform(0.2, 1.5))
            words = f"Something to {session}."
            steer = SteerMail(run=1, prompt=(TextPart(words),))
            with suppress(NothingToDo):  # It has not begun yet, so there is nobody to speak to.
                await self._post(session, words, lambda: steer)

    async def resume_parked(self, session: str) -> None:
        """Have a run go on that waits for a person."""
        if session not in self.parked:
            self.parked.add(session)
            await self._journal.post_mail(session, ContinueMail(run=1), key=f"resume {session}")

    async def _post(self, session: str, text: str, make: Callable[[], Mail]) -> None:
        """Post a message until it is acknowledged. The key makes it count once."""
        message = make()
        lane = "prompts" if isinstance(message, PromptMail) else "control"
        for _ in range(TRIES_MAX):
            try:
                receipt = await self._journal.post_mail(session, message, key=f"{lane} {session}")
            except NothingToDo:
                raise
            except WindlassError:
                await asyncio.sleep(AGAIN_S)
            else:
                self.histories[session].posted.append(PostedMessage(lane, text, receipt.number))
                return
        self.histories[session].posted.append(PostedMessage(lane, text, None))
