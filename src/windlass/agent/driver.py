"""One run, from its first fact to its one end.

The loop runs as a task of its own, and the driver stands beside it: a cancel, a deadline, an error
and a bug all lead to the same door, within a bounded time, whatever that task does.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

from msgspec.structs import replace

from windlass.agent.approver import consult_approver
from windlass.agent.events import EventStream
from windlass.agent.state_cache import StateCache
from windlass.core.decide.reserving import settle_attempt
from windlass.core.errors import ForOperator, JournalCorrupt, JournalFailed
from windlass.core.events import (
    CallLate,
    Fact,
    Outcome,
    RunEnded,
    RunResumed,
    RunSuspended,
    TextDelta,
)
from windlass.core.faults import Fault
from windlass.core.messages import Charge, ToolResult
from windlass.core.moves import EndRun, WaitForAnswers
from windlass.core.result import RunResult
from windlass.core.run_report import build_result
from windlass.core.state import State
from windlass.ports import Lease, RecoverableTools, SessionLeases, World
from windlass.runtime.deadlines import Deadlines
from windlass.runtime.in_flight import InFlight
from windlass.runtime.leftover_tasks import LeftoverTasks
from windlass.runtime.loop import run_loop
from windlass.runtime.recorder import Recorder
from windlass.runtime.shared_budgets import settle_budgets
from windlass.runtime.steering_inbox import SteeringInbox

UNWIND_WAIT_S = 0.05
"""How long the loop may take to let go once it is stopped."""
END_WAIT_S = 0.09
"""How long all of the end may take, the last record included."""
TIMER_GRAIN_S = 0.001


Opening = Callable[[State], Sequence[Fact]]
"""The facts that open a run in a session as it is found; raises ForOperator if none may."""


class RunDriver:
    """Drives one run to its end, or to the question that it must wait for."""

    def __init__(
        self,
        world: World,
        recorder: Recorder,
        leftovers: LeftoverTasks,
        opening: Opening,
        state_cache: StateCache,
    ) -> None:
        self._world = world
        self._leftover_tasks = leftovers
        self._state_cache = state_cache
        self._lease: Lease | None = None
        self._has_left = False
        self._opening = opening
        self._opening_facts: Sequence[Fact] = ()
        self._in_flight = InFlight()
        self.loop = asyncio.get_running_loop()
        self.finished = asyncio.Event()
        """Set when nothing of the run is left but what outlives it."""
        self._stop_reason: tuple[Outcome, str] | None = None
        self._stopped_at: asyncio.Future[float] = self.loop.create_future()
        """When the run was stopped."""
        self._deadlines = Deadlines(self.loop)
        self.recorder = recorder
        self.steering = SteeringInbox(recorder, self._stopped_at)
        self.late_watchers: list[EventStream[Any]] = []
        """Watchers that came later."""

    def cancel(self, reason: str, outcome: Outcome = "cancelled") -> None:
        """Stop the run, from any thread. The first reason counts."""
        self.loop.call_soon_threadsafe(self._stop_run, str(reason), outcome)

    def _stop_run(self, reason: str, outcome: Outcome = "cancelled") -> None:
        if self._stop_reason is None:
            self._stop_reason = (outcome, reason)
            self._stopped_at.set_result(self.loop.time())

    def text_so_far(self) -> TextDelta | None:
        """The text of the attempt under way, for a watcher that comes in the middle of it."""
        attempt = self._in_flight.attempt
        if attempt is None or attempt.purpose != "main" or not attempt.partial_text:
            return None
        attempt.was_seen = True
        return self.recorder.place_delta(TextDelta(attempt.partial_text))

    @property
    def charges_so_far(self) -> tuple[Charge, ...]:
        """All that the run has paid so far, what is not on record yet included."""
        run, attempt = self.recorder.state.run, self._in_flight.attempt
        if run is None:
            return ()
        charges = list(run.ledger.charges)
        if run.outcome is None:
            charges += chain.from_iterable(self._in_flight.charges_by_call.values())
        if run.attempt is not None:
            info, reserved = self._world.models[run.attempt.model].info, run.attempt.reserved
            sent = settle_attempt(info, reserved, None, 0, whole=False)
            charges += filter(None, [attempt.compute_charge() if attempt else sent])
        return tuple(charges)

    async def drive(self) -> RunResult[Any]:
        """The result of the run, whichever way it ends; raises if it cannot even begin."""
        try:
            return await self._drive_to_result()
        finally:
            self.steering.opened.set()
            self._release_session()

    async def _drive_to_result(self) -> RunResult[Any]:
        await self._open_run()
        self.steering.opened.set()
        end = await self._run_until_stop()
        while isinstance(end, WaitForAnswers) or await self.steering.has_unseen():
            asked = await self._consult_approver(end) if isinstance(end, WaitForAnswers) else True
            if isinstance(end, WaitForAnswers) and asked is False:
                return self._suspend(end)
            end = asked if isinstance(asked, RunEnded) else await self._run_until_stop()
        facts = (*self._unrecorded_facts(), self._complete_end(end))
        closing = asyncio.create_task(self.recorder.record(*facts))
        await self._wait_for_stage(closing)
        result = self._close_run(closing, facts)
        if result.recorded and self.recorder.setup.budgets:
            self._leftover_tasks.start_task(
                settle_budgets(self._world.journal, self.recorder.state)
            )
        return result

    def _release_session(self) -> None:
        """Let go of the session, also if it is only given to us from now on."""
        self._has_left = True
        if self._lease is not None:
            self._lease.release()
            self._state_cache.remember(self.recorder)

    async def _run_until_stop(self) -> WaitForAnswers | RunEnded:
        """Where the loop comes to: the end of the run, or a question."""
        body = asyncio.create_task(self._run_body())
        await self._wait_for_stage(body, cancel=True)
        self._deadlines.cancel()
        return self._end_of_body(body)

    async def _consult_approver(self, hold: WaitForAnswers) -> bool | RunEnded:
        """Ask whoever is there to be asked; whether there are answers, or a stop, to go on with.

        An answer that could not be written down ends the run.
        """
        if self._world.approver is None or self._stop_reason is not None:
            return self._stop_reason is not None
        consultation = asyncio.create_task(consult_approver(hold, self._world, self.recorder))
        await self._wait_for_stage(consultation, cancel=True)
        if not consultation.done() or consultation.cancelled():
            return True
        error = consultation.exception()
        return consultation.result() if error is None else _failed_end(error)

    async def _open_run(self) -> None:
        """Read the session and write down that a run begins. Until then, no run can fail."""
        reading = asyncio.create_task(self._lease_and_read())
        await self._wait_for_stage(reading)
        if not reading.done():
            raise JournalFailed("the journal did not answer")
        self.recorder.start_from(reading.result())
        self._opening_facts = await self._recover_tools(self._opening(self.recorder.state))
        opening = asyncio.create_task(self.recorder.record(*self._opening_facts))
        await self._wait_for_stage(opening)
        if opening.done():
            opening.result()

    async def _recover_tools(self, opening: Sequence[Fact]) -> Sequence[Fact]:
        """Before a run is taken over, what its dead driver left running is ended."""
        tools = self._world.tools
        if not isinstance(opening[0], RunResumed) or not isinstance(tools, RecoverableTools):
            return opening
        reaped = tuple(await asyncio.to_thread(tools.recover))
        return (replace(opening[0], reaped=reaped), *opening[1:])

    async def _lease_and_read(self) -> State:
        """Take the session, then read it: nobody alive may be driving it."""
        journal, session = self._world.journal, self.recorder.session
        if isinstance(journal, SessionLeases):
            self._lease = await journal.lease(session)
            if self._has_left:
                self._lease.release()
        state = await self._state_cache.read_state(journal, session)
        if state.setup is not None and state.setup.budgets and not state.is_active:
            await settle_budgets(journal, state)
        return state

    async def _run_body(self) -> EndRun | WaitForAnswers:
        if self._stop_reason is not None:
            raise asyncio.CancelledError
        self._deadlines.start(self.recorder, partial(self._stop_run, outcome="timed_out"))
        self.steering.mark_seen(at_the_end=False)
        end = await run_loop(self._world, self.recorder, self._in_flight)
        self.steering.mark_seen(at_the_end=True)
        return end

    async def _wait_for_stage(self, stage: asyncio.Task[Any], *, cancel: bool = False) -> None:
        """Wait for a stage of the run; once the run is stopped, for a bounded time."""
        await asyncio.wait({stage, self._stopped_at}, return_when=asyncio.FIRST_COMPLETED)
        if not stage.done():
            if cancel:
                stage.cancel()
            # However late it is, a stage gets the time to begin.
            left = max(TIMER_GRAIN_S, self._stopped_at.result() + END_WAIT_S - self.loop.time())
            await asyncio.wait({stage}, timeout=min(left, UNWIND_WAIT_S) if cancel else left)
        self._leftover_tasks.track(stage)

    def _end_of_body(
        self, body: asyncio.Task[EndRun | WaitForAnswers]
    ) -> WaitForAnswers | RunEnded:
        """What the loop came to."""
        stop = self._stop_reason
        if not body.done() or body.cancelled():
            outcome, reason = stop or ("failed", "the run was cancelled from inside")
            fault = None if stop else Fault("bug", reason)
            return RunEnded(outcome, reason, fault)
        error = body.exception()
        if error is not None:
            return _failed_end(error)
        match body.result():
            case EndRun(outcome, reason, fault=fault):
                last = self.recorder.state.run
                # What watchers saw of an attempt that broke is not asked for again: it stays.
                return RunEnded(outcome, reason, fault, last.partial if last else "")
            case WaitForAnswers() as hold:
                return RunEnded(*stop) if stop else hold

    def _unrecorded_facts(self) -> Iterator[Fact]:
        """What had come to its end when the run was stopped, and was not on record yet."""
        attempt, calls = self._in_flight.attempt, self._in_flight.running_calls
        if attempt is not None and attempt.is_answer:
            yield attempt.make_proposal()
        yield from self._in_flight.unrecorded_ends(self.recorder.expected_state)
        for task, call_id in tuple(calls.items()):
            if task.done() and not task.cancelled():
                yield self._in_flight.take_finished(task)
            else:
                self._leftover_tasks.abandon_call(task, partial(self._add_late_result, call_id))
        calls.clear()

    def _add_late_result(self, call_id: str, result: ToolResult) -> None:
        self.recorder.add_late_result(CallLate(call_id, result))

    def _complete_end(self, end: RunEnded) -> RunEnded:
        """The end, with what was paid for and heard of an attempt that was under way."""
        attempt, paid = self._in_flight.attempt, self._in_flight.charges_by_call
        if paid:
            end = replace(end, charges=tuple(chain.from_iterable(paid.values())))
        if attempt is None or attempt.is_answer:
            return end
        partial_text, run = (
            attempt.partial_text if attempt.purpose == "main" else "",
            self.recorder.expected_state.run,
        )
        # A failure that is on record, or is being written, brings its own charge.
        settled = run is not None and run.attempt is None
        return replace(
            end, partial=partial_text, charge=None if settled else attempt.compute_charge()
        )

    def _suspend(self, hold: WaitForAnswers) -> RunResult[Any]:
        recorder = self.recorder
        recorder.show_delta(RunSuspended(tuple(call.id for call, _ in hold.questions)))
        recorder.close()
        return build_result(recorder.state, recorded=True)

    def _close_run(self, closing: asyncio.Task[None], facts: Sequence[Fact]) -> RunResult[Any]:
        """Through the one door. If the journal did not take the end, watchers hear of it anyway."""
        recorder, error = self.recorder, _append_error(closing)
        if error is None:
            return build_result(recorder.state, recorded=True)
        end = RunEnded(*self._stop_reason) if self._stop_reason else RunEnded("failed", str(error))
        end = replace(end, fault=_fault_from(error))
        opening = () if recorder.expected_state.is_active else self._opening_facts
        known = () if isinstance(error, JournalCorrupt) else facts[:-1]
        return build_result(recorder.announce_unrecorded_end(*opening, *known, end), recorded=False)


def _append_error(closing: asyncio.Task[None]) -> BaseException | None:
    if not closing.done():
        return JournalFailed("the journal did not answer; the end of the run may not be kept")
    if closing.cancelled():
        return JournalFailed("the last append was cancelled")
    return closing.exception()


def _failed_end(error: BaseException) -> RunEnded:
    fault = _fault_from(error)
    return RunEnded("failed", fault.message, fault)


def _fault_from(error: BaseException) -> Fault:
    if isinstance(error, ForOperator):
        return Fault("journal", str(error))
    return Fault("bug", f"{type(error).__name__}: {error}")
