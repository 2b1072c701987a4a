"""What runs and processes share: the quotas of providers, and budgets, both kept in the journal.

Invariant: a quota is read and changed by compare and set, so that no part of a quota is lent twice.
If it is away or slow, nothing stops: the process relies on what it has seen itself, and only the
provider's own refusals hold it back.

A run draws on its budgets before a request. What a run did not need is given back when it has
ended, or when its session is next opened: what a killed process held counts as spent until then, so
that a budget is never overdrawn. A sub-agent's spending is in its caller's ledger too, but the
sub-agent draws on the budgets itself.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from windlass.core.decide.reserving import covers_amount, own_spending, spent_amount
from windlass.core.errors import RecordConflict, WindlassError
from windlass.core.events import BudgetAllotted
from windlass.core.moves import DrawBudget
from windlass.core.rate_limits import ProviderQuota, QuotaLoan, RateLimits
from windlass.core.state import State
from windlass.logs import get_logger
from windlass.ports import Clock, Journal, SharedRecords

RECORD_KIND = "provider-quota"
STORE_S = 1.0
"""How long the store may take to answer before the process continues without it."""
AWAY_S = 5.0
"""How long a store that failed is not asked again."""
EASY_SHARE = 0.1
"""Requests that together need no more than this part of what is left are simply made."""
CONFLICTS_MAX = 20
"""How often a change is tried again because others changed the quota in the meantime."""
CONFLICT_WAIT_S = 0.02
T = TypeVar("T")
_log = get_logger(__name__)


class SharedQuota:
    """The quota of one provider: what this process knows, and what it shares with others."""

    def __init__(self, key: str, records: SharedRecords | None, clock: Clock) -> None:
        """Share a quota by its key. Without records, it is not shared."""
        self._key = key
        self._records = records
        self._clock = clock
        self._own = ProviderQuota(at=clock.now())
        """All that this process has seen: used while the store is away."""
        self._report: RateLimits | None = None
        """What the last response said, if the store does not know it yet."""
        self._reported_at = 0.0
        self._closed_until = 0.0
        """Until when the provider asked this process to wait, if the store does not know it yet."""
        self._window: int | None = None
        """The requests at once that the provider bore, if the store does not know it yet."""
        self._away_until = 0.0
        self._seen_version = 0
        self._seen_at = 0.0

    def covers_easily(self, tokens: int, in_flight: int) -> bool:
        """Whether so much is left that a request need not be counted with the others first."""
        self._own = own = self._own.advance(self._clock.now())
        wanted = ((own.requests, in_flight), (own.tokens, in_flight * tokens))
        return own.closed_s <= 0 and all(
            bucket is None or bucket.remaining * EASY_SHARE >= amount for bucket, amount in wanted
        )

    def use(self, tokens: int) -> None:
        """Count a request that is made, in what this process knows."""
        self._own = self._own.use(1, tokens)

    def take_report(self, limits: RateLimits) -> None:
        """Note what a response said. The next loan reports it to the other processes."""
        self._own = self._own.advance(self._clock.now()).take_report(limits)
        self._report = limits
        self._reported_at = asyncio.get_running_loop().time()

    def close(self, seconds: float) -> None:
        """Note that the provider asked for a wait."""
        self._own = self._own.advance(self._clock.now()).close(seconds)
        self._closed_until = max(self._closed_until, asyncio.get_running_loop().time() + seconds)

    def note_window(self, size: int) -> None:
        """Note how many requests at once the provider bears, as far as is known here."""
        self._own = replace(self._own, at_once=size)
        self._window = size

    def find_window(self, in_flight: int) -> float:
        """Return how many requests at once may be made, by what all processes know."""
        return self._own.find_window(in_flight)

    async def borrow(self, requests: int, tokens: int) -> QuotaLoan:
        """Borrow for requests of `tokens` tokens in all, and report the news to the others."""
        return await self._change(lambda quota: quota.lend(requests, tokens))

    async def synchronize(self) -> QuotaLoan:
        """Report the news to the others, and return what they know, without borrowing anything."""
        return await self._change(lambda quota: (quota, quota.lend(1, 0)[1]))

    async def _change(
        self, change: Callable[[ProviderQuota], tuple[ProviderQuota, QuotaLoan]]
    ) -> QuotaLoan:
        records = self._records
        if records is not None and asyncio.get_running_loop().time() >= self._away_until:
            try:
                async with asyncio.timeout(STORE_S):
                    return await self._change_shared(records, change)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with it, nothing may stop
                self._away_until = asyncio.get_running_loop().time() + AWAY_S
                reason = str(error) or "it did not answer in time"
                _log.warning("the shared quota of %s is not used: %s", self._key, reason)
        self._own, loan = change(self._own.advance(self._clock.now()))
        return loan

    async def _change_shared(
        self,
        records: SharedRecords,
        change: Callable[[ProviderQuota], tuple[ProviderQuota, QuotaLoan]],
    ) -> QuotaLoan:
        for _ in range(CONFLICTS_MAX):
            record = await records.get_record(RECORD_KIND, self._key)
            version = 0 if record is None else record.version
            found = ProviderQuota()
            if record is not None:
                found = msgspec.json.decode(record.data, type=ProviderQuota)
            known = self._tell_news(self._bring_up_to_date(found, version))
            changed, loan = change(known)
            if changed == replace(found, at=changed.at):
                self._own = changed
                return loan
            try:
                data = msgspec.json.encode(changed)
                await records.put_record(RECORD_KIND, self._key, data, version)
            except RecordConflict:
                await self._clock.sleep(CONFLICT_WAIT_S * self._clock.random_fraction())
                continue
            self._report = None
            self._window = None
            self._own = changed
            return loan
        raise RecordConflict("too many others changed it at the same time")

    def _bring_up_to_date(self, found: ProviderQuota, version: int) -> ProviderQuota:
        """Return a quota as it is now.

        The process that wrote it may have a clock that is ahead of ours. So its age is at least the
        time since we first saw it: else a wait of theirs would last for as long as our clocks
        differ.
        """
        if version != self._seen_version:
            self._seen_version = version
            self._seen_at = asyncio.get_running_loop().time()
        now = self._clock.now()
        passed_s = asyncio.get_running_loop().time() - self._seen_at
        later = max(now, found.at + passed_s) if found.at else now
        return replace(found.advance(later), at=now)

    def _tell_news(self, quota: ProviderQuota) -> ProviderQuota:
        if self._report is not None:
            quota = quota.take_report(
                self._report, asyncio.get_running_loop().time() - self._reported_at
            )
        if self._window is not None:
            quota = replace(quota, at_once=self._window)
        closed_s = self._closed_until - asyncio.get_running_loop().time()
        return quota.close(closed_s) if closed_s > 0 else quota


async def draw_on_budget(move: DrawBudget, journal: Journal, state: State) -> BudgetAllotted:
    """Ask a shared budget for what the next request may cost; it may grant less."""
    budget, wanted = move.budget, move.total_wanted
    number = state.run.number if state.run else 0
    amount = await journal.draw_budget(budget, state.session, number, wanted)
    return BudgetAllotted(budget.name, amount, dry=not covers_amount(amount, wanted))


async def settle_budgets(journal: Journal, state: State) -> None:
    """Tell each budget what the last run of a session has cost in all."""
    run = state.run
    if run is None or state.setup is None:
        return
    spent = spent_amount(own_spending(run.ledger))
    for budget in state.setup.budgets:
        try:
            await journal.settle_budget(budget, state.session, run.number, spent)
        except WindlassError as error:
            _log.warning("the budget %s was not settled: %s", budget.name, error)
