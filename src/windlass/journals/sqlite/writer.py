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
from windlass.journals.chain import Link, check_order, hash_of, root
from windlass.journals.codec import Record
from windlass.journals.sqlite.file import File, failed, writing
from windlass.journals.summary import Summary, advance

GROUP_MAX = 1_000
"""Appends in one transaction."""
KNOWN_MAX = 10_000
"""Sessions whose end is remembered between two groups."""
ROWS_MAX = 1_000
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
class Append:
    """Facts on their way to the disk, and who waits for them."""

    session: str
    facts: Sequence[Fact]
    records: Sequence[Record]
    done: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class Chore:
    """Another change of the file, whole or not at all."""

    work: Callable[[File], Any]
    done: asyncio.Future[Any]
    moves: bool = False
    """Whether sessions may end elsewhere after it."""


class End(NamedTuple):
    """Where a session ends, as the file has it."""

    number: int
    head: Link
    summary: Summary


class _Group:
    """The rows of one transaction."""

    def __init__(self, next_number: int) -> None:
        self.next_number = next_number
        self.ends: dict[str, End] = {}
        self.records: list[tuple[int, int, bytes, bytes]] = []
        self.blobs: dict[str, bytes] = {}
        self.uses: list[tuple[str, int]] = []

    def add(self, append: Append, end: End) -> None:
        head = end.head
        check_order(append.session, head.seq, append.facts)
        for record in append.records:
            head = Link(head.seq + 1, hash_of(head.hash, record.body))
            self.records.append((end.number, head.seq, record.body, head.hash))
            self.blobs.update(record.blobs)
            self.uses.extend((name, end.number) for name, _ in record.blobs)
        self.ends[append.session] = End(end.number, head, advance(end.summary, append.facts))
        self.next_number = max(self.next_number, end.number + 1)


def _unheard(_sessions: Iterable[str]) -> None:
    """Nobody follows."""


