"""The sessions that need a driver, in a small table, and how processes claim them.

Triggers on the rows of sessions keep the table (`keep_work` in `schema.py`), so a message and the
work that it makes are one transaction, and so are the end of a run and the end of its work. The row
of work names the process that the row of the session names, as long as that process may live.

Invariant: the row of a session is locked before its row of work is changed, so that two statements
never wait for each other. A claim locks rows of sessions, and skips those that are locked.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from windlass.journals.postgres.config import PostgresConfig, PostgresConnection
from windlass.journals.postgres.history import quiet_sql
from windlass.journals.postgres.lease_rows import NOW_MICROS, ClaimedSession
from windlass.journals.postgres.worker_rows import GONE, driven_sql
from windlass.journals.session_rows import SESSION_COLUMNS
from windlass.ports.fleet import LANES_MAX, ClaimedWork, WorkLane, WorkShare, WorkWanted

CHANGED_AT_ONCE = 500
"""Rows of work that one look moves because their time has come, or their process is gone."""
_IS_FREE = "worker IS NULL AND due IS NULL"
_OF_LANE = f"agent = lane.agent AND begun = lane.begun AND {_IS_FREE}"
# One step in the index for each caller, however many sessions each of them has. The first row says
# whether something has to be moved before the lanes are right.
_LIST = f"""
WITH RECURSIVE lane (agent, begun, caller) AS (
    SELECT agent, begun, (SELECT caller FROM {{0}}.work WHERE {_OF_LANE}
        AND ($4 = '' OR caller > $4) ORDER BY caller LIMIT 1)
    FROM (SELECT name COLLATE "C" AS agent, begun FROM unnest($1::text[]) AS names (name)
        CROSS JOIN (VALUES (true), (false)) AS kinds (begun)) AS lane
    UNION ALL
    SELECT agent, begun, (SELECT work.caller FROM {{0}}.work
        WHERE {_OF_LANE} AND work.caller > lane.caller ORDER BY work.caller LIMIT 1)
    FROM lane WHERE caller IS NOT NULL
)
(SELECT '' AS agent, '' AS caller, false AS begun, 0::bigint AS priority,
    (EXISTS (SELECT FROM {{0}}.work WHERE due <= $2))::int + 2 * (EXISTS (
        SELECT FROM {{0}}.workers AS owner WHERE {{gone}}
            AND EXISTS (SELECT FROM {{0}}.work WHERE worker = owner.id)))::int::float8 AS since)
UNION ALL
(SELECT lane.agent, lane.caller, lane.begun, head.priority, head.since FROM lane
CROSS JOIN LATERAL (SELECT priority, since FROM {{0}}.work
    WHERE {_OF_LANE} AND caller = lane.caller AND session <> ALL ($3::text[])
    ORDER BY priority DESC, since LIMIT 1) AS head
WHERE lane.caller IS NOT NULL LIMIT {LANES_MAX})
"""  # noqa: S608 - our own text
_PROMOTE = f"""
UPDATE {{0}}.work SET due = NULL WHERE number IN (
    SELECT number FROM {{0}}.work WHERE due <= $1 ORDER BY due
    LIMIT {CHANGED_AT_ONCE} FOR UPDATE SKIP LOCKED)
"""  # noqa: S608 - our own text
_FREE = f"""
UPDATE {{0}}.work SET worker = NULL WHERE number IN (
    SELECT number FROM {{0}}.workers AS owner JOIN {{0}}.work ON work.worker = owner.id
    WHERE {{gone}} LIMIT {CHANGED_AT_ONCE} FOR UPDATE OF work SKIP LOCKED)
"""  # noqa: S608 - our own text
_LIST_OWNERS = """
WITH RECURSIVE owner (worker) AS (
    SELECT min(worker) FROM {0}.work WHERE worker IS NOT NULL
    UNION ALL
    SELECT (SELECT min(work.worker) FROM {0}.work WHERE work.worker > owner.worker)
    FROM owner WHERE worker IS NOT NULL
)
SELECT worker FROM owner WHERE worker IS NOT NULL
"""
_FREE_UNKNOWN = """
UPDATE {0}.sessions SET worker = NULL FROM {0}.work
WHERE sessions.number = work.number AND work.worker = $1 AND sessions.worker = $1
    AND work.session <> ALL ($2::text[])
