"""`windlass schedule`: runs that a service starts by itself at certain times."""

import time
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, TypeVar

import click
import msgspec
from msgspec.structs import replace

import windlass.cli.engine as fleet
from windlass.cli.engine import engine_option
from windlass.cli.journal_option import journal_option, run_on_journal
from windlass.cli.options import read_duration
from windlass.cli.resource_commands import show_resources
from windlass.core.errors import ConfigError
from windlass.project.journals import ManagedJournal
from windlass.server.owned_records import full_name
from windlass.server.schedules.schedule import NewSchedule, Overlap, Schedule, ScheduleStore
from windlass.server.schedules.times import (
    CronTimes,
    FireTimes,
    IntervalTimes,
    OnceTime,
    check_times,
    describe_times,
    parse_moment,
)

ENGINE_COLUMNS = ("SCHEDULE", "NEXT", "AGENT", "LAST SESSION", "NOTE")
COLUMNS = ("SCHEDULE", "NEXT", "STARTED", "SKIPPED", "TIMES", "AGENT", "NOTE")
T = TypeVar("T")


@click.group()
def schedule() -> None:
    """Create, list, pause, resume and delete schedules.

    A schedule is kept in the journal. Every service that runs on the journal (`windlass serve`)
    takes part in firing it, and each time starts one run. With --engine, the engine fires it, and
    its workers do the runs.
    """


@schedule.command(
    epilog="""\b
Examples:
  windlass schedule create report --cron "30 8 * * MON-FRI" --timezone Europe/Berlin "Report."
  windlass schedule create watch --every 15m --overlap skip "Look at the queue."
  windlass schedule create later --at 2026-12-31T18:00 --timezone Europe/Berlin "Wish them well."
  windlass schedule create check --every 1h --engine temporal://engine:7233 "Check the backups."
"""
)
@click.argument("name")
@click.argument("prompt", nargs=-1, required=True)
@journal_option
@engine_option
@click.option("--cron", metavar="EXPRESSION", help="Minute, hour, day, month, day of the week.")
@click.option("--every", metavar="TIME", help="An interval, such as 90s, 15m or 2h.")
@click.option("--at", "moment", metavar="DATE", help="Once, at a time such as 2026-12-31T18:00.")
@click.option("--timezone", default="UTC", show_default=True, help="Of --cron and --at.")
@click.option("--agent", metavar="NAME", default="", help="By default, the service's first agent.")
@click.option("--session", metavar="NAME", default="", help="Continue this session every time.")
@click.option(
    "--overlap",
    type=click.Choice(["skip", "queue", "cancel"]),
    default="skip",
    show_default=True,
    help="If the previous run is still open: skip, wait for it, or cancel it.",
)
@click.option(
    "--catch-up",
    metavar="TIME",
    default="5m",
    show_default=True,
    help="How late a run may start if no service was running.",
)
@click.option("--jitter", metavar="TIME", default="", help="Delay each run by up to this.")
def create(  # noqa: PLR0913, PLR0917 - one parameter per option
    name: str,
    prompt: tuple[str, ...],
    place: str,
    engine: str | None,
    cron: str | None,
    every: str | None,
    moment: str | None,
    timezone: str,
    agent: str,
    session: str,
    overlap: Overlap,
    catch_up: str,
    jitter: str,
) -> None:
    """Start a run of PROMPT at certain times: pass --cron, --every or --at."""
    new = NewSchedule(
        name=name,
        agent=agent,
        prompt=" ".join(prompt),
        times=_read_times(cron, every, moment, timezone),
        session=session,
        overlap=overlap,
        catch_up_s=read_duration("--catch-up", catch_up),
        jitter_s=read_duration("--jitter", jitter) if jitter else 0.0,
    )
    if engine is not None:
        _create_in_engine(place, engine, new)
        return
    made = run_on_journal(place, lambda journal: _store(journal).create_schedule(new), creates=True)
    click.echo(
        f"The schedule {made.name} is kept: {describe_times(made.times)}. {_tell_next(made)}"
    )
    served = f" that has the agent {made.agent}" if made.agent else ""
    click.echo(f"It fires while a service{served} runs on this journal: windlass serve", err=True)


