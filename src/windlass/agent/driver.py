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

from windlass.agent.approver import consult
from windlass.agent.events import Events
from windlass.agent.state_cache import Known
from windlass.core.decide.reserving import settle as settle_attempt
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
from windlass.core.messages import Charge, Result
from windlass.core.moves import Finish, Hold
from windlass.core.result import RunResult
from windlass.core.run_report import report
from windlass.core.state import State
from windlass.ports import Lease, Leasing, Recovering, World
from windlass.runtime.deadlines import Alarm
from windlass.runtime.in_flight import Underway
from windlass.runtime.leftover_tasks import Crew
from windlass.runtime.loop import run
from windlass.runtime.recorder import Recorder
from windlass.runtime.shared_budgets import settle
from windlass.runtime.steering_inbox import Helm

UNWIND_S = 0.05
"""How long the loop may take to let go once it is stopped."""
END_S = 0.09
"""How long all of the end may take, the last record included."""
GRAIN_S = 0.001


Opening = Callable[[State], Sequence[Fact]]
"""The facts that open a run in a session as it is found; raises ForOperator if none may."""


class Driver:
    """Drives one run to its end, or to the question that it must wait for."""

    def __init__(
        self, world: World, recorder: Recorder, crew: Crew, opening: Opening, known: Known
    ) -> None:
        self._world = world
        self._crew = crew
        self._known = known
        self._lease: Lease | None = None
        self._left = False
        self._opening = opening
        self._opened: Sequence[Fact] = ()
        self._underway = Underway()
        self.loop = asyncio.get_running_loop()
        self.gone = asyncio.Event()
        """Set when nothing of the run is left but what outlives it."""
        self._stop: tuple[Outcome, str] | None = None
        self._halt: asyncio.Future[float] = self.loop.create_future()
        """When the run was stopped."""
        self._alarm = Alarm(self.loop)
        self.recorder = recorder
        self.helm = Helm(recorder, self._halt)
        self.attached: list[Events[Any]] = []
        """Watchers that came later."""

    def cancel(self, reason: str, outcome: Outcome = "cancelled") -> None:
        """Stop the run, from any thread. The first reason counts."""
        self.loop.call_soon_threadsafe(self._cancel, str(reason), outcome)

    def _cancel(self, reason: str, outcome: Outcome = "cancelled") -> None:
        if self._stop is None:
            self._stop = (outcome, reason)
            self._halt.set_result(self.loop.time())

    def heard(self) -> TextDelta | None:
        """The text of the attempt under way, for a watcher that comes in the middle of it."""
        attempt = self._underway.attempt
        if attempt is None or attempt.purpose != "main" or not attempt.partial:
            return None
        attempt.visible = True
        return self.recorder.placed(TextDelta(attempt.partial))

    @property
    def paid(self) -> tuple[Charge, ...]:
        """All that the run has paid so far, what is not on record yet included."""
        run, attempt = self.recorder.state.run, self._underway.attempt
        if run is None:
            return ()
        charges = list(run.ledger.charges)
        if run.outcome is None:
            charges += chain.from_iterable(self._underway.paid.values())
        if run.attempt is not None:
            info, reserved = self._world.models[run.attempt.model].info, run.attempt.reserved
            sent = settle_attempt(info, reserved, None, 0, whole=False)
            charges += filter(None, [attempt.charge() if attempt else sent])
        return tuple(charges)

    async def drive(self) -> RunResult[Any]:
        """The result of the run, whichever way it ends; raises if it cannot even begin."""
        try:
            return await self._driven()
        finally:
            self.helm.manned.set()
            self._leave()

    async def _driven(self) -> RunResult[Any]:
        await self._open()
        self.helm.manned.set()
        end = await self._to_the_end()
        while isinstance(end, Hold) or await self.helm.turned():
            asked = await self._consult(end) if isinstance(end, Hold) else True
            if isinstance(end, Hold) and asked is False:
                return self._pause(end)
            end = asked if isinstance(asked, RunEnded) else await self._to_the_end()
        facts = (*self._leftovers(), self._settled(end))
        closing = asyncio.create_task(self.recorder.record(*facts))
        await self._wait(closing)
        result = self._close(closing, facts)
        if result.recorded and self.recorder.setup.budgets:
            self._crew.start(settle(self._world.journal, self.recorder.state))
        return result

    def _leave(self) -> None:
        """Let go of the session, also if it is only given to us from now on."""
        self._left = True
        if self._lease is not None:
            self._lease.release()
            self._known.keep(self.recorder)

    async def _to_the_end(self) -> Hold | RunEnded:
        """Where the loop comes to: the end of the run, or a question."""
        body = asyncio.create_task(self._run())
        await self._wait(body, cancel=True)
        self._alarm.off()
        return self._end_of(body)

    async def _consult(self, hold: Hold) -> bool | RunEnded:
        """Ask whoever is there to be asked; whether there are answers, or a stop, to go on with.

        An answer that could not be written down ends the run.
        """
        if self._world.approver is None or self._stop is not None:
            return self._stop is not None
        asking = asyncio.create_task(consult(hold, self._world, self.recorder))
        await self._wait(asking, cancel=True)
        if not asking.done() or asking.cancelled():
            return True
        error = asking.exception()
        return asking.result() if error is None else _failed(error)

    async def _open(self) -> None:
        """Read the session and write down that a run begins. Until then, no run can fail."""
        reading = asyncio.create_task(self._read())
        await self._wait(reading)
        if not reading.done():
            raise JournalFailed("the journal did not answer")
        self.recorder.begin_at(reading.result())
        self._opened = await self._recovered(self._opening(self.recorder.state))
        opening = asyncio.create_task(self.recorder.record(*self._opened))
        await self._wait(opening)
        if opening.done():
            opening.result()

    async def _recovered(self, opening: Sequence[Fact]) -> Sequence[Fact]:
        """Before a run is taken over, what its dead driver left running is ended."""
        tools = self._world.tools
        if not isinstance(opening[0], RunResumed) or not isinstance(tools, Recovering):
            return opening
        reaped = tuple(await asyncio.to_thread(tools.recover))
        return (replace(opening[0], reaped=reaped), *opening[1:])

    async def _read(self) -> State:
        """Take the session, then read it: nobody alive may be driving it."""
        journal, session = self._world.journal, self.recorder.session
        if isinstance(journal, Leasing):
            self._lease = await journal.lease(session)
            if self._left:
                self._lease.release()
        state = await self._known.read(journal, session)
        if state.setup is not None and state.setup.budgets and not state.active:
            await settle(journal, state)
        return state

    async def _run(self) -> Finish | Hold:
        if self._stop is not None:
            raise asyncio.CancelledError
        self._alarm.on(self.recorder, partial(self._cancel, outcome="timed_out"))
        self.helm.look(at_the_end=False)
        end = await run(self._world, self.recorder, self._underway)
        self.helm.look(at_the_end=True)
        return end

    async def _wait(self, stage: asyncio.Task[Any], *, cancel: bool = False) -> None:
        """Wait for a stage of the run; once the run is stopped, for a bounded time."""
        await asyncio.wait({stage, self._halt}, return_when=asyncio.FIRST_COMPLETED)
        if not stage.done():
            if cancel:
                stage.cancel()
            # However late it is, a stage gets the time to begin.
            left = max(GRAIN_S, self._halt.result() + END_S - self.loop.time())
            await asyncio.wait({stage}, timeout=min(left, UNWIND_S) if cancel else left)
        self._crew.keep(stage)

    def _end_of(self, body: asyncio.Task[Finish | Hold]) -> Hold | RunEnded:
        """What the loop came to."""
        stop = self._stop
        if not body.done() or body.cancelled():
            outcome, reason = stop or ("failed", "the run was cancelled from inside")
            fault = None if stop else Fault("bug", reason)
            return RunEnded(outcome, reason, fault)
        error = body.exception()
        if error is not None:
            return _failed(error)
        match body.result():
            case Finish(outcome, reason, fault=fault):
                last = self.recorder.state.run
                # What watchers saw of an attempt that broke is not asked for again: it stays.
                return RunEnded(outcome, reason, fault, last.partial if last else "")
            case Hold() as hold:
                return RunEnded(*stop) if stop else hold

    def _leftovers(self) -> Iterator[Fact]:
        """What had come to its end when the run was stopped, and was not on record yet."""
        attempt, calls = self._underway.attempt, self._underway.calls
        if attempt is not None and attempt.answers:
            yield attempt.proposed()
        yield from self._underway.unrecorded(self.recorder.expected)
        for task, call_id in tuple(calls.items()):
            if task.done() and not task.cancelled():
                yield self._underway.finished(task)
            else:
                self._crew.dismiss(task, partial(self._late, call_id))
        calls.clear()

    def _late(self, call_id: str, result: Result) -> None:
        self.recorder.late(CallLate(call_id, result))

    def _settled(self, end: RunEnded) -> RunEnded:
        """The end, with what was paid for and heard of an attempt that was under way."""
        attempt, paid = self._underway.attempt, self._underway.paid
        if paid:
            end = replace(end, charges=tuple(chain.from_iterable(paid.values())))
        if attempt is None or attempt.answers:
            return end
        said, run = attempt.partial if attempt.purpose == "main" else "", self.recorder.expected.run
        # A failure that is on record, or is being written, brings its own charge.
        settled = run is not None and run.attempt is None
        return replace(end, partial=said, charge=None if settled else attempt.charge())

    def _pause(self, hold: Hold) -> RunResult[Any]:
        recorder = self.recorder
        recorder.show(RunSuspended(tuple(call.id for call, _ in hold.questions)))
        recorder.close()
        return report(recorder.state, recorded=True)

    def _close(self, closing: asyncio.Task[None], facts: Sequence[Fact]) -> RunResult[Any]:
        """Through the one door. If the journal did not take the end, watchers hear of it anyway."""
        recorder, error = self.recorder, _failure_of(closing)
        if error is None:
            return report(recorder.state, recorded=True)
        end = RunEnded(*self._stop) if self._stop else RunEnded("failed", str(error))
        end = replace(end, fault=_fault_of(error))
        opening = () if recorder.expected.active else self._opened
        known = () if isinstance(error, JournalCorrupt) else facts[:-1]
        return report(recorder.declare(*opening, *known, end), recorded=False)


def _failure_of(closing: asyncio.Task[None]) -> BaseException | None:
    if not closing.done():
        return JournalFailed("the journal did not answer; the end of the run may not be kept")
    if closing.cancelled():
        return JournalFailed("the last append was cancelled")
    return closing.exception()


def _failed(error: BaseException) -> RunEnded:
    fault = _fault_of(error)
    return RunEnded("failed", fault.message, fault)


def _fault_of(error: BaseException) -> Fault:
    if isinstance(error, ForOperator):
        return Fault("journal", str(error))
    return Fault("bug", f"{type(error).__name__}: {error}")
