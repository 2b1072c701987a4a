"""Upgrades in two steps, with an invented version 2: shared until a person finishes it."""

import asyncio
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from version_2 import version_2
from windlass.cli.migrate import migrate
from windlass.core.errors import IllegalFact, JournalFailed, UpgradeUnfinished
from windlass.core.events import RunPaused
from windlass.core.fold.run import fold
from windlass.core.session_summary import row_of
from windlass.journals import upgrades
from windlass.journals.postgres import schema as postgres_schema
from windlass.journals.postgres.journal import PostgresJournal
from windlass.journals.sqlite import queries
from windlass.journals.sqlite import queries as sqlite_queries
from windlass.journals.sqlite import schema as sqlite_schema
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.journals.sqlite.open_files import FRAME_HEADER_BYTES
from windlass.journals.sqlite.schema import PAGE_BYTES
from windlass.testing.journals import append_error, append_facts, error_of, start_append
from windlass.testing.samples import facts_of_every_kind, note_facts

OLDER_PROGRAM = Path(__file__).parents[1] / "support" / "older_program.py"
MANY = 1_000
pytestmark = [pytest.mark.contract("J11"), pytest.mark.realtime]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of version 1."""

    async def write(path: Path) -> None:
        with SqliteJournal(path) as journal:
            await append_facts(journal, "s", facts_of_every_kind())

    asyncio.run(write(tmp_path / "journal.db"))
    return tmp_path / "journal.db"


def user_version(path: Path) -> int:
    file = apsw.Connection(str(path))
    try:
        return file.execute("PRAGMA user_version").get
    finally:
        file.close()


def log_bytes(path: Path) -> int:
    return Path(f"{path}-wal").stat().st_size


def start_older(place: object, session: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, str(OLDER_PROGRAM), str(place), session, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


async def run_older(place: object, session: str, count: int) -> str:
    """Run a program of version 1 to its end; returns what it says on stderr."""
    program = start_older(place, session, count)
    _, errors = await asyncio.to_thread(program.communicate)
    return errors


async def check_summaries(journal: Any) -> None:
    """Every row says what the facts add up to, whoever wrote it."""
    listed = await journal.sessions(limit=MANY)
    for summary in listed:
        facts = await journal.read(summary.session)
        with suppress(IllegalFact):
            made = row_of(fold(summary.session, facts))
            assert summary == replace(made, changed=summary.changed)
        assert await journal.verify(summary.session) == []
    for column in ("agent", "caller", "parent"):
        for value in {getattr(summary, column) for summary in listed}:
            found = await journal.sessions(limit=MANY, **{column: value})
            wanted = [one.session for one in listed if getattr(one, column) == value]
            assert [one.session for one in found] == wanted


async def test_a_new_journal_is_born_finished(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "new.db") as journal:
        assert (await journal.upgrade_status()).is_finished
    with version_2(), SqliteJournal(tmp_path / "newer.db") as journal:
        assert (await journal.upgrade_status()).is_finished
        assert user_version(tmp_path / "newer.db") == 2


async def test_a_file_is_shared_until_its_upgrade_is_finished(path: Path) -> None:
    with version_2(), SqliteJournal(path) as journal:
        status = await journal.upgrade_status()
        assert (status.is_finished, status.sessions_left) == (False, 1)
        await check_summaries(journal)
        status = await journal.migrate()
        assert (status.is_finished, status.sessions_left) == (False, 0)
        assert user_version(path) == 1
        status = await journal.migrate(finish=True)
        assert (status.is_finished, status.sessions_left) == (True, 0)
        assert user_version(path) == status.version == 2
        await check_summaries(journal)
        assert await journal.check() == []


async def test_what_the_version_before_cannot_read_is_refused_until_then(path: Path) -> None:
    """J11: with the command that ends it. Nothing is written."""
    with version_2(), SqliteJournal(path) as journal, SqliteJournal(path) as other:
        before = await journal.read("s")
        pause = RunPaused(seq=len(before) + 1, at=2e9)
        error = await append_error(journal, "s", [pause])
        assert isinstance(error, UpgradeUnfinished)
        assert "windlass migrate --finish" in str(error)
        assert await journal.read("s") == before
        # One process finishes it, and the others notice by themselves.
        await other.migrate(finish=True)
        await append_facts(journal, "s", [pause])


@pytest.mark.slow
async def test_the_version_before_shares_the_file_during_the_upgrade(path: Path) -> None:
    """J11: both write, in turns and at the same time, to their own sessions and to each other's."""
    with version_2(), SqliteJournal(path) as journal:
        await append_facts(journal, "both", note_facts(1, 3))
        assert await run_older(path, "both", 4) == ""
        await append_facts(journal, "both", note_facts(8, 9))
        assert await run_older(path, "both", 1) == ""
        older = start_older(path, "older", 40)
        for seq in range(1, 41):
            await append_facts(journal, "newer", note_facts(seq, seq))
            if seq % 10 == 0:
                await journal.migrate()
        await asyncio.to_thread(older.communicate)
        assert len(await journal.read("both")) == 10
        assert len(await journal.read("older")) == len(await journal.read("newer")) == 40
        await check_summaries(journal)
        await journal.migrate(finish=True)
        await check_summaries(journal)
        assert await journal.check() == []
    assert "its format is version 2, and this Windlass knows 1" in await run_older(path, "both", 1)


async def test_a_row_that_the_version_before_wrote_is_folded_again(path: Path) -> None:
    """J11: it may lack what is new, so `migrate` makes it of the state before the upgrade ends."""
    with version_2(), SqliteJournal(path) as journal:
        await journal.migrate()
        assert await run_older(path, "s", 1) == ""
        file = apsw.Connection(str(path))
        file.execute("UPDATE sessions SET tokens = 7, agent = 'nobody' WHERE session = 's'")
        file.close()
        assert (await journal.upgrade_status()).sessions_left == 1
        assert await journal.verify("s") == []
        assert (await journal.migrate()).sessions_left == 0
        await check_summaries(journal)


