"""The schedules of a journal: made, listed, paused, resumed and deleted, by any program."""

import re
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import msgspec

from windlass.core.errors import ConfigError, NothingToDo, RecordConflict
from windlass.ports import Journal, SharedRecord, SharedRecords
from windlass.server.access import owner_prefix
from windlass.server.schedules.records import (
    CATCH_UP_S,
    Overlap,
    Schedule,
    pause_schedule,
    resume_schedule,
)
from windlass.server.schedules.times import FireTimes, OnceTime, check_times

SCHEDULE_KIND = "schedule"
NAME_CHARS_MAX = 80
PROMPT_CHARS_MAX = 200_000
JITTER_MAX_S = 24 * 3600.0
CATCH_UP_MAX_S = 366 * 24 * 3600.0
CONFLICTS_MAX = 50
"""How often a change is tried again because somebody else was faster."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_FULL_NAME = re.compile(r"[A-Za-z0-9_@=.-]{1,800}")
"""With the owner before it, as `owner_prefix` writes it."""


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


class ScheduleStore:
    """The schedules of one journal, shared by all services and command lines that use it."""

    def __init__(self, journal: Journal, now: Callable[[], float]) -> None:
        """Use a journal. Raises ConfigError if it keeps no shared records."""
        if not isinstance(journal, SharedRecords):
            raise ConfigError(
                f"{type(journal).__name__} cannot keep schedules: use a journal with shared "
                "records, such as SqliteJournal or PostgresJournal"
            )
        self._records: SharedRecords = journal
        self._now = now

    async def create(self, new: NewSchedule) -> Schedule:
        """Keep a new schedule. It fires from now on.

        Raises ConfigError if it cannot be used, or if the owner has one of that name.
        """
        now = self._now()
        _check_settings(new)
        check_times(new.times)
        if isinstance(new.times, OnceTime) and new.times.at + new.catch_up_s < now:
            raise ConfigError("the time of this schedule is in the past; nothing would ever start")
        fields = msgspec.structs.asdict(new)
        fields["context"] = dict(new.context)
        handled = now - new.catch_up_s if isinstance(new.times, OnceTime) else now
        schedule = Schedule(
            id=secrets.token_hex(8), created=now, handled_until=max(0.0, handled), **fields
        )
        try:
            await self._records.put_record(
                SCHEDULE_KIND, schedule.record_name, _encode(schedule), 0
            )
        except RecordConflict:
            raise ConfigError(
                f"there is a schedule {new.name!r} already; delete it first, or choose another name"
            ) from None
        return schedule

    async def get(self, name: str, owner: str | None = None) -> Schedule:
        """Return a schedule by its full name, or by an owner's own short one.

        Raises NothingToDo if there is none: one of another owner is none of this one.
        """
        prefix = "" if owner is None else owner_prefix(owner)
        record_name = name if name.startswith(prefix) else prefix + name
        record = None
        if _FULL_NAME.fullmatch(record_name):
            record = await self._records.get_record(SCHEDULE_KIND, record_name)
        known = None if record is None else decode_schedule(record)
        if known is None or owner not in (None, known.owner):
            raise NothingToDo(f"there is no schedule {name[:NAME_CHARS_MAX]!r}")
        return known

    async def list_page(
        self, owner: str | None, after: str = "", limit: int = 100
    ) -> tuple[list[Schedule], str | None]:
        """Return some schedules of an owner, or of all, and where the next page begins."""
        found: list[Schedule] = []
        async for known in self.walk(after):
            if owner is not None and known.owner != owner:
                continue
            if len(found) == limit:
                return found, found[-1].record_name
            found.append(known)
        return found, None

    async def walk(self, after: str = "") -> AsyncGenerator[Schedule]:
        """Yield the schedules of all owners, by name."""
        while records := await self.list_records(after):
            for record in records:
                yield decode_schedule(record)
            after = records[-1].name

    async def list_records(self, after: str = "", limit: int = 100) -> list[SharedRecord]:
        """Return the records of schedules after a name."""
        return list(await self._records.list_records(SCHEDULE_KIND, after, limit))

    async def pause(self, record_name: str, reason: str = "") -> Schedule:
        """Let a schedule fire no more until it is resumed. Raises NothingToDo."""
        return await self._change(record_name, lambda known: pause_schedule(known, reason))

    async def resume(self, record_name: str) -> Schedule:
        """Let a schedule fire again, from now on. Raises NothingToDo."""
        now = self._now()
        return await self._change(record_name, lambda known: resume_schedule(known, now))

    async def delete(self, record_name: str) -> None:
        """Forget a schedule. Its runs go on. Raises NothingToDo if there is none of that name."""
        if not await self._records.delete_record(SCHEDULE_KIND, record_name):
            raise NothingToDo(f"there is no schedule {record_name!r}")

    async def replace(self, record: SharedRecord, schedule: Schedule) -> SharedRecord | None:
        """Write a schedule in place of the record that it was read from.

        Returns None, and writes nothing, if somebody else was faster.
        """
        try:
            return await self._records.put_record(
                SCHEDULE_KIND, record.name, _encode(schedule), record.version
            )
        except RecordConflict:
            return None

    async def change_if(
        self, record_name: str, change: Callable[[Schedule], Schedule | None]
    ) -> Schedule | None:
        """Change a schedule as it is then. Returns None if it is gone, or the change has none."""
        for _ in range(CONFLICTS_MAX):
            record = await self._records.get_record(SCHEDULE_KIND, record_name)
            if record is None:
                return None
            known = decode_schedule(record)
            changed = change(known)
            if changed is None:
                return None
            if changed == known or await self.replace(record, changed):
                return changed
        raise RecordConflict(f"schedule {record_name!r} is changed all the time; try again")

    async def _change(self, record_name: str, change: Callable[[Schedule], Schedule]) -> Schedule:
        changed = await self.change_if(record_name, change)
        if changed is None:
            raise NothingToDo(f"there is no schedule {record_name!r}")
        return changed


def decode_schedule(record: SharedRecord) -> Schedule:
    """Return the schedule in a record."""
    return msgspec.json.decode(record.data, type=Schedule)


def _encode(schedule: Schedule) -> bytes:
    return msgspec.json.encode(schedule)


def _check_settings(new: NewSchedule) -> None:
    if len(new.name) > NAME_CHARS_MAX or _NAME.fullmatch(new.name) is None:
        raise ConfigError(
            f"{new.name[:NAME_CHARS_MAX]!r} cannot be the name of a schedule: it has 1 to "
            f"{NAME_CHARS_MAX} letters, digits, dashes and underscores, and begins with a "
            "letter or digit"
        )
    if not new.prompt.strip() or len(new.prompt) > PROMPT_CHARS_MAX:
        raise ConfigError(f"the prompt of a schedule has 1 to {PROMPT_CHARS_MAX:,} characters")
    if not 0 <= new.jitter_s <= JITTER_MAX_S:
        raise ConfigError(f"jitter of {new.jitter_s} s: it must be from 0 s to a day")
    if not 0 < new.catch_up_s <= CATCH_UP_MAX_S:
        raise ConfigError(f"a catch-up window of {new.catch_up_s} s: it must be above 0 s")
