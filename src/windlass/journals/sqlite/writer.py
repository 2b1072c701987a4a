"""The one thread that writes a SQLite file.

It takes every append that is waiting, writes them in one transaction with one fsync, and only then
tells the callers. While it waits for the disk the next group gathers, so that a hundred sessions
cost little more than one.

The law: the number of statements does not grow with the group. Each one gives the interpreter lock
away and must win it back from a busy event loop; that, and not the disk, would be the limit.
"""

import asyncio
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import apsw

from windlass.core.errors import JournalFailed, WindlassError
from windlass.core.events import Fact
from windlass.core.session_summary import SessionSummary, advance_summary
from windlass.journals.chain import ChainLink, chain_hash, chain_root, check_order
from windlass.journals.codec import FactRecord
from windlass.journals.sqlite.file import SqliteConnection, sqlite_error, write_transaction

GROUP_APPENDS_MAX = 1_000
"""Appends in one transaction."""
KNOWN_SESSIONS_MAX = 10_000
"""Sessions whose end is remembered between two groups."""
STATEMENT_ROWS_MAX = 1_000
"""Rows in one statement; SQLite takes 32,766 values."""

SELECT_SESSION = """
    SELECT number, head, session, title, created, updated, facts, runs, steps, outcome,
        proposed, asked
    FROM sessions
"""
FIND_SESSION = f"{SELECT_SESSION} WHERE session = ?"
_INSERT_RECORD = "INSERT INTO records (number, seq, body, hash) VALUES "
_INSERT_SESSION = "INSERT INTO sessions VALUES "
_UPDATE_SESSION = """
    ON CONFLICT (number) DO UPDATE SET head = excluded.head, title = excluded.title,
        updated = excluded.updated, facts = excluded.facts, runs = excluded.runs,
        steps = excluded.steps, outcome = excluded.outcome, proposed = excluded.proposed,
        asked = excluded.asked
"""


@dataclass(frozen=True, slots=True)
class PendingAppend:
    """Facts on their way to the disk, and who waits for them."""

    session: str
    facts: Sequence[Fact]
    records: Sequence[FactRecord]
    done: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class FileChange:
    """Another change of the file, whole or not at all."""

    work: Callable[[SqliteConnection], Any]
    done: asyncio.Future[Any]
    moves_ends: bool = False
    """Whether sessions may end elsewhere after it."""


class SessionEnd(NamedTuple):
    """Where a session ends, as the file has it."""

    number: int
    last_link: ChainLink
    summary: SessionSummary


class _AppendGroup:
    """The rows of one transaction."""

    def __init__(self, next_number: int) -> None:
        self.next_number = next_number
        self.ends: dict[str, SessionEnd] = {}
        self.records: list[tuple[int, int, bytes, bytes]] = []
        self.blobs: dict[str, bytes] = {}
        self.uses: list[tuple[str, int]] = []

    def add_append(self, append: PendingAppend, end: SessionEnd) -> None:
        head = end.last_link
        check_order(append.session, head.seq, append.facts)
        for record in append.records:
            head = ChainLink(head.seq + 1, chain_hash(head.hash, record.body))
            self.records.append((end.number, head.seq, record.body, head.hash))
            self.blobs.update(record.blobs)
            self.uses.extend((name, end.number) for name, _ in record.blobs)
        self.ends[append.session] = SessionEnd(
            end.number, head, advance_summary(end.summary, append.facts)
        )
        self.next_number = max(self.next_number, end.number + 1)


def _notify_nobody(_sessions: Iterable[str]) -> None:
    """Nobody follows."""


