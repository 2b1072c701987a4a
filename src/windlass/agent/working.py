"""Keep driving: any number of processes share the sessions of one journal by its leases.

Invariant: a worker holds no queue. The work is in the journal (open runs without a driver, messages
that were not taken), and the lease decides which worker does it. So a worker can be killed at any
moment, and the next look of another one finds what it left.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from windlass.agent.agent import Agent
from windlass.agent.folder_watch import WAIT_S, StoreBeat
from windlass.agent.options import parts_of
from windlass.agent.sweeping import AcceptsStart
from windlass.agent.work_items import WorkItem, deal_places, find_caller, find_next_place
from windlass.core.errors import ConfigError, WindlassError
from windlass.core.limits import check_numbers
from windlass.logs import get_logger
from windlass.ports import Clock, Journal, WorkLane, WorkWanted

BEGUN_MAX = 8
"""How many sessions a look begins. More wait for the next look, which comes soon, or for that of
another worker: otherwise the first to look would take all the runs of a worker that died."""
SOON = 0.1
"""The part of the usual pause after which a worker looks again that has left something."""
REST_S = 1.0
"""How long a session is left alone that this worker can do nothing for."""
PLACED_REST_S = 10.0
"""How long a session is left alone that the engine sees to."""
PLACING_S = 2.0
"""How long the engine has to place a session before a look sees to it."""
JITTER = 0.5
"""The part of the pause between two looks that is random, so that workers do not keep in step."""
_log = get_logger(__name__)


class WorkLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one worker does at a time."""

    runs: int = 64
    """Runs that it drives at a time."""
    runs_per_agent: int | None = None
    runs_per_caller: int | None = None
    runs_per_provider: int | None = None
    """Runs whose agents ask the same provider first."""
    sweep_s: float = 0.5
    """Between two looks for work. A run whose worker died waits for about as long."""
    tries_max: int = 5
    """A run that was taken over so often without any progress is parked."""
    workspace_wait_s: float = WAIT_S
    """How long a run waits for a worker that has the folder it works in, before it is parked."""
    drain_s: float = 20.0
    """For the replies and calls that are under way when the worker is stopped."""

    def __post_init__(self) -> None:
        check_numbers(self, *self.__struct_fields__)


class WorkPlacer(Protocol):
    """Decides, in addition to the journal, where sessions are driven: an engine with queues."""

    @property
    def is_connected(self) -> bool:
        """Whether the engine is there to place sessions."""
        ...

    async def place(self, item: WorkItem) -> bool:
        """Have the engine see to a session with messages; return whether it will be driven."""
        ...

    async def note_visit(self, item: WorkItem) -> None:
        """Note that a worker drove a session that the engine had not placed."""
        ...


