"""Many appends as the arguments of one statement.

Invariant: the number of statements does not grow with the number of appends, and a session is
written only if it ends where this process believes it does.
"""

from collections.abc import Callable, Iterable, Sequence

from windlass.core.errors import WindlassError
from windlass.core.events import Fact
from windlass.core.fold.control import touches_questions
from windlass.journals.postgres.history import TIMELINE
from windlass.journals.session_rows import (
    CHANGING_COLUMNS,
    SESSION_COLUMNS,
    PendingAppend,
    SessionEnd,
)

# $1 to $29 are the sessions: the hash that each must end with (null for a new one), its new
# columns, the last messages that its facts carry, and the process and epoch of the writer's lease
# (null without one). $30 to $33 are the records, $34 and $35 which session uses which blob, $36 and
# $37 the blobs, $38 the lock of the blobs, and $39 the timeline of the server that granted the
# leases: those of another one are void. `place` is the position of a session in its list.
# The statement returns the places of the sessions that were written, and whether a process waits
# for them. A session whose row names another process or epoch than the writer's is not written.
APPEND_SQL = """
WITH line AS MATERIALIZED (
    SELECT * FROM unnest(
        $1::bytea[], $2::bytea[], $3::text[], $4::bigint[], $5::bigint[], $6::text[], $7::text[],
        $8::float8[], $9::text[], $10::float8[], $11::bigint[], $12::text[], $13::text[],
        $14::text[], $15::text[], $16::text[], $17::boolean[], $18::float8[], $19::float8[],
        $20::bigint[], $21::bigint[], $22::bigint[], $23::numeric[], $24::bigint[], $25::numeric[],
        $26::bigint[], $27::bigint[], $28::text[], $29::bigint[]
    ) WITH ORDINALITY AS line (old, {columns}, mail_taken, prompts_taken, worker, epoch, place)
), made AS (
    INSERT INTO {schema}.sessions ({columns}, mail_taken, prompts_taken)
    SELECT {columns}, mail_taken, prompts_taken FROM line WHERE old IS NULL AND worker IS NULL
    ORDER BY session
    ON CONFLICT (session) DO NOTHING RETURNING number, session
), moved AS (
    UPDATE {schema}.sessions AS old SET {updates},
        mail_taken = greatest(old.mail_taken, line.mail_taken),
        prompts_taken = greatest(old.prompts_taken, line.prompts_taken)
    FROM line WHERE old.session = line.session AND old.head = line.old
        AND old.worker IS NOT DISTINCT FROM line.worker
        AND (line.worker IS NULL OR old.epoch = line.epoch AND $39 = {timeline})
    RETURNING old.number, line.place, coalesce(old.waited > clock_timestamp(), false) AS is_waited
), kept AS MATERIALIZED (
    SELECT number, place, is_waited FROM moved
    UNION ALL SELECT number, place, false FROM made JOIN line USING (session)
), written AS (
    INSERT INTO {schema}.records (number, seq, body, hash)
    SELECT number, seq, body, hash
    FROM unnest($30::bigint[], $31::bigint[], $32::text[], $33::bytea[])
        AS record (place, seq, body, hash) JOIN kept USING (place)
), wanted AS MATERIALIZED (
    SELECT DISTINCT number, hash
    FROM unnest($34::bigint[], $35::text[]) AS used (place, hash) JOIN kept USING (place)
), used AS (
    INSERT INTO {schema}.uses (number, hash) SELECT number, hash FROM wanted
    ON CONFLICT DO NOTHING
), guard AS MATERIALIZED (
    SELECT pg_advisory_xact_lock_shared($38) FROM (SELECT FROM wanted LIMIT 1) AS any_blob
), stored AS (
    INSERT INTO {schema}.blobs (hash, data)
    SELECT hash, data FROM guard, unnest($36::text[], $37::bytea[]) AS blob (hash, data)
    WHERE hash IN (SELECT hash FROM wanted) ORDER BY hash
    ON CONFLICT DO NOTHING
)
SELECT place, is_waited FROM kept
"""
FIND_SESSIONS_SQL = """
SELECT {columns}, number FROM {schema}.sessions WHERE session = ANY ($1::text[])
"""
FIND_OWN_RECORDS_SQL = """
SELECT session FROM unnest($1::text[], $2::bigint[], $3::bytea[]) AS ours (session, seq, hash)
JOIN {schema}.sessions USING (session) JOIN {schema}.records USING (number, seq, hash)
"""
_UPDATES = ", ".join(f"{column} = line.{column}" for column in CHANGING_COLUMNS)


def format_sql(template: str, schema: str) -> str:
    """Return one of the statements above for the quoted name of a schema."""
    return template.format(
        columns=SESSION_COLUMNS, updates=_UPDATES, schema=schema, timeline=TIMELINE
    )


FindClaim = Callable[[str], tuple[str, int] | None]
"""Returns the process and the epoch with which this process has a session; None if it has not."""


class AppendBatch:
    """The appends that go into one statement."""

    def __init__(self, find_claim: FindClaim, timeline: str = "") -> None:
        self._find_claim = find_claim
        self.timeline = timeline
        """Of the server that granted the leases."""
        self.starts: dict[str, SessionEnd] = {}
        """Where each session ends before the statement; the database compares."""
        self.ends: dict[str, SessionEnd] = {}
        """Where each session ends after the statement."""
        self.places: dict[str, int] = {}
        self.records: list[tuple[int, int, str, bytes]] = []
        self.uses: list[tuple[int, str]] = []
        self.blobs: dict[str, bytes] = {}
        self.asking: dict[str, list[Fact]] = {}
        """Facts that may open or settle questions, by session."""
        self.refused: list[tuple[PendingAppend, WindlassError]] = []

    def add_append(self, append: PendingAppend, start: SessionEnd) -> None:
        """Add an append to a session that ended at `start` before this batch, or refuse it."""
        before = self.ends.get(append.session, start)
        try:
            end, rows = before.extend(append)
        except WindlassError as error:
            self.refused.append((append, error))
            return
        self.starts.setdefault(append.session, start)
        place = self.places.setdefault(append.session, len(self.places) + 1)
        self.records += ((place, seq, body.decode(), chained) for seq, body, chained in rows)
        if touches_questions(append.facts, has_open=before.summary.asked > 0):
            self.asking.setdefault(append.session, []).extend(append.facts)
        for record in append.records:
            self.blobs.update(record.blobs)
            self.uses.extend((place, name) for name, _ in record.blobs)
        self.ends[append.session] = end

    def statement_arguments(self) -> list[object]:
        """Return $1 to $37 of APPEND_SQL."""
        rows = [
            (*_session_row(self.starts[name], end), *(self._find_claim(name) or (None, None)))
            for name, end in self.ends.items()
        ]
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
    old_head = None if start.row is None else start.last_link.hash
    row = [to_column(value) for value in end.to_row()]
    return (old_head, *row, end.mail.control.taken, end.mail.prompts.taken)


def to_column(value: object) -> object:
    """Return a value of a row as Postgres takes it."""
    # Postgres texts cannot contain NUL. In the records it is escaped, so only the summary has it.
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value


def _transpose_rows(rows: Iterable[Sequence[object]], count: int) -> list[list[object]]:
    """Return the columns of the rows; `count` empty ones without rows."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    return columns or [[] for _ in range(count)]
