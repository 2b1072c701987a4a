"""Records, budgets and blobs as lists of entries: what each entry adds, and which may follow.

Both the journal in memory and a completed store (`completing.py`) keep them this way. An entry
holds the outcome of a change, so applying the same entries in the same order always gives the same
state.
"""

from collections.abc import Sequence
from decimal import Decimal

import msgspec

from windlass.core.limits import Amount, Budget
from windlass.journals.codec import blob_name
from windlass.journals.record_rules import (
    BudgetSum,
    ShareChange,
    check_record_data,
    check_record_key,
    clamp_page,
    is_in_tree,
    record_conflict_error,
)
from windlass.ports.records import SharedRecord


class RecordPut(msgspec.Struct, frozen=True, tag="put"):
    """A record was written."""

    record: SharedRecord


class RecordDeleted(msgspec.Struct, frozen=True, tag="deleted"):
    """A record was deleted."""

    kind: str
    name: str


class RecordSet:
    """Shared records, by kind and name."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str], SharedRecord] = {}
        self._last_version = 0

    def get(self, kind: str, name: str) -> SharedRecord | None:
        """Return a record, if there is one."""
        check_record_key(kind, name)
        return self._records.get((kind, name))

    def list_page(self, kind: str, after: str, limit: int) -> Sequence[SharedRecord]:
        """Return the records of a kind after a name, in the order of names."""
        check_record_key(kind, after or "first")
        names = sorted(name for known, name in self._records if known == kind and name > after)
        return [self._records[kind, name] for name in names[: clamp_page(limit)]]

    def plan_put(self, kind: str, name: str, data: bytes, version: int) -> RecordPut:
        """Return the entry that replaces a record. Raises RecordConflict for another version."""
        check_record_data(kind, name, data)
        self._check_version(kind, name, version)
        return RecordPut(SharedRecord(kind, name, self._last_version + 1, bytes(data)))

    def plan_delete(self, kind: str, name: str, version: int | None) -> RecordDeleted | None:
        """Return the entry that deletes a record; None if there is none of this name."""
        if self.get(kind, name) is None:
            return None
        if version is not None:
            self._check_version(kind, name, version)
        return RecordDeleted(kind, name)

    def apply(self, entry: RecordPut | RecordDeleted) -> None:
        """Add an entry."""
        if isinstance(entry, RecordDeleted):
            self._records.pop((entry.kind, entry.name), None)
            return
        record = entry.record
        self._records[record.kind, record.name] = record
        self._last_version = record.version

    def _check_version(self, kind: str, name: str, version: int) -> None:
        known = self.get(kind, name)
        if (0 if known is None else known.version) != version:
            raise record_conflict_error(kind, name, version)


class ShareSet(msgspec.Struct, frozen=True, tag="share"):
    """The share of a run in a budget was changed."""

    budget: str
    window: str
    """The window that the share counts for."""
    session: str
    run: int
    usd: Decimal
    tokens: int
    held_usd: Decimal = Decimal(0)
    held_tokens: int = 0

    @property
    def held(self) -> BudgetSum:
        """What the run holds in reserve of its share."""
        return BudgetSum(self.held_usd, self.held_tokens)

    @property
    def share(self) -> BudgetSum:
        """What the run may spend in all."""
        return BudgetSum(self.usd, self.tokens)


class BudgetShares:
    """The shares of runs in budgets, and the sums of them."""

    def __init__(self) -> None:
        self._shares: dict[tuple[str, int, str], ShareSet] = {}
        """By session, run and budget: what was last set."""
        self._sums: dict[tuple[str, str], BudgetSum] = {}
        """By budget and window: the sum of all shares."""

    def plan_change(self, change: ShareChange, window: str) -> ShareSet | None:
        """Return the entry that changes the share of a run; None if it stays as it is.

        A run that has a share keeps its window. One that gets nothing is tied to none: the next
        window may have something for it.
        """
        budget, session, run, *_ = change
        fresh = ShareSet(budget.name, window, session, run, Decimal(0), 0)
        known = self._shares.get((session, run, budget.name), fresh)
        promised = self._sums.get((budget.name, known.window), BudgetSum())
        share = change.find_share(promised, known.share)
        held = change.find_held(share)
        if (share, held) == (known.share, known.held):
            return None
        return ShareSet(budget.name, known.window, session, run, *share, *held)

    def apply(self, entry: ShareSet) -> None:
        """Add an entry."""
        key = (entry.session, entry.run, entry.budget)
        known = self._shares.get(key)
        before = BudgetSum() if known is None else known.share
        self._shares[key] = entry
        place = (entry.budget, entry.window)
        promised = self._sums.get(place, BudgetSum())
        self._sums[place] = promised.replace_share(entry.share, before)

    def share_of(self, change: ShareChange) -> Amount:
        """Return what the run of a change may spend in all."""
        key = (change.session, change.run, change.budget.name)
        known = self._shares.get(key)
        share = BudgetSum() if known is None else known.share
        return share.as_amount(change.budget)

    def reserved(self, budget: Budget, window: str, tree: str) -> Amount:
        """Return what runs outside of a tree of sessions hold in reserve."""
        held = BudgetSum()
        for entry in self._shares.values():
            is_same = (entry.budget, entry.window) == (budget.name, window)
            if is_same and not is_in_tree(entry.session, tree):
                held = held.add(entry.held)
        return held.as_amount(budget)

    def promised(self, budget: Budget, window: str) -> Amount:
        """Return what is spent or promised of a budget in a window."""
        return self._sums.get((budget.name, window), BudgetSum()).as_amount(budget)

    def forget_session(self, session: str) -> None:
        """Forget the shares of a session. What was spent stays spent."""
        for key in [key for key in self._shares if key[0] == session]:
            del self._shares[key]


class BlobKept(msgspec.Struct, frozen=True, tag="blob"):
    """Data was stored."""

    data: bytes


class BlobSet:
    """Blobs by their names."""

    def __init__(self) -> None:
        self.by_name: dict[str, bytes] = {}

    def apply(self, entry: BlobKept) -> None:
        """Add an entry."""
        self.by_name[blob_name(entry.data)] = entry.data

    def find(self, name: str) -> bytes | None:
        """Return the blob whose name begins so."""
        return next((self.by_name[each] for each in self.by_name if each.startswith(name)), None)
