"""Pause the runs that a failover may have set back, so that a person decides about them.

Invariant: a session in doubt cannot be leased. It is taken out of doubt in the transaction that
pauses its run. A run is not paused if nothing can happen twice in it: its tools only read, or it
has ended.
"""

import asyncio
import secrets
import time
from collections.abc import Sequence

from msgspec.structs import replace

from windlass.core.control_facts import RunPaused, RunReleased
from windlass.core.errors import WindlassError
from windlass.core.events import RULES_VERSION, Fact, RunResumed
from windlass.core.fold.run import apply_fact, counts_as_work, fold
from windlass.core.session_summary import row_of
from windlass.core.state import State
from windlass.journals.codec import RecordProblem, encode_fact
from windlass.journals.postgres.batch import APPEND_SQL, AppendBatch, format_sql
from windlass.journals.postgres.config import PostgresConfig, PostgresConnection
from windlass.journals.postgres.lease_rows import NOW_MICROS
from windlass.journals.postgres.queries import PostgresQueries
from windlass.journals.session_rows import SESSION_COLUMNS, PendingAppend, SessionEnd
from windlass.logs import get_logger

PAUSER = "windlass"
REASON = (
    "possibly rewound: the database lost its last records, and the process that wrote them is not "
    "there to restore them. What the run did last may be missing here and would be done again. "
    "Look at it, then resume or cancel it"
)
BATCH = 100
_FIND_DUE = """
SELECT number FROM {0}.failovers WHERE NOT settled
    AND noticed < clock_timestamp() - make_interval(secs => $1) ORDER BY number DESC LIMIT 1
"""
_CLEAR = f"""
UPDATE {{0}}.sessions SET doubt = false, worker = NULL, epoch = greatest(epoch + 1, {NOW_MICROS})
WHERE session = $1
"""  # noqa: S608 - our own text
_LOCK = f"""
SELECT number, {SESSION_COLUMNS} FROM {{0}}.sessions WHERE session = $1 AND doubt FOR UPDATE
"""  # noqa: S608 - our own names
_log = get_logger(__name__)


class DoubtSettler:
    """Settles failovers of one schema, by whichever process comes first."""

    def __init__(self, config: PostgresConfig) -> None:
        self._config = config
        self._queries = PostgresQueries(config)
        self._append_sql = format_sql(APPEND_SQL, config.quoted_schema)
        self._blobs_lock = config.lock_key("blobs")

    async def settle(self, server: PostgresConnection) -> None:
        """Pause what is in doubt, if the quiet time after the last failover is over."""
        due = await server.fetchval(self._format_sql(_FIND_DUE), self._config.lease_s)
        if due is None:
            return
        query = f"SELECT session FROM {{0}}.sessions WHERE doubt LIMIT {BATCH}"  # noqa: S608 - a constant
        while rows := await server.fetch(self._format_sql(query)):
            for (session,) in rows:
                await self._settle_session(server, due, session)
        query = """UPDATE {0}.failovers SET settled = true WHERE number <= $1 AND NOT settled
            RETURNING restored, paused"""
        done = await server.fetchrow(self._format_sql(query), due)
        if done is not None:
            _log.error(
                "%s: after the failover, %s sessions got back what they had lost, and %s runs are "
                "paused as possibly rewound",
                self._config.location,
                *done,
            )

    async def _settle_session(self, server: PostgresConnection, due: int, session: str) -> None:
        async with server.transaction():
            row = await server.fetchrow(self._format_sql(_LOCK), session)
            if row is None:
                return  # Another process was faster.
            await server.execute(self._format_sql(_CLEAR), session)
            stored = await self._queries.read_records(server, row, 0)
            facts = [fact for fact in stored.walk_records() if not isinstance(fact, RecordProblem)]
            try:
                pause = make_pause(fold(session, facts))
            except WindlassError:
                return  # It is corrupt: no driver resumes it, and `windlass verify` names it.
            if pause:
                await self._write(server, SessionEnd.from_row(row[1:]), facts, pause)
                count = "UPDATE {0}.failovers SET paused = paused + 1 WHERE number = $1"
                await server.execute(self._format_sql(count), due)
        if pause:
            _log.error("session %s is paused: %s", session, REASON)

    async def _write(
        self,
        server: PostgresConnection,
        end: SessionEnd,
        facts: Sequence[Fact],
        pause: Sequence[Fact],
    ) -> None:
        session = end.summary.session
        state = fold(session, [*facts, *pause])
        records = [encode_fact(fact) for fact in pause]
        batch = AppendBatch(lambda _session: None)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        batch.add_append(PendingAppend(session, pause, row_of(state), records, done), end)
        await server.fetch(self._append_sql, *batch.statement_arguments(), self._blobs_lock, "")

    def _format_sql(self, text: str) -> str:
        return text.format(self._config.quoted_schema)


def make_pause(state: State) -> Sequence[Fact]:
    """Return the facts that pause a run which may have been set back; none if it need not be."""
    run = state.run
    if run is None or not state.is_active or state.is_paused or state.parent:
        return ()  # The run that a sub-agent works for is in doubt itself.
    tools = () if state.setup is None else state.setup.tools
    if state.setup is not None and all(tool.effect == "read" for tool in tools):
        return ()
    facts: Sequence[Fact] = (RunPaused(REASON, PAUSER, cause="rewound"),)
    if not state.is_queued:
        resumed = RunResumed(rules=RULES_VERSION, driver=secrets.token_hex(8))
        facts = (resumed, *facts, RunReleased("paused"))
    stamped: list[Fact] = []
    for fact in facts:
        at = max(time.time(), state.at)
        numbered = replace(fact, seq=state.seq + 1, at=at)
        if counts_as_work(state, numbered):
            # The driver is gone: the time since its last record is not time at work.
            numbered = replace(numbered, worked_s=0.0)
        state = apply_fact(state, numbered)
        stamped.append(numbered)
    return stamped
