"""The appends of one event loop, on their way to Postgres.

Those that wait while the server commits go out together, in one statement and one commit, so that
a hundred sessions cost little more than one. The statement writes each session whole or not at all,
and only if it still ends where this process believes; whoever is refused looks again and decides.

When the connection breaks, nobody knows what became of the statement. It is then sent once more: a
session whose end is ours by its hash was written the first time, and one that still ends where it
did is written now; what was on its way can no longer follow.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from windlass.core.errors import JournalFailed, SessionBusy
from windlass.core.session_summary import SessionSummary
from windlass.journals.chain import chain_root
from windlass.journals.postgres.batch import (
    APPEND_SQL,
    FIND_OWN_RECORDS_SQL,
    FIND_SESSIONS_SQL,
    SESSION_COLUMNS,
    AppendBatch,
    PendingAppend,
    SessionEnd,
    session_end_from_row,
)
from windlass.journals.postgres.config import PostgresConnection, is_unstorable, postgres_error
from windlass.journals.postgres.pool import ConnectionPool

BATCH_APPENDS_MAX = 500
"""Appends in one statement."""
BATCH_BYTES_MAX = 16_000_000
"""How much one statement carries, unless a single append has more."""
KNOWN_SESSIONS_MAX = 10_000
"""Sessions whose end is remembered."""
ATTEMPTS_MAX = 5
"""How often a session is looked at again that somebody else keeps writing."""


class _UnstorableAppend(JournalFailed):
    """The server cannot hold the values of an append."""


class PostgresWriter:
    """Takes appends, and sees to it that each is written or refused."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        place = pool.config
        self._find_sql = FIND_SESSIONS_SQL.format(
            columns=SESSION_COLUMNS, schema=place.quoted_schema
        )
        self._find_own_sql = FIND_OWN_RECORDS_SQL.format(schema=place.quoted_schema)
        self._append_sql = APPEND_SQL.format(columns=SESSION_COLUMNS, schema=place.quoted_schema)
        self._fixed_arguments = (place.lock_key("blobs"), place.schema)
        self._known_ends: dict[str, SessionEnd] = {}
        self._waiting: list[PendingAppend] = []
        self._task: asyncio.Task[None] | None = None

    def submit(self, append: PendingAppend) -> None:
        self._waiting.append(append)
        if self._task is None:
            self._task = self._pool.loop.create_task(self._write_waiting())

    def remember_end(self, row: Sequence[Any]) -> None:
        """Remember where a session ends, from a row of COLUMNS; the server has the last word."""
        end = session_end_from_row(row)
        self._known_ends[end.summary.session] = end

    async def wait_until_idle(self) -> None:
        """Wait until all that was put is written or refused."""
        while self._task is not None:
            await asyncio.wait({self._task})

    async def _write_waiting(self) -> None:
        group: list[PendingAppend] = []
        try:
            while self._waiting:
                if len(self._known_ends) > KNOWN_SESSIONS_MAX:
                    self._known_ends.clear()
                group = self._take_batch()
                await self._write_appends(group)
        finally:
            self._task = None
            left = JournalFailed(
                f"journal {self._pool.config.display_url}: its event loop was stopped"
            )
            _settle_appends((append, left) for append in (*group, *self._waiting))
            self._waiting.clear()

    def _take_batch(self) -> list[PendingAppend]:
        count, size = 0, 0
        for append in self._waiting[:BATCH_APPENDS_MAX]:
            size += append.size_bytes
            if count and size > BATCH_BYTES_MAX:
                break
            count += 1
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        return group

    async def _write_appends(self, appends: Sequence[PendingAppend]) -> None:
        """Write the appends, and tell each what became of it."""
        try:
            for turn in range(ATTEMPTS_MAX):
                appends = await self._attempt_write(appends, look=turn > 0)
                if not appends:
                    return
            words = "another driver writes this session"
            _settle_appends(
                (one, SessionBusy(f"session {one.session!r}: {words}")) for one in appends
            )
        except _UnstorableAppend as error:
            await self._write_session_by_session(appends, error)
        except Exception as error:  # noqa: BLE001 - whatever it was, nobody may wait for ever
            self._known_ends.clear()
            _settle_appends((append, error) for append in appends)

    async def _write_session_by_session(
        self, appends: Sequence[PendingAppend], error: _UnstorableAppend
    ) -> None:
        """What the server cannot hold fails alone."""
        sessions = {append.session for append in appends}
        if len(sessions) == 1:
            _settle_appends((append, error) for append in appends)
            return
        for session in sessions:
            await self._write_appends([append for append in appends if append.session == session])

    async def _attempt_write(
        self, appends: Sequence[PendingAppend], *, look: bool
    ) -> list[PendingAppend]:
        """Write what can be written; returns what must be looked at again."""
        seen = await self._find_unknown_ends(appends, first_too=look)
        group = AppendBatch()
        # In the same order everywhere: two writers of the same sessions wait, but never in a ring.
        for append in sorted(appends, key=lambda one: one.session):
            unseen = SessionEnd(chain_root(append.session), SessionSummary(append.session))
            group.add_append(append, self._known_ends.get(append.session, unseen))
        stale = await self._send_batch(group) if group.ends else set[str]()
        # What was refused by memory alone is asked again: the session may have been deleted.
        by_memory = {append.session for append, _ in group.refused} - group.ends.keys() - seen
        stale |= by_memory
        self._known_ends.update(
            (name, end) for name, end in group.ends.items() if name not in stale
        )
        for name in stale:
            self._known_ends.pop(name, None)
        errors = {id(append): error for append, error in group.refused}
        told = [append for append in appends if append.session not in stale]
        _settle_appends((append, errors.get(id(append))) for append in told)
        return [append for append in appends if append.session in stale]

    async def _find_unknown_ends(
        self, appends: Iterable[PendingAppend], *, first_too: bool
    ) -> set[str]:
        """Find the ends that are not known. Who begins at 1 is believed: the session is new."""
        names = {
            append.session
            for append in appends
            if append.session not in self._known_ends and (first_too or append.facts[0].seq != 1)
        }
        if names:
            rows = await self._pool.run_on_connection(
                lambda server: server.fetch(self._find_sql, [*names])
            )
            for row in rows:
                self.remember_end(row)
        return names

    async def _send_batch(self, group: AppendBatch) -> set[str]:
        """Write the group in one statement; returns the sessions that end elsewhere."""
        arguments, sent = group.statement_arguments(), False

        async def send(server: PostgresConnection) -> set[str]:
            nonlocal sent
            again, sent = sent, True
            try:
                rows = await server.fetch(self._append_sql, *arguments, *self._fixed_arguments)
            except Exception as error:
                if is_unstorable(error):
                    raise _UnstorableAppend(str(postgres_error(self._pool.config, error))) from None
                raise
            kept = {row[0] for row in rows}
            left = {name for name, place in group.places.items() if place not in kept}
            if again and left:
                ours = await server.fetch(self._find_own_sql, *group.last_records(left))
                left.difference_update(row[0] for row in ours)
            return left

        return await self._pool.run_on_connection(send)


def _settle_appends(outcomes: Iterable[tuple[PendingAppend, Exception | None]]) -> None:
    for append, error in outcomes:
        if append.done.done():
            continue
        if error is None:
            append.done.set_result(None)
        else:
            append.done.set_exception(error)
