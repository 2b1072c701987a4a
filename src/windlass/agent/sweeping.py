"""Drive what lacks a driver: runs whose process has died, and messages that wait.

Questions that were not answered in time are such work too: a driver denies them.

Invariant: only root sessions are driven, and only those that need it (`needs_driver` in the core)
and belong to this agent by name and configuration. A session that makes no progress however often
it is driven, its sub-agents included, is parked, durably and visibly: its run is paused until it is
resumed.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypedDict

import msgspec

from windlass.agent import control
from windlass.agent.child_sessions import read_progress_below
from windlass.agent.driving import SessionDriver
from windlass.agent.folder_watch import LOOKS, WAIT_S, FolderWatch
from windlass.agent.runs import LiveRuns
from windlass.agent.work_items import deal_places
from windlass.core.errors import (
    NothingToDo,
    SessionBusy,
    SetupDrifted,
    WindlassError,
    WorkspaceMissing,
)
from windlass.core.events import (
    RULES_VERSION,
    Fact,
    RunPaused,
    RunReleased,
    RunResumed,
    RunStarted,
)
from windlass.core.fold.phases import find_fruitless
from windlass.core.fold.run import fold
from windlass.core.state import State
from windlass.logs import get_logger
from windlass.ports import Journal, WorkWanted

BACKOFF_MIN_S = 1.0
BACKOFF_MAX_S = 300.0
CLAIM_TRIES = 3
SWEEPER = "the sweep"
AcceptsStart = Callable[[RunStarted], bool]
VisitOutcome = Literal["driven", "busy", "parked", "failed", "skipped"]
_log = get_logger(__name__)


class SweepOptions(TypedDict, total=False):
    """How a sweep goes about it."""

    limit: int
    """Sessions that are looked at; by default 100."""
    at_once: int
    """Sessions that are driven at a time; by default 4."""
    tries_max: int
    """Tries without progress before a run is parked; by default 5."""
    jitter_s: float
    """Seconds to wait at most before each session, so that sweeps that wake together spread."""
    accepts: AcceptsStart
    """Leaves runs alone that it refuses by their start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """What one sweep did, by the names of the sessions."""

    driven: tuple[str, ...] = ()
    """Sessions that were driven until they had ended, waited or were paused."""
    busy: tuple[str, ...] = ()
    """Sessions that another driver has taken by now."""
    parked: tuple[str, ...] = ()
    """Sessions that were paused because driving them led nowhere, or a call took drivers down."""
    failed: tuple[str, ...] = ()
    """Sessions that could not be driven; they are tried again later, less and less often."""
    skipped: tuple[str, ...] = ()
    """Sessions of other agents or other configurations, sub-agents, those that need nothing, and
    those whose time has not come."""


class _Sorted(msgspec.Struct):
    """The report while the sweep is at work."""

    driven: list[str] = msgspec.field(default_factory=list[str])
    busy: list[str] = msgspec.field(default_factory=list[str])
    parked: list[str] = msgspec.field(default_factory=list[str])
    failed: list[str] = msgspec.field(default_factory=list[str])
    skipped: list[str] = msgspec.field(default_factory=list[str])


class _Trouble(msgspec.Struct, frozen=True):
    """How often in a row a session could not be driven, and when to try it again."""

    times: int
    not_before: float


