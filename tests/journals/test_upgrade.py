"""A journal of an older version: migrated in use, and shared until its upgrade is finished."""

import asyncio
import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from windlass.core.errors import UpgradeUnfinished
from windlass.core.events import RunPaused, RunReleased
from windlass.core.mail import CancelMail, PromptMail
from windlass.core.messages import TextPart
from windlass.core.session_summary import SessionSummary, advance_summary
from windlass.journals.archive import import_session
from windlass.journals.postgres.journal import PostgresJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.journals.sqlite.open_files import FRAME_HEADER_BYTES
from windlass.journals.sqlite.schema import PAGE_BYTES
from windlass.journals.upgrades import OLDER_FACTS
from windlass.testing.journals import append_error, error_of
from windlass.testing.samples import facts_of_every_kind, note_facts

CORPUS = Path(__file__).parents[1] / "corpus" / "0.1.0.dev0"
OLDER_PROGRAM = Path(__file__).parents[1] / "support" / "older_program.py"
MANY = 1_000
pytestmark = [pytest.mark.contract("J11"), pytest.mark.realtime]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of the version before."""
    path = tmp_path / "journal.db"
    path.write_bytes(gzip.decompress((CORPUS / "journal.db.gz").read_bytes()))
    return path


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
    """Run a program of the version before to its end; returns what it says on stderr."""
    program = start_older(place, session, count)
    _, errors = await asyncio.to_thread(program.communicate)
    return errors


async def check_summaries(journal: Any) -> None:
    """Every row says what the facts add up to, whoever wrote it."""
    listed = await journal.sessions(limit=MANY)
    for summary in listed:
        facts = await journal.read(summary.session)
        assert summary == advance_summary(SessionSummary(summary.session), facts)
        # Nobody signed the answers of the version before, and that is said.
        problems = await journal.verify(summary.session)
        assert [one for one in problems if "nothing says who gave it" not in str(one)] == []
    for column in ("agent", "caller", "parent"):
        for value in {getattr(summary, column) for summary in listed}:
            found = await journal.sessions(limit=MANY, **{column: value})
            wanted = [one.session for one in listed if getattr(one, column) == value]
            assert [one.session for one in found] == wanted


def test_the_older_version_knows_the_facts_of_its_corpus(path: Path) -> None:
    file = apsw.Connection(str(path))
    rows = file.execute("SELECT DISTINCT body ->> '$.type' FROM records")
    assert {row[0] for row in rows} == OLDER_FACTS
    file.close()


async def test_a_new_journal_is_born_finished(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "new.db") as journal:
        status = await journal.upgrade_status()
        assert (status.is_finished, status.sessions_left) == (True, 0)


async def test_an_old_file_is_shared_until_its_upgrade_is_finished(path: Path) -> None:
    with SqliteJournal(path) as journal:
        assert user_version(path) == 2
        status = await journal.upgrade_status()
        assert not status.is_finished
        assert status.sessions_left > 10
        await check_summaries(journal)
        status = await journal.migrate()
        assert (status.is_finished, status.sessions_left) == (False, 0)
        assert user_version(path) == 2
        await check_summaries(journal)
        status = await journal.migrate(finish=True)
        assert (status.is_finished, status.sessions_left) == (True, 0)
        assert user_version(path) == status.version == 3
        await check_summaries(journal)
        assert await journal.check() == []


async def test_what_the_older_version_cannot_read_is_refused_until_then(path: Path) -> None:
    """J11, D5, D7: with the command that ends it. Nothing is written."""
    with SqliteJournal(path) as journal, SqliteJournal(path) as other:
        (session,) = [one.session for one in await journal.sessions(state="waiting")]
        before = await journal.read(session)
        seq = len(before) + 1
        for fact in (RunPaused(seq=seq, at=1.0), RunReleased(seq=seq, at=1.0)):
            error = await append_error(journal, session, [fact])
            assert isinstance(error, UpgradeUnfinished)
            assert "windlass migrate --finish" in str(error)
        for message in (CancelMail(run=1), PromptMail(prompt=(TextPart("go"),))):
            error = await error_of(journal.post_mail(session, message))
            assert isinstance(error, UpgradeUnfinished)
        with (CORPUS / "typed.jsonl").open("rb") as file:
            assert isinstance(
                await error_of(import_session(journal, file, into="copy")), UpgradeUnfinished
            )
        assert await journal.read(session) == before
        assert await journal.read("copy") == ()
        # One process finishes it, and the others notice by themselves.
        await other.migrate(finish=True)
        await journal.append(session, [RunPaused(seq=seq, at=1.0)])
        assert (await journal.post_mail(session, CancelMail(run=1))).number == 1


@pytest.mark.slow
async def test_an_older_program_shares_the_file_during_the_upgrade(path: Path) -> None:
    """J11: both write, in turns and at the same time, to their own sessions and to each other's."""
    with SqliteJournal(path) as journal:
        await journal.append("both", note_facts(1, 3))
        assert await run_older(path, "both", 4) == ""
        await journal.append("both", note_facts(8, 9))
        assert await run_older(path, "both", 1) == ""
        older = start_older(path, "older", 40)
        for seq in range(1, 41):
            await journal.append("newer", note_facts(seq, seq))
            if seq % 10 == 0:
                await journal.migrate()
        await asyncio.to_thread(older.communicate)
        assert len(await journal.read("both")) == 10
        assert len(await journal.read("older")) == len(await journal.read("newer")) == 40
        await check_summaries(journal)
        await journal.migrate(finish=True)
        await check_summaries(journal)
        assert await journal.check() == []
    assert "NewerVersion" in await run_older(path, "both", 1)


