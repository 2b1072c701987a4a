"""Quotas, and whether a caller may begin another run now, across all replicas.

Invariant: a start is noted by compare and set before the run begins, so that of two replicas which
ask at the same time the second one sees the first. A note of a start that came to nothing is
forgotten soon.
"""

import hashlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import msgspec

from windlass.core.errors import NothingToDo, RecordConflict
from windlass.core.limits import Budget, check_numbers, make_exact
from windlass.core.session_summary import SessionState
from windlass.ports import Journal, SharedRecords
from windlass.server.access import Caller
from windlass.server.errors import ApiError
from windlass.server.owned_records import OwnedRecords, PageQuery

EVERYONE = "*"
"""As a caller: each of them on its own. As an agent: all of them together."""


class Quota(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a caller may use. None means no limit."""

    name: str
    caller: str = EVERYONE
    agent: str = EVERYONE
    runs_at_once: int | None = None
    """Runs at work or in the queue at a time; those that wait for a person do not count."""
    starts_per_min: int | None = None
    """Runs that are begun within any 60 seconds."""
    usd_per_day: Decimal | None = None
    """US dollars in a day, which begins at midnight UTC."""

    def __post_init__(self) -> None:
        make_exact(self, "usd_per_day")
        check_numbers(self, "runs_at_once", "starts_per_min", "usd_per_day")

    @property
    def owner(self) -> str:
        """Quotas belong to the service, whose name is empty."""
        return ""

    def applies_to(self, caller: str, agent: str) -> bool:
        """Return whether a run of this agent, for this caller, counts."""
        return self.caller in (EVERYONE, caller) and self.agent in (EVERYONE, agent)

    def make_budget(self, caller: str) -> Budget | None:
        """Return the shared budget that a caller's runs draw on; None without a limit of money."""
        if self.usd_per_day is None:
            return None
        # Not the name itself: the sums of a budget stay when the caller is erased.
        name = f"quota {self.name} of {_caller_digest(caller) if caller else 'owner'}"
        return Budget(name, self.usd_per_day, per="day")


class QuotaStore(OwnedRecords[Quota]):
    """The quotas of one journal."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal, "quota", Quota)

    async def put(self, quota: Quota) -> None:
        """Keep a quota, in place of the one of that name if there is one."""
        if await self.change(quota.name, lambda _: quota) is None:
            await self.add(quota)


USE_KIND = "quota-use"
WINDOW_S = 60.0
"""What `starts_per_min` counts."""
CACHE_S = 2.0
"""How long the quotas are not read again: a change takes effect at most this late."""
BUSY_RETRY_S = 5.0
BEGIN_S = 10.0
"""How long a run that was noted may take to begin."""
BEGUN_MAX = 10_000
CONFLICTS_MAX = 100
ReadState = Callable[[str], Awaitable[SessionState | None]]
"""Returns the state of a session; None if it has not begun."""


class RecentStart(msgspec.Struct, frozen=True, array_like=True):
    """A run that was begun."""

    at: float
    session: str


class QuotaUse(msgspec.Struct, frozen=True):
    """The runs that a caller has begun lately under a quota, the oldest first."""

    starts: tuple[RecentStart, ...] = ()


class QuotaBook:
    """Admits runs on behalf of one service."""

    def __init__(
        self, journal: Journal, read_state: ReadState, now: Callable[[], float] = time.time
    ) -> None:
        self._journal = journal
        self._read_state = read_state
        self._now = now
        self._quotas: tuple[Quota, ...] = ()
        self._read_again_at = 0.0
        self._begun: set[str] = set()
        """Sessions that were noted and have begun: they are in the list if they are at work."""

    async def admit(self, caller: str, agent: str, session: str) -> list[Budget]:
        """Count a run that a caller wants to begin, and return the budgets that it draws on.

        Raises ApiError 429 if a quota is used up.
        """
        budgets: list[Budget] = []
        for quota in await self._load():
            if not quota.applies_to(caller, agent):
                continue
            budget = quota.make_budget(caller)
            if budget is not None:
                await self._check_money(quota, caller)
                budgets.append(budget)
            if quota.runs_at_once is not None or quota.starts_per_min is not None:
                await self._count_start(self._journal, quota, caller, session)
        return budgets

    async def find_budgets(self, caller: str, agent: str) -> list[Budget]:
        """Return the budgets that the runs of a caller draw on. Nothing is counted."""
        applying = [each for each in await self._load() if each.applies_to(caller, agent)]
        budgets = [quota.make_budget(caller) for quota in applying]
        return [budget for budget in budgets if budget is not None]

    async def list_for(self, caller: Caller, query: PageQuery) -> tuple[list[Quota], str | None]:
        """Return a page of the quotas that apply to a caller, or of all for an admin.

        A caller sees no other caller's quota, not even through the cursor. The list has the quotas
        by which runs are admitted now, so that it does not read those of all callers each time.
        """
        if caller.is_admin:
            return await QuotaStore(self._journal).list_page(None, query.cursor, query.limit)
        found = [
            quota
            for quota in await self._load()
            if quota.caller in (EVERYONE, caller.name) and quota.name > query.cursor
        ]
        more = found[query.limit - 1].name if len(found) > query.limit else None
        return found[: query.limit], more

    async def _load(self) -> tuple[Quota, ...]:
        now = self._now()
        if now >= self._read_again_at:
            self._quotas = tuple([quota async for quota in QuotaStore(self._journal).walk()])
            self._read_again_at = now + CACHE_S
        return self._quotas

    async def read_spent(self, quota: Quota, caller: str) -> Decimal | None:
        """Return what a caller has spent or reserved of a quota today; None if it has no limit."""
        budget = quota.make_budget(caller)
        if budget is None:
            return None
        return (await self._journal.read_spending(budget)).usd or Decimal(0)

    async def _check_money(self, quota: Quota, caller: str) -> None:
        spent = await self.read_spent(quota, caller)
        if spent is not None and quota.usd_per_day is not None and spent >= quota.usd_per_day:
            raise ApiError(
                429,
                "quota_money",
                f"The quota {quota.name} of {quota.usd_per_day} US dollars a day is used up.",
                "Wait until midnight UTC, or ask an admin to raise it.",
                retry_after=_seconds_to_midnight(self._now()),
            )

    async def _count_start(
        self, records: SharedRecords, quota: Quota, caller: str, session: str
    ) -> None:
        name = f"{quota.name}/{_caller_digest(caller)}"
        for _ in range(CONFLICTS_MAX):
            record = await records.get_record(USE_KIND, name)
            use = QuotaUse() if record is None else msgspec.json.decode(record.data, type=QuotaUse)
            now = self._now()
            recent = [start for start in use.starts if start.at > now - WINDOW_S]
            self._check_rate(quota, recent, now)
            await self._check_open(quota, caller, session, recent)
            noted = QuotaUse((*recent, RecentStart(now, session)))
            version = 0 if record is None else record.version
            try:
                await records.put_record(USE_KIND, name, msgspec.json.encode(noted), version)
            except RecordConflict:
                continue
            return
        raise ApiError(
            503,
            "quota_contended",
            "Too many runs are begun at once.",
            "Try again.",
            retry_after=1.0,
        )

    def _check_rate(self, quota: Quota, recent: list[RecentStart], now: float) -> None:
        limit = quota.starts_per_min
        if limit is None or len(recent) < limit:
            return
        # Another run may start once fewer than `limit` starts lie within the last minute.
        oldest = recent[len(recent) - limit]
        raise ApiError(
            429,
            "quota_rate",
            f"The quota {quota.name} lets this caller begin {limit} runs a minute.",
            "Wait as long as Retry-After says.",
            retry_after=oldest.at + WINDOW_S - now,
        )

    async def _check_open(
        self, quota: Quota, caller: str, session: str, recent: list[RecentStart]
    ) -> None:
        limit = quota.runs_at_once
        if limit is None:
            return
        count = 0
        async for _ in self._open_sessions(quota, caller, session, recent):
            count += 1
            if count >= limit:
                raise ApiError(
                    429,
                    "quota_runs",
                    f"The quota {quota.name} lets this caller have {limit} runs at work at once.",
                    "Wait until one has ended, or cancel one.",
                    retry_after=BUSY_RETRY_S,
                )

    async def _open_sessions(
        self, quota: Quota, caller: str, session: str, recent: list[RecentStart]
    ) -> AsyncGenerator[str]:
        """Yield the caller's sessions that are at work or queued, apart from the one to begin."""
        seen = {session}
        if len(self._begun) > BEGUN_MAX:
            self._begun.clear()
        page = await self._journal.sessions(
            state=("open", "queued", "awaiting_budget"),
            caller=caller,
            agent=None if quota.agent == EVERYONE else quota.agent,
            parent="",
            limit=(quota.runs_at_once or 0) + 1,
        )
        for summary in page:
            if summary.session not in seen:
                seen.add(summary.session)
                yield summary.session
        for start in recent:
            # It was noted, and may not have begun yet.
            is_new = start.session not in seen and start.session not in self._begun
            if is_new and start.at > self._now() - BEGIN_S:
                if await self._read_state(start.session) is None:
                    seen.add(start.session)
                    yield start.session
                else:
                    self._begun.add(start.session)


def refuse_unpriced(budgets: Sequence[Budget], unpriced: Sequence[str]) -> None:
    """Raise ApiError 422 if a quota in dollars applies to a model without a price."""
    if unpriced and any(budget.usd is not None for budget in budgets):
        raise ApiError(
            422,
            "quota_without_price",
            f"A quota limits this run in dollars, and the price of {unpriced[0]} is not known.",
            "Ask the operator to give the model a price, or to set the quota in tokens.",
        )


async def forget_caller(journal: Journal, caller: str) -> None:
    """Delete the quotas that are for a caller alone, and what its runs have used of others."""
    store = QuotaStore(journal)
    for quota in [quota async for quota in store.walk() if quota.caller == caller]:
        with suppress(NothingToDo):
            await store.remove(quota)
    after = ""
    while page := await journal.list_records(USE_KIND, after):
        for record in page:
            if record.name.endswith(f"/{_caller_digest(caller)}"):
                await journal.delete_record(USE_KIND, record.name)
        after = page[-1].name


def _caller_digest(caller: str) -> str:
    return hashlib.sha256(caller.encode()).hexdigest()[:32]


def _seconds_to_midnight(now: float) -> float:
    moment = datetime.fromtimestamp(now, UTC)
    midnight = (moment + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight.timestamp() - now
