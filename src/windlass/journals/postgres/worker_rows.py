"""The processes that lease sessions: a row for each, which expires unless it is renewed.

Invariant: a row says that its process may live, and nothing more. Which sessions a process has is
in the rows of the sessions (`lease_rows.py`). All times are the server's. A row is never used again
once its process was found dead: a process that wakes up after that gets a new row.
"""

import os
import socket
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from windlass.journals.postgres.config import PostgresConfig, PostgresConnection
from windlass.journals.postgres.history import (
    FAILOVER_COLUMNS,
    IS_SYNCHRONOUS,
    LAST_FAILOVER,
    TIMELINE,
)
from windlass.ports.fleet import SESSIONS_SHOWN, WorkerRow

FORGOTTEN_AFTER = "interval '7 days'"
"""How long the row of a process is kept that is not there any more."""
_RENEW = f"""
INSERT INTO {{0}}.workers AS mine
    (id, lock, host, process, version, direct, started, renewed, expires, steady, timeline,
    synchronous)
VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp(), clock_timestamp(),
    clock_timestamp() + make_interval(secs => $7), clock_timestamp(), {TIMELINE},
    {IS_SYNCHRONOUS})
ON CONFLICT (id) DO UPDATE SET
    renewed = excluded.renewed, expires = excluded.expires, timeline = excluded.timeline,
    synchronous = excluded.synchronous,
    steady = CASE WHEN mine.expires < clock_timestamp() THEN excluded.steady ELSE mine.steady END
WHERE NOT mine.dead
RETURNING (SELECT count(*) FROM {{0}}.workers WHERE expires > clock_timestamp()), mine.timeline,
    {", ".join(f"(SELECT {column} FROM ({LAST_FAILOVER}) AS last)" for column in FAILOVER_COLUMNS)}
"""  # noqa: S608 - our own text
_HELD_LOCKS = """
SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1 AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
_IS_SILENT = f"""
direct AND NOT dead AND expires > clock_timestamp() AND timeline = {TIMELINE}
    AND renewed > pg_postmaster_start_time() AND lock NOT IN ({_HELD_LOCKS})
"""
"""Whether the lock of a process is missing that should hold one. A process takes its lock before it
renews its row. One that has not renewed it since the server was started, or since another server
took its place, has only not come back yet: its row expires, but its lock tells nothing."""

GONE = """owner.expires < clock_timestamp() AND EXISTS (
    SELECT FROM {0}.workers AS other WHERE other.expires > clock_timestamp()
        AND other.steady < clock_timestamp() - {lease})"""
"""Whether a process counts as gone because it expired; `driven_sql` says why another must live."""
_SECONDS = "extract(epoch FROM {})::float8"
# Few sessions are open, and the index of states finds them, no matter how many are kept.
_LIST_RECENT = f"""
SELECT id, host, process, version, {_SECONDS.format("started")}, {_SECONDS.format("renewed")},
    {_SECONDS.format("expires")}, dead, direct, coalesce(runs, 0), coalesce(names, '{{{{}}}}')
FROM {{0}}.workers LEFT JOIN (
    SELECT worker, count(*) AS runs,
        (array_agg(session ORDER BY changed DESC, session))[1:{SESSIONS_SHOWN}] AS names
    FROM {{0}}.sessions WHERE state = 'open' AND parent = '' AND worker IS NOT NULL GROUP BY worker
) AS driven ON driven.worker = workers.id
WHERE expires > clock_timestamp() - interval '1 hour' OR runs > 0
ORDER BY started DESC, id
"""  # noqa: S608 - our own text


def driven_sql(config: PostgresConfig) -> str:
    """Return the condition that a living process may have the session of a row of `sessions`.

    An expired process counts as gone only if another one has renewed its row for a lease time
    without a gap: after an outage all have expired, and the first one back must not take
    everything.
    """
    schema = config.quoted_schema
    lease = f"interval '{config.lease_s:g} s'"
    return f"""EXISTS (SELECT FROM {schema}.workers AS owner
        WHERE owner.id = sessions.worker AND NOT owner.dead AND (
            owner.expires > clock_timestamp() OR NOT EXISTS (
                SELECT FROM {schema}.workers AS other WHERE other.expires > clock_timestamp()
                    AND other.steady < clock_timestamp() - {lease})))"""  # noqa: S608 - our own names


class WorkerPlace(NamedTuple):
    """The process that a row is for, as people know it."""

    host: str
    process: int
    version: str

    @classmethod
    def of_this_process(cls) -> "WorkerPlace":
        try:
            windlass = version("windlass")
        except PackageNotFoundError:  # Run from a folder that was not installed.
            windlass = ""
        return cls(socket.gethostname(), os.getpid(), windlass)


class WorkerRows:
    """Statements for the rows of processes, in one schema."""

    def __init__(self, config: PostgresConfig) -> None:
        self._config = config

    def lock_key(self, worker: str) -> int:
        """Return the number of the lock that a process holds while it lives."""
        return self._config.lock_key("worker", worker)

    async def renew(
        self, server: PostgresConnection, worker: str, place: WorkerPlace, *, is_direct: bool
    ) -> Sequence[Any] | None:
        """Make or renew a row; returns None if this process counts as dead.

        Returns how many processes live, and what `ServerHistory.compare` takes.
        """
        values = (worker, self.lock_key(worker), *place, is_direct, self._config.lease_s)
        return await server.fetchrow(self._format_sql(_RENEW), *values)

    async def remove(self, server: PostgresConnection, worker: str) -> None:
        """Remove the row of a process that has freed all its sessions."""
        await server.execute(self._format_sql("DELETE FROM {0}.workers WHERE id = $1"), worker)

    async def find_silent(self, server: PostgresConnection) -> Mapping[str, datetime]:
        """Return the processes whose lock is missing, and when each renewed its row last."""
        query = self._format_sql(f"SELECT id, renewed FROM {{0}}.workers WHERE {_IS_SILENT}")  # noqa: S608 - our own text
        rows = await server.fetch(query)
        return {row[0]: row[1] for row in rows}

    async def bury(self, server: PostgresConnection, suspects: Mapping[str, datetime]) -> list[str]:
        """Mark processes as dead whose lock is still missing, and that did not renew their row."""
        query = f"""UPDATE {{0}}.workers SET dead = true FROM unnest($1::text[], $2::timestamptz[])
            AS suspect (name, seen) WHERE id = name AND renewed = seen AND {_IS_SILENT}
            RETURNING id"""  # noqa: S608 - our own text
        rows: Sequence[Sequence[Any]] = await server.fetch(
            self._format_sql(query), [*suspects], [*suspects.values()]
        )
        return [row[0] for row in rows]

    async def forget_old(self, server: PostgresConnection) -> None:
        """Delete rows of processes that died long ago."""
        query = "DELETE FROM {0}.workers WHERE expires < clock_timestamp() - "
        await server.execute(self._format_sql(query + FORGOTTEN_AFTER))

    async def list_recent(self, server: PostgresConnection) -> tuple[float, list[WorkerRow]]:
        """Return the processes of the last hour with what they drive, and the server's time."""
        now: float = await server.fetchval(f"SELECT {_SECONDS.format('clock_timestamp()')}")
        rows = await server.fetch(self._format_sql(_LIST_RECENT))
        fields = WorkerRow.__struct_fields__
        return now, [WorkerRow(**dict(zip(fields, row, strict=True))) for row in rows]

    def _format_sql(self, text: str) -> str:
        return text.format(self._config.quoted_schema)
