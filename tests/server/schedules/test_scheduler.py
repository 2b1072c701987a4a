"""Schedules fire once, whoever looks, and whatever dies in between; on virtual time."""

import asyncio
from typing import Any, Literal

import pytest

from windlass.core.errors import ConfigError, NothingToDo, SessionBusy
from windlass.journals.memory import MemoryJournal
from windlass.server.owned_records import record_name
from windlass.server.schedules.schedule import WAITING_MAX, NewSchedule, Schedule, ScheduleStore
from windlass.server.schedules.scheduler import TAKE_OVER_S, ScheduledRuns, Scheduler
from windlass.server.schedules.times import CronTimes, IntervalTimes, OnceTime
from windlass.testing import VirtualClock

pytestmark = pytest.mark.contract("F4")


class ProcessDeath(BaseException):
    """Nothing of the process goes on after this."""


class FakeRuns:
    """Runs that are started by key, as the service starts them."""

    def __init__(self) -> None:
        self.runs: dict[str, str] = {}
        """By key: the session of the run."""
        self.times: list[int] = []
        self.open: set[str] = set()
        self.cancelled: list[str] = []
        self.stays_open = False
        self.error: Exception | None = None
        self.dies: Literal["", "before", "after"] = ""

    async def is_busy(self, schedule: Schedule, session: str) -> bool:
        return session in self.open

    async def start(self, schedule: Schedule, fire_time: int) -> str:
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        if self.dies == "before":
            raise ProcessDeath
        key = schedule.key_of(fire_time)
        session = schedule.session_of(fire_time)
        if key not in self.runs:
            self.runs[key] = session
            self.times.append(fire_time)
            if self.stays_open:
                self.open.add(session)
        if self.dies == "after":
            raise ProcessDeath
        return session

    async def cancel(self, schedule: Schedule, session: str) -> None:
        self.cancelled.append(session)
        self.open.discard(session)


