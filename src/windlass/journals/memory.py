"""Sessions that live as long as the process."""

import asyncio
import time
from collections.abc import Callable, Sequence
from threading import Lock

from windlass.core.decide.reserving import budget_window
from windlass.core.errors import JournalFailed, WindlassError
from windlass.core.events import Fact
from windlass.core.limits import Amount, Budget
from windlass.core.session_summary import SessionSummary, advance_summary
from windlass.journals.budget_math import BudgetSum, draw_share, settle_share
from windlass.journals.chain import check_order
from windlass.journals.codec import blob_name, is_blob_name
from windlass.journals.leases import HeldLease, LeaseTable
from windlass.journals.notifier import AppendNotifier


class MemoryJournal:
    """Keeps facts as they are. An append is done when it returns: nothing is waited for."""

    def __init__(self, *, now: Callable[[], float] = time.time) -> None:
        self._sessions: dict[str, list[Fact]] = {}
        self._blobs: dict[str, dict[str, bytes]] = {}
        self._shares: dict[tuple[str, int, str], tuple[str, BudgetSum]] = {}
        """By session, run and budget: the window that it counts for, and how much it is."""
        self._promised_sums: dict[tuple[str, str], BudgetSum] = {}
        """By budget and window: what all shares come to."""
        self._leases = LeaseTable()
        self._notifier = AppendNotifier()
        self._now = now
        # `run_sync` may drive a session from a thread of its own.
        self._mutex = Lock()

    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        """The facts of a session past a sequence number."""
        return tuple(self._sessions.get(session, ())[after:])

    def append(self, session: str, facts: Sequence[Fact]) -> asyncio.Future[None]:
        """Keep the facts, all or none."""
        done = asyncio.get_running_loop().create_future()
        try:
            self._append_facts(session, facts)
        except WindlassError as error:
            done.set_exception(error)
        else:
            done.set_result(None)
        return done

    def _append_facts(self, session: str, facts: Sequence[Fact]) -> None:
        if not facts:
            return
        with self._mutex:
            known = self._sessions.get(session, [])
            check_order(session, len(known), facts)
            known.extend(facts)
            self._sessions[session] = known
        self._notifier.notify((session,))

    async def lease(self, session: str) -> HeldLease:
        """Take a session; raises SessionBusy if somebody has it."""
        return self._leases.acquire(session)

    async def is_leased(self, session: str) -> bool:
        """Whether somebody drives a session."""
        return self._leases.is_taken(session)

    async def wait_for_append(self, session: str, after: int) -> None:
        """Return once a session has records past `after`."""
        with self._notifier.subscribe(session) as heard:
            if len(self._sessions.get(session, ())) <= after:
                await heard

    async def put_blob(self, session: str, data: bytes) -> str:
        """Keep data for as long as the session; its name."""
        with self._mutex:
            if session not in self._sessions:
                raise JournalFailed(f"session {session!r}: there is none that could keep anything")
            name = blob_name(data)
            self._blobs.setdefault(session, {})[name] = data
            return name

    async def get_blob(self, session: str, name: str) -> bytes | None:
        """What the session keeps under a name, or under one that begins so."""
        if not is_blob_name(name):
            return None
        kept = self._blobs.get(session, {})
        return next((kept[whole] for whole in tuple(kept) if whole.startswith(name)), None)

    async def draw_budget(self, budget: Budget, session: str, run: int, wanted: Amount) -> Amount:
        """Raise what a run may spend in all, as far as the budget allows."""
        return self._change_share(
            budget, session, run, lambda whole, share: draw_share(budget, whole, share, wanted)
        )

    async def settle_budget(self, budget: Budget, session: str, run: int, spent: Amount) -> None:
        """Say what a run has spent in all."""
        self._change_share(
            budget, session, run, lambda _, share: settle_share(budget, share, spent)
        )

    async def read_spending(self, budget: Budget) -> Amount:
        """What is spent or promised of the budget for now."""
        place = (budget.name, budget_window(budget, self._now()))
        return self._promised_sums.get(place, BudgetSum()).as_amount(budget)

    def _change_share(
        self,
        budget: Budget,
        session: str,
        run: int,
        after: Callable[[BudgetSum, BudgetSum], BudgetSum],
    ) -> Amount:
        mine = (session, run, budget.name)
        with self._mutex:
            fresh = (budget_window(budget, self._now()), BudgetSum())
            period, before = self._shares.get(mine, fresh)
            promised = self._promised_sums.get((budget.name, period), BudgetSum())
            share = after(promised, before)
            if share != before:
                self._shares[mine] = (period, share)
                self._promised_sums[budget.name, period] = promised.replace_share(share, before)
            return share.as_amount(budget)

    async def sessions(
        self, query: str | None = None, *, limit: int = 50, unfinished: bool = False
    ) -> list[SessionSummary]:
        """The sessions whose name or first prompt holds the query, the latest first."""
        wanted = (query or "").casefold()
        found = [
            one
            for one in self._list_summaries()
            if wanted in f"{one.session}\n{one.title}".casefold()
            and not (unfinished and one.outcome)
        ]
        return found[:limit]

    async def abandoned(self) -> list[SessionSummary]:
        """The sessions that have not ended, wait for nobody and are driven by nobody."""
        return [
            one
            for one in self._list_summaries()
            if one.state == "open" and not self._leases.is_taken(one.session)
        ]

    def _list_summaries(self) -> list[SessionSummary]:
        sessions = tuple(self._sessions.items())
        found = [advance_summary(SessionSummary(name), tuple(facts)) for name, facts in sessions]
        return sorted(found, key=lambda one: one.updated, reverse=True)

    async def delete(self, session: str) -> bool:
        """Forget a session, unless somebody drives it; whether there was one."""
        held = self._leases.acquire(session)
        try:
            with self._mutex:
                self._blobs.pop(session, None)
                # What was spent stays spent; but another session of this name starts anew.
                for mine in [one for one in self._shares if one[0] == session]:
                    del self._shares[mine]
                return self._sessions.pop(session, None) is not None
        finally:
            held.release()
