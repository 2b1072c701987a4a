"""The one thread that writes to an SQLite file.

It takes all appends that are waiting, writes them in one transaction with one fsync, and only then
completes the futures of the callers. While it waits for the disk, the next group gathers, so a
hundred sessions cost little more than one.

Invariant: the number of statements does not grow with the number of appends. Each statement
releases the interpreter lock and has to win it back from a busy event loop: that would be the
limit, and not the disk.
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
from windlass.core.events import CallAnswered, Fact
from windlass.core.fold.control import touches_questions
from windlass.journals.session_rows import PendingAppend, SessionEnd
from windlass.journals.sqlite.anchors import AnchorBook, NewAnchor
from windlass.journals.sqlite.open_files import OpenFiles, keep_side_files
from windlass.journals.sqlite.questions import advance_question_rows
from windlass.journals.sqlite.schema import is_shared, sqlite_error
from windlass.journals.sqlite.session_table import insert_rows, read_end, write_ends
from windlass.journals.sqlite.tombstones import scrub_file
from windlass.journals.upgrades import check_shared_facts
from windlass.journals.wording import closed_error, forked_error
from windlass.sqlite_file import SqliteConnection, write_transaction
from windlass.sqlite_guard import FileGuard

GROUP_APPENDS_MAX = 1_000
"""Appends in one transaction."""
KNOWN_SESSIONS_MAX = 10_000
"""Sessions whose end is remembered between two groups."""
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
    is_scrub: bool = False
    """Whether it needs the file without a transaction, because it shortens the file."""


class _AppendGroup:
    """The rows of one transaction."""

    def __init__(self, next_number: int) -> None:
        self.next_number = next_number
        self.ends: dict[str, SessionEnd] = {}
        self.records: list[tuple[int, int, bytes, bytes]] = []
        self.blobs: dict[str, bytes] = {}
        self.uses: list[tuple[str, int]] = []
        self.answers: list[NewAnchor] = []
        self.asking: list[tuple[int, str, Sequence[Fact]]] = []
        """Facts that may open or settle questions, in order, with the session they belong to."""

    def add_append(self, append: PendingAppend, end: SessionEnd) -> None:
        """Add an append to a session that ends at `end`; raises if it does not follow that."""
        number = end.number
        has_open = end.summary.asked > 0
        self.ends[append.session], rows = end.extend(append)
        self.records += ((number, *row) for row in rows)
        for fact, (seq, _, head) in zip(append.facts, rows, strict=True):
            if isinstance(fact, CallAnswered):
                self.answers.append(NewAnchor(append.session, seq, head, fact.at))
        if touches_questions(append.facts, has_open=has_open):
            self.asking.append((number, append.session, append.facts))
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
        book: AnchorBook | None = None,
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
        """The jobs in order. None marks the end, and nothing follows it."""
        self._closed = False
        self.keeps_log = False
        """Once it is closed: whether the log must stay, because a sandbox may hide it."""
        self._mutex = threading.Lock()
        self._process = os.getpid()
        self._known_ends: dict[str, SessionEnd] = {}
        self._unsure = set[str]()
        """Those that another connection may have moved since they were remembered."""
        self._is_shared = is_shared(connection)
        self._book = book
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
        if self._process != os.getpid():
            raise forked_error(f"journal {self._path}")
        with self._mutex:
            if self._closed:
                raise closed_error(f"journal {self._path}")
            self._queue.put(job)
        # A loop with its own time must not let it pass while the thread writes.
        hold_time_for = getattr(job.done.get_loop(), "hold_time_for", None)
        if hold_time_for is not None:
            hold_time_for(job.done)

    def close(self) -> None:
        """Flush pending writes, then stop the thread. A forked child has no thread to stop."""
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
            for wanted in (False, True):
                if some := [job for job in changes if job.is_scrub is wanted]:
                    results = self._run_scrubs(some) if wanted else self._run_changes(some)
                    outcomes += zip((job.done for job in some), results, strict=True)
                    del results, some
            by_loop: defaultdict[asyncio.AbstractEventLoop, list[_JobOutcome]] = defaultdict(list)
            for outcome in outcomes:
                by_loop[outcome[0].get_loop()].append(outcome)
            for loop, loop_outcomes in by_loop.items():
                # call_soon_threadsafe raises if the loop is closed; then no waiter is left.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(_settle_futures, loop_outcomes)
            # An idle writer must not keep facts, futures or event loops alive.
            del jobs, appends, changes, outcomes
        if self._book is not None:
            self._book.remember(now=True)
        # The other connections of the journal close after this one.
        self.keeps_log = not self._files.lost_log and keep_side_files(self._connection, self._path)
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
                        if self._is_shared:
                            check_shared_facts(f"journal {self._path}", append.facts)
                        group.add_append(append, self._find_end(append.session, group))
                    except WindlassError as error:
                        errors[id(append)] = error
                self._insert_group(group)
        except Exception as error:  # noqa: BLE001 - any error must reach the callers, who wait
            self._data_version = -1
            failure = self._as_failure(error)
            return {id(append): failure for append in appends}
        for session, end in group.ends.items():
            self._known_ends[session] = end.after_writing()
        self._next_number = group.next_number
        self._on_written(group.ends)
        if self._book is not None:
            # That an answer was given is remembered before the answer counts.
            self._book.remember(now=bool(group.answers))
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
        """Doubt the remembered ends if another connection has changed the file."""
        version: int = self._connection.execute("PRAGMA data_version").get
        if version != self._data_version or len(self._known_ends) > KNOWN_SESSIONS_MAX:
            if len(self._known_ends) > KNOWN_SESSIONS_MAX:
                self._known_ends.clear()
            self._unsure = set(self._known_ends)
            newest = self._connection.execute("SELECT max(number) FROM sessions").get
            self._next_number = (newest or 0) + 1
            self._data_version = version
            # An upgrade that was finished stays finished.
            self._is_shared = self._is_shared and is_shared(self._connection)

    def _find_end(self, session: str, group: _AppendGroup) -> SessionEnd:
        end = group.ends.get(session) or self._known_ends.get(session)
        if end is not None and (session not in self._unsure or self._is_current(end)):
            return end
        self._known_ends.pop(session, None)
        self._unsure.discard(session)
        found = read_end(self._connection, session)
        if found is None:
            return SessionEnd.of_new_session(session, group.next_number)
        book = self._book
        return found._replace(is_genuine=book is None or book.is_sealed(found))

    def _is_current(self, end: SessionEnd) -> bool:
        """Whether the file still has this end, although another connection has written to it."""
        query = "SELECT head, number, seal FROM sessions WHERE session = ?"
        row = self._connection.execute(query, (end.summary.session,)).fetchone()
        is_current = row == (end.last_link.hash, end.number, end.seal)
        if is_current:
            self._unsure.discard(end.summary.session)
        return is_current

    def _insert_group(self, group: _AppendGroup) -> None:
        execute = self._connection.execute
        # The bodies are bytes already; the cast stores them as text without decoding them here.
        insert_rows(execute, _INSERT_RECORD, "(?, ?, CAST(? AS TEXT), ?)", group.records)
        book = self._book
        if book is not None:
            for session, end in group.ends.items():
                group.ends[session] = book.seal_end(end)
        write_ends(self._connection, group.ends.values())
        for number, session, facts in group.asking:
            advance_question_rows(self._connection, number, session, facts)
        if book is not None:
            ends = [
                NewAnchor(end.summary.session, end.last_link.seq, end.last_link.hash, at)
                for end in group.ends.values()
                for at in [end.summary.updated]
                if end.changes_state
            ]
            anchors = [*group.answers, *ends]
            if anchors:
                book.write_anchors(self._connection, anchors)
        if group.blobs:
            blobs = [*group.blobs.items()]
            insert_rows(execute, "INSERT OR IGNORE INTO blobs VALUES ", "(?, ?)", blobs)
            insert_rows(execute, "INSERT OR IGNORE INTO uses VALUES ", "(?, ?)", group.uses)

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

    def scrub(self) -> asyncio.Future[bool]:
        """Remove the bytes of what was deleted from the file and its log, after what is waiting.

        The future says whether they are gone: a reader may still need the log.
        """
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.submit(FileChange(scrub_file, done, is_scrub=True))
        return done

    def _run_scrubs(self, changes: Sequence[FileChange]) -> Sequence[object]:
        try:
            self._files.check()
            result: object = changes[0].work(self._connection)
            # The file is shorter now, by our own doing.
            self._files.remember_sizes()
        except Exception as error:  # noqa: BLE001 - any error must reach the callers, who wait
            result = self._as_failure(error)
        return [result] * len(changes)

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


def _settle_futures(outcomes: Iterable[_JobOutcome]) -> None:
    for done, outcome in outcomes:
        if done.done():
            continue
        if isinstance(outcome, Exception):
            done.set_exception(outcome)
        else:
            done.set_result(outcome)
