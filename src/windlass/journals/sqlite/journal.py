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
from windlass.journals.chain import Problem
from windlass.journals.codec import encode
from windlass.journals.leases import FileLeases, Held
from windlass.journals.notifier import Bell
from windlass.journals.sqlite import budgets as shares
from windlass.journals.sqlite import queries as tables
from windlass.journals.sqlite.file import Durability, File, connect, failed, open_writer, reading
from windlass.journals.sqlite.writer import Append, Chore, Writer
from windlass.journals.summary import Summary

T = TypeVar("T")
DAMAGE = (apsw.CorruptError, apsw.NotADBError, apsw.SQLError, UnicodeError)
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
        self._bell = Bell()
        self._writer = Writer(open_writer(self.path, durability), self.path, self._bell.ring)
        self._readers: list[File] = []
        self._lookout: list[File] = []
        """The one connection by which it is seen that others wrote, once somebody follows."""
        self._one_look = threading.Lock()
        self._leases = FileLeases(self.path)
        # A journal that is forgotten stops its thread; at the latest when Python exits.
        parts = (self._writer, self._readers, self._lookout, self._leases)
        self._last_rites = weakref.finalize(self, _close, *parts)

    def close(self) -> None:
        """Write what is waiting, and let go of the file and of all sessions."""
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
        return await asyncio.to_thread(self._read, _named(session), after)

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

    async def lease(self, session: str) -> Held:
        """Take a session; raises SessionBusy at once if somebody alive has it."""
        return self._leases.take(_named(session))

    async def leased(self, session: str) -> bool:
        """Whether somebody alive drives a session, in this process or another."""
        return self._leases.taken(_named(session))

    async def news(self, session: str, after: int) -> None:
        """Return when the session may have records past `after`."""
        seen, wait_s = None, LOOK_MIN_S
        with self._bell.listening(_named(session)) as heard:
            while not heard.done():
                version = self._version()
                if version == seen:
                    wait_s = min(wait_s * 1.5, LOOK_MAX_S)
                elif await self._look(lambda file: tables.last_of(file, session)) > after:
                    return
                else:
                    seen, wait_s = version, LOOK_MIN_S
                await asyncio.wait((heard,), timeout=wait_s)

    async def keep(self, session: str, data: bytes) -> str:
        """Keep data for as long as the session; its name, once it is on the disk."""
        _named(session)
        return await self._change(lambda file: tables.keep(file, session, data))

    async def fetch(self, session: str, name: str) -> bytes | None:
        """What the session keeps under a name, or under one that begins so."""
        _named(session)
        return await self._look(lambda file: tables.fetch(file, session, name))

    async def draw(self, budget: Budget, session: str, run: int, wanted: Amount) -> Amount:
        """Raise what a run may spend in all, as far as the budget allows."""
        whose, at = shares.Run(_named(session), run), self._now()
        return await self._change(lambda file: shares.draw(file, budget, whose, wanted, at))

    async def settle(self, budget: Budget, session: str, run: int, spent: Amount) -> None:
        """Say what a run has spent in all; what it does not need goes back."""
        whose, at = shares.Run(_named(session), run), self._now()
        await self._change(lambda file: shares.settle(file, budget, whose, spent, at))

    async def spent(self, budget: Budget) -> Amount:
        """What is spent or promised of the budget for now."""
        at = self._now()
        return await self._look(lambda file: shares.spent(file, budget, at))

    async def sessions(
        self, query: str | None = None, *, limit: int = 50, unfinished: bool = False
    ) -> list[Summary]:
        """The sessions whose name or first prompt holds the query, the latest first."""
        return await self._look(
            lambda file: tables.listed(file, query or "", limit, unfinished=unfinished)
        )

    async def abandoned(self) -> list[Summary]:
        """The sessions that have not ended, wait for nobody and are driven by nobody alive."""
        found = await self._look(tables.left_open)
        return [one for one in found if not self._leases.taken(one.session)]

    async def verify(self, session: str) -> list[Problem]:
        """Every record of a session that was changed, moved or taken out."""
        return await asyncio.to_thread(self._verify, session)

    async def check(self) -> list[str]:
        """What SQLite finds wrong with the file as a whole; reads all of it."""
        return await asyncio.to_thread(self._check)

    async def delete(self, session: str) -> bool:
        """Delete a session and the attachments that only it used; whether there was one.

        Raises SessionBusy if somebody drives it.
        """
        held = self._leases.take(_named(session))
        delete = partial(tables.delete, which="session = ?", given=session, spared=tables.nobody)
        gone = self._change(delete, moves=True)
        # Whoever stops waiting does not stop the deleting: nobody may drive it until it is gone.
        gone.add_done_callback(lambda _: held.release())
        return await asyncio.shield(gone) > 0

    async def prune(self, before: float) -> int:
        """Delete the sessions that ended, were not touched since and are not driven; how many.

        Some at a time: whoever appends meanwhile waits for those, and not for all.
        """
        found, gone = await self._look(lambda file: tables.ended(file, before)), 0
        for at in range(0, len(found), PRUNED_AT_ONCE):
            some, taken = found[at : at + PRUNED_AT_ONCE], self._leases.taken
            prune = partial(tables.prune, numbers=some, before=before, spared=taken)
            gone += await self._change(prune, moves=True)
        return gone

    def _change(self, work: Callable[[File], T], *, moves: bool = False) -> asyncio.Future[T]:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._writer.put(Chore(work, done, moves))
        return done

    async def _look(self, work: Callable[[File], T]) -> T:
        def look() -> T:
            with self._reader() as file:
                return work(file)

        return await asyncio.to_thread(look)

    def _read(self, session: str, after: int) -> tuple[Fact, ...]:
        with self._reader() as file:
            return tuple(self._sound(session, one) for one in tables.facts_of(file, session, after))

    def _sound(self, session: str, found: Fact | Problem) -> Fact:
        if isinstance(found, Problem):
            msg = f"journal {self.path}: session {session!r} cannot be trusted: {found}"
            raise JournalCorrupt(msg)
        return found

    def _verify(self, session: str) -> list[Problem]:
        with self._reader() as file:
            return [one for one in tables.facts_of(file, session, 0) if isinstance(one, Problem)]

    def _check(self) -> list[str]:
        with self._reader() as file:
            found = [str(row[0]) for row in file.execute("PRAGMA integrity_check")]
            return [] if found == ["ok"] else found

    def _version(self) -> int:
        """Another number whenever another connection wrote. So quick that it needs no thread."""
        with self._one_look, self._troubles():
            if not self._lookout:
                self._lookout.append(connect(self.path))
            return self._lookout[0].execute("PRAGMA data_version").get

    @contextmanager
    def _reader(self) -> Generator[File]:
        """A connection of the caller's own, at one moment of the file."""
        with self._troubles():
            file = self._readers.pop() if self._readers else connect(self.path)
            try:
                with reading(file):
                    yield file
            finally:
                self._readers.append(file)

    @contextmanager
    def _troubles(self) -> Generator[None]:
        """Whatever is wrong with the file, in words."""
        if not self._last_rites.alive:
            raise JournalFailed(f"journal {self.path}: it is closed")
        try:
            yield
        except DAMAGE as error:
            msg = f"journal {self.path}: the file is damaged; restore it from a copy ({error})"
            raise JournalCorrupt(msg) from error
        except apsw.Error as error:
            raise failed(self.path, error) from error


def _named(session: str) -> str:
    try:
        session.encode()
    except UnicodeEncodeError as error:
        raise JournalFailed(f"{session!r} is no name for a session: {error.reason}") from None
    return session


def _close(writer: Writer, readers: list[File], lookout: list[File], leases: FileLeases) -> None:
    writer.close()
    while readers and writer.at_home:
        readers.pop().close()
    while lookout and writer.at_home:
        lookout.pop().close()
    leases.close()
