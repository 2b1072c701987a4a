"""The statements of a store in SQLite, each inside a transaction of the caller's."""

from collections.abc import Iterable, Sequence

from windlass.knowledge.embeddings import TEXTS_PER_REQUEST
from windlass.knowledge.ranking import find_nearest, merge_rankings
from windlass.knowledge.search_query import fts5_query
from windlass.knowledge.store import (
    CANDIDATES_PER_FOUND,
    FoundNote,
    LabelUpdate,
    NoteEntry,
    NoteOrigin,
    RecallQuery,
    Scope,
    limit_per_note,
    make_found_note,
)
from windlass.sqlite_file import SqliteConnection

_LABELS: dict[LabelUpdate, str] = {
    "kept": """untrusted = max(untrusted, excluded.untrusted),
        private = max(private, excluded.private)""",
    "anew": "untrusted = excluded.untrusted, private = excluded.private",
}
# A word in a title counts as four in the text.
_MATCHES = """
    SELECT chunks.number, -bm25(knowledge_words, 4.0, 1.0) AS score
    FROM knowledge_words
    JOIN knowledge_chunks AS chunks ON chunks.number = knowledge_words.rowid
    JOIN knowledge_notes AS notes ON notes.number = chunks.note
    WHERE knowledge_words MATCH ? AND """
_VECTORS = """
    SELECT vectors.chunk, vectors.vector FROM knowledge_notes AS notes
    JOIN knowledge_chunks AS chunks ON chunks.note = notes.number
    JOIN knowledge_vectors AS vectors ON vectors.chunk = chunks.number
    WHERE vectors.model = ? AND """
_ALLOWED = """
    AND EXISTS (SELECT 1 FROM knowledge_origins WHERE note = notes.number
        AND (expires_at IS NULL OR expires_at > ?))
    AND NOT EXISTS (SELECT 1 FROM knowledge_origins WHERE note = notes.number
        AND (untrusted > ? OR private > ?))"""
_CHUNK = """
    SELECT notes.number, notes.id, chunks.text, chunks.title, notes.kind, notes.key, notes.created
    FROM knowledge_chunks AS chunks JOIN knowledge_notes AS notes ON notes.number = chunks.note
    WHERE chunks.number = ?"""
_ORIGINS = """
    SELECT place, session, call, digest, untrusted, private, expires_at
    FROM knowledge_origins WHERE note = ? ORDER BY created, place, session, call"""
_ORIGIN = """
    INSERT INTO knowledge_origins
        (note, place, session, call, digest, untrusted, private, created, expires_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET digest = excluded.digest, expires_at = excluded.expires_at, """
_ELSE_THERE = """
    DELETE FROM knowledge_origins WHERE place = ? AND note <> ?
    AND EXISTS (SELECT 1 FROM knowledge_notes WHERE number = note AND kind = ? AND key = ?)
    RETURNING note"""
_WITHOUT_VECTOR = """
    SELECT number, title || char(10) || text FROM knowledge_chunks AS chunks
    WHERE number > ? AND NOT EXISTS (
        SELECT 1 FROM knowledge_vectors WHERE chunk = chunks.number AND model = ?)
    ORDER BY number DESC LIMIT ?"""
_SWEEP = """
    DELETE FROM knowledge_notes WHERE number = ?1
    AND NOT EXISTS (SELECT 1 FROM knowledge_origins WHERE note = ?1) RETURNING number"""


def select_found(file: SqliteConnection, asked: RecallQuery, limit: int) -> list[FoundNote]:
    wanted = limit * CANDIDATES_PER_FOUND
    values = ", ".join(["(?, ?)"] * len(asked.scopes))
    where = f"(notes.kind, notes.key) IN (VALUES {values}) {_ALLOWED}"
    names = [name for scope in asked.scopes for name in (scope.kind, scope.key)]
    allowed = [*names, asked.now, "untrusted" in asked.taints, "private" in asked.taints]
    matching = f"{_MATCHES}{where} ORDER BY score DESC, chunks.number DESC LIMIT ?"
    words: list[tuple[int, float]] = [
        (number, score)
        for number, score in file.execute(matching, [fts5_query(asked.words), *allowed, wanted])
    ]
    near = None
    if asked.vector is not None:
        rows = file.execute(_VECTORS + where, [asked.model, *allowed])
        near = find_nearest(asked.vector, ((number, vector) for number, vector in rows), wanted)
    found = (
        _load_found(file, number, score, asked.now) for number, score in merge_rankings(words, near)
    )
    return limit_per_note(found, limit)


