"""The one thread that writes to an SQLite file.

It takes all appends that are waiting, writes them in one transaction with one fsync, and only then
completes the futures of the callers. While it waits for the disk, the next group gathers, so a
hundred sessions cost little more than one.

The law: the number of statements does not grow with the number of appends. Each statement releases
the interpreter lock and has to win it back from a busy event loop. That would be the limit, not the
disk.
"""

import asyncio
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import apsw

from windlass.core.errors import JournalFailed, WindlassError
from windlass.journals.sqlite.open_files import OpenFiles
from windlass.journals.sqlite.schema import sqlite_error
from windlass.journals.stored_journal import (
    CHANGING_COLUMNS,
    SESSION_COLUMNS,
    PendingAppend,
    SessionEnd,
)
from windlass.journals.wording import closed_error, forked_error
from windlass.sqlite_file import SqliteConnection, write_transaction
from windlass.sqlite_guard import FileGuard

GROUP_APPENDS_MAX = 1_000
"""Appends in one transaction."""
KNOWN_SESSIONS_MAX = 10_000
"""Sessions whose end is remembered between two groups."""
STATEMENT_ROWS_MAX = 1_000
"""Rows in one statement; SQLite accepts 32,766 values, and a row has at most 12."""

SELECT_SESSION = f"SELECT {SESSION_COLUMNS}, number FROM sessions"  # noqa: S608 - our own names
FIND_SESSION = f"{SELECT_SESSION} WHERE session = ?"
_INSERT_SESSION = f"INSERT INTO sessions ({SESSION_COLUMNS}, number) VALUES "  # noqa: S608 - as above
_SESSION_VALUES = f"({', '.join('?' * (SESSION_COLUMNS.count(',') + 2))})"
_OR_UPDATE_SESSION = " ON CONFLICT (number) DO UPDATE SET " + ", ".join(
    f"{column} = excluded.{column}" for column in CHANGING_COLUMNS
)
_INSERT_RECORD = "INSERT INTO records (number, seq, body, hash) VALUES "

