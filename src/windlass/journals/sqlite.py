"""Sessions in one SQLite file, durable when the append is done.

Any number of event loops, threads and processes may use the file at once. Whoever writes a session
that somebody else wrote meanwhile is refused; nothing is ever merged.
"""

import asyncio
import os
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import apsw

from windlass.core.errors import ConfigError, JournalCorrupt, JournalFailed
from windlass.core.events import Fact
from windlass.journals.chain import Link, Problem, root, walk
from windlass.journals.codec import Fetch, Unreadable, blob_name, encode
from windlass.journals.schema import (
    Durability,
    File,
    connect,
    failed,
    open_writer,
    reading,
)
from windlass.journals.summary import Summary
from windlass.journals.writer import (
    FIND_SESSION,
    SELECT_SESSION,
    Append,
    Chore,
    End,
    Writer,
    end_from,
)

T = TypeVar("T")
DAMAGE = (apsw.CorruptError, apsw.NotADBError, apsw.SQLError, UnicodeError)
"""How a damaged page shows: as such, as tables that are not ours, or as text that is none."""


class SqliteJournal:
    """A journal in a file.

    With `relaxed`, the last appends may be lost when the power fails; when only the process dies,
    nothing is lost either way.
    """

    def __init__(self, path: str | os.PathLike[str], *, durability: Durability = "full") -> None:
        if durability not in ("full", "relaxed"):
            raise ConfigError(f"durability={durability!r}: it is 'full' or 'relaxed'")
        self.path = Path(path).expanduser().absolute()
        self._writer = Writer(open_writer(self.path, durability), self.path)
        self._readers: list[File] = []
        # A journal that is forgotten stops its thread; at the latest when Python exits.
        self._last_rites = weakref.finalize(self, _close, self._writer, self._readers)

    def close(self) -> None:
        """Write what is waiting and let go of the file."""
        self._last_rites()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        """The facts of a session past a sequence number; each is checked against the chain."""
        try:
            session.encode()
        except UnicodeEncodeError as error:
            raise JournalFailed(f"{session!r} is no name for a session: {error.reason}") from None
        return await asyncio.to_thread(self._read, session, after)

    def append(self, session: str, facts: Sequence[Fact]) -> asyncio.Future[None]:
        """Write the facts, all or none; done when they are on the disk."""
        done = asyncio.get_running_loop().create_future()
        if not facts:
            done.set_result(None)
            return done
        try:
            session.encode()
            records = [encode(fact) for fact in facts]
            self._writer.put(Append(session, facts, records, done))
        except JournalFailed as error:
            done.set_exception(error)
        except UnicodeError as error:
            done.set_exception(JournalFailed(f"session {session!r}: no name for one ({error})"))
        return done

    async def sessions(
        self, query: str | None = None, *, limit: int = 50, unfinished: bool = False
    ) -> list[Summary]:
        """The sessions whose name or first prompt holds the query, the latest first."""
        return await asyncio.to_thread(self._sessions, query or "", limit, unfinished)

    async def verify(self, session: str) -> list[Problem]:
        """Every record of a session that was changed, moved or taken out."""
        return await asyncio.to_thread(self._verify, session)

    async def check(self) -> list[str]:
        """What SQLite finds wrong with the file as a whole; reads all of it."""
        return await asyncio.to_thread(self._check)

    async def delete(self, session: str) -> bool:
        """Delete a session and the attachments that only it used; whether there was one."""
        return await self._change(lambda file: _delete(file, "session = ?", (session,))) > 0

    async def prune(self, before: float) -> int:
        """Delete the sessions that ended and were not touched since; returns how many."""
        ended = "updated < ? AND outcome IS NOT NULL"
        return await self._change(lambda file: _delete(file, ended, (before,)))

    def _change(self, work: Callable[[File], T]) -> asyncio.Future[T]:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._writer.put(Chore(work, done))
        return done

    def _read(self, session: str, after: int) -> tuple[Fact, ...]:
        with self._reader() as file:
            return tuple(self._sound(session, one) for one in _walk(file, session, after))

    def _sound(self, session: str, found: Fact | Problem) -> Fact:
        if isinstance(found, Problem):
            msg = f"journal {self.path}: session {session!r} cannot be trusted: {found}"
            raise JournalCorrupt(msg)
        return found

    def _verify(self, session: str) -> list[Problem]:
        with self._reader() as file:
            return [one for one in _walk(file, session, 0) if isinstance(one, Problem)]

    def _check(self) -> list[str]:
        with self._reader() as file:
            found = [str(row[0]) for row in file.execute("PRAGMA integrity_check")]
            return [] if found == ["ok"] else found

    def _sessions(self, query: str, limit: int, unfinished: bool) -> list[Summary]:  # noqa: FBT001
        where = "WHERE instr(lower(session || char(10) || title), lower(?))"
        if unfinished:
            where += " AND outcome IS NULL"
        listing = f"{SELECT_SESSION} {where} ORDER BY updated DESC LIMIT ?"
        with self._reader() as file:
            return [end_from(row).summary for row in file.execute(listing, (query, limit))]

    @contextmanager
    def _reader(self) -> Generator[File]:
        """A connection of the caller's own, at one moment of the file."""
        if not self._last_rites.alive:
            raise JournalFailed(f"journal {self.path}: it is closed")
        try:
            file = self._readers.pop() if self._readers else connect(self.path)
            try:
                with reading(file):
                    yield file
            finally:
                self._readers.append(file)
        except DAMAGE as error:
            msg = f"journal {self.path}: the file is damaged; restore it from a copy ({error})"
            raise JournalCorrupt(msg) from error
        except apsw.Error as error:
            raise failed(self.path, error) from error


