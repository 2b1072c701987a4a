"""Makes a whole journal of a store that only reads and appends facts.

What the store does not have becomes numbered streams in it (`entry_stream.py`): mail, records,
budgets and blobs. A driver is fenced by the numbers of its facts, and waiters read again
after a while. Such a store cannot list its sessions, nor lease one exclusively, so services and
workers refuse it.

Nothing is kept in this process but a copy of what was read.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NoReturn

import msgspec
from typing_extensions import override

from windlass.core.decide.reserving import budget_window
from windlass.core.errors import ConfigError, JournalFailed
from windlass.core.events import Fact
from windlass.core.fold.run import fold
from windlass.core.limits import Amount, Budget
from windlass.core.mail import AnswerMail, Letter, Mail, MailLane, MailReceipt
from windlass.core.session_summary import SessionPage, SessionSummary
from windlass.core.verdicts import QuestionRow
from windlass.journals.codec import BLOB_PREFIX_CHARS_MIN, blob_name, is_blob_name
from windlass.journals.entry_stream import STREAM_PREFIX, DecodeEntry, EntryStream, StateT
from windlass.journals.leases import OpenLease
from windlass.journals.live.inbox import MemoryChannel, MemorySender, MemorySubscription
from windlass.journals.mail_book import FactsOf, MailBook, MailDraft, MailPosted, MailRemoved
from windlass.journals.mail_rules import MailLimits, no_question_error
from windlass.journals.record_rules import BudgetDraws, ShareChange, check_record_key
from windlass.journals.record_set import (
    BlobKept,
    BlobSet,
    BudgetShares,
    RecordDeleted,
    RecordPut,
    RecordSet,
    ShareSet,
)
from windlass.journals.wording import session_busy_error, session_missing_error
from windlass.ports.fleet import ClaimedWork, FleetRows, WorkLane, WorkWanted
from windlass.ports.journals import FactStore, GivenJournal, Journal
from windlass.ports.records import ProvenAnswers, RecordProblem, SharedRecord, Tombstone

POLL_MIN_S = 0.05
POLL_MAX_S = 0.25
"""How often a store is read by waiters: at first, and after a long silence."""
STREAMS_MAX = 1_000
"""Streams whose entries are remembered. The others are read again when they are needed."""
CANNOT_LIST = "list its sessions"
CANNOT_DELETE = "delete a session"
_SMALL = {"read", "append", "name", "is_kept", "close", "aclose"}
"""What a store of facts may have without being a whole journal."""
_LATER_METHODS = tuple(
    name for name in dir(Journal) if not name.startswith("_") and name not in _SMALL
)
_decode_mail = msgspec.json.Decoder(MailPosted | MailRemoved).decode
_decode_record = msgspec.json.Decoder(RecordPut | RecordDeleted).decode
_decode_blob = msgspec.json.Decoder(BlobKept).decode
_decode_share = msgspec.json.Decoder(ShareSet).decode


def complete_journal(journal: GivenJournal, now: Callable[[], float] = time.time) -> Journal:
    """Return a whole journal: the same one, or a completed one if it only reads and appends.

    `now` gives the time of messages and the windows of budgets. Raises ConfigError if the journal
    has a part of the other methods.
    """
    missing = [name for name in _LATER_METHODS if not hasattr(journal, name)]
    if not missing:
        return journal  # pyright: ignore[reportReturnType] - it has every method
    if len(missing) < len(_LATER_METHODS):
        raise ConfigError(
            f"{type(journal).__name__} has some methods of windlass.ports.Journal, but not "
            f"{', '.join(missing[:3])}: give it all of them, or only `read` and `append`"
        )
    return CompletedJournal(journal, now)


class CompletedJournal(BudgetDraws):
    """A journal over a store that reads and appends facts."""

    is_kept = True
    """Whether the sessions outlive this process is for the store to say."""

    def __init__(
        self,
        store: FactStore,
        now: Callable[[], float] = time.time,
        mail_limits: MailLimits | None = None,
    ) -> None:
        self._store = store
        self._now = now
        self._mail_limits = mail_limits or MailLimits()
        self._live = MemoryChannel()
        self._streams: OrderedDict[str, EntryStream[Any]] = OrderedDict()

    @property
    def name(self) -> str:
        """How people name the journal."""
        return type(self._store).__name__

    def check_shareable(self) -> None:
        """Raise ConfigError: such a store neither lists its sessions nor leases them."""
        self._refuse("list its sessions, nor lease one to a single driver: no service or worker")

    def close(self) -> None:
        """Do nothing: the program that made the store closes it."""

    async def aclose(self) -> None:
        """Do nothing: the program that made the store closes it."""

    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        """Return the facts of a session after number `after`."""
        return await self._store.read(session, after)

    def append(self, session: str, facts: Sequence[Fact], row: SessionSummary) -> Awaitable[None]:
        """Write the facts, all or none."""
        if session.startswith(STREAM_PREFIX):
            raise JournalFailed(f"session {session!r}: {STREAM_PREFIX!r} begins no name of one")
        return self._store.append(session, facts, row)

    # ── leases and news ──────────────────────────────────────────────────────

    async def lease(self, session: str) -> "OpenLease":
        """Return a lease that excludes no other driver: the numbers of the facts do."""
        del session
        return OpenLease()

    async def visit(self, session: str) -> "OpenLease":
        """Return such a lease, if the facts show that no driver is at work.

        Raises SessionBusy for a run that its driver has begun and not released: one that writes
        into it would fence its driver off.
        """
        state = fold(session, await self._store.read(session))
        is_left = state.is_queued or state.is_waiting or (state.run and state.run.is_released)
        if state.is_active and not is_left:
            raise session_busy_error(session)
        return OpenLease()

    async def is_leased(self, session: str) -> bool:
        """Return False: the store does not know who drives a session."""
        del session
        return False

    async def wait_for_append(self, session: str, after: int) -> None:
        """Return once the session has facts after a number. The store is read now and then."""

        async def is_there() -> bool:
            return bool(await self._store.read(session, after))

        await _poll(is_there)

    def open_live(self, session: str, on_interest: Callable[[bool], None]) -> MemorySender:
        """Open the driver's side of the live channel, for watchers in this process."""
        return self._live.open_sender(session, on_interest)

    def watch_live(self, session: str) -> MemorySubscription:
        """Open a watcher's side of the live channel. From other processes come facts alone."""
        return self._live.subscribe(session)

    # ── mail ─────────────────────────────────────────────────────────────────

    async def post_mail(
        self, session: str, message: Mail, *, by: str = "", key: str = ""
    ) -> MailReceipt:
        """Keep a message for a session, and return once it is durable."""
        draft = MailDraft(session, message, by, key)
        tree = session.partition("/")[0]
        if draft.asking.partition("/")[0] != tree and isinstance(message, AnswerMail):
            raise no_question_error(message.call_id, draft.asking)
        at = self._now()
        receipts: list[MailReceipt] = []

        def plan(book: MailBook, facts_of: FactsOf) -> MailPosted | None:
            planned = book.plan_post(draft, facts_of, at)
            is_new = isinstance(planned, MailPosted)
            receipts[:] = [planned.receipt if is_new else planned]
            return planned if is_new else None

        await self._mail(session).add(plan, self._now, {session, draft.asking})
        return receipts[0]

    async def read_mail(self, session: str, lane: MailLane, after: int = 0) -> Sequence[Letter]:
        """Return the messages of a lane after a number, in order."""
        return (await self._mail(session).read()).read(session, lane, after)

    async def read_questions(self, session: str) -> Sequence[QuestionRow]:
        """Return the questions of a session that no fact has settled, decided or not."""
        book = await self._mail(session).read()
        return book.read_questions(session, await self._store.read(session))

    async def remove_mail(self, session: str, lane: MailLane, upto: int) -> None:
        """Show the messages of a lane up to a number no more. Their entries stay in the store."""

        def plan(book: MailBook, facts_of: FactsOf) -> MailRemoved | None:
            del facts_of
            letters = book.read(session, lane, 0)
            is_there = bool(letters) and letters[0].number <= upto
            return MailRemoved(session, lane, upto) if is_there else None

        await self._mail(session).add(plan, self._now)

    async def wait_for_mail(self, session: str, lane: MailLane, after: int) -> None:
        """Return once the lane has messages after a number. The store is read now and then."""

        async def is_there() -> bool:
            return bool(await self.read_mail(session, lane, after))

        await _poll(is_there)

    async def list_mailed(self, limit: int = 100) -> Sequence[str]:
        """Raise ConfigError: such a store does not list its sessions."""
        del limit
        self._refuse(CANNOT_LIST)

    async def list_work(self, wanted: WorkWanted) -> Sequence[WorkLane]:
        """Raise ConfigError: such a store does not list its sessions."""
        del wanted
        self._refuse(CANNOT_LIST)

    async def claim_work(self, wanted: WorkWanted, shares: object) -> Sequence[ClaimedWork]:
        """Raise ConfigError: such a store does not list its sessions."""
        del wanted, shares
        self._refuse(CANNOT_LIST)

    def release_work(self, session: str) -> None:
        """Do nothing: such a store has no work to claim."""

    async def read_fleet(self) -> FleetRows:
        """Raise ConfigError: such a store does not list its sessions."""
        self._refuse(CANNOT_LIST)

    def _mail(self, session: str) -> EntryStream[MailBook]:
        # One stream for a session and its sub-agents, so that an answer which lies in the mailbox
        # of the root decides the question of a sub-agent in the same entry.
        tree = session.partition("/")[0]
        return self._stream(f"mail {tree}", lambda: MailBook(self._mail_limits), _decode_mail)

    # ── proofs ───────────────────────────────────────────────────────────────

    def find_letter_problem(self, session: str, letter: Letter) -> str | None:
        """Return None: nothing is signed here."""
        del session, letter

    async def find_forgeries(self, session: str) -> Sequence[RecordProblem]:
        """Return nothing: nothing is signed here."""
        del session
        return ()

    async def find_proven(self, session: str) -> ProvenAnswers | None:
        """Return None: no keys say what to believe."""
        del session

    async def verify(self, session: str) -> Sequence[RecordProblem]:
        """Return nothing: the store answers for its records."""
        del session
        return ()

    # ── blobs ────────────────────────────────────────────────────────────────

    async def put_blob(self, session: str, data: bytes) -> str:
        """Keep data for as long as the store does. Raises JournalFailed for an unknown session."""
        name = await asyncio.to_thread(blob_name, data)
        if not await self._store.read(session):
            raise session_missing_error(session)

        def plan(blobs: BlobSet, facts_of: FactsOf) -> BlobKept | None:
            del facts_of
            return None if name in blobs.by_name else BlobKept(data)

        await self._blobs(session, name).add(plan, self._now)
        return name

    async def get_blob(self, session: str, name: str) -> bytes | None:
        """Return what the session keeps under a name; the first 16 characters are enough."""
        if not is_blob_name(name):
            return None
        return (await self._blobs(session, name).read()).find(name)

    def _blobs(self, session: str, name: str) -> EntryStream[BlobSet]:
        # Not remembered: blobs may be large.
        stream = f"blob {name[:BLOB_PREFIX_CHARS_MIN]} {session}"
        return EntryStream(self._store, stream, BlobSet(), _decode_blob)

    # ── records and budgets ──────────────────────────────────────────────────

    async def get_record(self, kind: str, name: str) -> SharedRecord | None:
        """Return a shared record, if there is one."""
        return (await self._records(kind).read()).get(kind, name)

    async def put_record(self, kind: str, name: str, data: bytes, version: int) -> SharedRecord:
        """Replace the shared record with this version; raises RecordConflict if it has another."""
        written = await self._records(kind).add(
            lambda records, _: records.plan_put(kind, name, data, version), self._now
        )
        assert written is not None  # noqa: S101 - a put always has an entry
        return written.record

    async def delete_record(self, kind: str, name: str, version: int | None = None) -> bool:
        """Delete a shared record. Returns whether there was one."""
        deleted = await self._records(kind).add(
            lambda records, _: records.plan_delete(kind, name, version), self._now
        )
        return deleted is not None

    async def list_records(
        self, kind: str, after: str = "", limit: int = 100
    ) -> Sequence[SharedRecord]:
        """Return the shared records of a kind after a name, in the order of names."""
        return (await self._records(kind).read()).list_page(kind, after, limit)

    def _records(self, kind: str) -> EntryStream[RecordSet]:
        check_record_key(kind, "any")
        return self._stream(f"records {kind}", RecordSet, _decode_record)

    @override
    async def _read_held(self, budget: Budget, window: str, tree: str) -> Amount:
        return (await self._shares(budget).read()).reserved(budget, window, tree)

    @override
    async def _read_promised(self, budget: Budget, window: str) -> Amount:
        return (await self._shares(budget).read()).promised(budget, window)

    @override
    async def _change_share(self, change: ShareChange) -> Amount:
        window = budget_window(change.budget, self._now())
        stream = self._shares(change.budget)
        await stream.add(lambda shares, _: shares.plan_change(change, window), self._now)
        return (await stream.read()).share_of(change)

    def _shares(self, budget: Budget) -> EntryStream[BudgetShares]:
        return self._stream(f"budget {budget.name}", BudgetShares, _decode_share)

    # ── the list of sessions ─────────────────────────────────────────────────

    async def sessions(self, query: str | None = None, **filters: object) -> SessionPage:
        """Raise ConfigError: such a store does not list its sessions."""
        del query, filters
        self._refuse(CANNOT_LIST)

    async def list_abandoned(self, **filters: object) -> list[SessionSummary]:
        """Raise ConfigError: such a store does not list its sessions."""
        del filters
        self._refuse(CANNOT_LIST)

    async def delete(self, session: str, *, erase: bool = False) -> bool:
        """Raise ConfigError: such a store deletes nothing."""
        del session, erase
        self._refuse(CANNOT_DELETE)

    async def find_tombstone(self, session: str, first: bytes = b"") -> Tombstone | None:
        """Return None: such a store deletes nothing."""
        del session, first

    async def bury(self, name: str) -> None:
        """Raise ConfigError: such a store deletes nothing."""
        del name
        self._refuse(CANNOT_DELETE)

    async def scrub(self) -> bool:
        """Return True: nothing was deleted."""
        return True

    async def prune(self, before: float, *, keep: int = 0, wanted: object = None) -> int:
        """Raise ConfigError: such a store deletes nothing."""
        del before, keep, wanted
        self._refuse(CANNOT_DELETE)

    def _refuse(self, what: str) -> NoReturn:
        raise ConfigError(
            f"{self.name} only reads and appends facts: it cannot {what}. Use SqliteJournal or "
            "PostgresJournal, or give it all methods of windlass.ports.Journal."
        )

    def _stream(
        self, name: str, make_state: Callable[[], StateT], decode: DecodeEntry
    ) -> EntryStream[StateT]:
        stream = self._streams.get(name)
        if stream is None:
            stream = self._streams[name] = EntryStream(self._store, name, make_state(), decode)
            while len(self._streams) > STREAMS_MAX:
                self._streams.popitem(last=False)
        return stream


async def _poll(is_there: Callable[[], Awaitable[bool]]) -> None:
    wait_s = POLL_MIN_S
    while not await is_there():
        await asyncio.sleep(wait_s)
        wait_s = min(wait_s * 1.5, POLL_MAX_S)
