"""How a service runs what its schedules ask for: on behalf of their owners."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from windlass.agent.agent import Agent
from windlass.agent.control import ControlReceipt
from windlass.agent.handles import RunHandle
from windlass.core.errors import NothingToDo
from windlass.ports import Journal
from windlass.server.access import LOCAL_OWNER, Caller, full_session_name
from windlass.server.errors import ApiError
from windlass.server.schedules.schedule import Schedule
from windlass.server.schedules.scheduler import ScheduledRuns, Scheduler
from windlass.server.schedules.store import ScheduleStore
from windlass.server.session_directory import OwnedSession
from windlass.server.start_request import StartRequest


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
    return Caller(schedule.owner, frozenset({"start"}), context=schedule.context)