def _walk(file: File, session: str, after: int) -> Iterator[Fact | Problem]:
    row = file.execute(FIND_SESSION, (session,)).fetchone()
    end = end_from(row) if row else None
    if end is None or after >= end.head.seq:
        return iter(())
    if end.summary.session != session:
        return iter((Problem(0, f"it is filed under {end.summary.session!r}"),))
    rows = file.execute(
        """SELECT seq, CAST(body AS BLOB), hash FROM records
        WHERE number = ? AND seq > ? ORDER BY seq""",
        (end.number, after),
    )
    return walk(rows, _start(file, end, after), end.head, _fetch(file))


def _start(file: File, end: End, after: int) -> Link:
    if after <= 0:
        return root(end.summary.session)
    place = (end.number, after)
    found = file.execute("SELECT hash FROM records WHERE number = ? AND seq = ?", place).get
    return Link(after, found or b"")


def _fetch(file: File) -> Fetch:
    def fetch(name: str) -> bytes:
        data = file.execute("SELECT data FROM blobs WHERE hash = ?", (name,)).get
        if data is None:
            raise Unreadable(f"its attachment {name} is missing")
        if blob_name(data) != name:
            raise Unreadable(f"its attachment {name} was changed")
        return data

    return fetch


def _delete(file: File, which: str, bindings: tuple[Any, ...]) -> int:
    ends = [end_from(row) for row in file.execute(f"{SELECT_SESSION} WHERE {which}", bindings)]
    for number in (end.number for end in ends):
        file.execute("DELETE FROM records WHERE number = ?", (number,))
        file.execute(
            """DELETE FROM blobs WHERE hash IN (SELECT hash FROM uses WHERE number = ?1)
            AND NOT EXISTS (
                SELECT 1 FROM uses WHERE uses.hash = blobs.hash AND uses.number <> ?1)""",
            (number,),
        )
        file.execute("DELETE FROM uses WHERE number = ?", (number,))
        file.execute("DELETE FROM sessions WHERE number = ?", (number,))
    return len(ends)


def _close(writer: Writer, readers: list[File]) -> None:
    writer.close()
    while readers and writer.at_home:
        readers.pop().close()
