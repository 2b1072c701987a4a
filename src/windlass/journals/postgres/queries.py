"""What is asked of a Postgres journal, apart from appending.

Each of these may be asked again when its connection broke: the answer is the same, or nearly so.
"""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from windlass.core.events import Fact
from windlass.journals.budget_math import Sum
from windlass.journals.chain import Link, Problem, Row, root, walk
from windlass.journals.codec import Unreadable, blob_name
from windlass.journals.postgres.batch import COLUMNS, end_from
from windlass.journals.postgres.config import Connection, Place
from windlass.journals.summary import Summary

_LISTING = """
SELECT {columns} FROM {}.sessions
WHERE position(lower($1) IN lower(session || chr(10) || title)) > 0 {which}
ORDER BY updated DESC LIMIT $2
"""
_OPEN = "AND outcome IS NULL"
_ENVELOPE = re.compile(r'\{"v":\d+,"blobs":(\[\[.*?\]\])')
_HASH = re.compile(r'"([0-9a-f]{64})"')


class Found(NamedTuple):
    """A session, or the rest of it, as it was at one moment."""

    end: Sequence[Any]
    """A row of COLUMNS."""
    start: Link
    records: Sequence[Sequence[Any]]
    blobs: Mapping[str, bytes]

    def walk(self) -> list[Fact | Problem]:
        """The facts, each checked; a problem in place of each that is not as it was."""
        rows: list[Row] = [(seq, body.encode(), stored) for seq, body, stored in self.records]
        return list(walk(rows, self.start, end_from(self.end).head, self._fetch))

    def _fetch(self, name: str) -> bytes:
        data = self.blobs.get(name)
        if data is None:
            raise Unreadable(f"its attachment {name} is missing")
        if blob_name(data) != name:
            raise Unreadable(f"its attachment {name} was changed")
        return data


class Queries:
    """The statements, for the schema of a journal."""

    def __init__(self, place: Place) -> None:
        self._place = place

    async def read(self, server: Connection, session: str, after: int) -> Found | None:
        """The records past a number; None if there is nothing to read."""
        async with server.transaction(isolation="repeatable_read", readonly=True):
            query = self._sql("SELECT number, {columns} FROM {}.sessions WHERE session = $1")
            row = await server.fetchrow(query, session)
            if row is None or after >= end_from(row[1:]).head.seq:
                return None
            start = root(session)
            if after > 0:
                query = self._sql("SELECT hash FROM {}.records WHERE number = $1 AND seq = $2")
                start = Link(after, await server.fetchval(query, row[0], after) or b"")
            query = self._sql(
                """SELECT seq, body, hash FROM {}.records
                WHERE number = $1 AND seq > $2 ORDER BY seq"""
            )
            records = await server.fetch(query, row[0], start.seq)
            return Found(row[1:], start, records, await self._blobs(server, records))

    async def _blobs(
        self, server: Connection, records: Sequence[Sequence[Any]]
    ) -> dict[str, bytes]:
        found = (_ENVELOPE.match(record[1]) for record in records)
        names = {name for one in found if one for name in _HASH.findall(one[1])}
        if not names:
            return {}
        query = self._sql("SELECT hash, data FROM {}.blobs WHERE hash = ANY ($1::text[])")
        return {row[0]: row[1] for row in await server.fetch(query, [*names])}

    async def last(self, server: Connection, session: str) -> int:
        """The number of the last record."""
        query = self._sql("SELECT facts FROM {}.sessions WHERE session = $1")
        return await server.fetchval(query, session) or 0

    async def sessions(
        self, server: Connection, query: str, limit: int, *, unfinished: bool
    ) -> list[Summary]:
        which = _OPEN if unfinished else ""
        rows = await server.fetch(self._sql(_LISTING, which), query, limit)
        return [end_from(row).summary for row in rows]

    async def ended(self, server: Connection, before: float) -> list[str]:
        """The sessions that ended and were not touched since."""
        query = "SELECT session FROM {}.sessions WHERE updated < $1 AND outcome IS NOT NULL"
        return [row[0] for row in await server.fetch(self._sql(query), before)]

    async def delete(
        self, server: Connection, names: Sequence[str], before: float | None = None
    ) -> tuple[int, int]:
        """Delete those that nobody drives; how many are gone, and how many are driven."""
        keys = [self._place.key("lease", name) for name in names]
        async with server.transaction():
            free = await server.fetch(
                """SELECT session FROM unnest($1::text[], $2::bigint[]) AS asked (session, key)
                WHERE pg_try_advisory_xact_lock(key)""",
                names,
                keys,
            )
            rows = await server.fetch(
                self._sql(
                    """SELECT number FROM {}.sessions WHERE session = ANY ($1::text[])
                    AND ($2::float8 IS NULL OR updated < $2 AND outcome IS NOT NULL)
                    ORDER BY session FOR UPDATE"""
                ),
                [row[0] for row in free],
                before,
            )
            if rows:
                await self._delete(server, [row[0] for row in rows])
        return len(rows), len(names) - len(free)

    async def _delete(self, server: Connection, numbers: Sequence[int]) -> None:
        # An append may be about to use what we are about to take for unused.
        await server.fetchval("SELECT pg_advisory_xact_lock($1)", self._place.key("blobs"))
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
            await server.execute(self._sql(statement), numbers)

    async def keep(self, server: Connection, session: str, name: str, data: bytes) -> bool:
        """Keep the data for a session; whether there is one."""
        async with server.transaction():
            query = "SELECT number FROM {}.sessions WHERE session = $1 FOR KEY SHARE"
            number = await server.fetchval(self._sql(query), session)
            if number is None:
                return False
            lock = "SELECT pg_advisory_xact_lock_shared($1)"
            await server.fetchval(lock, self._place.key("blobs"))
            query = "INSERT INTO {}.blobs VALUES ($1, $2) ON CONFLICT DO NOTHING"
            await server.execute(self._sql(query), name, data)
            query = "INSERT INTO {}.uses (number, hash) VALUES ($1, $2) ON CONFLICT DO NOTHING"
            await server.execute(self._sql(query), number, name)
        return True

    async def fetch(self, server: Connection, session: str, prefix: str) -> bytes | None:
        query = """SELECT data FROM {0}.sessions JOIN {0}.uses USING (number)
            JOIN {0}.blobs USING (hash) WHERE session = $1 AND starts_with(hash, $2) LIMIT 1"""
        return await server.fetchval(self._sql(query), session, prefix)

    async def share(self, server: Connection, *arguments: object) -> Sum:
        """Change the share of a run; what it is now."""
        query = "SELECT * FROM {}.share($1, $2, $3, $4, $5, $6, $7, $8, $9)"
        return _sum(await server.fetchrow(self._sql(query), *arguments))

    async def pool(self, server: Connection, budget: str, period: str) -> Sum:
        """What is promised of a budget in a window."""
        query = "SELECT usd, tokens FROM {}.pools WHERE budget = $1 AND period = $2"
        return _sum(await server.fetchrow(self._sql(query), budget, period))

    def _sql(self, text: str, which: str = "") -> str:
        return text.format(self._place.quoted, columns=COLUMNS, which=which)


def _sum(row: Sequence[Any] | None) -> Sum:
    return Sum(Decimal(row[0]), int(row[1])) if row else Sum()
