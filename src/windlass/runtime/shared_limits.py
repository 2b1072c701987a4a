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
import hashlib
from collections.abc import Callable
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from windlass.core.decide.reserving import covers_amount, own_spending, spent_amount
from windlass.core.errors import RecordConflict, WindlassError
from windlass.core.events import BudgetAllotted, BudgetAwaited, BudgetWaitEnded
from windlass.core.fold.run import fold
from windlass.core.limits import NOTHING
from windlass.core.mail import BudgetFreedMail
from windlass.core.moves import AwaitBudget, DrawBudget
from windlass.core.rate_limits import ProviderQuota, QuotaLoan, RateLimits
from windlass.core.state import State
from windlass.logs import get_logger
from windlass.ports import Clock, Journal, SharedRecords
from windlass.runtime.recorder import Recorder

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
    run = state.run
    number = run.number if run else 0
    spent = spent_amount(own_spending(run.ledger)) if run else NOTHING
    amount = await journal.draw_budget(budget, state.session, number, wanted, spent)
    if covers_amount(amount, wanted):
        await _leave_line(journal, state, budget.name)
        return BudgetAllotted(budget.name, amount)
    # The caller of a sub-agent gives nothing back before the sub-agent has ended.
    held = await journal.read_reserved(budget, await _find_root(journal, state))
    is_held = bool(held.usd or held.tokens)
    return BudgetAllotted(budget.name, amount, dry=True, held=held if is_held else None)


async def _find_root(journal: Journal, state: State) -> str:
    """Return the session at the top of the tree of sub-agents that a session belongs to."""
    root, parent = state.session, state.parent
    while parent:
        root, parent = parent, fold(parent, await journal.read(parent)).parent
    return root


WAIT_KIND = "budget-wait"
"""Records of runs that wait for a shared budget, in the order in which they began to wait."""
WOKEN_AT_ONCE = 2
"""How many of them ask the budget again when a run gives something back."""


class WaitingRun(msgspec.Struct, frozen=True):
    """A run that waits for a shared budget."""

    session: str
    run: int


async def begin_budget_wait(move: AwaitBudget, journal: Journal, recorder: Recorder) -> None:
    """Record that the run waits, give back all that it holds itself, and join the line.

    If the process dies before it has joined, the run asks the budget again when it is due.
    """
    await recorder.record(BudgetAwaited(move.budget, move.held, move.wait_s))
    state = recorder.state
    await settle_budgets(journal, state)
    name = _name_in_line(state, move.budget)
    if state.run is None or name is None:  # pragma: no cover - the fact says since when it waits
        return
    waiting = msgspec.json.encode(WaitingRun(state.session, state.run.number))
    try:
        await journal.put_record(WAIT_KIND, name, waiting, 0)
    except RecordConflict:
        pass  # It has its place already.
    except WindlassError as error:
        _log.warning("session %s is woken by its own time alone: %s", state.session, error)
        return
    # What was given back before the run had its place woke nothing: look once more.
    for budget in state.setup.budgets if state.setup else ():
        if budget.name == move.budget:
            held = await journal.read_reserved(budget, await _find_root(journal, state))
            if not covers_amount(held, move.held) and recorder.state.awaits_budget:
                await recorder.record(BudgetWaitEnded(move.budget))


def _line_of(budget: str) -> str:
    return f"{hashlib.sha256(budget.encode()).hexdigest()[:32]}/"


def _name_in_line(state: State, budget: str) -> str | None:
    """Return the record of a run in the line of a budget: who waits longest comes first."""
    run = state.run
    if run is None or run.budget_wait_since is None:
        return None
    owner = hashlib.sha256(f"{state.session}#{run.number}".encode()).hexdigest()[:32]
    return f"{_line_of(budget)}{run.budget_wait_since:020.6f}/{owner}"


async def _leave_line(journal: Journal, state: State, budget: str) -> None:
    name = _name_in_line(state, budget)
    if name is None:
        return
    try:
        await journal.delete_record(WAIT_KIND, name)
    except WindlassError as error:
        _log.warning("session %s may be woken once more: %s", state.session, error)


async def _wake_first(journal: Journal, budget: str) -> None:
    """Have the runs that wait longest for a budget ask it again.

    Whoever deletes a record posts the message. If that fails, the run asks when it is due.
    """
    line = _line_of(budget)
    for record in await journal.list_records(WAIT_KIND, line, WOKEN_AT_ONCE):
        if record.name.startswith(line) and await journal.delete_record(WAIT_KIND, record.name):
            waiting = msgspec.json.decode(record.data, type=WaitingRun)
            message = BudgetFreedMail(run=waiting.run, budget=budget)
            await journal.post_mail(waiting.session, message)


async def settle_budgets(journal: Journal, state: State) -> None:
    """Tell each budget what the last run of a session has cost in all.

    Runs that wait for a budget ask it again, unless this one gives back only what it could not use.
    """
    run = state.run
    if run is None or state.setup is None:
        return
    spent = spent_amount(own_spending(run.ledger))
    for budget in state.setup.budgets:
        try:
            await journal.settle_budget(budget, state.session, run.number, spent)
            if not state.awaits_budget:
                await _leave_line(journal, state, budget.name)
                await _wake_first(journal, budget.name)
        except WindlassError as error:
            _log.warning("the budget %s was not settled: %s", budget.name, error)
