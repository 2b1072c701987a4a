"""The runs that one agent drives, and watching a session wherever it is driven.

Invariant: a session belongs to its driver from the first moment. It is registered before it is
read, so that two runs of one agent never share a session; everything else is in the journal.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from windlass.agent import lazy_imports
from windlass.agent.approvals import answer_from_mail, consult_approver, deny_expired
from windlass.agent.child_sessions import UndrivenRuns, read_progress_below
from windlass.agent.control import check_takes_steering
from windlass.agent.event_stream import Observation, ObservedTools, begin_observation
from windlass.agent.options import AgentParts
from windlass.core.errors import NothingToDo, SessionBusy
from windlass.core.events import CallLate, Event, Fact, SteeringGiven
from windlass.core.result import RunResult
from windlass.core.state import State
from windlass.journals.wording import describe_unknown_session
from windlass.ports import CallerRun, RunBoundTools, Watcher, World
from windlass.runtime.driver import DriverServices, Opening, RunDriver
from windlass.runtime.leases import StateCache, hold_session, wait_for_writer
from windlass.runtime.leftover_tasks import LeftoverTasks, wait_until_done
from windlass.runtime.publisher import EventPublisher
from windlass.runtime.recorder import Recorder
from windlass.runtime.run_control import RunControl

ValueT = TypeVar("ValueT")
PAUSED_OUTCOMES = ("suspended", "paused", "released")
"""Outcomes that are not ends: the run can be resumed."""
RELEASE_GRACE_S = 10.0
"""How long the calls of a run that is released may take to finish, in seconds."""


MOVED_REST_S = 10.0
"""How long a run that was moved away is left to other drivers; then this one may take it again."""


class LaunchedRun(msgspec.Struct, frozen=True):
    """A run that a task of this agent drives.

    A caller may be tied to the run: if it is cancelled, the run is cancelled and ends first.
    """

    driver: RunDriver
    task: "asyncio.Task[RunResult[Any]]"

    @property
    def number(self) -> int:
        """The number of the run in its session; 0 if its first fact is not durable."""
        return self.driver.opened.result() if self.driver.opened.done() else 0

    async def wait(self, *, is_tied: bool) -> RunResult[Any]:
        """Return the result of the run.

        Raises KeyboardInterrupt or SystemExit if a part of the run did, once the run has ended.
        """
        try:
            result = await asyncio.shield(self.task)
        except asyncio.CancelledError:
            if is_tied:
                await self.stop("the caller was cancelled")
            raise
        if self.driver.program_exit is not None:
            raise self.driver.program_exit
        return result

    async def stop(self, reason: str) -> None:
        """Cancel the run, and return once it has ended."""
        self.driver.cancel(reason)
        await wait_until_done(self.task)


class LiveRuns:
    """The sessions that one agent drives now."""

    def __init__(self, parts: AgentParts) -> None:
        self.world = world = parts.world
        self.mask = parts.mask
        self._observer = parts.observer
        self._withholds_replies = parts.setup.withhold_replies
        self._leftovers = LeftoverTasks()
        self._state_cache = StateCache(parts.mask)
        self.undriven = UndrivenRuns(world.journal, world.clock, parts.mask)
        self._services = DriverServices(
            self._leftovers,
            self._state_cache,
            consult_approver,
            answer_from_mail,
            deny_expired,
            partial(read_progress_below, world.journal),
        )
        self._drivers: dict[str, RunDriver] = {}
        self._late_writes: dict[str, asyncio.Task[None]] = {}
        """Late results that are being written, by session."""
        self.on_undo_due: Callable[[str], Coroutine[Any, Any, None]] | None = None
        """Undoes the last run of a session, which has just ended."""
        self._undoing: dict[str, asyncio.Task[None]] = {}
        self._moved: dict[str, tuple[int, float]] = {}
        """Runs that a caller moved to another driver: the opening of the last one here, and when
        it released the run."""

    def make_driver(
        self,
        session: str,
        opening: Opening,
        watcher: Watcher | None = None,
        *,
        leaves_waiting: bool = False,
    ) -> RunDriver:
        """Make a driver that owns its session from now on; `leaves_waiting`: see RunDriver.

        Raises SessionBusy if this agent drives the session already.
        """
        self.check_free(session)
        observation = begin_observation(self._observer, self.world, session)
        observer = None if observation is None else observation.watcher
        publisher = EventPublisher(self.mask, watcher, observer=observer)
        recorder = Recorder(
            self.world.journal,
            self.world.clock,
            State(session),
            self.mask,
            publisher,
            on_late_result=partial(self._take_late_result, session),
        )
        control = RunControl(recorder, self._leftovers, self.undriven.end_children)
        driver = RunDriver(
            self._world_for(recorder, observation, control),
            recorder,
            control,
            opening,
            self._services,
            earlier_write=self._late_writes.get(session),
        )
        driver.leaves_waiting = leaves_waiting
        self._drivers[session] = driver
        return driver

    def _world_for(
        self, recorder: Recorder, observation: Observation | None, control: RunControl
    ) -> World:
        """Return the world of one run: its tools know the run, or its trace, where they need to."""
        tools = self.world.tools

        def read_state() -> State:
            return recorder.state

        caller = CallerRun(
            self.world,
            self.mask,
            read_state,
            recorder.publisher.show_delta,
            control.add_child,
            control.remove_child,
            control.pause_run,
        )
        if isinstance(tools, RunBoundTools):
            tools = tools.bind_run(caller)
        if observation is not None:
            observation.trace.add_session(recorder.session, read_state)
            tools = ObservedTools(tools, observation.trace)
        return replace(self.world, tools=tools, run=caller)

    async def begin(
        self,
        session: str,
        opening: Opening,
        watcher: Watcher | None = None,
        *,
        is_tied: bool = False,
        waits_for_writer: bool = False,
        on_ended: Callable[[str], None] | None = None,
    ) -> LaunchedRun:
        """Begin to drive a session. Returns once the first fact is durable; raises if none was.

        `is_tied`: see LaunchedRun. `waits_for_writer`: if the session is leased by a process that
        only writes a message, wait for it; otherwise raise SessionBusy at once.
        `on_ended` gets the name of the session when the run has ended and the session is free.
        """
        while True:
            launched = self.launch(self.make_driver(session, opening, watcher), on_ended)
            begun = {launched.driver.opened, launched.task}
            try:
                await asyncio.wait(begun, return_when=asyncio.FIRST_COMPLETED)
                if not launched.driver.opened.done():
                    launched.task.result()
            except asyncio.CancelledError:
                if is_tied:
                    await launched.stop("the caller was cancelled")
                raise
            except SessionBusy:
                seq = (await self.read_state(session)).seq
                journal = self.world.journal
                if not waits_for_writer or not await wait_for_writer(journal, session, seq):
                    raise
            else:
                return launched

    def launch(
        self, driver: RunDriver, on_ended: Callable[[str], None] | None = None
    ) -> LaunchedRun:
        """Drive a run in its own task, which continues without its caller."""
        task = asyncio.create_task(self._drive(driver, on_ended))
        self._leftovers.track(task)
        return LaunchedRun(driver, task)

    async def drive_to_end(self, driver: RunDriver) -> RunResult[Any]:
        """Drive a run and return its result. The caller is tied to it."""
        return await self.launch(driver).wait(is_tied=True)

    async def _drive(
        self, driver: RunDriver, on_ended: Callable[[str], None] | None
    ) -> RunResult[Any]:
        try:
            result = await driver.drive()
        finally:
            driver.finish()
            if self._drivers.get(driver.session) is driver:
                del self._drivers[driver.session]
            if driver.control.moved_from:
                self._moved[driver.session] = (driver.control.moved_from, self.world.clock.now())
        if result.undo_due and self.on_undo_due is not None:
            session = driver.session
            undo = self.on_undo_due(driver.session)
            self._undoing[session] = task = self.start_task(undo)
            task.add_done_callback(lambda _: self._undoing.pop(session))
        if on_ended is not None and result.outcome not in PAUSED_OUTCOMES:
            on_ended(driver.session)
        return result

    async def wait_for_undo(self, session: str) -> None:
        """Wait until the last run of a session is undone, if that is under way here."""
        task = self._undoing.get(session)
        if task is not None:
            await asyncio.wait({task})

    def cancel(self, session: str, reason: str) -> bool:
        """Stop the run of a session. Returns whether this agent drives one."""
        driver = self.find_live(session)
        if driver is not None:
            driver.cancel(reason)
        return driver is not None

    async def steer(self, session: str, fact: SteeringGiven) -> None:
        """Record what a person says to a run that this agent drives, or that has no driver.

        Returns once it is durable; the run takes it up before its next step. Raises NothingToDo if
        the session has no open run, or one that undoes an earlier run.
        """
        driver = self.find_live(session)
        if driver is not None:
            if not await _await_in_loop_of(driver, driver.control.steer(fact)):
                check_takes_steering(await self.read_state(session))
                raise NothingToDo(f"the run of session {session} is about to end: start a new one")
            return
        # Read before the session is taken: a run that begins meanwhile must not find it taken.
        state = await self.read_state(session)
        if not state.seq:
            raise await self.unknown_session(session)
        check_takes_steering(state)

        def opening(state: State) -> Sequence[Fact]:
            check_takes_steering(state)
            return (fact,)

        await self.write_facts(session, opening)

    async def write_facts(self, session: str, opening: Opening) -> None:
        """Write facts into a session without a driver."""
        self.check_free(session)
        with await hold_session(self.world.journal, session):
            recorder = self._make_recorder(await self.read_state(session))
            if facts := opening(recorder.state):  # Else another driver has written them already.
                await recorder.record(*facts)

    async def watch(self, session: str, after: int) -> AsyncGenerator[Event]:
        """Yield the recorded events of a session, then the live ones: no gap, and nothing twice."""
        journal = self.world.journal
        withhold = self._withholds_replies
        driver = self.find_live(session)
        # A driver in another thread is followed like one in another process: it cannot be touched.
        if driver is None or driver.event_loop is not asyncio.get_running_loop():
            following = lazy_imports.follow_session(
                journal, session, after, self.mask, withhold=withhold
            )
            async with aclosing(following) as events:
                async for event in events:
                    after = max(after, event.seq)
                    yield event
            if not after and not await journal.read(session):
                raise await self.unknown_session(session)
            return
        following = lazy_imports.follow_driver(driver, journal, after, self.mask, withhold=withhold)
        async with aclosing(following) as events:
            async for event in events:
                yield event

    async def abandon(self, session: str, reason: str) -> RunResult[Any]:
        """End a run without a driver, with its sub-agents."""
        if not (await self.read_state(session)).seq:
            raise await self.unknown_session(session)
        self.check_free(session)
        return await self.undriven.abandon(session, reason)

    def release(
        self,
        session: str,
        reason: str,
        grace_s: float = RELEASE_GRACE_S,
        reply_s: float = 0.0,
    ) -> bool:
        """Release the run of a session. Returns whether this agent drives one."""
        driver = self.find_live(session)
        if driver is not None:
            driver.release(reason, grace_s, reply_s)
        return driver is not None

    async def is_moved(self, session: str) -> bool:
        """Return whether a run was moved away from here, and another driver may still come."""
        moved = self._moved.get(session)
        if moved is None:
            return False
        opening, at = moved
        run = (await self.read_state(session)).run
        if self.world.clock.now() - at < MOVED_REST_S and run and run.opening_seq == opening:
            return True
        del self._moved[session]
        return False

    async def wait_until_idle(self) -> None:
        """Return when this agent drives no run in this event loop."""
        loop = asyncio.get_running_loop()
        drivers = [driver for driver in self._drivers.values() if driver.event_loop is loop]
        await asyncio.gather(*(driver.finished.wait() for driver in drivers))

    async def close(self, *, cancel: bool) -> None:
        """Stop the runs of this event loop and wait until nothing is left of them.

        They are cancelled, or released so that another process can resume them.
        """
        loop = asyncio.get_running_loop()
        drivers = [driver for driver in self._drivers.values() if driver.event_loop is loop]
        for driver in drivers:
            if cancel:
                driver.cancel("the agent was closed")
            else:
                driver.release("the agent was closed", RELEASE_GRACE_S)
        await asyncio.gather(*(driver.finished.wait() for driver in drivers))
        await self._leftovers.drain()

    async def unknown_session(self, session: str) -> NothingToDo:
        """Return the error for a session that the journal does not have, with near names."""
        return NothingToDo(await describe_unknown_session(self.world.journal, session))

    async def is_driven(self, session: str) -> bool:
        """Return whether a living driver, here or elsewhere, has the lease of a session."""
        return await self.world.journal.is_leased(session)

    def start_task(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        return self._leftovers.start_task(work)

    def note_new(self, session: str) -> None:
        """Note that a session was given its name just now: there is nothing to read of it."""
        self._state_cache.keep(State(session), None)

    async def read_state(self, session: str) -> State:
        return await self._state_cache.read_state(self.world.journal, session)

    def find_live(self, session: str) -> RunDriver | None:
        """Return the driver of a session, if this agent drives it now."""
        driver = self._drivers.get(session)
        return driver if driver is not None and driver.is_live else None

    def live_sessions(self) -> list[str]:
        """Return the sessions that this agent drives now."""
        return [session for session in self._drivers if self.find_live(session) is not None]

    def check_free(self, session: str) -> None:
        """Raise SessionBusy if this agent drives a session."""
        if self.find_live(session) is not None:
            raise SessionBusy(f"session {session} is busy: this agent drives a run in it")

    async def check_undriven(self, session: str) -> None:
        """Raise SessionBusy if this agent or another driver has a session; wait for a writer."""
        self.check_free(session)
        journal = self.world.journal
        if await self.is_driven(session):
            seq = (await self.read_state(session)).seq
            if not await wait_for_writer(journal, session, seq):
                raise SessionBusy(f"session {session} is busy: another driver runs it")

    def _make_recorder(self, state: State) -> Recorder:
        """Make a recorder for facts that belong to no live run."""
        return Recorder(self.world.journal, self.world.clock, state, self.mask)

    def _take_late_result(self, session: str, fact: CallLate) -> None:
        """Write a late result with the next facts of a live run, or by itself."""
        driver = self._drivers.get(session)
        if driver is not None and driver.is_live:
            driver.add_late_result(fact)
            return
        before = self._late_writes.get(session)
        write = self._leftovers.start_task(self._write_late_result(session, fact, before, driver))
        self._late_writes[session] = write
        write.add_done_callback(partial(self._forget_late_write, session))

    def _forget_late_write(self, session: str, write: asyncio.Task[None]) -> None:
        if self._late_writes.get(session) is write:
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
        # A run that has ended still holds the lease of its session for a moment.
        if driver is not None and driver.event_loop is asyncio.get_running_loop():
            await driver.finished.wait()
        with await hold_session(self.world.journal, session):
            await self._make_recorder(await self.read_state(session)).record(fact)


async def _await_in_loop_of(driver: RunDriver, work: Coroutine[Any, Any, ValueT]) -> ValueT:
    """Do something in the event loop that drives a run, which may be another thread's."""
    if driver.event_loop is asyncio.get_running_loop():
        return await work
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, driver.event_loop))
