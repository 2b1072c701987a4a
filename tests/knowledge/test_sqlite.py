"""A store in a SQLite file: beside a journal, versioned, refused in words."""

import asyncio
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import run
from typing import Any, cast

import apsw
import pytest

from windlass.core.errors import ConfigError
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.knowledge.note_store import NOTES_PER_WRITE
from windlass.knowledge.sqlite import SqliteKnowledge
from windlass.knowledge.store import KnowledgeFailed, Note, Scope, Source
from windlass.sqlite_file import SqliteConnection, open_connection
from windlass.testing.journals import append_facts, start_append
from windlass.testing.samples import facts_of_every_kind

PROJECT = Scope("project", "crane")

pytestmark = [pytest.mark.slow, pytest.mark.realtime]


def note(text: str, source: str = "notes.txt") -> Note:
    return Note(text, PROJECT, Source(source))


@pytest.mark.contract("K1")
@pytest.mark.parametrize("first", ["journal", "knowledge"])
async def test_one_file_holds_a_journal_and_knowledge(tmp_path: Path, first: str) -> None:
    """Whoever makes the file, the other finds room in it, and J7 holds."""
    path = tmp_path / "windlass.db"
    if first == "knowledge":
        with SqliteKnowledge(path) as store:
            await store.remember(note("An early note."))
    with SqliteJournal(path) as journal, SqliteKnowledge(path) as store:
        facts = facts_of_every_kind()
        appends = [start_append(journal, f"s{at}", facts) for at in range(30)]
        notes = [store.remember(note(f"Rivet {at}.", str(at))) for at in range(30)]
        searches = [store.recall("rivet", [PROJECT]) for _ in range(10)]
        await asyncio.gather(*appends, *notes, *searches)
        assert len(await store.recall("rivet", [PROJECT], limit=30)) == 30
        assert [await journal.verify(f"s{at}") for at in range(30)] == [[]] * 30
        assert await journal.check() == []
        assert len(await journal.sessions()) == 30
    with SqliteJournal(path) as journal:
        assert len(await journal.read("s29")) == len(facts)


async def test_the_journals_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "windlass.db"
    SqliteJournal(path).close()
    before = ask(path, "PRAGMA user_version")
    SqliteKnowledge(path).close()
    assert ask(path, "PRAGMA user_version") == before
    assert ask(path, "SELECT version FROM knowledge_version") == [(1,)]


async def test_a_large_intake_lets_a_journal_write_in_between(tmp_path: Path) -> None:
    """No append waits for more than one batch of notes."""
    path = tmp_path / "windlass.db"
    with SqliteJournal(path) as journal, SqliteKnowledge(path) as store:
        many = [note(f"Rivet {at} " * 50, str(at)) for at in range(NOTES_PER_WRITE * 6)]
        intake = asyncio.create_task(store.remember(*many))
        written = 0
        while not intake.done():
            await append_facts(journal, f"s{written}", facts_of_every_kind())
            written += 1
        assert len(await intake) == len(many)
    assert written >= 2


def test_another_process_may_use_the_file(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    with SqliteKnowledge(path) as store:
        code = f"""
import asyncio
from windlass.knowledge.sqlite import SqliteKnowledge
from windlass.knowledge.store import Note, Scope, Source
note = Note("From a child.", Scope("project", "crane"), Source("child"))
asyncio.run(SqliteKnowledge({str(path)!r}).remember(note))
"""
        run([sys.executable, "-c", code], check=True)
        (found,) = asyncio.run(store.recall("child", [PROJECT]))
    assert found.sources == (Source("child"),)


def test_the_file_is_its_owners(tmp_path: Path) -> None:
    SqliteKnowledge(tmp_path / "in" / "notes.db").close()
    mode = (tmp_path / "in" / "notes.db").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


def test_a_database_of_others_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    ask(path, "CREATE TABLE theirs (a)")
    with pytest.raises(ConfigError, match="another program"):
        SqliteKnowledge(path)
    assert ask(path, "SELECT name FROM sqlite_schema") == [("theirs",)]


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("not a database, " * 100)
    with pytest.raises(ConfigError, match="not a SQLite database"):
        SqliteKnowledge(tmp_path / "text.db")
    with pytest.raises(ConfigError, match="this is a folder"):
        SqliteKnowledge(tmp_path)


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    """J11, for these tables."""
    path = tmp_path / "notes.db"
    SqliteKnowledge(path).close()
    ask(path, "UPDATE knowledge_version SET version = 99")
    with pytest.raises(KnowledgeFailed, match="its format is version"):
        SqliteKnowledge(path)


async def test_a_store_that_is_closed_says_so(tmp_path: Path) -> None:
    store = SqliteKnowledge(tmp_path / "notes.db")
    store.close()
    with pytest.raises(KnowledgeFailed, match="closed"):
        await store.recall("anything", [PROJECT])


async def test_a_damaged_index_is_told_as_one(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    with SqliteKnowledge(path) as store:
        await store.remember(note("Rivet."))
        ask(path, "DROP TABLE knowledge_words_data")
        with pytest.raises(KnowledgeFailed):
            await store.recall("rivet", [PROJECT])


async def test_the_index_holds_what_the_notes_hold(tmp_path: Path) -> None:
    """Nothing of what was forgotten or replaced is left in any table."""
    path = tmp_path / "notes.db"
    with SqliteKnowledge(path, embedder=Ones()) as store:
        for at in range(20):
            await store.replace_notes(note(f"Version {at} of it.", "place"))
            await store.remember(note(f"Note {at}.", str(at)))
        kept = await store.recall("note", [PROJECT], limit=40)
        for found in kept:
            await store.forget(found.id)
        await store.forget_places(PROJECT, ["place"])
    for table in ("notes", "origins", "chunks", "vectors"):
        assert ask(path, f"SELECT count(*) FROM knowledge_{table}") == [(0,)], table
    ask(path, "INSERT INTO knowledge_words (knowledge_words) VALUES ('integrity-check')")


@pytest.mark.parametrize("embedder", [None, "ones"])
async def test_the_cost_of_a_note_does_not_grow_with_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, embedder: str | None
) -> None:
    """Counted in the steps of SQLite's own machine, which no other program disturbs."""
    steps = [0]

    def count() -> bool:
        steps[0] += 1
        return False

    def counted(path: Path) -> SqliteConnection:
        file = open_connection(path)
        cast("apsw.Connection", file).set_progress_handler(count, 100)
        return file

    monkeypatch.setattr("windlass.knowledge.sqlite.open_connection", counted)
    costs: list[int] = []
    with SqliteKnowledge(tmp_path / "notes.db", embedder=Ones() if embedder else None) as store:
        for start in range(0, 1_000, 50):
            before = steps[0]
            await store.replace_notes(
                *(note(f"Rivet {at}.", str(at)) for at in range(start, start + 50))
            )
            costs.append(steps[0] - before)
    assert sum(costs[-5:]) < 2 * sum(costs[:5])


class Ones:
    """An embedder for which all is one."""

    name = "ones"

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [[1.0] for _ in texts]


def ask(path: Path, sql: str) -> list[Any]:
    connection = apsw.Connection(str(path))
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()
