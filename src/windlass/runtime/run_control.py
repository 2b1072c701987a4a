"""How a release, a pause and raised limits reach a run, and the runs of its sub-agents.

The law: what is asked of a run is asked of those that work for it, as the same thing: a release
releases them, a pause pauses them. They stop first, because the run waits for their calls.
"""

from collections.abc import Callable, Sequence
from itertools import chain

from windlass.core.events import Fact, LimitsRaised, RunContinued, RunPaused
from windlass.core.fold.control import raises_limits
from windlass.core.limits import RaisedLimits
from windlass.core.live_batch import FactMark, LiveItem
from windlass.core.state import State
from windlass.ports import ChildRun
from windlass.runtime.control_inbox import ControlInbox
from windlass.runtime.in_flight import InFlight
from windlass.runtime.leftover_tasks import LeftoverTasks
from windlass.runtime.recorder import Recorder
from windlass.runtime.stop_signal import ReleaseOrder, StopSignal


class RunControl:
    """What others may ask of one run, in its own event loop."""

    def __init__(
        self,
        recorder: Recorder,
        stop: StopSignal,
        inbox: ControlInbox,
        in_flight: InFlight,
        leftovers: LeftoverTasks,
        on_limits_raised: Callable[[], None],
    ) -> None:
        self._recorder = recorder
        self._stop = stop
        self._inbox = inbox
        self._in_flight = in_flight
        self._leftovers = leftovers
        self._on_limits_raised = on_limits_raised
        self._children: list[ChildRun] = []

    def add_child(self, child: ChildRun) -> None:
        """Let what is asked of this run reach the run of a sub-agent, until it is removed."""
        self._children.append(child)
        run = self._recorder.state.run
        if self._stop.release is not None:
            child.release(self._stop.release.reason, self._stop.release.grace_s)
        elif run is not None and run.pause is not None:
            child.pause(run.pause.reason, run.pause.by)

    def remove_child(self, child: ChildRun) -> None:
        self._children.remove(child)

    def take_snapshot(self) -> tuple[LiveItem, ...]:
        """Return what a watcher that comes now must be told beside the facts, which it reads.

        A mark of the facts so far, the reply so far, and the same of each sub-agent that works.
        """
        publisher = self._recorder.publisher
        if not publisher.seq:
            return ()
        nested = chain.from_iterable(child.take_snapshot() for child in self._children)
        return (
            FactMark(publisher.seq),
            *publisher.masked_so_far(self._in_flight.pieces_so_far()),
            *publisher.masked_nested(nested),
        )

    def release(self, reason: str, grace_s: float) -> None:
        """Let go of the run and of those that work for it."""
        if self._stop.request_release(ReleaseOrder(reason, grace_s)):
            self._in_flight.is_releasing = True
            for child in tuple(self._children):
                child.release(reason, grace_s)
            self._in_flight.parked_calls.announce_change()

    def pause(self, reason: str, by: str) -> None:
        """Pause the run because the one that it works for was paused."""
        self._leftovers.start_task(self._change_pause(RunPaused(reason, by)))

    async def pause_run(self, reason: str, by: str) -> None:
        """Pause the run because a call of one that works for it is parked."""
        await self._change_pause(RunPaused(reason, by, cause="deaths"))

    def end_pause(self, by: str) -> None:
        """Continue the run because the one that it works for goes on."""
        self._leftovers.start_task(self._change_pause(RunContinued(by)))

    async def _change_pause(self, fact: RunPaused | RunContinued) -> None:
        def make_facts(state: State) -> Sequence[Fact]:
            is_paused = state.run is not None and state.run.pause is not None
            return () if is_paused == isinstance(fact, RunPaused) else (fact,)

        await self._inbox.wait_until_open()
        if await self._inbox.write(make_facts):
            self.heed(fact)

    def raise_limits(self, limits: RaisedLimits, by: str) -> None:
        """Raise the limits of the run because those of the one that it works for were raised."""
        self._leftovers.start_task(self._raise_limits(LimitsRaised(limits, by)))

    async def _raise_limits(self, fact: LimitsRaised) -> None:
        def make_facts(state: State) -> Sequence[Fact]:
            return (fact,) if raises_limits(state, fact.limits) else ()

        await self._inbox.wait_until_open()
        if await self._inbox.write(make_facts):
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
                self._in_flight.parked_calls.wake_all()
            case LimitsRaised(by=by):
                self._on_limits_raised()
                self._in_flight.has_raised_limits = True
                for child in tuple(self._children):
                    child.raise_limits(by)
                self._in_flight.parked_calls.wake_all()
            case _:
                pass


class LateControl:
    """Leads the tools of a run to its control, which exists only once its driver does."""

    def __init__(self) -> None:
        self.run: RunControl | None = None

    def add_child(self, child: ChildRun) -> None:
        if self.run is not None:
            self.run.add_child(child)

    def remove_child(self, child: ChildRun) -> None:
        if self.run is not None:
            self.run.remove_child(child)

    async def pause_run(self, reason: str, by: str) -> None:
        if self.run is not None:
            await self.run.pause_run(reason, by)
