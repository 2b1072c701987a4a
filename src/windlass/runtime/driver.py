"""One run, from its first fact to its one end, or until the driver lets go of it.

The law: a run ends in one place, within a bounded time. The loop runs as a task of its own with the
driver beside it: a cancel, a deadline, an error and a bug all lead to the same end, whatever that
task does. A run that waits, is paused or is let go has no end on record, and any driver can go on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace as with_fields
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from windlass.core.decide.undoing import add_undo
from windlass.core.errors import OUT_OF_FILES, JournalCorrupt, JournalFailed, fault_from_error
from windlass.core.events import (
    CallLate,
    Fact,
    Outcome,
    RunEnded,
    RunReleased,
    RunSuspended,
    TextDelta,
)
from windlass.core.faults import Fault
from windlass.core.live_batch import LiveItem
from windlass.core.messages import Charge
from windlass.core.moves import EndRun, FinalMove, StayPaused, WaitForAnswers
from windlass.core.result import RunResult, build_result
from windlass.core.state import CallState, State
from windlass.ports import Watcher, World
from windlass.runtime.control_inbox import ControlInbox
from windlass.runtime.deadlines import Deadlines
from windlass.runtime.in_flight import EndChildren, InFlight
from windlass.runtime.leftover_tasks import LeftoverTasks
from windlass.runtime.live_relay import LiveRelay
from windlass.runtime.loop import run_loop
from windlass.runtime.mailbox import MailActions, MailTaker, MakeAnswer, TakeMail
from windlass.runtime.recorder import Recorder
from windlass.runtime.run_control import RunControl
from windlass.runtime.session_hold import ReadProgress, SessionHold, prepare_take_over
from windlass.runtime.settling import (
    RunSettlement,
    find_append_error,
    make_failed_end,
)
from windlass.runtime.shared_budgets import settle_budgets
from windlass.runtime.state_cache import StateCache
from windlass.runtime.stop_signal import StopSignal

Opening = Callable[[State], Sequence[Fact]]
"""Returns the facts that open a run in a session as it is found; raises ForOperator if none may."""

Consultation = Callable[[WaitForAnswers, World, Recorder, TakeMail], Awaitable[bool]]
"""Asks the approver; returns whether every question has its answer on record now."""


class DriverServices(msgspec.Struct, frozen=True):
    """What the drivers of one agent share."""

    leftovers: LeftoverTasks
    state_cache: StateCache
    consult: Consultation
    make_answer: MakeAnswer
    deny_expired: Callable[[World, Recorder, TakeMail], Awaitable[None]]
    """Denies the questions that were not answered in time."""
    end_children: EndChildren
    read_progress: ReadProgress

    def track(
        self, driving: Callable[[], Awaitable[bool]], stop: Callable[[str], None]
    ) -> InFlight:
        return InFlight(end_children=self.end_children, still_driving=driving, stop_run=stop)


class RunDriver:
    """Drives one run to its end, or to a question that it must wait for."""

    def __init__(
        self,
        world: World,
        recorder: Recorder,
        deadlines: Deadlines,
        opening: Opening,
        services: DriverServices,
        earlier_write: asyncio.Task[None] | None = None,
    ) -> None:
        """Make a driver in the event loop that is to run it, once `earlier_write` is over."""
        self._world = world
        self._recorder = recorder
        self._deadlines = deadlines
        self._opening = opening
        self._services = services
        self._leftovers = leftovers = services.leftovers
        self._earlier_write = earlier_write
        self._opening_facts: Sequence[Fact] = ()
        self.event_loop = asyncio.get_running_loop()
        self._stop = StopSignal(self.event_loop)
        self._hold = hold = SessionHold(world.journal, recorder, services.state_cache)
        self.session_freed = hold.freed
        self._in_flight = in_flight = services.track(hold.is_still_driving, self._stop_run)
        self._settlement = RunSettlement(recorder, in_flight, leftovers)
        self._decided_from: State | None = None
        """The state in which the loop decided to end or to wait; None while it runs."""
        self.inbox = ControlInbox(recorder, self._stop.stopped_at)
        self.control = RunControl(
            recorder, self._stop, self.inbox, in_flight, leftovers, self._time_anew
        )
        self._relay = LiveRelay(
            world.journal, recorder.session, recorder.publisher, self.control.take_snapshot
        )
        actions = MailActions(self._stop.request_end, services.make_answer, self.control.heed)
        self._mail = MailTaker(world.journal, recorder, self.inbox, world.clock, actions)
        self.finished = asyncio.Event()
        """Set when nothing of the run is left but the tasks that outlive it."""
        self._on_finished: list[Callable[[], None]] = []

    @property
    def session(self) -> str:
        return self._recorder.session

    @property
    def is_live(self) -> bool:
        """Whether the run still takes facts in and tells its watchers of them."""
        return not self._recorder.is_closed

    def cancel(self, reason: str, outcome: Outcome = "cancelled") -> None:
        """Stop the run, from any thread. Only the first reason counts."""
        self.event_loop.call_soon_threadsafe(self._stop_run, str(reason), outcome)

    def _stop_run(self, reason: str, outcome: Outcome = "cancelled") -> None:
        self._stop.request_end(RunEnded(outcome, reason))

    def release(self, reason: str, grace_s: float) -> None:
        """Let go of the run without ending it, from any thread; any driver can then go on with it.

        No request and no call begins any more. Calls that run get `grace_s` seconds to finish.
        """
        self.event_loop.call_soon_threadsafe(self.control.release, str(reason), grace_s)

    def attach_watcher(
        self, watcher: Watcher, on_finished: Callable[[], None]
    ) -> Sequence[LiveItem]:
        """Add a watcher to the run while it is running; `on_finished` is called when it is over.

        Returns a snapshot for it: see `RunControl.take_snapshot`.
        """
        publisher = self._recorder.publisher
        so_far = self.control.take_snapshot()
        attempt = self._in_flight.attempt
        if attempt is not None and any(isinstance(piece, TextDelta) for piece in so_far):
            attempt.mark_seen()
        publisher.add_watcher(watcher)
        self._on_finished.append(on_finished)
        return so_far

    def detach_watcher(self, watcher: Watcher) -> None:
        self._recorder.publisher.remove_watcher(watcher)

    def add_late_result(self, fact: CallLate) -> None:
        """Take in the late result of a call that an earlier run of the session abandoned."""
        self._recorder.add_late_result(fact)

    @property
    def charges_so_far(self) -> tuple[Charge, ...]:
        """All that the run has paid so far, including what is not on record yet."""
        return self._in_flight.charges_so_far(self._recorder.state.run, self._world)

    @property
    def program_exit(self) -> BaseException | None:
        """KeyboardInterrupt or SystemExit, if a part of the run raised it; the run has ended."""
        return self._in_flight.program_exit

    async def drive(self) -> RunResult[Any]:
        """Open the run, go on until it has ended, waits or is let go, and close it.

        Returns the result, whichever way the run ends. Raises only if the run cannot begin.
        """
        try:
            if self._earlier_write is not None:
                await asyncio.wait({self._earlier_write})
            await self._open_run()
            self.inbox.open()
            self._relay.open()
            self._mail.listen()
            return await self._drive_opened()
        finally:
            # If the run could not begin, those who wait to speak to it must hear that it will not.
            self.inbox.open()
            self._relay.close()
            self._close_mail()
            # Also if the journal failed: what has no end on record is gone on with by the next one.
            is_open = self._recorder.durable_state.is_active
            self._hold.let_go(self._in_flight.leftovers if is_open else ())

    def finish(self) -> None:
        """Close the run for good: called once `drive` is over, whichever way."""
        self._recorder.close()
        self.finished.set()
        for on_finished in self._on_finished:
            on_finished()

    async def _drive_opened(self) -> RunResult[Any]:
        while True:
            loop_task = asyncio.create_task(self._run_loop())
            await self._stop.wait_for_loop(loop_task, lambda: bool(self._in_flight.running_calls))
            self._leftovers.track(loop_task)
            self._deadlines.cancel()
            end = self._end_of_loop(loop_task)
            if isinstance(end, WaitForAnswers) and end.questions:
                answered = await self._consult_approver(end)
                if answered is True:
                    continue
                if answered is not False:
                    end = answered
            if await self.inbox.has_news(self._decided_from):
                continue
            # A stop that came meanwhile goes before waiting or being paused.
            if self._stop.end is not None and not isinstance(end, RunEnded):
                end = self._stop.end
            match end:
                case RunEnded():
                    return await self._end_run(end)
                case RunReleased():
                    return await self._release_run(end)
                case StayPaused():
                    return await self._release_run(RunReleased("paused"))
                case WaitForAnswers():
                    self._suspend(end)
                    return build_result(self._recorder.state, recorded=True)

    async def _open_run(self) -> None:
        """Read the session and write down that a run begins. An error until then ends no run."""
        reading = asyncio.create_task(self._hold.lease_and_read())
        await self._wait_for_stage(reading)
        if not reading.done():
            raise JournalFailed("the journal did not answer in time: the run was not begun")
        recorder = self._recorder
        recorder.start_from(reading.result())
        is_new = not recorder.state.seq
        opening = await prepare_take_over(
            self._opening(recorder.state),
            recorder.state,
            self._world.tools,
            self._services.read_progress,
            self._hold.doubted,
        )
        facts = self._opening_facts = await recorder.mask_opening(opening)
        writing = asyncio.create_task(recorder.record(*facts, masked=facts))
        await self._wait_for_stage(writing)
        if writing.done():
            writing.result()
            if not is_new:
                await self._wait_for_stage(asyncio.create_task(self._take_earlier_mail()))

    async def _take_earlier_mail(self) -> None:
        """Take what was posted while the run had no driver; then deny what has expired.

        In this order: an answer counts by when the store accepted it.
        """
        await self._mail.take_waiting()
        await self._services.deny_expired(self._world, self._recorder, self._mail.catch_up)

    async def _run_loop(self) -> FinalMove | None:
        """Run the loop under its deadlines; the body of a task that can be abandoned."""
        if self._stop.end is not None:
            raise asyncio.CancelledError
        self._decided_from = None
        self._start_deadlines()
        moves = run_loop(self._world, self._recorder, self._in_flight)
        move = await self._in_flight.hold_program_exit(moves)
        # Noted before any other task can run: what is said later was not considered.
        self._decided_from = self._recorder.state
        return move

    def _time_anew(self) -> None:
        """Set the deadlines by limits that were raised, unless the run is waiting."""
        if self._decided_from is None:
            self._deadlines.cancel()
            self._start_deadlines()

    def _start_deadlines(self) -> None:
        recorder = self._recorder
        stop = partial(self._stop_run, outcome="timed_out")
        self._deadlines.start(recorder.setup, recorder.state, stop)

    async def _wait_for_stage(self, stage: asyncio.Task[Any]) -> None:
        await self._stop.wait_for_stage(stage)
        self._leftovers.track(stage)

    def _end_of_loop(
        self, loop_task: asyncio.Task[FinalMove | None]
    ) -> WaitForAnswers | StayPaused | RunReleased | RunEnded:
        """Return what the loop came to: an end, or why it goes no further for now."""
        stop = self._stop.end
        release = self._stop.release
        if not loop_task.done() or loop_task.cancelled():
            if stop is not None:
                return stop
            if release is not None:
                return RunReleased(release.reason)
            reason = "the run was cancelled from inside"
            return RunEnded("failed", reason, Fault("bug", reason))
        error = loop_task.exception()
        if error is not None:
            return make_failed_end(error)
        match loop_task.result():
            case EndRun(outcome, reason, fault=fault):
                run = self._recorder.state.run
                # What watchers saw of an attempt that broke is not asked for again: it stays.
                return RunEnded(outcome, reason, fault, run.partial if run else "")
            case WaitForAnswers() | StayPaused() as waiting:
                return stop or waiting
            case None:
                return stop or RunReleased(release.reason if release else "")

    async def _consult_approver(self, waiting: WaitForAnswers) -> bool | RunEnded | RunReleased:
        """Ask the approver. Returns whether the loop can go on, with answers or with a stop.

        An answer that could not be recorded ends the run: then its end is returned.
        """
        if self._stop.end is not None:
            return True
        if self._world.approver is None or self._stop.release is not None:
            return False
        consultation = self._services.consult(
            waiting, self._world, self._recorder, self._mail.catch_up
        )
        held = self._in_flight.hold_program_exit(consultation)
        consulting = asyncio.create_task(held)
        await self._stop.wait_for_loop(consulting)
        self._leftovers.track(consulting)
        # The answers so far are known; what is said from here on is news.
        self._decided_from = self._recorder.state
        if not consulting.done() or consulting.cancelled():
            return self._stop.end is not None or self._stop.release is None
        error = consulting.exception()
        return consulting.result() if error is None else make_failed_end(error)

    def _suspend(self, waiting: WaitForAnswers | None = None) -> None:
        """Tell the watchers that nothing more comes for now, and write nothing more."""
        calls: list[CallState] = []
        if waiting is not None:
            calls = [*(call for call, _ in waiting.questions), *waiting.waiting]
        self._recorder.publisher.show_delta(RunSuspended(tuple(call.id for call in calls)))
        self._recorder.close()

    async def _release_run(self, release: RunReleased) -> RunResult[Any]:
        """Write down that the driver lets go of the run, with what was not on record yet."""
        facts = (*self._settlement.wind_up_calls(), self._settlement.complete_release(release))
        closing = asyncio.create_task(self._recorder.record(*facts))
        await self._wait_for_stage(closing)
        error = find_append_error(closing)
        if error is None and self._recorder.setup.budgets:
            # What was drawn and not needed goes back: the run may stay where it is for days.
            self._leftovers.start_task(settle_budgets(self._world.journal, self._recorder.state))
        self._suspend()
        result = build_result(self._recorder.state, recorded=error is None)
        if release.reason == OUT_OF_FILES:
            fault = Fault("journal", OUT_OF_FILES)
            return with_fields(result, outcome="failed", error=fault, recorded=False)
        return result if error is None else with_fields(result, outcome="released")

    async def _end_run(self, end: RunEnded) -> RunResult[Any]:
        """Write the end, with everything that was not on record yet, and return the result."""
        end = add_undo(end, self._recorder.state.setup)
        facts = await self._settlement.settle_end(end, self._wait_for_stage)
        closing = asyncio.create_task(self._recorder.record(*facts))
        await self._wait_for_stage(closing)
        error = find_append_error(closing)
        if error is not None:
            return self._end_unrecorded(error, facts[:-1])
        if self._recorder.setup.budgets:
            self._leftovers.start_task(settle_budgets(self._world.journal, self._recorder.state))
        return build_result(self._recorder.state, recorded=True)

    def _end_unrecorded(self, error: BaseException, facts: Sequence[Fact]) -> RunResult[Any]:
        """Tell the watchers of an end that the journal did not take."""
        stop = self._stop.end or RunEnded("failed", str(error))
        if isinstance(error, JournalCorrupt):
            facts = ()
        if not self._recorder.expected_state.is_active:
            facts = (*self._opening_facts, *facts)
        end = replace(stop, fault=fault_from_error(error))
        state = self._recorder.announce_unrecorded_end(*facts, end)
        return build_result(state, recorded=False)

    def _close_mail(self) -> None:
        listener = self._mail.close()
        if listener is not None:
            self._leftovers.track(listener)
            self._leftovers.start_task(self._mail.remove_taken())
