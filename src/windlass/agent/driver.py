"""One run, from its first fact to its one end.

The loop runs as a task of its own, and the driver stands beside it: a cancel, a deadline, an error
and a bug all lead to the same door, within a bounded time, whatever that task does.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from windlass.agent.crew import Crew
from windlass.agent.watch import Events
from windlass.core.decide import Finish, Hold
from windlass.core.errors import ForOperator, JournalCorrupt, JournalFailed
from windlass.core.events import (
    CallFinished,
    CallLate,
    Fact,
    Outcome,
    RunEnded,
    RunResumed,
    RunSuspended,
    TextDelta,
)
from windlass.core.faults import Fault
from windlass.core.fold import fold
from windlass.core.messages import Result
from windlass.core.report import report
from windlass.core.result import RunResult
from windlass.core.state import State
from windlass.loop import Underway, outcome_of, run
from windlass.ports import Recovering, World
from windlass.recorder import Recorder

UNWIND_S = 0.05
"""How long the loop may take to let go once it is stopped."""
END_S = 0.09
"""How long all of the end may take, the last record included."""
GRAIN_S = 0.001


Opening = Callable[[State], Sequence[Fact]]
"""The facts that open a run in a session as it is found; raises ForOperator if none may."""


class Driver:
    """Drives one run to its end, or to the question that it must wait for."""

    def __init__(self, world: World, recorder: Recorder, crew: Crew, opening: Opening) -> None:
        self._world = world
        self._crew = crew
        self._opening = opening
        self._opened: Sequence[Fact] = ()
        self._underway = Underway()
        self.loop = asyncio.get_running_loop()
        self.gone = asyncio.Event()
        """Set when nothing of the run is left but what outlives it."""
        self._stop: tuple[Outcome, str] | None = None
        self._halt: asyncio.Future[float] = self.loop.create_future()
        """When the run was stopped."""
        self._deadline: asyncio.TimerHandle | None = None
        self.recorder = recorder
        self.attached: list[Events[Any]] = []
        """Watchers that came later."""

    def cancel(self, reason: str, outcome: Outcome = "cancelled") -> None:
        """Stop the run, from any thread. The first reason counts."""
        self.loop.call_soon_threadsafe(self._cancel, str(reason), outcome)

    def _cancel(self, reason: str, outcome: Outcome) -> None:
        if self._stop is None:
            self._stop = (outcome, reason)
            self._halt.set_result(self.loop.time())

    def heard(self) -> TextDelta | None:
        """The text of the attempt under way, for a watcher that comes in the middle of it."""
        attempt = self._underway.attempt
        if attempt is None or not attempt.partial:
            return None
        attempt.visible = True
        return self.recorder.placed(TextDelta(attempt.partial))

    async def drive(self) -> RunResult[Any]:
        """The result of the run, whichever way it ends; raises if it cannot even begin."""
        await self._open()
        body = asyncio.create_task(self._run())
        await self._wait(body, cancel=True)
        if self._deadline is not None:
            self._deadline.cancel()
        end = self._end_of(body)
        if isinstance(end, Hold):
            return self._pause(end)
        facts = (*self._leftovers(), self._settled(end))
        closing = asyncio.create_task(self.recorder.record(*facts))
        await self._wait(closing)
        return self._close(closing, facts)

    async def _open(self) -> None:
        """Read the session and write down that a run begins. Until then, no run can fail."""
        reading = asyncio.create_task(self._read())
        await self._wait(reading)
        if not reading.done():
            raise JournalFailed("the journal did not answer")
        self.recorder.state = fold(self.recorder.session, reading.result())
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

    async def _read(self) -> Sequence[Fact]:
        return await self._world.journal.read(self.recorder.session)

    async def _run(self) -> Finish | Hold:
        if self._stop is not None:
            raise asyncio.CancelledError
        limit, run_state = self.recorder.setup.limits.seconds, self.recorder.state.run
        if limit is not None and run_state is not None:
            left = max(0.0, limit - run_state.elapsed_s)
            stop = partial(self._cancel, f"the limit of {limit:g} s is reached", "timed_out")
            self._deadline = asyncio.get_running_loop().call_later(left, stop)
        return await run(self._world, self.recorder, self._underway)

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
            fault = _fault_of(error)
            return RunEnded("failed", fault.message, fault)
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
        if attempt is not None and attempt.whole:
            yield attempt.proposed()
        for task, call_id in calls.items():
            if task.done() and not task.cancelled():
                yield CallFinished(call_id, outcome_of(task))
            else:
                self._crew.dismiss(task, partial(self._late, call_id))
        calls.clear()

    def _late(self, call_id: str, result: Result) -> None:
        self.recorder.late(CallLate(call_id, result))

    def _settled(self, end: RunEnded) -> RunEnded:
        """The end, with what was paid for and heard of an attempt that was under way."""
        attempt = self._underway.attempt
        if attempt is None or attempt.whole:
            return end
        return replace(end, partial=attempt.partial, charge=attempt.charge())

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


def _fault_of(error: BaseException) -> Fault:
    if isinstance(error, ForOperator):
        return Fault("journal", str(error))
    return Fault("bug", f"{type(error).__name__}: {error}")
