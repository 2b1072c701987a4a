"""Sessions in a SQLite file: listed, grouped, checked, kept apart, and refused in words."""

import asyncio
import gc
import os
import random
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw
import pytest
from typing_extensions import override

from disk import FaultyDisk
from nobody import as_nobody
from windlass.core.errors import ConfigError, JournalCorrupt, JournalFailed, SessionBusy
from windlass.core.events import CallFinished, RunStarted
from windlass.core.messages import ImagePart, TextPart, ToolResult
from windlass.core.session_summary import UNFINISHED_STATES
from windlass.journals.sqlite import schema
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.ports import Journal
from windlass.testing import (
    AppendSignalsConformance,
    BlobStoreConformance,
    JournalConformance,
    LiveChannelConformance,
    MailboxConformance,
    SessionCatalogConformance,
    SessionLeasesConformance,
    SharedBudgetsConformance,
    SharedQuotaConformance,
    SharedRecordsConformance,
    WorkConformance,
)
from windlass.testing.journals import append_error, append_facts, start_append
from windlass.testing.samples import facts_of_every_kind, note_facts, number_facts

pytestmark = pytest.mark.slow

CHILD = Path(__file__).parents[1] / "support" / "journal_child.py"
Scene = Callable[[SqliteJournal], Coroutine[None, None, None]]


class TestSqliteJournal(
    JournalConformance,
    SessionLeasesConformance,
    AppendSignalsConformance,
    BlobStoreConformance,
    SharedBudgetsConformance,
    SharedQuotaConformance,
    SharedRecordsConformance,
    WorkConformance,
    SessionCatalogConformance,
    LiveChannelConformance,
    MailboxConformance,
):
    """J5: one conformance suite for all stores."""

    @override
    def open(self, folder: Path) -> Journal:
        path = folder / "journal.db"
        return SqliteJournal(path, now=self.now, mail_limits=self.mail_limits)


class TestRelaxedJournal(JournalConformance):
    @override
    def open(self, folder: Path) -> Journal:
        return SqliteJournal(folder / "journal.db", durability="relaxed")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def with_journal(path: Path, scene: Scene) -> None:
    with SqliteJournal(path) as journal:
        asyncio.run(scene(journal))


def fill_file(path: Path, sessions: int = 1) -> None:
    async def scene(journal: SqliteJournal) -> None:
        for at in range(sessions):
            await append_facts(journal, f"s{at}", facts_of_every_kind())

    with_journal(path, scene)


def run_sql(path: Path, sql: str, *bindings: Any) -> list[tuple[Any, ...]]:
    connection = apsw.Connection(str(path))
    try:
        return connection.execute(sql, bindings).fetchall()
    finally:
        connection.close()


@contextmanager
def hold_write_lock(path: Path) -> Iterator[None]:
    """Another connection has the file and has not committed yet."""
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


# ── groups ───────────────────────────────────────────────────────────────────


def test_the_appends_of_all_sessions_share_a_commit_and_an_fsync(path: Path) -> None:
    """J5: group commit, counted and not timed."""

    async def scene(journal: SqliteJournal) -> None:
        commits = list[int]()
        connection: Any = journal._writer._connection
        connection.set_commit_hook(lambda: bool(commits.append(1)))
        await append_facts(journal, "first", note_facts(1, 1))
        assert (len(commits), disk.syncs - syncs) == (1, 1)
        with hold_write_lock(path):
            many = [start_append(journal, f"s{at}", note_facts(1, 2)) for at in range(200)]
            many += [start_append(journal, f"s{at}", note_facts(3, 3)) for at in range(200)]
        await asyncio.gather(*many)
        # The writer may have taken the first few before the rest were there.
        assert len(commits) in (2, 3)
        assert disk.syncs - syncs == len(commits)

    with FaultyDisk() as disk, SqliteJournal(path) as journal:
        syncs = disk.syncs
        asyncio.run(scene(journal))


def test_relaxed_needs_no_fsync_for_an_append(path: Path) -> None:
    async def scene(journal: SqliteJournal) -> None:
        for fact in note_facts(1, 20):
            await append_facts(journal, "s", [fact])

    with FaultyDisk() as disk, SqliteJournal(path, durability="relaxed") as journal:
        syncs = disk.syncs
        asyncio.run(scene(journal))
        assert disk.syncs == syncs


