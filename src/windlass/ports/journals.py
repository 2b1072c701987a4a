"""The port to the journal: facts, mail, records, blobs, leases and the list of sessions.

The code behind an agent or a service uses a `Journal`, and never asks what it can do. A program may
bring a smaller store, which reads and appends facts (`FactStore`); `journals/completing.py` makes a
journal of it where the agent takes it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from windlass.core.events import Fact
from windlass.core.limits import NOTHING, Amount, Budget
from windlass.core.live_batch import LiveBatch
from windlass.core.mail import Letter, Mail, MailLane, MailReceipt
from windlass.core.session_summary import (
    ABANDONED_SESSIONS,
    PAGE_SESSIONS,
    SessionPage,
    SessionSummary,
    StateFilter,
    Wanted,
)
from windlass.core.verdicts import QuestionRow
from windlass.ports.fleet import ClaimedWork, FleetRows, WorkLane, WorkShare, WorkWanted
from windlass.ports.records import (
    BlobStore,
    ProvenAnswers,
    RecordProblem,
    SharedRecords,
    Tombstone,
)


class FactStore(Protocol):
    """The least that a program's own journal must do: keep the facts of sessions.

    Sessions whose names begin with `windlass stream ` hold mail, records, budgets and blobs.
    """

    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        """Return the facts after a sequence number, in order; none for an unknown session."""
        ...

    def append(self, session: str, facts: Sequence[Fact], row: SessionSummary) -> Awaitable[None]:
        """Write all of the facts or none, with the session's row, and return once they are durable.

        The row is what the facts of the session add up to, up to the last of these
        (`core.session_summary.row_of`). Raises SessionBusy if their sequence numbers are taken, and
        JournalFailed if they were not kept.
        """
        ...


class Lease(Protocol):
    """The right to drive a session, until it is released, its holder dies, or it expires."""

    @property
    def epoch(self) -> int:
        """The fencing token: a later lease of the session has a higher one.

        It is 0 where a lease cannot expire; then the number of the fact that opened the run serves.
        """
        ...

    def is_certain(self) -> bool:
        """Return, without asking the server, whether no other driver can have the session."""
        ...

    def watch(self, on_lost: Callable[[], None]) -> None:
        """Call back if the lease is lost, or could not be renewed in time."""
        ...

    def release(self) -> None:
        """Let another driver have the session. A second call does nothing."""
        ...

    async def confirm(self) -> bool:
        """Ask the server whether it is held. Raises JournalFailed if the server does not answer."""
        ...


class LiveSender(Protocol):
    """The driver's side of a live channel. Sending never waits; a slow watcher loses the batch."""

    def send(self, batch: LiveBatch) -> None:
        """Hand over deltas without waiting; watchers that are too slow miss them."""
        ...

    def close(self) -> None:
        """Stop sending."""
        ...


class LiveSubscription(Protocol):
    """A watcher's side of a live channel, and its interest in a session, until it is closed."""

    async def receive(self) -> LiveBatch:
        """Wait for the next deltas."""
        ...

    def ask_snapshot(self) -> None:
        """Ask the driver for a snapshot: something was missed."""
        ...

    def close(self) -> None:
        """Stop receiving."""
        ...


