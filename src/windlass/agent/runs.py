"""The runs that one agent drives: opened, found again, seen through, watched."""

import asyncio
import os
from collections.abc import AsyncGenerator, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from windlass.agent.driver import Driver, Opening
from windlass.agent.events import Events
from windlass.agent.following import followed
from windlass.agent.observers import Metered, Observer, observed
from windlass.agent.state_cache import Known
from windlass.core.errors import NothingToDo, SessionBusy
from windlass.core.events import CallLate, Event, Fact, Steered
from windlass.core.reply_hold import told
from windlass.core.result import RunResult
from windlass.core.run_report import report
from windlass.core.secrets.mask import Mask
from windlass.core.setup import Setup
from windlass.core.state import State
from windlass.ports import Watcher, World
from windlass.runtime.leases import held
from windlass.runtime.leftover_tasks import Crew
from windlass.runtime.recorder import Recorder
from windlass.runtime.waiting import see_out

ValueT = TypeVar("ValueT")


class Runs:
    """What an agent knows while it runs: which sessions it drives. The rest is in the journal."""

    def __init__(
        self,
        world: World,
        setup: Setup,
        mask: Mask | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._world = world
        self._mask = mask
        self._observer = observer
        self._withholds = setup.withhold_replies
        self._crew = Crew()
        self._known = Known()
        self._live: dict[str, Driver] = {}
        self._late: dict[str, asyncio.Task[None]] = {}
        """Late results that are being written, by session."""

    async def write(self, session: str, opening: Opening) -> RunResult[Any]:
        """Write facts into a session that nobody drives."""
        self._free(session)
        with await held(self._world.journal, session):
            recorder = self._recorder(await self.state(session))
            await recorder.record(*opening(recorder.state))
            return report(recorder.state, recorded=True)

    async def steer(self, session: str, fact: Steered) -> None:
        """Write down what a person says meanwhile, in a run that is live here or that nobody has.

        Returns once it is durable; the run heeds it before its next step.
        """
        driver = self._live.get(session)
        if driver is not None and not driver.recorder.closed:
            if not await _in_loop_of(driver, driver.helm.steer(fact)):
                raise _too_late(session)
            return
        # Looked at before it is taken: a run that begins meanwhile must not find it taken.
        if not (await self.state(session)).active:
            raise _too_late(session)

        def opening(state: State) -> Sequence[Fact]:
            if not state.active:
                raise _too_late(session)
            return (fact,)

        await self.write(session, opening)

    def driver(self, session: str, opening: Opening, watcher: Watcher | None) -> Driver:
        """A driver that holds its session from now on."""
        self._free(session)
        recorder = self._recorder(State(session))
        recorder.on_late = partial(self._take_late, session)
        world = observed(self._observer, self._world, recorder)
        if watcher is not None:
            recorder.watchers.append(watcher)
        driver = self._live[session] = Driver(world, recorder, self._crew, opening, self._known)
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
        heard = driver.heard() if driver and not driver.recorder.withholds else None
        if driver is not None:
            heard = heard and driver.recorder.caught_up(heard)
            driver.recorder.watchers.append(events.push)
            driver.attached.append(events)
        try:
            seen, journal = after, self._world.journal
            if driver is None:
                withhold = self._withholds
                async for event in followed(journal, session, after, withhold=withhold):
                    yield event
                return
            facts = await journal.read(session, after)
            for fact in told(facts, withhold=self._withholds, live=True):
                seen = fact.seq
                yield fact
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

    async def state(self, session: str) -> State:
        return await self._known.read(self._world.journal, session)

    def _recorder(self, state: State) -> Recorder:
        kind = Recorder if self._observer is None else Metered
        return kind(self._world.journal, self._world.clock, state, self._mask)

    def _take_late(self, session: str, fact: CallLate) -> None:
        """A late result goes in with the next record of a live run, else by itself."""
        driver = self._live.get(session)
        if driver is not None and not driver.recorder.closed:
            driver.recorder.late(fact)
            return
        before = self._late.get(session)
        late = self._crew.start(self._record_late(session, fact, before, driver))
        self._late[session] = late
        late.add_done_callback(partial(self._forget_late, session))

    def _forget_late(self, session: str, late: asyncio.Task[None]) -> None:
        if self._late.get(session) is late:
            del self._late[session]

    async def _record_late(
        self,
        session: str,
        fact: CallLate,
        before: asyncio.Task[None] | None,
        driver: Driver | None,
    ) -> None:
        if before is not None:
            await asyncio.wait({before})
        # A run that has ended still holds its session for a moment.
        if driver is not None and driver.loop is asyncio.get_running_loop():
            await driver.gone.wait()
        with await held(self._world.journal, session):
            await self._recorder(await self.state(session)).record(fact)


async def _in_loop_of(driver: Driver, work: Coroutine[Any, Any, ValueT]) -> ValueT:
    """Do something where a run is driven, which may be another thread's event loop."""
    if driver.loop is asyncio.get_running_loop():
        return await work
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, driver.loop))


def _too_late(session: str) -> NothingToDo:
    return NothingToDo(f"session {session} has no open run: run a new prompt instead")


def new_session() -> str:
    """An id for a new session."""
    return os.urandom(8).hex()