async def test_a_row_that_an_older_program_wrote_is_not_believed(path: Path) -> None:
    """J11: it does not know what the new columns say."""
    with SqliteJournal(path) as journal:
        await journal.append("s", facts_of_every_kind()[:6])
        await journal.migrate()
        file = apsw.Connection(str(path))
        file.execute("UPDATE sessions SET summarized = 3, tokens = 7 WHERE session = 's'")
        file.close()
        await check_summaries(journal)
        assert (await journal.upgrade_status()).sessions_left == 1
        await journal.migrate(finish=True)
        await check_summaries(journal)


async def test_a_row_is_written_whole_only_when_the_state_changes(tmp_path: Path) -> None:
    """J6: an append between two states writes where the chain ends, and a list is right anyway."""
    path = tmp_path / "journal.db"
    with SqliteJournal(path) as journal:
        await journal.append("s", note_facts(1, 1))
        file = apsw.Connection(str(path))
        query = "SELECT facts, summarized FROM sessions"
        for seq in range(2, 65):
            size = log_bytes(path)
            await journal.append("s", note_facts(seq, seq))
            assert file.execute(query).fetchone() == (seq, 1)
            # The record, its index and the row; now and then a page is split.
            assert log_bytes(path) - size <= 7 * (PAGE_BYTES + FRAME_HEADER_BYTES)
        assert log_bytes(path) < 3.6 * 63 * (PAGE_BYTES + FRAME_HEADER_BYTES) + 100_000
        await check_summaries(journal)
        # Nobody ever has to read more than so many records for a list.
        await journal.append("s", note_facts(65, 65))
        assert file.execute(query).fetchone() == (65, 65)
        file.close()
    with SqliteJournal(path) as journal:
        await journal.append("s", note_facts(66, 70))
        await check_summaries(journal)


async def test_a_record_in_an_unknown_encoding_is_named(tmp_path: Path) -> None:
    """J10: it is an error, never an empty session."""
    path = tmp_path / "journal.db"
    with SqliteJournal(path) as journal:
        await journal.append("s", note_facts(1, 3))
        file = apsw.Connection(str(path))
        file.execute("UPDATE records SET encoding = 'aes' WHERE seq = 2")
        file.close()
        (problem,) = await journal.verify("s")
        assert "record 2: it is encoded as 'aes'" in str(problem)


