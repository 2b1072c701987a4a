"""Those who wait for another process share one look at the file."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from windlass.core.errors import JournalFailed
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing.journals import append_facts
from windlass.testing.samples import note_facts

pytestmark = [pytest.mark.contract("D2"), pytest.mark.realtime]
WAITERS = 2_000


class CountingJournal(SqliteJournal):
    """Counts how often the file is looked at."""

    looks = 0

    @override
    def _data_version(self) -> int:
        self.looks += 1
        return super()._data_version()


async def wait_until_all_wait(waiters: list[asyncio.Task[None]]) -> None:
    for _ in range(3):
        await asyncio.sleep(0.3)
    assert not any(waiter.done() for waiter in waiters)


async def test_two_thousand_idle_watchers_cost_one_look(tmp_path: Path) -> None:
    """D2: the looks of a second do not grow with those who wait, and each wakes for its session."""
    path = tmp_path / "journal.db"
    with CountingJournal(path) as journal, SqliteJournal(path) as other:
        for name in ("a", "b"):
            await append_facts(journal, name, note_facts(1, 1))
        tasks = [
            asyncio.create_task(journal.wait_for_append("ab"[nth % 2], 1)) for nth in range(WAITERS)
        ]
        await wait_until_all_wait(tasks)
        before = journal.looks
        await asyncio.sleep(1)
        assert journal.looks - before < 30
        await append_facts(other, "a", note_facts(2, 2))
        await asyncio.wait_for(asyncio.gather(*tasks[::2]), 30)
        assert not any(task.done() for task in tasks[1::2])
        await append_facts(journal, "b", note_facts(2, 2))
        await asyncio.wait_for(asyncio.gather(*tasks), 30)
        looks = journal.looks
        await asyncio.sleep(0.3)
        # Without anyone who waits, there is nothing to look for.
        assert journal.looks == looks


async def test_a_journal_that_is_closed_is_reported_to_those_who_wait(tmp_path: Path) -> None:
    journal: Any = SqliteJournal(tmp_path / "journal.db")
    await append_facts(journal, "a", note_facts(1, 1))
    waiter = asyncio.create_task(journal.wait_for_append("a", 1))
    await asyncio.sleep(0.2)
    journal.close()
    with pytest.raises(JournalFailed):
        await asyncio.wait_for(waiter, 10)
