"""The tables and statements of a store in Postgres, each inside a transaction of the caller's.

Whoever writes holds one lock until the transaction ends: notes are written seldom, and a note that
one forgets while another finds a new source for it must not get lost.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from windlass.knowledge.embeddings import TEXTS_PER_REQUEST
from windlass.knowledge.ranking import find_nearest, merge_rankings
from windlass.knowledge.search_query import space_words, tsquery_text
from windlass.knowledge.store import (
    CANDIDATES_PER_FOUND,
    FoundNote,
    KnowledgeFailed,
    LabelUpdate,
    NoteEntry,
    NoteOrigin,
    RecallQuery,
    Scope,
    limit_per_note,
    make_found_note,
)

LOCK = 0x57_4E_44_4C_4B
"""Among the advisory locks of the database: `WNDLK`."""

STEPS = (
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

_LABELS: dict[LabelUpdate, str] = {
    "kept": """untrusted = knowledge_origins.untrusted OR excluded.untrusted,
        private = knowledge_origins.private OR excluded.private""",
    "anew": "untrusted = excluded.untrusted, private = excluded.private",
}
_ALLOWED = """
    (notes.kind, notes.key) IN (SELECT * FROM unnest($2::text[], $3::text[]))
    AND EXISTS (SELECT 1 FROM knowledge_origins WHERE note = notes.number
        AND (expires_at IS NULL OR expires_at > $4))
    AND NOT EXISTS (SELECT 1 FROM knowledge_origins WHERE note = notes.number
        AND ((untrusted AND NOT $5) OR (private AND NOT $6)))"""
# A word in a title counts for more than one in the text; a long piece does not win by its length.
_MATCHES = """
    SELECT chunks.number, ts_rank('{0.4, 0.4, 0.4, 1}', chunks.words, query, 1) AS score
    FROM to_tsquery('simple', $1) AS query, knowledge_chunks AS chunks
    JOIN knowledge_notes AS notes ON notes.number = chunks.note
    WHERE chunks.words @@ query AND """
_VECTORS = """
    SELECT vectors.chunk, vectors.vector FROM knowledge_notes AS notes
    JOIN knowledge_chunks AS chunks ON chunks.note = notes.number
    JOIN knowledge_vectors AS vectors ON vectors.chunk = chunks.number
    WHERE vectors.model = $1 AND """
_CHUNKS = """
    SELECT chunks.number, notes.number, notes.id, chunks.text, chunks.title, notes.kind, notes.key,
        notes.created
    FROM knowledge_chunks AS chunks JOIN knowledge_notes AS notes ON notes.number = chunks.note
    WHERE chunks.number = ANY($1::bigint[])"""
_ORIGINS = """
    SELECT note, place, session, call, digest, untrusted, private, expires_at
    FROM knowledge_origins WHERE note = ANY($1::bigint[]) ORDER BY created, place, session, call"""
_NOTE = """
    INSERT INTO knowledge_notes (id, kind, key, title, created) VALUES ($1, $2, $3, $4, $5)
    RETURNING number"""
_PIECE = """
    INSERT INTO knowledge_chunks (note, title, text, words) VALUES ($1, $2, $3,
        setweight(to_tsvector('simple', $4), 'A') || setweight(to_tsvector('simple', $5), 'D'))"""
_ORIGIN = """
    INSERT INTO knowledge_origins
        (note, place, session, call, digest, untrusted, private, created, expires_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
    ON CONFLICT (note, place, session, call)
    DO UPDATE SET digest = excluded.digest, expires_at = excluded.expires_at, """
_ELSE_THERE = """
    DELETE FROM knowledge_origins WHERE place = $1 AND note <> $2
    AND EXISTS (SELECT 1 FROM knowledge_notes WHERE number = note AND kind = $3 AND key = $4)
    RETURNING note"""
_WITHOUT_VECTOR = """
    SELECT number, title || chr(10) || text FROM knowledge_chunks AS chunks
    WHERE number > $1 AND NOT EXISTS (
        SELECT 1 FROM knowledge_vectors WHERE chunk = chunks.number AND model = $2)
    ORDER BY number DESC LIMIT $3"""
_SWEEP = """
    DELETE FROM knowledge_notes WHERE number = ANY($1::bigint[])
    AND NOT EXISTS (SELECT 1 FROM knowledge_origins WHERE note = number) RETURNING number"""

Row = Sequence[Any]


class AsyncpgConnection(Protocol):
    """As much of asyncpg's connection as is used here."""

    async def execute(self, query: str, *args: object) -> str: ...

    async def executemany(self, command: str, args: Iterable[Sequence[object]]) -> None: ...

    async def fetch(self, query: str, *args: object) -> Sequence[Row]: ...

    async def fetchval(self, query: str, *args: object) -> Any: ...  # noqa: ANN401 - a value


async def migrate_tables(db: AsyncpgConnection) -> None:
    """Make what tables are missing; refuse those of a newer version."""
    await db.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
    version = 0
    if await db.fetchval("SELECT to_regclass('knowledge_version') IS NOT NULL"):
        version = await db.fetchval("SELECT version FROM knowledge_version")
    if version > len(STEPS):
        versions = f"its version is {version}, this one knows {len(STEPS)}"
        raise KnowledgeFailed(f"it was made by a newer Windlass; upgrade this one ({versions})")
    if version == len(STEPS):
        return
    for step in STEPS[version:]:
        await db.execute(step)
    await db.execute("CREATE TABLE IF NOT EXISTS knowledge_version (version INTEGER NOT NULL)")
    await db.execute("DELETE FROM knowledge_version")
    await db.execute("INSERT INTO knowledge_version VALUES ($1)", len(STEPS))


async def select_found(db: AsyncpgConnection, asked: RecallQuery, limit: int) -> list[FoundNote]:
    wanted = limit * CANDIDATES_PER_FOUND
    allowed = (
        [scope.kind for scope in asked.scopes],
        [scope.key for scope in asked.scopes],
        asked.now,
        *("untrusted" in asked.taints, "private" in asked.taints),
    )
    matching = f"{_MATCHES}{_ALLOWED} ORDER BY score DESC, chunks.number DESC LIMIT $7"
    rows = await db.fetch(matching, tsquery_text(asked.words), *allowed, wanted)
    words: list[tuple[int, float]] = [(number, score) for number, score in rows]
    near = None
    if asked.vector is not None:
        rows = await db.fetch(_VECTORS + _ALLOWED, asked.model, *allowed)
        near = find_nearest(asked.vector, ((number, vector) for number, vector in rows), wanted)
    return limit_per_note(await _load_found(db, merge_rankings(words, near), asked.now), limit)


async def _load_found(
    db: AsyncpgConnection, chosen: Sequence[tuple[int, float]], now: float
) -> list[FoundNote]:
    pieces = {row[0]: row[1:] for row in await db.fetch(_CHUNKS, [one for one, _ in chosen])}
    origins: defaultdict[int, list[NoteOrigin]] = defaultdict(list)
    for note, *columns in await db.fetch(_ORIGINS, [row[0] for row in pieces.values()]):
        origins[note].append(NoteOrigin(*columns))
    return [
        make_found_note(pieces[one][1:], score, origins[pieces[one][0]], now)
        for one, score in chosen
    ]


async def insert_notes(
    db: AsyncpgConnection, entries: Iterable[NoteEntry], labels: LabelUpdate, now: float
) -> list[str]:
    """Keep the entries; their ids."""
    kept: list[str] = []
    for entry in entries:
        find = "SELECT number FROM knowledge_notes WHERE id = $1"
        number: int | None = await db.fetchval(find, entry.id)
        if number is None:
            number = await _insert_note(db, entry, now)
        note, taints = entry.note, entry.note.labels
        origin = (number, entry.place, entry.session, entry.call, entry.digest)
        marks = ("untrusted" in taints, "private" in taints, now, note.expires_at)
        await db.execute(_ORIGIN + _LABELS[labels], *origin, *marks)
        if labels == "anew" and entry.place:
            scope = (note.scope.kind, note.scope.key)
            await _delete_orphans(db, await db.fetch(_ELSE_THERE, entry.place, number, *scope))
        kept.append(entry.id)
    return kept


async def _insert_note(db: AsyncpgConnection, entry: NoteEntry, now: float) -> int:
    scope = entry.note.scope
    number = await db.fetchval(_NOTE, entry.id, scope.kind, scope.key, entry.title, now)
    pieces = [
        (number, chunk.title, chunk.text, space_words(chunk.title), space_words(chunk.text))
        for chunk in entry.chunks
    ]
    await db.executemany(_PIECE, pieces)
    return number


async def select_without_vector(
    db: AsyncpgConnection, model: str, after: int
) -> tuple[list[tuple[int, str]], int]:
    """The newest pieces past a number that the model has not seen; and the last number of all."""
    missing = await db.fetch(_WITHOUT_VECTOR, after, model, TEXTS_PER_REQUEST)
    last = await db.fetchval("SELECT max(number) FROM knowledge_chunks")
    return [(number, text) for number, text in missing], last or 0


async def insert_vectors(
    db: AsyncpgConnection, model: str, numbers: Sequence[int], vectors: Sequence[bytes]
) -> None:
    # A piece may be gone by now.
    await db.executemany(
        """INSERT INTO knowledge_vectors
        SELECT number, $1, $2 FROM knowledge_chunks WHERE number = $3
        ON CONFLICT (chunk) DO UPDATE SET model = excluded.model, vector = excluded.vector""",
        [(model, vector, number) for number, vector in zip(numbers, vectors, strict=True)],
    )


async def delete_note(db: AsyncpgConnection, note: str) -> bool:
    gone = await db.fetch("DELETE FROM knowledge_notes WHERE id = $1 RETURNING number", note)
    return bool(gone)


async def delete_places(db: AsyncpgConnection, scope: Scope, places: Sequence[str]) -> int:
    gone = 0
    for place in places:
        gone += await _delete_orphans(
            db, await db.fetch(_ELSE_THERE, place, -1, scope.kind, scope.key)
        )
    return gone


async def select_places(db: AsyncpgConnection, scope: Scope, under: str) -> dict[str, str]:
    rows = await db.fetch(
        """SELECT origins.place, origins.digest FROM knowledge_origins AS origins
        JOIN knowledge_notes AS notes ON notes.number = origins.note
        WHERE notes.kind = $1 AND notes.key = $2 AND origins.place <> ''
        AND starts_with(origins.place, $3) ORDER BY origins.place""",
        scope.kind,
        scope.key,
        under,
    )
    return {place: digest for place, digest in rows}  # noqa: C416 - a row is no pair to a reader


async def delete_expired(db: AsyncpgConnection, now: float) -> int:
    gone = "DELETE FROM knowledge_origins WHERE expires_at <= $1 RETURNING note"
    return await _delete_orphans(db, await db.fetch(gone, now))


async def _delete_orphans(db: AsyncpgConnection, notes: Iterable[Row]) -> int:
    """Delete those of the notes that have no source left; how many these were."""
    return len(await db.fetch(_SWEEP, [row[0] for row in notes]))
