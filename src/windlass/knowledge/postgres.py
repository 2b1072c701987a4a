"""Notes in Postgres: for agents on many machines. Needs the extra `windlass[postgres]`.

Words are searched with `tsvector`, which does not weigh rare words more than common ones. With many
notes, SQLite therefore ranks by words better. The search by meaning is the same in both.

Invariant: writers take one lock and keep it until their transaction ends. Notes are written seldom,
and a note that one writer forgets while another finds a new source for it must not get lost.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from typing_extensions import override

from windlass.core.errors import ConfigError
from windlass.knowledge.chunks import TextChunk
from windlass.knowledge.embeddings import Embedder
from windlass.knowledge.note_store import NoteStore
from windlass.knowledge.search_query import pair_terms, space_words, tsquery_text
from windlass.knowledge.statements import Row, SqlBatch, SqlDialect, Work
from windlass.knowledge.store import KnowledgeFailed

T = TypeVar("T")

CONNECTIONS_MAX = 4
ADVISORY_LOCK = 0x57_4E_44_4C_4B
"""Among the advisory locks of the database: `WNDLK`."""

KNOWLEDGE_STEPS = (
    """
    CREATE TABLE knowledge_notes (
        number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        kind TEXT NOT NULL,
        key TEXT NOT NULL,
        title TEXT NOT NULL,
        created DOUBLE PRECISION NOT NULL
    );
    CREATE INDEX knowledge_notes_by_scope ON knowledge_notes (kind, key);
    CREATE TABLE knowledge_origins (
        note BIGINT NOT NULL REFERENCES knowledge_notes ON DELETE CASCADE,
        place TEXT NOT NULL,
        session TEXT NOT NULL,
        call TEXT NOT NULL,
        digest TEXT NOT NULL,
        untrusted BOOLEAN NOT NULL,
        private BOOLEAN NOT NULL,
        created DOUBLE PRECISION NOT NULL,
        expires_at DOUBLE PRECISION,
        PRIMARY KEY (note, place, session, call)
    );
    CREATE INDEX knowledge_origins_by_place ON knowledge_origins (place);
    CREATE TABLE knowledge_chunks (
        number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        note BIGINT NOT NULL REFERENCES knowledge_notes ON DELETE CASCADE,
        title TEXT NOT NULL,
        text TEXT NOT NULL,
        words TSVECTOR NOT NULL
    );
    CREATE INDEX knowledge_chunks_by_note ON knowledge_chunks (note);
    CREATE INDEX knowledge_chunks_by_words ON knowledge_chunks USING gin (words);
    CREATE TABLE knowledge_vectors (
        chunk BIGINT PRIMARY KEY REFERENCES knowledge_chunks ON DELETE CASCADE,
        model TEXT NOT NULL,
        vector BYTEA NOT NULL
    );
    """,
)
"""Each step brings the tables to the next version."""


def _chunk_values(note: int, chunk: TextChunk) -> Sequence[object]:
    title, text = (f"{space_words(part)} {pair_terms(part)}" for part in (chunk.title, chunk.text))
    return (note, chunk.title, chunk.text, title, text)


# A word in a title counts for more than one in the text; a long chunk does not win by its length.
# Words are indexed as they are, and by their English stems, which are the same for many words of
# other languages. The stem counts for less than the word itself.
POSTGRES_DIALECT = SqlDialect(
    """
    SELECT chunks.number, ts_rank('{0, 0, 0.4, 1}', chunks.words, exact, 1)
        + ts_rank('{0.2, 0.5, 0, 0}', chunks.words, stems, 1) AS score
    FROM to_tsquery('simple', $1) AS exact, to_tsquery('english', $1) AS stems,
        knowledge_chunks AS chunks
    JOIN knowledge_notes AS notes ON notes.number = chunks.note
    WHERE chunks.words @@ (exact || stems) AND """,
    tsquery_text,
    """
    INSERT INTO knowledge_chunks (note, title, text, words) VALUES ($1, $2, $3,
        setweight(to_tsvector('simple', $4), 'A') || setweight(to_tsvector('simple', $5), 'B')
        || setweight(to_tsvector('english', $4), 'C') || setweight(to_tsvector('english', $5), 'D')
    )""",
    _chunk_values,
)


class AsyncpgConnection(Protocol):
    """The part of asyncpg's connection that is used here."""

    async def execute(self, query: str, *args: object) -> str: ...

    async def executemany(self, command: str, args: Iterable[Sequence[object]]) -> None: ...

    async def fetch(self, query: str, *args: object) -> Sequence[Row]: ...

    async def fetchval(self, query: str, *args: object) -> Any: ...  # noqa: ANN401 - a value


