"""How much one caller may do at a time: requests by a bucket, streams and bytes by a count."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial

from windlass.server.errors import ApiError

CALLERS_MAX = 10_000
"""Callers that are remembered; the ones that were silent longest are forgotten first."""


class RateLimiter:
    """Lets each caller do `per_s` things a second on average, and `at_once` in a burst."""

    def __init__(
        self, per_s: float, at_once: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_s = per_s
        self._at_once = at_once
        self._now = now
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """What is left for each caller, and when that was."""

    def take(self, caller: str) -> float:
        """Count one thing. Returns 0.0, or how many seconds to wait: then nothing is counted."""
        left = self._left(caller)
        if left < 1.0:
            return (1.0 - left) / self._per_s
        self._buckets[caller] = (left - 1.0, self._now())
        self._buckets.move_to_end(caller)
        while len(self._buckets) > CALLERS_MAX:
            self._buckets.popitem(last=False)
        return 0.0

    def _left(self, caller: str) -> float:
        left, at = self._buckets.get(caller, (float(self._at_once), self._now()))
        return min(float(self._at_once), left + (self._now() - at) * self._per_s)


class StreamCounter:
    """How many streams each caller has open."""

    def __init__(self, streams_max: int) -> None:
        self._streams_max = streams_max
        self._open: dict[str, int] = {}

    @property
    def total(self) -> int:
        return sum(self._open.values())

    def open_stream(self, caller: str) -> Callable[[], None]:
        """Count a stream, and return what ends it. Raises ApiError 429 if there are too many."""
        count = self._open.get(caller, 0)
        if count >= self._streams_max:
            raise ApiError(
                429,
                "too_many_streams",
                f"This caller has {count} event streams open, which is the most.",
                "Close one, or watch several sessions with one stream: GET /events.",
                retry_after=5.0,
            )
        self._open[caller] = count + 1

        def close() -> None:
            self._open[caller] -= 1
            if not self._open[caller]:
                del self._open[caller]

        return close


class BodyCounter:
    """How many bytes of requests and replies each caller makes the service hold."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held: dict[str, int] = {}

    def count_of(self, caller: str) -> int:
        """Return how many bytes are held for a caller."""
        return self._held.get(caller, 0)

    @contextmanager
    def count_for(self, caller: str) -> Generator[Callable[[int], None]]:
        """Yield what counts the bytes of one request as they come, until the block ends."""
        own = 0

        def count(size: int) -> None:
            nonlocal own
            self._add(caller, size)
            own += size

        try:
            yield count
        finally:
            self._remove(caller, own)

    def hold_reply(self, caller: str, size: int) -> Callable[[], None]:
        """Count the bytes of a reply, and return what is called when it was sent, or given up."""
        self._add(caller, size)
        return partial(self._remove, caller, size)

    def _add(self, caller: str, size: int) -> None:
        """Raise ApiError 429, and count nothing, if there would be too many."""
        held = self.count_of(caller) + size
        if held > self._bytes_max:
            raise ApiError(
                429,
                "too_many_bytes",
                f"Requests and replies of this caller have more than {self._bytes_max} bytes now.",
                "Send fewer at a time, and read their replies; or raise the limit of the service.",
                retry_after=1.0,
                headers={"Connection": "close"},
            )
        self._held[caller] = held

    def _remove(self, caller: str, size: int) -> None:
        left = self._held.pop(caller, 0) - size
        if left > 0:
            self._held[caller] = left


def too_many_requests(wait_s: float) -> ApiError:
    """Return the error for a caller that asks too often."""
    return ApiError(
        429,
        "too_many_requests",
        "This caller sends more requests than the service takes.",
        "Wait as long as Retry-After says.",
        retry_after=math.ceil(wait_s),
    )
