"""Whether the server still has all that it acknowledged: another one may have taken its place.

Invariant: a server that was promoted, or whose sessions end before what it acknowledged, is noted
in the table `failovers` before anything is written to it under a lease. All leases are void then.
The sessions that may have lost records are marked with it, in the same transaction.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from windlass.journals.postgres.config import PostgresConfig, PostgresConnection
from windlass.logs import get_logger
from windlass.ports.fleet import FailoverRow

TAIL_S = 60.0
"""How long what was written is kept to write it again, and how far back a session is doubted."""
TIMELINE = "left(pg_walfile_name(pg_current_wal_lsn()), 8)"
"""The history of the server: a standby that is promoted begins another one."""
IS_SYNCHRONOUS = """(current_setting('synchronous_standby_names') <> ''
    AND current_setting('synchronous_commit') IN ('on', 'remote_apply'))"""
FAILOVER_COLUMNS = ("number", "timeline", "settled")
LAST_FAILOVER = "SELECT * FROM {0}.failovers ORDER BY number DESC LIMIT 1"
_READ = f"""
SELECT CASE WHEN pg_is_in_recovery() THEN '' ELSE {TIMELINE} END, number, timeline, settled
FROM ({LAST_FAILOVER}) AS last
"""  # noqa: S608 - our own text
_NOTE = """
INSERT INTO {0}.failovers (timeline, noticed, sessions, reason)
SELECT $1, clock_timestamp(), coalesce(max(number), 0), $2 FROM {0}.sessions RETURNING number
"""
# The last sign of life that survived is about when the history of the last server breaks off.
_BROKE_OFF = """
SELECT coalesce(max(renewed), clock_timestamp()),
    coalesce(bool_and(synchronous) FILTER (WHERE expires > (
        SELECT max(renewed) FROM {0}.workers WHERE timeline = $1)), false)
FROM {0}.workers WHERE timeline = $1
"""
_MARK = f"""
UPDATE {{0}}.sessions SET doubt = true WHERE facts > 0 AND (worker IS NOT NULL
    OR updated > extract(epoch FROM $1::timestamptz)::float8 - {TAIL_S:g})
"""  # noqa: S608 - our own text
_LIST = """
SELECT extract(epoch FROM noticed)::float8, reason, settled, restored, paused
FROM {0}.failovers WHERE reason <> '' AND noticed > clock_timestamp() - interval '7 days'
ORDER BY number DESC LIMIT 20
"""
_READ_REPLICATION = f"""
SELECT {IS_SYNCHRONOUS}, pg_has_role('pg_read_all_stats', 'USAGE'),
    (SELECT count(*) FROM pg_stat_replication)
"""  # noqa: S608 - our own text
_log = get_logger(__name__)


async def describe_replication(server: PostgresConnection) -> str:
    """Return whether what the server acknowledges survives the loss of its machine, in words."""
    is_synchronous, can_see, count = await server.fetchrow(_READ_REPLICATION) or (False, False, 0)
    if is_synchronous:
        return "The server replicates synchronously: a failover loses nothing."
    standbys = f"{count} standbys" if can_see else "any standby"
    return (
        f"The server does not wait for {standbys}: a failover may lose the last records. Runs that "
        "were touched by it are then restored by their drivers, or paused as possibly rewound. "
        "Set synchronous_standby_names to lose nothing."
    )


class _LastFailover(NamedTuple):
    """The server's timeline now (empty in recovery), and the last failover that was noted."""

    now: str
    number: int
    timeline: str
    is_settled: bool


class ServerHistory:
    """What one event loop knows of the history of its server."""

    def __init__(self, config: PostgresConfig) -> None:
        self._config = config
        self.timeline = ""
        """The timeline under which this process has its leases; empty before it is connected."""
        self._number = 0
        self.is_settled = True
        """Whether each session that the last failover put in doubt was restored or paused."""
        self.on_failover: Callable[[], None] = _ignore
        """Called once for each failover that happens while this process has leases or tails."""

    async def check(self, server: PostgresConnection) -> None:
        """Ask the server what it is, and note a failover. Asked of each connection."""
        row = await server.fetchrow(self._format_sql(_READ))
        if row is None or not row[0]:
            return  # A standby, or tables that are being made.
        last = _LastFailover(*row)
        if last.now != last.timeline:
            reason = f"another server took over (timeline {last.now} after {last.timeline})"
            last = await self._note(server, last.number, reason)
        self.compare(last)

    def compare(self, last: Sequence[Any]) -> None:
        """Take note of the last failover, if this process does not know it."""
        now, number, timeline, settled = last
        known = self._number
        self.is_settled = settled
        if now != timeline or number == known:
            return
        self.timeline = timeline
        self._number = number
        if known:
            self.on_failover()

    def is_known(self, last: Sequence[Any]) -> bool:
        """Whether a server is the one that this process knows; the values are those of `check`."""
        return last[0] == last[2] and last[1] == self._number

    async def note_rewind(self, server: PostgresConnection, session: str) -> None:
        """Note that a session ends before what was acknowledged, although the server is the same.

        Does nothing if another process has noted it since.
        """
        reason = f"a session ends before what was acknowledged ({session})"
        self.compare(await self._note(server, self._number, reason))

    async def list_recent(self, server: PostgresConnection) -> list[FailoverRow]:
        """Return the failovers of the last seven days, the latest first."""
        rows = await server.fetch(self._format_sql(_LIST))
        fields = FailoverRow.__struct_fields__
        return [FailoverRow(**dict(zip(fields, row, strict=True))) for row in rows]

    async def _note(self, server: PostgresConnection, known: int, reason: str) -> _LastFailover:
        """Note a failover, and mark the sessions that may have lost records with it."""
        async with server.transaction():
            lock = "SELECT pg_advisory_xact_lock($1)"
            await server.fetchval(lock, self._config.lock_key("failover"))
            last = _LastFailover(*(await server.fetchrow(self._format_sql(_READ)) or ()))
            if last.number != known:
                return last
            await server.fetchval(self._format_sql(_NOTE), last.now, reason)
            row = await server.fetchrow(self._format_sql(_BROKE_OFF), last.timeline)
            at, is_safe = row or (None, False)
            if last.now == last.timeline or not is_safe:
                await server.execute(self._format_sql(_MARK), at)
            noted = _LastFailover(*(await server.fetchrow(self._format_sql(_READ)) or ()))
        _log.error(
            "%s: %s. The last records that were acknowledged may be lost. All leases are void for "
            "%g s; then runs that no driver could restore are paused as possibly rewound. "
            "`windlass fleet` shows them",
            self._config.location,
            reason,
            self._config.lease_s,
        )
        return noted

    def _format_sql(self, text: str) -> str:
        return text.format(self._config.quoted_schema)


def quiet_sql(config: PostgresConfig) -> str:
    """Return the condition that a row of `sessions` must not be claimed now, after a failover.

    For a lease time, those who have the lost records restore them. Later sessions are free.
    """
    schema = config.quoted_schema
    return f"""(doubt OR EXISTS (SELECT FROM ({LAST_FAILOVER.format(schema)}) AS last
        WHERE last.timeline <> {TIMELINE} OR sessions.number <= last.sessions
            AND last.noticed > clock_timestamp() - interval '{config.lease_s:g} s'))"""


def _ignore() -> None:
    pass
