"""Leases in the rows of sessions: which process has a session, and since which epoch.

Invariant: the row of the session decides. A process has a session while the row names it with the
epoch that its claim returned, and each append checks both in its own statement (`batch.py`). Every
claim raises the epoch, so it is a fencing token. Each statement may be run again when its
connection breaks.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from windlass.journals.postgres.batch import to_column
from windlass.journals.postgres.config import PostgresConfig, PostgresConnection
from windlass.journals.postgres.history import quiet_sql
from windlass.journals.postgres.worker_rows import driven_sql
from windlass.journals.session_rows import SESSION_COLUMNS, SessionEnd

NOW_MICROS = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_VALUES_FROM = 4
"""The number of the first value of a new row in `_CLAIM`."""
_CLAIM = f"""
WITH moved AS (
    UPDATE {{0}}.sessions SET worker = $2, epoch = greatest(epoch + 1, {NOW_MICROS})
    WHERE session = $1 AND NOT {{quiet}} AND (worker IS NULL OR worker IN ($2, $3)
        OR EXISTS (SELECT FROM {{0}}.workers WHERE id = sessions.worker) AND NOT {{driven}})
    RETURNING epoch, {SESSION_COLUMNS}
), made AS (
    INSERT INTO {{0}}.sessions ({SESSION_COLUMNS}, worker, epoch)
    SELECT {{values}}, $2, {NOW_MICROS}
    WHERE NOT EXISTS (SELECT FROM {{0}}.sessions WHERE session = $1)
    ON CONFLICT (session) DO NOTHING RETURNING epoch, {SESSION_COLUMNS}
)
SELECT * FROM moved UNION ALL SELECT * FROM made
"""  # noqa: S608 - our own names


class KeptLease(Protocol):
    """A lease of this process."""

    worker: str
    epoch: int
    is_lost: bool

    def warn(self) -> None: ...


class ClaimedSession(NamedTuple):
    """A session that a claim has taken."""

    epoch: int
    row: Sequence[Any]
    """The values of SESSION_COLUMNS."""


class SessionOwner(NamedTuple):
    """The process that the row of a session names."""

    worker: str
    has_row: bool
    is_living: bool


class LeaseRows:
    """Statements for leases, in one schema."""

    def __init__(self, config: PostgresConfig) -> None:
        self._config = config
        self._driven = driven_sql(config)
        count = len(SESSION_COLUMNS.split(", "))
        values = ", ".join(f"${at}" for at in range(_VALUES_FROM, _VALUES_FROM + count))
        self._claim = _CLAIM.format(
            config.quoted_schema, driven=self._driven, values=values, quiet=quiet_sql(config)
        )

    async def claim(
        self, server: PostgresConnection, session: str, worker: str, missing: str | None = None
    ) -> ClaimedSession | None:
        """Take a session that no living process has; None if it is taken.

        `missing` is a process that was found to have no row, if the session may be taken from it.
        """
        new = [to_column(value) for value in SessionEnd.of_mailbox(session).to_row()]
        row = await server.fetchrow(self._claim, session, worker, missing, *new)
        return None if row is None else ClaimedSession(row[0], row[1:])

    async def find_owner(self, server: PostgresConnection, session: str) -> SessionOwner | None:
        """Return the process that a session belongs to; None if it is free or not there."""
        query = """SELECT worker, EXISTS (SELECT FROM {0}.workers WHERE id = worker), {driven}
            FROM {0}.sessions WHERE session = $1 AND worker IS NOT NULL"""
        row = await server.fetchrow(self._format_sql(query), session)
        return None if row is None else SessionOwner(*row)

    async def find_driven(
        self, server: PostgresConnection, sessions: Sequence[str]
    ) -> dict[str, str]:
        """Return those of these sessions that a living process may have, with that process."""
        query = """SELECT session, worker FROM {0}.sessions
            WHERE session = ANY ($1::text[]) AND {driven}"""
        return {row[0]: row[1] for row in await server.fetch(self._format_sql(query), sessions)}

    async def find_kept(
        self, server: PostgresConnection, worker: str, epochs: Mapping[str, int]
    ) -> set[str]:
        """Return those of the sessions that a process still has, each with its epoch."""
        query = """SELECT session FROM unnest($2::text[], $3::bigint[]) AS held (session, epoch)
            JOIN {0}.sessions USING (session, epoch) WHERE worker = $1"""
        found = await server.fetch(self._format_sql(query), worker, [*epochs], [*epochs.values()])
        return {row[0] for row in found}

    async def free(
        self, server: PostgresConnection, worker: str, epochs: Mapping[str, int]
    ) -> None:
        """Free sessions that a process has, each with its epoch. Others stay as they are."""
        query = """UPDATE {0}.sessions SET worker = NULL
            FROM unnest($2::text[], $3::bigint[]) AS freed (name, token)
            WHERE session = name AND worker = $1 AND epoch = token RETURNING session, facts"""
        freed = await server.fetch(self._format_sql(query), worker, [*epochs], [*epochs.values()])
        empty = [row[0] for row in freed if not row[1]]
        if empty:
            # A claim made these rows, and neither facts nor mail came.
            query = """DELETE FROM {0}.sessions WHERE session = ANY ($1::text[])
                AND worker IS NULL AND facts = 0 AND mail_last = 0 AND prompts_last = 0"""
            await server.execute(self._format_sql(query), empty)

    def _format_sql(self, text: str) -> str:
        return text.format(self._config.quoted_schema, driven=self._driven)