class World:
    """A journal, runs and any number of schedulers, as replicas have them."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.journal = MemoryJournal(now=clock.now)
        self.store = ScheduleStore(self.journal, clock.now)
        self.fake = FakeRuns()
        self.start = int(clock.now()) + 10

    def scheduler(self, *agents: str) -> Scheduler:
        fake = self.fake
        runs = ScheduledRuns(agents or ("helper",), fake.is_busy, fake.start, fake.cancel)
        return Scheduler(self.store, runs, self.clock.now)

    async def create(self, **settings: Any) -> Schedule:
        times = settings.pop("times", IntervalTimes(60, self.start))
        return await self.store.create_schedule(
            NewSchedule(**{"name": "s", "agent": "helper", "prompt": "go", **settings}, times=times)
        )

    async def pass_time(self, seconds: float, *schedulers: Scheduler, step_s: float = 1.0) -> None:
        until = self.clock.now() + seconds
        while self.clock.now() < until:
            await asyncio.sleep(step_s)
            await asyncio.gather(*(one.run_due() for one in schedulers))

    @property
    def fired(self) -> list[int]:
        """Fire times of the runs, in seconds after the first."""
        return [at - self.start for at in self.fake.times]


@pytest.fixture
def world(clock: VirtualClock) -> World:
    return World(clock)


async def test_each_time_starts_one_run_whoever_looks(world: World) -> None:
    await world.create()
    await world.pass_time(200, *(world.scheduler() for _ in range(5)))
    assert world.fired == [0, 60, 120, 180]
    schedule = await world.store.get("s")
    assert (schedule.started, schedule.skipped, schedule.last_error) == (4, 0, "")
    assert schedule.last_session == schedule.session_of(world.start + 180)


@pytest.mark.parametrize("dies", ["before", "after"])
async def test_a_firing_that_was_decided_is_carried_out_by_another(
    world: World, dies: Literal["before", "after"]
) -> None:
    """The first process dies after it has decided, before or after the run was started."""
    await world.create()
    world.fake.dies = dies
    with pytest.raises(ProcessDeath):
        await world.pass_time(20, world.scheduler())
    world.fake.dies = ""
    assert world.fired == ([] if dies == "before" else [0])
    other = world.scheduler()
    await world.pass_time(1, other)
    assert (await world.store.get("s")).firing is not None, "who decided is given some time"
    await world.pass_time(TAKE_OVER_S + 1, other)
    assert world.fired == [0]
    assert (await world.store.get("s")).started == 1


async def test_what_was_missed_is_caught_up_within_the_window(world: World) -> None:
    await world.create(catch_up_s=155.0)
    # Nobody looks for eleven minutes, which are eleven firings.
    await asyncio.sleep(10 + 10 * 60 + 30)
    await world.pass_time(5, world.scheduler())
    assert world.fired == [8 * 60, 9 * 60, 10 * 60]
    assert (await world.store.get("s")).skipped == 1


async def test_a_year_without_a_service_costs_no_time(world: World) -> None:
    await world.create(times=IntervalTimes(1, world.start), catch_up_s=1.0)
    await asyncio.sleep(366 * 86_400)
    await world.scheduler().run_due()
    assert len(world.fired) <= 2


async def test_a_run_that_has_not_ended_skips_the_next_ones(world: World) -> None:
    await world.create(overlap="skip")
    world.fake.stays_open = True
    scheduler = world.scheduler()
    await world.pass_time(135, scheduler)
    assert world.fired == [0]
    schedule = await world.store.get("s")
    assert schedule.skipped == 2
    assert "had not ended" in schedule.last_error
    world.fake.open.clear()
    await world.pass_time(60, scheduler)
    assert world.fired == [0, 180]


async def test_queued_firings_run_one_after_the_other(world: World) -> None:
    """Also if that is later than the catch-up window: they were not missed."""
    await world.create(overlap="queue", catch_up_s=10.0)
    world.fake.stays_open = True
    schedulers = (world.scheduler(), world.scheduler())
    await world.pass_time(195, *schedulers)
    assert world.fired == [0]
    assert len((await world.store.get("s")).waiting) == 3
    await world.store.pause("s")
    for expected in ([0], [0, 60], [0, 60, 120], [0, 60, 120, 180]):
        await world.pass_time(3, *schedulers)
        assert world.fired == expected
        world.fake.open.clear()
        if expected == [0]:
            await world.store.resume("s")
    assert (await world.store.get("s")).waiting == ()


async def test_the_queue_is_bounded(world: World) -> None:
    await world.create(overlap="queue", times=IntervalTimes(1, world.start))
    world.fake.stays_open = True
    await world.pass_time(WAITING_MAX + 40, world.scheduler())
    schedule = await world.store.get("s")
    assert len(schedule.waiting) == WAITING_MAX
    assert schedule.skipped > 10


async def test_the_other_run_is_cancelled(world: World) -> None:
    await world.create(overlap="cancel")
    world.fake.stays_open = True
    await world.pass_time(75, world.scheduler(), world.scheduler())
    schedule = await world.store.get("s")
    assert world.fired == [0, 60]
    assert set(world.fake.cancelled) == {schedule.session_of(world.start)}
    assert world.fake.open == {schedule.session_of(world.start + 60)}


async def test_a_session_of_its_own_is_what_overlaps(world: World) -> None:
    """A run that somebody else began in the session counts too."""
    await world.create(session="inbox")
    world.fake.open.add("inbox")
    scheduler = world.scheduler()
    await world.pass_time(15, scheduler)
    assert world.fired == []
    world.fake.open.clear()
    await world.pass_time(60, scheduler)
    assert set(world.fake.runs.values()) == {"inbox"}
    assert world.fired == [60]


async def test_a_pause_lasts_until_it_is_resumed(world: World) -> None:
    await world.create()
    scheduler = world.scheduler()
    await world.pass_time(15, scheduler)
    await world.store.pause("s", "holiday")
    await world.pass_time(120, scheduler)
    assert world.fired == [0]
    assert (await world.store.get("s")).next_time is None
    resumed = await world.store.resume("s")
    assert (resumed.is_paused, resumed.pause_reason) == (False, "")
    await world.pass_time(60, scheduler)
    assert world.fired == [0, 180], "what was missed meanwhile is not caught up"


async def test_jitter_delays_a_firing_by_the_same_time_everywhere(world: World) -> None:
    schedule = await world.create(jitter_s=50.0)
    due_at = schedule.due_at
    assert due_at is not None
    await world.pass_time(due_at - world.clock.now() - 1.5, world.scheduler())
    assert world.fired == []
    await world.pass_time(3, world.scheduler(), world.scheduler())
    assert world.fired == [0]


async def test_once_fires_once(world: World) -> None:
    await world.create(times=OnceTime(world.start))
    await world.pass_time(300, world.scheduler(), world.scheduler())
    assert world.fired == [0]
    assert (await world.store.get("s")).next_time is None


async def test_a_run_that_cannot_be_started_is_tried_again(world: World) -> None:
    await world.create(times=OnceTime(world.start), catch_up_s=60.0)
    world.fake.error = SessionBusy("later")
    scheduler = world.scheduler()
    await world.pass_time(30, scheduler)
    assert world.fired == []
    assert (await world.store.get("s")).last_error == "not started yet: later"
    world.fake.error = None
    await world.pass_time(10, scheduler)
    assert world.fired == [0]
    assert (await world.store.get("s")).last_error == ""


async def test_a_run_that_can_never_be_started_is_given_up_and_told(world: World) -> None:
    await world.create(times=OnceTime(world.start), catch_up_s=60.0)
    world.fake.error = ConfigError("the model needs a key")
    await world.pass_time(90, world.scheduler())
    schedule = await world.store.get("s")
    assert schedule.firing is None
    assert "the model needs a key" in schedule.last_error
    assert schedule.skipped == 1


async def test_one_broken_schedule_stops_none_of_the_others(world: World) -> None:
    await world.create(name="good")
    await world.journal.put_record("schedule", record_name("broken"), b"{not json", 0)
    await world.create(name="zz-agent-elsewhere", agent="other")
    await world.pass_time(15, world.scheduler())
    assert world.fired == [0]
    assert (await world.store.get("zz-agent-elsewhere")).started == 0
    await world.pass_time(1, world.scheduler("other"))
    assert (await world.store.get("zz-agent-elsewhere")).started == 1


async def test_a_schedule_that_is_made_anew_starts_runs_of_its_own(world: World) -> None:
    first = await world.create(times=OnceTime(world.start))
    await world.store.delete("s")
    second = await world.create(times=OnceTime(world.start))
    assert first.key_of(1) != second.key_of(1)
    assert first.session_of(1) != second.session_of(1)


async def test_owners_have_schedules_of_their_own(world: World) -> None:
    await world.create(owner="ann", prompt="hers")
    await world.create(owner="bob", prompt="his")
    for name in ("s", "ann.s"):
        assert (await world.store.get(name, "ann")).prompt == "hers"
    assert (await world.store.get("s", "bob")).prompt == "his"
    for owner, name in (("", "s"), ("eve", "s"), ("eve", "ann.s"), ("ann", "bob.s"), ("", "ann.s")):
        with pytest.raises(NothingToDo, match="no schedule"):
            await world.store.get(name, owner)
    assert (await world.store.get("ann.s")).prompt == "hers"
    await world.store.delete("ann.s")
    assert await world.store.list_page("ann") == ([], None)
    assert [one.owner for one in (await world.store.list_page(None))[0]] == ["bob"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"name": ""}, "name of a schedule"),
        ({"name": "a/b"}, "name of a schedule"),
        ({"name": "x" * 81}, "name of a schedule"),
        ({"prompt": "  "}, "prompt"),
        ({"jitter_s": -1.0}, "jitter"),
        ({"jitter_s": float("nan")}, "jitter"),
        ({"catch_up_s": 0.0}, "catch-up"),
        ({"times": CronTimes("nonsense")}, "five fields"),
        ({"times": OnceTime(1)}, "in the past"),
    ],
)
async def test_settings_that_cannot_be_used_are_told(
    world: World, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        await world.create(**settings)
    assert await world.store.list_page(None) == ([], None)


async def test_two_schedules_cannot_have_one_name(world: World) -> None:
    await world.create()
    with pytest.raises(ConfigError, match="already"):
        await world.create()


async def test_lists_have_pages(world: World) -> None:
    for number in range(7):
        await world.create(name=f"s{number}", owner="ann" if number % 2 else "bob")
    names: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page, cursor = await world.store.list_page("bob", cursor, limit=3)
        names += [one.name for one in page]
    assert names == ["s0", "s2", "s4", "s6"]


async def test_a_schedule_whose_agent_nobody_has_says_so(world: World) -> None:
    await world.create(agent="gone")
    await world.pass_time(10 + 5, world.scheduler("helper"))
    assert not (await world.store.get("s")).last_error, "another service may have it"
    await world.pass_time(10, world.scheduler("helper"))
    known = await world.store.get("s")
    assert known.last_error == "not started yet: no service on this journal has the agent gone"
    # A service that has it goes on as if nothing had been noted.
    assert await world.scheduler("gone").run_due() == 1
    assert not (await world.store.get("s")).last_error