def _load_found(file: SqliteConnection, chunk: int, score: float, now: float) -> FoundNote:
    ((note, *row),) = file.execute(_CHUNK, (chunk,))
    origins = [NoteOrigin(*columns) for columns in file.execute(_ORIGINS, (note,))]
    return make_found_note(row, score, origins, now)


def insert_notes(
    file: SqliteConnection, entries: Iterable[NoteEntry], labels: LabelUpdate, now: float
) -> list[str]:
    """Keep the entries; their ids."""
    kept: list[str] = []
    for entry in entries:
        number = file.execute("SELECT number FROM knowledge_notes WHERE id = ?", (entry.id,)).get
        if number is None:
            number = _insert_note(file, entry, now)
        note, taints = entry.note, entry.note.labels
        origin = (number, entry.place, entry.session, entry.call, entry.digest)
        marks = ("untrusted" in taints, "private" in taints, now, note.expires_at)
        file.execute(_ORIGIN + _LABELS[labels], (*origin, *marks))
        if labels == "anew" and entry.place:
            scope = (note.scope.kind, note.scope.key)
            _delete_orphans(file, file.execute(_ELSE_THERE, (entry.place, number, *scope)))
        kept.append(entry.id)
    return kept


def _insert_note(file: SqliteConnection, entry: NoteEntry, now: float) -> int:
    scope = entry.note.scope
    number = file.execute(
        """INSERT INTO knowledge_notes (id, kind, key, title, created) VALUES (?, ?, ?, ?, ?)
        RETURNING number""",
        (entry.id, scope.kind, scope.key, entry.title, now),
    ).get
    file.executemany(
        "INSERT INTO knowledge_chunks (note, title, text) VALUES (?, ?, ?)",
        [(number, chunk.title, chunk.text) for chunk in entry.chunks],
    )
    return number


def select_without_vector(
    file: SqliteConnection, model: str, after: int
) -> tuple[list[tuple[int, str]], int]:
    """The newest pieces past a number that the model has not seen; and the last number of all."""
    missing = file.execute(_WITHOUT_VECTOR, (after, model, TEXTS_PER_REQUEST))
    last = "SELECT max(number) FROM knowledge_chunks"
    return [(number, text) for number, text in missing], file.execute(last).get or 0


def insert_vectors(
    file: SqliteConnection, model: str, numbers: Sequence[int], vectors: Sequence[bytes]
) -> None:
    # A piece may be gone by now, and its number must not wait for another.
    file.executemany(
        """INSERT OR REPLACE INTO knowledge_vectors
        SELECT number, ?, ? FROM knowledge_chunks WHERE number = ?""",
        [(model, vector, number) for number, vector in zip(numbers, vectors, strict=True)],
    )


def delete_note(file: SqliteConnection, note: str) -> bool:
    gone = file.execute("DELETE FROM knowledge_notes WHERE id = ? RETURNING number", (note,))
    return bool(list(gone))


def delete_places(file: SqliteConnection, scope: Scope, places: Sequence[str]) -> int:
    gone = 0
    for place in places:
        gone += _delete_orphans(file, file.execute(_ELSE_THERE, (place, -1, scope.kind, scope.key)))
    return gone


def select_places(file: SqliteConnection, scope: Scope, under: str) -> dict[str, str]:
    rows = file.execute(
        """SELECT origins.place, origins.digest FROM knowledge_origins AS origins
        JOIN knowledge_notes AS notes ON notes.number = origins.note
        WHERE notes.kind = ? AND notes.key = ? AND origins.place <> ''
        AND substr(origins.place, 1, ?) = ? ORDER BY origins.place""",
        (scope.kind, scope.key, len(under), under),
    )
    return dict(rows)


def delete_expired(file: SqliteConnection, now: float) -> int:
    gone = file.execute(
        "DELETE FROM knowledge_origins WHERE expires_at <= ? RETURNING note", (now,)
    )
    return _delete_orphans(file, gone)


def _delete_orphans(file: SqliteConnection, notes: Iterable[tuple[int]]) -> int:
    """Delete those of the notes that have no source left; how many these were."""
    some = {number for (number,) in list(notes)}
    return sum(len(list(file.execute(_SWEEP, (number,)))) for number in some)
