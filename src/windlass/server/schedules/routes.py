"""The routes of schedules."""

import math
import time
from typing import Annotated

import msgspec
from msgspec import Meta

from windlass.server.messages import HttpReply, HttpRequest, Reply
from windlass.server.owned_records import PageQuery, full_name
from windlass.server.routing import Route
from windlass.server.schedules.records import CATCH_UP_S, Overlap, Schedule
from windlass.server.schedules.store import NewSchedule, ScheduleStore
from windlass.server.schedules.times import CronTimes, FireTimes, IntervalTimes, OnceTime
from windlass.server.served_agents import find_agent
from windlass.server.service import Service


class IntervalBody(msgspec.Struct, frozen=True, tag="interval", forbid_unknown_fields=True):
    """Every so many seconds, from a moment on; by default from now."""

    every_s: int
    start: int | None = None


class ScheduleBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule that a caller wants."""

    name: str
    prompt: str
    times: CronTimes | IntervalBody | OnceTime
    """{"type": "cron", "expression": "30 8 * * MON-FRI", "timezone": "Europe/Berlin"}, or
    {"type": "interval", "every_s": 900}, or {"type": "once", "at": 1798736400}."""
    agent: str = ""
    session: str = ""
    """The session that every run goes on with; by default each has a session of its own."""
    overlap: Overlap = "skip"
    catch_up_s: float = CATCH_UP_S
    jitter_s: float = 0.0


class PauseBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why, for those who list it."""

    reason: Annotated[str, Meta(max_length=1_000)] = ""


class ScheduleReply(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule, and what became of it. Times are seconds since the epoch."""

    name: str
    """Its full name, unique among all owners."""
    owner: str
    agent: str
    prompt: str
    times: FireTimes
    session: str
    overlap: Overlap
    catch_up_s: float
    jitter_s: float
    created: float
    is_paused: bool
    pause_reason: str
    next_time: int | None
    waiting: int
    """Firings that wait until the run before them has ended."""
    last_time: int | None
    last_session: str
    last_error: str
    started: int
    skipped: int


class SchedulePage(msgspec.Struct, frozen=True):
    """Some schedules, by name."""

    schedules: list[ScheduleReply]
    cursor: str | None = None


async def create_schedule(service: Service, request: HttpRequest) -> Reply:
    body = await request.decode(ScheduleBody)
    if body.agent:
        find_agent(service.agents, body.agent)
    times = body.times
    if isinstance(times, IntervalBody):
        start = math.ceil(time.time()) if times.start is None else times.start
        times = IntervalTimes(times.every_s, start)
    caller = request.caller
    store = _store(service)
    made = await store.create_schedule(
        NewSchedule(
            name=body.name,
            agent=body.agent,
            prompt=body.prompt,
            times=times,
            owner=caller.name,
            session=body.session,
            overlap=body.overlap,
            catch_up_s=body.catch_up_s,
            jitter_s=body.jitter_s,
            context=caller.context,
        )
    )
    await store.check_count(made, service.limits.schedules_per_owner)
    return HttpReply(201, schedule_reply(made), {"Location": f"/schedules/{full_name(made)}"})


async def list_schedules(service: Service, request: HttpRequest) -> Reply:
    query = request.decode_query(PageQuery)
    found, cursor = await _store(service).list_for(request.caller, query)
    return HttpReply(200, SchedulePage([schedule_reply(known) for known in found], cursor))


async def read_schedule(service: Service, request: HttpRequest) -> Reply:
    return HttpReply(200, schedule_reply(await _find(service, request)))


async def pause_schedule(service: Service, request: HttpRequest) -> Reply:
    body = await request.decode(PauseBody)
    known = await _find(service, request)
    paused = await _store(service).pause(full_name(known), body.reason)
    return HttpReply(200, schedule_reply(paused))


async def resume_schedule(service: Service, request: HttpRequest) -> Reply:
    known = await _find(service, request)
    return HttpReply(200, schedule_reply(await _store(service).resume(full_name(known))))


async def delete_schedule(service: Service, request: HttpRequest) -> Reply:
    known = await _find(service, request)
    await _store(service).delete(full_name(known))
    return HttpReply(204)


def schedule_reply(known: Schedule) -> ScheduleReply:
    """Return what a client is told about a schedule."""
    return ScheduleReply(
        name=full_name(known),
        owner=known.owner,
        agent=known.agent,
        prompt=known.prompt,
        times=known.times,
        session=known.session,
        overlap=known.overlap,
        catch_up_s=known.catch_up_s,
        jitter_s=known.jitter_s,
        created=known.created,
        is_paused=known.is_paused,
        pause_reason=known.pause_reason,
        next_time=known.next_time,
        waiting=len(known.waiting),
        last_time=known.last_fire_time,
        last_session=known.last_session,
        last_error=known.last_error,
        started=known.started,
        skipped=known.skipped,
    )


def _store(service: Service) -> ScheduleStore:
    return ScheduleStore(service.journal, time.time)


async def _find(service: Service, request: HttpRequest) -> Schedule:
    return await _store(service).find(request.caller, request.params["name"])


ROUTES = (
    Route(
        method="POST",
        path="/schedules",
        handler=create_schedule,
        role="start",
        scope="caller",
        name="createSchedule",
        summary="Start a run at certain times: cron, interval or once.",
        body=ScheduleBody,
        reply=ScheduleReply,
        status=201,
        stored_replies=True,
        errors=("agent_not_found", "schedules_full"),
    ),
    Route(
        method="GET",
        path="/schedules",
        handler=list_schedules,
        role="watch",
        scope="caller",
        name="listSchedules",
        summary="List schedules by name.",
        query=PageQuery,
        reply=SchedulePage,
    ),
    Route(
        method="GET",
        path="/schedules/{name}",
        handler=read_schedule,
        role="watch",
        scope="caller",
        name="readSchedule",
        summary="Read a schedule, and what became of its last firing.",
        reply=ScheduleReply,
        errors=("schedule_not_found",),
    ),
    Route(
        method="POST",
        path="/schedules/{name}/pause",
        handler=pause_schedule,
        role="start",
        scope="caller",
        name="pauseSchedule",
        summary="Let a schedule start no more runs until it is resumed.",
        stored_replies=True,
        body=PauseBody,
        reply=ScheduleReply,
        errors=("schedule_not_found",),
    ),
    Route(
        method="POST",
        path="/schedules/{name}/resume",
        handler=resume_schedule,
        role="start",
        scope="caller",
        name="resumeSchedule",
        summary="Let a schedule go on; what it missed meanwhile is not caught up.",
        stored_replies=True,
        reply=ScheduleReply,
        errors=("schedule_not_found",),
    ),
    Route(
        method="DELETE",
        path="/schedules/{name}",
        handler=delete_schedule,
        role="start",
        scope="caller",
        name="deleteSchedule",
        summary="Delete a schedule. Runs that it has started go on.",
        stored_replies=True,
        status=204,
        errors=("schedule_not_found",),
    ),
)
