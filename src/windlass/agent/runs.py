"""The runs that one agent drives: opened, found again, seen through, watched."""

import asyncio
import os
from collections.abc import AsyncGenerator, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from windlass.agent.driver import Opening, RunDriver
from windlass.agent.events import EventStream
from windlass.agent.following import follow_session
from windlass.agent.observers import ObservedRecorder, RunObserver, observe_world
from windlass.agent.state_cache import StateCache
from windlass.core.errors import NothingToDo, SessionBusy
from windlass.core.events import CallLate, Event, Fact, SteeringGiven
from windlass.core.reply_hold import visible_facts
from windlass.core.result import RunResult
from windlass.core.run_report import build_result
from windlass.core.secrets.mask import Mask
from windlass.core.setup import Setup
from windlass.core.state import State
from windlass.ports import Watcher, World
from windlass.runtime.leases import hold_session
from windlass.runtime.leftover_tasks import LeftoverTasks
from windlass.runtime.recorder import Recorder
from windlass.runtime.waiting import wait_until_done

ValueT = TypeVar("ValueT")


class LiveRuns:
    """What an agent knows while it runs: which sessions it drives. The rest is in the journal."""

    def __init__(
        self,
        world: World,
        setup: Setup,
        mask: Mask | None = None,
        observer: RunObserver | None = None,
    ) -> None:
        self._world = world
        self._mask = mask
        self._observer = observer
        self._withholds = setup.withhold_replies
        self._leftover_tasks = LeftoverTasks()
        self._state_cache = StateCache()
        self._live: dict[str, RunDriver] = {}
        self._late_writes: dict[str, asyncio.Task[None]] = {}
        """Late results that are being written, by session."""

    async def write_facts(self, session: str, opening: Opening) -> RunResult[Any]:
        """Write facts into a session that nobody drives."""
        self._check_free(session)
        with await hold_session(self._world.journal, session):
            recorder = self._make_recorder(await self.read_state(session))
            await recorder.record(*opening(recorder.state))
            return build_result(recorder.state, recorded=True)

    async def steer(self, session: str, fact: SteeringGiven) -> None:
        """Write down what a person says meanwhile, in a run that is live here or that nobody has.

        Returns once it is durable; the run heeds it before its next step.
        """
        driver = self._live.get(session)
        if driver is not None and not driver.recorder.is_closed:
            if not await _await_in_loop_of(driver, driver.steering.steer(fact)):
                raise _no_open_run(session)
            return
        # Looked at before it is taken: a run that begins meanwhile must not find it taken.
        if not (await self.read_state(session)).is_active:
            raise _no_open_run(session)

        def opening(state: State) -> Sequence[Fact]:
            if not state.is_active:
                raise _no_open_run(session)
            return (fact,)

        await self.write_facts(session, opening)

    def make_driver(self, session: str, opening: Opening, watcher: Watcher | None) -> RunDriver:
        """A driver that holds its session from now on."""
        self._check_free(session)
        recorder = self._make_recorder(State(session))
        recorder.on_late_result = partial(self._take_late_result, session)
        world = observe_world(self._observer, self._world, recorder)
        if watcher is not None:
            recorder.watchers.append(watcher)
        driver = self._live[session] = RunDriver(
            world, recorder, self._leftover_tasks, opening, self._state_cache
        )
        return driver

    async def drive_to_end(self, driver: RunDriver) -> RunResult[Any]:
        """The result of a run, which ends before whoever waits for it is gone."""
        session = driver.recorder.session
        task = asyncio.create_task(self._drive_after_late(driver))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            driver.cancel("the caller was cancelled")
            await wait_until_done(task)
            raise
        finally:
            driver.recorder.close()
            driver.finished.set()
            for events in driver.late_watchers:
                events.close()
            if self._live.get(session) is driver:
                del self._live[session]

    async def _drive_after_late(self, driver: RunDriver) -> RunResult[Any]:
        late = self._late_writes.get(driver.recorder.session)
        if late is not None:
            await asyncio.wait({late})
        return await driver.drive()

    def cancel(self, session: str, reason: str) -> bool:
        driver = self._live.get(session)
        if driver is None or driver.recorder.is_closed:
            return False
        driver.cancel(reason)
        return True

    async def watch(self, session: str, after: int) -> AsyncGenerator[Event]:
        """The recorded events of a session, then the live ones: no gap, and nothing twice."""
        driver, events = self._live.get(session), EventStream[Any]()
        if driver is not None and driver.recorder.is_closed:
            driver = None
        heard = driver.text_so_far() if driver and not driver.recorder.withholds_replies else None
        if driver is not None:
            heard = heard and driver.recorder.masked_so_far(heard)
            driver.recorder.watchers.append(events.push)
            driver.late_watchers.append(events)
        try:
            seen, journal = after, self._world.journal
            if driver is None:
                withhold = self._withholds
                async for event in follow_session(journal, session, after, withhold=withhold):
                    yield event
                return
            facts = await journal.read(session, after)
            for fact in visible_facts(facts, withhold=self._withholds, live=True):
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
        await asyncio.gather(*(driver.finished.wait() for driver in driven))
        await self._leftover_tasks.drain()

    def _check_free(self, session: str) -> None:
        driver = self._live.get(session)
        if driver is not None and not driver.recorder.is_closed:
            raise SessionBusy(f"session {session} is being driven by this agent: cancel it first")

    async def read_state(self, session: str) -> State:
        return await self._state_cache.read_state(self._world.journal, session)

    def _make_recorder(self, state: State) -> Recorder:
        kind = Recorder if self._observer is None else ObservedRecorder
        return kind(self._world.journal, self._world.clock, state, self._mask)

    def _take_late_result(self, session: str, fact: CallLate) -> None:
        """A late result goes in with the next record of a live run, else by itself."""
        driver = self._live.get(session)
        if driver is not None and not driver.recorder.is_closed:
            driver.recorder.add_late_result(fact)
            return
        before = self._late_writes.get(session)
        late = self._leftover_tasks.start_task(
            self._write_late_result(session, fact, before, driver)
        )
        self._late_writes[session] = late
        late.add_done_callback(partial(self._forget_late_write, session))

    def _forget_late_write(self, session: str, late: asyncio.Task[None]) -> None:
        if self._late_writes.get(session) is late:
            del self._late_writes[session]

    async def _write_late_result(
        self,
        session: str,
        fact: CallLate,
        before: asyncio.Task[None] | None,
        driver: RunDriver | None,
    ) -> None:
        if before is not None:
            await asyncio.wait({before})
        # A run that has ended still holds its session for a moment.
        if driver is not None and driver.loop is asyncio.get_running_loop():
            await driver.finished.wait()
        with await hold_session(self._world.journal, session):
            await self._make_recorder(await self.read_state(session)).record(fact)


async def _await_in_loop_of(driver: RunDriver, work: Coroutine[Any, Any, ValueT]) -> ValueT:
    """Do something where a run is driven, which may be another thread's event loop."""
    if driver.loop is asyncio.get_running_loop():
        return await work
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, driver.loop))


def _no_open_run(session: str) -> NothingToDo:
    return NothingToDo(f"session {session} has no open run: run a new prompt instead")


def new_session() -> str:
    """An id for a new session."""
    return os.urandom(8).hex()
