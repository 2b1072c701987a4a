"""What a provider says about its rate limits, and the quota that all of its users share.

Providers limit requests and tokens by buckets that refill all the time. A response says how much a
bucket holds, how much is left in it, and how long it takes until it is full again; from these
follows how fast it refills.

Invariant: a quota is only ever an estimate, and the provider has the last word. What is lent counts
as used at once, whether or not it is, so that two borrowers never get the same part. A report of
the provider can lower the estimate and never raise it, because it does not know of what was lent
and not used yet; only time raises it. Clocks of two machines may differ: of the times that another
machine wrote only the differences are used, and time never runs backwards.

A fair queue says who is next, and a window that learns what a server bears, how many at once. Both
are the well-known means of networks. The queue is start-time fair queueing: each group gets the
same share of what is admitted, however much it asks for. The window is that of TCP: it begins
small, grows as long as all goes well, and is halved when the server refuses. What is left of a
reported quota opens it at once, because then the quota itself holds requests back.
"""

import heapq
from collections.abc import Mapping
from itertools import count
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

LENT_SHARE = 0.5
"""The part of what is left that one borrower gets at most, so that something is left for others."""
DEFAULT_REFILL_S = 60.0
"""How long an empty bucket takes to refill without a report: most limits are by the minute."""
MEASURED_SHARE = 0.05
"""How much of a limit must be used before its refill is measured by a report."""
CLOSED_MAX_S = 60.0
"""A provider that asks for a longer wait is asked again after this time: it may have been wrong."""
WAIT_MIN_S = 0.01
"""The shortest wait for a part of a bucket, so that waiting never becomes a busy loop."""


class LimitReport(msgspec.Struct, frozen=True, gc=False):
    """What a response says about one limit."""

    limit: float
    """How much the bucket holds when it is full."""
    remaining: float
    reset_s: float | None = None
    """Seconds until the bucket is full again, if the provider says so."""


class RateLimits(msgspec.Struct, frozen=True, gc=False):
    """What a response says about all limits of a provider."""

    requests: LimitReport | None = None
    tokens: LimitReport | None = None


class QuotaBucket(msgspec.Struct, frozen=True, gc=False):
    """What is left of one limit, by all that is known."""

    limit: float
    remaining: float
    per_s: float
    """How much comes back each second."""

    def refill(self, elapsed_s: float) -> "QuotaBucket":
        remaining = min(self.limit, self.remaining + self.per_s * elapsed_s)
        return replace(self, remaining=remaining)

    def take(self, amount: float) -> "QuotaBucket":
        return replace(self, remaining=self.remaining - amount)

    def wait_s(self, amount: float) -> float:
        """Return the seconds until so much is there; 0 if it is. At most for a full bucket."""
        missing = min(amount, self.limit) - self.remaining
        if missing <= 0:
            return 0.0
        return max(WAIT_MIN_S, missing / self.per_s) if self.per_s > 0 else DEFAULT_REFILL_S