class Writer:
    """Owns the writing connection of a file, and the thread that uses it."""

    def __init__(
        self, file: File, path: Path, wrote: Callable[[Iterable[str]], None] = _unheard
    ) -> None:
        self._file = file
        self._path = path
        self._wrote = wrote
        self._waiting: SimpleQueue[Append | Chore | None] = SimpleQueue()
        self._closed = False
        self._one_door = threading.Lock()
        self._process = os.getpid()
        self._known: dict[str, End] = {}
        self._next_number = 0
        self._version = -1
        # Whoever awaits an append is told only when it is durable: a daemon breaks no promise.
        self._thread = threading.Thread(target=self._serve, name=f"journal {path}", daemon=True)
        self._thread.start()

    @property
    def at_home(self) -> bool:
        """Whether this is the process that opened the file; SQLite works in no other."""
        return self._process == os.getpid()

    def put(self, job: Append | Chore) -> None:
        """Hand over a job; its future is settled in its own event loop."""
        if not self.at_home:
            msg = f"journal {self._path}: it was opened before a fork; open it anew in the child"
            raise JournalFailed(msg)
        with self._one_door:
            if self._closed:
                raise JournalFailed(f"journal {self._path}: it is closed")
            self._waiting.put(job)

    def close(self) -> None:
        """Write what is waiting, then stop. In the child of a fork there is nothing to stop."""
        if not self.at_home:
            return
        with self._one_door:
            if not self._closed:
                self._closed = True
                self._waiting.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _serve(self) -> None:
        more = True
        while more:
            jobs = self._take()
            more = jobs[-1] is not None
            outcomes: list[tuple[asyncio.Future[Any], Any]] = []
            appends = [job for job in jobs if isinstance(job, Append)]
            if appends:
                errors = self._write(appends)
                outcomes += ((job.done, errors.get(id(job))) for job in appends)
            chores = [job for job in jobs if isinstance(job, Chore)]
            if chores:
                results = self._do(chores)
                outcomes += zip((job.done for job in chores), results, strict=True)
                del results
            _tell(outcomes)
            # An idle writer must not keep facts, futures or event loops alive.
            del jobs, appends, chores, outcomes
        with suppress(apsw.Error):
            self._file.close()

    def _take(self) -> list[Append | Chore | None]:
        """Wait for a job, then take all that are there. The end is always the last."""
        jobs = [self._waiting.get()]
        with suppress(Empty):
            while len(jobs) < GROUP_MAX:
                jobs.append(self._waiting.get_nowait())
        return jobs

    def _write(self, appends: Sequence[Append]) -> dict[int, WindlassError]:
        """Write the group; returns the errors of those appends that were not kept."""
        errors: dict[int, WindlassError] = {}
        try:
            with writing(self._file):
                self._refresh()
                group = _Group(self._next_number)
                for append in appends:
                    try:
                        group.add(append, self._end_of(append.session, group))
                    except WindlassError as refused:
                        errors[id(append)] = refused
                self._insert(group)
        except Exception as error:  # noqa: BLE001 - whatever it was, nobody may wait for ever
            self._version = -1
            return {id(append): failed(self._path, error) for append in appends}
        self._known.update(group.ends)
        self._next_number = group.next_number
        self._wrote(group.ends)
        return errors

    def _refresh(self) -> None:
        """Forget what is known of the sessions when another connection changed the file."""
        version: int = self._file.execute("PRAGMA data_version").get
        if version != self._version or len(self._known) > KNOWN_MAX:
            self._known.clear()
            newest = self._file.execute("SELECT max(number) FROM sessions").get
            self._version, self._next_number = version, (newest or 0) + 1

    def _end_of(self, session: str, group: _Group) -> End:
        known = group.ends.get(session) or self._known.get(session)
        if known is not None:
            return known
        row = self._file.execute(FIND_SESSION, (session,)).fetchone()
        return end_from(row) if row else End(group.next_number, root(session), Summary(session))

    def _insert(self, group: _Group) -> None:
        run = self._file.execute
        _insert(run, _INSERT_RECORD, "(?, ?, CAST(? AS TEXT), ?)", group.records)
        ends = [_row(end) for end in group.ends.values()]
        _insert(run, _INSERT_SESSION, f"({', '.join('?' * 12)})", ends, _UPDATE_SESSION)
        if group.blobs:
            _insert(run, "INSERT OR IGNORE INTO blobs VALUES ", "(?, ?)", [*group.blobs.items()])
            _insert(run, "INSERT OR IGNORE INTO uses VALUES ", "(?, ?)", group.uses)

    def _do(self, chores: Sequence[Chore]) -> Sequence[object]:
        """Do them one by one in one transaction; returns what each gave, or its error."""
        if any(chore.moves for chore in chores):
            self._version = -1
        try:
            with writing(self._file):
                return [self._do_one(chore) for chore in chores]
        except Exception as error:  # noqa: BLE001 - whatever it was, nobody may wait for ever
            return [failed(self._path, error)] * len(chores)

    def _do_one(self, chore: Chore) -> object:
        self._file.execute("SAVEPOINT chore")
        try:
            done = chore.work(self._file)
        except Exception as error:  # noqa: BLE001 - as above
            self._file.execute("ROLLBACK TO chore")
            done = error if isinstance(error, WindlassError) else failed(self._path, error)
        self._file.execute("RELEASE chore")
        return done


def end_from(row: Sequence[Any]) -> End:
    """Where a session ends, from a row of SELECT_SESSION."""
    number, head, *columns = row
    summary = Summary(*columns)
    return End(number, Link(summary.facts, head), summary)


def _row(end: End) -> tuple[Any, ...]:
    one = end.summary
    return (
        *(end.number, one.session, end.head.hash, one.title, one.created, one.updated),
        *(one.facts, one.runs, one.steps, one.outcome, one.proposed, one.asked),
    )


def _insert(
    run: Callable[[str, Sequence[Any]], object],
    start: str,
    row: str,
    rows: Sequence[Sequence[Any]],
    finish: str = "",
) -> None:
    """Insert the rows in one statement, or in as few as SQLite takes."""
    for at in range(0, len(rows), ROWS_MAX):
        chunk = rows[at : at + ROWS_MAX]
        values = [value for one in chunk for value in one]
        run(f"{start}{', '.join([row] * len(chunk))}{finish}", values)


def _tell(outcomes: Iterable[tuple[asyncio.Future[Any], Any]]) -> None:
    """Wake each event loop once, with all that concerns it."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]]
    by_loop = defaultdict(list)
    for done, outcome in outcomes:
        by_loop[done.get_loop()].append((done, outcome))
    for loop, settled in by_loop.items():
        # A loop that is closed has nobody left who waits.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, settled)


def _settle(settled: Iterable[tuple[asyncio.Future[Any], Any]]) -> None:
    for done, outcome in settled:
        if done.done():
            continue
        if isinstance(outcome, Exception):
            done.set_exception(outcome)
        else:
            done.set_result(outcome)
