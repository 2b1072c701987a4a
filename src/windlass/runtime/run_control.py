"""What is asked of a run while it is driven: to end, to be released, to pause, to take a message.

Invariants: an end takes at most 100 ms, whatever the run is doing. A release gives the calls that
run a grace period to finish, and everything else none, unless it gives the reply that is being
written some time too, so that it is not paid for twice. A second release without any grace ends the
wait. An end that is requested meanwhile comes first. What is accepted is taken up before the run
goes further, or the run was stopped; what comes after the end is decided is refused, and the caller
is notified. What is asked of a run is asked of its sub-agents, as the same thing: they stop first,
because the run waits for their calls.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import msgspec

from windlass.core.errors import IllegalFact
from windlass.core.events import (
    Fact,
    LimitsRaised,
    ReleaseAsked,
    RunContinued,
    RunEnded,
    RunPaused,
    SteeringGiven,
)
from windlass.core.fold.control import raises_limits
from windlass.core.limits import RaisedLimits
from windlass.core.live_batch import FactMark, LiveItem
from windlass.core.state import State
from windlass.ports import ChildRun
from windlass.runtime.in_flight import EndChildren, InFlight
from windlass.runtime.leftover_tasks import TIMER_GRAIN_S, LeftoverTasks
from windlass.runtime.recorder import Recorder

UNWIND_WAIT_S = 0.05
"""How long the loop may take to unwind once it is cancelled."""
END_WAIT_S = 0.09
"""How long all of the end may take, the last append included: a cancel takes at most 100 ms."""


MOVE_S = 20.0
"""For the calls and the reply that are under way when a caller moves the run to another driver."""


class ReleaseOrder(msgspec.Struct, frozen=True):
    """Release the run for this reason.

    Running calls get `grace_s` seconds to finish, and a reply that is being written `reply_s`.
    """

    reason: str
    grace_s: float
    reply_s: float = 0.0

    @property
    def is_immediate(self) -> bool:
        """Whether nothing that is under way is waited for."""
        return not self.grace_s and not self.reply_s


class StopSignal:
    """Whether a run must stop: nothing, an end, or a release so that another driver can resume it.

    A limit of time requests an end as a cancel does. No timer is set while the run waits for a
    person.
    """

    def __init__(self, leftovers: LeftoverTasks) -> None:
        """Make a signal. A stage that is not waited for any longer goes to the `leftovers`."""
        self._leftovers = leftovers
        self._loop = loop = asyncio.get_running_loop()
        self.end: RunEnded | None = None
        """How the run must end, once it was cancelled or is out of time."""
        self.release: ReleaseOrder | None = None
        self.stopped_at: asyncio.Future[float] = loop.create_future()
        """When the end was requested; not done before."""
        self._release_asked: asyncio.Future[None] = loop.create_future()
        self._released_at_once: asyncio.Future[None] = loop.create_future()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._last_activity_at = 0.0

    def request_end(self, end: RunEnded) -> None:
        """Stop the run. Only the first end counts."""
        if self.end is None:
            self.end = end
            self.stopped_at.set_result(self._loop.time())

    def request_release(self, order: ReleaseOrder) -> bool:
        """Release the run. Returns False if it must end or was to be released already.

        One that waits for nothing counts even then.
        """
        if order.is_immediate and not self._released_at_once.done():
            self._released_at_once.set_result(None)
        elif self.release is not None:
            return False
        if self.end is not None:
            return False
        self.release = order
        if not self._release_asked.done():
            self._release_asked.set_result(None)
        return True

    async def wait_for_stage(self, stage: asyncio.Task[Any], *, cancel: bool = False) -> None:
        """Wait for a stage of the run; once the run is stopped, only for a bounded time."""
        # Not awaited if it is done already: even that would let the stage go a little further.
        if not self.stopped_at.done():
            await asyncio.wait({stage, self.stopped_at}, return_when=asyncio.FIRST_COMPLETED)
        if stage.done():
            return
        self._leftovers.track(stage)
        if cancel:
            stage.cancel()
        # However late it is, a stage gets the time to begin.
        end_at = self.stopped_at.result() + END_WAIT_S
        wait_s = max(TIMER_GRAIN_S, end_at - self._loop.time())
        if cancel:
            wait_s = min(wait_s, UNWIND_WAIT_S)
        await asyncio.wait({stage}, timeout=wait_s)

    def spare_s(self) -> float:
        """Return the seconds that may pass before the end must be on its way to the journal."""
        if not self.stopped_at.done():
            return math.inf
        return self.stopped_at.result() + END_WAIT_S / 2 - self._loop.time()

    async def wait_for_loop(
        self, stage: asyncio.Task[Any], in_flight: InFlight | None = None
    ) -> None:
        """Wait for a stage that also stops to be released, after the grace of what is in flight."""
        asked = {stage, self.stopped_at, self._release_asked}
        await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        still_going = {stage, self.stopped_at}
        if self.release is not None and in_flight is not None:
            reply_s = self.release.reply_s if in_flight.attempt is not None else 0.0
            if in_flight.running_calls or reply_s:
                calls_s = self.release.grace_s if in_flight.running_calls else 0.0
                await asyncio.wait(
                    {*still_going, self._released_at_once},
                    timeout=max(calls_s, reply_s),
                    return_when=asyncio.FIRST_COMPLETED,
                )
        if self.release is not None and not stage.done() and self.end is None:
            self._leftovers.track(stage)
            stage.cancel()
            await asyncio.wait(
                still_going, timeout=UNWIND_WAIT_S, return_when=asyncio.FIRST_COMPLETED
            )
        if self.release is None or self.end is not None:
            await self.wait_for_stage(stage, cancel=True)

    def note_activity(self) -> None:
        """Note that something happened in the run: the limit of idle seconds starts again.

        This is called for every piece of a reply. It only notes the time; one timer looks at it.
        """
        self._last_activity_at = self._loop.time()

    def start_timers(self, recorder: Recorder) -> None:
        """Set timers for the time that the run has left, unless it must end already."""
        state = recorder.state
        setup = state.setup
        if self.end is not None or state.run is None or setup is None:
            return
        for owner, limit, elapsed_s in (
            ("the", setup.limits.seconds, state.run.elapsed_s),
            ("the session's", setup.session_limits.seconds, state.elapsed_s),
        ):
            if limit is not None:
                end = RunEnded("timed_out", f"{owner} limit of {limit:g} s is reached")
                remaining_s = max(0.0, limit - elapsed_s)
                self._timers[owner] = self._loop.call_later(remaining_s, self.request_end, end)
        idle_s = setup.limits.idle_seconds
        if idle_s is not None:
            recorder.publisher.on_activity = self.note_activity
            self.note_activity()
            self._check_idle(idle_s)

    def _check_idle(self, idle_s: float) -> None:
        remaining_s = self._last_activity_at + idle_s - self._loop.time()
        if remaining_s < TIMER_GRAIN_S:
            self.request_end(RunEnded("timed_out", f"nothing happened for {idle_s:g} s"))
        else:
            again = self._loop.call_later(remaining_s, self._check_idle, idle_s)
            self._timers["idle"] = again

    def cancel_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()


class RunControl:
    """What others may ask of one run, in its own event loop."""

    def __init__(
        self, recorder: Recorder, leftovers: LeftoverTasks, end_children: EndChildren
    ) -> None:
        self._recorder = recorder
        self._leftovers = leftovers
        self.stop = StopSignal(leftovers)
        self.in_flight = InFlight(
            end_children=end_children, stop_run=self.cancel, stopped_at=self.stop.stopped_at
        )
        self._opened = asyncio.Event()
        self.news = asyncio.Event()
        """Set by each fact from outside; the driver clears it before it waits for the next."""
        self._writing: set[asyncio.Task[None]] = set()
        self._is_shut = False
        self._children: list[ChildRun] = []
        self.moved_from = 0
        """The opening of this driver, once a caller has moved the run to another driver."""

    def cancel(self, reason: str) -> None:
        """Stop the run. Only the first reason counts."""
        self.stop.request_end(RunEnded("cancelled", reason))

    # What is written into the run's journal from outside.

    def open(self) -> None:
        """Let those in who wait to speak to the run: it has begun, or could not."""
        self._opened.set()

    async def steer(self, fact: SteeringGiven) -> bool:
        """Write down what a person says. Returns False if the run no longer takes it up."""
        await self._opened.wait()
        return await self.write(lambda _: (fact,))

    async def write(self, make_facts: Callable[[State], Sequence[Fact]]) -> bool:
        """Write the facts that follow from the state at that moment, and wait until they are kept.

        Returns False if the run takes nothing in any more.
        """
        recorder = self._recorder
        if self._is_shut or recorder.is_closed or not recorder.expected_state.is_active:
            return False
        writing = asyncio.create_task(recorder.record_from(make_facts))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)
        try:
            await asyncio.shield(writing)
        except IllegalFact:
            return False  # The end was written first.
        self.news.set()
        return True

    async def has_news(self) -> bool:
        """Return whether something was written that the loop did not know of when it decided.

        If there is no news, nothing is accepted any more.
        """
        stopped = self.stop.stopped_at
        while self._writing and not stopped.done():
            waited_for = {*self._writing, stopped}
            await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
        decided_from = self.in_flight.decided_from
        is_same = decided_from is None or self._recorder.state is decided_from
        self._is_shut = stopped.done() or is_same
        return not self._is_shut

    # What reaches the sub-agents of the run as well.

    def add_child(self, child: ChildRun) -> None:
        """Let what is asked of this run reach the run of a sub-agent, until it is removed."""
        self._children.append(child)
        run = self._recorder.state.run
        if self.stop.release is not None:
            order = self.stop.release
            child.release(order.reason, order.grace_s, order.reply_s)
        elif run is not None and run.pause is not None:
            child.pause(run.pause.reason, run.pause.by)

    def remove_child(self, child: ChildRun) -> None:
        self._children.remove(child)

    def take_snapshot(self) -> tuple[LiveItem, ...]:
        """Return what a new watcher must receive beside the facts, which it reads itself.

        A mark of the facts so far, the reply so far, and the same of each sub-agent that works.
        """
        publisher = self._recorder.publisher
        if not publisher.seq:
            return ()
        nested = chain.from_iterable(child.take_snapshot() for child in self._children)
        return (
            FactMark(publisher.seq),
            *publisher.masked_so_far(self.in_flight.pieces_so_far()),
            *publisher.masked_nested(nested),
        )

    def release(self, reason: str, grace_s: float, reply_s: float = 0.0) -> None:
        """Release the run and its sub-agents."""
        if self.stop.request_release(ReleaseOrder(reason, grace_s, reply_s)):
            self.in_flight.is_releasing = True
            for child in tuple(self._children):
                child.release(reason, grace_s, reply_s)
            self.in_flight.parked_calls.announce_change()

    def pause(self, reason: str, by: str) -> None:
        """Pause the run because the one that it works for was paused."""
        self._leftovers.start_task(self._change_pause(RunPaused(reason, by)))

    async def pause_run(self, reason: str, by: str) -> None:
        """Pause the run because a call of one that works for it is parked."""
        await self._change_pause(RunPaused(reason, by, cause="deaths"))

    def end_pause(self, by: str) -> None:
        """Continue the run because the one that it works for continues."""
        self._leftovers.start_task(self._change_pause(RunContinued(by)))

    async def _change_pause(self, fact: RunPaused | RunContinued) -> None:
        def make_facts(state: State) -> Sequence[Fact]:
            is_paused = state.run is not None and state.run.pause is not None
            return () if is_paused == isinstance(fact, RunPaused) else (fact,)

        await self._opened.wait()
        if await self.write(make_facts):
            self.heed(fact)

    def raise_limits(self, limits: RaisedLimits, by: str) -> None:
        """Raise the limits of the run because those of the one that it works for were raised."""
        self._leftovers.start_task(self._raise_limits(LimitsRaised(limits, by)))

    async def _raise_limits(self, fact: LimitsRaised) -> None:
        def make_facts(state: State) -> Sequence[Fact]:
            return (fact,) if raises_limits(state, fact.limits) else ()

        await self._opened.wait()
        if await self.write(make_facts):
            self.heed(fact)

    def heed(self, fact: Fact) -> None:
        """Let a fact that came from outside take effect where the state alone does not show it."""
        match fact:
            case RunPaused(reason=reason, by=by):
                for child in tuple(self._children):
                    child.pause(reason, by)
            case RunContinued(by=by):
                for child in tuple(self._children):
                    child.end_pause(by)
                self.in_flight.parked_calls.wake_all()
            case LimitsRaised(by=by):
                if self.in_flight.decided_from is None:
                    # The run is not waiting: its timers follow the new limits.
                    self.stop.cancel_timers()
                    self.stop.start_timers(self._recorder)
                self.in_flight.has_raised_limits = True
                for child in tuple(self._children):
                    child.raise_limits(by)
                self.in_flight.parked_calls.wake_all()
            case ReleaseAsked(reason=reason):
                run = self._recorder.state.run
                self.moved_from = run.opening_seq if run is not None else 0
                self.release(f"moved: {reason}" if reason else "moved", MOVE_S, MOVE_S)
            case _:
                pass
