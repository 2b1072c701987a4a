"""What a store of notes does inside one transaction, the same for every database.

Invariant: nothing here touches a database. Each function is a generator that yields statements and
is sent their rows, so one body serves SQLite (in a thread) and Postgres (on the event loop). Each
store has its own short loop that runs them.

Parameters are numbered `$1`, `$2` in the order of their first use. Postgres reads them as numbers,
SQLite as names in that order, and both bind the same sequence of values.
"""

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from windlass.knowledge.chunks import TextChunk
from windlass.knowledge.embeddings import TEXTS_PER_REQUEST
from windlass.knowledge.ranking import find_nearest, merge_rankings
from windlass.knowledge.store import (
    CANDIDATES_PER_FOUND,
    FoundNote,
    LabelUpdate,
    Note,
    NoteEntry,
    NoteOrigin,
    RecallQuery,
    Scope,
    Source,
    Taint,
    limit_per_note,
    make_entry,
    make_found_note,
)

T = TypeVar("T")
Row: TypeAlias = Sequence[Any]

NUMBERS_PER_STATEMENT = 500
"""SQLite and Postgres both limit the parameters of a statement."""


class SqlStatement(NamedTuple):
    """A statement and its values."""

    sql: str
    values: Sequence[object] = ()


class SqlBatch(NamedTuple):
    """A statement that is run once for each row of values; it returns no rows."""

    sql: str
    rows: Sequence[Sequence[object]]


Work: TypeAlias = Generator[SqlStatement | SqlBatch, Sequence[Row], T]
"""Statements of one transaction, and what they come to."""


class NoteChanges(NamedTuple):
    """What a correction says, and where it came from."""

    text: str
    source: Source
    title: str
    """Empty to keep the title."""
    labels: frozenset[Taint]


class SqlDialect(NamedTuple):
    """What differs between the databases: how words are indexed and searched."""

    match_words: str
    """Selects number and score of the chunks that match `$1`; ends in `AND`."""
    format_query: Callable[[list[str]], str]
    """The words to search for, as `$1` of `match_words`."""
    insert_chunk: str
    chunk_values: Callable[[int, TextChunk], Sequence[object]]
    """The values of `insert_chunk`, for the number of a note and a chunk of it."""


_MERGE_LABELS: dict[LabelUpdate, str] = {
    "keep": """untrusted = knowledge_origins.untrusted OR excluded.untrusted,
        private = knowledge_origins.private OR excluded.private""",
    "replace": "untrusted = excluded.untrusted, private = excluded.private",
}
_VECTORS = """
    SELECT vectors.chunk, vectors.vector FROM knowledge_notes AS notes
    JOIN knowledge_chunks AS chunks ON chunks.note = notes.number
    JOIN knowledge_vectors AS vectors ON vectors.chunk = chunks.number
    WHERE vectors.model = $1 AND """
_CHUNKS = """
    SELECT chunks.number, notes.number, notes.id, chunks.text, chunks.title, notes.kind, notes.key,
        notes.created
    FROM knowledge_chunks AS chunks JOIN knowledge_notes AS notes ON notes.number = chunks.note
    WHERE chunks.number IN """
_ORIGINS = """
    SELECT note, place, session, call, digest, untrusted, private, expires_at
    FROM knowledge_origins WHERE note IN """
_TEXTS = "SELECT note, text FROM knowledge_chunks WHERE note IN "
_NOTE_BY_ID = "SELECT number, kind, key, title, created FROM knowledge_notes WHERE id = $1"
_INSERT_NOTE = """
    INSERT INTO knowledge_notes (id, kind, key, title, created) VALUES ($1, $2, $3, $4, $5)
    RETURNING number"""
_INSERT_ORIGIN = """
    INSERT INTO knowledge_origins
        (note, place, session, call, digest, untrusted, private, created, expires_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
    ON CONFLICT (note, place, session, call)
    DO UPDATE SET digest = excluded.digest, expires_at = excluded.expires_at, """
_DELETE_ORIGINS = """
    DELETE FROM knowledge_origins WHERE place = $1 AND note <> $2
    AND EXISTS (SELECT 1 FROM knowledge_notes WHERE number = note AND kind = $3 AND key = $4)
    RETURNING note"""
_DELETE_ORPHANS = """
    DELETE FROM knowledge_notes WHERE number IN {}
    AND NOT EXISTS (SELECT 1 FROM knowledge_origins WHERE note = number) RETURNING number"""
_WITHOUT_VECTOR = """
    SELECT number, title, text FROM knowledge_chunks AS chunks
    WHERE number > $1 AND NOT EXISTS (
        SELECT 1 FROM knowledge_vectors WHERE chunk = chunks.number AND model = $2)
    ORDER BY number DESC LIMIT $3"""
# The chunk may have been deleted since it was embedded: then nothing is inserted.
_INSERT_VECTOR = """
    INSERT INTO knowledge_vectors
    SELECT number, $1, $2 FROM knowledge_chunks WHERE number = $3
    ON CONFLICT (chunk) DO UPDATE SET model = excluded.model, vector = excluded.vector"""
