"""Holds requests to providers back before they are made: a rate limit must not become a storm.

Every request asks here before its attempt is recorded. It waits while the provider wants everyone
to wait, while too many are under way, and while nothing is left of the quota that the provider
reports with each response. Many processes share that quota (`shared_quota.py`): each borrows a
slice of it.

Invariant: a provider that reports no limits and refuses nothing delays no request, beyond the first
moments of the first process: what one has learned opens the windows of the others. Waiting requests
are served in turns, by the run at the top: one run with many sub-agents gets no more than another.
A request that waits has paid for nothing and recorded nothing.
"""

import asyncio
from contextlib import suppress

import msgspec

from windlass.core.errors import ConfigError, Fault
from windlass.core.events import AttemptStarted
from windlass.core.moves import RequestReply, Summarize
from windlass.core.rate_limits import (
    CLOSED_MAX_S,
    FairQueue,
    QuotaLoan,
    RateLimits,
    RequestWindow,
    read_priority,
)
from windlass.ports import Clock, RequestPermit, SharedRecords, World
from windlass.runtime.leftover_tasks import TIMER_GRAIN_S
from windlass.runtime.recorder import RealClock, Recorder
from windlass.runtime.shared_limits import SharedQuota

SLICE_S = 1.0
"""How long a slice of a shared quota may be used, and how often others' news are looked at."""
REFUSED_WAIT_S = 1.0
"""How long no request is made after a refusal that names no time; doubled with each refusal."""
REFUSED_WAIT_MAX_S = 30.0
JITTER = 0.2
"""How much longer a wait for quota may be, at random, so that processes do not wake together."""