class Sweeper:
    """Sweeps for one agent, and remembers which sessions it could not drive."""

    def __init__(self, runs: LiveRuns, sessions: SessionDriver) -> None:
        self._runs = runs
        self._sessions = sessions
        self._troubles: dict[str, _Trouble] = {}
        world = runs.world
        self._folder_watch = FolderWatch(world.journal, world.clock, world.folders)

    @property
    def _journal(self) -> Journal:
        return self._runs.world.journal

    async def sweep(
        self,
        *,
        limit: int = 100,
        at_once: int = 4,
        tries_max: int = 5,
        jitter_s: float = 0.0,
        accepts: AcceptsStart | None = None,
    ) -> SweepReport:
        """Drive up to `limit` sessions that need it, `at_once` at a time."""
        sorted_names = _Sorted()
        seen: set[str] = set()
        clock = self._runs.world.clock
        claiming = asyncio.Lock()

        async def work() -> None:
            while True:
                # Many sweepers that wake together must not all try the same session first.
                await clock.sleep(jitter_s * clock.random_fraction())
                async with claiming:
                    session = await self._claim_next(seen) if len(seen) < limit else None
                    if session is None:
                        return
                    seen.add(session)
                try:
                    where = await self.visit(session, tries_max, accepts)
                finally:
                    self._journal.release_work(session)
                getattr(sorted_names, where).append(session)

        await asyncio.gather(*(work() for _ in range(at_once)))
        return SweepReport(
            driven=tuple(sorted_names.driven),
            busy=tuple(sorted_names.busy),
            parked=tuple(sorted_names.parked),
            failed=tuple(sorted_names.failed),
            skipped=tuple(sorted_names.skipped),
        )

    async def read_state(self, session: str) -> State:
        """Return what the facts of a session add up to."""
        return await self._runs.read_state(session)

    async def _claim_next(self, seen: Collection[str]) -> str | None:
        """Lease the next session that needs a driver, except these; None if there is none."""
        world = self._runs.world
        # A sweep need not come again, so its first look asks who has died.
        is_first = not seen
        wanted = WorkWanted([world.agent], world.clock.now(), seen, checks_drivers=is_first)
        # Another worker may be faster, and then the next look shows what is left.
        for _ in range(CLAIM_TRIES):
            lanes = await self._journal.list_work(wanted)
            shares = deal_places(lanes, (), 1, lambda _item, _more: True)
            if not shares:
                break
            for work in await self._journal.claim_work(wanted, shares):
                return work.session
        return None

    def find_rest(self, session: str) -> float:
        """Return until when a session is left alone, because it could not be driven."""
        trouble = self._troubles.get(session)
        return 0.0 if trouble is None else trouble.not_before

    async def visit(
        self,
        session: str,
        tries_max: int = 5,
        accepts: AcceptsStart | None = None,
        workspace_wait_s: float = WAIT_S,
    ) -> VisitOutcome:
        """Drive one session until it ends, waits, is paused or is released; return the outcome.

        The names are those of SweepReport. If the caller is cancelled, the run is released. A run
        whose folder no worker has had for `workspace_wait_s` seconds is parked.
        """
        now = self._runs.world.clock.now()
        trouble = self._troubles.get(session)
        if trouble is not None and now < trouble.not_before:
            return "skipped"
        try:
            if await self._runs.is_moved(session):
                return "skipped"
            return await self.drive_own(session, tries_max, accepts)
        except SessionBusy:
            return "busy"
        except WorkspaceMissing:
            self._troubles[session] = _Trouble(1, now + workspace_wait_s / LOOKS)
            is_parked = await self.park_without_folder(session, workspace_wait_s)
            return "parked" if is_parked else "skipped"
        except WindlassError as error:
            # Also a session that is corrupt: the others must not wait for it.
            times = trouble.times + 1 if trouble is not None else 1
            wait_s = min(BACKOFF_MAX_S, BACKOFF_MIN_S * 2 ** (times - 1))
            wait_s *= 0.5 + self._runs.world.clock.random_fraction()
            self._troubles[session] = _Trouble(times, now + wait_s)
            if isinstance(error, SetupDrifted):
                # Another configuration of the agent may be at work elsewhere, and take it.
                return "skipped"
            _log.warning("session %s cannot be driven, try %s: %s", session, times, error)
            return "failed"

    async def drive_own(
        self,
        session: str,
        tries_max: int = 5,
        accepts: AcceptsStart | None = None,
        *,
        consent: bool = False,
    ) -> VisitOutcome:
        """Drive one session if it is this agent's and needs it; errors go to the caller.

        Raises what `Agent.drive` raises, such as SessionBusy, WorkspaceMissing and, without
        consent, SetupDrifted.
        """
        facts = await self._journal.read(session)
        state = fold(session, facts)
        if state.parent:
            # Only the run that a sub-agent works for drives its session. If that has ended, the
            # sub-agent ends too; the journal is enough for it, so the agent may be any.
            is_settled = await self._runs.undriven.settle_orphan(session)
            return "driven" if is_settled else "skipped"
        if not await self._is_own(facts, state, accepts):
            return "skipped"
        if not await self._sessions.has_work(state):
            return "skipped"
        if await self._leads_nowhere(state, tries_max):
            await self.park(
                session, f"{tries_max} drivers in a row died in it without any progress"
            )
            return "parked"
        self._sessions.require_folder(state)
        result = await self._sessions.drive(session, consent=consent, leaves_waiting=True)
        self._troubles.pop(session, None)
        self._folder_watch.forget(session)
        if result is not None and result.outcome == "paused" and await self._is_parked(session):
            _log.warning("session %s is %s", session, result.reason)
            return "parked"
        return "driven"

    async def _leads_nowhere(self, state: State, tries_max: int) -> bool:
        """Whether `tries_max` drivers in a row died without any progress of the session tree."""
        run = state.run
        if run is None or not state.is_active or state.is_queued:
            return False
        if len(find_fruitless(state, run, None)) < tries_max:
            return False
        below = await read_progress_below(self._journal, state)
        return len(find_fruitless(state, run, below)) >= tries_max

    async def _is_parked(self, session: str) -> bool:
        """Whether a run is paused because a call took its process down."""
        run = (await self._runs.read_state(session)).run
        return run is not None and run.pause is not None and run.pause.cause == "deaths"

    async def park_without_folder(self, session: str, wait_s: float = WAIT_S) -> bool:
        """Pause a run whose folder no worker has had for `wait_s` seconds; return whether it is.

        A prompt in the queue becomes a run first, so that the reason is on record.
        """
        state = await self._runs.read_state(session)
        folder = state.folder
        if folder is None or not await self._folder_watch.is_lost(session, folder, wait_s):
            return False
        self._folder_watch.forget(session)
        why = (
            f"no worker has had its folder {folder.name} (store {folder.store}) for {wait_s:g} s; "
            "start one that has it"
        )
        if state.is_active and not state.is_queued:
            await self.park(session, why)
        else:
            await self._sessions.begin_paused(session, _parked_reason(why), SWEEPER)
        return True

    async def cancel_all(self, session: str, reason: str) -> None:
        """End the open run of a session, wherever it is driven, and refuse its queue."""
        with suppress(NothingToDo):
            await control.cancel(self._journal, session, reason)
        await self._sessions.refuse_queue(session, reason)

    async def _is_own(
        self, facts: Sequence[Fact], state: State, accepts: AcceptsStart | None
    ) -> bool:
        """Whether a root session is of an agent with this name, by its last run or its queue."""
        if state.is_queued:
            return state.agent in ("", self._runs.world.agent)
        starts = (fact for fact in reversed(facts) if isinstance(fact, RunStarted))
        last = next(starts, None)
        if last is not None and state.is_active and accepts is not None and not accepts(last):
            return False
        if last is None or last.agent == self._runs.world.agent:
            return True
        return not state.is_active and await self._sessions.is_named_next(state)

    async def park(self, session: str, why: str) -> None:
        """Pause a run that leads nowhere here. Resuming it is what takes it up again."""
        reason = _parked_reason(why)

        def park(state: State) -> Sequence[Fact]:
            is_open = state.is_active and not state.is_queued
            if not is_open or state.run is None or state.run.pause is not None:
                return ()
            return (
                RunResumed(rules=RULES_VERSION),
                RunPaused(reason, SWEEPER),
                RunReleased("parked"),
            )

        await self._runs.write_facts(session, park)
        _log.warning("session %s is %s", session, reason)


def _parked_reason(why: str) -> str:
    return f"parked: {why}. Look at it with `windlass sessions explain`, then resume or cancel it"
