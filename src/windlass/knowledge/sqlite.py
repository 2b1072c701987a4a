"""Notes in a SQLite file: a journal's, or one of their own.

Any number of event loops, threads and processes may use the file at once, beside a journal too.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

import apsw

from windlass.knowledge.embeddings import TEXTS_PER_REQUEST, Embedder, embed_texts
from windlass.knowledge.search_query import query_words
from windlass.knowledge.sqlite_file import KNOWLEDGE_TABLES
from windlass.knowledge.sqlite_rows import (
    delete_expired,
    delete_note,
    delete_places,
    insert_notes,
    insert_vectors,
    select_found,
    select_places,
    select_without_vector,
)
from windlass.knowledge.store import (
    TAINTS,
    FoundNote,
    KnowledgeFailed,
    LabelUpdate,
    Note,
    NoteEntry,
    RecallQuery,
    Scope,
    Taint,
    clean_text,
    make_entry,
)
from windlass.sqlite_file import (
    SqliteConnection,
    open_connection,
    open_database,
    read_transaction,
    write_transaction,
)

P = ParamSpec("P")
T = TypeVar("T")

NOTES_PER_WRITE = 50
"""A journal in the same file waits for no more than this."""
BATCHES_PER_NOTE = 4
"""Requests to the embedder that one `remember` makes: the newest first, the rest next time."""


class SqliteKnowledge:
    """A store of notes in a file, searched by words and, with an embedder, by meaning."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        embedder: Embedder | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.path = Path(path).expanduser().absolute()
        open_database(self.path, KNOWLEDGE_TABLES).close()
        self._embedder = embedder
        self._now = now
        self._embedded = 0
        """No piece up to this number lacks its vector: it need not be looked for again."""
        self._idle: list[SqliteConnection] = []
        self._closed = False
        self._process = os.getpid()
        # Writers of this process wait here, and not in SQLite, which asks again and again.
        self._one_writer = threading.Lock()

    def close(self) -> None:
        """Let go of the file; what is under way ends first."""
        self._closed = True
        while self._process == os.getpid() and (file := self._take_idle()):
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def remember(self, *notes: Note) -> list[str]:
        """Keep the notes; their ids, once they are on the disk."""
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
        words = query_words(clean_text(query))
        if not words or not scopes or limit < 1:
            return []
        vectors = await embed_texts(self._embedder, [clean_text(query)])
        vector = vectors[0] if vectors else None
        asked = RecallQuery(words, vector, self._model, scopes, taints, self._now())
        return await self._run_reading(select_found, asked, limit)

    async def forget(self, note: str) -> bool:
        """Forget a note, wherever it came from."""
        return await self._run_writing(delete_note, clean_text(note))

    async def forget_places(self, scope: Scope, places: Sequence[str]) -> int:
        """Forget what only these places hold."""
        return await self._run_writing(
            delete_places, scope, [clean_text(place) for place in places]
        )

    async def list_places(self, scope: Scope, under: str = "") -> dict[str, str]:
        """The places that begin so, and the digest of what each held."""
        return await self._run_reading(select_places, scope, clean_text(under))

    async def delete_expired(self, now: float | None = None) -> int:
        """Delete what has expired."""
        return await self._run_writing(delete_expired, self._now() if now is None else now)

    @property
    def _model(self) -> str:
        return self._embedder.name if self._embedder else ""

    async def _store_notes(self, notes: Sequence[Note], labels: LabelUpdate) -> list[str]:
        kept: list[str] = []
        for start in range(0, len(notes), NOTES_PER_WRITE):
            some = notes[start : start + NOTES_PER_WRITE]
            entries = await asyncio.to_thread(_make_entries, some)
            began = time.monotonic()
            kept += await self._run_writing(insert_notes, entries, labels, self._now())
            if len(some) == NOTES_PER_WRITE:
                # SQLite has no queue: a journal that waits gets the file only while nobody has it.
                await asyncio.sleep(time.monotonic() - began)
        await self._embed_missing(BATCHES_PER_NOTE + len(notes) // TEXTS_PER_REQUEST)
        return kept

    async def _embed_missing(self, batches: int) -> None:
        """Fetch the vectors that are missing, also those that an earlier failure left out."""
        for _ in range(batches if self._embedder else 0):
            missing, last = await self._run_reading(
                select_without_vector, self._model, self._embedded
            )
            if missing:
                vectors = await embed_texts(self._embedder, [text for _, text in missing])
                if vectors is None:
                    return
                numbers = [number for number, _ in missing]
                await self._run_writing(insert_vectors, self._model, numbers, vectors)
            if len(missing) < TEXTS_PER_REQUEST:
                self._embedded = last
                return

    async def _run_reading(
        self, work: Callable[Concatenate[SqliteConnection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        def read() -> T:
            with self._use_connection() as file, read_transaction(file):
                return work(file, *args, **kwargs)

        return await asyncio.to_thread(read)

    async def _run_writing(
        self, work: Callable[Concatenate[SqliteConnection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        def write() -> T:
            with self._one_writer, self._use_connection() as file, write_transaction(file):
                return work(file, *args, **kwargs)

        return await asyncio.to_thread(write)

    @contextmanager
    def _use_connection(self) -> Generator[SqliteConnection]:
        """A connection of the caller's own."""
        if self._process != os.getpid():
            msg = f"knowledge {self.path}: it was opened before a fork; open it anew in the child"
            raise KnowledgeFailed(msg)
        if self._closed:
            raise KnowledgeFailed(f"knowledge {self.path}: it is closed")
        try:
            file = self._take_idle() or open_connection(self.path)
            try:
                yield file
            finally:
                self._idle.append(file)
                if self._closed:
                    self.close()
        except apsw.Error as error:
            raise KNOWLEDGE_TABLES.make_error(self.path, error) from error

    def _take_idle(self) -> SqliteConnection | None:
        with suppress(IndexError):
            return self._idle.pop()
        return None


def _make_entries(notes: Sequence[Note]) -> list[NoteEntry]:
    return [make_entry(note) for note in notes]
