"""A schedule and its results, as a shared record; and how it decides about a firing.

Invariant: what is to be done about a firing is written before it is done, by compare and set, so
that it is decided once. Doing it is safe to repeat: the key of the run follows from the schedule
and the fire time. A process may die at any point; the next one finds the decision and carries it
out.
"""

import secrets
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from windlass.core.errors import ConfigError, NothingToDo
from windlass.ports import Journal
from windlass.server.owned_records import OwnedRecords
from windlass.server.schedules.times import (
    FireTimes,
    OnceTime,
    check_times,
    delay_by_jitter,
    format_moment,
    next_time,
)

Overlap = Literal["skip", "queue", "cancel"]
"""What happens to a firing while the run before it has not ended: it is skipped, it waits until
that run has ended, or that run is cancelled."""

WAITING_MAX = 100
"""Firings that may wait for the run before them; one more is skipped."""
CATCH_UP_S = 300.0
"""A restart loses nothing, and a service that was off for a day does not work off the day."""


class Firing(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run that is to be started, and must be started once."""

    fire_time: int
    decided_at: float
    cancels: str = ""
    """The session whose run is to be cancelled first."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Starts a run of an agent at certain times. Times are seconds since the epoch."""

    id: str
    """Unique: a schedule that is deleted and made again starts runs of its own."""
    name: str
    owner: str = ""
    """Whose runs these are: the caller who made the schedule."""
    agent: str
    prompt: str
    times: FireTimes
    session: str = ""
    """The session that all runs continue; each run has its own session if this is empty."""
    overlap: Overlap = "skip"
    catch_up_s: float = CATCH_UP_S
    """How late a run may start. What was missed by more is skipped."""
    jitter_s: float = 0.0
    """Each firing is delayed by its own time, below this."""
    context: dict[str, Any] = {}
    """What the gate may rely on: that of the token with which the schedule was made."""
    created: float = 0.0
    is_paused: bool = False
    pause_reason: str = ""

    handled_until: float = 0.0
    """All fire times up to this one were decided."""
    waiting: tuple[int, ...] = ()
    """Fire times that wait until the run before them has ended."""
    firing: Firing | None = None
    """What was decided, and is to be carried out."""
    last_fire_time: int | None = None
    last_session: str = ""
    """Where the last run that was started is."""
    last_error: str = ""
    """Why the last firing started no run; empty if it did."""
    started: int = 0
    skipped: int = 0

    @property
    def next_time(self) -> int | None:
        """The next fire time that was not decided yet; None if there is none."""
        return None if self.is_paused else next_time(self.times, self.handled_until)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do before its next time."""
        return self.firing is None and not self.waiting

    @property
    def due_at(self) -> float | None:
        """When the next fire time is decided: then, and its jitter later."""
        fire_time = self.next_time
        if fire_time is None:
            return None
        return delay_by_jitter(self.id, fire_time, self.jitter_s)

    def session_of(self, fire_time: int) -> str:
        """Return the session of a firing's run."""
        if self.session:
            return self.session
        stamp = format_moment(fire_time).replace("-", "").replace(":", "")
        return f"schedule-{self.name}-{stamp}-{self.id[:6]}"

    def key_of(self, fire_time: int) -> str:
        """Return the key that lets a firing start one run, however often it is carried out."""
        return f"schedule:{self.id}:{fire_time}"


def decide_firing(schedule: Schedule, now: float, *, is_busy: bool) -> Schedule | None:
    """Decide about what is due. Returns the schedule to write, or None if nothing is due.

    `is_busy`: the run before has not ended. One decision is made at a time.
    """
    if schedule.firing is not None or schedule.is_paused:
        return None
    if schedule.waiting and not is_busy:
        first, *rest = schedule.waiting
        return replace(schedule, waiting=tuple(rest), firing=Firing(first, now))
    due_at = schedule.due_at
    fire_time = schedule.next_time
    if due_at is None or fire_time is None or due_at > now:
        return None
    decided = replace(schedule, handled_until=float(fire_time))
    if now > due_at + schedule.catch_up_s:
        return skip_missed(decided, now)
    if not is_busy and not schedule.waiting:
        return replace(decided, firing=Firing(fire_time, now))
    match schedule.overlap:
        case "skip":
            return skip_firing(decided, fire_time, "the run before it had not ended")
        case "queue":
            if len(schedule.waiting) >= WAITING_MAX:
                return skip_firing(decided, fire_time, f"{WAITING_MAX} firings were waiting")
            return replace(decided, waiting=(*schedule.waiting, fire_time))
        case "cancel":
            return replace(decided, firing=Firing(fire_time, now, schedule.last_session))


def skip_missed(schedule: Schedule, now: float) -> Schedule:
    """Skip all fire times that were missed by more than the catch-up window.

    They are not counted one by one: there may be millions of them.
    """
    # The jitter of a firing that could still start may have delayed it by this much.
    oldest = now - schedule.catch_up_s - schedule.jitter_s
    missed = max(schedule.handled_until, oldest)
    why = "nothing ran the schedule at that time"
    return skip_firing(replace(schedule, handled_until=missed), int(schedule.handled_until), why)


def note_trouble(schedule: Schedule, why: str) -> Schedule:
    """Return the schedule while its firing could not be carried out, and is tried again."""
    return replace(schedule, last_error=f"not started yet: {why}"[:1_000])


def skip_firing(schedule: Schedule, fire_time: int, why: str) -> Schedule:
    """Return the schedule after a firing that started no run."""
    text = f"{format_moment(fire_time)} was skipped: {why}"
    return replace(schedule, skipped=schedule.skipped + 1, firing=None, last_error=text[:1_000])


def note_started(schedule: Schedule, session: str) -> Schedule:
    """Return the schedule after its firing was carried out."""
    if schedule.firing is None:
        return schedule
    return replace(
        schedule,
        firing=None,
        last_fire_time=schedule.firing.fire_time,
        last_session=session,
        last_error="",
        started=schedule.started + 1,
    )


def pause_schedule(schedule: Schedule, reason: str) -> Schedule:
    """Return the schedule with no more fire times, until it is resumed."""
    return replace(schedule, is_paused=True, pause_reason=reason[:1_000])


def resume_schedule(schedule: Schedule, now: float) -> Schedule:
    """Return the schedule as it continues from now: missed firings are not caught up."""
    if not schedule.is_paused:
        return schedule
    return replace(
        schedule,
        is_paused=False,
        pause_reason="",
        handled_until=max(schedule.handled_until, now),
    )


PROMPT_CHARS_MAX = 200_000
JITTER_MAX_S = 24 * 3600.0
CATCH_UP_MAX_S = 366 * 24 * 3600.0


class NewSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """What a person asks for: the settings of a schedule."""

    name: str
    agent: str
    prompt: str
    times: FireTimes
    owner: str = ""
    session: str = ""
    overlap: Overlap = "skip"
    catch_up_s: float = CATCH_UP_S
    jitter_s: float = 0.0
    context: Mapping[str, Any] = {}


class ScheduleStore(OwnedRecords[Schedule]):
    """The schedules of one journal."""

    def __init__(self, journal: Journal, now: Callable[[], float]) -> None:
        """Use a journal. Raises ConfigError if it keeps no shared records."""
        super().__init__(journal, "schedule", Schedule)
        self._now = now

    async def create_schedule(self, new: NewSchedule) -> Schedule:
        """Keep a new schedule. It fires from now on.

        Raises ConfigError if it cannot be used, or if the owner has one of that name.
        """
        now = self._now()
        _check_settings(new)
        check_times(new.times)
        handled = now
        if isinstance(new.times, OnceTime):
            if new.times.at + new.catch_up_s < now:
                raise ConfigError("the time of this schedule is in the past: no run would start")
            handled = max(0.0, now - new.catch_up_s)
        fields: dict[str, Any] = msgspec.structs.asdict(new) | {"context": dict(new.context)}
        schedule = Schedule(id=secrets.token_hex(8), created=now, handled_until=handled, **fields)
        await self.add(schedule)
        return schedule

    async def pause(self, name: str, reason: str = "") -> Schedule:
        """Let a schedule fire no more until it is resumed. Raises NothingToDo."""
        return await self._change_known(name, lambda known: pause_schedule(known, reason))

    async def resume(self, name: str) -> Schedule:
        """Let a schedule fire again, from now on. Raises NothingToDo."""
        now = self._now()
        return await self._change_known(name, lambda known: resume_schedule(known, now))

    async def _change_known(self, name: str, change: Callable[[Schedule], Schedule]) -> Schedule:
        changed = await self.change(name, change)
        if changed is None:
            raise NothingToDo(f"there is no schedule {name[:100]!r}")
        return changed


def _check_settings(new: NewSchedule) -> None:
    if not new.prompt.strip() or len(new.prompt) > PROMPT_CHARS_MAX:
        raise ConfigError(f"the prompt of a schedule has 1 to {PROMPT_CHARS_MAX:,} characters")
    if not 0 <= new.jitter_s <= JITTER_MAX_S:
        raise ConfigError(f"jitter of {new.jitter_s} s: it must be from 0 s to a day")
    if not 0 < new.catch_up_s <= CATCH_UP_MAX_S:
        raise ConfigError(f"a catch-up window of {new.catch_up_s} s: it must be above 0 s")
