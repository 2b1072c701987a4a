"""A journal in one SQLite file. An append is durable when it is done.

Any number of event loops, threads and processes may use the file at the same time. A driver that
writes to a session which another driver has continued is refused; nothing is ever merged.
"""

import asyncio
import os
import threading
import time
import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import apsw
from typing_extensions import override

from windlass.core.errors import ConfigError, JournalCorrupt
from windlass.core.events import Fact
from windlass.core.limits import Amount, Budget
from windlass.core.session_summary import PagePlace, SessionQuery, SessionSummary
from windlass.journals.codec import RecordProblem, first_hash
from windlass.journals.leases import FileLeaseTable, HeldLease
from windlass.journals.live.inbox import AppendNotifier
from windlass.journals.live.socket_server import LiveSocketServer, SocketSender
from windlass.journals.live.socket_watch import SocketSubscription
from windlass.journals.mail_rules import MailLimits
from windlass.journals.record_rules import BudgetDraws, ShareChange
from windlass.journals.saved_journal import SavedJournal
from windlass.journals.session_rows import PendingAppend
from windlass.journals.signing import load_key
from windlass.journals.sqlite import budgets, queries
from windlass.journals.sqlite.anchors import AnchorBook
from windlass.journals.sqlite.open_files import keep_log_on_close
from windlass.journals.sqlite.saving import (
    PLAIN_COPY,
    is_plain_copy,
    note_file,
    open_noted,
    save_file,
)
from windlass.journals.sqlite.schema import sqlite_error
from windlass.journals.sqlite.shared_records import RecordTable, SqliteRecordStore
from windlass.journals.sqlite.tombstones import find_tombstone, write_tombstone
from windlass.journals.sqlite.writer import FileChange, SqliteWriter
from windlass.journals.upgrades import UpgradeStatus
from windlass.journals.wording import Durability, check_durability, closed_error
from windlass.ports.records import Tombstone
from windlass.sqlite_file import SqliteConnection, open_connection, read_transaction

T = TypeVar("T")
DAMAGE_ERRORS = (apsw.CorruptError, apsw.NotADBError, apsw.SQLError, UnicodeError)
"""What SQLite raises for a damaged page: that, missing tables, or text that is not UTF-8."""
PRUNE_BATCH = 500
"""Sessions that are deleted in one transaction, each with those below it."""


