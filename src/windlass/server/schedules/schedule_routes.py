"""The routes of schedules."""

import math
import time
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from windlass.server.messages import HttpReply, HttpRequest, Reply
from windlass.server.owned_records import full_name
from windlass.server.resources import Resource, fill_reply
from windlass.server.schedules.schedule import (
    CATCH_UP_S,
    NewSchedule,
    Overlap,
    Schedule,
    ScheduleStore,
)
from windlass.server.schedules.times import CronTimes, FireTimes, IntervalTimes, OnceTime
from windlass.server.served_agents import find_agent
from windlass.server.service import Service


class IntervalBody(msgspec.Struct, frozen=True, tag="interval", forbid_unknown_fields=True):
    """Every `every_s` seconds, from a moment on; by default from now."""

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
    """The session that every run continues; by default each has its own session."""
    overlap: Overlap = "skip"
    catch_up_s: float = CATCH_UP_S
    jitter_s: float = 0.0


class PauseBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why, for those who list it."""

    reason: Annotated[str, Meta(max_length=1_000)] = ""


class ScheduleReply(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule and its results. Times are seconds since the epoch."""

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


def open_schedules(service: Service) -> ScheduleStore:
    return ScheduleStore(service.journal, time.time)


def describe_schedule(known: Schedule) -> ScheduleReply:
    return fill_reply(
        ScheduleReply,
        known,
        name=full_name(known),
        waiting=len(known.waiting),
        last_time=known.last_fire_time,
    )


SCHEDULES = Resource("schedule", ScheduleReply, describe_schedule, open_schedules, role="start")


@SCHEDULES.create(body=ScheduleBody, errors=("agent_not_found", "schedules_full"))
async def create_schedule(service: Service, request: HttpRequest) -> Reply:
    """Start a run at certain times: cron, interval or once."""
    body = await request.decode(ScheduleBody)
    if body.agent:
        find_agent(service.agents, body.agent)
    times = body.times
    if isinstance(times, IntervalBody):
        start = math.ceil(time.time()) if times.start is None else times.start
        times = IntervalTimes(times.every_s, start)
    caller = request.caller
    store = open_schedules(service)
    fields: dict[str, Any] = msgspec.structs.asdict(body) | {"times": times}
    new = NewSchedule(owner=caller.name, context=caller.run_context, **fields)
    made = await store.create_schedule(new)
    await store.check_count(made, service.limits.schedules_per_owner)
    return HttpReply(201, describe_schedule(made), {"Location": f"/schedules/{full_name(made)}"})


SCHEDULES.add_list("List schedules by name.")
SCHEDULES.add_read("Read a schedule, and what became of its last firing.")


@SCHEDULES.change("pause", body=PauseBody)
async def pause_schedule(service: Service, request: HttpRequest) -> Reply:
    """Let a schedule start no more runs until it is resumed."""
    body = await request.decode(PauseBody)
    known = await SCHEDULES.find(service, request)
    paused = await open_schedules(service).pause(full_name(known), body.reason)
    return HttpReply(200, describe_schedule(paused))


@SCHEDULES.change("resume")
async def resume_schedule(service: Service, request: HttpRequest) -> Reply:
    """Resume a schedule; missed firings are not caught up."""
    known = await SCHEDULES.find(service, request)
    resumed = await open_schedules(service).resume(full_name(known))
    return HttpReply(200, describe_schedule(resumed))


SCHEDULES.add_delete("Delete a schedule. Runs that it has started go on.")
