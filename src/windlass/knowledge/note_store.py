"""A store of notes without its database: what SQLite and Postgres have in common.

Invariant: words always find. Vectors are made after a note is stored; if that fails, the note is
there, and a later write makes the missing vectors.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from windlass.knowledge.embeddings import TEXTS_PER_REQUEST, Embedder, embed_texts
from windlass.knowledge.search_query import query_words
from windlass.knowledge.statements import (
    NoteChanges,
    SqlDialect,
    Work,
    correct_note,
    delete_expired,
    delete_note,
    forget_places,
    insert_notes,
    insert_vectors,
    list_notes,
    list_places,
    list_unembedded,
    recall_notes,
)
from windlass.knowledge.store import (
    TAINTS,
    FoundNote,
    LabelUpdate,
    Note,
    NoteEntry,
    RecallQuery,
    Scope,
    Source,
    Taint,
    clean_text,
    make_entry,
)

T = TypeVar("T")

NOTES_PER_WRITE = 50
"""Notes in one transaction. A journal in the same SQLite file waits no longer than one of these."""
BATCHES_PER_NOTE = 4
"""Requests to the embedder that one `remember` makes: the newest first, the rest next time."""


class NoteStore(ABC):
    """The `Knowledge` protocol over transactions, which a subclass runs in its database."""

    def __init__(
        self, dialect: SqlDialect, embedder: Embedder | None, now: Callable[[], float]
    ) -> None:
        self._dialect = dialect
        self._embedder = embedder
        self._now = now
        self._embedded_up_to = 0
        """Every chunk up to this number has its vector, so the search for gaps starts here."""

    async def remember(self, *notes: Note) -> list[str]:
        """Store the notes and return their ids, once they are durable."""
        return await self._store_notes(notes, "keep")

    async def replace_notes(self, *notes: Note) -> list[str]:
        """Store the notes, and forget what else their places held before. Return their ids."""
        return await self._store_notes(notes, "replace")

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
        wanted = RecallQuery(words, vector, self._model_name, scopes, taints, self._now())
        return await self._run_reading(recall_notes(self._dialect, wanted, limit))

    async def list_notes(
        self,
        scopes: Sequence[Scope],
        *,
        note: str = "",
        limit: int = 100,
        taints: Collection[Taint] = TAINTS,
    ) -> list[FoundNote]:
        """The notes of these scopes, newest first, each with its first piece of text.

        `note`: only the notes whose ids begin so.
        """
        if not scopes or limit < 1:
            return []
        wanted = RecallQuery([], None, "", scopes, taints, self._now())
        return await self._run_reading(list_notes(wanted, clean_text(note), limit))

    async def correct(
        self,
        note: str,
        text: str,
        source: Source,
        *,
        title: str = "",
        labels: Collection[Taint] = (),
    ) -> str | None:
        """Put another text in place of a note, and return its new id, if it is there."""
        changes = NoteChanges(text, source, title, frozenset(labels))
        work = correct_note(self._dialect, clean_text(note), changes, self._now())
        corrected = await self._run_writing(work)
        await self._embed_missing(BATCHES_PER_NOTE)
        return corrected

    async def forget(self, note: str) -> bool:
        """Delete a note with all its sources; whether there was one."""
        return await self._run_writing(delete_note(clean_text(note)))

    async def forget_places(self, scope: Scope, places: Sequence[str]) -> int:
        """Delete the notes that only these places hold; how many."""
        cleaned = [clean_text(place) for place in places]
        return await self._run_writing(forget_places(scope, cleaned))

    async def list_places(self, scope: Scope, under: str = "") -> dict[str, str]:
        """The places that begin with `under`, and the digest of what each held."""
        return await self._run_reading(list_places(scope, clean_text(under)))

    async def delete_expired(self, now: float | None = None) -> int:
        """Delete what has expired; how many notes that were."""
        moment = self._now() if now is None else now
        return await self._run_writing(delete_expired(moment))

    @abstractmethod
    async def _run_reading(self, work: Work[T]) -> T:
        """Run the statements in a transaction that sees one moment. Raises KnowledgeFailed."""

    @abstractmethod
    async def _run_writing(self, work: Work[T]) -> T:
        """Run the statements in a transaction of the only writer. Raises KnowledgeFailed."""

    async def _let_others_write(self, held_s: float) -> None:  # noqa: B027 - most need not wait
        """Called between two full batches, with the time that the last one took."""

    @property
    def _model_name(self) -> str:
        return self._embedder.name if self._embedder else ""

    async def _store_notes(self, notes: Sequence[Note], labels: LabelUpdate) -> list[str]:
        ids: list[str] = []
        for start in range(0, len(notes), NOTES_PER_WRITE):
            batch = notes[start : start + NOTES_PER_WRITE]
            # Splitting and hashing long documents would hold up the event loop.
            entries = await asyncio.to_thread(_make_entries, batch)
            began = time.monotonic()
            work = insert_notes(self._dialect, entries, labels, self._now())
            ids += await self._run_writing(work)
            if len(batch) == NOTES_PER_WRITE:
                await self._let_others_write(time.monotonic() - began)
        await self._embed_missing(BATCHES_PER_NOTE + len(notes) // TEXTS_PER_REQUEST)
        return ids

    async def _embed_missing(self, batches_max: int) -> None:
        """Make the vectors that are missing, including those that an earlier failure left out."""
        model = self._model_name
        for _ in range(batches_max if self._embedder else 0):
            listing = list_unembedded(model, self._embedded_up_to)
            missing, last = await self._run_reading(listing)
            if missing:
                vectors = await embed_texts(self._embedder, [text for _, text in missing])
                if vectors is None:
                    return
                numbers = [number for number, _ in missing]
                await self._run_writing(insert_vectors(model, numbers, vectors))
            if len(missing) < TEXTS_PER_REQUEST:
                self._embedded_up_to = last
                return


def _make_entries(notes: Sequence[Note]) -> list[NoteEntry]:
    return [make_entry(note) for note in notes]
