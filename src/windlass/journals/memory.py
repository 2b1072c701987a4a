"""A journal in memory: its sessions live as long as the process."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress

from typing_extensions import override

from windlass.core.decide.reserving import budget_window
from windlass.core.errors import SessionBusy, WindlassError
from windlass.core.events import Fact
from windlass.core.limits import Amount, Budget
from windlass.core.mail import Letter, Mail, MailLane, MailReceipt
from windlass.core.session_summary import (
    ABANDONED_SESSIONS,
    PAGE_SESSIONS,
    PagePlace,
    SessionPage,
    SessionSummary,
    StateFilter,
    Wanted,
    cut_page,
    find_tree,
    list_roots,
    make_query,
    query_undriven,
    sort_sessions,
)
from windlass.core.verdicts import QuestionRow
from windlass.journals.codec import RecordProblem, blob_name, check_order, first_hash, is_blob_name
from windlass.journals.leases import HeldLease
from windlass.journals.live import inbox
from windlass.journals.mail_book import MailBook, MailDraft, MailPosted, MailRemoved
from windlass.journals.mail_rules import MailLimits, lane_name
from windlass.journals.record_rules import BudgetDraws, ShareChange
from windlass.journals.record_set import BudgetShares, RecordSet
from windlass.journals.wording import MEMORY_NAME, session_missing_error
from windlass.journals.work_rules import MemoryWork
from windlass.ports.fleet import FleetRows
from windlass.ports.records import ProvenAnswers, SharedRecord, Tombstone

HASHED_IN_LOOP_BYTES_MAX = 1_000_000
"""Longer data is hashed in a thread, so that the event loop is not blocked."""


class MemoryJournal(MemoryWork, BudgetDraws):
    """Keeps facts as Python objects. An append is complete when the call returns."""

    def __init__(
        self, *, now: Callable[[], float] = time.time, mail_limits: MailLimits | None = None
    ) -> None:
        """Make an empty journal.

        Args:
            now: seconds since the epoch, for budgets with a window and the time of a message.
            mail_limits: how many messages may wait for a session; 1,000 for control and 100
                prompts by default.
        """
        super().__init__(MailBook(mail_limits or MailLimits()))
        self._blobs: dict[str, dict[str, bytes]] = {}
        self._tombstones: dict[str | bytes, Tombstone] = {}
        """By the name of a deleted session, and by the hash of its first record."""
        self._shares = BudgetShares()
        self._records = RecordSet()
        self._notifier = inbox.AppendNotifier()
        self._mail_notifier = inbox.AppendNotifier()
        self._live = inbox.MemoryChannel()
        self._now = now

    @property
    def name(self) -> str:
        """How people name the journal."""
        return MEMORY_NAME

    @property
    def is_kept(self) -> bool:
        """False: the sessions live as long as the process."""
        return False

    def check_shareable(self) -> None:
        """Do nothing: sessions are listed, and leased to one driver at a time."""

    def close(self) -> None:
        """Do nothing: there is no file to close, and the sessions stay until the process ends."""

    async def aclose(self) -> None:
        """Do nothing, as `close`."""

    def find_letter_problem(self, session: str, letter: Letter) -> str | None:
        """Return None: no other program can post here."""
        del session, letter

    async def find_forgeries(self, session: str) -> Sequence[RecordProblem]:
        """Return nothing: no other program can write here."""
        del session
        return ()

    async def find_proven(self, session: str) -> ProvenAnswers | None:
        """Return None: answers need no proof here."""
        del session

    async def verify(self, session: str) -> list[RecordProblem]:
        """Return no problem: facts in memory are not encoded, and nothing else can change them."""
        del session
        return []

    async def check(self) -> list[str]:
        """Return no problem: there is no file that could be damaged."""
        return []

    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        """Return the facts of a session after number `after`; none if there is no such session."""
        return tuple(self._sessions.get(session, ())[after:])

    def append(
        self, session: str, facts: Sequence[Fact], row: SessionSummary
    ) -> asyncio.Future[None]:
        """Keep the facts and the row, all or none. The returned future is already done.

        It raises SessionBusy if another driver has taken their sequence numbers.
        """
        done = asyncio.get_running_loop().create_future()
        try:
            self._append_facts(session, facts, row)
        except WindlassError as error:
            done.set_exception(error)
        else:
            done.set_result(None)
        return done

    def _append_facts(self, session: str, facts: Sequence[Fact], row: SessionSummary) -> None:
        if not facts:
            return
        with self._mutex:
            known = self._sessions.get(session, [])
            check_order(session, len(known), facts)
            known.extend(facts)
            self._sessions[session] = known
            self._keep_row(session, row)
        self._notifier.notify((session,))

    async def lease(self, session: str) -> HeldLease:
        """Take the lease of a session; raises SessionBusy if another driver has it."""
        return self._leases.acquire(session)

    async def visit(self, session: str) -> HeldLease:
        """Take the lease to write into a session without driving it."""
        return self._leases.acquire(session)

    async def is_leased(self, session: str) -> bool:
        """Whether a driver has the lease of the session."""
        return self._leases.is_taken(session)

    async def wait_for_append(self, session: str, after: int) -> None:
        """Return once the session has facts after number `after`."""
        with self._notifier.subscribe(session) as appended:
            if len(self._sessions.get(session, ())) <= after:
                await appended

    async def post_mail(
        self, session: str, message: Mail, *, by: str = "", key: str = ""
    ) -> MailReceipt:
        """Keep a message for a session. It is there when this returns.

        Raises NothingToDo if the session has no facts, unless the message is a prompt, ConfigError
        if the message cannot be kept, QuestionDecided, and MailboxFull.
        """
        draft = MailDraft(session, message, by, key)
        with self._mutex:
            planned = self._mail.plan_post(draft, self._facts_of, self._now())
            if not isinstance(planned, MailPosted):
                return planned
            self._mail.apply(planned)
        receipt = planned.receipt
        self._mail_notifier.notify((lane_name(session, receipt.lane),))
        return receipt

    async def read_mail(self, session: str, lane: MailLane, after: int = 0) -> Sequence[Letter]:
        """Return the messages of a lane after a number, in order."""
        with self._mutex:
            return self._mail.read(session, lane, after)

    async def read_questions(self, session: str) -> Sequence[QuestionRow]:
        """Return the questions of a session that no fact has settled, decided or not."""
        with self._mutex:
            return self._mail.read_questions(session, self._facts_of(session))

    async def remove_mail(self, session: str, lane: MailLane, upto: int) -> None:
        """Forget the messages of a lane up to a number."""
        with self._mutex:
            self._mail.apply(MailRemoved(session, lane, upto))

    async def wait_for_mail(self, session: str, lane: MailLane, after: int) -> None:
        """Return once the lane has messages after a number."""
        with self._mail_notifier.subscribe(lane_name(session, lane)) as posted:
            if not await self.read_mail(session, lane, after):
                await posted

    async def list_mailed(self, limit: int = 100) -> Sequence[str]:
        """Return the sessions that have messages which were not taken yet, the oldest first."""
        with self._mutex:
            return self._mail.list_mailed(self._facts_of, limit)

    async def read_fleet(self) -> FleetRows:
        """Return the prompts that wait. There is one process."""
        with self._mutex:
            queues = self._mail.list_queues(self._facts_of)
        return FleetRows(at=self._now(), workers=None, queues=queues)

    def open_live(self, session: str, on_interest: Callable[[bool], None]) -> inbox.MemorySender:
        """Open the driver's side of the live channel."""
        return self._live.open_sender(session, on_interest)

    def watch_live(self, session: str) -> inbox.MemorySubscription:
        """Open a watcher's side of the live channel, for another agent in this process."""
        return self._live.subscribe(session)

    async def put_blob(self, session: str, data: bytes) -> str:
        """Keep data for as long as the session, and return its name.

        Raises JournalFailed if there is no such session.
        """
        if len(data) > HASHED_IN_LOOP_BYTES_MAX:
            name = await asyncio.to_thread(blob_name, data)
        else:
            name = blob_name(data)
        with self._mutex:
            if session not in self._sessions:
                raise session_missing_error(session)
            self._blobs.setdefault(session, {})[name] = data
            return name

    async def get_blob(self, session: str, name: str) -> bytes | None:
        """Return the data that the session keeps under a name, or the first 16 characters of it."""
        if not is_blob_name(name):
            return None
        blobs = self._blobs.get(session, {})
        return next((blobs[whole] for whole in tuple(blobs) if whole.startswith(name)), None)

    @override
    async def _read_held(self, budget: Budget, window: str, tree: str) -> Amount:
        return self._shares.reserved(budget, window, tree)

    @override
    async def _read_promised(self, budget: Budget, window: str) -> Amount:
        return self._shares.promised(budget, window)

    @override
    async def _change_share(self, change: ShareChange) -> Amount:
        with self._mutex:
            entry = self._shares.plan_change(change, budget_window(change.budget, self._now()))
            if entry is not None:
                self._shares.apply(entry)
            return self._shares.share_of(change)

    async def get_record(self, kind: str, name: str) -> SharedRecord | None:
        """Return a shared record, if there is one."""
        return self._records.get(kind, name)

    async def put_record(self, kind: str, name: str, data: bytes, version: int) -> SharedRecord:
        """Replace the shared record with this version; raises RecordConflict if it has another."""
        with self._mutex:
            entry = self._records.plan_put(kind, name, data, version)
            self._records.apply(entry)
        return entry.record

    async def delete_record(self, kind: str, name: str, version: int | None = None) -> bool:
        """Delete a shared record. Returns whether there was one."""
        with self._mutex:
            entry = self._records.plan_delete(kind, name, version)
            if entry is not None:
                self._records.apply(entry)
        return entry is not None

    async def list_records(
        self, kind: str, after: str = "", limit: int = 100
    ) -> Sequence[SharedRecord]:
        """Return the shared records of a kind after a name, in the order of names."""
        with self._mutex:
            return self._records.list_page(kind, after, limit)

    async def sessions(  # noqa: PLR0913 - one parameter per filter
        self,
        query: str | None = None,
        *,
        state: StateFilter | None = None,
        agent: str | None = None,
        caller: str | None = None,
        since: float | None = None,
        until: float | None = None,
        parent: str | None = None,
        tags: Mapping[str, str] | None = None,
        limit: int = PAGE_SESSIONS,
        cursor: str | None = None,
    ) -> SessionPage:
        """Return a page of the sessions that pass all filters, as `Journal.sessions` says."""
        wanted = make_query(
            query,
            state=state,
            agent=agent,
            caller=caller,
            since=since,
            until=until,
            parent=parent,
            tags=tags,
        )
        found = [summary for summary in self._list_summaries() if wanted.matches(summary)]
        return cut_page(found, limit, None if cursor is None else PagePlace.from_cursor(cursor))

    async def list_abandoned(
        self,
        *,
        agent: str | None = None,
        parent: str | None = None,
        limit: int = ABANDONED_SESSIONS,
    ) -> list[SessionSummary]:
        """List the latest sessions whose open run has no driver and does not wait for a person."""
        wanted = query_undriven(agent, parent, self._now())
        found = filter(wanted.matches, self._list_summaries())
        return [row for row in found if not self._leases.is_taken(row.session)][:limit]

    def _list_summaries(self) -> list[SessionSummary]:
        return sort_sessions(tuple(self._rows.values()))

    async def prune(self, before: float, *, keep: int = 0, wanted: Wanted = None) -> int:
        """Delete the sessions that ended before a time, except the latest `keep`; returns how many.

        A session goes with those that work for it, unless one is driven or has waiting messages.
        """
        count = 0
        summaries = self._list_summaries()
        for summary in list_roots(summaries)[keep:]:
            is_old = summary.changed < before and summary.outcome is not None
            if is_old and (wanted is None or wanted(summary)):
                tree = [summary.session, *find_tree(summary.session, summaries)]
                if any(self._mail.has_waiting(name, self._facts_of(name)) for name in tree):
                    continue
                with suppress(SessionBusy):
                    self._delete_together(tree)
                    count += len(tree)
        return count

    async def delete(self, session: str, *, erase: bool = False) -> bool:
        """Delete a session and those that work for it; returns whether there was one.

        Raises SessionBusy, and deletes nothing, if one of them is driven.
        """
        below = find_tree(session, self._list_summaries()) if session in self._sessions else []
        return self._delete_together([session, *below], erase=erase) > 0

    async def find_tombstone(self, session: str, first: bytes = b"") -> Tombstone | None:
        """Return what stays of a deleted session, by its name or by its first record."""
        return self._tombstones.get(first or session)

    async def bury(self, name: str) -> None:
        """Leave a tombstone under a name."""
        self._tombstones[name] = Tombstone(self._now(), erased=True)

    async def scrub(self) -> bool:
        """Return True: what was deleted is nowhere."""
        return True

    def _delete_together(self, names: Sequence[str], *, erase: bool = False) -> int:
        """Delete all of these sessions, or raise SessionBusy if one of them is driven.

        Returns how many of them there were.
        """
        with ExitStack() as held:
            for name in names:
                held.callback(self._leases.acquire(name).release)
            with self._mutex:
                return sum([self._delete_session(name, erase=erase) for name in names])

    def _delete_session(self, session: str, *, erase: bool) -> bool:
        if facts := self._sessions.get(session):
            tombstone = Tombstone(self._now(), erase)
            self._tombstones[session] = tombstone
            self._tombstones[first_hash(session, facts[0])] = tombstone
        self._blobs.pop(session, None)
        # The budgets keep what was spent, but a new session of this name has no share yet.
        self._shares.forget_session(session)
        had_mail = self._mail.delete(session, self._facts_of(session))
        self._drop_row(session)
        return self._sessions.pop(session, None) is not None or had_mail