class SqliteJournal(SqliteRecordStore, BudgetDraws):
    """A journal in an SQLite file.

    With the durability "relaxed", the last appends may be lost in a power failure. If only the
    process dies, nothing is lost with either setting.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "full",
        now: Callable[[], float] = time.time,
        mail_limits: MailLimits | None = None,
    ) -> None:
        """Open the file; create it, with its folder and tables, if it does not exist.

        Args:
            path: the file; a leading `~` is the home folder.
            durability: "full" waits for the disk at each append, "relaxed" does not.
            now: seconds since the epoch, for windows of budgets and times of messages.
            mail_limits: how many messages may wait for a session.

        Raises ConfigError if the path cannot be a journal, and JournalFailed if it cannot be used.
        """
        check_durability(durability)
        self.path = _checked_path(path)
        leases = FileLeaseTable(self.path)
        super().__init__(f"journal {self.path}", mail_limits or MailLimits(), now, leases)
        self._now = now
        self._notifier = AppendNotifier()
        connection = open_noted(self.path, durability)
        self._book = AnchorBook.open(connection, load_key())
        self._records = RecordTable(self._location, self._book)
        self._writer = SqliteWriter(connection, self.path, self._notifier.notify, self._book)
        self._readers: list[SqliteConnection] = []
        self._poll_connections: list[SqliteConnection] = []
        """Empty, or the one connection that shows when another process has written."""
        self._poll_mutex = threading.Lock()
        self._live = LiveSocketServer(self.path)
        # A journal that is no longer referenced stops its thread, at the latest when Python exits.
        parts = (self._writer, self._readers, self._poll_connections, self._leases, self._live)
        self._finalizer = weakref.finalize(self, _close_parts, *parts)

    @override
    def close(self) -> None:
        """Flush pending writes, then close the file and release all leases."""
        self._finalizer()

    # ── records ──────────────────────────────────────────────────────────────

    @override
    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        """Return the facts of a session after number `after`, each checked against the chain.

        An unknown session has none. Raises JournalCorrupt if a record is not what was written.
        """
        name = self._check_name(session)
        return await self._run_query(
            lambda file: self._require_facts(name, queries.read_facts(file, name, after))
        )

    async def verify(self, session: str) -> list[RecordProblem]:
        """Return a problem for each record of a session that was changed, moved or removed."""
        return await self._run_query(lambda file: queries.verify_session(file, session, self._book))

    async def check(self) -> list[str]:
        """Return what is wrong with the file as a whole. This reads all of it."""
        problems = await self._run_query(lambda file: queries.check_file(file, self._book))
        is_copy = await self._run_query(lambda file: is_plain_copy(file, self.path))
        return [*problems, PLAIN_COPY] if problems and is_copy else problems

    async def save(self, target: Path) -> SavedJournal:
        """Save the journal as one file while others use it, and check every record of it."""
        return await asyncio.to_thread(save_file, self.path, target)

    async def load(self, backup: Path) -> SavedJournal:
        """Raise ConfigError: a file is replaced as a whole."""
        raise ConfigError(f"{backup} replaces the file of a journal: use `windlass restore`")

    async def read_first_hash(self, session: str) -> bytes:
        """Return the hash of the first record of a session; empty if there is none."""
        facts = await self.read(session)
        return first_hash(session, facts[0]) if facts else b""

    async def accept(self) -> None:
        """Take the journal as it is for genuine: it was moved here, or restored from a backup."""
        book = self._book
        if book is not None:
            await self._submit_change(book.accept, moves_ends=True)
            await self._submit_change(lambda file: note_file(file, self.path))
            await self._change_records(self._records.sign_all)
            book.remember(now=True)

    @override
    async def find_forgeries(self, session: str) -> list[RecordProblem]:
        """Return what was done to a session without the user's key; nothing if it is genuine."""
        book = self._book
        if book is None:
            return []
        return await self._run_query(lambda file: queries.find_forgeries(file, session, book))

    @override
    def _submit_append(self, append: PendingAppend) -> None:
        self._writer.submit(append)

    # ── the list of sessions ─────────────────────────────────────────────────

    @override
    async def _select_sessions(
        self, query: SessionQuery, place: PagePlace | None, limit: int
    ) -> list[SessionSummary]:
        return await self._run_query(lambda file: queries.list_sessions(file, query, place, limit))

    @override
    async def _find_summary(self, session: str) -> SessionSummary | None:
        return await self._run_query(lambda file: queries.find_summary(file, session))

    @override
    async def _find_driven(self, sessions: Sequence[str]) -> set[str]:
        return set(filter(self._leases.is_taken, sessions))

    async def delete(self, session: str, *, erase: bool = False) -> bool:
        """Delete a session, those that work for it, and the attachments that only they used.

        Returns whether there was one. Raises SessionBusy, and deletes nothing, if one is driven.
        """
        leases = [self._leases.acquire(self._check_name(session))]

        def lease_below(name: str) -> None:
            leases.append(self._leases.acquire(name))

        def release_all(_: object) -> None:
            for lease in leases:
                lease.release()

        deletion = self._submit_change(
            lambda file: queries.delete_tree(file, session, lease_below, self._book, erase=erase),
            moves_ends=True,
        )
        # The deletion continues even if its caller is cancelled, and the leases are held until it
        # ends.
        deletion.add_done_callback(release_all)
        return await asyncio.shield(deletion)

    async def find_tombstone(self, session: str, first: bytes = b"") -> Tombstone | None:
        """Return what stays of a deleted session, by its name or by its first record."""
        value = first or self._check_name(session)
        return await self._run_query(lambda file: find_tombstone(file, value, self._book))

    async def bury(self, name: str) -> None:
        """Leave a tombstone under a name."""
        await self._submit_change(lambda file: write_tombstone(file, name, self._book, erase=True))

    async def scrub(self) -> bool:
        """Shorten the file by what was deleted, and empty its log; returns whether it is empty.

        It waits for readers that still need the log, for some seconds.
        """
        return await self._writer.scrub()

    @override
    async def _delete_ended_trees(self, trees: Sequence[Sequence[str]], before: float) -> int:
        count = 0
        for start in range(0, len(trees), PRUNE_BATCH):
            batch = trees[start : start + PRUNE_BATCH]
            count += await self._submit_change(
                lambda file, batch=batch: queries.delete_ended_trees(
                    file, batch, before, self._leases.is_taken, self._book
                ),
                moves_ends=True,
            )
        return count

    # ── leases and news ──────────────────────────────────────────────────────

    @override
    async def lease(self, session: str) -> HeldLease:
        """Take the lease of a session; raises SessionBusy at once if a live driver has it."""
        return self._leases.acquire(self._check_name(session))

    async def is_leased(self, session: str) -> bool:
        """Whether a live driver has the session, in this process or another."""
        return self._leases.is_taken(self._check_name(session))

    async def wait_for_append(self, session: str, after: int) -> None:
        """Return when the session has records after number `after`.

        An append of this process is noticed at once, one of another process within 0.1 s.
        """
        name = self._check_name(session)
        await self._wait_for_change(
            self._notifier.subscribe(name),
            lambda file: queries.last_seq(file, name) > after,
        )

    @override
    def _data_version(self) -> int:
        """Return a number that changes when another connection writes. This needs no thread."""
        with self._poll_mutex, self._translate_errors():
            if not self._poll_connections:
                self._poll_connections.append(open_connection(self.path))
            return self._poll_connections[0].execute("PRAGMA data_version").get

    def open_live(self, session: str, on_interest: Callable[[bool], None]) -> SocketSender:
        """Open the driver's side of the live channel, on a socket that only this user can use."""
        return self._live.open_sender(session, on_interest)

    def watch_live(self, session: str) -> SocketSubscription:
        """Open a watcher's side of the live channel: it finds the driver by its socket."""
        return SocketSubscription(self.path, self._check_name(session))

    # ── upgrades ─────────────────────────────────────────────────────────────

    @override
    async def upgrade_status(self) -> UpgradeStatus:
        """Return the state of the upgrade of the file."""
        return await self._run_query(queries.upgrade_status)

    @override
    async def _fold_rows_again(self) -> int:
        return await self._submit_change(queries.fold_rows_again, moves_ends=True)

    @override
    async def _finish_upgrade(self) -> None:
        await self._submit_change(queries.finish_upgrade, moves_ends=True)

    # ── blobs ────────────────────────────────────────────────────────────────

    async def put_blob(self, session: str, data: bytes) -> str:
        """Store data for as long as the session, and return its name once it is on the disk.

        Raises JournalFailed if there is no such session.
        """
        name = self._check_name(session)
        return await self._submit_change(lambda file: queries.put_blob(file, name, data))

    @override
    async def _find_blob(self, session: str, prefix: str) -> bytes | None:
        return await self._run_query(lambda file: queries.get_blob(file, session, prefix))

    # ── budgets ──────────────────────────────────────────────────────────────

    @override
    async def _change_share(self, change: ShareChange) -> Amount:
        self._check_name(change.session)
        at = self._now()
        return await self._submit_change(
            lambda file: budgets.change_share(file, change, at, self._book)
        )

    @override
    async def _read_promised(self, budget: Budget, window: str) -> Amount:
        return await self._run_query(lambda file: budgets.promised_amount(file, budget, window))

    @override
    async def _read_held(self, budget: Budget, window: str, tree: str) -> Amount:
        query = budgets.reserved_amount
        return await self._run_query(lambda file: query(file, budget, window, tree))

    # ── the file ─────────────────────────────────────────────────────────────

    @override
    def _submit_change(
        self, work: Callable[[SqliteConnection], T], *, moves_ends: bool = False
    ) -> asyncio.Future[T]:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._writer.submit(FileChange(work, done, moves_ends))
        return done

    @override
    async def _run_query(self, work: Callable[[SqliteConnection], T]) -> T:
        """Run a query in a thread, on its own connection, at one moment of the file."""

        def query() -> T:
            with self._translate_errors():
                file = self._readers.pop() if self._readers else open_connection(self.path)
                try:
                    with read_transaction(file):
                        found = work(file)
                except BaseException:
                    # The traceback can hold a cursor with rows left: later queries would see no
                    # change.
                    keep_log_on_close(file)
                    file.close(force=True)
                    raise
                self._readers.append(file)
                return found

        return await asyncio.to_thread(query)

    @contextmanager
    def _translate_errors(self) -> Generator[None]:
        """Turn errors of SQLite into ours."""
        if not self._finalizer.alive:
            raise closed_error(self._location)
        try:
            yield
        except DAMAGE_ERRORS as error:
            raise JournalCorrupt(
                f"{self._location}: the file is damaged; restore it from a backup ({error})"
            ) from error
        except apsw.Error as error:
            raise sqlite_error(self.path, error) from error


def _checked_path(path: str | os.PathLike[str]) -> Path:
    if os.fspath(path) == ":memory:":
        raise ConfigError(
            "SqliteJournal(':memory:') is not supported: use MemoryJournal() for sessions "
            "that live as long as the process, or name a file"
        )
    return Path(path).expanduser().absolute()


def _close_parts(
    writer: SqliteWriter,
    readers: list[SqliteConnection],
    poll_connections: list[SqliteConnection],
    leases: FileLeaseTable,
    live: LiveSocketServer,
) -> None:
    live.close()
    writer.close()
    # In a forked child the connections belong to the parent, and SQLite must not touch them.
    for connections in (readers, poll_connections):
        while connections and writer.is_owning_process:
            connection = connections.pop()
            if writer.lost_log or writer.keeps_log:
                keep_log_on_close(connection)
            connection.close()
    writer.close_guard()
    leases.close()
