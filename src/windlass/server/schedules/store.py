"""The schedules of a journal: made, paused and resumed, by any program."""

import secrets
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from windlass.core.errors import ConfigError, NothingToDo
from windlass.ports import Journal
from windlass.server.owned_records import OwnedRecords
from windlass.server.schedules.schedule import (
    CATCH_UP_S,
    Overlap,
    Schedule,
    pause_schedule,
    resume_schedule,
)
from windlass.server.schedules.times import FireTimes, OnceTime, check_times

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