@pytest.mark.slow
async def test_an_older_program_shares_a_database_during_the_upgrade(tmp_path: Path) -> None:
    """J11: on a real server, with what the version before left there."""
    postgres = pytest.importorskip("postgres")
    asyncpg = pytest.importorskip("asyncpg")
    dsn = await asyncio.to_thread(postgres.dsn_of, tmp_path)
    server = await asyncpg.connect(dsn)
    try:
        dump = gzip.decompress((CORPUS / "postgres.sql.gz").read_bytes()).decode()
        await server.execute(dump)
        await server.execute("RESET search_path")
        async with PostgresJournal(dsn) as journal:
            await check_summaries(journal)
            assert await server.fetchval("SELECT version FROM windlass.windlass") == 1
            await journal.append("both", note_facts(1, 3))
            assert await run_older(dsn, "both", 4) == ""
            await journal.append("both", note_facts(8, 9))
            older = start_older(dsn, "older", 20)
            for seq in range(1, 21):
                await journal.append("newer", note_facts(seq, seq))
            await asyncio.to_thread(older.communicate)
            assert len(await journal.read("older")) == len(await journal.read("newer")) == 20
            await check_summaries(journal)
            post = journal.post_mail("both", PromptMail(prompt=(TextPart("go"),)))
            assert isinstance(await error_of(post), UpgradeUnfinished)
            pause = RunPaused(seq=10, at=1.0)
            assert isinstance(await append_error(journal, "both", [pause]), UpgradeUnfinished)
            status = await journal.migrate(finish=True)
            assert (status.is_finished, status.sessions_left) == (True, 0)
            await check_summaries(journal)
            await journal.append("both", [pause])
            assert (await journal.post_mail("both", CancelMail(run=1))).number == 1
        assert "NewerVersion" in await run_older(dsn, "both", 1)
    finally:
        await server.close()
        await asyncio.to_thread(postgres.stop_server)


@pytest.mark.slow
def test_the_command_says_where_the_upgrade_stands(path: Path) -> None:
    """J11: `windlass migrate`, `--check` and `--finish`."""

    def migrate(*options: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "windlass.cli", "migrate", "--journal", str(path)]
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    code, said = migrate("--check")
    assert code == 1
    assert "sessions must still be brought up to date" in said
    assert migrate()[0] == 0
    code, said = migrate("--check")
    assert code == 1
    assert "windlass migrate --finish" in said
    code, said = migrate("--check", "--finish")
    assert code == 2
    assert "not both" in said
    assert migrate("--finish") == (
        0,
        "The journal is up to date. Programs of older versions refuse it.\n",
    )
    assert migrate("--check")[0] == 0


async def test_shared_records_work_before_the_upgrade_is_finished(path: Path) -> None:
    """J11: older programs never look at their table, so nothing has to wait for them."""
    with SqliteJournal(path) as journal:
        await journal.put_record("token", "a", b"1", 0)
        assert not (await journal.upgrade_status()).is_finished
        assert user_version(path) == 2


async def test_a_step_that_only_adds_a_table_reopens_no_upgrade(tmp_path: Path) -> None:
    """J11: a finished journal of the version without shared records stays finished."""
    path = tmp_path / "journal.db"
    SqliteJournal(path).close()
    file = apsw.Connection(str(path))
    file.execute("DROP TABLE shared_records; DELETE FROM meta WHERE name = 'record_version'")
    file.execute("ALTER TABLE sessions DROP COLUMN seal")
    file.execute("DROP TRIGGER questions_removed; DROP TABLE questions")
    file.execute("UPDATE meta SET value = '3' WHERE name = 'schema'")
    file.close()
    with SqliteJournal(path) as journal:
        assert (await journal.upgrade_status()).is_finished
        await journal.put_record("token", "a", b"1", 0)
        await journal.append("s", note_facts(1, 1))
        await journal.post_mail("s", PromptMail(prompt=(TextPart("go"),)))
