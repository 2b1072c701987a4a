"""Many appends as the arguments of one statement.

The law: the number of statements does not grow with the number of appends, and a session is written
only if it ends where this process believes it does.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from windlass.core.errors import WindlassError
from windlass.journals.stored_journal import (
    CHANGING_COLUMNS,
    SESSION_COLUMNS,
    PendingAppend,
    SessionEnd,
)

# $1 to $12 are the sessions: the hash that each must end with (null for a new one) and its new
# columns. $13 to $16 are the records, $17 and $18 which session uses which blob, $19 and $20 the
# blobs, $21 the lock of the blobs and $22 the channel of notifications. `place` is the position of
# a session in its list. The statement returns the places of the sessions that were written.
APPEND_SQL = """
WITH line AS MATERIALIZED (
    SELECT * FROM unnest(
        $1::bytea[], $2::bytea[], $3::text[], $4::text[], $5::float8[], $6::float8[],
        $7::bigint[], $8::bigint[], $9::bigint[], $10::text[], $11::bigint[], $12::bigint[]
    ) WITH ORDINALITY AS line (old, {columns}, place)
), made AS (
    INSERT INTO {schema}.sessions ({columns})
    SELECT {columns} FROM line WHERE old IS NULL ORDER BY session
    ON CONFLICT (session) DO NOTHING RETURNING number, session
), moved AS (
    UPDATE {schema}.sessions AS old SET {updates}
    FROM line WHERE old.session = line.session AND old.head = line.old
    RETURNING old.number, line.place
), kept AS MATERIALIZED (
    SELECT number, place FROM moved
    UNION ALL SELECT number, place FROM made JOIN line USING (session)
), written AS (
    INSERT INTO {schema}.records (number, seq, body, hash)
    SELECT number, seq, body, hash
    FROM unnest($13::bigint[], $14::bigint[], $15::text[], $16::bytea[])
        AS record (place, seq, body, hash) JOIN kept USING (place)
), wanted AS MATERIALIZED (
    SELECT DISTINCT number, hash
    FROM unnest($17::bigint[], $18::text[]) AS used (place, hash) JOIN kept USING (place)
), used AS (
    INSERT INTO {schema}.uses (number, hash) SELECT number, hash FROM wanted
    ON CONFLICT DO NOTHING
), guard AS MATERIALIZED (
    SELECT pg_advisory_xact_lock_shared($21) FROM (SELECT FROM wanted LIMIT 1) AS any_blob
), stored AS (
    INSERT INTO {schema}.blobs (hash, data)
    SELECT hash, data FROM guard, unnest($19::text[], $20::bytea[]) AS blob (hash, data)
    WHERE hash IN (SELECT hash FROM wanted) ORDER BY hash
    ON CONFLICT DO NOTHING
)
SELECT place, pg_notify($22, encode(sha256(convert_to(session, 'UTF8')), 'hex'))
FROM kept JOIN line USING (place)
"""
FIND_SESSIONS_SQL = "SELECT {columns} FROM {schema}.sessions WHERE session = ANY ($1::text[])"
FIND_OWN_RECORDS_SQL = """
SELECT session FROM unnest($1::text[], $2::bigint[], $3::bytea[]) AS ours (session, seq, hash)
JOIN {schema}.sessions USING (session) JOIN {schema}.records USING (number, seq, hash)
"""
_UPDATES = ", ".join(f"{column} = line.{column}" for column in CHANGING_COLUMNS)


def format_sql(template: str, schema: str) -> str:
    """Return one of the statements above for the quoted name of a schema."""
    return template.format(columns=SESSION_COLUMNS, updates=_UPDATES, schema=schema)


class AppendBatch:
    """The appends that go into one statement."""

    def __init__(self) -> None:
        self.starts: dict[str, SessionEnd] = {}
        """Where each session ends before the statement; the database compares."""
        self.ends: dict[str, SessionEnd] = {}
        """Where each session ends after the statement."""
        self.places: dict[str, int] = {}
        self.records: list[tuple[int, int, str, bytes]] = []
        self.uses: list[tuple[int, str]] = []
        self.blobs: dict[str, bytes] = {}
        self.refused: list[tuple[PendingAppend, WindlassError]] = []

    def add_append(self, append: PendingAppend, start: SessionEnd) -> None:
        """Add an append to a session that ended at `start` before this batch, or refuse it."""
        try:
            end, rows = self.ends.get(append.session, start).extend(append)
        except WindlassError as error:
            self.refused.append((append, error))
            return
        self.starts.setdefault(append.session, start)
        place = self.places.setdefault(append.session, len(self.places) + 1)
        self.records += ((place, seq, body.decode(), chained) for seq, body, chained in rows)
        for record in append.records:
            self.blobs.update(record.blobs)
            self.uses.extend((place, name) for name, _ in record.blobs)
        self.ends[append.session] = end

    def statement_arguments(self) -> list[object]:
        """Return $1 to $20 of APPEND_SQL."""
        rows = [_session_row(self.starts[name], end) for name, end in self.ends.items()]
        columns: list[object] = [list(column) for column in zip(*rows, strict=True)]
        columns += _transpose_rows(self.records, 4)
        columns += _transpose_rows(self.uses, 2)
        return [*columns, [*self.blobs], [*self.blobs.values()]]

    def last_records(self, names: Iterable[str]) -> list[list[object]]:
        """Return the arguments of FIND_OWN_RECORDS_SQL for these sessions.

        The hash of the last record proves that a session contains everything of this batch.
        """
        links = [(name, self.ends[name].last_link) for name in names]
        return _transpose_rows([(name, link.seq, link.hash) for name, link in links], 3)


def _session_row(start: SessionEnd, end: SessionEnd) -> tuple[object, ...]:
    old_head = start.last_link.hash if start.last_link.seq else None
    if "\0" in end.summary.title:
        # Postgres texts cannot contain NUL. In the records it is escaped, so only the title has it.
        title = end.summary.title.replace("\0", "\ufffd")
        end = end._replace(summary=replace(end.summary, title=title))
    return (old_head, *end.to_row())


def _transpose_rows(rows: Iterable[Sequence[object]], count: int) -> list[list[object]]:
    """Return the columns of the rows; `count` empty ones if there are no rows."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    return columns or [[] for _ in range(count)]
