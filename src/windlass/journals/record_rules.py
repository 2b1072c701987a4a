"""What every store does with shared records and budgets: it checks them, and says why not.

Each run has a share of a budget: the total that it may spend. A store keeps the shares and their
sum, and changes both in one transaction.

Invariant: the shares of one window never add up to more than the budget, as long as each run spends
no more than its share.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from decimal import Decimal
from typing import NamedTuple

from windlass.core.decide.reserving import budget_window
from windlass.core.errors import ConfigError, JournalCorrupt, RecordConflict
from windlass.core.limits import NOTHING, Amount, Budget
from windlass.core.messages import EXACT_MATH
from windlass.core.text_clip import printable_line

RECORD_BYTES_MAX = 1_000_000
"""Of the data of one record: it is a small document, and is read as a whole."""
NAME_CHARS_MAX = 1_000
"""Of a kind and of a name."""
ANCHORED_KINDS = frozenset(("group", "login", "person", "quota", "schedule", "token", "webhook"))
"""Kinds of records that give a right, or take one away: an old one must not count again."""
SIGNED_KINDS = ANCHORED_KINDS | {"engine-schedule", "tombstone"}
"""Kinds of records that count in Postgres only if a service signed them, once keys are given."""
PAGE_RECORDS_MAX = 1_000
"""Records that one call of `list_records` returns, at most."""


def check_record_key(kind: str, name: str) -> None:
    """Raise ConfigError if no store could keep a record under this kind and name."""
    for what, text in (("kind", kind), ("name", name)):
        if not text or len(text) > NAME_CHARS_MAX or "\0" in text or not _is_unicode(text):
            raise ConfigError(
                f"{printable_line(text)!r} cannot be the {what} of a shared record: it must have 1 "
                f"to {NAME_CHARS_MAX} characters, and no NUL among them"
            )


def check_record_data(kind: str, name: str, data: bytes) -> None:
    """Raise ConfigError if the data is too long for a record."""
    if len(data) > RECORD_BYTES_MAX:
        raise ConfigError(
            f"{printable_line(kind)} {printable_line(name)!r}: {len(data):,} bytes are too long "
            f"for a shared record, which may have {RECORD_BYTES_MAX:,}"
        )


def clamp_page(limit: int) -> int:
    """Return how many records a page has."""
    return max(0, min(limit, PAGE_RECORDS_MAX))


def record_conflict_error(kind: str, name: str, version: int) -> RecordConflict:
    """The record is not the one that the caller has read."""
    named = f"{printable_line(kind)} {printable_line(name)!r}"
    if not version:
        return RecordConflict(f"{named} exists already; read it before you change it")
    return RecordConflict(f"{named} was changed or deleted by somebody else; read it again")


def forged_record_error(location: str, kind: str, name: str) -> JournalCorrupt:
    """A record in a file was not written with the user's key."""
    return JournalCorrupt(
        f"{location}: {printable_line(kind)} {printable_line(name)!r} is not signed with this "
        "user's key, and is not used: another program wrote it, or the file comes from another "
        "user; if you moved the file here yourself, run `windlass sessions verify --accept`"
    )


def old_record_error(location: str, kind: str, name: str) -> JournalCorrupt:
    """A record in a file is not the last one that was written with the user's key."""
    return JournalCorrupt(
        f"{location}: {printable_line(kind)} {printable_line(name)!r} is not the last one of this "
        "name, and is not used: another program put it back after it was changed or deleted; if "
        "you restored the file yourself, run `windlass sessions verify --accept`"
    )


