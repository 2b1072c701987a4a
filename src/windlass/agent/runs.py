"""The runs that one agent drives: opened, found again, seen through, watched."""

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from windlass.agent.crew import Crew
from windlass.agent.driver import Driver, Opening
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
from windlass.core.verdicts import Answer, Deny, Modify, sound
from windlass.ports import Watcher, World
from windlass.recorder import Recorder


class Runs:
    """What an agent knows while it runs: which sessions it drives. The rest is in the journal."""

    def __init__(self, world: World, setup: Setup) -> None:
        self._world = world
        self._setup = setup
        self._crew = Crew()
        self._live: dict[str, Driver] = {}
        self._late: dict[str, asyncio.Task[None]] = {}
        """Late results that are being written, by session."""

    def begin(self, state: State, prompt: tuple[Content, ...]) -> Sequence[Fact]:
        """What opens a new run in a session, old or new."""
        if state.active:
            raise RunUnfinished(
                f"the last run of session {state.session} has not ended: "
                "resume, answer or abandon it first"
            )
        number = state.run.number + 1 if state.run else 1
        setup = None if state.setup == self._setup else self._setup
        return (RunStarted(number, prompt, setup),)

    def take_over(self, state: State, *, consent: bool) -> Sequence[Fact]:
        """What opens a run that was left open. The limits of whoever goes on with it count."""
        if not state.active or state.setup is None:
            raise NothingToDo(f"session {state.session} has no open run")
        changed = tuple(drift(state.setup, self._setup))
        if changed and not consent:
            raise SetupDrifted(changed)
        setup = None if state.setup == self._setup else self._setup
        return (RunResumed(changed, setup),)

    def answer(
        self, state: State, call_id: str, verdict: Answer, *, by: str, consent: bool
    ) -> Sequence[Fact]:
        """What opens a run whose question is answered."""
        call = call_of(state, call_id)
        if not state.active or call is None or call.question is None:
            told = f"no question about call {call_id} waits in session {state.session}"
            raise NothingToDo(told)
        if not sound(verdict, Answer):
            raise ConfigError(f"{verdict!r} is no answer: give Allow(), Deny(…) or Modify(…)")
        expires_at = call.question.expires_at
        if expires_at is not None and expires_at < max(self._world.clock.now(), state.at):
            verdict = Deny("the question had expired", "expiry")
        schema = self._world.schemas.get(call.call.name)
        if isinstance(verdict, Modify) and schema and not schema.accepts(verdict.arguments):
            raise ConfigError(f"the new arguments do not fit {call.call.name}: {outline(schema)}")
        answered = CallAnswered(call_id, verdict, digest(call.decoded), str(by))
        return (*self.take_over(state, consent=consent), answered)

    def abandon(self, state: State, reason: str) -> Sequence[Fact]:
        """What ends a run that nobody drives any more."""
        if not state.active:
            raise NothingToDo(f"session {state.session} has no open run")
        return (RunResumed(), RunEnded("cancelled", str(reason)))

    async def write(self, session: str, opening: Opening) -> RunResult[Any]:
        """Write facts into a session that nobody drives."""
        self._free(session)
        recorder = self._recorder(await self._state(session))
        await recorder.record(*opening(recorder.state))
        return report(recorder.state, recorded=True)

    async def drive(
        self, session: str, opening: Opening, watcher: Watcher | None
    ) -> RunResult[Any]:
        """See a run through, also when the caller is cancelled meanwhile."""
        driver = self.driver(session, opening, watcher)
        return await self.see_through(driver)

    def driver(self, session: str, opening: Opening, watcher: Watcher | None) -> Driver:
        """A driver that holds its session from now on."""
        self._free(session)
        recorder = self._recorder(State(session))
        recorder.on_late = partial(self._take_late, session)
        if watcher is not None:
            recorder.watchers.append(watcher)
        driver = self._live[session] = Driver(self._world, recorder, self._crew, opening)
        return driver

    async def see_through(self, driver: Driver) -> RunResult[Any]:
        """The result of a run, which ends before whoever waits for it is gone."""
        session = driver.recorder.session
        task = asyncio.create_task(self._driven(driver))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            driver.cancel("the caller was cancelled")
            await see_out(task)
            raise
        finally:
            driver.recorder.close()
            driver.gone.set()
            for events in driver.attached:
                events.close()
            if self._live.get(session) is driver:
                del self._live[session]

    async def _driven(self, driver: Driver) -> RunResult[Any]:
        late = self._late.get(driver.recorder.session)
        if late is not None:
            await asyncio.wait({late})
        return await driver.drive()

    def cancel(self, session: str, reason: str) -> bool:
        driver = self._live.get(session)
        if driver is None or driver.recorder.closed:
            return False
        driver.cancel(reason)
        return True

    async def watch(self, session: str, after: int) -> AsyncGenerator[Event]:
        """The recorded events of a session, then the live ones: no gap, and nothing twice."""
        driver, events = self._live.get(session), Events[Any]()
        if driver is not None and driver.recorder.closed:
            driver = None
        heard = driver.heard() if driver else None
        if driver is not None:
            driver.recorder.watchers.append(events.push)
            driver.attached.append(events)
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
            if driver is not None and events.push in driver.recorder.watchers:
                driver.recorder.watchers.remove(events.push)

    async def close(self) -> None:
        """Stop what runs in this event loop and wait until nothing is left of it."""
        here = asyncio.get_running_loop()
        driven = [driver for driver in self._live.values() if driver.loop is here]
        for driver in driven:
            driver.cancel("the agent was closed")
        await asyncio.gather(*(driver.gone.wait() for driver in driven))
        await self._crew.rest()

    def _free(self, session: str) -> None:
        driver = self._live.get(session)
        if driver is not None and not driver.recorder.closed:
            raise SessionBusy(f"session {session} is being driven by this agent: cancel it first")

    async def _state(self, session: str) -> State:
        return fold(session, await self._world.journal.read(session))

    def _recorder(self, state: State) -> Recorder:
        return Recorder(self._world.journal, self._world.clock, state)

    def _take_late(self, session: str, fact: CallLate) -> None:
        """A late result goes in with the next record of a live run, else by itself."""
        driver = self._live.get(session)
        if driver is not None and not driver.recorder.closed:
            driver.recorder.late(fact)
            return
        before = self._late.get(session)
        self._late[session] = self._crew.start(self._record_late(session, fact, before))

    async def _record_late(
        self, session: str, fact: CallLate, before: asyncio.Task[None] | None
    ) -> None:
        if before is not None:
            await asyncio.wait({before})
        await self._recorder(await self._state(session)).record(fact)


def new_session() -> str:
    """An id for a new session."""
    return os.urandom(8).hex()


async def see_out(task: asyncio.Task[Any]) -> None:
    """Wait for a task that is about to end, whoever is cancelled meanwhile."""
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})
