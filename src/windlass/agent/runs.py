"""The runs that one agent drives: opened, found again, seen through, watched."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from windlass.agent.crew import Crew
from windlass.agent.driver import Driver
from windlass.agent.watch import Events
from windlass.core.errors import ConfigError, NothingToDo, RunUnfinished, SessionBusy, SetupDrifted
from windlass.core.events import (
    CallAnswered,
    CallLate,
    Event,
    Fact,
    RunEnded,
    RunResumed,
    RunStarted,
)
from windlass.core.fold import fold
from windlass.core.messages import Content
from windlass.core.report import report
from windlass.core.result import RunResult
from windlass.core.schema import outline
from windlass.core.setup import Setup, digest, drift
from windlass.core.state import State, call_of
from windlass.core.verdicts import Answer, Deny, Modify
from windlass.ports import Watcher, World
from windlass.recorder import Recorder


class Runs:
    """What an agent knows while it runs: which sessions it drives. The rest is in the journal."""

    def __init__(self, world: World, setup: Setup) -> None:
        self._world = world
        self._setup = setup
        self._crew = Crew()
        self._live: dict[str, Driver] = {}

    async def begin(self, prompt: tuple[Content, ...], session: str) -> Driver:
        """A new run in a session, old or new."""
        state = await self._state(session)
        if state.active:
            raise RunUnfinished(
                f"the last run of session {session} has not ended: "
                "resume, answer or abandon it first"
            )
        number = state.run.number + 1 if state.run else 1
        setup = None if state.setup == self._setup else self._setup
        return self._driver(state, RunStarted(number, prompt, setup))

    async def take_over(self, session: str, *, consent: bool) -> Driver:
        """A run that was left open."""
        state = await self._state(session)
        return self._driver(state, self._resumed(state, consent=consent))

    def _resumed(self, state: State, *, consent: bool) -> RunResumed:
        if not state.active or state.setup is None:
            raise NothingToDo(f"session {state.session} has no open run")
        changed = tuple(drift(state.setup, self._setup))
        if changed and not consent:
            raise SetupDrifted(changed)
        return RunResumed(changed, self._setup if changed else None)

    async def answer(
        self, session: str, call_id: str, verdict: Answer, *, by: str, consent: bool
    ) -> Driver:
        """A run whose question is answered."""
        state = await self._state(session)
        call = call_of(state, call_id)
        if not state.active or call is None or call.question is None:
            raise NothingToDo(f"no question about call {call_id} waits in session {session}")
        expires_at = call.question.expires_at
        if expires_at is not None and expires_at < self._world.clock.now():
            verdict = Deny("the question had expired", "expiry")
        schema = self._world.schemas.get(call.call.name)
        if isinstance(verdict, Modify) and schema and not schema.accepts(verdict.arguments):
            raise ConfigError(f"the new arguments do not fit {call.call.name}: {outline(schema)}")
        answered = CallAnswered(call_id, verdict, digest(call.decoded), by)
        return self._driver(state, self._resumed(state, consent=consent), answered)

    async def abandon(self, session: str, reason: str) -> RunResult[Any]:
        """End a run that nobody drives any more."""
        state = await self._state(session)
        if not state.active:
            raise NothingToDo(f"session {session} has no open run")
        recorder = self._recorder(state)
        await recorder.record(RunEnded("cancelled", reason))
        return report(recorder.state, recorded=True)

    async def drive(self, driver: Driver, watcher: Watcher | None) -> RunResult[Any]:
        """See a run through, also when the caller is cancelled meanwhile."""
        session = driver.recorder.session
        if session in self._live:
            raise SessionBusy(f"session {session} is being driven by this agent already")
        if watcher is not None:
            driver.recorder.watchers.append(watcher)
        self._live[session] = driver
        task = asyncio.create_task(driver.drive())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            driver.cancel("the caller was cancelled")
            await see_out(task)
            raise
        finally:
            del self._live[session]

    def cancel(self, session: str, reason: str) -> bool:
        driver = self._live.get(session)
        if driver is not None:
            driver.cancel(reason)
        return driver is not None

    async def watch(self, session: str, after: int) -> AsyncGenerator[Event]:
        """The recorded events of a session, then the live ones: no gap, and nothing twice."""
        driver, events = self._live.get(session), Events[Any]()
        heard = driver.heard() if driver else None
        if driver is not None:
            driver.recorder.watchers.append(events.push)
        try:
            seen = after
            for fact in await self._world.journal.read(session, after):
                seen = fact.seq
                yield fact
            if driver is None:
                return
            if heard is not None and heard.seq == seen:
                yield heard
            async for event in events:
                if event.seq > seen or (event.seq == seen and event.nth):
                    yield event
        finally:
            if driver is not None:
                driver.recorder.watchers.remove(events.push)

    async def close(self) -> None:
        """Stop what is running and wait until nothing is left of it."""
        for session in tuple(self._live):
            self.cancel(session, "the agent was closed")
        await self._crew.rest()

    async def _state(self, session: str) -> State:
        return fold(session, await self._world.journal.read(session))

    def _recorder(self, state: State) -> Recorder:
        return Recorder(self._world.journal, self._world.clock, state)

    def _driver(self, state: State, *opening: Fact) -> Driver:
        recorder = self._recorder(state)
        recorder.on_late = lambda fact: self._crew.start(self._record_late(state.session, fact))
        return Driver(self._world, recorder, self._crew, *opening)

    async def _record_late(self, session: str, fact: CallLate) -> None:
        """A late result goes in with the next record of a live run, else by itself."""
        driver = self._live.get(session)
        if driver is not None and not driver.recorder.closed:
            driver.recorder.late(fact)
        else:
            await self._recorder(await self._state(session)).record(fact)


def new_session() -> str:
    """An id for a new session."""
    return os.urandom(8).hex()


async def see_out(task: asyncio.Task[Any]) -> None:
    """Wait for a task that is about to end, whoever is cancelled meanwhile."""
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})
