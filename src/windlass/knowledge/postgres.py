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
from windlass.knowledge.embeddings import BATCH, Embedder, vectors_of
from windlass.knowledge.postgres_rows import Connection
from windlass.knowledge.search_query import words_of
from windlass.knowledge.store import (
    TAINTS,
    Asked,
    Found,
    KnowledgeFailed,
    Labels,
    Note,
    Scope,
    Taint,
    clean,
    entry_of,
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
        return await self._keep(notes, "kept")

    async def renew(self, *notes: Note) -> list[str]:
        """Keep the notes, and forget what else their places held before."""
        return await self._keep(notes, "anew")

    async def recall(
        self,
        query: str,
        scopes: Sequence[Scope],
        *,
        limit: int = 8,
        taints: Collection[Taint] = TAINTS,
    ) -> list[Found]:
        """What answers the query in these scopes, best first."""
        query = clean(query)
        words = words_of(query)
        if not words or not scopes or limit < 1:
            return []
        vectors = await vectors_of(self._embedder, [query])
        vector = vectors[0] if vectors else None
        asked = Asked(words, vector, self._model, scopes, taints, self._now())
        async with self._read() as db:
            return await rows.recall(db, asked, limit)

    async def forget(self, note: str) -> bool:
        """Forget a note, wherever it came from."""
        return await self._write(rows.forget, clean(note))

    async def drop(self, scope: Scope, places: Sequence[str]) -> int:
        """Forget what only these places hold."""
        return await self._write(rows.drop, scope, [clean(place) for place in places])

    async def places(self, scope: Scope, under: str = "") -> dict[str, str]:
        """The places that begin so, and the digest of what each held."""
        async with self._read() as db:
            return await rows.places(db, scope, clean(under))

    async def expire(self, now: float | None = None) -> int:
        """Delete what has expired."""
        return await self._write(rows.expire, self._now() if now is None else now)

    @property
    def _model(self) -> str:
        return self._embedder.name if self._embedder else ""

    async def _keep(self, notes: Sequence[Note], labels: Labels) -> list[str]:
        kept: list[str] = []
        for start in range(0, len(notes), NOTES_PER_WRITE):
            some = [entry_of(note) for note in notes[start : start + NOTES_PER_WRITE]]
            kept += await self._write(rows.insert, some, labels, self._now())
        await self._embed(BATCHES_PER_NOTE + len(notes) // BATCH)
        return kept

    async def _embed(self, batches: int) -> None:
        """Fetch the vectors that are missing, also those that an earlier failure left out."""
        for _ in range(batches if self._embedder else 0):
            async with self._read() as db:
                missing, last = await rows.without_vector(db, self._model, self._embedded)
            if missing:
                vectors = await vectors_of(self._embedder, [text for _, text in missing])
                if vectors is None:
                    return
                numbers = [number for number, _ in missing]
                await self._write(rows.insert_vectors, self._model, numbers, vectors)
            if len(missing) < BATCH:
                self._embedded = last
                return

    async def _write(
        self,
        work: Callable[Concatenate[Connection, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        # Each statement must see what was written before we got the lock.
        async with self._connection("read_committed") as db:
            await db.execute("SELECT pg_advisory_xact_lock($1)", rows.LOCK)
            return await work(db, *args, **kwargs)

    def _read(self) -> AbstractAsyncContextManager[Connection]:
        """All that is read inside was true at one moment."""
        return self._connection("repeatable_read")

    @asynccontextmanager
    async def _connection(self, isolation: str) -> AsyncGenerator[Connection]:
        """A connection in a transaction."""
        asyncpg = _asyncpg()
        try:
            pool = await self._pool()
            async with pool.acquire() as db, db.transaction(isolation=isolation):
                yield db
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            raise self._failed(error) from error

    async def _pool(self) -> Any:  # noqa: ANN401 - asyncpg's
        loop = asyncio.get_running_loop()
        made = self._pools.get(loop)
        if made is None or (made.done() and (made.cancelled() or made.exception())):
            made = self._pools[loop] = loop.create_task(self._open())
        # Who gives up waiting must not take the pool away from others.
        return await asyncio.shield(made)

    async def _open(self) -> Any:  # noqa: ANN401 - asyncpg's
        pool = await _asyncpg().create_pool(self._dsn, min_size=1, max_size=CONNECTIONS_MAX)
        try:
            async with pool.acquire() as db, db.transaction():
                await rows.bring_up(db)
        except BaseException:
            await pool.close()
            raise
        return pool

    def _failed(self, error: Exception) -> KnowledgeFailed:
        # The name of the database may hold a password; its host does not.
        host = urlsplit(self._dsn).netloc.rpartition("@")[2] or "Postgres"
        return KnowledgeFailed(f"knowledge at {host}: {error or type(error).__name__}")


def _asyncpg() -> Any:  # noqa: ANN401 - of the extra, and it has no types
    return import_module("asyncpg")
