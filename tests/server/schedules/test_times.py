"""When a schedule fires: in every time zone, also where clocks are changed."""

from datetime import UTC, datetime, timedelta
from typing import cast
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.errors import ConfigError
from windlass.server.schedules.times import (
    CronTimes,
    FireTimes,
    IntervalTimes,
    OnceTime,
    check_times,
    delay_by_jitter,
    describe_times,
    next_time,
    parse_moment,
)

pytestmark = pytest.mark.contract("F4")


def moment(text: str, zone: str = "UTC") -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp())


def fire_times(times: FireTimes, after: int, until: int) -> list[str]:
    """The fire times in a span, in UTC, as `day hour:minute`."""
    found: list[str] = []
    fire_time = next_time(times, after)
    while fire_time is not None and fire_time <= until:
        found.append(datetime.fromtimestamp(fire_time, UTC).strftime("%d %H:%M"))
        fire_time = next_time(times, fire_time)
    return found


def in_berlin(expression: str, start: str, days: int = 2) -> list[str]:
    first = moment(start, "Europe/Berlin")
    return fire_times(CronTimes(expression, "Europe/Berlin"), first, first + days * 86_400)


def test_a_time_of_the_day_follows_the_zone() -> None:
    """08:30 in Berlin is 07:30 UTC in winter and 06:30 in summer."""
    assert in_berlin("30 8 * * *", "2026-01-10T00:00") == ["10 07:30", "11 07:30"]
    assert in_berlin("30 8 * * *", "2026-07-10T00:00") == ["10 06:30", "11 06:30"]
    assert in_berlin("0 9 * * MON", "2026-01-10T00:00", 10) == ["12 08:00", "19 08:00"]


def test_a_time_that_is_skipped_fires_right_after_the_gap() -> None:
    """On 29 March 2026 in Berlin 02:00 becomes 03:00, which is 01:00 UTC."""
    assert in_berlin("30 2 * * *", "2026-03-28T00:00", 3) == ["28 01:30", "29 01:00", "30 00:30"]
    # Several times in the gap are one firing.
    assert in_berlin("10,20,50 2 * * *", "2026-03-29T00:00", 1) == ["29 01:00"]


def test_a_time_that_comes_twice_fires_at_its_first_coming() -> None:
    """On 25 October 2026 in Berlin 03:00 becomes 02:00: 02:30 is 00:30 and 01:30 UTC."""
    assert in_berlin("30 2 * * *", "2026-10-24T12:00", 3) == ["25 00:30", "26 01:30", "27 01:30"]
    # Also when the schedule is made, or the service starts, in the second of the two hours.
    second = moment("2026-10-25T01:10")
    times = CronTimes("30 2 * * *", "Europe/Berlin")
    assert next_time(times, second) == moment("2026-10-26T01:30")


def test_every_hour_is_every_hour_that_passes() -> None:
    spring = moment("2026-03-29T00:00", "Europe/Berlin")
    hourly = CronTimes("0 * * * *", "Europe/Berlin")
    assert len(fire_times(hourly, spring - 1, spring + 23 * 3600 - 1)) == 23
    autumn = moment("2026-10-25T00:00", "Europe/Berlin")
    assert len(fire_times(hourly, autumn - 1, autumn + 25 * 3600 - 1)) == 25
    halves = CronTimes("*/30 * * * *", "Europe/Berlin")
    found = fire_times(halves, autumn - 1, autumn + 25 * 3600 - 1)
    assert len(found) == len(set(found)) == 50


def test_a_zone_with_half_an_hour_of_summer_time() -> None:
    """On Lord Howe Island 02:00 becomes 02:30 on 4 October 2026."""
    times = CronTimes("15 2 * * *", "Australia/Lord_Howe")
    first = moment("2026-10-04T00:00", "Australia/Lord_Howe")
    assert next_time(times, first) == moment("2026-10-04T02:30", "Australia/Lord_Howe")


def test_intervals_are_counted_from_their_start() -> None:
    times = IntervalTimes(600, 1_000)
    assert [next_time(times, after) for after in (0, 999, 1_000, 1_000.5, 1_599.9, 1_600)] == [
        1_000,
        1_000,
        1_600,
        1_600,
        1_600,
        2_200,
    ]


