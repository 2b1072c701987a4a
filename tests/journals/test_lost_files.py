"""What happens to the files of a journal while a process uses them: noticed, or survived (J10)."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from windlass import Agent
from windlass.core.errors import JournalFailed
from windlass.core.result import FailedByJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.knowledge import Note, Scope, Source, SqliteKnowledge
from windlass.testing import ScriptedModel, call
from windlass.testing.journals import append_facts, error_of, start_append
from windlass.testing.samples import note_facts

pytestmark = [pytest.mark.slow, pytest.mark.contract("J10"), pytest.mark.realtime]

READ_IN_A_FRESH_PROCESS = """
import asyncio, sys
from windlass.journals.sqlite.journal import SqliteJournal
with SqliteJournal(sys.argv[1]) as journal:
    facts = asyncio.run(journal.read("s"))
    print(len(facts), asyncio.run(journal.verify("s")), asyncio.run(journal.check()))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def read_in_fresh_process(path: Path) -> str:
    """How many facts of the session "s" there are, and what is wrong with it and the file."""
    command = [sys.executable, "-c", READ_IN_A_FRESH_PROCESS, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def vacuum_in_fresh_process(path: Path) -> None:
    program = "VACUUM; PRAGMA wal_checkpoint(TRUNCATE);"
    script = f"import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript({program!r})"
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)


def look_with_sqlite3(path: Path) -> int:
    """Open and close the file with the other SQLite library of this process."""
    connection = sqlite3.connect(path)
    count = connection.execute("SELECT count(*) FROM records").fetchone()[0]
    connection.close()
    return count


async def test_the_sqlite3_module_may_look_at_the_file_in_between(path: Path) -> None:
    """Each time it closes the file, the process loses SQLite's locks; no append is lost."""
    with SqliteJournal(path) as journal:
        for number in range(1, 41):
            await append_facts(journal, "s", note_facts(number, number))
            assert look_with_sqlite3(path) == number
        assert read_in_fresh_process(path) == "40 [] []"
        # The other process closed the file too, and found it in use.
        await append_facts(journal, "s", note_facts(41, 41))
        assert read_in_fresh_process(path) == "41 [] []"
    assert [found.name for found in path.parent.iterdir()] == [path.name]


async def test_a_second_journal_and_knowledge_on_the_file_do_no_harm(path: Path) -> None:
    """Opening and closing them drops no lock of the first journal."""
    with SqliteJournal(path) as journal:
        for number in range(1, 6):
            await append_facts(journal, "s", note_facts(number, number))
            with SqliteJournal(path) as other, SqliteKnowledge(path) as knowledge:
                await append_facts(other, f"other {number}", note_facts(1, 1))
                await knowledge.remember(
                    Note("The sea is deep.", Scope("project", "p"), Source("a"))
                )
            look_with_sqlite3(path)
            assert read_in_fresh_process(path) == f"{number} [] []"
    assert [found.name for found in path.parent.iterdir()] == [path.name]


async def test_a_run_survives_a_look_with_the_sqlite3_module(path: Path) -> None:
    """A tool of the agent looks into the journal of its own run."""

    def look() -> int:
        """Count the records so far."""
        return look_with_sqlite3(path)

    script = [call("look"), call("look"), "done"]
    with SqliteJournal(path) as journal:
        agent = Agent(ScriptedModel(script), tools=[look], journal=journal)
        result = await agent.run("count", session="s")
        assert (result.outcome, result.recorded) == ("completed", True)
        facts = len(await journal.read("s"))
        assert read_in_fresh_process(path) == f"{facts} [] []"


