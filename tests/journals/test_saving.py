"""A journal is saved while it is in use and put back, and only a whole backup looks like one."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest
from click.testing import CliRunner, Result

from windlass.cli import main
from windlass.core.errors import ConfigError, JournalCorrupt
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing.catalog import run_facts
from windlass.testing.journals import append_facts
from windlass.testing.samples import note_facts

pytestmark = pytest.mark.contract("A15")


async def fill(journal: Any) -> None:
    """Leave two sessions, a record of a service, and an attachment."""
    await append_facts(journal, "a", note_facts(1, 3))
    await append_facts(journal, "b", run_facts(caller="ann", prompt="Hello"))
    await journal.put_blob("a", b"picture" * 100)
    await journal.put_record("schedule", "daily", b"{}", 0)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


def make_journal(path: Path) -> None:
    async def make() -> None:
        with SqliteJournal(path) as journal:
            await fill(journal)

    asyncio.run(make())


def test_a_backup_is_restored_and_verify_accepts_it(tmp_path: Path) -> None:
    """A15: also after the journal has gone on, and the backup is older than it was."""
    path, saved = tmp_path / "journal.db", tmp_path / "saved.db"
    make_journal(path)
    done = run("backup", saved, "--journal", path)
    assert "2 sessions, 5 records, all of them sound" in done.output
    assert sorted(each.name for each in tmp_path.glob("*saved*")) == ["saved.db"]
    assert run("backup", saved, "--journal", path).exit_code
    asyncio.run(go_on(path))
    assert "pass --replace" in run("restore", saved, "--journal", path).output
    restored = run("restore", saved, "--journal", path, "--replace")
    assert "2 sessions, 5 records restored" in restored.output
    verified = run("sessions", "verify", "--journal", path)
    assert verified.exit_code == 0, verified.output
    elsewhere = tmp_path / "elsewhere.db"
    assert run("restore", saved, "--journal", elsewhere).exit_code == 0
    assert run("sessions", "verify", "--journal", elsewhere).exit_code == 0


async def go_on(path: Path) -> None:
    with SqliteJournal(path) as journal:
        await append_facts(journal, "a", note_facts(4, 9))
        await journal.delete("b", erase=True)


def test_what_was_erased_does_not_come_back(tmp_path: Path) -> None:
    """A9, A15: a backup from before the erasure has the session; the restored journal has not."""
    path, saved = tmp_path / "journal.db", tmp_path / "saved.db"
    make_journal(path)
    run("backup", saved, "--journal", path)
    asyncio.run(go_on(path))
    run("restore", saved, "--journal", path, "--replace")
    listed = run("sessions", "list", "--journal", path).output
    assert "Hello" not in listed
    assert "was erased on" in run("sessions", "verify", "b", "--journal", path).output


def test_a_plain_copy_of_a_live_file_is_recognised_and_explained(tmp_path: Path) -> None:
    """A15: it lacks what the log held, so it is not a backup."""
    path, copy = tmp_path / "journal.db", tmp_path / "copy.db"

    async def copy_in_use() -> None:
        with SqliteJournal(path) as journal:
            await fill(journal)
            shutil.copyfile(path, copy)

    asyncio.run(copy_in_use())
    refused = run("restore", copy, "--journal", tmp_path / "new.db")
    assert refused.exit_code
    assert not (tmp_path / "new.db").exists()
    moved = tmp_path / "moved.db"
    shutil.copyfile(path, moved)
    asyncio.run(go_on(path))
    shown = run("sessions", "verify", "--journal", moved).output
    assert "older than it was" in shown
    assert "windlass backup" in shown
    assert "was not made by" in run("restore", moved, "--journal", tmp_path / "new.db").output


def test_a_backup_that_was_changed_or_cut_is_refused(tmp_path: Path) -> None:
    """A15: nothing is put in the place of the journal."""
    path, saved = tmp_path / "journal.db", tmp_path / "saved.db"
    make_journal(path)
    run("backup", saved, "--journal", path)
    changed = tmp_path / "changed.db"
    shutil.copyfile(saved, changed)
    connection = apsw.Connection(str(changed))
    connection.execute("UPDATE records SET body = replace(body, 'Hello', 'Jello')")
    connection.close()
    cut = tmp_path / "cut.db"
    cut.write_bytes(saved.read_bytes()[:-4096])
    for wrong in (changed, cut):
        assert run("restore", wrong, "--journal", path, "--replace").exit_code
    assert run("sessions", "verify", "--journal", path).exit_code == 0


def test_a_damaged_journal_is_not_saved_as_if_it_were_sound(tmp_path: Path) -> None:
    path, saved = tmp_path / "journal.db", tmp_path / "saved.db"
    make_journal(path)
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE records SET body = replace(body, 'Hello', 'Jello')")
    connection.close()
    assert run("backup", saved, "--journal", path).exit_code
    assert list(tmp_path.glob("*saved*")) == []


async def test_a_journal_in_use_is_not_replaced(tmp_path: Path) -> None:
    path, saved = tmp_path / "journal.db", tmp_path / "saved.db"
    with SqliteJournal(path) as journal:
        await fill(journal)
        await journal.save(saved)
        refused = await asyncio.to_thread(run, "restore", saved, "--journal", path, "--replace")
        assert "is in use" in refused.output
        await append_facts(journal, "a", note_facts(4, 5))
        with pytest.raises(ConfigError, match="exists already"):
            await journal.save(saved)


KILLED = """
import os, signal, sys
from pathlib import Path
from windlass.journals.sqlite import saving

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