class WaitingRequest(msgspec.Struct, eq=False):
    """A request that waits for its turn."""

    tokens: int
    admitted: "asyncio.Future[RequestPermit]" = msgspec.field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class ProviderLane:
    """The requests of one event loop to one provider."""

    def __init__(self, quota: SharedQuota, clock: Clock, window: RequestWindow) -> None:
        self._quota = quota
        self._clock = clock
        self._window = window
        self._queue: FairQueue[WaitingRequest] = FairQueue()
        self._changed = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._is_unlimited = True
        self._requests_left = 0.0
        self._tokens_left = 0.0
        self._slice_until = 0.0
        self._slice_use = 0
        """Requests that were made of the present slice: the next one is made as large."""
        self._refresh_at = 0.0
        self._ask_again_at = 0.0
        self._closed_until = 0.0
        self._refusals = 0
        """Refusals in a row that named no time to wait."""

    def try_admit(self, tokens: int) -> RequestPermit | None:
        """Admit a request if nothing is in its way and no other request waits."""
        now = asyncio.get_running_loop().time()
        if now < self._closed_until or len(self._queue) or not self._window.has_room:
            return None
        return self._admit(tokens) if self._has_quota(tokens, now) else None

    async def admit(self, group: str, tokens: int, priority: int) -> RequestPermit:
        """Wait for the turn of a request. Cancelling it gives its place up."""
        request = WaitingRequest(tokens)
        self._queue.push(group, request, priority)
        self._changed.set()
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve(), name="serve waiting requests")
        try:
            return await request.admitted
        except asyncio.CancelledError:
            if request.admitted.done() and not request.admitted.cancelled():
                request.admitted.result().close(None)
            raise

    async def _serve(self) -> None:
        while len(self._queue):
            request = self._queue.peek()
            if request.admitted.done():
                self._queue.pop()
                continue
            self._changed.clear()
            wait_s = await self._find_wait(request)
            if wait_s == 0:
                self._queue.pop()
                if not request.admitted.done():
                    request.admitted.set_result(self._admit(request.tokens))
                continue
            if wait_s is not None:
                # A timer may be early by a grain: it must not become a busy loop.
                wait_s = max(wait_s, TIMER_GRAIN_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()

    async def _find_wait(self, request: WaitingRequest) -> float | None:
        """Return how long the first request has to wait; 0 if not, None until something changes."""
        now = asyncio.get_running_loop().time()
        if now < self._closed_until:
            return self._closed_until - now
        if not self._window.has_room:
            return None
        if self._has_quota(request.tokens, now):
            return 0.0
        if now < self._ask_again_at:
            return self._ask_again_at - now
        room = max(1, self._window.size - self._window.in_flight)
        requests = min(room, max(len(self._queue), self._slice_use))
        loan = await self._quota.borrow(requests, request.tokens * requests)
        self._take_loan(loan)
        return loan.wait_s

    def _has_quota(self, tokens: int, now: float) -> bool:
        """Whether the limits leave room for a request; if they leave much, nothing is borrowed."""
        if self._is_unlimited or self._quota.covers_easily(tokens, self._window.in_flight + 1):
            if now >= self._refresh_at:
                self._refresh()
            return True
        return now < self._slice_until and self._requests_left >= 1 and self._tokens_left >= tokens

    def _take_loan(self, loan: QuotaLoan) -> None:
        now = asyncio.get_running_loop().time()
        self._slice_until = now + SLICE_S
        self._slice_use = 0
        self._is_unlimited = loan.is_unlimited
        self._requests_left = float("inf") if loan.requests is None else loan.requests
        self._tokens_left = float("inf") if loan.tokens is None else loan.tokens
        self._closed_until = max(self._closed_until, now + loan.closed_s)
        self._window.open_to(self._quota.find_window(self._window.in_flight))
        if loan.wait_s:
            jitter = 1 + JITTER * self._clock.random_fraction()
            self._ask_again_at = now + loan.wait_s * jitter

    def _refresh(self) -> None:
        """Exchange news with the other processes, without delaying any request."""
        self._refresh_at = asyncio.get_running_loop().time() + SLICE_S
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._synchronize(), name="share quota")

    async def _synchronize(self) -> None:
        loan = await self._quota.synchronize()
        now = asyncio.get_running_loop().time()
        self._closed_until = max(self._closed_until, now + loan.closed_s)
        self._window.open_to(self._quota.find_window(self._window.in_flight))
        if not loan.is_unlimited:
            # Limits are known by now: the next request borrows.
            self._is_unlimited = False
            self._slice_until = 0.0
        self._changed.set()

    def _admit(self, tokens: int) -> RequestPermit:
        self._window.in_flight += 1
        self._requests_left -= 1
        self._tokens_left -= tokens
        self._slice_use += 1
        if not self._is_unlimited:
            self._quota.use(tokens)
        return _LanePermit(self)

    def note_opened(self, limits: RateLimits | None) -> None:
        """Note that the provider took a request, and what it said about its limits."""
        self._refusals = 0
        size = self._window.size
        self._window.note_accepted()
        if self._window.size != size:
            self._quota.note_window(self._window.size)
        if limits is not None:
            self._take_report(limits)
        self._changed.set()

    def _take_report(self, limits: RateLimits) -> None:
        self._quota.take_report(limits)
        # The quota holds requests back from now on.
        self._window.open_to(self._quota.find_window(self._window.in_flight))
        if self._is_unlimited:
            self._is_unlimited = False
            self._slice_until = 0.0

    def note_over(self, fault: Fault | None, limits: RateLimits | None) -> None:
        """Note that a request is over, and whether the provider refused it."""
        if limits is not None:
            self._take_report(limits)
        if fault is not None and fault.retryable and _asks_to_wait(fault):
            wait_s = fault.retry_after_s
            if wait_s is None:
                wait_s = min(REFUSED_WAIT_MAX_S, REFUSED_WAIT_S * 2.0**self._refusals)
                self._refusals += 1
            wait_s = min(wait_s, CLOSED_MAX_S)
            now = asyncio.get_running_loop().time()
            self._window.note_refused(now, wait_s)
            self._quota.note_window(self._window.size)
            self._closed_until = max(self._closed_until, now + wait_s)
            self._quota.close(wait_s)
            self._refresh()
        self._window.in_flight -= 1
        self._changed.set()


def _asks_to_wait(fault: Fault) -> bool:
    return fault.kind == "rate_limit" or (
        fault.kind == "server" and fault.retry_after_s is not None
    )


