"""Notes in a SQLite file: in a journal's, or in one of their own.

Invariant: nothing of a journal is touched. The tables have their own names and their own version,
and a write is short, because appends to the journal wait for it. Any number of event loops, threads
and processes may use the file at the same time.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import apsw
from typing_extensions import override

from windlass.environ import private_registry_folder
from windlass.knowledge.chunks import TextChunk
from windlass.knowledge.embeddings import Embedder
from windlass.knowledge.note_store import NoteStore
from windlass.knowledge.search_query import fts5_query, pair_terms
from windlass.knowledge.statements import Row, SqlBatch, SqlDialect, Work
from windlass.knowledge.store import KnowledgeFailed
from windlass.sqlite_file import (
    SqliteConnection,
    TableSet,
    open_connection,
    open_database,
    read_transaction,
    write_transaction,
)
from windlass.sqlite_guard import FileGuard

T = TypeVar("T")

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
        text TEXT NOT NULL,
        pairs TEXT NOT NULL
    ) STRICT;
    CREATE INDEX knowledge_chunks_by_note ON knowledge_chunks (note);
    CREATE TABLE knowledge_vectors (
        chunk INTEGER PRIMARY KEY,
        model TEXT NOT NULL,
        vector BLOB NOT NULL
    ) STRICT;
    CREATE VIRTUAL TABLE knowledge_words USING fts5(
        title, text, pairs, content='knowledge_chunks', content_rowid='number',
        tokenize='porter unicode61 remove_diacritics 2', prefix='4 6'
    );
    CREATE TRIGGER knowledge_chunk_came AFTER INSERT ON knowledge_chunks BEGIN
        INSERT INTO knowledge_words (rowid, title, text, pairs)
            VALUES (new.number, new.title, new.text, new.pairs);
    END;
    CREATE TRIGGER knowledge_chunk_went AFTER DELETE ON knowledge_chunks BEGIN
        INSERT INTO knowledge_words (knowledge_words, rowid, title, text, pairs)
            VALUES ('delete', old.number, old.title, old.text, old.pairs);
        DELETE FROM knowledge_vectors WHERE chunk = old.number;
    END;
    CREATE TRIGGER knowledge_note_went AFTER DELETE ON knowledge_notes BEGIN
        DELETE FROM knowledge_chunks WHERE note = old.number;
        DELETE FROM knowledge_origins WHERE note = old.number;
    END;
    """,
)
TABLES = TableSet("knowledge", KnowledgeFailed, KNOWLEDGE_STEPS, "knowledge_version")


def _chunk_values(note: int, chunk: TextChunk) -> Sequence[object]:
    return (note, chunk.title, chunk.text, pair_terms(chunk.title, chunk.text))


# A word in a title counts as four in the text.
SQLITE_DIALECT = SqlDialect(
    """
    SELECT chunks.number, -bm25(knowledge_words, 4.0, 1.0, 1.0) AS score
    FROM knowledge_words
    JOIN knowledge_chunks AS chunks ON chunks.number = knowledge_words.rowid
    JOIN knowledge_notes AS notes ON notes.number = chunks.note
    WHERE knowledge_words MATCH $1 AND """,
    fts5_query,
    "INSERT INTO knowledge_chunks (note, title, text, pairs) VALUES ($1, $2, $3, $4)",
    _chunk_values,
)


class SqliteKnowledge(NoteStore):
    """A store of notes in a file, searched by words and, with an embedder, by meaning.

    Raises ConfigError if the path cannot be a file of ours, KnowledgeFailed if it cannot be used.
    `now`: the clock that notes are dated and expire by, in seconds since the epoch.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        embedder: Embedder | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(SQLITE_DIALECT, embedder, now)
        self.path = Path(path).expanduser().absolute()
        open_database(self.path, TABLES, private_registry_folder()).close()
        self._idle: list[SqliteConnection] = []
        self._guard: FileGuard | None = None
        """Held from the first connection on."""
        self._closed = False
        self._process = os.getpid()
        # SQLite would poll while another thread writes; a lock wakes the next writer at once.
        self._one_writer = threading.Lock()

    def close(self) -> None:
        """Close the file. Calls that are under way finish first."""
        self._closed = True
        if self._guard is not None:
            self._guard.unlock()
        while self._process == os.getpid() and (connection := self._take_idle()):
            connection.close()
        if self._guard is not None:
            self._guard.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @override
    async def _run_reading(self, work: Work[T]) -> T:
        def read() -> T:
            with self._use_connection() as connection, read_transaction(connection):
                return _run_statements(connection, work)

        return await asyncio.to_thread(read)

    @override
    async def _run_writing(self, work: Work[T]) -> T:
        def write() -> T:
            with (
                self._one_writer,
                self._use_connection() as connection,
                write_transaction(connection),
            ):
                return _run_statements(connection, work)

        return await asyncio.to_thread(write)

    @override
    async def _let_others_write(self, held_s: float) -> None:
        # SQLite has no queue: a journal that waits gets the file only while no process holds it.
        await asyncio.sleep(held_s)

    @contextmanager
    def _use_connection(self) -> Generator[SqliteConnection]:
        """A connection that only the caller uses."""
        if self._process != os.getpid():
            msg = f"knowledge {self.path}: opened before a fork; open it again in the child process"
            raise KnowledgeFailed(msg)
        if self._closed:
            raise KnowledgeFailed(f"knowledge {self.path}: it is closed")
        try:
            connection = self._take_idle() or self._open_connection()
            try:
                yield connection
            finally:
                self._idle.append(connection)
                if self._closed:
                    self.close()
        except apsw.Error as error:
            raise TABLES.make_error(self.path, error) from error

    def _open_connection(self) -> SqliteConnection:
        connection = open_connection(self.path)
        if self._guard is None:
            # SQLite opens the log and its index at the first read.
            connection.execute("SELECT count(*) FROM sqlite_schema").get  # noqa: B018 - as above
            self._guard = FileGuard(self.path)
        return connection

    def _take_idle(self) -> SqliteConnection | None:
        with suppress(IndexError):
            return self._idle.pop()
        return None


def _run_statements(connection: SqliteConnection, work: Work[T]) -> T:
    rows: Sequence[Row] = ()
    try:
        statement = next(work)
        while True:
            if isinstance(statement, SqlBatch):
                connection.executemany(statement.sql, statement.rows)
                rows = ()
            else:
                rows = list(connection.execute(statement.sql, statement.values))
            statement = work.send(rows)
    except StopIteration as done:
        return done.value
