"""Watching a session that another process, or another agent, drives.

Invariant: facts come from the journal, where they are checked. The live channel brings the deltas
between them, and marks that announce a new fact. Ordered by their places, both form one stream
without gaps among the facts and without repetitions. If the channel falls silent, the facts
continue without it, and a missed text arrives complete with its step.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Any, Literal

from msgspec.structs import replace

from windlass.agent.event_stream import EventStream
from windlass.agent.nested_sessions import NestedSessions, WaitingCalls, mark_waiting
from windlass.agent.shown_reply import ShownReply
from windlass.core.events import (
    AttemptDiscarded,
    AttemptStarted,
    CallProgress,
    Delta,
    Event,
    NestedEvent,
    RunEnded,
    RunResumed,
    RunStarted,
    RunSuspended,
    StepProposed,
    TextDelta,
    ThinkingDelta,
)
from windlass.core.live_batch import FactMark, LiveBatch, count_places
from windlass.core.reply_hold import visible_facts
from windlass.core.secrets.mask import Mask
from windlass.core.secrets.mask_pieces import PieceMask
from windlass.ports import Journal
from windlass.runtime.driver import RunDriver
from windlass.runtime.leftover_tasks import TIMER_GRAIN_S

LEASE_POLL_S = 1.0
"""How often to look whether a session that is watched is still driven."""
MARK_WAIT_S = 0.2
"""How long a fact waits for the deltas before it, which the live channel may still bring."""


async def follow_session(
    journal: Journal, session: str, after: int, mask: Mask, *, withhold: bool = False
) -> AsyncGenerator[Event]:
    """Yield the events of a session that another process may drive, for as long as it is driven.

    `withhold`: whether replies are withheld until they are judged, if the records do not say so.
    """
    follower = _SessionFollower(journal, session, after, mask)
    async with aclosing(follower.follow(withhold=withhold)) as events:
        async for event in events:
            yield event


async def follow_driver(
    driver: RunDriver, journal: Journal, after: int, mask: Mask, *, withhold: bool
) -> AsyncGenerator[Event]:
    """Yield the recorded events of a session that this event loop drives, then the live ones."""
    live_events = EventStream[Any]()
    # Attached before the journal is read: what is written meanwhile is in one or the other.
    snapshot = driver.attach_watcher(live_events.push, live_events.close)
    try:
        seen = after
        # Facts after the mark come live, in order with the deltas between them. Without a mark,
        # the driver has not read the session yet.
        marks = [item.seq for item in snapshot if isinstance(item, FactMark)]
        facts = [
            fact
            for fact in mask.mask_foreign(await journal.read(driver.session, after))
            if not marks or fact.seq <= marks[0]
        ]
        for fact in visible_facts(facts, withhold=withhold, live=True):
            seen = fact.seq
            yield fact
        nested = NestedSessions(journal, mask)
        for item in snapshot:
            if isinstance(item, NestedEvent):
                for event in await nested.show(item, is_snapshot=True):
                    yield event
            elif not isinstance(item, FactMark) and item.seq == seen:
                yield item
        async for event in live_events:
            if isinstance(event, NestedEvent):
                for shown in await nested.show(event):
                    yield shown
            elif event.seq > seen or (event.seq == seen and event.nth):
                yield event
    finally:
        driver.detach_watcher(live_events.push)


class _SessionFollower:
    """Merges what the journal and the live channel tell of one session."""

    def __init__(self, journal: Journal, session: str, after: int, mask: Mask) -> None:
        self._journal = journal
        self._session = session
        self._mask = mask
        self._signals = _SessionSignals(journal, session)
        self._withhold = False
        self._place = (after, 0)
        """The place of the last event that was yielded."""
        self._last_read = after
        self._waiting = WaitingCalls()
        self._unshown: deque[Event] = deque()
        """Facts that were read, and wait for the deltas before them."""
        self._waiting_since = 0.0
        self._reply = ShownReply()
        self._nested = NestedSessions(journal, mask)
        self._attempt: AttemptStarted | None = None
        self._has_ended = False
        self._driver = ""
        self._number = 0
        self._is_live = False
        """Whether every batch of the driver was received since a snapshot."""

    async def follow(self, *, withhold: bool) -> AsyncGenerator[Event]:
        """Yield the events from the present place on, while the session is driven."""
        loop = asyncio.get_running_loop()
        try:
            self._withhold = withhold
            after = self._place[0]
            if after:
                for fact in await self._journal.read(self._session, 0):
                    if fact.seq <= after:
                        self._learn_fact(fact)
            is_driven = True
            while is_driven:
                # Asked before the facts are read: what a driver wrote before its release counts.
                is_driven = await self._signals.is_driven()
                await self._read_facts(is_driven=is_driven)
                wait_s = LEASE_POLL_S if is_driven else MARK_WAIT_S
                if is_driven or self._is_live:
                    async with aclosing(self._follow_driver(loop.time() + wait_s)) as events:
                        async for event in events:
                            yield event
                if not is_driven:
                    for event in self._release_facts():
                        yield event
                if not is_driven or self._has_ended:
                    async with aclosing(self._show_waiting()) as events:
                        async for event in events:
                            yield event
                if self._has_ended:
                    return
        finally:
            self._signals.close()

    async def _follow_driver(self, until: float) -> AsyncGenerator[Event]:
        """Yield events until the run has ended, or it is time to look who drives the session."""
        loop = asyncio.get_running_loop()
        while True:
            if not self._is_live:
                for event in self._release_facts():
                    yield event
            if self._has_ended or loop.time() >= until:
                return
            wait_until = until
            if self._unshown:
                wait_until = min(until, self._waiting_since + MARK_WAIT_S)
            signal = await self._signals.wait(self._last_read, wait_until)
            if isinstance(signal, LiveBatch):
                async with aclosing(self._take_batch(signal)) as events:
                    async for event in events:
                        yield event
            elif signal == "appended":
                await self._read_facts(is_driven=True)
            elif self._unshown and loop.time() >= self._waiting_since + MARK_WAIT_S:
                # The channel is behind, or gone: the facts do not wait for it.
                self._is_live = False
            if not self._is_live:
                self._signals.ask_snapshot()

    # Facts, from the journal.

    async def _read_facts(self, *, is_driven: bool) -> None:
        """Read the facts after those that were yielded, as a watcher may see them."""
        facts = await self._journal.read(self._session, self._place[0])
        facts = list(self._mask.mask_foreign(facts))
        if facts:
            # A reply that is withheld was read but is not visible yet.
            self._last_read = facts[-1].seq
        visible = visible_facts(facts, withhold=self._withhold, live=is_driven)
        had_unshown = bool(self._unshown)
        self._unshown = deque(visible)
        if not had_unshown:
            self._waiting_since = asyncio.get_running_loop().time()

    def _release_facts(self, upto: int | None = None) -> Iterator[Event]:
        """Yield facts that were read: all, or those up to a number."""
        while self._unshown and (upto is None or self._unshown[0].seq <= upto):
            fact = self._unshown.popleft()
            if isinstance(fact, AttemptStarted) and self._reply.has_text and self._attempt:
                # Watchers in the driver's process may never have seen that text.
                failed = self._attempt
                seq, nth = self._place
                reason = "the attempt broke off"
                yield AttemptDiscarded(failed.step, failed.attempt, reason, seq=seq, nth=nth + 1)
            self._place = (fact.seq, 0)
            self._waiting.learn_fact(fact)
            self._learn_fact(fact)
            self._has_ended = isinstance(fact, RunEnded) and not self._unshown
            yield fact

    def _learn_fact(self, fact: Event) -> None:
        match fact:
            case RunStarted() | RunResumed():
                if fact.setup is not None:
                    self._withhold = fact.setup.withhold_replies
            case AttemptStarted():
                self._attempt = fact
                self._reply.start_attempt()
            case StepProposed() | RunEnded():
                self._reply.start_attempt()
            case _:
                pass

    async def _show_waiting(self) -> AsyncGenerator[Event]:
        """Yield what the waiting sub-agents have done, as far as it was not shown.

        No driver reports them: a new watcher would see them only when they continue.
        """
        for waiting in self._waiting.take_all():
            for mark in await mark_waiting(self._journal, waiting):
                seq, nth = self._place
                placed = replace(mark, seq=seq, nth=nth + count_places(mark))
                for shown in await self._nested.show(placed, is_snapshot=True):
                    self._place = (shown.seq, shown.nth)
                    yield _mask_foreign_delta(self._mask, shown)

    # Deltas, from the live channel.

    async def _take_batch(self, batch: LiveBatch) -> AsyncGenerator[Event]:
        """Yield what a batch brings, each delta after the facts before it."""
        is_next = self._is_live and (batch.driver, batch.number) == (self._driver, self._number + 1)
        self._driver = batch.driver
        self._number = batch.number
        self._is_live = is_next or batch.is_snapshot
        if batch.is_snapshot and not is_next:
            self._reply.start_snapshot()
        for item in batch.items if self._is_live else ():
            if item.seq > self._last_read:
                await self._read_facts(is_driven=True)
            for event in self._release_facts(item.seq):
                yield event
            if self._has_ended:
                return
            if isinstance(item, FactMark):
                continue
            if item.seq > self._place[0]:
                # The journal does not show the facts yet that the delta comes after.
                self._is_live = False
                return
            # A watcher that missed nothing has seen what a snapshot holds.
            if (item.seq, item.nth) > self._place and not (batch.is_snapshot and is_next):
                for shown in await self._take_delta(item, is_snapshot=batch.is_snapshot):
                    self._place = (shown.seq, shown.nth)
                    yield _mask_foreign_delta(self._mask, shown)

    async def _take_delta(self, delta: Delta, *, is_snapshot: bool) -> Sequence[Delta]:
        """Return what of a delta is to be shown; nothing if it does not follow what was shown."""
        match delta:
            case NestedEvent():
                return await self._nested.show(delta, is_snapshot=is_snapshot)
            case AttemptDiscarded():
                self._reply.start_attempt()
            case RunSuspended():
                self._has_ended = True
            case _:
                pass
        take_piece = self._reply.take_snapshot_piece if is_snapshot else self._reply.take_piece
        return tuple(filter(None, (take_piece(delta),)))


class _SessionSignals:
    """What a follower waits for: batches of the live channel, and appends."""

    def __init__(self, journal: Journal, session: str) -> None:
        self._journal = journal
        self._session = session
        self._subscription = journal.watch_live(session)
        self._batch: asyncio.Future[LiveBatch] | None = None
        self._append: asyncio.Future[None] | None = None
        self._append_after = 0

    async def is_driven(self) -> bool:
        """Return whether a living driver has the session, as far as the journal can tell."""
        return await self._journal.is_leased(self._session)

    async def wait(self, after: int, until: float) -> LiveBatch | Literal["appended"] | None:
        """Return the next batch, "appended" if there may be facts after a number, None if late."""
        if self._batch is None:
            self._batch = asyncio.ensure_future(self._subscription.receive())
        if self._append is not None and self._append_after != after:
            self._append.cancel()
            self._append = None
        if self._append is None:
            self._append_after = after
            news = self._journal.wait_for_append(self._session, after)
            self._append = asyncio.ensure_future(news)
        waits: set[asyncio.Future[Any]] = {self._batch, self._append}
        # Never shorter than the grain of a timer: a timer that fires a moment early would be set
        # again with a delay of zero, forever.
        timeout_s = max(TIMER_GRAIN_S, until - asyncio.get_running_loop().time())
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if self._batch.done():
            batch = self._batch.result()
            self._batch = None
            return batch
        if self._append.done():
            self._append.result()
            self._append = None
            return "appended"
        return None

    def ask_snapshot(self) -> None:
        self._subscription.ask_snapshot()

    def close(self) -> None:
        for wait in (self._batch, self._append):
            if wait is not None:
                wait.cancel()
        self._subscription.close()


def _mask_foreign_delta(mask: Mask, delta: Delta) -> Delta:
    """Mask again what the driver masked: the watching process may know more secrets."""
    match delta:
        case TextDelta(text) | ThinkingDelta(text) | CallProgress(text=text):
            masked = mask.mask_text(text)
            return delta if masked == text else replace(delta, text=masked)
        case NestedEvent():
            return PieceMask(mask).mask_nested(delta)
        case _:
            return delta
