"""What is asked of a Postgres journal, apart from appending.

Each of these may be asked again when its connection broke: the answer is the same, or nearly so.
"""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from windlass.core.events import Fact
from windlass.core.session_summary import SessionSummary
from windlass.journals.budget_math import BudgetSum
from windlass.journals.chain import ChainLink, RecordProblem, RecordRow, chain_root, walk_chain
from windlass.journals.codec import UnreadableRecord, blob_name
from windlass.journals.postgres.batch import SESSION_COLUMNS, session_end_from_row
from windlass.journals.postgres.config import PostgresConfig, PostgresConnection

_LIST_SESSIONS = """
SELECT {columns} FROM {}.sessions
WHERE position(lower($1) IN lower(session || chr(10) || title)) > 0 {which}
ORDER BY updated DESC LIMIT $2
"""
_UNFINISHED_ONLY = "AND outcome IS NULL"
_BLOBS_PREFIX = re.compile(r'\{"v":\d+,"blobs":(\[\[.*?\]\])')
_BLOB_HASH = re.compile(r'"([0-9a-f]{64})"')


class StoredSession(NamedTuple):
    """A session, or the rest of it, as it was at one moment."""

    end: Sequence[Any]
    """A row of COLUMNS."""
    start: ChainLink
    records: Sequence[Sequence[Any]]
    blobs: Mapping[str, bytes]

    def walk_records(self) -> list[Fact | RecordProblem]:
        """The facts, each checked; a problem in place of each that is not as it was."""
        rows: list[RecordRow] = [(seq, body.encode(), stored) for seq, body, stored in self.records]
        return list(
            walk_chain(rows, self.start, session_end_from_row(self.end).last_link, self._fetch_blob)
        )

    def _fetch_blob(self, name: str) -> bytes:
        data = self.blobs.get(name)
        if data is None:
            raise UnreadableRecord(f"its attachment {name} is missing")
        if blob_name(data) != name:
            raise UnreadableRecord(f"its attachment {name} was changed")
        return data


