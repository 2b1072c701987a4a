"""Schedules that the engine fires: it has the times, and the journal has what is to be said.

Invariant: each firing has a workflow whose id carries the time, and the session is named by that
id. The prompt goes into the queue of the session with a key of that name, so that a firing that is
carried out twice starts one run.
"""

import re
from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec
from temporalio.client import (
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleCalendarSpec,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleRange,
    ScheduleSpec,
    ScheduleState,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from windlass.agent.agent import Agent
from windlass.agent.options import parts_of
from windlass.core.errors import ConfigError, NothingToDo, RecordConflict
from windlass.fleet.engine import TemporalEngine, explain_failure
from windlass.fleet.session_workflow import WORKFLOW_NAME, DriveOrder
from windlass.ports import Journal, SharedRecords

RECORD_KIND = "engine-schedule"
EngineOverlap = Literal["skip", "queue", "cancel"]
CATCH_UP_MIN_S = 10.0
"""The engine takes nothing below it."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")
_OVERLAPS: Mapping[EngineOverlap, ScheduleOverlapPolicy] = {
    "skip": ScheduleOverlapPolicy.SKIP,
    "queue": ScheduleOverlapPolicy.BUFFER_ALL,
    "cancel": ScheduleOverlapPolicy.CANCEL_OTHER,
}


class ScheduledPrompt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a schedule says, and to whom: the part of it that the engine does not see."""

    prompt: str
    agent: str = ""
    session: str = ""
    """The session that all runs continue; each has its own session if this is empty."""
    caller: str = ""


class EngineTimes(msgspec.Struct, frozen=True, kw_only=True):
    """When a schedule fires: one of `cron`, `every_s` and `at`. Times are seconds."""

    cron: str = ""
    timezone: str = "UTC"
    """Of the cron expression."""
    every_s: int = 0
    at: int = 0
    """Once, since the epoch."""
    overlap: EngineOverlap = "skip"
    """What happens to a firing while the run before it has not ended."""
    catch_up_s: float = 300.0
    """How late a run may start after a time when the engine was away."""
    jitter_s: float = 0.0

    def to_spec(self) -> ScheduleSpec:
        """Return the times as the engine takes them. Raises ConfigError without exactly one."""
        if sum(map(bool, (self.cron, self.every_s, self.at))) != 1:
            raise ConfigError("give one of cron, every_s and at: when should the run start?")
        jitter = timedelta(seconds=self.jitter_s)
        if self.cron:
            return ScheduleSpec(
                cron_expressions=[self.cron], time_zone_name=self.timezone, jitter=jitter
            )
        if self.every_s:
            every = ScheduleIntervalSpec(every=timedelta(seconds=self.every_s))
            return ScheduleSpec(intervals=[every], jitter=jitter)
        moment = datetime.fromtimestamp(self.at, UTC)
        calendar = ScheduleCalendarSpec(
            second=[ScheduleRange(moment.second)],
            minute=[ScheduleRange(moment.minute)],
            hour=[ScheduleRange(moment.hour)],
            day_of_month=[ScheduleRange(moment.day)],
            month=[ScheduleRange(moment.month)],
            year=[ScheduleRange(moment.year)],
        )
        return ScheduleSpec(calendars=[calendar], jitter=jitter)


class ListedSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as the engine lists it. Times are seconds since the epoch."""

    name: str
    agent: str
    next_time: float | None
    is_paused: bool
    note: str
    last_session: str
    """The session of its last run; empty if it has started none."""


class EngineSchedules:
    """The schedules of one journal in an engine."""

    def __init__(self, engine: TemporalEngine, journal: Journal) -> None:
        self._engine = engine
        self._records: SharedRecords = journal

    def _schedule_id(self, name: str) -> str:
        return f"{self._engine.address.prefix}/{name}"

    async def create(self, name: str, scheduled: ScheduledPrompt, times: EngineTimes) -> None:
        """Keep a schedule, which fires from now on.

        Raises ConfigError if there is one of this name, or the engine does not take its times.
        """
        if _NAME.fullmatch(name) is None:
            raise ConfigError(
                f"{name[:80]!r} cannot be the name of a schedule: it has 1 to 80 letters, digits, "
                "dashes and underscores, and begins with a letter or digit"
            )
        schedule = self._build_schedule(name, scheduled, times)
        data = msgspec.json.encode(scheduled)
        try:
            kept = await self._records.put_record(RECORD_KIND, name, data, 0)
        except RecordConflict:
            raise _already_there(name) from None
        try:
            await self._engine.client.create_schedule(self._schedule_id(name), schedule)
        except (RPCError, ScheduleAlreadyRunningError) as error:
            await self._records.delete_record(RECORD_KIND, name, kept.version)
            if isinstance(error, ScheduleAlreadyRunningError):
                raise _already_there(name) from None
            if error.status == RPCStatusCode.INVALID_ARGUMENT:
                raise ConfigError(f"the engine refuses the schedule: {error.message}") from None
            raise explain_failure(self._engine.address, error) from None

    def _build_schedule(
        self, name: str, scheduled: ScheduledPrompt, times: EngineTimes
    ) -> Schedule:
        address = self._engine.address
        action = ScheduleActionStartWorkflow(
            WORKFLOW_NAME,
            DriveOrder("", schedule=name, heartbeat_s=address.heartbeat_s),
            id=address.workflow_id(f"schedule-{name}"),
            task_queue=address.task_queue(scheduled.agent),
            typed_search_attributes=self._engine.describe_session(
                scheduled.agent, scheduled.caller
            ),
        )
        return Schedule(
            action=action,
            spec=times.to_spec(),
            policy=SchedulePolicy(
                overlap=_OVERLAPS[times.overlap],
                catchup_window=timedelta(seconds=max(CATCH_UP_MIN_S, times.catch_up_s)),
            ),
            state=ScheduleState(
                limited_actions=bool(times.at), remaining_actions=1 if times.at else 0
            ),
        )

    async def walk(self) -> AsyncGenerator[ListedSchedule]:
        """Yield the schedules of this journal, by name."""
        after = ""
        while records := await self._records.list_records(RECORD_KIND, after):
            for record in records:
                after = record.name
                scheduled = msgspec.json.decode(record.data, type=ScheduledPrompt)
                yield await self._describe(record.name, scheduled)

    async def _describe(self, name: str, scheduled: ScheduledPrompt) -> ListedSchedule:
        handle = self._engine.client.get_schedule_handle(self._schedule_id(name))
        try:
            found = await handle.describe()
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise explain_failure(self._engine.address, error) from None
            return ListedSchedule(
                name=name,
                agent=scheduled.agent,
                next_time=None,
                is_paused=False,
                note="the engine does not know it",
                last_session="",
            )
        upcoming = found.info.next_action_times
        recent = [each.action for each in found.info.recent_actions]
        last = getattr(recent[-1], "workflow_id", "") if recent else ""
        state = found.schedule.state
        return ListedSchedule(
            name=name,
            agent=scheduled.agent,
            next_time=upcoming[0].timestamp() if upcoming else None,
            is_paused=state.paused,
            note=state.note or "",
            last_session=scheduled.session or last.partition("/")[2],
        )

    async def pause(self, name: str, reason: str = "") -> None:
        """Let a schedule fire no more until it is resumed. Raises NothingToDo."""
        handle = self._engine.client.get_schedule_handle(self._schedule_id(name))
        try:
            await handle.pause(note=reason or None)
        except RPCError as error:
            raise self._explain(name, error) from None

    async def resume(self, name: str) -> None:
        """Let a schedule fire again, from now on. Raises NothingToDo."""
        handle = self._engine.client.get_schedule_handle(self._schedule_id(name))
        try:
            await handle.unpause()
        except RPCError as error:
            raise self._explain(name, error) from None

    async def delete(self, name: str) -> None:
        """Delete a schedule; runs that it has started continue. Raises NothingToDo."""
        handle = self._engine.client.get_schedule_handle(self._schedule_id(name))
        try:
            await handle.delete()
        except RPCError as error:
            problem = self._explain(name, error)
            if not isinstance(problem, NothingToDo):
                raise problem from None
        if not await self._records.delete_record(RECORD_KIND, name):
            raise NothingToDo(f"there is no schedule {name[:100]!r}")

    def _explain(self, name: str, error: RPCError) -> Exception:
        if error.status == RPCStatusCode.NOT_FOUND:
            return NothingToDo(f"there is no schedule {name[:100]!r}")
        return explain_failure(self._engine.address, error)


async def queue_scheduled_prompt(agent: Agent[Any], session: str, schedule: str) -> str:
    """Put the prompt of a schedule into the queue of a session, once; returns the session.

    Raises ApplicationError, which is not tried again, if the schedule was deleted in the meantime.
    """
    journal = parts_of(agent).world.journal
    record = await journal.get_record(RECORD_KIND, schedule)
    if record is None:
        raise ApplicationError("the schedule was deleted", type="ScheduleGone", non_retryable=True)
    scheduled = msgspec.json.decode(record.data, type=ScheduledPrompt)
    handle = await agent.start(
        scheduled.prompt,
        session=scheduled.session or session,
        key=f"schedule:{session}",
        caller=scheduled.caller,
        own_folder=bool(scheduled.caller),
        on_busy="queue",
        drive=False,
    )
    return handle.session


def _already_there(name: str) -> ConfigError:
    return ConfigError(
        f"there is a schedule {name!r} already; delete it first, or choose another name"
    )