class SqliteWriter:
    """Owns the writing connection of a file, and the thread that uses it."""

    def __init__(
        self,
        file: SqliteConnection,
        path: Path,
        on_written: Callable[[Iterable[str]], None] = _notify_nobody,
    ) -> None:
        self._file = file
        self._path = path
        self._on_written = on_written
        self._queue: SimpleQueue[PendingAppend | FileChange | None] = SimpleQueue()
        self._closed = False
        self._mutex = threading.Lock()
        self._process = os.getpid()
        self._known_ends: dict[str, SessionEnd] = {}
        self._next_number = 0
        self._data_version = -1
        # Whoever awaits an append is told only when it is durable: a daemon breaks no promise.
        self._thread = threading.Thread(
            target=self._run_thread, name=f"journal {path}", daemon=True
        )
        self._thread.start()

    @property
    def is_owning_process(self) -> bool:
        """Whether this is the process that opened the file; SQLite works in no other."""
        return self._process == os.getpid()

    def submit(self, job: PendingAppend | FileChange) -> None:
        """Hand over a job; its future is settled in its own event loop."""
        if not self.is_owning_process:
            msg = f"journal {self._path}: it was opened before a fork; open it anew in the child"
            raise JournalFailed(msg)
        with self._mutex:
            if self._closed:
                raise JournalFailed(f"journal {self._path}: it is closed")
            self._queue.put(job)

    def close(self) -> None:
        """Write what is waiting, then stop. In the child of a fork there is nothing to stop."""
        if not self.is_owning_process:
            return
        with self._mutex:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run_thread(self) -> None:
        more = True
        while more:
            jobs = self._take_jobs()
            more = jobs[-1] is not None
            outcomes: list[tuple[asyncio.Future[Any], Any]] = []
            appends = [job for job in jobs if isinstance(job, PendingAppend)]
            if appends:
                errors = self._write_group(appends)
                outcomes += ((job.done, errors.get(id(job))) for job in appends)
            chores = [job for job in jobs if isinstance(job, FileChange)]
            if chores:
                results = self._run_changes(chores)
                outcomes += zip((job.done for job in chores), results, strict=True)
                del results
            _deliver_outcomes(outcomes)
            # An idle writer must not keep facts, futures or event loops alive.
            del jobs, appends, chores, outcomes
        with suppress(apsw.Error):
            self._file.close()

    def _take_jobs(self) -> list[PendingAppend | FileChange | None]:
        """Wait for a job, then take all that are there. The end is always the last."""
        jobs = [self._queue.get()]
        with suppress(Empty):
            while len(jobs) < GROUP_APPENDS_MAX:
                jobs.append(self._queue.get_nowait())
        return jobs

    def _write_group(self, appends: Sequence[PendingAppend]) -> dict[int, WindlassError]:
        """Write the group; returns the errors of those appends that were not kept."""
        errors: dict[int, WindlassError] = {}
        try:
            with write_transaction(self._file):
                self._refresh_known_ends()
                group = _AppendGroup(self._next_number)
                for append in appends:
                    try:
                        group.add_append(append, self._find_end(append.session, group))
                    except WindlassError as refused:
                        errors[id(append)] = refused
                self._insert_group(group)
        except Exception as error:  # noqa: BLE001 - whatever it was, nobody may wait for ever
            self._data_version = -1
            return {id(append): sqlite_error(self._path, error) for append in appends}
        self._known_ends.update(group.ends)
        self._next_number = group.next_number
        self._on_written(group.ends)
        return errors

    def _refresh_known_ends(self) -> None:
        """Forget what is known of the sessions when another connection changed the file."""
        version: int = self._file.execute("PRAGMA data_version").get
        if version != self._data_version or len(self._known_ends) > KNOWN_SESSIONS_MAX:
            self._known_ends.clear()
            newest = self._file.execute("SELECT max(number) FROM sessions").get
            self._data_version, self._next_number = version, (newest or 0) + 1

    def _find_end(self, session: str, group: _AppendGroup) -> SessionEnd:
        known = group.ends.get(session) or self._known_ends.get(session)
        if known is not None:
            return known
        row = self._file.execute(FIND_SESSION, (session,)).fetchone()
        return (
            session_end_from_row(row)
            if row
            else SessionEnd(group.next_number, chain_root(session), SessionSummary(session))
        )

    def _insert_group(self, group: _AppendGroup) -> None:
        run = self._file.execute
        _insert_rows(run, _INSERT_RECORD, "(?, ?, CAST(? AS TEXT), ?)", group.records)
        ends = [_session_row(end) for end in group.ends.values()]
        _insert_rows(run, _INSERT_SESSION, f"({', '.join('?' * 12)})", ends, _UPDATE_SESSION)
        if group.blobs:
            _insert_rows(
                run, "INSERT OR IGNORE INTO blobs VALUES ", "(?, ?)", [*group.blobs.items()]
            )
            _insert_rows(run, "INSERT OR IGNORE INTO uses VALUES ", "(?, ?)", group.uses)

    def _run_changes(self, chores: Sequence[FileChange]) -> Sequence[object]:
        """Do them one by one in one transaction; returns what each gave, or its error."""
        if any(chore.moves_ends for chore in chores):
            self._data_version = -1
        try:
            with write_transaction(self._file):
                return [self._run_change(chore) for chore in chores]
        except Exception as error:  # noqa: BLE001 - whatever it was, nobody may wait for ever
            return [sqlite_error(self._path, error)] * len(chores)

    def _run_change(self, chore: FileChange) -> object:
        self._file.execute("SAVEPOINT chore")
        try:
            done = chore.work(self._file)
        except Exception as error:  # noqa: BLE001 - as above
            self._file.execute("ROLLBACK TO chore")
            done = error if isinstance(error, WindlassError) else sqlite_error(self._path, error)
        self._file.execute("RELEASE chore")
        return done


def session_end_from_row(row: Sequence[Any]) -> SessionEnd:
    """Where a session ends, from a row of SELECT_SESSION."""
    number, head, *columns = row
    summary = SessionSummary(*columns)
    return SessionEnd(number, ChainLink(summary.facts, head), summary)


def _session_row(end: SessionEnd) -> tuple[Any, ...]:
    one = end.summary
    return (
        *(end.number, one.session, end.last_link.hash, one.title, one.created, one.updated),
        *(one.facts, one.runs, one.steps, one.outcome, one.proposed, one.asked),
    )


def _insert_rows(
    run: Callable[[str, Sequence[Any]], object],
    start: str,
    row: str,
    rows: Sequence[Sequence[Any]],
    finish: str = "",
) -> None:
    """Insert the rows in one statement, or in as few as SQLite takes."""
    for at in range(0, len(rows), STATEMENT_ROWS_MAX):
        chunk = rows[at : at + STATEMENT_ROWS_MAX]
        values = [value for one in chunk for value in one]
        run(f"{start}{', '.join([row] * len(chunk))}{finish}", values)


def _deliver_outcomes(outcomes: Iterable[tuple[asyncio.Future[Any], Any]]) -> None:
    """Wake each event loop once, with all that concerns it."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]]
    by_loop = defaultdict(list)
    for done, outcome in outcomes:
        by_loop[done.get_loop()].append((done, outcome))
    for loop, settled in by_loop.items():
        # A loop that is closed has nobody left who waits.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle_futures, settled)


def _settle_futures(settled: Iterable[tuple[asyncio.Future[Any], Any]]) -> None:
    for done, outcome in settled:
        if done.done():
            continue
        if isinstance(outcome, Exception):
            done.set_exception(outcome)
        else:
            done.set_result(outcome)