def test_event_loops_in_several_threads_share_a_journal(path: Path) -> None:
    async def drive(journal: SqliteJournal, name: str) -> None:
        for fact in note_facts(1, 20, name):
            await append_facts(journal, name, [fact])

    names = [f"s{at}" for at in range(4)]
    with SqliteJournal(path) as journal:
        loops = [
            threading.Thread(target=lambda name=name: asyncio.run(drive(journal, name)))
            for name in names
        ]
        for thread in loops:
            thread.start()
        for thread in loops:
            thread.join()
        for name in names:
            assert list(asyncio.run(read_facts(journal, name))) == note_facts(1, 20, name)


async def read_facts(journal: Journal, session: str) -> list[Any]:
    return list(await journal.read(session))


def test_two_journals_on_one_file_see_one_another(path: Path) -> None:
    """L14: what is remembered of a session is forgotten when somebody else writes the file."""

    async def scene(one: SqliteJournal) -> None:
        with SqliteJournal(path) as two:
            await append_facts(one, "s", note_facts(1, 2))
            assert isinstance(await append_error(two, "s", note_facts(2, 2)), SessionBusy)
            await append_facts(two, "s", note_facts(3, 3))
            await append_facts(two, "t", note_facts(1, 1))
            assert isinstance(await append_error(one, "s", note_facts(3, 3)), SessionBusy)
            await append_facts(one, "s", note_facts(4, 4))
            await append_facts(one, "u", note_facts(1, 1))
            assert await read_facts(two, "s") == note_facts(1, 4)
            assert await two.delete("s")
            await append_facts(one, "s", note_facts(1, 1))
            assert [await read_facts(two, name) for name in "stu"] == [note_facts(1, 1)] * 3

    with_journal(path, scene)


# ── content ──────────────────────────────────────────────────────────────────


def test_an_attachment_is_stored_once(path: Path) -> None:
    """J10: by hash, over all sessions; deleted with the last session that uses it."""
    picture = os.urandom(100_000)
    text = "long " * 10_000
    facts = number_facts(
        [
            RunStarted(1, (TextPart("Look."), ImagePart("image/png", picture))),
            CallFinished(
                "a", ToolResult("value", (TextPart(text), ImagePart("image/png", picture)))
            ),
        ]
    )

    async def scene(journal: SqliteJournal) -> None:
        for name in ("one", "two", "three"):
            await append_facts(journal, name, facts)
            assert await read_facts(journal, name) == facts
        assert run_sql(path, "SELECT count(*), sum(length(data)) FROM blobs") == [(2, 150_000)]
        assert run_sql(path, "SELECT max(length(body)) FROM records")[0][0] < 1_000
        assert await journal.delete("one")
        assert await read_facts(journal, "two") == facts
        await journal.delete("two")
        await journal.delete("three")
        for table in ("blobs", "uses", "records", "sessions"):
            assert run_sql(path, f"SELECT count(*) FROM {table}") == [(0,)]

    with_journal(path, scene)


def test_a_record_costs_the_same_however_long_the_session_is(path: Path) -> None:
    """J6: pages of the file, thousand records after thousand."""
    sizes = list[int]()

    async def scene(journal: SqliteJournal) -> None:
        for first in range(1, 10_000, 1_000):
            await append_facts(journal, "s", note_facts(first, first + 999, "x" * 400))
            sizes.append(run_sql(path, "PRAGMA page_count")[0][0])

    with_journal(path, scene)
    grown = [after - before for before, after in pairwise(sizes)]
    assert max(grown) < 1.1 * min(grown)