def _create_in_engine(place: str, engine: str, new: NewSchedule) -> None:
    times = new.times
    prompt = fleet.ScheduledPrompt(prompt=new.prompt, agent=new.agent, session=new.session)
    base = fleet.EngineTimes(overlap=new.overlap, catch_up_s=new.catch_up_s, jitter_s=new.jitter_s)
    match check_times(times):
        case CronTimes(expression, timezone):
            engine_times = replace(base, cron=expression, timezone=timezone)
        case IntervalTimes(every_s):
            engine_times = replace(base, every_s=every_s)
        case OnceTime(at):
            engine_times = replace(base, at=at)

    async def connect_and_create(journal: ManagedJournal) -> None:
        connected = await fleet.connect_engine(engine)
        await fleet.EngineSchedules(connected, journal).create(new.name, prompt, engine_times)

    run_on_journal(place, connect_and_create, creates=True)
    click.echo(f"The engine keeps the schedule {new.name}: {describe_times(times)}.")
    click.echo("Its runs need a worker: windlass worker --engine …", err=True)


@schedule.command("list")
@journal_option
@engine_option
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def list_(place: str, engine: str | None, as_json: bool) -> None:
    """List the schedules, with their next time and the result of the last one."""
    found = _use_schedules(place, engine, _read_all)
    if as_json:
        listed = [{**msgspec.to_builtins(one), "next_time": one.next_time} for one in found]
        click.echo(msgspec.json.format(msgspec.json.encode(listed)).decode())
    else:
        columns = COLUMNS if engine is None else ENGINE_COLUMNS
        show_resources("schedule", columns, list(map(_make_row, found)))


@schedule.command()
@click.argument("name")
@click.option("--reason", metavar="WHY", default="", help="The reason, shown in the list.")
@journal_option
@engine_option
def pause(name: str, reason: str, place: str, engine: str | None) -> None:
    """Let a schedule start no more runs until it is resumed."""
    _use_schedules(place, engine, lambda kept: kept.pause(name, reason))
    click.echo(f"The schedule {name} is paused. Resume it: windlass schedule resume {name}")


@schedule.command()
@click.argument("name")
@journal_option
@engine_option
def resume(name: str, place: str, engine: str | None) -> None:
    """Let a schedule start runs again; what it missed meanwhile is not caught up."""
    resumed = _use_schedules(place, engine, lambda kept: kept.resume(name))
    upcoming = "" if resumed is None else f" {_tell_next(resumed)}"
    click.echo(f"The schedule {name} is resumed.{upcoming}")


@schedule.command()
@click.argument("name")
@journal_option
@engine_option
def delete(name: str, place: str, engine: str | None) -> None:
    """Delete a schedule. Runs that it has started continue."""
    _use_schedules(place, engine, lambda kept: kept.delete(name))
    click.echo(f"The schedule {name} is deleted.")


def _use_schedules(
    place: str,
    engine: str | None,
    work: "Callable[[ScheduleStore | fleet.EngineSchedules], Coroutine[Any, Any, T]]",
) -> T:
    """Do something with the schedules of a journal, or with those that an engine fires for it."""

    async def open_and_work(journal: ManagedJournal) -> T:
        if engine is None:
            return await work(_store(journal))
        connected = await fleet.connect_engine(engine)
        return await work(fleet.EngineSchedules(connected, journal))

    return run_on_journal(place, open_and_work)


async def _read_all(
    kept: "ScheduleStore | fleet.EngineSchedules",
) -> "list[Schedule | fleet.ListedSchedule]":
    return [known async for known in kept.walk()]


def _store(journal: ManagedJournal) -> ScheduleStore:
    return ScheduleStore(journal, time.time)


def _read_times(
    cron: str | None, every: str | None, moment: str | None, timezone: str
) -> FireTimes:
    given = [option for option in (cron, every, moment) if option is not None]
    if len(given) != 1:
        raise ConfigError("give one of --cron, --every and --at: when should the run start?")
    if cron is not None:
        return CronTimes(cron, timezone)
    if moment is not None:
        return OnceTime(parse_moment(moment, timezone))
    every_s = read_duration("--every", every or "")
    if every_s != int(every_s):
        raise ConfigError(f"--every {every}: pass whole seconds")
    return IntervalTimes(int(every_s), int(time.time()) + int(every_s))


def _tell_next(known: Schedule) -> str:
    if known.next_time is None:
        return "It has no next time."
    return f"Next: {_local(known.next_time)}."


def _local(moment: float) -> str:
    return datetime.fromtimestamp(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def _make_row(known: "Schedule | fleet.ListedSchedule") -> Sequence[str]:
    if known.is_paused:
        upcoming = "paused"
    else:
        upcoming = "over" if known.next_time is None else _local(known.next_time)
    if not isinstance(known, Schedule):
        return [known.name, upcoming, known.agent, known.last_session, known.note]
    note = known.pause_reason if known.is_paused else known.last_error
    counts = (str(known.started), str(known.skipped))
    times = describe_times(known.times)
    return [full_name(known), upcoming, *counts, times, known.agent or "-", note[:120]]