class QuotaLoan(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a borrower may use for a while. None: there is no limit that is known of."""

    requests: float | None = None
    tokens: float | None = None
    wait_s: float = 0.0
    """If nothing was lent: how long to wait before asking again."""
    closed_s: float = 0.0
    """How long the provider asked everyone to wait."""

    @property
    def is_unlimited(self) -> bool:
        return self.requests is None and self.tokens is None


class ProviderQuota(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The quota of one provider, as its users share it."""

    at: float = 0.0
    """When it was written, in seconds since the epoch by the clock of who wrote it."""
    requests: QuotaBucket | None = None
    tokens: QuotaBucket | None = None
    closed_s: float = 0.0
    """For this many seconds after `at`, no request is made to the provider."""
    at_once: float = 0.0
    """Requests at once that the provider bore lately; 0 if that is not known."""

    def find_window(self, in_flight: int) -> float:
        """Return how many requests at once it allows, by all that is known; 0 if nothing is."""
        reported = in_flight + self.requests.remaining if self.requests is not None else 0.0
        return max(reported, self.at_once)

    def advance(self, now: float) -> "ProviderQuota":
        """Return the same quota at a later time."""
        elapsed_s = max(0.0, now - self.at) if self.at else 0.0
        return replace(
            self,
            at=now,
            requests=self.requests and self.requests.refill(elapsed_s),
            tokens=self.tokens and self.tokens.refill(elapsed_s),
            closed_s=max(0.0, self.closed_s - elapsed_s),
        )

    def take_report(self, limits: RateLimits, age_s: float = 0.0) -> "ProviderQuota":
        """Return the quota with what a response said `age_s` seconds ago."""
        return replace(
            self,
            requests=_merge_report(self.requests, limits.requests, age_s),
            tokens=_merge_report(self.tokens, limits.tokens, age_s),
        )

    def close(self, seconds: float) -> "ProviderQuota":
        """Return the quota after the provider asked for a wait."""
        return replace(self, closed_s=max(self.closed_s, min(seconds, CLOSED_MAX_S)))

    def use(self, requests: int, tokens: int) -> "ProviderQuota":
        """Return the quota after requests that were made."""
        return replace(
            self,
            requests=self.requests and self.requests.take(requests),
            tokens=self.tokens and self.tokens.take(tokens),
        )

    def lend(self, requests: int, tokens: int) -> tuple["ProviderQuota", QuotaLoan]:
        """Lend for requests that need `tokens` tokens in all. Returns the rest, and the loan.

        At least the first request is covered, or nothing is lent.
        """
        if self.closed_s > 0:
            return self, QuotaLoan(
                requests=0, tokens=0, wait_s=self.closed_s, closed_s=self.closed_s
            )
        first_tokens = tokens / max(1, requests)
        wait_s = 0.0
        if self.requests is not None:
            wait_s = self.requests.wait_s(1)
        if self.tokens is not None:
            wait_s = max(wait_s, self.tokens.wait_s(first_tokens))
        if wait_s > 0:
            return self, QuotaLoan(requests=0, tokens=0, wait_s=wait_s)
        requests_left, requests_lent = _lend_from(self.requests, requests, 1)
        tokens_left, tokens_lent = _lend_from(self.tokens, tokens, first_tokens)
        left = replace(self, requests=requests_left, tokens=tokens_left)
        return left, QuotaLoan(requests=requests_lent, tokens=tokens_lent)


def _merge_report(
    bucket: QuotaBucket | None, report: LimitReport | None, age_s: float
) -> QuotaBucket | None:
    if report is None:
        return bucket
    per_s = bucket.per_s if bucket is not None else report.limit / DEFAULT_REFILL_S
    used = report.limit - report.remaining
    # Resets are rounded, some to whole seconds: a small use proves nothing.
    if report.reset_s and used >= MEASURED_SHARE * report.limit:
        per_s = used / report.reset_s
    remaining = min(report.limit, report.remaining + per_s * age_s)
    if bucket is not None and bucket.limit == report.limit:
        remaining = min(bucket.remaining, remaining)
    return QuotaBucket(report.limit, remaining, per_s)


def _lend_from(
    bucket: QuotaBucket | None, wanted: float, least: float
) -> tuple[QuotaBucket | None, float | None]:
    """Take from a bucket what is wanted, as far as it may be lent to one borrower."""
    if bucket is None:
        return None, None
    lent = min(wanted, max(least, bucket.remaining * LENT_SHARE // 1))
    return bucket.take(lent), lent


ItemT = TypeVar("ItemT")
PRIORITY_KEY = "windlass_priority"
"""The key of a run's priority in its context."""
WINDOW_START = 8.0
"""Requests at once to a server of which nothing is known yet."""
WINDOW_MIN = 1.0


def read_priority(context: Mapping[str, Any]) -> int:
    """Return the priority that a run was given; 0 if it was given none."""
    priority = context.get(PRIORITY_KEY, 0)
    return priority if isinstance(priority, int) else 0


class QueuePlace(msgspec.Struct, frozen=True, order=True):
    """The place of an item in a fair queue: by priority, then by its group's share, then by age."""

    rank: int
    start: float
    number: int


class FairQueue(Generic[ItemT]):
    """A queue that serves groups in turn, and a higher priority before all others."""

    def __init__(self) -> None:
        self._heap: list[tuple[QueuePlace, ItemT]] = []
        self._numbers = count()
        self._served_upto = 0.0
        self._group_ends: dict[str, float] = {}
        """Up to where each group has asked, on the scale of what was served."""

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, group: str, item: ItemT, priority: int = 0) -> None:
        """Add an item. Of two groups, the one that had less comes first."""
        start = max(self._served_upto, self._group_ends.get(group, 0.0))
        self._group_ends[group] = start + 1.0
        place = QueuePlace(-priority, start, next(self._numbers))
        heapq.heappush(self._heap, (place, item))

    def peek(self) -> ItemT:
        """Return the next item. Raises IndexError if there is none."""
        return self._heap[0][1]

    def pop(self) -> ItemT:
        """Remove the next item and return it. Raises IndexError if there is none."""
        place, item = heapq.heappop(self._heap)
        self._served_upto = max(self._served_upto, place.start)
        if not self._heap:
            # The queue is empty, so no group is ahead of another.
            self._group_ends.clear()
            self._served_upto = 0.0
        return item

    def items(self) -> list[ItemT]:
        """Return all items, in no particular order."""
        return [item for _, item in self._heap]


class RequestWindow:
    """How many requests may be under way at once."""

    def __init__(self, most: int | None = None, start: int | None = None) -> None:
        """Make a window that begins with `start` requests and never allows more than `most`."""
        self._most = float("inf") if most is None else float(most)
        self._size = min(WINDOW_START if start is None else float(start), self._most)
        self._careful_from = float("inf")
        """The size from which on it grows slowly: half of the one that was refused."""
        self._cut_again_at = 0.0
        self.in_flight = 0

    @property
    def size(self) -> int:
        return int(self._size)

    @property
    def has_room(self) -> bool:
        return self.in_flight < int(self._size)

    def open_to(self, size: float) -> None:
        """Open the window at once, but not beyond half of what the server refused."""
        self._size = max(self._size, min(size, self._most, self._careful_from))

    def note_accepted(self) -> None:
        """Note that the server took a request. A window that is hardly used does not grow."""
        if self.in_flight * 2 < self._size:
            return
        step = 1.0 if self._size < self._careful_from else 1.0 / self._size
        self._size = min(self._most, self._size + step)

    def note_refused(self, now: float, wait_s: float) -> None:
        """Halve the window, once for all the requests that were under way together."""
        if now < self._cut_again_at:
            return
        self._careful_from = max(WINDOW_MIN, min(self._size, float(self.in_flight)) / 2)
        self._size = self._careful_from
        self._cut_again_at = now + wait_s
