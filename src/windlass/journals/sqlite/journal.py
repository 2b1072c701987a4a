"""Sessions in one SQLite file, durable when the append is done.

Any number of event loops, threads and processes may use the file at once. Whoever writes a session
that somebody else wrote meanwhile is refused; nothing is ever merged.
"""

import asyncio
import os
import threading
import time
import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import apsw

from windlass.core.errors import ConfigError, JournalCorrupt, JournalFailed
from windlass.core.events import Fact
from windlass.core.limits import Amount, Budget
from windlass.core.session_summary import SessionSummary
from windlass.journals.chain import RecordProblem
from windlass.journals.codec import encode_fact
from windlass.journals.leases import FileLeaseTable, HeldLease
from windlass.journals.notifier import AppendNotifier
from windlass.journals.sqlite import budgets as shares
from windlass.journals.sqlite import queries as tables
from windlass.journals.sqlite.file import (
    Durability,
    SqliteConnection,
    open_connection,
    open_writer,
    read_transaction,
    sqlite_error,
)
from windlass.journals.sqlite.writer import FileChange, PendingAppend, SqliteWriter

T = TypeVar("T")
DAMAGE_ERRORS = (apsw.CorruptError, apsw.NotADBError, apsw.SQLError, UnicodeError)
"""How a damaged page shows: as such, as tables that are not ours, or as text that is none."""
LOOK_MIN_S, LOOK_MAX_S = 0.05, 0.25
"""How often to look whether another process wrote: at first, and after a long silence."""
PRUNED_AT_ONCE = 500
"""Sessions that are deleted in one transaction."""