"""
# The row of the session decides, as it is once it is locked: the row of work may be a moment old.
_CLAIM = f"""
WITH picked AS MATERIALIZED (
    SELECT found.* FROM unnest($1::text[], $2::text[], $3::boolean[], $4::bigint[])
        AS lane (agent, caller, begun, wanted)
    CROSS JOIN LATERAL (
        SELECT sessions.number, work.agent, work.caller, work.begun, work.priority
        FROM {{0}}.work JOIN {{0}}.sessions USING (number)
        WHERE work.agent = lane.agent COLLATE "C" AND work.begun = lane.begun
            AND work.caller = lane.caller COLLATE "C"
            AND work.worker IS NULL AND work.due IS NULL AND work.session <> ALL ($5::text[])
            AND NOT {{quiet}} AND (sessions.worker IS NULL OR NOT {{driven}})
        ORDER BY work.priority DESC, work.since LIMIT lane.wanted
        FOR UPDATE OF sessions SKIP LOCKED
    ) AS found
), moved AS (
    -- As an array: joined with the rows that were picked, the whole table would be read.
    UPDATE {{0}}.sessions SET worker = $6, epoch = greatest(epoch + 1, {NOW_MICROS})
    WHERE number = ANY (ARRAY(SELECT number FROM picked))
    RETURNING number, epoch, {SESSION_COLUMNS}
)
SELECT picked.agent, picked.caller, picked.begun, picked.priority, moved.epoch, {{columns}}
FROM moved JOIN picked USING (number)
"""  # noqa: S608 - our own text


class TakenWork(NamedTuple):
    """A session that a claim has taken, as work and as a lease."""

    work: ClaimedWork
    lease: ClaimedSession


class WorkRows:
    """Statements for work, in one schema."""

    def __init__(self, config: PostgresConfig) -> None:
        columns = ", ".join(f"moved.{name}" for name in SESSION_COLUMNS.split(", "))
        gone = GONE.format(config.quoted_schema, lease=f"interval '{config.lease_s:g} s'")
        names = {
            "driven": driven_sql(config),
            "quiet": quiet_sql(config),
            "columns": columns,
            "gone": gone,
        }
        (
            self.list_sql,
            self._promote,
            self._free,
            self._free_unknown,
            self.claim_sql,
            self._owners,
        ) = (
            text.format(config.quoted_schema, **names)
            for text in (_LIST, _PROMOTE, _FREE, _FREE_UNKNOWN, _CLAIM, _LIST_OWNERS)
        )

    async def list_lanes(self, server: PostgresConnection, wanted: WorkWanted) -> list[WorkLane]:
        """Return the lanes with sessions that need a driver and have none."""
        (due, lanes) = await self._read_lanes(server, wanted)
        if due & 1:
            await server.execute(self._promote, wanted.now)
        if due & 2:
            await server.execute(self._free)
        return (await self._read_lanes(server, wanted))[1] if due else lanes

    async def _read_lanes(
        self, server: PostgresConnection, wanted: WorkWanted
    ) -> tuple[int, list[WorkLane]]:
        agents = [*dict.fromkeys((*wanted.agents, ""))]
        values = (agents, wanted.now, [*wanted.without], wanted.behind)
        first, *rows = await server.fetch(self.list_sql, *values)
        lanes = [WorkLane(row[0], row[1], row[2], row[3], row[4]) for row in rows]
        return int(first[4]), lanes

    async def list_owners(self, server: PostgresConnection) -> list[str]:
        """Return the processes that have sessions."""
        return [row[0] for row in await server.fetch(self._owners)]

    async def free_unknown(
        self, server: PostgresConnection, worker: str, known: Sequence[str]
    ) -> None:
        """Free the sessions that name a process and that it does not know of."""
        await server.execute(self._free_unknown, worker, known)

    async def claim(
        self,
        server: PostgresConnection,
        wanted: WorkWanted,
        shares: Sequence[WorkShare],
        worker: str,
    ) -> list[TakenWork]:
        """Name a process in the rows of some sessions of these lanes."""
        places: list[Sequence[Any]] = [
            (lane.agent, lane.caller, lane.is_begun, count) for lane, count in shares
        ]
        columns = [list(column) for column in zip(*places, strict=True)]
        rows = await server.fetch(self.claim_sql, *columns, [*wanted.without], worker)
        taken: list[TakenWork] = []
        for agent, caller, is_begun, priority, epoch, *row in rows:
            work = ClaimedWork(str(row[1]), agent, caller, is_begun, priority)
            taken.append(TakenWork(work, ClaimedSession(epoch, row)))
        return taken