class _LanePermit:
    """Lets one request be made."""

    def __init__(self, lane: ProviderLane) -> None:
        self._lane = lane
        self._is_open = True

    def note_opened(self, limits: RateLimits | None) -> None:
        if self._is_open:
            self._lane.note_opened(limits)

    def close(self, fault: Fault | None, limits: RateLimits | None = None) -> None:
        if self._is_open:
            self._is_open = False
            self._lane.note_over(fault, limits)


class ProviderGovernor:
    """Holds requests back so that providers need not refuse them.

    Agents that share a governor share its turns; without one of its own, each agent has one. Those
    of all processes share their quota through the records of the journal.
    """

    def __init__(
        self,
        records: SharedRecords | None = None,
        *,
        requests_at_once: int | None = None,
        requests_at_start: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Make a governor.

        `requests_at_once` limits the requests to each provider from here. `requests_at_start`: how
        many are made at once to a provider of which nothing is known yet; by default 8.
        """
        for name, number in (
            ("requests_at_once", requests_at_once),
            ("requests_at_start", requests_at_start),
        ):
            if number is not None and number < 1:
                raise ConfigError(f"{name}={number}: it must be at least 1")
        self.records = records
        """Where quotas are shared with other processes; None: nowhere."""
        self._requests_at_once = requests_at_once
        self._requests_at_start = requests_at_start
        self._clock = clock or RealClock()
        self._derived: ProviderGovernor | None = None
        self._lanes: dict[tuple[asyncio.AbstractEventLoop, str], ProviderLane] = {}

    def share_through(self, records: SharedRecords | None) -> "ProviderGovernor":
        """Return a governor with the same limits that shares its quotas elsewhere.

        The same records give the same governor: agents that shared this one also share the new one.
        """
        derived = self._derived
        if derived is None or derived.records is not records:
            derived = ProviderGovernor(
                records,
                requests_at_once=self._requests_at_once,
                requests_at_start=self._requests_at_start,
                clock=self._clock,
            )
            self._derived = derived
        return derived

    def try_admit(self, key: str, tokens: int) -> RequestPermit | None:
        """Admit a request at once, or return None: then `admit` waits for its turn."""
        return self._lane(key).try_admit(tokens)

    async def admit(
        self, key: str, tokens: int, *, group: str = "", priority: int = 0
    ) -> RequestPermit:
        """Wait until a request that needs `tokens` tokens may be made."""
        return await self._lane(key).admit(group, tokens, priority)

    def _lane(self, key: str) -> ProviderLane:
        loop = asyncio.get_running_loop()
        lane = self._lanes.get((loop, key))
        if lane is None:
            # What waits belongs to an event loop; that of a loop which is closed waits no more.
            closed = [known for known in self._lanes if known[0].is_closed()]
            for known in closed:
                del self._lanes[known]
            quota = SharedQuota(key, self.records, self._clock)
            window = RequestWindow(self._requests_at_once, self._requests_at_start)
            lane = ProviderLane(quota, self._clock, window)
            self._lanes[loop, key] = lane
        return lane


async def wait_for_permit(
    move: RequestReply | Summarize, world: World, recorder: Recorder
) -> RequestPermit | None:
    """Wait until the request of a move may be made; None if nothing limits its model.

    What is staged is written before it waits.
    """
    governor = world.governor
    # A `RateLimitedModel` has one. To ask for the protocol would take 8 µs before each request.
    quota_key: str = getattr(world.models[move.prompt.model], "quota_key", "")
    if governor is None or not quota_key:
        return None
    # What a reply may have at most says little about how long it becomes, so only the prompt
    # counts.
    tokens = move.reserved.input
    permit = governor.try_admit(quota_key, tokens)
    if permit is not None:
        return permit
    await recorder.flush()
    run = recorder.state.run
    # The session of a sub-agent is named after that of the run that it works for, and its call.
    group = recorder.session.rsplit("/", len(world.lineage))[0]
    return await governor.admit(
        quota_key, tokens, group=group, priority=read_priority(run.context) if run else 0
    )


async def record_start(
    start: AttemptStarted, permit: RequestPermit | None, recorder: Recorder
) -> None:
    """Record that a request is made. Its permit is given back if that cannot even be recorded."""
    try:
        await recorder.record(start)
    except BaseException:
        if permit is not None:
            permit.close(None)
        raise
