"""Which sessions need a driver, by their rows and their mail: the rule of every store.

The databases have it as triggers on the rows of sessions (`keep_work` in their schemas), so that a
row of work changes in the transaction that changes the session. It is `needs_driver` of the core,
for what a row says. A visit that finds nothing to do is harmless; a row that is missing is not.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import NamedTuple

from windlass.core.events import Fact
from windlass.core.mail import Letter
from windlass.core.session_summary import SessionSummary
from windlass.journals.leases import LeaseTable
from windlass.journals.mail_book import MailBook
from windlass.journals.mail_rules import agent_of, caller_of, priority_of
from windlass.ports.fleet import LANES_MAX, ClaimedWork, WorkLane, WorkShare, WorkWanted

BUSY_STATES = ("open", "waiting", "awaiting_budget", "paused")
"""The states of a run that its prompts wait behind."""


class WorkRow(NamedTuple):
    """A session that needs a driver, now or at a time."""

    session: str
    lane: WorkLane
    due: float | None = None
    """When it needs one; None for now."""

    @property
    def order(self) -> tuple[int, float]:
        return -self.lane.priority, self.lane.since

    def as_claimed(self) -> ClaimedWork:
        """Return it as the work of who claimed it."""
        lane = self.lane
        return ClaimedWork(self.session, lane.agent, lane.caller, lane.is_begun, lane.priority)


def needs_work(row: SessionSummary, *, has_control: bool, has_prompts: bool) -> bool:
    """Return whether a session has a row of work, by its row and its messages."""
    is_root = not row.parent
    is_busy = is_root and row.facts > 0 and row.state in BUSY_STATES
    is_open = is_root and row.facts > 0 and row.state == "open"
    has_time = is_root and row.due is not None
    return is_open or has_control or has_time or (has_prompts and not is_busy)


def make_work(row: SessionSummary, letters: Sequence[Letter]) -> WorkRow | None:
    """Return the work of a session with messages that no fact carries; None if it needs nothing."""
    has_control = any(letter.lane == "control" for letter in letters)
    prompts = [letter for letter in letters if letter.lane == "prompts"]
    if not needs_work(row, has_control=has_control, has_prompts=bool(prompts)):
        return None
    is_root = not row.parent
    is_open = is_root and row.state == "open" and row.facts > 0
    due = row.due if is_root and not has_control else None
    if is_root and row.facts > 0 and row.state in BUSY_STATES:
        prompts = []
    agent, caller, priority, since = row.agent, row.caller, 0, row.changed
    if prompts:
        message = prompts[0].message
        agent = agent_of(message) or agent
        caller, priority, since = caller_of(message), priority_of(message), prompts[0].at
    is_begun = is_open or due is not None
    lane = WorkLane(agent if is_root else "", caller, is_begun, priority, since)
    return WorkRow(row.session, lane, due)


def sort_lanes(rows: Iterable[WorkRow], wanted: WorkWanted) -> dict[WorkLane, list[WorkRow]]:
    """Return the work that a worker may take, by lane, each in the order in which it is taken."""
    lanes: dict[tuple[str, str, bool], list[WorkRow]] = {}
    for row in rows:
        lane = row.lane
        is_ours = lane.agent in ("", *wanted.agents) and row.session not in wanted.without
        is_due = row.due is None or row.due <= wanted.now
        if is_ours and is_due and (not wanted.behind or lane.caller > wanted.behind):
            lanes.setdefault((lane.agent, lane.caller, lane.is_begun), []).append(row)
    for each in lanes.values():
        each.sort(key=lambda row: row.order)
    return {each[0].lane: each for each in lanes.values()}


def cut_lanes(lanes: Iterable[WorkLane]) -> list[WorkLane]:
    """Return the lanes of the first callers, and no more than a look has."""
    return sorted(lanes, key=lambda lane: lane.caller)[:LANES_MAX]


async def claim_safely(
    claiming: "asyncio.Future[Sequence[ClaimedWork]]", release: Callable[[str], None]
) -> Sequence[ClaimedWork]:
    """Return what was claimed. If the caller is cancelled meanwhile, all of it is released."""

    def release_all(done: "asyncio.Future[Sequence[ClaimedWork]]") -> None:
        if not done.cancelled() and done.exception() is None:
            for work in done.result():
                release(work.session)

    try:
        return await asyncio.shield(claiming)
    except asyncio.CancelledError:
        claiming.add_done_callback(release_all)
        raise


def pick_shares(
    lanes: Mapping[WorkLane, Sequence[WorkRow]], shares: Iterable[WorkShare]
) -> Iterator[tuple[Sequence[WorkRow], int]]:
    """Yield the sessions of each share that may be taken, and how many of them to take."""
    by_key = {(lane.agent, lane.caller, lane.is_begun): rows for lane, rows in lanes.items()}
    for lane, count in shares:
        yield by_key.get((lane.agent, lane.caller, lane.is_begun), ()), count


class MemoryWork:
    """Lists and claims the sessions that need a driver."""

    def __init__(self, mail: MailBook) -> None:
        self._sessions: dict[str, list[Fact]] = {}
        self._rows: dict[str, SessionSummary] = {}
        self._open: set[str] = set()
        """Sessions that need a driver by their rows, now or at a time."""
        self._mail = mail
        self._leases = LeaseTable()
        # `run_sync` may drive a session from a thread of its own.
        self._mutex = Lock()

    def _facts_of(self, session: str) -> Sequence[Fact]:
        return self._sessions.get(session, ())

    def _keep_row(self, session: str, row: SessionSummary) -> None:
        before = self._rows.get(session)
        self._rows[session] = row if before is None else row.follow(before)
        if row.state == "open" or row.due is not None:
            self._open.add(session)
        else:
            self._open.discard(session)

    def _drop_row(self, session: str) -> None:
        self._rows.pop(session, None)
        self._open.discard(session)

    async def list_work(self, wanted: WorkWanted) -> Sequence[WorkLane]:
        """Return the lanes with sessions that need a driver, as `Journal.list_work` says."""
        return cut_lanes(self._find_lanes(wanted))

    async def claim_work(
        self, wanted: WorkWanted, shares: Sequence[WorkShare]
    ) -> Sequence[ClaimedWork]:
        """Lease some sessions of these lanes."""
        claimed: list[ClaimedWork] = []
        for rows, count in pick_shares(self._find_lanes(wanted), shares):
            taken = [row for row in rows[:count] if self._leases.claim(row.session)]
            claimed += (row.as_claimed() for row in taken)
        return claimed

    def release_work(self, session: str) -> None:
        """Release a session that was claimed and is not driven."""
        self._leases.release_claim(session)

    def _find_lanes(self, wanted: WorkWanted) -> Mapping[WorkLane, Sequence[WorkRow]]:
        with self._mutex:
            names: Collection[str] = {*self._open, *self._mail.list_filled()}
            found = [
                make_work(
                    self._rows.get(name, SessionSummary(name)),
                    self._mail.list_untaken(name, self._facts_of(name)),
                )
                for name in names
                if not self._leases.is_taken(name)
            ]
        return sort_lanes((row for row in found if row is not None), wanted)
