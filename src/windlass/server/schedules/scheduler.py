"""Fires the schedules of a journal for their owners, together with all other processes that do so.

Invariant: a firing is decided by compare and set before it is carried out (`schedule.py`), and
carried out under a key that follows from it. Killed at any point, no firing is lost and none
happens twice.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol

from windlass.agent.agent import Agent
from windlass.agent.control import ControlReceipt
from windlass.agent.handles import RunHandle
from windlass.core.errors import NothingToDo, WindlassError
from windlass.core.verdicts import PERSON_KEY
from windlass.logs import get_logger
from windlass.ports import Journal, SharedRecord
from windlass.server.access import LOCAL_OWNER, Caller, full_session_name
from windlass.server.errors import ApiError
from windlass.server.owned_records import document_name, full_name
from windlass.server.run_controls import StartRequest
from windlass.server.schedules.schedule import (
    Schedule,
    ScheduleStore,
    decide_firing,
    note_started,
    note_trouble,
    skip_firing,
)
from windlass.server.session_directory import OwnedSession

TAKE_OVER_S = 5.0
"""How long the process that decided about a firing has to carry it out, before others do."""
UNSERVED_S = 10.0
"""How long a schedule is due before it is said that no service has its agent."""
AT_ONCE = 8
"""Schedules that are looked at side by side."""
PAGE_RECORDS = 500
REMEMBERED_MAX = 100_000
"""Schedules whose next time is remembered."""
DECISIONS_MAX = 200
"""Firings of one schedule that one pass decides about; the next pass continues."""
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ScheduledRuns:
    """What the scheduler needs of the service that runs agents."""

    agents: Collection[str]
    """The names of the agents that can be started here. A schedule without one takes the first."""
    is_busy: Callable[[Schedule, str], Awaitable[bool]]
    """Whether the last run of a session has not ended."""
    start: Callable[[Schedule, int], Awaitable[str]]
    """Start the run of a fire time, or find it. Returns the name of its session."""
    cancel: Callable[[Schedule, str], Awaitable[None]]
    """Cancel the open run of a session, if it has one."""


class Scheduler:
    """Checks all schedules periodically."""

    def __init__(self, store: ScheduleStore, runs: ScheduledRuns, now: Callable[[], float]) -> None:
        self._store = store
        self._runs = runs
        self._now = now
        self._idle_until: dict[str, tuple[int, float]] = {}
        """By record: its version, and the time before which there is nothing to do."""

    async def run_due(self) -> int:
        """Do what is due now, for all schedules. Returns how many runs were started.

        An error of one schedule is logged, and stops none of the others.
        """
        started = 0
        after = ""
        if len(self._idle_until) > REMEMBERED_MAX:
            self._idle_until.clear()
        while records := await self._store.list_records(after, PAGE_RECORDS):
            after = records[-1].name
            for start in range(0, len(records), AT_ONCE):
                batch = records[start : start + AT_ONCE]
                started += sum(await asyncio.gather(*map(self._run_logged, batch)))
        return started

    async def _run_logged(self, record: SharedRecord) -> int:
        try:
            return await self._run_schedule(record)
        except WindlassError as error:
            _log.warning("schedule %s: %s", document_name(record), error)
        except Exception:  # noqa: BLE001 - a record that cannot be read must not stop the others
            _log.exception("schedule %s failed", document_name(record))
        return 0

    async def _run_schedule(self, record: SharedRecord) -> int:
        """Decide about what is due and carry it out. Stops as soon as another is faster."""
        version, idle_until = self._idle_until.get(record.name, (0, 0.0))
        if version == record.version and self._now() < idle_until:
            return 0
        schedule = self._store.decode(record)
        if schedule.is_idle:
            due_at = schedule.due_at
            self._idle_until[record.name] = (record.version, inf if due_at is None else due_at)
        if schedule.agent and schedule.agent not in self._runs.agents:
            await self._note_unserved(record, schedule)
            return 0
        started = 0
        if schedule.firing is not None:
            if self._now() < schedule.firing.decided_at + TAKE_OVER_S:
                return 0
            started += await self._carry_out(record.name, schedule)
            return started
        for _ in range(DECISIONS_MAX):
            decided = await self._decide(schedule)
            if decided is None:
                break
            written = await self._store.replace(record, decided)
            if written is None:
                break
            record = written
            schedule = decided
            if schedule.firing is not None:
                started += await self._carry_out(record.name, schedule)
                break
        return started

    async def _note_unserved(self, record: SharedRecord, schedule: Schedule) -> None:
        """Note on a long overdue schedule that no service on this journal has its agent."""
        due_at = schedule.due_at
        since = schedule.firing.decided_at if schedule.firing is not None else due_at
        if since is None or self._now() < since + UNSERVED_S:
            return
        noted = note_trouble(schedule, f"no service on this journal has the agent {schedule.agent}")
        if noted != schedule and await self._store.replace(record, noted) is not None:
            _log.warning("schedule %s: %s", full_name(schedule), noted.last_error)

    async def _decide(self, schedule: Schedule) -> Schedule | None:
        due_at = schedule.due_at
        is_due = due_at is not None and due_at <= self._now()
        if schedule.is_paused or not (is_due or schedule.waiting):
            return None
        other = schedule.session or schedule.last_session
        is_busy = bool(other) and await self._runs.is_busy(schedule, other)
        return decide_firing(schedule, self._now(), is_busy=is_busy)

    async def _carry_out(self, record_name: str, schedule: Schedule) -> int:
        """Start the run of a firing, and note it. Returns 1 if the run is there."""
        firing = schedule.firing
        if firing is None:
            return 0
        try:
            if firing.cancels:
                await self._runs.cancel(schedule, firing.cancels)
            session = await self._runs.start(schedule, firing.fire_time)
        except (WindlassError, ApiError) as error:
            await self._note_failure(record_name, schedule, str(error))
            return 0

        def note(known: Schedule) -> Schedule | None:
            return note_started(known, session) if known.firing == firing else None

        await self._store.change(record_name, note)
        return 1

    async def _note_failure(self, record_name: str, schedule: Schedule, why: str) -> None:
        """Give up a firing that could not be started in time; before, it is tried again."""
        firing = schedule.firing
        _log.warning("schedule %s could not start its run: %s", full_name(schedule), why)
        if firing is None:
            return
        is_late = self._now() >= firing.decided_at + schedule.catch_up_s

        def note(known: Schedule) -> Schedule | None:
            if known.firing != firing:
                return None
            if is_late:
                return skip_firing(known, firing.fire_time, why)
            return note_trouble(known, why)

        await self._store.change(record_name, note)


class SchedulingService(Protocol):
    """What schedules need of a service."""

    journal: Journal
    agents: Mapping[str, Agent[Any]]

    async def start_run(self, caller: Caller, request: StartRequest) -> RunHandle[Any]: ...

    async def find_session(self, caller: Caller, session: str) -> OwnedSession: ...

    async def cancel(self, session: OwnedSession, reason: str = "cancelled") -> ControlReceipt: ...


def make_scheduler(service: SchedulingService, now: Callable[[], float]) -> Scheduler:
    """Return what fires the schedules of a service's journal."""

    async def is_busy(schedule: Schedule, session: str) -> bool:
        try:
            found = await service.find_session(_owner_of(schedule), session)
        except ApiError:
            # There is no such session, none of the owner's, or its first prompt waits for a worker.
            name = full_session_name(schedule.owner, session)
            return await _has_prompt(service.journal, name)
        return found.summary.outcome is None

    async def start(schedule: Schedule, fire_time: int) -> str:
        firing = schedule.firing
        request = StartRequest(
            prompt=schedule.prompt,
            agent=schedule.agent,
            session=schedule.session_of(fire_time),
            key=schedule.key_of(fire_time),
            # The start is already decided: if the session is busy by now, wait for it.
            on_busy="replace" if firing is not None and firing.cancels else "queue",
        )
        return (await service.start_run(_owner_of(schedule), request)).session

    async def cancel(schedule: Schedule, session: str) -> None:
        try:
            found = await service.find_session(_owner_of(schedule), session)
            await service.cancel(found, "the next run of its schedule is due")
        except (NothingToDo, ApiError):
            # It has ended, or was deleted.
            return

    runs = ScheduledRuns(service.agents.keys(), is_busy, start, cancel)
    return Scheduler(ScheduleStore(service.journal, now), runs, now)


async def _has_prompt(journal: Journal, session: str) -> bool:
    return bool(await journal.read_mail(session, "prompts"))


def _owner_of(schedule: Schedule) -> Caller:
    """Return the owner of the schedule. All but the local owner may only start runs."""
    if not schedule.owner:
        return LOCAL_OWNER
    person = str(schedule.context.get(PERSON_KEY, ""))
    return Caller(schedule.owner, frozenset({"start"}), context=schedule.context, person=person)