def test_an_append_writes_three_small_pages(path: Path) -> None:
    """J6: that of the records, of their index and of the session; a frame of the log for each."""
    grown: list[int] = []

    async def scene(journal: SqliteJournal) -> None:
        log = path.with_name(f"{path.name}-wal")
        await append_facts(journal, "s", note_facts(1, 1))
        for number in range(2, 40):
            before = log.stat().st_size
            await append_facts(journal, "s", note_facts(number, number))
            grown.append(log.stat().st_size - before)

    with_journal(path, scene)
    assert sorted(grown)[len(grown) // 2] <= 3 * (24 + 1_024)


def test_what_cannot_be_written_down_fails_alone(path: Path) -> None:
    async def scene(journal: SqliteJournal) -> None:
        odd = [
            ("s\ud800", note_facts(1, 1)),
            ("t", note_facts(1, 1, "\ud800")),
            ("u", note_facts(1, 1)),
        ]
        appends = (start_append(journal, name, facts) for name, facts in odd)
        ends = await asyncio.gather(*appends, return_exceptions=True)
        assert [type(end) for end in ends] == [JournalFailed, JournalFailed, type(None)]

    with_journal(path, scene)


# ── the list of sessions ─────────────────────────────────────────────────────


def test_sessions_are_listed_found_and_pruned(path: Path) -> None:
    async def scene(journal: SqliteJournal) -> None:
        facts = facts_of_every_kind()
        await append_facts(journal, "ended", facts)
        await append_facts(journal, "open", facts[:6])
        await append_facts(journal, "waiting", facts[:10])
        listed = {one.session: one for one in await journal.sessions()}
        assert {name: one.state for name, one in listed.items()} == {
            "ended": "completed",
            "open": "open",
            "waiting": "waiting",
        }
        ended = listed["ended"]
        assert (ended.facts, ended.runs, ended.steps) == (len(facts), 3, 2)
        assert (ended.created, ended.updated) == (facts[0].at, facts[-1].at)
        assert ended.title == "Look, then send. 🙂"
        assert [one.session for one in await journal.sessions(limit=1)] == ["ended"]
        assert [one.session for one in await journal.sessions("WAIT")] == ["waiting"]
        assert len(await journal.sessions("then send")) == 3
        assert await journal.sessions("100%") == []
        unfinished = await journal.sessions(state=UNFINISHED_STATES)
        assert {one.session for one in unfinished} == {"open", "waiting"}
        assert await journal.prune(before=facts[-1].at) == 0
        assert await journal.prune(before=facts[-1].at + 1) == 1
        assert {one.session for one in await journal.sessions()} == {"open", "waiting"}
        assert not await journal.delete("ended")

    with_journal(path, scene)


# ── tampering ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("sql", "seq"),
    [
        ("UPDATE records SET body = replace(body, 'key-a', 'key-b') WHERE seq = 12", 12),
        ("UPDATE records SET body = CAST(x'ff' AS TEXT) WHERE seq = 3", 3),
        ("UPDATE records SET hash = x'00' WHERE seq = 5", 5),
        ("DELETE FROM records WHERE seq = 7", 7),
        ("DELETE FROM records WHERE seq > 20", 21),
        ("DELETE FROM records", 1),
        ("UPDATE records SET seq = seq + 1000 WHERE seq = 2", 2),
        ("UPDATE records SET number = 2 WHERE seq > 22", 23),
        ("UPDATE blobs SET data = x'00' WHERE length(data) > 1000", 13),
        ("DELETE FROM blobs WHERE length(data) > 1000", 13),
        ("UPDATE sessions SET head = x'00'", len(facts_of_every_kind())),
    ],
)
def test_a_tampered_session_is_found_and_not_believed(path: Path, sql: str, seq: int) -> None:
    """J7: verify finds it; reading is an error, never a shorter session."""
    fill_file(path)
    run_sql(path, sql)

    async def scene(journal: SqliteJournal) -> None:
        problems = await journal.verify("s0")
        assert problems[0].seq == seq
        with pytest.raises(JournalCorrupt, match=rf"'s0' .*record {seq}:"):
            await journal.read("s0")

    with_journal(path, scene)


def test_a_sound_session_has_no_problems(path: Path) -> None:
    fill_file(path)

    async def scene(journal: SqliteJournal) -> None:
        assert await journal.verify("s0") == []
        assert await journal.verify("unknown") == []
        assert await journal.check() == []

    with_journal(path, scene)


# ── bad files and bad disks ──────────────────────────────────────────────────