def test_once_is_once() -> None:
    assert next_time(OnceTime(500), 499.9) == 500
    assert next_time(OnceTime(500), 500) is None


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (CronTimes("* * * *"), "five fields"),
        (CronTimes("* * * * * *"), "five fields"),
        (CronTimes("61 * * * *"), "minute"),
        (CronTimes("* * 31 2 *"), "day"),
        (CronTimes("* * * * FUNDAY"), "day-of-week"),
        (CronTimes("* * 5L * *"), "day"),
        (CronTimes("0 8 * * *", "Europe/Atlantis"), "no time zone"),
        (CronTimes("0 8 * * *", "../../etc/passwd"), "no time zone"),
        (CronTimes("0 8 * * *", ""), "no time zone"),
        (IntervalTimes(0, 0), "interval"),
        (IntervalTimes(-5, 0), "interval"),
        (IntervalTimes(10**12, 0), "interval"),
        (OnceTime(10**15), "out of range"),
        (OnceTime(-1), "out of range"),
        (OnceTime(cast("int", 500.5)), "whole seconds"),
        (OnceTime(cast("int", 500.0)), "whole seconds"),
        (IntervalTimes(cast("int", 1.5), 0), "whole seconds"),
        (IntervalTimes(5, cast("int", 0.5)), "whole seconds"),
    ],
)
def test_what_cannot_be_used_is_told(times: FireTimes, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_times(times)


def test_a_moment_is_read_in_its_zone() -> None:
    assert parse_moment("2026-12-31T18:00", "Europe/Berlin") == moment("2026-12-31T17:00")
    assert parse_moment("2026-12-31T18:00+02:00", "Europe/Berlin") == moment("2026-12-31T16:00")
    assert parse_moment("2026-12-31") == moment("2026-12-31T00:00")
    with pytest.raises(ConfigError, match="skip that hour"):
        parse_moment("2026-03-29T02:30", "Europe/Berlin")
    for wrong in ("tomorrow", "", "2026-13-01"):
        with pytest.raises(ConfigError, match="not a date"):
            parse_moment(wrong)


def test_times_are_told_in_words() -> None:
    assert describe_times(CronTimes("0 8 * * *")) == "cron 0 8 * * * (UTC)"
    assert describe_times(IntervalTimes(60, 0)) == "every 60 s"
    assert describe_times(OnceTime(0)) == "once at 1970-01-01T00:00:00Z"


def test_jitter_is_the_same_everywhere_and_stays_within_its_bound() -> None:
    delays = [delay_by_jitter("id", at, 60.0) - at for at in range(0, 6_000, 60)]
    assert delays == [delay_by_jitter("id", at, 60.0) - at for at in range(0, 6_000, 60)]
    assert all(0 <= delay < 60 for delay in delays)
    assert max(delays) - min(delays) > 30
    assert delay_by_jitter("id", 100, 0.0) == 100
    assert delay_by_jitter("other", 100, 60.0) != delay_by_jitter("id", 100, 60.0)


ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu")
EXPRESSIONS = (
    "30 2 * * *",
    "0 * * * *",
    "*/15 * * * *",
    "0,30 1-3 * * *",
    "5 0 1 * *",
    "0 3 * * 0",
)


@given(
    st.sampled_from(EXPRESSIONS),
    st.sampled_from(ZONES),
    st.integers(1_700_000_000, 1_900_000_000),
    st.integers(0, 400),
)
def test_fire_times_only_grow_and_do_not_depend_on_where_one_begins(
    expression: str, zone: str, start: int, hours: int
) -> None:
    """A replica that starts in the middle finds the same times as one that was there before."""
    times = CronTimes(expression, zone)
    found: list[int] = []
    fire_time = next_time(times, start)
    while fire_time is not None and len(found) < 30:
        found.append(fire_time)
        fire_time = next_time(times, fire_time)
    assert found == sorted(set(found))
    assert found[0] > start
    later = start + timedelta(hours=hours).total_seconds()
    rest = [at for at in found if at > later]
    assert not rest or next_time(times, later) == rest[0]