async def test_an_upgrade_is_not_finished_under_the_version_before(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J11: a row that it wrote since `migrate` looked is not left behind."""
    with version_2(), SqliteJournal(path) as journal:
        monkeypatch.setattr(queries, "fold_rows_again", lambda _: 0)
        assert isinstance(await error_of(journal.migrate(finish=True)), JournalFailed)
        assert not (await journal.upgrade_status()).is_finished


def test_each_version_has_a_step_in_each_store() -> None:
    assert len(sqlite_schema.MIGRATIONS) == len(postgres_schema.MIGRATIONS) == upgrades.VERSION


async def test_an_append_between_two_states_touches_no_index(tmp_path: Path) -> None:
    """J6: it writes its record, and the part of the row that is in no index."""
    path = tmp_path / "journal.db"
    with SqliteJournal(path) as journal:
        await append_facts(journal, "s", note_facts(1, 1))
        for seq in range(2, 65):
            size = log_bytes(path)
            await start_append(journal, "s", note_facts(seq, seq))
            # The record, its index and the row; now and then a page is split.
            assert log_bytes(path) - size <= 7 * (PAGE_BYTES + FRAME_HEADER_BYTES)
            (listed,) = await journal.sessions()
            assert (listed.facts, listed.updated, listed.changed) == (seq, 1e9 + seq, 1e9 + 1)
        assert log_bytes(path) < 3.6 * 63 * (PAGE_BYTES + FRAME_HEADER_BYTES) + 100_000


async def test_a_record_in_an_unknown_encoding_is_named(tmp_path: Path) -> None:
    """J10: it is an error, never an empty session."""
    path = tmp_path / "journal.db"
    with SqliteJournal(path) as journal:
        await append_facts(journal, "s", note_facts(1, 3))
        file = apsw.Connection(str(path))
        file.execute("UPDATE records SET encoding = 'aes' WHERE seq = 2")
        file.close()
        (problem,) = await journal.verify("s")
        assert "record 2: it is encoded as 'aes'" in str(problem)


@pytest.mark.slow
async def test_the_version_before_shares_a_database_during_the_upgrade(tmp_path: Path) -> None:
    """J11: on a real server."""
    postgres = pytest.importorskip("postgres")
    dsn = await asyncio.to_thread(postgres.dsn_of, tmp_path)
    async with PostgresJournal(dsn) as journal:
        await append_facts(journal, "s", facts_of_every_kind())
    with version_2():
        async with PostgresJournal(dsn) as journal:
            status = await journal.upgrade_status()
            assert (status.is_finished, status.sessions_left) == (False, 1)
            await append_facts(journal, "both", note_facts(1, 3))
            assert await run_older(dsn, "both", 4) == ""
            await append_facts(journal, "both", note_facts(8, 9))
            older = start_older(dsn, "older", 20)
            for seq in range(1, 21):
                await append_facts(journal, "newer", note_facts(seq, seq))
            await asyncio.to_thread(older.communicate)
            assert len(await journal.read("older")) == len(await journal.read("newer")) == 20
            await check_summaries(journal)
            pause = RunPaused(seq=10, at=1.0)
            error = await append_error(journal, "both", [pause])
            assert isinstance(error, UpgradeUnfinished)
            status = await journal.migrate(finish=True)
            assert (status.is_finished, status.sessions_left) == (True, 0)
            await check_summaries(journal)
            await append_facts(journal, "both", [pause])
    errors = await run_older(dsn, "both", 1)
    assert "its format is version 2, and this Windlass knows 1" in errors


def test_an_upgrade_can_be_done_in_parts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """J11: each call continues with the rest, and says how far it is."""
    monkeypatch.setattr(sqlite_queries, "ROWS_AT_ONCE", 2)

    async def fill() -> None:
        with SqliteJournal(path) as journal:
            for at in range(6):
                await append_facts(journal, f"more {at}", note_facts(1, 2))

    asyncio.run(fill())

    def run_migrate(*options: str) -> str:
        return CliRunner().invoke(migrate, ["--journal", str(path), *options]).output

    with version_2():
        output = run_migrate("--sessions", "3", "--finish")
        assert "2 of 7 sessions" in output
        assert "4 of 7 sessions" in output
        assert "3 sessions must still be brought up to date" in output
        assert "2 of 3 sessions" in run_migrate("--sessions", "2")
        output = run_migrate("--finish")
        assert "1 of 1 sessions" in output
        assert "The journal is up to date" in output


def test_the_command_says_where_the_upgrade_stands(path: Path) -> None:
    """J11: `windlass migrate`, `--check` and `--finish`."""

    def run_migrate(*options: str) -> tuple[int, str]:
        done = CliRunner().invoke(migrate, ["--journal", str(path), *options])
        return done.exit_code, done.output

    with version_2():
        code, said = run_migrate("--check")
        assert code == 1
        assert "1 session must still be brought up to date" in said
        assert run_migrate()[0] == 0
        code, said = run_migrate("--check")
        assert code == 1
        assert "session must" not in said
        assert "windlass migrate --finish" in said
        done = CliRunner().invoke(migrate, ["--journal", str(path), "--check", "--finish"])
        assert "not both" in str(done.exception)
        assert run_migrate("--finish") == (
            0,
            "The journal is up to date. Programs of older versions refuse it.\n",
        )
        assert run_migrate("--check")[0] == 0
