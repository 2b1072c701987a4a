"""The statements of a Postgres journal, apart from appending.

Each may be run again when its connection breaks: running it twice has the same effect as once.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from windlass.core.events import Fact
from windlass.core.session_summary import PagePlace, SessionQuery, SessionSummary
from windlass.journals.codec import ChainLink, RecordProblem, chain_root, check_blob, walk_chain
from windlass.journals.postgres.batch import to_column
from windlass.journals.postgres.config import PostgresConfig, PostgresConnection
from windlass.journals.postgres.lease_rows import LeaseRows
from windlass.journals.postgres.mail import HAS_MAIL
from windlass.journals.postgres.schema import end_sharing, is_shared
from windlass.journals.record_rules import BudgetSum
from windlass.journals.session_rows import (
    CHANGING_COLUMNS,
    SESSION_COLUMNS,
    SessionEnd,
    find_row_problems,
)
from windlass.journals.stored_catalog import SqlCondition, query_conditions
from windlass.journals.upgrades import VERSION, UpgradeStatus, older_wrote_error

UPGRADE_BATCH = 100
"""Sessions that are folded again in one transaction."""
_BLOBS_PREFIX = re.compile(r'\{"v":\d+,"blobs":(\[\[.*?\]\])')
_BLOB_NAME = re.compile(r'"([0-9a-f]{64})"')


BurySessions = Callable[[PostgresConnection, Sequence[tuple[str, bytes]]], Awaitable[None]]
"""Writes the tombstones of sessions, by their names and the hashes of their first records."""


class StoredSession(NamedTuple):
    """The records of a session after a number, as they were at one moment."""

    end: Sequence[Any]
    """The values of SESSION_COLUMNS."""
    start: ChainLink
    records: Sequence[Sequence[Any]]
    blobs: Mapping[str, bytes]

    def walk_records(self) -> list[Fact | RecordProblem]:
        """Return the facts, with a problem in place of each record that is not sound."""
        rows = ((seq, body.encode(), stored, how) for seq, body, stored, how in self.records)
        end = SessionEnd.from_row(self.end).last_link
        return list(walk_chain(rows, self.start, end, self._fetch_blob))

    def find_problems(self) -> list[RecordProblem]:
        """Return what is wrong with the records, or with the row that sums them up."""
        found = self.walk_records()
        problems = [problem for problem in found if isinstance(problem, RecordProblem)]
        end = SessionEnd.from_row(self.end)
        if problems:
            return problems
        facts = [fact for fact in found if not isinstance(fact, RecordProblem)]
        return find_row_problems(end, facts)

    def fold_again(self) -> SessionEnd:
        """Return the end of the session with the row that these records add up to, if sound."""
        found = self.walk_records()
        facts = [fact for fact in found if not isinstance(fact, RecordProblem)]
        end = SessionEnd.from_row(self.end)
        return end.fold_again(facts) if len(facts) == len(found) else end

    def _fetch_blob(self, name: str) -> bytes:
        return check_blob(name, self.blobs.get(name))


class PostgresQueries:
    """The statements for one schema. In their text, `{}` is its quoted name."""

    def __init__(self, config: PostgresConfig) -> None:
        self.config = config
        self._leases = LeaseRows(config)

    async def read_session(
        self, server: PostgresConnection, session: str, after: int
    ) -> StoredSession | None:
        """Return the records after a number; None if there are none."""
        async with server.transaction(isolation="repeatable_read", readonly=True):
            query = self._format_sql("SELECT number, {columns} FROM {}.sessions WHERE session = $1")
            row = await server.fetchrow(query, session)
            if row is None or after >= SessionEnd.from_row(row[1:]).last_link.seq:
                return None
            return await self.read_records(server, row, after)

    async def read_records(
        self, server: PostgresConnection, row: Sequence[Any], after: int
    ) -> StoredSession:
        """Return the records after a number of the session with this key and these columns."""
        number = row[0]
        start = chain_root(SessionEnd.from_row(row[1:]).summary.session)
        if after > 0:
            query = "SELECT hash FROM {}.records WHERE number = $1 AND seq = $2"
            found = await server.fetchval(self._format_sql(query), number, after)
            # If the record is missing, the empty hash makes the walk report the one after it.
            start = ChainLink(after, found or b"")
        query = self._format_sql(
            """SELECT seq, body, hash, encoding FROM {}.records
            WHERE number = $1 AND seq > $2 ORDER BY seq"""
        )
        records = await server.fetch(query, number, start.seq)
        blobs = await self._fetch_blobs(server, records)
        return StoredSession(row[1:], start, records, blobs)

    async def verify_all(self, server: PostgresConnection) -> tuple[int, int, list[str]]:
        """Return how many sessions and records there are, and what is wrong with them, in words.

        Call it in a transaction.
        """
        query = "SELECT number, {columns} FROM {}.sessions WHERE facts > 0 ORDER BY number"
        rows = await server.fetch(self._format_sql(query))
        problems: list[str] = []
        count = 0
        for row in rows:
            stored = await self.read_records(server, row, 0)
            count += len(stored.records)
            name = SessionEnd.from_row(row[1:]).summary.session
            found = await asyncio.to_thread(stored.find_problems)
            problems += [f"session {name!r}: {problem}" for problem in found]
        return len(rows), count, problems

    async def find_ends(self, server: PostgresConnection, names: Sequence[str]) -> list[SessionEnd]:
        """Return where sessions end."""
        query = "SELECT {columns} FROM {}.sessions WHERE session = ANY ($1::text[])"
        rows = await server.fetch(self._format_sql(query), names)
        return [SessionEnd.from_row(row) for row in rows]

    async def find_summary(self, server: PostgresConnection, session: str) -> SessionSummary | None:
        """Return the summary of a session; None if it has no records."""
        found = [end for end in await self.find_ends(server, [session]) if end.last_link.seq]
        return found[0].summary if found else None

    async def _fetch_blobs(
        self, server: PostgresConnection, records: Sequence[Sequence[Any]]
    ) -> dict[str, bytes]:
        """Return the blobs of these records, all with one query."""
        prefixes = (_BLOBS_PREFIX.match(record[1]) for record in records)
        names = {name for prefix in prefixes if prefix for name in _BLOB_NAME.findall(prefix[1])}
        if not names:
            return {}
        query = self._format_sql("SELECT hash, data FROM {}.blobs WHERE hash = ANY ($1::text[])")
        return {row[0]: row[1] for row in await server.fetch(query, [*names])}

    async def last_seq(self, server: PostgresConnection, session: str) -> int:
        """Return the number of a session's last record; 0 if there is none."""
        query = self._format_sql("SELECT facts FROM {}.sessions WHERE session = $1")
        return await server.fetchval(query, session) or 0

    async def find_orphans(self, server: PostgresConnection) -> list[str]:
        """Return a line for each session number that has records but no row of its own."""
        query = """SELECT number, count(*) FROM {0}.records
            WHERE NOT EXISTS (SELECT FROM {0}.sessions WHERE sessions.number = records.number)
            GROUP BY number ORDER BY number"""
        rows = await server.fetch(self._format_sql(query))
        return [f"{count} records belong to no session (number {number})" for number, count in rows]

    async def list_sessions(
        self,
        server: PostgresConnection,
        query: SessionQuery,
        place: PagePlace | None,
        limit: int,
    ) -> list[SessionSummary]:
        """List the sessions behind a place that fit the query: last changed first, then by name."""
        conditions = query_conditions(query, place)
        if query.text:
            # Titles are stored with this character in place of NUL.
            text = query.text.replace("\0", "\ufffd")
            found = "position(lower({}) IN lower(session || chr(10) || title)) > 0"
            conditions.append(SqlCondition(found, (text,)))
        values = [value for condition in conditions for value in condition.values]
        numbers = iter(range(1, len(values) + 1))
        where = " AND ".join(condition.text for condition in conditions) or "TRUE"
        where = re.sub(r"\{\}", lambda _: f"${next(numbers)}", where)
        statement = self._format_sql("SELECT {columns} FROM {}.sessions")
        statement += f" WHERE {where} ORDER BY changed DESC, session LIMIT ${len(values) + 1}"
        rows = await server.fetch(statement, *values, limit)
        return [SessionEnd.from_row(row).summary for row in rows]

    async def delete_trees(
        self,
        server: PostgresConnection,
        trees: Sequence[Sequence[str]],
        before: float | None = None,
        bury: BurySessions | None = None,
    ) -> tuple[int, int]:
        """Delete the trees of which nothing is driven. The first name of each tree is its root.

        With `before`, only trees whose root is still ended, and not touched since. `bury` writes
        what stays of them, in the same transaction. Returns how many sessions were deleted, and how
        many trees were left because they are driven.
        """
        names = [name for tree in trees for name in tree]
        async with server.transaction():
            # The sessions cannot be leased until the transaction ends: their rows are locked.
            driven = await self._lock_driven(server, names)
            left = {tree[0]: tree for tree in trees if driven.isdisjoint(tree)}
            numbers = await self._lock_trees(server, left, before)
            if numbers:
                if bury is not None:
                    await bury(server, await self._read_firsts(server, numbers))
                await self._delete_rows(server, numbers)
        return len(numbers), len(trees) - len(left)

    async def _read_firsts(
        self, server: PostgresConnection, numbers: Sequence[int]
    ) -> list[tuple[str, bytes]]:
        """Return the names of sessions and the hashes of their first records."""
        query = """SELECT session, hash FROM {0}.sessions JOIN {0}.records USING (number)
            WHERE number = ANY ($1::bigint[]) AND seq = 1"""
        return [(row[0], row[1]) for row in await server.fetch(self._format_sql(query), numbers)]

    async def read_journal_id(self, server: PostgresConnection) -> str:
        """Return the random id of the journal."""
        query = "SELECT value FROM {}.meta WHERE name = 'journal'"
        return await server.fetchval(self._format_sql(query))

    async def _lock_driven(self, server: PostgresConnection, names: Sequence[str]) -> set[str]:
        """Lock the rows of sessions, and return those that a living process may have."""
        lock = (
            "SELECT FROM {}.sessions WHERE session = ANY ($1::text[]) ORDER BY session FOR UPDATE"
        )
        await server.execute(self._format_sql(lock), names)
        # Asked once they are locked: a claim may have been under way.
        return {*await self._leases.find_driven(server, names)}

    async def _lock_trees(
        self, server: PostgresConnection, trees: Mapping[str, Sequence[str]], before: float | None
    ) -> list[int]:
        """Return the row numbers of the trees that may be deleted, and lock their rows."""
        roots = self._format_sql(
            """SELECT session FROM {}.sessions WHERE session = ANY ($1::text[])
            AND ($2::float8 IS NULL OR changed < $2 AND outcome IS NOT NULL AND NOT {has_mail})
            ORDER BY session FOR UPDATE"""
        )
        rows = await server.fetch(roots, [*trees], before)
        names = [name for row in rows for name in trees[row[0]]]
        query = self._format_sql(
            "SELECT number FROM {}.sessions WHERE session = ANY ($1::text[]) "
            "ORDER BY session FOR UPDATE"
        )
        return [row[0] for row in await server.fetch(query, names)]

    async def _delete_rows(self, server: PostgresConnection, numbers: Sequence[int]) -> None:
        """Delete the records of sessions, the blobs that only they used, and their shares."""
        # An append may be about to use a blob that looks unused here, so it waits for this lock.
        key = self.config.lock_key("blobs")
        await server.fetchval("SELECT pg_advisory_xact_lock($1)", key)
        for statement in (
            # So that a driver that kept its last records never writes them again.
            """INSERT INTO {0}.graves SELECT hash FROM {0}.records
            WHERE number = ANY ($1::bigint[]) AND seq = 1 ON CONFLICT DO NOTHING""",
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

    async def put_blob(
        self, server: PostgresConnection, session: str, name: str, data: bytes
    ) -> bool:
        """Store the data for a session; returns whether there is such a session."""
        async with server.transaction():
            # The lock on the row keeps the session from being deleted in the meantime.
            query = """SELECT number FROM {}.sessions
                WHERE session = $1 AND facts > 0 FOR KEY SHARE"""
            number = await server.fetchval(self._format_sql(query), session)
            if number is None:
                return False
            lock = "SELECT pg_advisory_xact_lock_shared($1)"
            await server.fetchval(lock, self.config.lock_key("blobs"))
            query = "INSERT INTO {}.blobs VALUES ($1, $2) ON CONFLICT DO NOTHING"
            await server.execute(self._format_sql(query), name, data)
            query = "INSERT INTO {}.uses (number, hash) VALUES ($1, $2) ON CONFLICT DO NOTHING"
            await server.execute(self._format_sql(query), number, name)
        return True

    async def get_blob(self, server: PostgresConnection, session: str, prefix: str) -> bytes | None:
        """Return the session's blob whose name begins with `prefix`, unchecked."""
        query = """SELECT data FROM {0}.sessions JOIN {0}.uses USING (number)
            JOIN {0}.blobs USING (hash) WHERE session = $1 AND starts_with(hash, $2) LIMIT 1"""
        return await server.fetchval(self._format_sql(query), session, prefix)

    async def change_share(self, server: PostgresConnection, *arguments: object) -> BudgetSum:
        """Draw or settle the share of a run in the database; returns the new share."""
        query = "SELECT * FROM {}.share($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
        return _sum_from_row(await server.fetchrow(self._format_sql(query), *arguments))

    async def reserved_sum(
        self, server: PostgresConnection, budget: str, window: str, tree: str
    ) -> BudgetSum:
        """Return what runs outside of a tree of sessions hold in reserve."""
        query = """SELECT coalesce(sum(held_usd), 0), coalesce(sum(held_tokens), 0)::bigint
            FROM {}.shares WHERE budget = $1 AND period = $2 AND (held_usd > 0 OR held_tokens > 0)
            AND session <> $3 AND NOT starts_with(session, $3 || '/')"""
        return _sum_from_row(await server.fetchrow(self._format_sql(query), budget, window, tree))

    async def promised_sum(self, server: PostgresConnection, budget: str, window: str) -> BudgetSum:
        """Return the sum of all shares of a budget in a window."""
        query = "SELECT usd, tokens FROM {}.pools WHERE budget = $1 AND period = $2"
        return _sum_from_row(await server.fetchrow(self._format_sql(query), budget, window))

    # ── upgrades ─────────────────────────────────────────────────────────────

    async def upgrade_status(self, server: PostgresConnection) -> UpgradeStatus:
        """Return the state of the upgrade of the tables."""
        query = self._format_sql("SELECT count(*) FROM {}.sessions WHERE version < $1")
        left = await server.fetchval(query, VERSION)
        return UpgradeStatus(VERSION, not await is_shared(server, self.config), left)

    async def fold_rows_again(self, server: PostgresConnection) -> int:
        """Write the rows of some sessions that the version before wrote; returns how many.

        A session whose records are not sound keeps its row; `windlass verify` names what is wrong.
        """
        async with server.transaction():
            # Appends to other sessions continue; those to these wait for the batch.
            query = f"""SELECT number, {{columns}} FROM {{}}.sessions WHERE version < $1
                ORDER BY session LIMIT {UPGRADE_BATCH} FOR UPDATE"""  # noqa: S608 - our own text
            rows = await server.fetch(self._format_sql(query), VERSION)
            places = ", ".join(f"{name} = ${at}" for at, name in enumerate(CHANGING_COLUMNS, 2))
            update = self._format_sql(f"UPDATE {{}}.sessions SET {places} WHERE session = $1")  # noqa: S608 - our own names
            for row in rows:
                stored = await self.read_records(server, row, 0)
                end = await asyncio.to_thread(stored.fold_again)
                head, session, *columns = map(to_column, end.to_row())
                await server.execute(update, session, head, *columns)
        return len(rows)

    async def finish_upgrade(self, server: PostgresConnection) -> None:
        """Let older versions refuse the journal. Raises JournalFailed if one has just written."""
        async with server.transaction():
            lock = "LOCK TABLE {}.sessions IN SHARE ROW EXCLUSIVE MODE"
            await server.execute(self._format_sql(lock))
            if (await self.upgrade_status(server)).sessions_left:
                raise older_wrote_error()
            await end_sharing(server, self.config)

    def _format_sql(self, text: str) -> str:
        schema = self.config.quoted_schema
        has_mail = HAS_MAIL.format(schema)
        return text.format(schema, columns=SESSION_COLUMNS, has_mail=has_mail)


def _sum_from_row(row: Sequence[Any] | None) -> BudgetSum:
    return BudgetSum(Decimal(row[0]), int(row[1])) if row else BudgetSum()