def _is_unicode(text: str) -> bool:
    """Whether a text can be written as UTF-8: half a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


ZERO_USD = Decimal(0)


class BudgetSum(NamedTuple):
    """An amount of money and tokens. Unlike an `Amount`, neither of the two can be None."""

    usd: Decimal = ZERO_USD
    tokens: int = 0

    def replace_share(self, after: "BudgetSum", before: "BudgetSum") -> "BudgetSum":
        """Return this sum after one of the shares in it has changed."""
        usd = EXACT_MATH.add(self.usd, EXACT_MATH.subtract(after.usd, before.usd))
        return BudgetSum(usd, self.tokens + after.tokens - before.tokens)

    def add(self, other: "BudgetSum") -> "BudgetSum":
        """Return both together."""
        return BudgetSum(EXACT_MATH.add(self.usd, other.usd), self.tokens + other.tokens)

    def as_amount(self, budget: Budget) -> Amount:
        """Return the sum without what the budget does not limit."""
        usd = None if budget.usd is None else self.usd
        tokens = None if budget.tokens is None else self.tokens
        return Amount(usd, tokens)


def is_in_tree(session: str, root: str) -> bool:
    """Whether a session is the root of a tree of sub-agents, or may work for it by its name."""
    return session == root or session.startswith(f"{root}/")


class ShareChange(NamedTuple):
    """A change of the share that a run has in a budget."""

    budget: Budget
    session: str
    run: int
    amount: Amount
    is_spent: bool = False
    """Whether the amount was spent in all; otherwise it is the total that the run wants."""
    spent_before: Amount = Amount()
    """What the run has spent when it draws: the rest of its share is a reserve."""

    def find_held(self, share: BudgetSum) -> BudgetSum:
        """Return what a run holds in reserve of its new share. Nothing once it has settled."""
        if self.is_spent:
            return BudgetSum()
        spent = self.spent_before
        usd = max(EXACT_MATH.subtract(share.usd, spent.usd or ZERO_USD), ZERO_USD)
        return BudgetSum(usd, max(share.tokens - (spent.tokens or 0), 0))

    def find_share(self, promised: BudgetSum, share: BudgetSum) -> BudgetSum:
        """Return the new share of the run, from the sum of all shares and its own before."""
        if self.is_spent:
            return self._settle(share)
        return self._draw(promised, share)

    def _draw(self, promised: BudgetSum, share: BudgetSum) -> BudgetSum:
        """Raise the share to the total that the run wants, or as far as the budget allows.

        `promised` is the sum of all shares, this one included. A share never shrinks here.
        """
        budget, wanted = self.budget, self.amount
        usd, tokens = share
        if budget.usd is not None and wanted.usd is not None:
            unpromised = max(EXACT_MATH.subtract(budget.usd, promised.usd), ZERO_USD)
            usd = max(usd, min(wanted.usd, EXACT_MATH.add(usd, unpromised)))
        if budget.tokens is not None and wanted.tokens is not None:
            unpromised = max(budget.tokens - promised.tokens, 0)
            tokens = max(tokens, min(wanted.tokens, tokens + unpromised))
        return BudgetSum(usd, tokens)

    def _settle(self, share: BudgetSum) -> BudgetSum:
        """Set the share to the total that was spent, even if that is more than it was."""
        budget, spent = self.budget, self.amount
        usd, tokens = share
        if budget.usd is not None and spent.usd is not None:
            usd = max(spent.usd, ZERO_USD)
        if budget.tokens is not None and spent.tokens is not None:
            tokens = max(spent.tokens, 0)
        return BudgetSum(usd, tokens)


class BudgetDraws(ABC):
    """How every journal draws on a shared budget: each draw and each settlement changes a share."""

    _now: Callable[[], float]
    """Returns seconds since the epoch."""

    @abstractmethod
    async def _change_share(self, change: ShareChange) -> Amount:
        """Change the share of a run and the sum of all shares in one transaction; return it."""

    @abstractmethod
    async def _read_promised(self, budget: Budget, window: str) -> Amount:
        """Return the sum of all shares in a window."""

    @abstractmethod
    async def _read_held(self, budget: Budget, window: str, tree: str) -> Amount:
        """Return what runs outside of a tree of sessions hold in reserve in a window."""

    async def draw_budget(
        self, budget: Budget, session: str, run: int, wanted: Amount, spent: Amount = NOTHING
    ) -> Amount:
        """Raise the total that a run may spend to `wanted`, or as far as the budget allows."""
        return await self._change_share(
            ShareChange(budget, session, run, wanted, spent_before=spent)
        )

    async def settle_budget(self, budget: Budget, session: str, run: int, spent: Amount) -> None:
        """Record the total that a run has spent; the rest of its share goes back."""
        await self._change_share(ShareChange(budget, session, run, spent, is_spent=True))

    async def read_spending(self, budget: Budget) -> Amount:
        """Return what is spent or promised of the budget in its present window."""
        return await self._read_promised(budget, budget_window(budget, self._now()))

    async def read_reserved(self, budget: Budget, tree: str) -> Amount:
        """Return what runs outside of a tree of sessions hold in reserve."""
        return await self._read_held(budget, budget_window(budget, self._now()), tree)
