"""One run, from its first fact to its one end, or until the driver releases it.

    lease ──▶ record the opening ──▶ loop ──▶ record the end

Invariant: a run ends in one place, within a bounded time. The loop runs as its own task with
the driver next to it: a cancel, a deadline, an error and a bug all lead to the same end, whatever
that task does. A run that waits, is paused or is released has no end on record, and any driver can
resume it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace as with_fields
from typing import Any

import msgspec
from msgspec.structs import replace

from windlass.core.decide.undoing import add_undo
from windlass.core.errors import (
    OUT_OF_FILES,
    Fault,
    JournalCorrupt,
    JournalFailed,
    fault_from_error,
)
from windlass.core.events import (
    BudgetAwaited,
    BudgetWaitEnded,
    CallLate,
    Fact,
    Outcome,
    RunEnded,
    RunReleased,
    RunResumed,
    RunSuspended,
    TextDelta,
)
from windlass.core.live_batch import LiveItem
from windlass.core.messages import Charge
from windlass.core.moves import EndRun, FinalMove, StayPaused, StayWaiting, WaitForAnswers
from windlass.core.result import RunResult, build_result, open_questions
from windlass.core.state import State
from windlass.logs import get_logger
from windlass.ports import LiveSender, Watcher, World
from windlass.runtime.in_flight import (
    complete_release,
    make_failed_end,
    settle_end,
    wind_up_calls,
)
from windlass.runtime.leases import ReadProgress, SessionHold, StateCache, prepare_take_over
from windlass.runtime.leftover_tasks import LeftoverTasks
from windlass.runtime.loop import run_loop
from windlass.runtime.mailbox import READ_S, MailTaker, MakeAnswer, TakeMail, read_next_run
from windlass.runtime.publisher import LiveRelay
from windlass.runtime.recorder import Recorder
from windlass.runtime.run_control import RunControl
from windlass.runtime.shared_limits import settle_budgets

_log = get_logger(__name__)
LEASE_LOST = "its lease could not be renewed in time"

Opening = Callable[[State], Sequence[Fact]]
"""Returns the facts that open a run in a session as it is found; raises ForOperator if none may."""

Consultation = Callable[[WaitForAnswers, World, Recorder, TakeMail], Awaitable[bool]]
"""Asks the approver; returns whether every question has its answer on record now."""

Ending = WaitForAnswers | StayWaiting | StayPaused | RunReleased | RunEnded
"""What a loop came to: an end, or why it stops now."""


class DriverServices(msgspec.Struct, frozen=True):
    """What the drivers of one agent share."""

    leftovers: LeftoverTasks
    state_cache: StateCache
    consult: Consultation
    make_answer: MakeAnswer
    deny_expired: Callable[[World, Recorder, TakeMail], Awaitable[None]]
    """Denies the questions that were not answered in time."""
    read_progress: ReadProgress


class RunDriver:
    """Drives one run to its end, or to a question that it must wait for."""

    def __init__(
        self,
        world: World,
        recorder: Recorder,
        control: RunControl,
        opening: Opening,
        services: DriverServices,
        earlier_write: asyncio.Task[None] | None = None,
    ) -> None:
        """Make a driver in the event loop that is to run it, once `earlier_write` is over."""
        self.leaves_waiting = False  # Whether a run that waits for a budget is released.
        self.event_loop = asyncio.get_running_loop()
        self.session = recorder.session
        self.control = control
        self._world = world
        self._recorder = recorder
        self._opening = opening
        self._services = services
        self._leftovers = services.leftovers
        self._earlier_write = earlier_write
        self._opening_facts: Sequence[Fact] = ()
        self._stop = control.stop
        self._hold = SessionHold(world.journal, recorder, services.state_cache)
        self.session_freed = self._hold.freed
        self._in_flight = control.in_flight
        self._in_flight.still_driving = self._hold.is_still_driving
        self._in_flight.is_certain = self._hold.is_certain
        self._in_flight.find_epoch = lambda: self._hold.epoch
        self._hold.on_lost = self._on_lease_lost
        self._attending: asyncio.Handle | None = None
        """Opens the run to watchers and messages; None before the loop has begun."""
        self._live_sender: LiveSender | None = None
        self._relay: LiveRelay | None = None
        """Made when the first watcher in another process comes."""
        self._mail = MailTaker(world.journal, recorder, control, world.clock, services.make_answer)
        self.opened: asyncio.Future[int] = self.event_loop.create_future()
        """Gets the number of the run once its first fact is durable."""
        self.finished = asyncio.Event()
        """Set when nothing of the run is left but the tasks that outlive it."""
        self._on_finished: list[Callable[[], None]] = []

    @property
    def is_live(self) -> bool:
        """Whether the run still takes facts in and shows them to its watchers."""
        return not self._recorder.is_closed

    def cancel(self, reason: str, outcome: Outcome = "cancelled") -> None:
        """Stop the run, from any thread. Only the first reason counts."""
        end = RunEnded(outcome, str(reason))
        self.event_loop.call_soon_threadsafe(self._stop.request_end, end)

    def release(self, reason: str, grace_s: float, reply_s: float = 0.0) -> None:
        """Release the run without ending it, from any thread; any driver can then resume it.

        No request and no call begins any more. Calls that run get `grace_s` seconds to finish, and
        a reply that is being written `reply_s`.
        """
        self.event_loop.call_soon_threadsafe(self.control.release, str(reason), grace_s, reply_s)

    def attach_watcher(
        self, watcher: Watcher, on_finished: Callable[[], None]
    ) -> Sequence[LiveItem]:
        """Add a watcher to the run while it is running; `on_finished` is called when it is over.

        Returns a snapshot for it: see `RunControl.take_snapshot`.
        """
        so_far = self.control.take_snapshot()
        attempt = self._in_flight.attempt
        if attempt is not None and any(isinstance(piece, TextDelta) for piece in so_far):
            attempt.mark_seen()
        self._recorder.publisher.add_watcher(watcher)
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
        """Open the run, drive it until it has ended, waits or is released, and close it.

        Returns the result, whichever way the run ends. Raises only if the run cannot begin.
        """
        try:
            if self._earlier_write is not None:
                await asyncio.wait({self._earlier_write})
            # An error until the opening is recorded ends no run.
            reading = asyncio.create_task(self._hold.lease_and_read())
            await self._stop.wait_for_stage(reading)
            if not reading.done():
                raise JournalFailed("the journal did not answer in time: the run was not begun")
            self._recorder.start_from(reading.result())
            await self._record_opening()
            self.control.open()
            ending = await self._run_to_ending()
            while await self.control.has_news():
                ending = await self._run_to_ending()
            return await self._record_ending(ending)
        finally:
            # If the run could not begin, callers that wait to send it a message must be notified.
            self.control.open()
            if self._attending is not None:
                self._attending.cancel()
            sender = self._live_sender
            self._live_sender = None
            if self._relay is not None:
                self._relay.close()
            if sender is not None:
                sender.close()
            self._mail.close(self._leftovers)
            # This also applies if the journal failed: a run without an end on record is resumed by
            # the next driver.
            durable = self._recorder.durable_state
            is_open = durable.is_active and not durable.is_queued
            self._hold.release(self._in_flight.leftovers if is_open else ())

    def finish(self) -> None:
        """Close the run for good: called once `drive` is over, whichever way."""
        self._recorder.close()
        self.finished.set()
        for on_finished in self._on_finished:
            on_finished()

    def _on_lease_lost(self) -> None:
        """Stop what runs, without a grace: another driver may have the session."""
        self.control.release(LEASE_LOST, 0.0)

    async def _record_opening(self) -> None:
        """Record that the run begins. A resumed run also takes its waiting messages."""
        recorder = self._recorder
        is_new = not recorder.state.seq
        opening = self._opening(recorder.state)
        if isinstance(opening[0], RunResumed):
            resumed = await prepare_take_over(
                opening[0],
                recorder.state,
                self._world.tools,
                self._services.read_progress,
                self._hold.doubted,
            )
            opening = (resumed, *opening[1:])
        self._opening_facts = await recorder.mask_opening(opening)
        writing = asyncio.create_task(self._write_opening())
        await self._stop.wait_for_stage(writing)
        if writing.done():
            writing.result()
            if not is_new:
                taking = asyncio.create_task(self._take_earlier_mail())
                self._leftovers.track(taking)
                await self._stop.wait_for_stage(taking)

    async def _write_opening(self) -> None:
        facts = self._opening_facts
        await self._recorder.record(*facts, masked=facts)
        run = self._recorder.state.run
        self.opened.set_result(run.number if run else 0)

    async def _take_earlier_mail(self) -> None:
        """Take what was posted while the run had no driver; then deny what has expired.

        In this order: an answer counts by when the store accepted it.
        """
        await self._mail.catch_up()
        await self._services.deny_expired(self._world, self._recorder, self._mail.catch_up)

    async def _run_to_ending(self) -> Ending:
        """Run the loop until it ends, or until only a person or another driver can move the run."""
        while True:
            self._in_flight.decided_from = None
            self._stop.start_timers(self._recorder)
            loop_task = asyncio.create_task(run_loop(self._world, self._recorder, self._in_flight))
            if self._attending is None:
                # Behind the first turn of the loop: a request does not wait for those who watch.
                self._attending = self.event_loop.call_soon(self._attend)
            await self._stop.wait_for_loop(loop_task, self._in_flight)
            self._stop.cancel_timers()
            ending = self._ending_of(loop_task)
            if isinstance(ending, StayWaiting):
                stopped = await self._wait_for_budget(ending.wait)
                if stopped is not None:
                    return stopped
                continue
            if not isinstance(ending, WaitForAnswers) or not ending.questions:
                return ending
            answered = await self._consult_approver(ending)
            if answered is not True:
                return answered or ending

    def _ending_of(self, loop_task: asyncio.Task[FinalMove | None]) -> Ending:
        """Return what the loop came to: an end, or why it stops for now."""
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
            case WaitForAnswers() | StayWaiting() | StayPaused() as waiting:
                return stop or waiting
            case None:
                return stop or RunReleased(release.reason if release else "")

    async def _wait_for_budget(self, wait: BudgetAwaited) -> RunEnded | RunReleased | None:
        """Wait until the budget is to be asked again, or until something was said to the run.

        Returns why the run goes no further, if it does not.
        """
        stop = self._stop
        if self.leaves_waiting and stop.end is None and stop.release is None:
            if await self.control.has_news():
                return None
            return RunReleased(f"waits for the budget {wait.budget}")
        waiting = asyncio.create_task(self._rest_until_due(wait))
        await stop.wait_for_loop(waiting)
        if stop.end is not None:
            return stop.end
        if stop.release is not None:
            return RunReleased(stop.release.reason)
        error = waiting.exception()
        return None if error is None else make_failed_end(error)

    async def _rest_until_due(self, wait: BudgetAwaited) -> None:
        """Wait for the time of a budget or for news, and record that the wait is over."""
        clock, news = self._world.clock, self.control.news
        news.clear()
        decided_from = self._in_flight.decided_from
        if self._recorder.state is not decided_from:
            return
        rest = [
            asyncio.create_task(clock.sleep(max(0.0, wait.due_at - clock.now()))),
            asyncio.create_task(news.wait()),
        ]
        try:
            await asyncio.wait(rest, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in rest:
                task.cancel()
        if self._recorder.state is decided_from:
            await self._recorder.record(BudgetWaitEnded(wait.budget))

    async def _consult_approver(self, waiting: WaitForAnswers) -> bool | RunEnded | RunReleased:
        """Ask the approver. Returns whether the loop can continue, with answers or with a stop.

        An answer that could not be recorded ends the run: then its end is returned.
        """
        if self._stop.end is not None:
            return True
        if self._world.approver is None or self._stop.release is not None:
            return False
        consulting = asyncio.create_task(self._consult(waiting))
        await self._stop.wait_for_loop(consulting)
        # The answers so far are known; what is said from here on is news.
        self._in_flight.decided_from = self._recorder.state
        if not consulting.done() or consulting.cancelled():
            return self._stop.end is not None or self._stop.release is None
        error = consulting.exception()
        return consulting.result() if error is None else make_failed_end(error)

    async def _consult(self, waiting: WaitForAnswers) -> bool:
        try:
            return await self._services.consult(
                waiting, self._world, self._recorder, self._mail.catch_up
            )
        except (KeyboardInterrupt, SystemExit) as error:
            self._in_flight.note_program_exit(error)
            raise asyncio.CancelledError from error

    async def _record_ending(self, ending: Ending) -> RunResult[Any]:
        """Write down what the run came to, and return its result."""
        # A stop that came meanwhile goes before waiting or being paused.
        if self._stop.end is not None and not isinstance(ending, RunEnded):
            ending = self._stop.end
        match ending:
            case RunEnded():
                return await self._end_run(ending)
            case RunReleased():
                return await self._release_run(ending)
            case StayWaiting(wait):
                return await self._release_run(RunReleased(f"waits for the budget {wait.budget}"))
            case StayPaused():
                return await self._release_run(RunReleased("paused"))
            case WaitForAnswers():
                self._suspend()
                self._settle_budgets()
                return build_result(self._recorder.state, recorded=True)

    def _suspend(self) -> None:
        """Tell the watchers that nothing more comes for now, and write nothing more."""
        self._recorder.publisher.show_delta(RunSuspended(open_questions(self._recorder.state)))
        self._recorder.close()

    async def _release_run(self, release: RunReleased) -> RunResult[Any]:
        """Write down that the driver releases the run, with what was not on record yet."""
        recorder = self._recorder
        facts = wind_up_calls(recorder, self._in_flight, self._leftovers)
        released = complete_release(release, recorder, self._in_flight)
        error = await self._record_last(*facts, released)
        self._suspend()
        result = build_result(recorder.state, recorded=error is None)
        if release.reason == OUT_OF_FILES:
            fault = Fault("journal", OUT_OF_FILES)
            return with_fields(result, outcome="failed", error=fault, recorded=False)
        return result if error is None else with_fields(result, outcome="released")

    async def _end_run(self, end: RunEnded) -> RunResult[Any]:
        """Write the end, with everything that was not on record yet, and return the result."""
        recorder = self._recorder
        end = add_undo(end, recorder.state.setup)
        facts = await settle_end(
            end, recorder, self._in_flight, self._leftovers, self._stop.wait_for_stage
        )
        error = await self._record_last(*facts)
        if error is None:
            return build_result(recorder.ended_state or recorder.state, recorded=True)
        # The journal did not take the end, but the watchers still receive it.
        stop = self._stop.end or RunEnded("failed", str(error))
        facts = () if isinstance(error, JournalCorrupt) else facts[:-1]
        if not recorder.expected_state.is_active:
            facts = (*self._opening_facts, *facts)
        end = replace(stop, fault=fault_from_error(error))
        return build_result(recorder.announce_unrecorded_end(*facts, end), recorded=False)

    async def _record_last(self, *facts: Fact) -> BaseException | None:
        """Write the last facts of the run. Returns why they may not be kept, if they may not."""
        closing = asyncio.create_task(self._record_with_next(facts))
        await self._stop.wait_for_stage(closing)
        if not closing.done():
            return JournalFailed("the journal did not answer; the end of the run may not be kept")
        if closing.cancelled():
            return JournalFailed("the last append was cancelled")
        error = closing.exception()
        if error is None:
            self._settle_budgets()
        return error

    def _settle_budgets(self) -> None:
        """Give back what was drawn and not needed: the run may stay where it is for days."""
        if self._recorder.setup.budgets:
            ended = self._recorder.ended_state or self._recorder.state
            self._leftovers.start_task(settle_budgets(self._world.journal, ended))

    async def _record_with_next(self, facts: Sequence[Fact]) -> None:
        """Write the last facts. With an end, the prompt behind the run becomes a run itself."""
        end = facts[-1]
        if isinstance(end, RunEnded) and not end.undo:
            wait_s = min(READ_S, self._stop.spare_s())
            state = self._recorder.state
            facts = (*facts, *await read_next_run(self._world.journal, state, wait_s))
        await self._recorder.record(*facts)

    def _attend(self) -> None:
        """Let watchers find the run, and take messages to it, once its first fact is on record."""
        try:
            self._live_sender = self._world.journal.open_live(self.session, self._note_interest)
        except Exception:  # noqa: BLE001 - what is shown cannot stop a run
            _log.exception("watchers in other processes will see the facts, but no deltas")
        self._mail.listen()

    def _note_interest(self, is_wanted: bool) -> None:  # noqa: FBT001 - it is a callback
        sender = self._live_sender
        if self._relay is None and is_wanted and sender is not None:
            publisher = self._recorder.publisher
            self._relay = LiveRelay(sender, publisher, self.control.take_snapshot)
        if self._relay is not None:
            self._relay.note_interest(is_wanted)