class SqliteJournal:
    """A journal in a file.

    With `relaxed`, the last appends may be lost when the power fails; when only the process dies,
    nothing is lost either way.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "full",
        now: Callable[[], float] = time.time,
    ) -> None:
        if durability not in ("full", "relaxed"):
            raise ConfigError(f"durability={durability!r}: it is 'full' or 'relaxed'")
        self.path = Path(path).expanduser().absolute()
        self._now = now
        self._notifier = AppendNotifier()
        self._writer = SqliteWriter(
            open_writer(self.path, durability), self.path, self._notifier.notify
        )
        self._readers: list[SqliteConnection] = []
        self._poll_connections: list[SqliteConnection] = []
        """The one connection by which it is seen that others wrote, once somebody follows."""
        self._poll_mutex = threading.Lock()
        self._leases = FileLeaseTable(self.path)
        # A journal that is forgotten stops its thread; at the latest when Python exits.
        parts = (self._writer, self._readers, self._poll_connections, self._leases)
        self._finalizer = weakref.finalize(self, _close_parts, *parts)

    def close(self) -> None:
        """Write what is waiting, and let go of the file and of all sessions."""
        self._finalizer()

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
        return await asyncio.to_thread(self._read_facts, _check_session_name(session), after)

    def append(self, session: str, facts: Sequence[Fact]) -> asyncio.Future[None]:
        """Write the facts, all or none; done when they are on the disk."""
        done = asyncio.get_running_loop().create_future()
        if not facts:
            done.set_result(None)
            return done
        try:
            session.encode()
            records = [encode_fact(fact) for fact in facts]
            self._writer.submit(PendingAppend(session, facts, records, done))
        except JournalFailed as error:
            done.set_exception(error)
        except UnicodeError as error:
            done.set_exception(JournalFailed(f"session {session!r}: no name for one ({error})"))
        return done

    async def lease(self, session: str) -> HeldLease:
        """Take a session; raises SessionBusy at once if somebody alive has it."""
        return self._leases.acquire(_check_session_name(session))

    async def is_leased(self, session: str) -> bool:
        """Whether somebody alive drives a session, in this process or another."""
        return self._leases.is_taken(_check_session_name(session))

    async def wait_for_append(self, session: str, after: int) -> None:
        """Return when the session may have records past `after`."""
        seen, wait_s = None, LOOK_MIN_S
        with self._notifier.subscribe(_check_session_name(session)) as heard:
            while not heard.done():
                version = self._data_version()
                if version == seen:
                    wait_s = min(wait_s * 1.5, LOOK_MAX_S)
                elif await self._run_query(lambda file: tables.last_seq(file, session)) > after:
                    return
                else:
                    seen, wait_s = version, LOOK_MIN_S
                await asyncio.wait((heard,), timeout=wait_s)

    async def put_blob(self, session: str, data: bytes) -> str:
        """Keep data for as long as the session; its name, once it is on the disk."""
        _check_session_name(session)
        return await self._submit_change(lambda file: tables.keep_blob(file, session, data))

    async def get_blob(self, session: str, name: str) -> bytes | None:
        """What the session keeps under a name, or under one that begins so."""
        _check_session_name(session)
        return await self._run_query(lambda file: tables.fetch_blob(file, session, name))

    async def draw_budget(self, budget: Budget, session: str, run: int, wanted: Amount) -> Amount:
        """Raise what a run may spend in all, as far as the budget allows."""
        whose, at = shares.ShareOwner(_check_session_name(session), run), self._now()
        return await self._submit_change(
            lambda file: shares.draw_budget(file, budget, whose, wanted, at)
        )

    async def settle_budget(self, budget: Budget, session: str, run: int, spent: Amount) -> None:
        """Say what a run has spent in all; what it does not need goes back."""
        whose, at = shares.ShareOwner(_check_session_name(session), run), self._now()
        await self._submit_change(lambda file: shares.settle_budget(file, budget, whose, spent, at))

    async def read_spending(self, budget: Budget) -> Amount:
        """What is spent or promised of the budget for now."""
        at = self._now()
        return await self._run_query(lambda file: shares.promised_amount(file, budget, at))

    async def sessions(
        self, query: str | None = None, *, limit: int = 50, unfinished: bool = False
    ) -> list[SessionSummary]:
        """The sessions whose name or first prompt holds the query, the latest first."""
        return await self._run_query(
            lambda file: tables.list_sessions(file, query or "", limit, unfinished=unfinished)
        )

    async def abandoned(self) -> list[SessionSummary]:
        """The sessions that have not ended, wait for nobody and are driven by nobody alive."""
        found = await self._run_query(tables.list_open_sessions)
        return [one for one in found if not self._leases.is_taken(one.session)]

    async def verify(self, session: str) -> list[RecordProblem]:
        """Every record of a session that was changed, moved or taken out."""
        return await asyncio.to_thread(self._find_problems, session)

    async def check(self) -> list[str]:
        """What SQLite finds wrong with the file as a whole; reads all of it."""
        return await asyncio.to_thread(self._check_integrity)

    async def delete(self, session: str) -> bool:
        """Delete a session and the attachments that only it used; whether there was one.

        Raises SessionBusy if somebody drives it.
        """
        held = self._leases.acquire(_check_session_name(session))
        delete = partial(
            tables.delete_sessions, which="session = ?", given=session, spared=tables.spare_nobody
        )
        gone = self._submit_change(delete, moves=True)
        # Whoever stops waiting does not stop the deleting: nobody may drive it until it is gone.
        gone.add_done_callback(lambda _: held.release())
        return await asyncio.shield(gone) > 0

    async def prune(self, before: float) -> int:
        """Delete the sessions that ended, were not touched since and are not driven; how many.

        Some at a time: whoever appends meanwhile waits for those, and not for all.
        """
        found, gone = await self._run_query(lambda file: tables.list_ended_numbers(file, before)), 0
        for at in range(0, len(found), PRUNED_AT_ONCE):
            some, taken = found[at : at + PRUNED_AT_ONCE], self._leases.is_taken
            prune = partial(tables.prune_sessions, numbers=some, before=before, spared=taken)
            gone += await self._submit_change(prune, moves=True)
        return gone

    def _submit_change(
        self, work: Callable[[SqliteConnection], T], *, moves: bool = False
    ) -> asyncio.Future[T]:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._writer.submit(FileChange(work, done, moves))
        return done

    async def _run_query(self, work: Callable[[SqliteConnection], T]) -> T:
        def look() -> T:
            with self._borrow_reader() as file:
                return work(file)

        return await asyncio.to_thread(look)

    def _read_facts(self, session: str, after: int) -> tuple[Fact, ...]:
        with self._borrow_reader() as file:
            return tuple(
                self._require_fact(session, one) for one in tables.read_facts(file, session, after)
            )

    def _require_fact(self, session: str, found: Fact | RecordProblem) -> Fact:
        if isinstance(found, RecordProblem):
            msg = f"journal {self.path}: session {session!r} cannot be trusted: {found}"
            raise JournalCorrupt(msg)
        return found

    def _find_problems(self, session: str) -> list[RecordProblem]:
        with self._borrow_reader() as file:
            return [
                one for one in tables.read_facts(file, session, 0) if isinstance(one, RecordProblem)
            ]

    def _check_integrity(self) -> list[str]:
        with self._borrow_reader() as file:
            found = [str(row[0]) for row in file.execute("PRAGMA integrity_check")]
            return [] if found == ["ok"] else found

    def _data_version(self) -> int:
        """Another number whenever another connection wrote. So quick that it needs no thread."""
        with self._poll_mutex, self._translate_errors():
            if not self._poll_connections:
                self._poll_connections.append(open_connection(self.path))
            return self._poll_connections[0].execute("PRAGMA data_version").get

    @contextmanager
    def _borrow_reader(self) -> Generator[SqliteConnection]:
        """A connection of the caller's own, at one moment of the file."""
        with self._translate_errors():
            file = self._readers.pop() if self._readers else open_connection(self.path)
            try:
                with read_transaction(file):
                    yield file
            finally:
                self._readers.append(file)

    @contextmanager
    def _translate_errors(self) -> Generator[None]:
        """Whatever is wrong with the file, in words."""
        if not self._finalizer.alive:
            raise JournalFailed(f"journal {self.path}: it is closed")
        try:
            yield
        except DAMAGE_ERRORS as error:
            msg = f"journal {self.path}: the file is damaged; restore it from a copy ({error})"
            raise JournalCorrupt(msg) from error
        except apsw.Error as error:
            raise sqlite_error(self.path, error) from error


def _check_session_name(session: str) -> str:
    try:
        session.encode()
    except UnicodeEncodeError as error:
        raise JournalFailed(f"{session!r} is no name for a session: {error.reason}") from None
    return session


def _close_parts(
    writer: SqliteWriter,
    readers: list[SqliteConnection],
    lookout: list[SqliteConnection],
    leases: FileLeaseTable,
) -> None:
    writer.close()
    while readers and writer.is_owning_process:
        readers.pop().close()
    while lookout and writer.is_owning_process:
        lookout.pop().close()
    leases.close()