_PLACES = """
    SELECT origins.place, origins.digest FROM knowledge_origins AS origins
    JOIN knowledge_notes AS notes ON notes.number = origins.note
    WHERE notes.kind = $1 AND notes.key = $2 AND origins.place <> ''
    AND substr(origins.place, 1, $3) = $4 ORDER BY origins.place"""


def recall_notes(dialect: SqlDialect, query: RecallQuery, limit: int) -> Work[list[FoundNote]]:
    """The notes that answer a query, best first."""
    candidates = limit * CANDIDATES_PER_FOUND
    allowed, values = _restrict_notes(query)
    words = dialect.format_query(query.words)
    order = f"ORDER BY score DESC, chunks.number DESC LIMIT ${len(values) + 2}"
    sql = f"{dialect.match_words} {allowed} {order}"
    rows = yield SqlStatement(sql, [words, *values, candidates])
    by_words = [(number, score) for number, score in rows]
    by_meaning = None
    if query.vector is not None:
        rows = yield SqlStatement(_VECTORS + allowed, [query.model, *values])
        vectors = ((number, vector) for number, vector in rows)
        by_meaning = find_nearest(query.vector, vectors, candidates)
    ranking = merge_rankings(by_words, by_meaning)
    found = yield from _load_found(ranking, query.now)
    return limit_per_note(found, limit)


def _restrict_notes(query: RecallQuery) -> tuple[str, list[object]]:
    """A condition on the notes that this query may find, and its values from `$2` on."""
    names = [name for scope in query.scopes for name in (scope.kind, scope.key)]
    pairs = [f"(${number}, ${number + 1})" for number in range(2, len(names) + 2, 2)]
    now = len(names) + 2
    condition = f"""(notes.kind, notes.key) IN (VALUES {", ".join(pairs)})
    AND EXISTS (SELECT 1 FROM knowledge_origins WHERE note = notes.number
        AND (expires_at IS NULL OR expires_at > ${now}))
    AND NOT EXISTS (SELECT 1 FROM knowledge_origins WHERE note = notes.number
        AND ((untrusted AND NOT ${now + 1}) OR (private AND NOT ${now + 2})))"""  # noqa: S608 - only numbers of parameters are put in
    return condition, [*names, query.now, "untrusted" in query.taints, "private" in query.taints]


def list_notes(query: RecallQuery, beginning: str, limit: int) -> Work[list[FoundNote]]:
    """The notes that a query may find, newest first, each with its first piece of text."""
    allowed, values = _restrict_notes(query)
    last = len(values) + 2
    sql = f"""SELECT notes.number, notes.id, notes.title, notes.kind, notes.key, notes.created
    FROM knowledge_notes AS notes WHERE notes.id LIKE CAST($1 AS TEXT) AND {allowed}
    ORDER BY notes.created DESC, notes.number DESC LIMIT ${last}"""  # noqa: S608 - as above
    # Ids are hexadecimal, so a beginning that has signs of a pattern in it is no id.
    pattern = f"{beginning}%" if not beginning or beginning.isalnum() else ""
    notes = yield SqlStatement(sql, [pattern, *values, limit])
    texts: dict[int, str] = {}
    origins: dict[int, list[NoteOrigin]] = {}
    for numbers in _split_numbers(row[0] for row in notes):
        rows = yield SqlStatement(_TEXTS + _number_list(numbers) + " ORDER BY number DESC", numbers)
        texts.update((note, text) for note, text in rows)
        origins.update((yield from _load_origins(numbers)))
    return [
        make_found_note(
            (note_id, texts.get(number, ""), title, kind, key, created),
            0.0,
            origins[number],
            query.now,
        )
        for number, note_id, title, kind, key, created in notes
    ]


def _load_origins(numbers: Sequence[int]) -> Work[dict[int, list[NoteOrigin]]]:
    """The sources of the notes with these numbers, oldest first."""
    origins: defaultdict[int, list[NoteOrigin]] = defaultdict(list)
    order = " ORDER BY created, place, session, call"
    rows = yield SqlStatement(_ORIGINS + _number_list(numbers) + order, numbers)
    for note, *columns in rows:
        origins[note].append(NoteOrigin(*columns))
    return origins


def _load_found(ranking: Sequence[tuple[int, float]], now: float) -> Work[list[FoundNote]]:
    chunks: dict[int, Row] = {}
    for numbers in _split_numbers(number for number, _ in ranking):
        rows = yield SqlStatement(_CHUNKS + _number_list(numbers), numbers)
        chunks.update((row[0], row[1:]) for row in rows)
    origins: defaultdict[int, list[NoteOrigin]] = defaultdict(list)
    for numbers in _split_numbers({row[0] for row in chunks.values()}):
        origins.update((yield from _load_origins(numbers)))
    found: list[FoundNote] = []
    for number, score in ranking:
        note, *columns = chunks[number]
        found.append(make_found_note(columns, score, origins[note], now))
    return found