class PostgresQueries:
    """The statements, for the schema of a journal."""

    def __init__(self, config: PostgresConfig) -> None:
        self._config = config

    async def read_session(
        self, server: PostgresConnection, session: str, after: int
    ) -> StoredSession | None:
        """The records past a number; None if there is nothing to read."""
        async with server.transaction(isolation="repeatable_read", readonly=True):
            query = self._format_sql("SELECT number, {columns} FROM {}.sessions WHERE session = $1")
            row = await server.fetchrow(query, session)
            if row is None or after >= session_end_from_row(row[1:]).last_link.seq:
                return None
            start = chain_root(session)
            if after > 0:
                query = self._format_sql(
                    "SELECT hash FROM {}.records WHERE number = $1 AND seq = $2"
                )
                start = ChainLink(after, await server.fetchval(query, row[0], after) or b"")
            query = self._format_sql(
                """SELECT seq, body, hash FROM {}.records
                WHERE number = $1 AND seq > $2 ORDER BY seq"""
            )
            records = await server.fetch(query, row[0], start.seq)
            return StoredSession(row[1:], start, records, await self._fetch_blobs(server, records))

    async def _fetch_blobs(
        self, server: PostgresConnection, records: Sequence[Sequence[Any]]
    ) -> dict[str, bytes]:
        found = (_BLOBS_PREFIX.match(record[1]) for record in records)
        names = {name for one in found if one for name in _BLOB_HASH.findall(one[1])}
        if not names:
            return {}
        query = self._format_sql("SELECT hash, data FROM {}.blobs WHERE hash = ANY ($1::text[])")
        return {row[0]: row[1] for row in await server.fetch(query, [*names])}

    async def last_seq(self, server: PostgresConnection, session: str) -> int:
        """The number of the last record."""
        query = self._format_sql("SELECT facts FROM {}.sessions WHERE session = $1")
        return await server.fetchval(query, session) or 0

    async def list_sessions(
        self, server: PostgresConnection, query: str, limit: int, *, unfinished: bool
    ) -> list[SessionSummary]:
        which = _UNFINISHED_ONLY if unfinished else ""
        rows = await server.fetch(self._format_sql(_LIST_SESSIONS, which), query, limit)
        return [session_end_from_row(row).summary for row in rows]

    async def list_ended(self, server: PostgresConnection, before: float) -> list[str]:
        """The sessions that ended and were not touched since."""
        query = "SELECT session FROM {}.sessions WHERE updated < $1 AND outcome IS NOT NULL"
        return [row[0] for row in await server.fetch(self._format_sql(query), before)]

    async def delete_sessions(
        self, server: PostgresConnection, names: Sequence[str], before: float | None = None
    ) -> tuple[int, int]:
        """Delete those that nobody drives; how many are gone, and how many are driven."""
        keys = [self._config.lock_key("lease", name) for name in names]
        async with server.transaction():
            free = await server.fetch(
                """SELECT session FROM unnest($1::text[], $2::bigint[]) AS asked (session, key)
                WHERE pg_try_advisory_xact_lock(key)""",
                names,
                keys,
            )
            rows = await server.fetch(
                self._format_sql(
                    """SELECT number FROM {}.sessions WHERE session = ANY ($1::text[])
                    AND ($2::float8 IS NULL OR updated < $2 AND outcome IS NOT NULL)
                    ORDER BY session FOR UPDATE"""
                ),
                [row[0] for row in free],
                before,
            )
            if rows:
                await self._delete_rows(server, [row[0] for row in rows])
        return len(rows), len(names) - len(free)

    async def _delete_rows(self, server: PostgresConnection, numbers: Sequence[int]) -> None:
        # An append may be about to use what we are about to take for unused.
        await server.fetchval("SELECT pg_advisory_xact_lock($1)", self._config.lock_key("blobs"))
        for statement in (
            """DELETE FROM {0}.shares USING {0}.sessions
            WHERE shares.session = sessions.session AND number = ANY ($1::bigint[])""",
            "DELETE FROM {0}.records WHERE number = ANY ($1::bigint[])",
            """DELETE FROM {0}.blobs
            WHERE hash IN (SELECT hash FROM {0}.uses WHERE number = ANY ($1::bigint[]))
                AND NOT EXISTS (SELECT FROM {0}.uses
                    WHERE uses.hash = blobs.hash AND number <> ALL ($1::bigint[]))""",
            "DELETE FROM {0}.uses WHERE number = ANY ($1::bigint[])",
            "DELETE FROM {0}.sessions WHERE number = ANY ($1::bigint[])",
        ):
            await server.execute(self._format_sql(statement), numbers)

    async def keep_blob(
        self, server: PostgresConnection, session: str, name: str, data: bytes
    ) -> bool:
        """Keep the data for a session; whether there is one."""
        async with server.transaction():
            query = "SELECT number FROM {}.sessions WHERE session = $1 FOR KEY SHARE"
            number = await server.fetchval(self._format_sql(query), session)
            if number is None:
                return False
            lock = "SELECT pg_advisory_xact_lock_shared($1)"
            await server.fetchval(lock, self._config.lock_key("blobs"))
            query = "INSERT INTO {}.blobs VALUES ($1, $2) ON CONFLICT DO NOTHING"
            await server.execute(self._format_sql(query), name, data)
            query = "INSERT INTO {}.uses (number, hash) VALUES ($1, $2) ON CONFLICT DO NOTHING"
            await server.execute(self._format_sql(query), number, name)
        return True

    async def fetch_blob(
        self, server: PostgresConnection, session: str, prefix: str
    ) -> bytes | None:
        query = """SELECT data FROM {0}.sessions JOIN {0}.uses USING (number)
            JOIN {0}.blobs USING (hash) WHERE session = $1 AND starts_with(hash, $2) LIMIT 1"""
        return await server.fetchval(self._format_sql(query), session, prefix)

    async def change_share(self, server: PostgresConnection, *arguments: object) -> BudgetSum:
        """Change the share of a run; what it is now."""
        query = "SELECT * FROM {}.share($1, $2, $3, $4, $5, $6, $7, $8, $9)"
        return _sum_from_row(await server.fetchrow(self._format_sql(query), *arguments))

    async def promised_sum(self, server: PostgresConnection, budget: str, period: str) -> BudgetSum:
        """What is promised of a budget in a window."""
        query = "SELECT usd, tokens FROM {}.pools WHERE budget = $1 AND period = $2"
        return _sum_from_row(await server.fetchrow(self._format_sql(query), budget, period))

    def _format_sql(self, text: str, which: str = "") -> str:
        return text.format(self._config.quoted_schema, columns=SESSION_COLUMNS, which=which)


def _sum_from_row(row: Sequence[Any] | None) -> BudgetSum:
    return BudgetSum(Decimal(row[0]), int(row[1])) if row else BudgetSum()