def opening_error(path: Path) -> Exception:
    """Why a journal cannot be opened: one line that names the file."""
    with pytest.raises((ConfigError, JournalFailed)) as caught:
        SqliteJournal(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    return caught.value


def test_a_folder_is_no_journal(tmp_path: Path) -> None:
    assert "this is a folder" in str(opening_error(tmp_path))


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "its folder is a file" in str(opening_error(tmp_path / "file" / "journal.db"))


def test_missing_folders_are_made(tmp_path: Path) -> None:
    fill_file(tmp_path / "a" / "b" / "journal.db")


def test_only_the_owner_may_read_it(path: Path) -> None:
    fill_file(path)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("garbage", [b"garbage", b"SQLite format 3\0" + b"x" * 5_000, b"x" * 9_000])
def test_another_kind_of_file_is_left_as_it_is(path: Path, garbage: bytes) -> None:
    path.write_bytes(garbage)
    opening_error(path)
    assert path.read_bytes() == garbage


def test_a_database_of_another_program_is_left_as_it_is(path: Path) -> None:
    run_sql(path, "CREATE TABLE theirs (x)")
    before = path.read_bytes()
    assert "another program" in str(opening_error(path))
    assert path.read_bytes() == before


def test_an_empty_file_becomes_a_journal(path: Path) -> None:
    path.touch()
    fill_file(path)


def test_a_file_in_wal_mode_without_tables_becomes_a_journal(path: Path) -> None:
    """A kill between the two steps of the first start leaves this behind."""
    run_sql(path, "PRAGMA journal_mode = WAL")
    assert path.stat().st_size
    fill_file(path)


@pytest.mark.parametrize("ahead", [1, 90])
def test_a_file_of_another_format_is_refused(path: Path, ahead: int) -> None:
    """J11: also by one version, which is the one that people meet."""
    fill_file(path)
    version = len(schema.MIGRATIONS) + ahead
    run_sql(path, f"PRAGMA user_version = {version}")
    assert f"its format is version {version}, and this" in str(opening_error(path))


def test_an_older_file_is_migrated(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """J11: step by step, and its sessions are still there."""
    fill_file(path)
    steps = (*schema.MIGRATIONS, "CREATE TABLE news (x);", "INSERT INTO news VALUES (7);")
    monkeypatch.setattr(schema, "MIGRATIONS", steps)

    async def scene(journal: SqliteJournal) -> None:
        assert await read_facts(journal, "s0") == facts_of_every_kind()

    with_journal(path, scene)
    with_journal(path, scene)
    assert run_sql(path, "SELECT x FROM news") == [(7,)]
    # Programs of the version before can still open it, until the upgrade is finished.
    assert run_sql(path, "PRAGMA user_version") == [(len(steps) - 1,)]

    async def finish(journal: SqliteJournal) -> None:
        await journal.migrate(finish=True)

    with_journal(path, finish)
    assert run_sql(path, "PRAGMA user_version") == [(len(steps),)]


def test_a_migration_that_fails_leaves_the_file_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_file(path)
    with monkeypatch.context() as patch:
        patch.setattr(
            schema, "MIGRATIONS", (*schema.MIGRATIONS, "CREATE TABLE news (x); SELECT nothing")
        )
        opening_error(path)
    assert run_sql(path, "PRAGMA user_version") == [(len(schema.MIGRATIONS),)]
    assert run_sql(path, "SELECT name FROM sqlite_schema WHERE name = 'news'") == []


def test_a_read_only_file_is_told() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        fill_file(path)
        path.chmod(0o444)
        Path(folder).chmod(0o755)
        with as_nobody():
            assert "read-only" in str(opening_error(path))
            assert "folder is not writable" in str(opening_error(path.with_name("new.db")))


@pytest.mark.parametrize("kept", [0.3, 0.6, 0.9])
def test_a_truncated_file_is_an_error_and_not_an_empty_session(path: Path, kept: float) -> None:
    """J10."""
    fill_file(path, sessions=40)
    size = path.stat().st_size
    os.truncate(path, int(size * kept) // 4096 * 4096)
    assert count_unreadable(path, sessions=40)


def test_a_flipped_byte_is_never_silent(path: Path) -> None:
    """J10: a session is whole, or it is an error, or the check of the file tells."""
    fill_file(path, sessions=3)
    sound = path.read_bytes()
    chance = random.Random(7)
    for _ in range(150):
        torn = bytearray(sound)
        torn[chance.randrange(len(torn))] ^= chance.randrange(1, 256)
        path.write_bytes(torn)
        try:
            count_unreadable(path, sessions=3)
        except AssertionError:
            with SqliteJournal(path) as journal:
                assert asyncio.run(journal.check())


def test_an_unreadable_page_is_an_error(path: Path) -> None:
    """J10: each page in turn; a session is whole, or it is an error."""
    fill_file(path, sessions=3)
    sound = path.read_bytes()
    found = 0
    for page in range(len(sound) // 4096):
        torn = bytearray(sound)
        torn[page * 4096 : page * 4096 + 4096] = os.urandom(4096)
        path.write_bytes(torn)
        found += count_unreadable(path, sessions=3)
    assert found > 10


def count_unreadable(path: Path, sessions: int) -> int:
    """How many sessions cannot be read; the others must be whole."""
    try:
        journal = SqliteJournal(path)
    except (ConfigError, JournalFailed):
        return sessions

    async def scene() -> int:
        broken = 0
        for at in range(sessions):
            try:
                assert await read_facts(journal, f"s{at}") == facts_of_every_kind()
            except JournalCorrupt:
                broken += 1
        return broken

    with journal:
        return asyncio.run(scene())


@pytest.mark.parametrize("trouble", ["full", "read_only", "broken_sync"])
def test_a_bad_disk_keeps_nothing_of_the_group(path: Path, trouble: str) -> None:
    """J1: each append of the group fails, what was acknowledged stays, and the journal goes on."""

    async def scene(journal: SqliteJournal) -> None:
        names = [f"s{at}" for at in range(5)]
        await asyncio.gather(*(start_append(journal, name, note_facts(1, 2)) for name in names))
        setattr(disk, trouble, True)
        for name in names:
            error = await append_error(journal, name, note_facts(3, 4))
            assert isinstance(error, JournalFailed)
            assert str(path) in str(error)
        assert isinstance(await append_error(journal, "new", note_facts(1, 1)), JournalFailed)
        for name in names:
            assert await read_facts(journal, name) == note_facts(1, 2)
        setattr(disk, trouble, False)
        for name in names:
            await append_facts(journal, name, note_facts(3, 4))
            assert await read_facts(journal, name) == note_facts(1, 4)

    with FaultyDisk() as disk:
        with_journal(path, scene)


def test_a_file_that_may_not_grow_is_told_as_a_full_disk(path: Path) -> None:
    async def scene(journal: SqliteJournal) -> None:
        pages = run_sql(path, "PRAGMA page_count")[0][0]
        journal._writer._connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        error = await append_error(journal, "s", note_facts(1, 500))
        assert isinstance(error, JournalFailed)
        assert "full" in str(error)
        await append_facts(journal, "s", note_facts(1, 2))

    with_journal(path, scene)


def test_a_file_that_somebody_holds_for_too_long_is_told(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.sqlite_file.BUSY_MS", 10)

    async def scene(journal: SqliteJournal) -> None:
        with hold_write_lock(path):
            error = await append_error(journal, "s", note_facts(1, 1))
        assert isinstance(error, JournalFailed)
        assert "another program" in str(error)
        await append_facts(journal, "s", note_facts(1, 1))

    with_journal(path, scene)


# ── the end ──────────────────────────────────────────────────────────────────


def test_a_closed_journal_says_so(path: Path) -> None:
    async def scene() -> None:
        journal = SqliteJournal(path)
        waiting = [start_append(journal, "s", [fact]) for fact in note_facts(1, 20)]
        journal.close()
        journal.close()
        await asyncio.gather(*waiting)
        assert isinstance(await append_error(journal, "s", note_facts(21, 21)), JournalFailed)
        with pytest.raises(JournalFailed, match="closed"):
            await journal.read("s")
        with pytest.raises(JournalFailed, match="closed"):
            await journal.delete("s")
        with SqliteJournal(path) as again:
            assert await read_facts(again, "s") == note_facts(1, 20)

    asyncio.run(scene())


def test_a_forgotten_journal_stops_its_thread(path: Path) -> None:
    before = threading.active_count()
    journal = SqliteJournal(path)
    asyncio.run(read_facts(journal, "s"))
    gone = weakref.ref(journal)
    del journal
    gc.collect()
    assert gone() is None
    assert threading.active_count() <= before


def test_a_loop_that_is_gone_does_not_stop_the_writer(path: Path) -> None:
    async def leave(journal: SqliteJournal) -> None:
        start_append(journal, "s", note_facts(1, 1))

    with SqliteJournal(path) as journal:
        with hold_write_lock(path):
            asyncio.run(leave(journal))
        asyncio.run(leave_nothing(journal))
        assert asyncio.run(read_facts(journal, "s")) == note_facts(1, 1)


async def leave_nothing(journal: SqliteJournal) -> None:
    await append_facts(journal, "another", note_facts(1, 1))


# ── processes ────────────────────────────────────────────────────────────────


def spawn_child(*arguments: object, **options: Any) -> "subprocess.Popen[str]":
    command = [sys.executable, CHILD, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, **options)


def read_output(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    with process, process.stdout:
        return process.stdout.readline().strip()


@pytest.mark.slow
def test_a_forgotten_journal_does_not_keep_python_from_ending(path: Path) -> None:
    program = f"""
import asyncio
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing.journals import start_append
from windlass.testing.samples import note_facts
journal = SqliteJournal({str(path)!r})
async def main():
    await start_append(journal, "s", note_facts(1, 3))
    start_append(journal, "s", note_facts(4, 4))
asyncio.run(main())
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=30)

    async def scene(journal: SqliteJournal) -> None:
        assert await read_facts(journal, "s") == note_facts(1, 4)

    with_journal(path, scene)


@pytest.mark.slow
def test_the_child_of_a_fork_is_told_to_open_its_own(path: Path) -> None:
    program = f"""
import asyncio, os, sys
from windlass.core.errors import JournalFailed
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing.journals import start_append
from windlass.testing.samples import note_facts
journal = SqliteJournal({str(path)!r})
async def append(seq):
    await start_append(journal, "s", note_facts(seq, seq))
asyncio.run(append(1))
child = os.fork()
try:
    asyncio.run(append(2))
except JournalFailed as error:
    sys.exit(3 if "fork" in str(error) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=30)


@pytest.mark.slow
def test_processes_share_a_file(path: Path) -> None:
    """L14: each writes its own session whole; of a shared one nobody's records are lost."""
    names = ["ann", "bob", "cid"]
    children = [spawn_child("contend", path, name, 30) for name in names]
    won = {name: int(read_output(process)) for name, process in zip(names, children, strict=True)}

    async def scene(journal: SqliteJournal) -> None:
        for name in names:
            assert await read_facts(journal, name) == note_facts(1, 30, name)
        shared = [fact.text.split()[0] for fact in await read_facts(journal, "shared")]
        assert {name: shared.count(name) for name in names} == won
        assert await journal.verify("shared") == []

    with_journal(path, scene)


@pytest.mark.parametrize("acknowledged", [1, 7, 40])
@pytest.mark.slow
def test_what_was_acknowledged_outlives_a_kill(path: Path, acknowledged: int) -> None:
    """J4: SIGKILL in the middle of appending, twice on the same file."""

    async def check(journal: SqliteJournal, last: int) -> None:
        facts = await read_facts(journal, "s")
        assert len(facts) in (last, last + 1)
        assert facts == note_facts(1, len(facts))

    last = 0
    for _ in range(2):
        process = spawn_child("write", path)
        assert process.stdout is not None
        for _ in range(acknowledged):
            last = int(process.stdout.readline())
        process.kill()
        last = max([last, *map(int, process.stdout.read().split())])
        read_output(process)
        with_journal(path, partial(check, last=last))


@pytest.mark.slow
def test_a_kill_at_any_change_of_a_file_from_the_very_first_on_loses_nothing(
    tmp_path: Path,
) -> None:
    """J4: the file is made, written, closed and opened again; each time it dies a little later."""
    moments = int(read_output(spawn_child("start", tmp_path)))
    assert moments > 30

    async def scene(journal: SqliteJournal) -> None:
        facts = await read_facts(journal, "s")
        assert len(facts) >= acknowledged
        assert facts in ([], note_facts(1, 1), note_facts(1, 3))
        await append_facts(journal, "s", note_facts(len(facts) + 1, len(facts) + 1))

    for moment in range(1, moments + 1):
        path = tmp_path / f"{moment}.db"
        told = path.with_suffix(".ack")
        acknowledged = int(told.read_text("utf-8")) if told.exists() else 0
        with_journal(path, scene)
