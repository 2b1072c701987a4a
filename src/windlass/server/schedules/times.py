"""When a schedule fires: cron, interval or once, in a time zone. Pure functions of time.

Invariant: fire times are whole seconds since the epoch, they only grow, and they follow from the
schedule alone, so that all replicas agree on them.

Where clocks are changed, a cron expression does what Debian's cron does. A fixed time that is
skipped fires right after the gap, and one that comes twice fires at its first coming. An expression
with `*` as its minute or hour follows the time that passes: every hour is every hour.
"""

import hashlib
import math
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from cronsim import CronSim, CronSimError

from windlass.core.errors import ConfigError

INTERVAL_MIN_S = 1
INTERVAL_MAX_S = 366 * 24 * 3600
EXPRESSION_CHARS_MAX = 1_000
"""Of a cron expression. All its fields with every value written out have less."""
TIME_MAX_S = 253_000_000_000
"""About the year 9987: later times cannot be written as a date."""


class CronTimes(msgspec.Struct, frozen=True, tag="cron", omit_defaults=True):
    """The times of a cron expression with five fields."""

    expression: str
    timezone: str = "UTC"


class IntervalTimes(msgspec.Struct, frozen=True, tag="interval"):
    """Every `every_s` seconds, counted from a moment."""

    every_s: int
    start: int


class OnceTime(msgspec.Struct, frozen=True, tag="once"):
    """One moment."""

    at: int


FireTimes = CronTimes | IntervalTimes | OnceTime


def check_times(times: FireTimes) -> FireTimes:
    """Return the times. Raises ConfigError if they can never be reached, or not be read."""
    match times:
        case CronTimes(expression, timezone):
            find_zone(timezone)
            if next_time(times, 0) is None:
                raise ConfigError(f"cron {expression!r}: there is no such day")
        case IntervalTimes(every_s, start):
            if type(every_s) is not int:
                raise ConfigError(f"an interval of {every_s!r} s: pass whole seconds")
            if not INTERVAL_MIN_S <= every_s <= INTERVAL_MAX_S:
                raise ConfigError(
                    f"an interval of {every_s} s: it must be from {INTERVAL_MIN_S} s to "
                    f"{INTERVAL_MAX_S} s, which is a year"
                )
            _check_moment(start)
        case OnceTime(at):
            _check_moment(at)
    return times


def next_time(times: FireTimes, after: float) -> int | None:
    """Return the first fire time after a moment; None if there is none."""
    match times:
        case CronTimes():
            return _next_cron_time(times, after)
        case IntervalTimes(every_s, start):
            if after < start:
                return start
            return start + (math.floor((after - start) / every_s) + 1) * every_s
        case OnceTime(at):
            return at if at > after else None


def delay_by_jitter(schedule: str, fire_time: int, jitter_s: float) -> float:
    """Return when a firing happens: its time, and a delay below `jitter_s`.

    The delay follows from the schedule's id and the time, so that all replicas have the same.
    """
    seed = hashlib.sha256(f"{schedule}\n{fire_time}".encode()).digest()
    return fire_time + int.from_bytes(seed[:6]) / 2**48 * jitter_s


def find_zone(name: str) -> ZoneInfo:
    """Return a time zone by its IANA name. Raises ConfigError if there is no such zone."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(
            f"there is no time zone {name!r}: use a name such as Europe/Berlin or UTC; on a system "
            "without time zones, install the package tzdata"
        ) from None


def parse_moment(text: str, timezone: str = "UTC") -> int:
    """Read a date and time as ISO 8601 writes it; without an offset, it is that of the zone.

    Raises ConfigError if it cannot be read, or if the clocks of the zone skip it.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{text!r} is not a date and time: write it as 2026-12-31T18:00 or with an offset, "
            "2026-12-31T18:00+01:00"
        ) from None
    if moment.tzinfo is None:
        zone = find_zone(timezone)
        moment = moment.replace(tzinfo=zone)
        if moment.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != moment.replace(
            tzinfo=None
        ):
            raise ConfigError(f"{text} does not exist in {timezone}: its clocks skip that hour")
    return _check_moment(math.floor(moment.timestamp()))


def describe_times(times: FireTimes) -> str:
    """Return the times in a few words, for lists."""
    match times:
        case CronTimes(expression, timezone):
            return f"cron {expression} ({timezone})"
        case IntervalTimes(every_s):
            return f"every {every_s} s"
        case OnceTime(at):
            return f"once at {format_moment(at)}"


def format_moment(moment: float) -> str:
    """Return a moment as text, in UTC and whole seconds."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _check_moment(moment: int) -> int:
    # Types are not checked when a program writes `OnceTime(time.time() + 60)`, and a record with a
    # fraction could be written but not read.
    if type(moment) is not int:
        raise ConfigError(f"{moment!r} is not a time that a schedule can use: pass whole seconds")
    if not 0 <= moment <= TIME_MAX_S:
        raise ConfigError(f"{moment} is not a time that a schedule can use: it is out of range")
    return moment


def _next_cron_time(times: CronTimes, after: float) -> int | None:
    if len(times.expression) > EXPRESSION_CHARS_MAX:
        raise ConfigError(f"a cron expression has at most {EXPRESSION_CHARS_MAX} characters")
    if len(times.expression.split()) != 5:  # noqa: PLR2004 - minute, hour, day, month, weekday
        raise ConfigError(
            f"cron {times.expression!r}: write five fields, which are minute, hour, day, month and "
            "day of the week, such as '30 8 * * MON-FRI'"
        )
    start = datetime.fromtimestamp(math.floor(after), find_zone(times.timezone))
    try:
        for moment in CronSim(times.expression, start):
            fire_time = round(moment.timestamp())
            # In the second pass of a doubled hour, the library gives times of the first one.
            if fire_time > after:
                return fire_time
    except CronSimError as error:
        raise ConfigError(
            f"cron {times.expression!r}: {str(error).lower()}; the five fields are minute, hour, "
            "day, month and day of the week, such as '30 8 * * MON-FRI'"
        ) from None
    except (OverflowError, ValueError):
        # The next one would be after the last date that can be written.
        return None
    return None
