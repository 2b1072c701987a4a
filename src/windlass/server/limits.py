"""What the service takes at most, so that no client can use it up.

What one caller may do at a time is limited by a bucket of requests, and counts of streams and
bytes.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Literal

import msgspec

from windlass.core.limits import check_numbers
from windlass.server.errors import ApiError

WorkspaceMode = Literal["per-caller", "shared"]
"""Where the runs of callers work: each caller in its own folder, or all in the agent's."""


class ServiceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the service. All of them can be raised."""

    body_bytes: int = 16 * 2**20
    """Of a request, with its images and files."""
    bodies_bytes: int = 256 * 2**20
    """Of all requests and replies of one caller that are held at a time: received, worked on, or
    not yet read by the client."""
    upload_bytes: int = 32 * 2**20
    """Of an upload."""
    uploads_bytes: int = 512 * 2**20
    """Of all uploads of one caller that have not expired."""
    uploads_per_owner: int = 1_000
    """Uploads of one caller that have not expired."""
    prompt_uploads_bytes: int = 64 * 2**20
    """Of all uploads that one prompt names; one that is named twice counts twice."""
    schedules_per_owner: int = 200
    """Schedules of one caller."""
    webhooks_per_owner: int = 50
    """Webhooks of one caller."""
    upload_kept_s: float = 86_400.0
    """How long an upload can be named in prompts."""
    connections: int = 4_096
    """Open at a time; more are answered with 503."""
    streams_per_caller: int = 64
    """Event streams that one caller may have open at a time."""
    requests_per_s: float = 50.0
    """Of one caller, on average."""
    requests_at_once: int = 200
    """Of one caller, in a burst."""
    failed_logins_per_min: float = 30.0
    """From one address: wrong tokens, login codes and links. Right ones always pass."""
    open_body_bytes: int = 20 * 2**10
    """Of a request to a route that needs no token: a login code, or an answer with its reason."""
    open_requests_per_s: float = 50.0
    """From one address to routes that need no token, on average. Probes are not counted."""
    open_requests_at_once: int = 200
    """From one address to routes that need no token, in a burst."""
    receive_s: float = 30.0
    """For the head and for the body of a request."""
    stalled_write_s: float = 60.0
    """A client that takes nothing for this long is cut off. It can connect again."""
    keep_alive_s: float = 15.0
    """Between two comments on a stream that is silent."""
    drain_s: float = 20.0
    """For the replies and calls that are under way when the service is stopped."""
    sweep_s: float = 0.5
    """Between two looks for runs without a driver."""
    schedule_s: float = 1.0
    """Between two looks at the schedules: a run starts at most this late."""
    runs_driven: int = 500
    """Runs of others that the service drives at a time."""
    workspace_wait_s: float = 60.0
    """How long a run waits for a process that has the folder it works in, before it is paused."""

    def __post_init__(self) -> None:
        check_numbers(self, *self.__struct_fields__)


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
                f"This caller has {count} event streams open, which is the limit.",
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