def delete_file(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink()


def replace_file(path: Path) -> None:
    copy = path.with_name("copy")
    shutil.copy(path, copy)
    copy.rename(path)


def truncate_file(path: Path) -> None:
    # All of it is in the file, and nothing in the log, so that the log cannot stand in for it.
    os.truncate(path, path.stat().st_size // 2)


def empty_file(path: Path) -> None:
    os.truncate(path, 0)


def delete_log(path: Path) -> None:
    Path(f"{path}-wal").unlink()


def replace_log(path: Path) -> None:
    log = Path(f"{path}-wal")
    copy = path.with_name("copy")
    shutil.copy(log, copy)
    copy.rename(log)


def truncate_log(path: Path) -> None:
    log = Path(f"{path}-wal")
    os.truncate(log, log.stat().st_size // 2)


VANDALS = [
    (delete_file, "journal.db: the file was deleted"),
    (replace_file, "journal.db: the file was replaced"),
    (truncate_file, "journal.db: the file was truncated"),
    (empty_file, "journal.db: the file was truncated"),
    (delete_log, "journal.db-wal was deleted"),
    (replace_log, "journal.db-wal was replaced"),
    (truncate_log, "journal.db-wal was truncated"),
]


async def fill(journal: SqliteJournal, *, is_in_log: bool) -> None:
    """Write 300 facts, and leave them in the log or move them into the file."""
    for last in range(10, 301, 10):
        await append_facts(journal, "s", note_facts(last - 9, last))
    if not is_in_log:
        connection = sqlite3.connect(journal.path)
        assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        connection.close()
        await journal.put_blob("s", b"a small change, after which the size of the file is known")


@pytest.mark.parametrize(("vandal", "expected"), VANDALS)
async def test_a_file_that_changed_underneath_is_noticed(
    path: Path, vandal: Callable[[Path], None], expected: str
) -> None:
    """Nothing is acknowledged from then on, and the error says what happened and what to do."""
    with SqliteJournal(path) as journal:
        await fill(journal, is_in_log=vandal is not truncate_file)
        vandal(path)
        for _ in range(2):
            error = await error_of(start_append(journal, "s", note_facts(301, 301)))
            assert isinstance(error, JournalFailed)
            assert str(path) in str(error)
            assert expected in str(error)
            # It is said only where it is true: the next test reads it back.
            assert ("what was confirmed before is in the file" in str(error)) is (
                vandal is delete_log
            )
            error = await error_of(journal.put_blob("s", b"kept"))
            assert isinstance(error, JournalFailed)


async def test_a_deleted_log_costs_nothing_that_was_acknowledged(path: Path) -> None:
    """What only the deleted log holds is moved into the file before the error is raised."""
    with SqliteJournal(path) as journal:
        await fill(journal, is_in_log=True)
        delete_log(path)
        assert isinstance(
            await error_of(start_append(journal, "s", note_facts(301, 301))),
            JournalFailed,
        )
        # A copy, as another process finds it if this one is killed now.
        copy = path.with_name("copy.db")
        shutil.copy(path, copy)
        assert read_in_fresh_process(copy) == "300 [] []"
    with SqliteJournal(path) as journal:
        await append_facts(journal, "s", note_facts(301, 301))
    assert read_in_fresh_process(path) == "301 [] []"


async def test_a_file_that_was_vacuumed_is_whole(path: Path) -> None:
    """A smaller file is not an error by itself: another program may have made it smaller."""
    with SqliteJournal(path) as journal:
        await fill(journal, is_in_log=False)
        await append_facts(journal, "t", note_facts(1, 1))
        await journal.delete("s")
        await fill(journal, is_in_log=False)
        await journal.delete("s")
        vacuum_in_fresh_process(path)
        await append_facts(journal, "s", note_facts(1, 3))
    assert read_in_fresh_process(path) == "3 [] []"


@pytest.mark.parametrize("vandal", [delete_file, replace_file])
async def test_a_run_whose_journal_is_gone_fails(
    path: Path, vandal: Callable[[Path], None]
) -> None:
    """It is not reported as completed and recorded."""
    script = [call("harm"), "done"]

    def harm() -> str:
        """Do something to the file."""
        vandal(path)
        return "harmed"

    with SqliteJournal(path) as journal:
        agent = Agent(ScriptedModel(script), tools=[harm], journal=journal)
        with pytest.raises(FailedByJournal) as caught:
            await agent.run("go", session="s")
        assert not caught.value.result.recorded
        assert str(path) in str(caught.value)


async def test_without_such_locks_the_append_fails(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the guard cannot hold the file (macOS), what would be lost is not acknowledged."""
    monkeypatch.setattr("windlass.sqlite_guard._SET_LOCK", None)
    with SqliteJournal(path) as journal:
        await append_facts(journal, "s", note_facts(1, 1))
        assert look_with_sqlite3(path) == 1
        error = await error_of(start_append(journal, "s", note_facts(2, 2)))
        assert isinstance(error, JournalFailed)
        assert "journal.db-wal was deleted" in str(error)
        assert read_in_fresh_process(path).startswith("1 []")
    with SqliteJournal(path) as journal:
        await append_facts(journal, "s", note_facts(2, 2))
    assert read_in_fresh_process(path) == "2 [] []"
