"""The tables of knowledge in a SQLite file, which may be a journal's: how it is opened and used.

The law: nothing of a journal is touched. The tables have names of their own and a version of their
own, and a write is short, because appends to the journal wait for it.
"""

import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, cast

import apsw

from windlass.core.errors import ConfigError
from windlass.knowledge.store import KnowledgeFailed

APPLICATION_ID = 0x57_4E_44_4C
"""`WNDL`, in the header of the file: it is the journals', too."""
BUSY_MS = 30_000

KNOWLEDGE_STEPS = (
    """
    CREATE TABLE knowledge_notes (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        kind TEXT NOT NULL,
        key TEXT NOT NULL,
        title TEXT NOT NULL,
        created REAL NOT NULL
    ) STRICT;
    CREATE INDEX knowledge_notes_by_scope ON knowledge_notes (kind, key);
    CREATE TABLE knowledge_origins (
        note INTEGER NOT NULL,
        place TEXT NOT NULL,
        session TEXT NOT NULL,
        call TEXT NOT NULL,
        digest TEXT NOT NULL,
        untrusted INTEGER NOT NULL,
        private INTEGER NOT NULL,
        created REAL NOT NULL,
        expires_at REAL,
        PRIMARY KEY (note, place, session, call)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX knowledge_origins_by_place ON knowledge_origins (place);
    CREATE INDEX knowledge_origins_by_expiry ON knowledge_origins (expires_at)
        WHERE expires_at IS NOT NULL;
    CREATE TABLE knowledge_chunks (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        note INTEGER NOT NULL,
        title TEXT NOT NULL,
        text TEXT NOT NULL
    ) STRICT;
    CREATE INDEX knowledge_chunks_by_note ON knowledge_chunks (note);
    CREATE TABLE knowledge_vectors (
        chunk INTEGER PRIMARY KEY,
        model TEXT NOT NULL,
        vector BLOB NOT NULL
    ) STRICT;
    CREATE VIRTUAL TABLE knowledge_words USING fts5(
        title, text, content='knowledge_chunks', content_rowid='number',
        tokenize='unicode61 remove_diacritics 2', prefix='4 6'
    );
    CREATE TRIGGER knowledge_chunk_came AFTER INSERT ON knowledge_chunks BEGIN
        INSERT INTO knowledge_words (rowid, title, text)
            VALUES (new.number, new.title, new.text);
    END;
    CREATE TRIGGER knowledge_chunk_went AFTER DELETE ON knowledge_chunks BEGIN
        INSERT INTO knowledge_words (knowledge_words, rowid, title, text)
            VALUES ('delete', old.number, old.title, old.text);
        DELETE FROM knowledge_vectors WHERE chunk = old.number;
    END;
    CREATE TRIGGER knowledge_note_went AFTER DELETE ON knowledge_notes BEGIN
        DELETE FROM knowledge_chunks WHERE note = old.number;
        DELETE FROM knowledge_origins WHERE note = old.number;
    END;
    """,
)
"""Each step brings the tables to the next version."""

_WORDS: tuple[tuple[type[apsw.Error], str], ...] = (
    (apsw.FullError, "the disk is full; make room"),
    (apsw.ReadOnlyError, "the file is read-only; make it writable, or name another file"),
    (apsw.BusyError, "another program has held it for too long; stop that one"),
    (apsw.CorruptError, "the file is damaged; restore it from a copy"),
    (apsw.NotADBError, "the file is no SQLite database; name another file"),
    (apsw.CantOpenError, "the file cannot be opened; check that its folder can be written"),
)


class Rows(Protocol):
    """What a statement gives."""

    @property
    def get(self) -> Any:  # noqa: ANN401 - a value of SQLite
        """The one value of the first row, or None."""
        ...

    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...


class File(Protocol):
    """As much of `apsw.Connection` as is used here: its own types need Python 3.12."""

    @property
    def in_transaction(self) -> bool: ...

    def execute(self, statements: str, bindings: Sequence[Any] = ()) -> Rows: ...

    def executemany(self, statements: str, bindings: Iterable[Sequence[Any]]) -> Rows: ...

    def set_busy_timeout(self, milliseconds: int) -> None: ...

    def changes(self) -> int: ...

    def close(self) -> None: ...


def make_knowledge_error(path: Path, error: Exception) -> KnowledgeFailed:
    """What went wrong with the file, and what to do, in a line."""
    words = next((words for kind, words in _WORDS if isinstance(error, kind)), "it failed")
    return KnowledgeFailed(f"knowledge {path}: {words} ({error})")


def open_file(path: Path) -> None:
    """Make the file and the tables where they are missing; refuse a file that is not ours."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # What is known is private: the file is made for its owner only.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise ConfigError(f"knowledge {path}: it cannot be used: {error.strerror}") from error
    try:
        file = connect(path)
        try:
            _check_owner(file, path)
            file.execute("PRAGMA journal_mode = WAL")
            _bring_up(file, path)
        finally:
            file.close()
    except apsw.NotADBError as error:
        raise ConfigError(f"knowledge {path}: the file is no SQLite database") from error
    except apsw.Error as error:
        raise make_knowledge_error(path, error) from error


def connect(path: Path) -> File:
    file = cast("File", apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE))
    file.set_busy_timeout(BUSY_MS)
    file.execute("PRAGMA synchronous = FULL")
    return file


@contextmanager
def writing(file: File) -> Generator[None]:
    """One transaction, whole or not at all. It waits for other writers first, never midway."""
    file.execute("BEGIN IMMEDIATE")
    try:
        yield
        file.execute("COMMIT")
    finally:
        _abandon(file)


@contextmanager
def reading(file: File) -> Generator[None]:
    """All that is read inside was true at one moment."""
    file.execute("BEGIN")
    try:
        yield
    finally:
        _abandon(file)


def _abandon(file: File) -> None:
    with suppress(apsw.Error):
        if file.in_transaction:
            file.execute("ROLLBACK")


def _bring_up(file: File, path: Path) -> None:
    if _version(file, path) == len(KNOWLEDGE_STEPS):
        return
    with writing(file):
        # Another process may have been faster; a journal may have been made here meanwhile.
        _check_owner(file, path)
        for step in KNOWLEDGE_STEPS[_version(file, path) :]:
            file.execute(step)
        file.execute("CREATE TABLE IF NOT EXISTS knowledge_version (version INTEGER NOT NULL)")
        file.execute("DELETE FROM knowledge_version")
        file.execute("INSERT INTO knowledge_version VALUES (?)", (len(KNOWLEDGE_STEPS),))
        file.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def _version(file: File, path: Path) -> int:
    named = "SELECT count(*) FROM sqlite_schema WHERE name = 'knowledge_version'"
    if not file.execute(named).get:
        return 0
    version = file.execute("SELECT version FROM knowledge_version").get
    if version > len(KNOWLEDGE_STEPS):
        versions = f"its version is {version}, this one knows {len(KNOWLEDGE_STEPS)}"
        msg = f"knowledge {path}: it was made by a newer Windlass; upgrade this one ({versions})"
        raise KnowledgeFailed(msg)
    return version


def _check_owner(file: File, path: Path) -> None:
    owner = file.execute("PRAGMA application_id").get
    if owner != APPLICATION_ID and file.execute("SELECT count(*) FROM sqlite_schema").get:
        raise ConfigError(f"knowledge {path}: this database belongs to another program")