def insert_notes(
    dialect: SqlDialect, entries: Iterable[NoteEntry], labels: LabelUpdate, now: float
) -> Work[list[str]]:
    """Store the entries and return their ids."""
    ids: list[str] = []
    for entry in entries:
        rows = yield SqlStatement("SELECT number FROM knowledge_notes WHERE id = $1", [entry.id])
        if rows:
            number = rows[0][0]
        else:
            number = yield from _insert_note(dialect, entry, now)
        note = entry.note
        origin = (number, entry.place, entry.session, entry.call, entry.digest)
        taints = ("untrusted" in note.labels, "private" in note.labels)
        values = [*origin, *taints, now, note.expires_at]
        yield SqlStatement(_INSERT_ORIGIN + _MERGE_LABELS[labels], values)
        if labels == "replace" and entry.place:
            yield from _forget_place(entry.place, number, note.scope)
        ids.append(entry.id)
    return ids


def _insert_note(dialect: SqlDialect, entry: NoteEntry, now: float) -> Work[int]:
    scope = entry.note.scope
    rows = yield SqlStatement(_INSERT_NOTE, [entry.id, scope.kind, scope.key, entry.title, now])
    number: int = rows[0][0]
    chunks = [dialect.chunk_values(number, chunk) for chunk in entry.chunks]
    yield SqlBatch(dialect.insert_chunk, chunks)
    return number


def list_unembedded(model: str, after: int) -> Work[tuple[list[tuple[int, str]], int]]:
    """The newest chunks past a number that have no vector of the model, and the highest number."""
    rows = yield SqlStatement(_WITHOUT_VECTOR, [after, model, TEXTS_PER_REQUEST])
    missing = [(number, f"{title}\n{text}") for number, title, text in rows]
    last = yield SqlStatement("SELECT max(number) FROM knowledge_chunks")
    return missing, last[0][0] or 0


def insert_vectors(model: str, numbers: Sequence[int], vectors: Sequence[bytes]) -> Work[None]:
    """Store the vectors of chunks."""
    rows = [(model, vector, number) for number, vector in zip(numbers, vectors, strict=True)]
    yield SqlBatch(_INSERT_VECTOR, rows)


def correct_note(
    dialect: SqlDialect, note_id: str, changes: NoteChanges, now: float
) -> Work[str | None]:
    """Store a corrected note, and delete the one in whose place it is. Return its id."""
    rows = yield SqlStatement(_NOTE_BY_ID, [note_id])
    if not rows:
        return None
    number, kind, key, title, created = rows[0]
    origins = yield from _load_origins([number])
    if all(
        origin.expires_at is not None and origin.expires_at <= now for origin in origins[number]
    ):
        return None
    old = make_found_note((note_id, "", title, kind, key, created), 0.0, origins[number], now)
    note = Note(
        changes.text,
        old.scope,
        changes.source,
        changes.title or title,
        old.labels | changes.labels,
        old.expires_at,
    )
    (corrected,) = yield from insert_notes(dialect, [make_entry(note)], "keep", now)
    if corrected != note_id:
        yield from delete_note(note_id)
    return corrected


def delete_note(note_id: str) -> Work[bool]:
    """Delete a note with all its sources; whether there was one."""
    rows = yield SqlStatement(
        "DELETE FROM knowledge_notes WHERE id = $1 RETURNING number", [note_id]
    )
    return bool(rows)


def forget_places(scope: Scope, places: Sequence[str]) -> Work[int]:
    """Delete the notes that only these places hold; how many."""
    deleted = 0
    for place in places:
        # No note has the number -1: nothing of the place is kept.
        deleted += yield from _forget_place(place, -1, scope)
    return deleted


def _forget_place(place: str, kept_note: int, scope: Scope) -> Work[int]:
    """Delete what a place holds besides one note; how many notes had no other source."""
    rows = yield SqlStatement(_DELETE_ORIGINS, [place, kept_note, scope.kind, scope.key])
    return (yield from _delete_orphans(rows))


def list_places(scope: Scope, prefix: str) -> Work[dict[str, str]]:
    """The places that begin with the prefix, and the digest of what each held."""
    rows = yield SqlStatement(_PLACES, [scope.kind, scope.key, len(prefix), prefix])
    return {place: digest for place, digest in rows}  # noqa: C416 - a row need not be a pair


def delete_expired(now: float) -> Work[int]:
    """Delete the sources that have expired; how many notes had no other."""
    sql = "DELETE FROM knowledge_origins WHERE expires_at <= $1 RETURNING note"
    rows = yield SqlStatement(sql, [now])
    return (yield from _delete_orphans(rows))


def _delete_orphans(rows: Sequence[Row]) -> Work[int]:
    """Delete those of the notes that have no source left; how many these were."""
    deleted = 0
    for numbers in _split_numbers({row[0] for row in rows}):
        gone = yield SqlStatement(_DELETE_ORPHANS.format(_number_list(numbers)), numbers)
        deleted += len(gone)
    return deleted


def _split_numbers(numbers: Iterable[int]) -> list[list[int]]:
    every = list(numbers)
    starts = range(0, len(every), NUMBERS_PER_STATEMENT)
    return [every[start : start + NUMBERS_PER_STATEMENT] for start in starts]


def _number_list(numbers: Sequence[int]) -> str:
    return f"({', '.join(f'${at}' for at in range(1, len(numbers) + 1))})"