_JobOutcome = tuple[asyncio.Future[Any], Any]
"""A future, and its result or exception."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """Any other change of the file, done as a whole or not at all."""

    work: Callable[[SqliteConnection], Any]
    done: asyncio.Future[Any]
    moves_ends: bool = False
    """Whether sessions may end elsewhere after it, so that the remembered ends are wrong."""


class _AppendGroup:
    """The rows of one transaction."""

    def __init__(self, next_number: int) -> None:
        self.next_number = next_number
        self.ends: dict[str, SessionEnd] = {}
        self.records: list[tuple[int, int, bytes, bytes]] = []
        self.blobs: dict[str, bytes] = {}
        self.uses: list[tuple[str, int]] = []

    def add_append(self, append: PendingAppend, end: SessionEnd) -> None:
        """Add an append to a session that ends at `end`; raises if it does not follow that."""
        number = end.number
        self.ends[append.session], rows = end.extend(append)
        self.records += ((number, *row) for row in rows)
        for record in append.records:
            self.blobs.update(record.blobs)
            self.uses.extend((name, number) for name, _ in record.blobs)
        self.next_number = max(self.next_number, number + 1)


def _notify_nobody(_sessions: Iterable[str]) -> None:
    """Do nothing with the names of the sessions that were written."""


class SqliteWriter:
    """Owns the writing connection of a file, and the thread that uses it."""

    def __init__(
        self,
        connection: SqliteConnection,
        path: Path,
        on_written: Callable[[Iterable[str]], None] = _notify_nobody,
    ) -> None:
        """Start the thread. It calls `on_written` with the sessions of each group after writing.

        Raises JournalFailed if the file was deleted or replaced since the connection was opened.
        """
        self._connection = connection
        self._path = path
        self._guard = FileGuard(path)
        self._files = OpenFiles(path, connection)
        self._on_written = on_written
        self._queue: SimpleQueue[PendingAppend | FileChange | None] = SimpleQueue()
        """The jobs in order. None stands for the end, and nothing follows it."""
        self._closed = False
        self._mutex = threading.Lock()
        self._process = os.getpid()
        self._known_ends: dict[str, SessionEnd] = {}
        self._next_number = 0
        self._data_version = -1
        # A daemon thread is safe: an append is only reported as done when it is durable.
        name = f"journal {path}"
        self._thread = threading.Thread(target=self._run_thread, name=name, daemon=True)
        self._thread.start()

    @property
    def is_owning_process(self) -> bool:
        """Whether this is the process that opened the file. SQLite does not work after a fork."""
        return self._process == os.getpid()

    def submit(self, job: PendingAppend | FileChange) -> None:
        """Queue a job; its future is settled in its own event loop.

        Raises JournalFailed if the writer is closed or belongs to another process.
        """
        if not self.is_owning_process:
            raise forked_error(f"journal {self._path}")
        with self._mutex:
            if self._closed:
                raise closed_error(f"journal {self._path}")
            self._queue.put(job)

    def close(self) -> None:
        """Write what is waiting, then stop the thread. A forked child has no thread to stop."""
        if not self.is_owning_process:
            return
        with self._mutex:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        # The garbage collector may close a forgotten journal in any thread, so also in this one.
        if threading.current_thread() is not self._thread:
            self._thread.join()

    @property
    def lost_log(self) -> bool:
        """Whether the log was replaced, so that closing must not touch it."""
        return self._files.lost_log

    def close_guard(self) -> None:
        """Let the file go, after all connections of the journal are closed."""
        self._guard.close()

    def _run_thread(self) -> None:
        is_open = True
        while is_open:
            jobs = self._take_jobs()
            is_open = jobs[-1] is not None
            outcomes: list[_JobOutcome] = []
            appends = [job for job in jobs if isinstance(job, PendingAppend)]
            if appends:
                errors = self._write_group(appends)
                outcomes += ((job.done, errors.get(id(job))) for job in appends)
            changes = [job for job in jobs if isinstance(job, FileChange)]
            if changes:
                results = self._run_changes(changes)
                outcomes += zip((job.done for job in changes), results, strict=True)
                del results
            _deliver_outcomes(outcomes)
            # An idle writer must not keep facts, futures or event loops alive.
            del jobs, appends, changes, outcomes
        self._guard.unlock()
        with suppress(apsw.Error):
            self._connection.close()

    def _take_jobs(self) -> list[PendingAppend | FileChange | None]:
        """Wait for a job, then take all that are there."""
        jobs = [self._queue.get()]
        with suppress(Empty):
            while len(jobs) < GROUP_APPENDS_MAX:
                jobs.append(self._queue.get_nowait())
        return jobs

    def _write_group(self, appends: Sequence[PendingAppend]) -> dict[int, WindlassError]:
        """Write the appends; returns the errors of those that were not written, by their id()."""
        errors: dict[int, WindlassError] = {}
        try:
            with self._checked_transaction():
                self._refresh_known_ends()
                group = _AppendGroup(self._next_number)
                for append in appends:
                    try:
                        group.add_append(append, self._find_end(append.session, group))
                    except WindlassError as error:
                        errors[id(append)] = error
                self._insert_group(group)
        except Exception as error:  # noqa: BLE001 - any error must reach the callers, who wait
            self._data_version = -1
            failure = self._as_failure(error)
            return {id(append): failure for append in appends}
        self._known_ends.update(group.ends)
        self._next_number = group.next_number
        self._on_written(group.ends)
        return errors

    @contextmanager
    def _checked_transaction(self) -> Generator[None]:
        """A transaction that is done only if the files are still those that were opened."""
        # Frames that are written after the end of a truncated log would hide that it was cut.
        self._files.check_log()
        with write_transaction(self._connection):
            yield
        self._files.check()

    def _as_failure(self, error: Exception) -> WindlassError:
        if isinstance(error, WindlassError):
            return error
        try:
            self._files.check()
        except JournalFailed as cause:
            return cause
        return sqlite_error(self._path, error)

    def _refresh_known_ends(self) -> None:
        """Forget the remembered ends if another connection has changed the file."""
        version: int = self._connection.execute("PRAGMA data_version").get
        if version != self._data_version or len(self._known_ends) > KNOWN_SESSIONS_MAX:
            self._known_ends.clear()
            newest = self._connection.execute("SELECT max(number) FROM sessions").get
            self._next_number = (newest or 0) + 1
            self._data_version = version

    def _find_end(self, session: str, group: _AppendGroup) -> SessionEnd:
        end = group.ends.get(session) or self._known_ends.get(session)
        if end is not None:
            return end
        row = self._connection.execute(FIND_SESSION, (session,)).fetchone()
        if row is None:
            return SessionEnd.of_new_session(session, group.next_number)
        return session_end_from_row(row)

    def _insert_group(self, group: _AppendGroup) -> None:
        execute = self._connection.execute
        # The bodies are bytes already; the cast stores them as text without decoding them here.
        _insert_rows(execute, _INSERT_RECORD, "(?, ?, CAST(? AS TEXT), ?)", group.records)
        ends = [(*end.to_row(), end.number) for end in group.ends.values()]
        _insert_rows(execute, _INSERT_SESSION, _SESSION_VALUES, ends, _OR_UPDATE_SESSION)
        if group.blobs:
            blobs = [*group.blobs.items()]
            _insert_rows(execute, "INSERT OR IGNORE INTO blobs VALUES ", "(?, ?)", blobs)
            _insert_rows(execute, "INSERT OR IGNORE INTO uses VALUES ", "(?, ?)", group.uses)

    def _run_changes(self, changes: Sequence[FileChange]) -> Sequence[object]:
        """Run the changes in one transaction; returns the result or the error of each."""
        if any(change.moves_ends for change in changes):
            self._data_version = -1
        try:
            with self._checked_transaction():
                results = [self._run_change(change) for change in changes]
        except Exception as error:  # noqa: BLE001 - any error must reach the callers, who wait
            return [self._as_failure(error)] * len(changes)
        return results

    def _run_change(self, change: FileChange) -> object:
        # With a savepoint, a change that fails does not undo the others.
        self._connection.execute("SAVEPOINT change")
        try:
            result = change.work(self._connection)
        except Exception as error:  # noqa: BLE001 - it is the result of this change
            self._connection.execute("ROLLBACK TO change")
            result = self._as_failure(error)
        self._connection.execute("RELEASE change")
        return result


def session_end_from_row(row: Sequence[Any]) -> SessionEnd:
    """Read the end of a session from a row of SELECT_SESSION."""
    *columns, number = row
    return SessionEnd.from_row(columns, number)


def _insert_rows(
    execute: Callable[[str, Sequence[Any]], object],
    insert: str,
    placeholders: str,
    rows: Sequence[Sequence[Any]],
    on_conflict: str = "",
) -> None:
    """Insert the rows in one statement, or in as few as SQLite accepts."""
    for start in range(0, len(rows), STATEMENT_ROWS_MAX):
        chunk = rows[start : start + STATEMENT_ROWS_MAX]
        values = [value for row in chunk for value in row]
        execute(f"{insert}{', '.join([placeholders] * len(chunk))}{on_conflict}", values)


def _deliver_outcomes(outcomes: Iterable[_JobOutcome]) -> None:
    """Wake each event loop once, with all outcomes that belong to it."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[_JobOutcome]] = defaultdict(list)
    for outcome in outcomes:
        by_loop[outcome[0].get_loop()].append(outcome)
    for loop, loop_outcomes in by_loop.items():
        # call_soon_threadsafe raises if the loop is closed; then nobody waits any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle_futures, loop_outcomes)


def _settle_futures(outcomes: Iterable[_JobOutcome]) -> None:
    for done, outcome in outcomes:
        if done.done():
            continue
        if isinstance(outcome, Exception):
            done.set_exception(outcome)
        else:
            done.set_result(outcome)
