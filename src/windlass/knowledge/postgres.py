"""Notes in Postgres: for agents on many machines.

The words are searched with `tsvector`, which knows no word to be rarer than another: with many
notes, SQLite ranks by words the better. Meaning is searched as it is there.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from windlass.core.errors import ConfigError
from windlass.knowledge import postgres_rows as rows
from windlass.knowledge.embeddings import TEXTS_PER_REQUEST, Embedder, embed_texts
from windlass.knowledge.postgres_rows import AsyncpgConnection
from windlass.knowledge.search_query import query_words
from windlass.knowledge.store import (
    TAINTS,
    FoundNote,
    KnowledgeFailed,
    LabelUpdate,
    Note,
    RecallQuery,
    Scope,
    Taint,
    clean_text,
    make_entry,
)

P = ParamSpec("P")
T = TypeVar("T")

NOTES_PER_WRITE = 50
BATCHES_PER_NOTE = 4
"""Requests to the embedder that one `remember` makes: the newest first, the rest next time."""
CONNECTIONS_MAX = 4


class PostgresKnowledge:
    """A store of notes in a database; the tables are made when it is first used."""

    def __init__(
        self,
        dsn: str,
        *,
        embedder: Embedder | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        if find_spec("asyncpg") is None:
            raise ConfigError("Postgres needs asyncpg: pip install 'windlass[postgres]'")
        self._dsn = dsn
        self._embedder = embedder
        self._now = now
        self._embedded = 0
        """No piece up to this number lacks its vector: it need not be looked for again."""
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Future[Any]]
        self._pools = WeakKeyDictionary()

    async def close(self) -> None:
        """Let go of the connections that this event loop holds."""
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

    async def remember(self, *notes: Note) -> list[str]:
        """Keep the notes; their ids, once they are durable."""
        return await self._store_notes(notes, "kept")

    async def replace_notes(self, *notes: Note) -> list[str]:
        """Keep the notes, and forget what else their places held before."""
        return await self._store_notes(notes, "anew")

    async def recall(
        self,
        query: str,
        scopes: Sequence[Scope],
        *,
        limit: int = 8,
        taints: Collection[Taint] = TAINTS,
    ) -> list[FoundNote]:
        """What answers the query in these scopes, best first."""
        query = clean_text(query)
        words = query_words(query)
        if not words or not scopes or limit < 1:
            return []
        vectors = await embed_texts(self._embedder, [query])
        vector = vectors[0] if vectors else None
        asked = RecallQuery(words, vector, self._model, scopes, taints, self._now())
        async with self._reading_connection() as db:
            return await rows.select_found(db, asked, limit)

    async def forget(self, note: str) -> bool:
        """Forget a note, wherever it came from."""
        return await self._run_writing(rows.delete_note, clean_text(note))

    async def forget_places(self, scope: Scope, places: Sequence[str]) -> int:
        """Forget what only these places hold."""
        return await self._run_writing(
            rows.delete_places, scope, [clean_text(place) for place in places]
        )

    async def list_places(self, scope: Scope, under: str = "") -> dict[str, str]:
        """The places that begin so, and the digest of what each held."""
        async with self._reading_connection() as db:
            return await rows.select_places(db, scope, clean_text(under))

    async def delete_expired(self, now: float | None = None) -> int:
        """Delete what has expired."""
        return await self._run_writing(rows.delete_expired, self._now() if now is None else now)

    @property
    def _model(self) -> str:
        return self._embedder.name if self._embedder else ""

    async def _store_notes(self, notes: Sequence[Note], labels: LabelUpdate) -> list[str]:
        kept: list[str] = []
        for start in range(0, len(notes), NOTES_PER_WRITE):
            some = [make_entry(note) for note in notes[start : start + NOTES_PER_WRITE]]
            kept += await self._run_writing(rows.insert_notes, some, labels, self._now())
        await self._embed_missing(BATCHES_PER_NOTE + len(notes) // TEXTS_PER_REQUEST)
        return kept

    async def _embed_missing(self, batches: int) -> None:
        """Fetch the vectors that are missing, also those that an earlier failure left out."""
        for _ in range(batches if self._embedder else 0):
            async with self._reading_connection() as db:
                missing, last = await rows.select_without_vector(db, self._model, self._embedded)
            if missing:
                vectors = await embed_texts(self._embedder, [text for _, text in missing])
                if vectors is None:
                    return
                numbers = [number for number, _ in missing]
                await self._run_writing(rows.insert_vectors, self._model, numbers, vectors)
            if len(missing) < TEXTS_PER_REQUEST:
                self._embedded = last
                return

    async def _run_writing(
        self,
        work: Callable[Concatenate[AsyncpgConnection, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        # Each statement must see what was written before we got the lock.
        async with self._open_transaction("read_committed") as db:
            await db.execute("SELECT pg_advisory_xact_lock($1)", rows.LOCK)
            return await work(db, *args, **kwargs)

    def _reading_connection(self) -> AbstractAsyncContextManager[AsyncpgConnection]:
        """All that is read inside was true at one moment."""
        return self._open_transaction("repeatable_read")

    @asynccontextmanager
    async def _open_transaction(self, isolation: str) -> AsyncGenerator[AsyncpgConnection]:
        """A connection in a transaction."""
        asyncpg = _load_asyncpg()
        try:
            pool = await self._get_pool()
            async with pool.acquire() as db, db.transaction(isolation=isolation):
                yield db
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            raise self._make_error(error) from error

    async def _get_pool(self) -> Any:  # noqa: ANN401 - asyncpg's
        loop = asyncio.get_running_loop()
        made = self._pools.get(loop)
        if made is None or (made.done() and (made.cancelled() or made.exception())):
            made = self._pools[loop] = loop.create_task(self._open_pool())
        # Who gives up waiting must not take the pool away from others.
        return await asyncio.shield(made)

    async def _open_pool(self) -> Any:  # noqa: ANN401 - asyncpg's
        pool = await _load_asyncpg().create_pool(self._dsn, min_size=1, max_size=CONNECTIONS_MAX)
        try:
            async with pool.acquire() as db, db.transaction():
                await rows.migrate_tables(db)
        except BaseException:
            await pool.close()
            raise
        return pool

    def _make_error(self, error: Exception) -> KnowledgeFailed:
        # The name of the database may hold a password; its host does not.
        host = urlsplit(self._dsn).netloc.rpartition("@")[2] or "Postgres"
        return KnowledgeFailed(f"knowledge at {host}: {error or type(error).__name__}")


def _load_asyncpg() -> Any:  # noqa: ANN401 - of the extra, and it has no types
    return import_module("asyncpg")
