"""Who drives a session: while they live, and not a moment longer."""

import asyncio
import fcntl
import gc
import os
import signal
import threading
from pathlib import Path

import apsw
import pytest

from processes import start_child
from windlass.core.errors import JournalFailed, SessionBusy
from windlass.journals import leases
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.ports import Lease
from windlass.testing.journals import append_facts
from windlass.testing.samples import facts_of_every_kind, note_facts

pytestmark = pytest.mark.slow


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.mark.realtime
@pytest.mark.slow
async def test_a_kill_frees_a_session_at_once(path: Path) -> None:
    """L14, J4: no heartbeat and no time-out stands between a SIGKILL and the next driver."""
    with SqliteJournal(path) as journal:
        for _ in range(3):
            with start_child("hold", path) as holder:
                assert holder.read_line() == "held"
                assert await journal.is_leased("s")
                with pytest.raises(SessionBusy, match="another driver"):
                    await journal.lease("s")
                holder.kill()
                (await journal.lease("s")).release()


@pytest.mark.realtime
async def test_where_only_processes_have_locks_they_exclude_one_another(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L14: as on a system without locks of open files; they meet those of other processes."""
    monkeypatch.setattr(leases, "_SET_LOCK", fcntl.F_SETLK)
    monkeypatch.setattr(leases, "_GET_LOCK", fcntl.F_GETLK)
    with SqliteJournal(path) as journal, start_child("race", path) as other:
        assert other.read_line() == "ready"
        other.write_line("s")
        assert other.read_line() == "won"
        assert await journal.is_leased("s")
        with pytest.raises(SessionBusy):
            await journal.lease("s")
        lease = await journal.lease("t")
        other.write_line("t")
        assert other.read_line() == "lost"
        assert not await journal.is_leased("s")
        lease.release()
        other.write_line("t")
        assert other.read_line() == "won"


@pytest.mark.realtime
async def test_who_stops_waiting_does_not_free_what_is_being_deleted(path: Path) -> None:
    with SqliteJournal(path) as journal:
        await append_facts(journal, "s", note_facts(1, 3))
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")
        deleting = asyncio.create_task(journal.delete("s"))
        await asyncio.sleep(0)
        deleting.cancel()
        await asyncio.wait((deleting,))
        assert await journal.is_leased("s")
        other.execute("ROLLBACK")
        other.close()
        await append_facts(journal, "another", note_facts(1, 1))
        await journal.put_blob("another", b"the next of its kind")
        assert list(await journal.read("s")) == []
        assert not await journal.is_leased("s")


@pytest.mark.slow
def test_of_two_processes_one_wins(path: Path) -> None:
    """L14: a hundred times, at the same moment."""
    with start_child("race", path) as one, start_child("race", path) as two:
        assert {one.read_line(), two.read_line()} == {"ready"}
        winners = list[bool]()
        for turn in range(100):
            one.write_line(f"session {turn}")
            two.write_line(f"session {turn}")
            ends = one.read_line(), two.read_line()
            assert sorted(ends) == ["lost", "won"]
            winners.append(ends[0] == "won")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["exec", "fork"])
@pytest.mark.realtime
async def test_what_a_driver_started_does_not_hold_its_session(path: Path, how: str) -> None:
    """A server that a tool left running, or a forked worker, is not the driver."""
    with SqliteJournal(path) as journal, start_child("hold_and_start", path, how) as driver:
        number, word = driver.read_line().split()
        assert word == ("started" if how == "exec" else "refused"), "it is not its journal"
        left = int(number)
        try:
            assert await journal.is_leased("s")
            driver.kill()
            os.kill(left, 0)
            # A program that is just being started has its copies closed a moment after its start.
            for _ in range(200):
                if not await journal.is_leased("s"):
                    break
                await asyncio.sleep(0.01)
            (await journal.lease("s")).release()
        finally:
            os.kill(left, signal.SIGKILL)


@pytest.mark.realtime
async def test_closing_or_forgetting_a_journal_lets_go_of_its_sessions(path: Path) -> None:
    with SqliteJournal(path) as watching:
        closed = SqliteJournal(path)
        lease = await closed.lease("s")
        closed.close()
        assert not await watching.is_leased("s")
        forgotten = SqliteJournal(path)
        await forgotten.lease("s")
        assert await watching.is_leased("s")
        del forgotten
        gc.collect()
        mine = await watching.lease("s")
        lease.release()
        assert await watching.is_leased("s")
        mine.release()
        with pytest.raises(JournalFailed, match="closed"):
            await closed.lease("s")


@pytest.mark.realtime
async def test_a_link_to_a_journal_has_the_same_drivers(path: Path) -> None:
    link = path.with_name("link.db")
    with SqliteJournal(path) as one:
        link.symlink_to(path)
        with SqliteJournal(link) as two:
            lease = await one.lease("s")
            assert await two.is_leased("s")
            lease.release()


@pytest.mark.realtime
async def test_only_the_owner_may_see_who_drives(path: Path) -> None:
    beside = path.with_name("journal.db-drivers")
    with SqliteJournal(path) as journal:
        await append_facts(journal, "s", note_facts(1, 1))
        assert not beside.exists(), "who leases nothing leaves nothing"
        await journal.lease("s")
        assert beside.stat().st_mode & 0o777 == 0o600
        assert beside.stat().st_size == 0


@pytest.mark.realtime
async def test_what_cannot_be_held_is_told(path: Path) -> None:
    path.with_name("journal.db-drivers").mkdir()
    with SqliteJournal(path) as journal:
        for attempt in (journal.lease("s"), journal.is_leased("s")):
            with pytest.raises(JournalFailed, match=r"journal\.db-drivers: the lock file"):
                await attempt
        with pytest.raises(JournalFailed, match="not a valid session name"):
            await journal.lease("\ud800")


def test_event_loops_in_several_threads_exclude_one_another(path: Path) -> None:
    won = list[Lease]()
    busy = list[SessionBusy]()
    start = threading.Barrier(8)

    def take(journal: SqliteJournal) -> None:
        async def lease() -> None:
            start.wait()
            try:
                won.append(await journal.lease("s"))
            except SessionBusy as error:
                busy.append(error)

        asyncio.run(lease())

    with SqliteJournal(path) as one, SqliteJournal(path) as two:
        threads = [threading.Thread(target=take, args=(one if at % 2 else two,)) for at in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (len(won), len(busy)) == (1, 7)


@pytest.mark.realtime
async def test_pruning_spares_what_is_driven(path: Path) -> None:
    facts = facts_of_every_kind()
    with SqliteJournal(path) as journal, SqliteJournal(path) as other:
        for name in ("mine", "theirs", "old"):
            await append_facts(journal, name, facts)
        await journal.lease("mine")
        lease = await other.lease("theirs")
        assert await journal.prune(before=facts[-1].at + 1) == 1
        assert {one.session for one in await journal.sessions()} == {"mine", "theirs"}
        lease.release()
        assert await journal.prune(before=facts[-1].at + 1) == 1
        assert [one.session for one in await journal.sessions()] == ["mine"]
