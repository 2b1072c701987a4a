"""What the SQLite journal and the Postgres journal have in common.

Both keep a row for each session (the end of its chain and its summary) and a row for each record.
Only the statements and the way to the database differ.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Self

from windlass.core.errors import JournalFailed
from windlass.core.events import Fact
from windlass.core.mail import Letter
from windlass.core.session_summary import SessionSummary
from windlass.journals.codec import RecordProblem, blob_name, encode_fact, is_blob_name
from windlass.journals.session_rows import PendingAppend
from windlass.journals.stored_catalog import StoredCatalog
from windlass.journals.upgrades import UpgradeStatus
from windlass.journals.wording import blob_corrupt_error, session_corrupt_error, session_name_error
from windlass.ports.journals import Lease
from windlass.ports.records import ProvenAnswers


class StoredJournal(StoredCatalog):
    """The part of a journal that does not depend on its database."""

    def __init__(self, location: str) -> None:
        self._location = location
        """How errors name the journal: its path, or its server without user and password."""

    @property
    def name(self) -> str:
        """How people name the journal: its path, or its URL without user and password."""
        return self._location.removeprefix("journal ")

    @property
    def is_kept(self) -> bool:
        """True: the sessions outlive this process."""
        return True

    def check_shareable(self) -> None:
        """Do nothing: sessions are listed, and leased to one driver at a time."""

    @abstractmethod
    def close(self) -> None:
        """Flush pending writes, then release the database."""

    async def aclose(self) -> None:
        """As `close`, from the event loop that used the journal."""
        self.close()

    @abstractmethod
    async def lease(self, session: str) -> Lease:
        """Take the lease of a session; raises SessionBusy if a live driver has it."""

    async def visit(self, session: str) -> Lease:
        """Take the lease to write into a session without driving it."""
        return await self.lease(session)

    def find_letter_problem(self, session: str, letter: Letter) -> str | None:
        """Return why a message is not genuine; None where messages are not signed."""
        del session, letter

    async def find_forgeries(self, session: str) -> Sequence[RecordProblem]:
        """Return what was done to a session without the user's key; nothing where there is none."""
        del session
        return ()

    async def find_proven(self, session: str) -> ProvenAnswers | None:
        """Return what signed answers prove; None where answers are believed without a proof."""
        del session

    @abstractmethod
    def _submit_append(self, append: PendingAppend) -> None:
        """Hand an append to the writer, which settles its future."""

    @abstractmethod
    async def _find_blob(self, session: str, prefix: str) -> bytes | None:
        """Return the session's blob whose name begins with `prefix`, unchecked."""

    # ── upgrades ─────────────────────────────────────────────────────────────

    @abstractmethod
    async def upgrade_status(self) -> UpgradeStatus:
        """Return the state of the upgrade of the tables."""

    @abstractmethod
    async def _fold_rows_again(self) -> int:
        """Write the rows of some sessions that the version before wrote; returns how many."""

    @abstractmethod
    async def _finish_upgrade(self) -> None:
        """Let older versions refuse the journal. Raises JournalFailed if one wrote meanwhile."""

    async def migrate(
        self,
        *,
        finish: bool = False,
        limit: int | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> UpgradeStatus:
        """Fold the sessions again whose rows the previous version wrote, while others use them.

        Each transaction takes a few of them, so it can be stopped at any moment, and the next call
        continues with the rest. With `finish`, programs of older versions refuse the journal from
        then on, and everything that this version can do is enabled; that needs all sessions.

        Args:
            finish: finish the upgrade.
            limit: stop after about so many sessions; None for all.
            on_progress: called after each transaction with the number of sessions done so far.

        Returns the state of the upgrade.
        """
        done = 0
        while limit is None or done < limit:
            count = await self._fold_rows_again()
            if not count:
                break
            done += count
            if on_progress is not None:
                on_progress(done)
        status = await self.upgrade_status()
        is_cut = limit is not None and status.sessions_left > 0
        if finish and not is_cut:
            await self._finish_upgrade()
            status = await self.upgrade_status()
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def append(
        self, session: str, facts: Sequence[Fact], row: SessionSummary
    ) -> asyncio.Future[None]:
        """Write the facts and the row, all or none. The future is done when they are durable.

        It raises SessionBusy if another driver has taken their sequence numbers, and JournalFailed
        if they cannot be written.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not facts:
            done.set_result(None)
            return done
        try:
            name = self._check_name(session)
            records = [encode_fact(fact) for fact in facts]
            self._submit_append(PendingAppend(name, facts, row, records, done))
        except JournalFailed as error:
            done.set_exception(error)
        return done

    async def get_blob(self, session: str, name: str) -> bytes | None:
        """Return the data that the session keeps under a name, or the first 16 characters of it.

        Returns None if the session keeps no such data, and raises JournalCorrupt if it is not what
        was stored.
        """
        if not is_blob_name(name):
            return None
        data = await self._find_blob(self._check_name(session), name)
        if data is not None and not blob_name(data).startswith(name):
            raise blob_corrupt_error(self._location, session, name)
        return data

    def _check_name(self, session: str) -> str:
        """Return the name of a session; raises JournalFailed if it cannot be stored."""
        try:
            session.encode()
        except UnicodeEncodeError as error:
            raise session_name_error(session, error.reason) from None
        return session

    def _require_facts(
        self, session: str, found: Iterable[Fact | RecordProblem]
    ) -> tuple[Fact, ...]:
        """Return the facts; raises JournalCorrupt at the first record that is not sound."""
        facts: list[Fact] = []
        for fact in found:
            if isinstance(fact, RecordProblem):
                raise session_corrupt_error(self._location, session, fact)
            facts.append(fact)
        return tuple(facts)
