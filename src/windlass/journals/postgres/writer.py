"""Writes the appends of one event loop to Postgres.

Appends that wait while the server commits go out together, in one statement and one commit, so a
hundred sessions cost little more than one. The statement writes each session completely or not at
all, and only if it still ends where this process believes it does. A session that does not is read
again, and its append is tried again or refused.

When the connection breaks, it is unknown whether the statement was executed. It is then sent again.
A session whose last record has our hash was written the first time; one that still ends where it
did before is written now. The first statement can no longer be executed after that, because its
sessions have moved on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from windlass.core.errors import JournalFailed, UpgradeUnfinished
from windlass.journals.postgres.batch import (
    APPEND_SQL,
    FIND_OWN_RECORDS_SQL,
    AppendBatch,
    FindClaim,
    format_sql,
)
from windlass.journals.postgres.config import PostgresConnection, is_unstorable, postgres_error
from windlass.journals.postgres.pool import ConnectionPool
from windlass.journals.postgres.queries import PostgresQueries
from windlass.journals.postgres.questions import PostgresQuestions
from windlass.journals.postgres.tails import KeptTails
from windlass.journals.session_rows import PendingAppend, SessionEnd, extend_link
from windlass.journals.upgrades import check_shared_facts, find_new_fact
from windlass.journals.wording import session_busy_error

BATCH_APPENDS_MAX = 500
"""Appends in one statement."""
BATCH_BYTES_MAX = 16_000_000
"""Size of one statement, unless a single append is larger."""
KNOWN_SESSIONS_MAX = 10_000
"""Sessions whose end is remembered."""
ATTEMPTS_MAX = 5
"""How often an append is tried while another driver keeps writing the same session."""


class _UnstorableAppend(JournalFailed):
    """Postgres cannot store the values of an append."""


class PostgresWriter:
    """Takes appends, and makes sure that each is written or refused."""

    def __init__(self, pool: ConnectionPool, tails: KeptTails) -> None:
        self._pool = pool
        self.tails = tails
        config = pool.config
        self._queries = PostgresQueries(config)
        self._questions = PostgresQuestions(config)
        self._find_own_sql = format_sql(FIND_OWN_RECORDS_SQL, config.quoted_schema)
        self._append_sql = format_sql(APPEND_SQL, config.quoted_schema)
        self._blobs_lock = config.lock_key("blobs")
        self._known_ends: dict[str, SessionEnd] = {}
        """May be out of date: the database compares before it writes."""
        self.find_claim: FindClaim = _has_no_claim
        """Returns the lease that this process has of a session."""
        self.is_held: Callable[[str], bool] = _is_never
        """Whether this process has the lease of a session, and has not lost it."""
        self.wait_for_releases: Callable[[], Awaitable[None]] = _do_nothing
        """Waits for leases that this process is about to free."""
        self.tell_waiters: Callable[[Sequence[str], bool], None] = _tell_nobody
        """Wakes who waits for these sessions, also elsewhere if the second argument is true."""
        self.wait_for_recovery: Callable[[], Awaitable[None]] = _do_nothing
        """Waits while leases and lost records are restored after a failover."""
        self._waiting: list[PendingAppend] = []
        self._task: asyncio.Task[None] | None = None

    def submit(self, append: PendingAppend) -> None:
        """Queue an append; its future is settled when it is written or refused."""
        self._waiting.append(append)
        if self._task is None:
            self._task = self._pool.loop.create_task(self._write_waiting())

    def find_head(self, session: str) -> bytes | None:
        """Return the hash of the last record of a session, as far as it is known."""
        end = self._known_ends.get(session)
        return None if end is None else end.last_link.hash

    def forget_end(self, session: str) -> None:
        """Look up where a session ends before the next append to it."""
        self._known_ends.pop(session, None)

    def remember_end(self, row: Sequence[Any]) -> None:
        """Remember where a session ends, from its row."""
        end = SessionEnd.from_row(row)
        self._known_ends[end.summary.session] = end

    async def wait_until_idle(self) -> None:
        """Wait until all appends that were submitted are written or refused."""
        while self._task is not None:
            await asyncio.wait({self._task})

    async def _write_waiting(self) -> None:
        batch: list[PendingAppend] = []
        try:
            while self._waiting:
                if len(self._known_ends) > KNOWN_SESSIONS_MAX:
                    self._known_ends.clear()
                batch = self._take_batch()
                await self._write_appends(batch)
        finally:
            # Only a cancelled task has anything left here: its event loop is shutting down.
            self._task = None
            error = JournalFailed(
                f"{self._pool.config.location}: the event loop was stopped before the facts "
                "were written; resume the run"
            )
            _settle_appends((append, error) for append in (*batch, *self._waiting))
            self._waiting.clear()

    def _take_batch(self) -> list[PendingAppend]:
        count = 0
        size_bytes = 0
        for append in self._waiting[:BATCH_APPENDS_MAX]:
            size_bytes += append.size_bytes
            if count and size_bytes > BATCH_BYTES_MAX:
                break
            count += 1
        batch = self._waiting[:count]
        self._waiting = self._waiting[count:]
        return batch

    async def _write_appends(self, appends: Sequence[PendingAppend]) -> None:
        """Write the appends and settle their futures."""
        try:
            for attempt in range(ATTEMPTS_MAX):
                appends = await self._attempt_write(appends, is_first=attempt == 0)
                if not appends:
                    return
            _settle_appends((append, session_busy_error(append.session)) for append in appends)
        except _UnstorableAppend as error:
            await self._write_session_by_session(appends, error)
        except Exception as error:  # noqa: BLE001 - any error must reach the callers, who wait
            self._known_ends.clear()
            _settle_appends((append, error) for append in appends)

    async def _write_session_by_session(
        self, appends: Sequence[PendingAppend], error: _UnstorableAppend
    ) -> None:
        """Write each session alone, so that only the one that cannot be stored fails."""
        sessions = {append.session for append in appends}
        if len(sessions) == 1:
            _settle_appends((append, error) for append in appends)
            return
        for session in sessions:
            await self._write_appends([append for append in appends if append.session == session])

    async def _attempt_write(
        self, appends: Sequence[PendingAppend], *, is_first: bool
    ) -> list[PendingAppend]:
        """Write what can be written; returns the appends that must be tried again."""
        if not is_first:
            # The server may have refused because another one has taken its place.
            await self._pool.run_on_connection(self._pool.history.check)
        await self.wait_for_recovery()
        appends = await self._refuse_unshared(appends)
        looked_up = await self._find_unknown_ends(appends, trust_new=is_first)
        if any(self.find_claim(append.session) is None for append in appends):
            await self.wait_for_releases()
        batch = AppendBatch(self.find_claim, self._pool.history.timeline)
        # All processes lock the sessions in the same order, so they cannot deadlock.
        for append in sorted(appends, key=lambda append: append.session):
            end = self._known_ends.get(append.session)
            batch.add_append(append, end or SessionEnd.of_new_session(append.session))
        stale = await self._send_batch(batch) if batch.ends else set[str]()
        # An append that was refused because of a remembered end is tried once more: another process
        # may have deleted the session since.
        refused = {append.session for append, _ in batch.refused}
        stale |= refused - batch.ends.keys() - looked_up
        self._known_ends.update(
            (name, end.after_writing()) for name, end in batch.ends.items() if name not in stale
        )
        for name in stale:
            self._known_ends.pop(name, None)
        errors = {id(append): error for append, error in batch.refused}
        self._keep_tails(batch, [one for one in appends if one.session not in stale], errors)
        settled = [append for append in appends if append.session not in stale]
        _settle_appends((append, errors.get(id(append))) for append in settled)
        return [append for append in appends if append.session in stale]

    def _keep_tails(
        self, batch: AppendBatch, written: Sequence[PendingAppend], errors: Mapping[int, object]
    ) -> None:
        """Keep what was acknowledged just now."""
        links = {name: end.last_link for name, end in batch.starts.items()}
        for append in written:
            if id(append) not in errors:
                before = links[append.session]
                links[append.session] = extend_link(before, append.records)
                claim = self.find_claim(append.session)
                after = links[append.session].hash
                self.tails.keep(append, before.hash, after, claim[1] if claim else 0)

    async def _refuse_unshared(self, appends: Sequence[PendingAppend]) -> list[PendingAppend]:
        """Refuse what the version before cannot read, while it may use the journal."""
        if not any(find_new_fact(append.facts) for append in appends):
            return [*appends]
        if not await self._pool.ask_if_shared():
            return [*appends]
        allowed: list[PendingAppend] = []
        for append in appends:
            try:
                check_shared_facts(self._pool.config.location, append.facts)
            except UpgradeUnfinished as error:
                _settle_appends([(append, error)])
            else:
                allowed.append(append)
        return allowed

    async def _find_unknown_ends(
        self, appends: Iterable[PendingAppend], *, trust_new: bool
    ) -> set[str]:
        """Look up the sessions whose end is not remembered; returns their names.

        With `trust_new`, a session whose append begins with record 1 is taken for a new one, unless
        it is leased: then it has a row.
        """
        names = {
            append.session
            for append in appends
            if append.session not in self._known_ends
            and not (trust_new and append.facts[0].seq == 1 and not self.find_claim(append.session))
        }
        if names:
            await self._look_up_ends(names)
            if await self._notice_rewind(names):
                await self._look_up_ends(names)
        return names

    async def _look_up_ends(self, names: Iterable[str]) -> None:
        ends = await self._pool.run_on_connection(
            lambda server: self._queries.find_ends(server, [*names])
        )
        self._known_ends.update((end.summary.session, end) for end in ends)

    async def _notice_rewind(self, names: Iterable[str]) -> bool:
        """Return whether a session of this process ended before what was acknowledged.

        Then it is restored, if it can be.
        """
        for name in names:
            end = self._known_ends.get(name)
            is_behind = (end.last_link.seq if end else 0) < self.tails.last_seq(name)
            if is_behind and self.is_held(name):
                await self._pool.run_on_connection(
                    lambda server, name=name: self._pool.history.note_rewind(server, name)
                )
                await self.wait_for_recovery()
                return True
        return False

    async def _send_batch(self, batch: AppendBatch) -> set[str]:
        """Write the batch in one statement; returns the sessions that end elsewhere."""
        arguments = batch.statement_arguments()
        was_sent = False

        async def send(server: PostgresConnection) -> set[str]:
            nonlocal was_sent
            is_repeated = was_sent
            was_sent = True
            try:
                rows = await self._send_statement(server, batch, arguments)
            except Exception as error:
                if is_unstorable(error):
                    message = str(postgres_error(self._pool.config, error))
                    raise _UnstorableAppend(message) from None
                raise
            self._tell_waiters(batch, rows)
            written = {row[0] for row in rows}
            unwritten = {name for name, place in batch.places.items() if place not in written}
            if is_repeated and unwritten:
                # The first time, the server may have written them before the connection broke.
                rows = await server.fetch(self._find_own_sql, *batch.last_records(unwritten))
                unwritten.difference_update(row[0] for row in rows)
            return unwritten

        return await self._pool.run_on_connection(send)

    def _tell_waiters(self, batch: AppendBatch, rows: Sequence[Sequence[Any]]) -> None:
        waited = {row[0]: row[1] for row in rows}
        for elsewhere in (False, True):
            names = [name for name, at in batch.places.items() if waited.get(at) is elsewhere]
            self.tell_waiters(names, elsewhere)

    async def _send_statement(
        self, server: PostgresConnection, batch: AppendBatch, arguments: Sequence[object]
    ) -> Sequence[Sequence[Any]]:
        """Write the batch, and the questions that its facts open or settle with it."""
        timeline = batch.timeline
        if not batch.asking:
            return await server.fetch(self._append_sql, *arguments, self._blobs_lock, timeline)
        async with server.transaction():
            rows = await server.fetch(self._append_sql, *arguments, self._blobs_lock, timeline)
            written = {row[0] for row in rows}
            asking = {
                name: facts for name, facts in batch.asking.items() if batch.places[name] in written
            }
            if asking:
                await self._questions.advance(server, asking)
        return rows


def _settle_appends(outcomes: Iterable[tuple[PendingAppend, Exception | None]]) -> None:
    for append, error in outcomes:
        if append.done.done():
            continue
        if error is None:
            append.done.set_result(None)
        else:
            append.done.set_exception(error)


def _is_never(_session: str) -> bool:
    return False


def _has_no_claim(_session: str) -> None:
    return None


async def _do_nothing() -> None:
    pass


def _tell_nobody(_sessions: Sequence[str], _elsewhere: bool) -> None:  # noqa: FBT001 - a callback
    pass