setattr(saving, sys.argv[3], die)
saving.save_file(Path(sys.argv[1]), Path(sys.argv[2]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["_check_copy", "_move_draft"])
def test_a_kill_in_the_middle_leaves_nothing_that_looks_whole(tmp_path: Path, moment: str) -> None:
    """A15: what was written has another name, and is no backup without its mark."""
    path, saved = tmp_path / "journal.db", tmp_path / "saved.db"
    make_journal(path)
    command = [sys.executable, "-c", KILLED, str(path), str(saved), moment]
    assert subprocess.run(command, check=False).returncode == -9
    assert not saved.exists()
    assert run("backup", saved, "--journal", path).exit_code == 0
    (left,) = tmp_path.glob(".saved.db.*.part")
    if moment == "_check_copy":
        refused = run("restore", left, "--journal", tmp_path / "new.db")
        assert "was not made by `windlass backup`" in refused.output


@pytest.mark.slow
@pytest.mark.realtime
async def test_a_database_is_saved_in_use_and_restored(tmp_path: Path) -> None:
    """A15: into an empty one, with the numbers that were given out."""
    postgres = pytest.importorskip("postgres")
    from windlass.journals.postgres.journal import PostgresJournal  # noqa: PLC0415 - an extra

    saved = tmp_path / "saved.tar"
    try:
        first = await asyncio.to_thread(postgres.dsn_of, tmp_path / "a")
        second = await asyncio.to_thread(postgres.dsn_of, tmp_path / "b")
        async with PostgresJournal(first) as journal:
            await fill(journal)
            held = await journal.lease("a")
            made = await journal.save(saved)
            assert (made.sessions, made.records) == (2, 5)
            await append_facts(journal, "a", note_facts(4, 9))
            version = (await journal.put_record("schedule", "other", b"{}", 0)).version
            held.release()
        async with PostgresJournal(second) as journal:
            cut = tmp_path / "cut.tar"
            cut.write_bytes(saved.read_bytes()[: saved.stat().st_size // 2])
            with pytest.raises((ConfigError, JournalCorrupt)):
                await journal.load(cut)
            assert list(await journal.sessions()) == []
            assert (await journal.load(saved)).records == 5
            assert not await journal.is_leased("a")
            assert [await journal.verify(name) for name in ("a", "b")] == [[], []]
            assert await journal.check() == []
            await append_facts(journal, "a", note_facts(4, 9))
            await append_facts(journal, "c", note_facts(1, 1))
            again = await journal.put_record("schedule", "other", b"{}", 0)
            assert again.version >= version
            with pytest.raises(ConfigError, match="holds a journal"):
                await journal.load(saved)
    finally:
        await asyncio.to_thread(postgres.stop_server)


@pytest.mark.parametrize("accept", [(), ("--accept",)])
def test_a_backup_with_a_trigger_of_others_is_not_restored(
    tmp_path: Path, accept: tuple[str, ...]
) -> None:
    """It would add a token after the records were checked, and have it signed with the rest."""
    path, saved = tmp_path / "journal.db", tmp_path / "saved.db"
    make_journal(path)
    assert run("backup", saved, "--journal", path).exit_code == 0
    changed = apsw.Connection(str(saved))
    changed.execute(
        "CREATE TRIGGER planted AFTER DELETE ON meta BEGIN "
        "INSERT OR REPLACE INTO shared_records VALUES ('token', 'planted', 1, x'7b7d', ''); END"
    )
    changed.close()
    restored = tmp_path / "restored.db"
    done = run("restore", saved, "--journal", restored, *accept)
    assert done.exit_code
    assert "trigger 'planted'" in done.output
    assert not restored.exists()


@pytest.mark.parametrize(
    "change",
    [
        "CREATE VIEW more AS SELECT 1",
        "DROP TRIGGER mail_removed",
        "ALTER TABLE meta ADD COLUMN more TEXT",
    ],
)
def test_what_a_backup_defines_is_what_a_journal_defines(tmp_path: Path, change: str) -> None:
    path, saved = tmp_path / "journal.db", tmp_path / "saved.db"
    make_journal(path)
    assert run("backup", saved, "--journal", path).exit_code == 0
    changed = apsw.Connection(str(saved))
    changed.execute(change)
    if change.startswith("DROP"):
        changed.execute("CREATE TRIGGER mail_removed AFTER DELETE ON sessions BEGIN SELECT 1; END")
    changed.close()
    done = run("restore", saved, "--journal", tmp_path / "restored.db")
    assert done.exit_code
    assert "no journal has" in done.output


def test_a_file_that_is_no_database_is_not_restored(tmp_path: Path) -> None:
    junk = tmp_path / "junk.db"
    junk.write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 30)
    done = run("restore", junk, "--journal", tmp_path / "restored.db")
    assert done.exit_code == 2
    assert "is not a journal of Windlass" in done.output
