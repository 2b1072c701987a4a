"""The mailbox side of an SQLite journal, and how it waits for other processes."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar
from weakref import WeakKeyDictionary

from typing_extensions import override

from windlass.core.mail import Letter, Mail, MailLane, MailReceipt, lane_of
from windlass.core.verdicts import QuestionRow
from windlass.journals.leases import FileLeaseTable
from windlass.journals.live.inbox import AppendNotifier
from windlass.journals.mail_rules import MailLimits, encode_message, lane_name
from windlass.journals.sqlite import mail, work
from windlass.journals.sqlite.anchors import AnchorBook
from windlass.journals.sqlite.file_watch import FileWatch
from windlass.journals.sqlite.questions import read_unsettled
from windlass.journals.stored_journal import StoredJournal
from windlass.journals.work_rules import claim_safely
from windlass.ports.fleet import ClaimedWork, FleetRows, WorkLane, WorkShare, WorkWanted
from windlass.sqlite_file import SqliteConnection

T = TypeVar("T")


class SqliteMailbox(StoredJournal):
    """Takes messages for the sessions of a file."""

    def __init__(
        self,
        location: str,
        limits: MailLimits,
        now: Callable[[], float],
        leases: FileLeaseTable,
    ) -> None:
        super().__init__(location)
        self._leases = leases
        self._mail_notifier = AppendNotifier()
        self._mail_limits = limits
        self._mail_clock = now
        self._book: AnchorBook | None = None
        """Signs for the user; None without a key."""
        self._watches: WeakKeyDictionary[asyncio.AbstractEventLoop, FileWatch] = WeakKeyDictionary()
        """By event loop: all who wait there for other processes."""

    @override
    def find_letter_problem(self, session: str, letter: Letter) -> str | None:
        """Return why a message is not genuine; None if it was posted with the user's own key."""
        book = self._book
        values = mail.signed_values(session, letter)
        if book is None or book.is_genuine_letter(letter.signature, *values):
            return None
        return "it is not signed with the user's own key"

    @abstractmethod
    def _submit_change(
        self, work: Callable[[SqliteConnection], T], *, moves_ends: bool = False
    ) -> asyncio.Future[T]:
        """Hand a change of the file to the writer."""

    @abstractmethod
    async def _run_query(self, work: Callable[[SqliteConnection], T]) -> T:
        """Run a query in a thread."""

    @abstractmethod
    def _data_version(self) -> int:
        """Return a number that changes when another connection writes."""

    async def post_mail(
        self, session: str, message: Mail, *, by: str = "", key: str = ""
    ) -> MailReceipt:
        """Keep a message for a session, and return once it is on the disk.

        Raises NothingToDo if the session has no facts, unless the message is a prompt, ConfigError
        if the message cannot be kept, QuestionDecided and MailboxFull.
        """
        name = self._check_name(session)
        body = encode_message(message, by, key)
        letter = mail.FileLetter(name, message, body, by, key, self._mail_clock(), self._book)
        posting = self._submit_change(
            lambda file: mail.post_letter(file, letter, self._mail_limits),
            # A prompt may make the row of its session.
            moves_ends=lane_of(message) == "prompts",
        )
        lane = lane_name(name, lane_of(message))
        posting.add_done_callback(lambda _: self._mail_notifier.notify((lane,)))
        # The message is kept even if its poster is cancelled.
        return await asyncio.shield(posting)

    async def read_mail(self, session: str, lane: MailLane, after: int = 0) -> Sequence[Letter]:
        """Return the messages of a lane after a number, in order."""
        name = self._check_name(session)
        return await self._run_query(lambda file: mail.read_letters(file, name, lane, after))

    async def read_questions(self, session: str) -> Sequence[QuestionRow]:
        """Return the questions of a session that no fact has settled, decided or not."""
        name = self._check_name(session)
        return await self._run_query(lambda file: read_unsettled(file, name))

    async def remove_mail(self, session: str, lane: MailLane, upto: int) -> None:
        """Forget the messages of a lane up to a number."""
        name = self._check_name(session)
        await self._submit_change(lambda file: mail.remove_letters(file, name, lane, upto))

    async def wait_for_mail(self, session: str, lane: MailLane, after: int) -> None:
        """Return when the lane has messages after a number.

        A message from this process is noticed at once, one from another process within 0.1 s.
        """
        name = self._check_name(session)
        await self._wait_for_change(
            self._mail_notifier.subscribe(lane_name(name, lane)),
            lambda file: mail.has_letters(file, name, lane, after),
        )

    async def list_mailed(self, limit: int = 100) -> Sequence[str]:
        """Return the sessions that have messages which were not taken yet, the oldest first."""
        return await self._run_query(lambda file: mail.list_mailed(file, limit))

    async def list_work(self, wanted: WorkWanted) -> Sequence[WorkLane]:
        """Return the lanes with sessions that need a driver and have none."""
        is_taken = self._leases.is_taken

        def look(file: SqliteConnection) -> tuple[bool, list[WorkLane]]:
            is_overdue = work.has_overdue(file, wanted.now)
            return is_overdue, [] if is_overdue else work.list_lanes(file, wanted, is_taken)

        is_overdue, lanes = await self._run_query(look)
        if not is_overdue:
            return lanes
        await self._submit_change(lambda file: work.promote_overdue(file, wanted.now))
        return await self._run_query(lambda file: work.list_lanes(file, wanted, is_taken))

    async def claim_work(
        self, wanted: WorkWanted, shares: Sequence[WorkShare]
    ) -> Sequence[ClaimedWork]:
        """Lease some sessions of these lanes."""
        claim = self._leases.claim
        claiming = asyncio.ensure_future(
            self._run_query(lambda file: work.claim_sessions(file, wanted, shares, claim))
        )
        return await claim_safely(claiming, self.release_work)

    def release_work(self, session: str) -> None:
        """Release a session that was claimed and is not driven."""
        self._leases.release_claim(session)

    async def read_fleet(self) -> FleetRows:
        """Return the prompts that wait. A file does not know the processes that use it."""
        queues = await self._run_query(mail.list_queues)
        return FleetRows(at=self._mail_clock(), workers=None, queues=queues)

    async def _wait_for_change(
        self,
        subscription: AbstractContextManager[asyncio.Future[None]],
        is_there: Callable[[SqliteConnection], bool],
    ) -> None:
        """Return when this process was notified, or another one has changed what is there."""
        loop = asyncio.get_running_loop()
        watch = self._watches.get(loop)
        if watch is None:
            watch = self._watches[loop] = FileWatch(self._data_version, self._run_query)
        with subscription as notified, watch.wait_for(is_there) as changed:
            if not notified.done() and not await self._run_query(is_there):
                await asyncio.wait((notified, changed), return_when=asyncio.FIRST_COMPLETED)
            if changed.done():
                changed.result()