class SessionWorker:
    """Drives the sessions of some agents that share a journal, for as long as it runs."""

    def __init__(
        self,
        agents: Iterable[Agent[Any]],
        limits: WorkLimits | None = None,
        accepts: AcceptsStart | None = None,
        placer: WorkPlacer | None = None,
    ) -> None:
        """Work for agents by their names. Runs that `accepts` refuses by their start are left.

        With a `placer`, runs that were abandoned are still taken at once; sessions with messages
        are left to it. Raises ConfigError if the agents' journals differ, or list no sessions.
        """
        self._agents: Mapping[str, Agent[Any]] = {
            parts_of(agent).world.agent: agent for agent in agents
        }
        journals = {id(parts_of(agent).world.journal) for agent in self._agents.values()}
        if len(journals) != 1:
            raise ConfigError("a worker needs at least one agent, and one journal for all of them")
        self._journal: Journal = parts_of(next(iter(self._agents.values()))).world.journal
        self._journal.check_shareable()
        self._limits = limits or WorkLimits()
        self._accepts = accepts
        self._placer = placer
        self._driving: dict[str, tuple[WorkItem, asyncio.Task[Any]]] = {}
        self._rest_until: dict[str, float] = {}
        self._left_some = False
        """The last look began some sessions, so there may be more to do."""
        self._looked_behind = ""
        """The caller behind whom the next look begins."""
        self._woken = asyncio.Event()
        self._beats = self._make_beats()

    @property
    def _clock(self) -> Clock:
        return parts_of(next(iter(self._agents.values()))).world.clock

    def _make_beats(self) -> list[StoreBeat]:
        """Make what reports the stores of the agents' folders: one for each store."""
        worlds = [parts_of(agent).world for agent in self._agents.values()]
        stores = {id(world.folders): world.folders for world in worlds}
        wait_s = self._limits.workspace_wait_s
        return [StoreBeat(self._journal, self._clock, one, wait_s) for one in stores.values()]

    @property
    def driving(self) -> Sequence[WorkItem]:
        """The sessions that this worker drives now."""
        return tuple(item for item, _ in self._driving.values())

    def is_driving(self, session: str) -> bool:
        """Return whether this worker drives a session now."""
        return session in self._driving

    async def describe(self, session: str, agent: str) -> WorkItem:
        """Return a session as work of an agent; its caller is read only if callers have limits."""
        if self._limits.runs_per_caller is None:
            return WorkItem(session, agent, "")
        return WorkItem(session, agent, await find_caller(self._journal, session))

    def wake(self) -> None:
        """Look for work at once."""
        self._woken.set()

    async def run(self) -> None:
        """Look for work and do it, until the caller is cancelled; then release all runs."""
        try:
            while True:
                try:
                    for beat in self._beats:
                        await beat.report()
                    await self.look()
                except WindlassError as error:
                    # The journal may be away for a while. What it holds is still to be done.
                    _log.warning("the worker cannot look for work: %s", error)
                await self._pause()
        finally:
            await self.stop()

    async def look(self) -> int:
        """Begin to drive sessions without a driver, as far as there is room. Returns how many."""
        items = await self._claim_work()
        for item in items:
            self.begin(item, self._visit(item))
        self._left_some = bool(items) and len(self._driving) < self._limits.runs
        return len(items)

    def begin(self, item: WorkItem, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Do some work for a session as one of the runs of this worker, which `stop` cancels."""
        task = asyncio.create_task(work, name=f"drive {item.session}")
        self._driving[item.session] = (item, task)
        task.add_done_callback(lambda _: self._end_work(item.session))
        return task

    def _end_work(self, session: str) -> None:
        self._driving.pop(session, None)
        if len(self._driving) == self._limits.runs - 1:
            # All places were taken until now, so some work may wait.
            self.wake()

    async def stop(self) -> None:
        """Release all runs, and return when that is on record.

        What is under way gets some time. `release_at_once` ends it.
        """
        self._release_all(self._limits.drain_s)
        tasks = [task for _, task in self._driving.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def release_at_once(self) -> None:
        """Release all runs without waiting for replies and calls."""
        self._release_all(0.0)

    def _release_all(self, drain_s: float) -> None:
        for item, _ in self._driving.values():
            agent = self._agents[item.agent]
            agent.release(item.session, "the worker was stopped", drain_s, reply_s=drain_s)

    async def _pause(self) -> None:
        pause_s = self._limits.sweep_s * (1 - JITTER * self._clock.random_fraction())
        if self._left_some:
            pause_s *= SOON
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._woken.wait()
        self._woken.clear()

    async def _visit(self, item: WorkItem) -> None:
        try:
            await self._drive(item)
        except WindlassError as error:
            _log.warning("session %s cannot be driven: %s", item.session, error)
        finally:
            self._journal.release_work(item.session)

    async def _drive(self, item: WorkItem) -> None:
        placer = self._placer
        now = self._clock.now()
        if placer is not None and item.has_mail and await placer.place(item):
            self._rest_until[item.session] = now + PLACED_REST_S
            return
        sweeper = self._agents[item.agent].sweeper
        limits = self._limits
        outcome = await sweeper.visit(
            item.session, limits.tries_max, self._accepts, limits.workspace_wait_s
        )
        if outcome in ("skipped", "failed"):
            # What cannot be driven here must not hide what comes after it.
            rest = max(self._clock.now() + REST_S, sweeper.find_rest(item.session))
            self._rest_until[item.session] = rest
        elif placer is not None and outcome == "driven":
            await placer.note_visit(item)

    def has_room(self, item: WorkItem, more: Sequence[WorkItem] = ()) -> bool:
        """Return whether this worker, the agent and the caller may have one more run here.

        `more` is what it has already decided to drive besides.
        """
        limits = self._limits
        driving = (*self.driving, *more)
        if len(driving) >= limits.runs:
            return False
        rules: tuple[tuple[int | None, Callable[[WorkItem], str]], ...] = (
            (limits.runs_per_agent, lambda each: each.agent),
            (limits.runs_per_caller, lambda each: each.caller),
            (limits.runs_per_provider, self._find_provider),
        )
        for most, group_of in rules:
            if most is not None:
                groups = Counter(map(group_of, driving))
                if groups[group_of(item)] >= most:
                    return False
        return True

    def _find_provider(self, item: WorkItem) -> str:
        """Return the provider whose model the agent of a session asks first."""
        agent = self._agents.get(item.agent) or next(iter(self._agents.values()))
        return parts_of(agent).setup.model.name.partition(":")[0]

    async def _claim_work(self) -> list[WorkItem]:
        """Lease sessions that need a driver, as far as there is room, and return them."""
        places = min(BEGUN_MAX, self._limits.runs - len(self._driving))
        if places <= 0:
            return []
        now = self._clock.now()
        self._rest_until = {name: at for name, at in self._rest_until.items() if at > now}
        without = {*self._driving, *self._rest_until}
        wanted = WorkWanted([*self._agents], now, without, self._looked_behind)
        lanes = await self._journal.list_work(wanted)
        self._looked_behind = find_next_place(lanes)
        lanes = [lane for lane in lanes if self._is_ours(lane, now)]
        shares = deal_places(lanes, self.driving, places, self.has_room)
        if not shares:
            return []
        any_agent = next(iter(self._agents))
        claimed = await self._journal.claim_work(wanted, shares)
        return [WorkItem.of_claimed(work, any_agent) for work in claimed]

    def _is_ours(self, lane: WorkLane, now: float) -> bool:
        """Return whether a look takes from a lane what an engine may be about to place."""
        placer = self._placer
        if placer is None or lane.is_begun or not placer.is_connected:
            return True
        return lane.since < now - PLACING_S