class Journal(FactStore, BlobStore, SharedRecords, Protocol):
    """Keeps sessions, and all that programs with the same journal share about them.

    Mail: posting needs no lease and never touches the sequence of facts. Each lane of a session has
    numbers of its own, from 1 and without gaps; they are never used again, even when messages were
    removed (`core/mail.py`).
    """

    @property
    def name(self) -> str:
        """How people name the journal: without user and password."""
        ...

    @property
    def is_kept(self) -> bool:
        """Whether the sessions outlive this process."""
        ...

    def check_shareable(self) -> None:
        """Raise ConfigError unless sessions are listed and leased: services and workers need it."""
        ...

    def close(self) -> None:
        """Release files, connections and locks. A second call does nothing."""
        ...

    async def aclose(self) -> None:
        """As `close`, from the event loop that used the journal."""
        ...

    # ── leases and news ─────────────────────────────────────────────────────────────

    async def lease(self, session: str) -> Lease:
        """Take the session. Raises SessionBusy at once if a living driver has it."""
        ...

    async def visit(self, session: str) -> Lease:
        """Take the session to write into it without driving it.

        Raises SessionBusy if a living driver has it, or may have it.
        """
        ...

    async def is_leased(self, session: str) -> bool:
        """Return whether a living driver has the session, in this process or another."""
        ...

    async def wait_for_append(self, session: str, after: int) -> None:
        """Return when the session may have facts after a sequence number; sometimes without one."""
        ...

    def open_live(self, session: str, on_interest: Callable[[bool], None]) -> LiveSender:
        """Open the driver's side. Nothing need be sent before there is a watcher.

        `on_interest` is called in this loop: True if a snapshot is needed, False without a watcher.
        """
        ...

    def watch_live(self, session: str) -> LiveSubscription:
        """Begin to receive what the driver of a session sends, now or later."""
        ...

    # ── mail ────────────────────────────────────────────────────────────────────────

    async def post_mail(
        self, session: str, message: Mail, *, by: str = "", key: str = ""
    ) -> MailReceipt:
        """Keep a message for a session, and return once it is durable.

        The same key in the same lane gives the receipt of the first post again. An answer decides
        its question in the same transaction (`journals/mail_rules.py`). Raises NothingToDo if
        the session has no facts (a prompt may be its first message) or no such question waits,
        QuestionDecided if the question was decided before, and MailboxFull.
        """
        ...

    async def read_questions(self, session: str) -> Sequence[QuestionRow]:
        """Return the questions of a session that no fact has settled, decided or not.

        The append that records `CallJudged` with `Ask` adds one; see `core/fold/control.py`.
        """
        ...

    async def read_mail(self, session: str, lane: MailLane, after: int = 0) -> Sequence[Letter]:
        """Return the messages of a lane after a number, in order."""
        ...

    async def remove_mail(self, session: str, lane: MailLane, upto: int) -> None:
        """Forget the messages of a lane up to a number. Their facts are on record."""
        ...

    async def wait_for_mail(self, session: str, lane: MailLane, after: int) -> None:
        """Return when the lane may have messages after a number; sometimes without one."""
        ...

    async def list_mailed(self, limit: int = 100) -> Sequence[str]:
        """Return sessions that have messages that no fact carries, the oldest first."""
        ...

    # ── work (`ports/fleet.py`) ──────────────────────────────────────────────────────

    async def list_work(self, wanted: WorkWanted) -> Sequence[WorkLane]:
        """Return the lanes with sessions that need a driver and have none, for some agents.

        This reads no session that needs nothing, and of each lane no more than its first session.
        """
        ...

    async def claim_work(
        self, wanted: WorkWanted, shares: Sequence[WorkShare]
    ) -> Sequence[ClaimedWork]:
        """Lease some sessions of these lanes, and return those that no other driver has taken.

        The next `lease` of such a session in this process gets the lease. If this process dies
        before that, the session is free again.
        """
        ...

    def release_work(self, session: str) -> None:
        """Release a session that was claimed, unless a driver has it by now."""
        ...

    async def read_fleet(self) -> FleetRows:
        """Return the processes that work on the journal, if it knows them, and who waits."""
        ...

    # ── proofs ──────────────────────────────────────────────────────────────────────

    def find_letter_problem(self, session: str, letter: Letter) -> str | None:
        """Return why a message is not genuine; None if it is, or nothing is signed here."""
        ...

    async def find_forgeries(self, session: str) -> Sequence[RecordProblem]:
        """Return what was done to a session without the user's key."""
        ...

    async def find_proven(self, session: str) -> ProvenAnswers | None:
        """Return what the signed answers of a session prove; None if no keys say what to believe.

        With keys, a recorded permission is believed only if a service signed it.
        """
        ...

    async def verify(self, session: str) -> Sequence[RecordProblem]:
        """Return a problem for each record of a session that was changed, moved or removed."""
        ...

    # ── budgets that many runs share ────────────────────────────────────────────────

    async def draw_budget(
        self, budget: Budget, session: str, run: int, wanted: Amount, spent: Amount = NOTHING
    ) -> Amount:
        """Raise what a run may spend in all to `wanted`, or as near as the budget allows.

        Returns the new total, which is never less than before. Asking twice for the same amount
        has the effect of asking once. What it has `spent` so far is not held in reserve.
        """
        ...

    async def read_reserved(self, budget: Budget, tree: str) -> Amount:
        """Return what runs hold in reserve of the budget's current period, and have not spent.

        Those of a tree are left out: a session of this name, and those that work for it.
        """
        ...

    async def settle_budget(self, budget: Budget, session: str, run: int, spent: Amount) -> None:
        """Say what a run has spent in all; the rest of what it had drawn goes back."""
        ...

    async def read_spending(self, budget: Budget) -> Amount:
        """Return what is spent or promised in the budget's current period."""
        ...

    # ── the list of sessions ────────────────────────────────────────────────────────

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
        """Return a page of the sessions that pass all filters: last changed first, then by name.

        Args:
            query: a part of the name or of the first prompt, in any case.
            state: `open`, `waiting`, `paused` or an outcome, or several of them.
            agent: the name of the agent of the last run.
            caller: on whose behalf the last run works.
            since: the earliest last change of state, in seconds since the epoch.
            until: the last change of state was before this time.
            parent: the session that it works for; "" for sessions that no sub-agent has.
            tags: tags that the last run has, each with this value.
            limit: how many sessions a page has at most.
            cursor: the cursor of the page before; None for the first page.

        A session that changes meanwhile moves to the front, so it is on one page at most. Raises
        ConfigError if the cursor is not one.
        """
        ...

    async def list_abandoned(
        self,
        *,
        agent: str | None = None,
        parent: str | None = None,
        limit: int = ABANDONED_SESSIONS,
    ) -> list[SessionSummary]:
        """Return the sessions with an open run that has no living driver and waits for no person.

        These are the latest `limit` of those that pass the filters, which are those of `sessions`.
        """
        ...

    async def delete(self, session: str, *, erase: bool = False) -> bool:
        """Delete a session and those that work for it. Returns whether there was one.

        A tombstone stays of each (`journals/tombstones.py`); with `erase`, an import of one of them
        is refused from then on. Raises SessionBusy, and deletes nothing, if one of them is driven.
        """
        ...

    async def find_tombstone(self, session: str, first: bytes = b"") -> Tombstone | None:
        """Return what stays of a deleted session; None if no session of this name was deleted.

        `first`: the hash of the first record, which only that session had.
        """
        ...

    async def bury(self, name: str) -> None:
        """Leave a tombstone under a name that is not a session's, such as that of a caller."""
        ...

    async def scrub(self) -> bool:
        """Remove the bytes of what was deleted from the files, and return whether they are gone.

        False also where a database server keeps them for a time that only its operator knows.
        """
        ...

    async def prune(self, before: float, *, keep: int = 0, wanted: Wanted = None) -> int:
        """Delete the sessions that ended before a time; of these, only those that are `wanted`.

        A session is deleted with those that work for it, and never without its own caller. It stays
        if one of them is driven, or if it is among the latest `keep`. Returns how many sessions
        were deleted.
        """
        ...


GivenJournal = Journal | FactStore
"""What a program may give where a journal is asked for."""
