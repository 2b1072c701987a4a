"""Documents of callers: a list of one owner reads the records of that owner only."""

import time
from collections.abc import Sequence

import pytest
from typing_extensions import override

from service import run_service
from windlass import Agent
from windlass.core.errors import NothingToDo
from windlass.journals.memory import MemoryJournal
from windlass.ports import SharedRecord
from windlass.server import IntervalTimes, NewSchedule, ScheduleStore
from windlass.testing import ScriptedModel

pytestmark = pytest.mark.contract("A4")
OWNERS = ("", "ann", "ann@home", "a.n", "zoe", "-", "ANN", "é")
TIMES = IntervalTimes(86_400, 4_000_000_000)


class CountingJournal(MemoryJournal):
    """Counts the schedules that are read by lists."""

    def __init__(self) -> None:
        super().__init__()
        self.listed = 0

    @override
    async def list_records(
        self, kind: str, after: str = "", limit: int = 100
    ) -> Sequence[SharedRecord]:
        found = await super().list_records(kind, after, limit)
        self.listed += len(found) if kind == "schedule" else 0
        return found


async def add_schedules(store: ScheduleStore, owner: str, count: int) -> None:
    for number in range(count):
        name = f"s{number:04d}"
        await store.create_schedule(
            NewSchedule(name=name, agent="", prompt="Go.", times=TIMES, owner=owner)
        )


@pytest.mark.parametrize("owner", ["ann", ""], ids=["caller", "local owner"])
async def test_a_page_of_one_owner_does_not_read_those_of_all(owner: str) -> None:
    """A4: else one caller with many records makes every list of all the others slow."""
    journal = CountingJournal()
    store = ScheduleStore(journal, time.time)
    for other in ("aaa", "bob", "zoe"):
        await add_schedules(store, other, 400)
    await add_schedules(store, owner, 3)
    journal.listed = 0
    found, cursor = await store.list_page(owner)
    assert [known.owner for known in found] == [owner] * 3
    assert cursor is None
    assert journal.listed <= 100
    assert len([known async for known in store.walk(owner)]) == 3
    assert journal.listed <= 200


async def test_pages_of_an_owner_have_all_of_its_documents_and_no_others() -> None:
    """A4: whatever the names of the others begin with, and wherever a cursor points."""
    store = ScheduleStore(MemoryJournal(), time.time)
    for owner in OWNERS:
        await add_schedules(store, owner, 5)
    foreign = (await store.list_page("zoe", limit=1))[1]
    for owner in OWNERS:
        names: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            found, cursor = await store.list_page(owner, cursor, 2)
            assert {known.owner for known in found} == {owner}
            names += [known.name for known in found]
        assert names == [f"s{number:04d}" for number in range(5)]
        seen, _ = await store.list_page(owner, foreign or "", 100)
        assert {known.owner for known in seen} <= {owner}
    assert len([known async for known in store.walk()]) == 5 * len(OWNERS)


async def test_an_owner_deletes_only_its_own() -> None:
    """A4: by the short name and by the full one."""
    store = ScheduleStore(MemoryJournal(), time.time)
    for owner in ("", "ann"):
        await add_schedules(store, owner, 2)
    for name, owner in (("ann.s0000", "bob"), ("s0000", "bob"), ("ann.s0000", "")):
        with pytest.raises(NothingToDo, match="no schedule"):
            await store.delete(name, owner)
    await store.delete("s0000", "ann")
    await store.delete("ann.s0001", "ann")
    await store.delete("s0000")
    assert [(known.owner, known.name) async for known in store.walk()] == [("", "s0001")]


async def test_only_an_admin_lists_tokens_and_they_come_in_pages() -> None:
    async with run_service(Agent(ScriptedModel([]), name="helper")) as running:
        admin = await running.make_client("root", ["admin"])
        ann = await running.make_client("ann")
        assert (await ann.get("/tokens")).status == 403
        made = {(await running.service.tokens.create("bob")).record.id for _ in range(5)}
        ids: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            page = (await admin.get(f"/tokens?limit=2&cursor={cursor}")).data
            assert 0 < len(page["tokens"]) <= 2
            ids += [token["id"] for token in page["tokens"]]
            cursor = page["cursor"]
        assert len(ids) == len(set(ids)) == 7
        assert made < set(ids)