class PostgresKnowledge(NoteStore):
    """A store of notes in a database; the tables are created when it is first used.

    Raises ConfigError if asyncpg is not installed. `now`: the clock that notes are dated and expire
    by, in seconds since the epoch.
    """

    def __init__(
        self,
        dsn: str,
        *,
        embedder: Embedder | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        if find_spec("asyncpg") is None:
            raise ConfigError("Postgres needs asyncpg: pip install 'windlass[postgres]'")
        super().__init__(POSTGRES_DIALECT, embedder, now)
        self._dsn = dsn
        # asyncpg's connections belong to one event loop, so each loop has its own pool.
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Future[Any]]
        self._pools = WeakKeyDictionary()

    async def close(self) -> None:
        """Close the connections of this event loop."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await (await pool).close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @override
    async def _run_reading(self, work: Work[T]) -> T:
        async with self._open_transaction("repeatable_read") as connection:
            return await _run_statements(connection, work)

    @override
    async def _run_writing(self, work: Work[T]) -> T:
        # Not repeatable_read: each statement must see what was written before we got the lock.
        async with self._open_transaction("read_committed") as connection:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", ADVISORY_LOCK)
            return await _run_statements(connection, work)

    @asynccontextmanager
    async def _open_transaction(self, isolation: str) -> AsyncGenerator[AsyncpgConnection]:
        asyncpg = _load_asyncpg()
        try:
            loop = asyncio.get_running_loop()
            opening = self._pools.get(loop)
            if opening is None or (opening.done() and (opening.cancelled() or opening.exception())):
                opening = self._pools[loop] = loop.create_task(self._open_pool())
            # A caller that is cancelled while it waits must not cancel the pool for the others.
            pool = await asyncio.shield(opening)
            async with (
                pool.acquire() as connection,
                connection.transaction(isolation=isolation),
            ):
                yield connection
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            raise self._make_error(error) from error

    async def _open_pool(self) -> Any:  # noqa: ANN401 - asyncpg's
        pool = await _load_asyncpg().create_pool(self._dsn, min_size=1, max_size=CONNECTIONS_MAX)
        try:
            async with pool.acquire() as connection, connection.transaction():
                await _migrate_tables(connection)
        except BaseException:
            await pool.close()
            raise
        return pool

    def _make_error(self, error: Exception) -> KnowledgeFailed:
        # The URL of the database may hold a password; its host does not.
        host = urlsplit(self._dsn).netloc.rpartition("@")[2] or "Postgres"
        return KnowledgeFailed(f"knowledge at {host}: {error or type(error).__name__}")


async def _run_statements(connection: AsyncpgConnection, work: Work[T]) -> T:
    rows: Sequence[Row] = ()
    try:
        statement = next(work)
        while True:
            if isinstance(statement, SqlBatch):
                await connection.executemany(statement.sql, statement.rows)
                rows = ()
            else:
                rows = await connection.fetch(statement.sql, *statement.values)
            statement = work.send(rows)
    except StopIteration as done:
        return done.value


async def _migrate_tables(connection: AsyncpgConnection) -> None:
    """Create the tables that are missing; refuse those of a newer version."""
    await connection.execute("SELECT pg_advisory_xact_lock($1)", ADVISORY_LOCK)
    version = 0
    if await connection.fetchval("SELECT to_regclass('knowledge_version') IS NOT NULL"):
        version = await connection.fetchval("SELECT version FROM knowledge_version")
    newest = len(KNOWLEDGE_STEPS)
    if version > newest:
        versions = f"its version is {version}, this one knows {newest}"
        raise KnowledgeFailed(f"it was made by a newer Windlass; upgrade this one ({versions})")
    if version == newest:
        return
    for step in KNOWLEDGE_STEPS[version:]:
        await connection.execute(step)
    await connection.execute(
        "CREATE TABLE IF NOT EXISTS knowledge_version (version INTEGER NOT NULL)"
    )
    await connection.execute("DELETE FROM knowledge_version")
    await connection.execute("INSERT INTO knowledge_version VALUES ($1)", newest)


def _load_asyncpg() -> Any:  # noqa: ANN401 - of the extra, and it has no types
    return import_module("asyncpg")
