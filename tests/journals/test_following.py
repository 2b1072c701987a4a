"""Following a session that another process writes."""

import asyncio
import threading
from pathlib import Path

import pytest

from processes import start_child
from windlass.core.errors import JournalFailed
from windlass.journals.sqlite import file_watch
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing.journals import append_facts
from windlass.testing.samples import note_facts


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.mark.slow
@pytest.mark.realtime
async def test_another_process_hears_each_record(path: Path) -> None:
    """E5: from the first record of a session on, in order, once."""
    with SqliteJournal(path) as journal, start_child("follow", path) as follower:
        assert follower.read_line() == "ready"
        for fact in note_facts(1, 20):
            await append_facts(journal, "another", [fact])
            await append_facts(journal, "s", [fact])
            if fact.seq % 5 == 0:
                said = [await asyncio.to_thread(follower.read_line) for _ in range(5)]
                assert said == [str(seq) for seq in range(fact.seq - 4, fact.seq + 1)]


@pytest.mark.realtime
async def test_who_follows_through_the_journal_that_writes_need_not_look(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_watch, "POLL_MIN_S", 1e6)
    with SqliteJournal(path) as journal:
        for fact in note_facts(1, 5):
            heard = asyncio.create_task(journal.wait_for_append("s", fact.seq - 1))
            await asyncio.sleep(0.01)
            await append_facts(journal, "another", [fact])
            await append_facts(journal, "s", [fact])
            await heard


def test_who_gave_up_following_leaves_no_thread_behind(path: Path) -> None:
    async def give_up(journal: SqliteJournal) -> None:
        waiting = [asyncio.create_task(journal.wait_for_append("s", 0)) for _ in range(20)]
        await asyncio.sleep(0.06)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)

    before = set(threading.enumerate())
    with SqliteJournal(path) as journal:
        asyncio.run(give_up(journal))
        assert journal._notifier._waiters == {}
        left = set(threading.enumerate()) - before
        assert [thread.name for thread in left] == [f"journal {path}"]
    assert set(threading.enumerate()) <= before


@pytest.mark.realtime
async def test_an_event_loop_in_another_thread_hears_too(path: Path) -> None:
    with SqliteJournal(path) as journal:
        heard = asyncio.create_task(asyncio.to_thread(asyncio.run, journal.wait_for_append("s", 0)))
        while "s" not in journal._notifier._waiters:  # noqa: ASYNC110 - its loop is another one
            await asyncio.sleep(0.001)
        await append_facts(journal, "s", note_facts(1, 1))
        await heard


@pytest.mark.realtime
async def test_a_journal_that_is_closed_has_no_news(path: Path) -> None:
    journal = SqliteJournal(path)
    waiting = asyncio.create_task(journal.wait_for_append("s", 0))
    await asyncio.sleep(0.01)
    journal.close()
    with pytest.raises(JournalFailed, match="closed"):
        await waiting
