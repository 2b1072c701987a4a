"""One run, from its first fact to its one end.

The law: a run ends in one place, within a bounded time. The loop runs as a task of its own with the
driver beside it: a cancel, a deadline, an error and a bug all lead to the same end, whatever that
task does.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from msgspec.structs import replace

from windlass.core.errors import JournalCorrupt, JournalFailed, fault_from_error
from windlass.core.events import (
    CallLate,
    ContentPiece,
    Fact,
    Outcome,
    RunEnded,
    RunReleased,
    RunResumed,
    RunSuspended,
    TextDelta,
)
from windlass.core.faults import Fault
from windlass.core.messages import Charge, ToolResult
from windlass.core.moves import EndRun, FinalMove, StayPaused, WaitForAnswers
from windlass.core.result import RunResult, build_result
from windlass.core.state import CallState, State
from windlass.core.verdicts import Ask
from windlass.ports import Lease, RecoverableTools, SessionLeases, Watcher, World
from windlass.runtime.deadlines import TIMER_GRAIN_S, Deadlines
from windlass.runtime.in_flight import InFlight
from windlass.runtime.leases import is_still_driving
from windlass.runtime.leftover_tasks import LeftoverTasks
from windlass.runtime.live_relay import LiveRelay
from windlass.runtime.loop import run_loop
from windlass.runtime.recorder import Recorder
from windlass.runtime.shared_budgets import settle_budgets
from windlass.runtime.state_cache import StateCache
from windlass.runtime.steering_inbox import SteeringInbox

UNWIND_WAIT_S = 0.05
"""How long the loop may take to unwind once it is cancelled."""
END_WAIT_S = 0.09
"""How long all of the end may take, the last append included: a cancel takes at most 100 ms."""

Opening = Callable[[State], Sequence[Fact]]
"""Returns the facts that open a run in a session as it is found; raises ForOperator if none may."""

Consultation = Callable[[WaitForAnswers, World, Recorder], Awaitable[bool]]
"""Asks the approver; returns whether every question has its answer on record now."""


@dataclass(frozen=True, slots=True)
class DriverServices:
    """What the drivers of one agent share."""

    leftovers: LeftoverTasks
    state_cache: StateCache
    consult: Consultation


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
        self._leftovers = services.leftovers
        self._state_cache = services.state_cache
        self._consult = services.consult
        self._earlier_write = earlier_write
        self._lease: Lease | None = None
        self._has_let_go = False
        """Whether the driver is done with the session: a lease that comes later is released."""
        self._opening_facts: Sequence[Fact] = ()
        self._in_flight = InFlight(still_driving=self._is_still_driving, stop_run=self._stop_run)
        self._relay = LiveRelay(
            world.journal, recorder.session, recorder.publisher, self._in_flight.pieces_so_far
        )
        self._decided_from: State | None = None
        """The state from which the loop decided to end or to wait; None while it runs."""
        self._requested_end: tuple[Outcome, str] | None = None
        """How the run must end, and why, once it was cancelled or is out of time."""
        self.event_loop = asyncio.get_running_loop()
        self._stopped_at: asyncio.Future[float] = self.event_loop.create_future()
        """When that end was requested; not done before."""
        self.steering = SteeringInbox(recorder, self._stopped_at)
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
        if self._requested_end is None:
            self._requested_end = (outcome, reason)
            self._stopped_at.set_result(self.event_loop.time())

    def attach_watcher(
        self, watcher: Watcher, on_finished: Callable[[], None]
    ) -> Sequence[ContentPiece]:
        """Add a watcher to the run while it is running; `on_finished` is called when it is over.

        Returns what the current attempt has streamed so far, as watchers may see it.
        """
        publisher = self._recorder.publisher
        so_far = publisher.masked_so_far(self._in_flight.pieces_so_far())
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
        """Open the run, go on until it has ended or must wait for a person, and close it.

        Returns the result, whichever way the run ends. Raises only if the run cannot begin.
        """
        try:
            if self._earlier_write is not None:
                await asyncio.wait({self._earlier_write})
            await self._open_run()
            self.steering.open()
            self._relay.open()
            while True:
                loop_task = asyncio.create_task(self._run_loop())
                await self._wait_for_stage(loop_task, cancel=True)
                self._deadlines.cancel()
                end = self._end_of_loop(loop_task)
                if isinstance(end, StayPaused):
                    await self._recorder.record(RunReleased("paused"))
                    return self._let_go(())
                if isinstance(end, WaitForAnswers):
                    answered = await self._consult_approver(end)
                    if answered is True:
                        continue
                    if answered is False:
                        return self._let_go(end.questions)
                    end = answered
                if not await self.steering.has_unseen(self._decided_from):
                    return await self._end_run(end)
        finally:
            # If the run could not begin, those who wait to steer it must hear that it will not.
            self.steering.open()
            self._relay.close()
            self._release_session()

    def finish(self) -> None:
        """Close the run for good: called once `drive` is over, whichever way."""
        self._recorder.close()
        self.finished.set()
        for on_finished in self._on_finished:
            on_finished()

    async def _open_run(self) -> None:
        """Read the session and write down that a run begins. An error until then ends no run."""
        reading = asyncio.create_task(self._lease_and_read())
        await self._wait_for_stage(reading)
        if not reading.done():
            raise JournalFailed("the journal did not answer in time: the run was not begun")
        self._recorder.start_from(reading.result())
        self._opening_facts = await self._recover_tools(self._opening(self._recorder.state))
        writing = asyncio.create_task(self._recorder.record(*self._opening_facts))
        await self._wait_for_stage(writing)
        if writing.done():
            writing.result()

    async def _lease_and_read(self) -> State:
        """Take the lease of the session, then read it: no living driver may have it."""
        journal = self._world.journal
        session = self._recorder.session
        if isinstance(journal, SessionLeases):
            self._lease = await journal.lease(session)
            if self._has_let_go:
                # The driver gave up while the journal was still granting the lease.
                self._lease.release()
        state = await self._state_cache.read_state(journal, session)
        if state.setup is not None and state.setup.budgets and not state.is_active:
            # The process of the last run may have died before it gave back what it had drawn.
            await settle_budgets(journal, state)
        return state

    async def _recover_tools(self, opening: Sequence[Fact]) -> Sequence[Fact]:
        """Before a run is taken over, end what its dead driver left running."""
        tools = self._world.tools
        if not isinstance(opening[0], RunResumed) or not isinstance(tools, RecoverableTools):
            return opening
        reaped = tuple(await asyncio.to_thread(tools.recover))
        return (replace(opening[0], reaped=reaped), *opening[1:])

    async def _run_loop(self) -> FinalMove:
        """Run the loop under its deadlines; the body of a task that can be abandoned."""
        if self._requested_end is not None:
            raise asyncio.CancelledError
        recorder = self._recorder
        stop = partial(self._stop_run, outcome="timed_out")
        self._deadlines.start(recorder.setup, recorder.state, stop)
        self._decided_from = None
        moves = run_loop(self._world, recorder, self._in_flight)
        move = await self._in_flight.hold_program_exit(moves)
        # Noted before any other task can run: steering that comes in later was not considered.
        self._decided_from = recorder.state
        return move

    async def _wait_for_stage(self, stage: asyncio.Task[Any], *, cancel: bool = False) -> None:
        """Wait for a stage of the run; once the run is stopped, only for a bounded time."""
        await asyncio.wait({stage, self._stopped_at}, return_when=asyncio.FIRST_COMPLETED)
        if not stage.done():
            if cancel:
                stage.cancel()
            # However late it is, a stage gets the time to begin.
            end_at = self._stopped_at.result() + END_WAIT_S
            wait_s = max(TIMER_GRAIN_S, end_at - self.event_loop.time())
            if cancel:
                wait_s = min(wait_s, UNWIND_WAIT_S)
            await asyncio.wait({stage}, timeout=wait_s)
        self._leftovers.track(stage)

    def _end_of_loop(
        self, loop_task: asyncio.Task[FinalMove]
    ) -> WaitForAnswers | StayPaused | RunEnded:
        """Return what the loop came to: an end, or questions to wait for."""
        stop = self._requested_end
        if not loop_task.done() or loop_task.cancelled():
            if stop is not None:
                return RunEnded(*stop)
            reason = "the run was cancelled from inside"
            return RunEnded("failed", reason, Fault("bug", reason))
        error = loop_task.exception()
        if error is not None:
            return _failed_end(error)
        match loop_task.result():
            case EndRun(outcome, reason, fault=fault):
                run = self._recorder.state.run
                # What watchers saw of an attempt that broke is not asked for again: it stays.
                return RunEnded(outcome, reason, fault, run.partial if run else "")
            case WaitForAnswers() | StayPaused() as waiting:
                return RunEnded(*stop) if stop else waiting

    async def _consult_approver(self, waiting: WaitForAnswers) -> bool | RunEnded:
        """Ask the approver. Returns whether the loop can go on, with answers or with a stop.

        An answer that could not be recorded ends the run: then its end is returned.
        """
        if self._requested_end is not None:
            return True
        if self._world.approver is None:
            return False
        consultation = self._consult(waiting, self._world, self._recorder)
        held = self._in_flight.hold_program_exit(consultation)
        consulting = asyncio.create_task(held)
        await self._wait_for_stage(consulting, cancel=True)
        if not consulting.done() or consulting.cancelled():
            return True
        error = consulting.exception()
        return consulting.result() if error is None else _failed_end(error)

    def _let_go(self, questions: Sequence[tuple[CallState, Ask]]) -> RunResult[Any]:
        """Leave a run that waits for answers, or for its pause to end."""
        waiting_calls = tuple(call.id for call, _ in questions)
        self._recorder.publisher.show_delta(RunSuspended(waiting_calls))
        self._recorder.close()
        return build_result(self._recorder.state, recorded=True)

    async def _end_run(self, end: RunEnded) -> RunResult[Any]:
        """Write the end, with everything that was not on record yet, and return the result."""
        facts = (*self._wind_up_calls(), self._complete_end(end))
        closing = asyncio.create_task(self._recorder.record(*facts))
        await self._wait_for_stage(closing)
        error = _append_error(closing)
        if error is not None:
            return self._end_unrecorded(error, facts[:-1])
        state = self._recorder.state
        if self._recorder.setup.budgets:
            self._leftovers.start_task(settle_budgets(self._world.journal, state))
        return build_result(state, recorded=True)

    def _wind_up_calls(self) -> Iterator[Fact]:
        """Yield what had ended but was not on record, and abandon the calls that still run."""
        attempt = self._in_flight.attempt
        if attempt is not None and attempt.is_whole_reply:
            yield attempt.make_proposal()
        yield from self._in_flight.unrecorded_ends(self._recorder.expected_state)
        running_calls = self._in_flight.running_calls
        for task, cleared in tuple(running_calls.items()):
            if task.done() and not task.cancelled():
                yield self._in_flight.take_finished(task)
            else:
                on_late_result = partial(self._record_late_result, cleared.call.id)
                self._leftovers.abandon_call(task, on_late_result)
        running_calls.clear()

    def _record_late_result(self, call_id: str, result: ToolResult) -> None:
        self._recorder.add_late_result(CallLate(call_id, result))

    def _complete_end(self, end: RunEnded) -> RunEnded:
        """Add to the end what was paid and streamed by an attempt that did not finish."""
        attempt = self._in_flight.attempt
        charges = self._in_flight.charges_by_call
        if charges:
            end = replace(end, charges=tuple(chain.from_iterable(charges.values())))
        if attempt is None or attempt.is_whole_reply:
            return end
        run = self._recorder.expected_state.run
        # A failure that is on record, or is being written, brings its own charge.
        charge = None
        if run is None or run.attempt is not None:
            charge = attempt.compute_charge()
        partial_text = attempt.partial_text if attempt.is_main else ""
        return replace(end, partial=partial_text, charge=charge)

    def _end_unrecorded(self, error: BaseException, facts: Sequence[Fact]) -> RunResult[Any]:
        """Tell the watchers of an end that the journal did not take."""
        outcome, reason = self._requested_end or ("failed", str(error))
        if isinstance(error, JournalCorrupt):
            facts = ()
        if not self._recorder.expected_state.is_active:
            facts = (*self._opening_facts, *facts)
        end = RunEnded(outcome, reason, fault_from_error(error))
        state = self._recorder.announce_unrecorded_end(*facts, end)
        return build_result(state, recorded=False)

    async def _is_still_driving(self) -> bool:
        """Return whether this driver has the session: nobody can have taken it over."""
        if self._has_let_go or self._recorder.is_closed:
            return False
        seq = self._recorder.state.seq
        return await is_still_driving(self._world.journal, self._lease, self.session, seq)

    def _release_session(self) -> None:
        """Let go of the session, also if its lease is granted only later."""
        self._has_let_go = True
        if self._lease is not None:
            self._lease.release()
            self._state_cache.remember(self._recorder)


def _append_error(closing: asyncio.Task[None]) -> BaseException | None:
    if not closing.done():
        return JournalFailed("the journal did not answer; the end of the run may not be kept")
    if closing.cancelled():
        return JournalFailed("the last append was cancelled")
    return closing.exception()


def _failed_end(error: BaseException) -> RunEnded:
    fault = fault_from_error(error)
    return RunEnded("failed", fault.message, fault)
