"""Write the records again that a failover lost, as they were, by the process that wrote them.

Invariant: records are added only to a session that ends exactly with the record before them, under
a lease that is newer than all before it, and never to one that was erased. So a session either gets
back what it had, or is left as it is, and then it is in doubt.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from windlass.journals.codec import chain_root
from windlass.journals.postgres.batch import APPEND_SQL, AppendBatch, format_sql, to_column
from windlass.journals.postgres.config import PostgresConfig, PostgresConnection
from windlass.journals.postgres.history import TIMELINE
from windlass.journals.postgres.lease_rows import NOW_MICROS
from windlass.journals.postgres.questions import PostgresQuestions
from windlass.journals.postgres.tails import KeptAppend
from windlass.journals.session_rows import SESSION_COLUMNS, SessionEnd

_LOCK = f"""
SELECT worker, epoch, {SESSION_COLUMNS} FROM {{0}}.sessions WHERE session = $1 FOR UPDATE
"""  # noqa: S608 - our own names
_CLAIM = f"""
UPDATE {{0}}.sessions SET worker = $2, epoch = greatest(epoch + 1, $3::bigint + 1, {NOW_MICROS}),
    doubt = doubt AND NOT $4::boolean
WHERE session = $1 RETURNING epoch
"""  # noqa: S608 - our own text
_FREE = "UPDATE {0}.sessions SET worker = NULL WHERE session = $1"
Restored = Literal["same", "restored", "taken", "behind", "erased"]
"""What became of a session: it has lost nothing, or got back what it had lost; or another process
has it now, or it ends elsewhere than where the kept records begin, or it was deleted."""


class OwnEnd(NamedTuple):
    """What a process knows of the end of a session, and the lease with which it was there."""

    session: str
    tail: Sequence[KeptAppend]
    head: bytes | None
    """The hash of the last record that was acknowledged, if it is known without the tail."""
    worker: str
    epoch: int
    is_held: bool
    """Whether this process still drives the session."""


class TailRestorer:
    """Statements that restore the sessions of one schema."""

    def __init__(self, config: PostgresConfig) -> None:
        self._config = config
        self._questions = PostgresQuestions(config)
        self._append_sql = format_sql(APPEND_SQL, config.quoted_schema)
        self._blobs_lock = config.lock_key("blobs")

    async def restore(self, server: PostgresConnection, own: OwnEnd) -> tuple[Restored, int]:
        """Write what a session lacks. Returns the epoch of the new lease, if it has the session."""
        async with server.transaction():
            row = await self._lock_row(server, own)
            if row is None:
                return "erased", 0
            if row[1] > own.epoch:
                return "taken", 0
            end = SessionEnd.from_row(row[2:])
            missing = _find_missing(own, end.last_link.hash)
            if missing is None:
                return "behind", 0
            # A driver that released the run does not know whether another one has begun since.
            is_sure = own.is_held or _is_at_rest(own)
            epoch = await server.fetchval(
                self._format_sql(_CLAIM), own.session, own.worker, own.epoch, is_sure
            )
            if missing:
                await self._write(server, missing, end, (own.worker, epoch))
            if not own.is_held:
                await server.execute(self._format_sql(_FREE), own.session)
            if missing:
                count = "UPDATE {0}.failovers SET restored = restored + 1"
                last = " WHERE number = (SELECT max(number) FROM {0}.failovers)"
                await server.execute(self._format_sql(count + last))
        return ("restored" if missing else "same"), epoch

    async def doubt(self, server: PostgresConnection, session: str) -> None:
        """Put a session in doubt that its driver could not restore."""
        query = "UPDATE {0}.sessions SET doubt = true WHERE session = $1"
        await server.execute(self._format_sql(query), session)

    async def _lock_row(self, server: PostgresConnection, own: OwnEnd) -> Sequence[Any] | None:
        """Lock the row of a session, or make it again; None if it was deleted, or cannot be."""
        row = await server.fetchrow(self._format_sql(_LOCK), own.session)
        root = chain_root(own.session).hash
        if row is not None or not own.tail or own.tail[0].before != root:
            return row
        first = SessionEnd.of_new_session(own.session).extend(own.tail[0].append)[1][0][2]
        query = "SELECT EXISTS (SELECT FROM {0}.graves WHERE first = $1)"
        if await server.fetchval(self._format_sql(query), first):
            return None
        values = [to_column(value) for value in SessionEnd.of_mailbox(own.session).to_row()]
        places = ", ".join(f"${at}" for at in range(1, len(values) + 1))
        query = f"""INSERT INTO {{0}}.sessions ({SESSION_COLUMNS}) VALUES ({places})
            ON CONFLICT (session) DO NOTHING"""  # noqa: S608 - our own names
        await server.execute(self._format_sql(query), *values)
        return await server.fetchrow(self._format_sql(_LOCK), own.session)

    async def _write(
        self,
        server: PostgresConnection,
        missing: Sequence[KeptAppend],
        end: SessionEnd,
        claim: tuple[str, int],
    ) -> None:
        batch = AppendBatch(lambda _session: claim)
        for kept in missing:
            batch.add_append(kept.append, end)
        timeline = await server.fetchval(f"SELECT {TIMELINE}")
        arguments = batch.statement_arguments()
        await server.fetch(self._append_sql, *arguments, self._blobs_lock, timeline)
        if batch.asking:
            await self._questions.advance(server, batch.asking)

    def _format_sql(self, text: str) -> str:
        return text.format(self._config.quoted_schema)


def _find_missing(own: OwnEnd, head: bytes) -> Sequence[KeptAppend] | None:
    """Return the kept appends that follow a head; None if it is not one that this process knows."""
    if head == (own.tail[-1].after if own.tail else own.head):
        return ()
    for at, kept in enumerate(own.tail):
        if kept.before == head:
            return own.tail[at:]
    return None


def _is_at_rest(own: OwnEnd) -> bool:
    """Whether the last record left no run that another driver could have resumed at once."""
    row = own.tail[-1].append.row if own.tail else None
    return row is not None and (row.outcome is not None or row.state in ("queued", "waiting"))
