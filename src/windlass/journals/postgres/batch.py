"""Appends as the lists of one statement: what each session holds afterwards, and where it must end.

The law: the number of statements does not grow with the group, and a session is written only if it
ends where this process believes.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from windlass.core.errors import WindlassError
from windlass.core.events import Fact
from windlass.core.session_summary import SessionSummary, advance_summary
from windlass.journals.chain import ChainLink, chain_hash, check_order
from windlass.journals.codec import FactRecord

SESSION_COLUMNS = (
    "head, session, title, created, updated, facts, runs, steps, outcome, proposed, asked"
)

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
    UPDATE {schema}.sessions AS old SET head = line.head, title = line.title,
        created = line.created, updated = line.updated, facts = line.facts, runs = line.runs,
        steps = line.steps, outcome = line.outcome, proposed = line.proposed, asked = line.asked
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


@dataclass(frozen=True, slots=True)
class PendingAppend:
    """Facts on their way, and who waits for them."""

    session: str
    facts: Sequence[Fact]
    records: Sequence[FactRecord]
    done: asyncio.Future[None]

    @property
    def size_bytes(self) -> int:
        blobs = (len(data) for record in self.records for _, data in record.blobs)
        return sum(len(record.body) for record in self.records) + sum(blobs)


class SessionEnd(NamedTuple):
    """Where a session ends."""

    last_link: ChainLink
    summary: SessionSummary


def session_end_from_row(row: Sequence[Any]) -> SessionEnd:
    """Where a session ends, from a row of COLUMNS."""
    head, *columns = row
    summary = SessionSummary(*columns)
    return SessionEnd(ChainLink(summary.facts, head), summary)


class AppendBatch:
    """The lists of one statement."""

    def __init__(self) -> None:
        self.starts: dict[str, SessionEnd] = {}
        self.ends: dict[str, SessionEnd] = {}
        self.places: dict[str, int] = {}
        self.records: list[tuple[int, int, str, bytes]] = []
        self.uses: list[tuple[int, str]] = []
        self.blobs: dict[str, bytes] = {}
        self.refused: list[tuple[PendingAppend, WindlassError]] = []

    def add_append(self, append: PendingAppend, start: SessionEnd) -> None:
        end = self.ends.get(append.session, start)
        head = end.last_link
        try:
            check_order(append.session, head.seq, append.facts)
        except WindlassError as error:
            self.refused.append((append, error))
            return
        self.starts.setdefault(append.session, start)
        place = self.places.setdefault(append.session, len(self.places) + 1)
        for record in append.records:
            head = ChainLink(head.seq + 1, chain_hash(head.hash, record.body))
            self.records.append((place, head.seq, record.body.decode(), head.hash))
            self.blobs.update(record.blobs)
            self.uses.extend((place, name) for name, _ in record.blobs)
        self.ends[append.session] = SessionEnd(head, advance_summary(end.summary, append.facts))

    def statement_arguments(self) -> list[object]:
        lines = [_session_row(self.starts[name], end) for name, end in self.ends.items()]
        columns: list[object] = [list(column) for column in zip(*lines, strict=True)]
        columns += _transpose_rows(self.records, 4)
        columns += _transpose_rows(self.uses, 2)
        return [*columns, [*self.blobs], [*self.blobs.values()]]

    def last_records(self, names: Iterable[str]) -> list[list[object]]:
        """By what the sessions would be known to hold what this group wrote."""
        heads = [(name, self.ends[name].last_link) for name in names]
        return _transpose_rows([(name, head.seq, head.hash) for name, head in heads], 3)


def _session_row(start: SessionEnd, end: SessionEnd) -> tuple[object, ...]:
    one = end.summary
    # Postgres has no NUL in its texts; the record itself has it escaped.
    title = one.title.replace("\0", "\ufffd")
    return (
        *(
            start.last_link.hash if start.last_link.seq else None,
            end.last_link.hash,
            one.session,
            title,
        ),
        *(one.created, one.updated, one.facts, one.runs, one.steps, one.outcome),
        *(one.proposed, one.asked),
    )


def _transpose_rows(rows: Iterable[Sequence[object]], count: int) -> list[list[object]]:
    columns = [list(column) for column in zip(*rows, strict=True)]
    return columns or [[] for _ in range(count)]
