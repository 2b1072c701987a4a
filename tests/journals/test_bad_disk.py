"""Disks that fail, and files that were cut: what was acknowledged is there, or it is an error."""

import asyncio
import random
import shutil
from pathlib import Path

import pytest

from disk import FaultyDisk
from windlass.core.errors import JournalFailed
from windlass.core.limits import Amount, Budget
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing.journals import append_facts, error_of
from windlass.testing.samples import note_facts

pytestmark = pytest.mark.slow

BUDGET = Budget("team", tokens=100)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.mark.parametrize("trouble", ["full", "read_only", "broken_sync"])
@pytest.mark.realtime
async def test_what_a_bad_disk_did_not_keep_was_not_given(path: Path, trouble: str) -> None:
    """J1: a draw, or a kept result, that fails has not happened, and can be done again."""
    with FaultyDisk() as disk, SqliteJournal(path) as journal:
        await append_facts(journal, "s", note_facts(1, 1))
        assert await journal.draw_budget(BUDGET, "s", 1, Amount(tokens=10)) == Amount(tokens=10)
        setattr(disk, trouble, True)
        failing = (
            journal.draw_budget(BUDGET, "s", 1, Amount(tokens=50)),
            journal.settle_budget(BUDGET, "s", 1, Amount(tokens=1)),
            journal.put_blob("s", b"lost"),
        )
        for asked in failing:
            error = await error_of(asked)
            assert isinstance(error, JournalFailed)
            assert str(path) in str(error)
        setattr(disk, trouble, False)
        assert await journal.read_spending(BUDGET) == Amount(tokens=10)
        name = await journal.put_blob("s", b"kept")
        assert await journal.get_blob("s", name) == b"kept"
        assert await journal.draw_budget(BUDGET, "s", 1, Amount(tokens=50)) == Amount(tokens=50)


@pytest.mark.realtime
async def test_a_disk_that_gives_nothing_back_is_no_empty_session(path: Path) -> None:
    """J10."""
    with SqliteJournal(path) as journal:
        await append_facts(journal, "s", note_facts(1, 500))
    with FaultyDisk() as disk, SqliteJournal(path) as journal:
        disk.unreadable = True
        for asked in (journal.read("s"), journal.sessions(), journal.get_blob("s", "0" * 16)):
            assert isinstance(await error_of(asked), JournalFailed)
        disk.unreadable = False
        assert list(await journal.read("s")) == note_facts(1, 500)


@pytest.fixture(scope="module")
def torn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file whose last commits are still in its log, as a power cut would find them."""
    folder = tmp_path_factory.mktemp("torn")
    path = folder / "journal.db"

    async def write(journal: SqliteJournal) -> None:
        for last in range(3, 31, 3):
            await append_facts(journal, "s", note_facts(last - 2, last))

    with SqliteJournal(path) as journal:
        asyncio.run(write(journal))
        for end in ("", "-wal"):
            shutil.copy(f"{path}{end}", folder / f"kept{end}")
    return folder / "kept"


def count_kept_records(torn: Path, path: Path, log: bytes) -> int:
    """How many facts are left with this log: whole groups, chained, and the journal goes on."""
    shutil.copy(torn, path)
    Path(f"{path}-wal").write_bytes(log)
    Path(f"{path}-shm").unlink(missing_ok=True)

    async def look(journal: SqliteJournal) -> int:
        facts = list(await journal.read("s"))
        assert facts == note_facts(1, len(facts))
        assert len(facts) % 3 == 0
        assert await journal.verify("s") == []
        # A cut may take away what was acknowledged, and the mark outside of the file then says so.
        assert await journal.check() == [] or len(facts) < 30
        await append_facts(journal, "s", note_facts(len(facts) + 1, len(facts) + 1))
        return len(facts)

    with SqliteJournal(path) as journal:
        return asyncio.run(look(journal))


def test_a_torn_tail_of_the_log_is_cut(torn: Path, path: Path) -> None:
    """J10: wherever it was torn, what is left is whole; the more was written, the more is left."""
    log, chance = Path(f"{torn}-wal").read_bytes(), random.Random(11)
    assert count_kept_records(torn, path, log) == 30
    cuts = sorted({0, 1, 31, 32, len(log) - 1, *(chance.randrange(len(log)) for _ in range(40))})
    kept = [count_kept_records(torn, path, log[:cut]) for cut in cuts]
    assert kept == sorted(kept)
    assert kept[-1] == 27, "only the group that was torn is gone"
    assert len(set(kept)) > 5


def test_a_tail_of_rubbish_costs_nothing_that_was_acknowledged(torn: Path, path: Path) -> None:
    """J10: what a power cut left of a group that nobody was told of."""
    log, chance = Path(f"{torn}-wal").read_bytes(), random.Random(12)
    for _ in range(20):
        tail = chance.randbytes(chance.randrange(1, 20_000))
        assert count_kept_records(torn, path, log + tail) == 30
        # Frames that were written, but whose commit was not.
        assert count_kept_records(torn, path, log + log[32 : 32 + chance.randrange(9_000)]) == 30


def test_after_a_close_the_file_alone_is_whole(path: Path) -> None:
    """J10: a copy of it is a copy of all sessions."""

    async def fill(journal: SqliteJournal) -> None:
        await append_facts(journal, "s", note_facts(1, 30))

    async def look(journal: SqliteJournal) -> None:
        assert list(await journal.read("s")) == note_facts(1, 30)

    with SqliteJournal(path) as journal:
        asyncio.run(fill(journal))
    assert [found.name for found in path.parent.iterdir()] == [path.name]
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    with SqliteJournal(copy) as journal:
        asyncio.run(look(journal))
