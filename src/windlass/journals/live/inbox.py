"""Batches that have arrived for one watcher, and the channel of watchers in this process.

Invariant: a slow watcher does not hold up others. When its inbox is full, everything in it is
dropped: the watcher finds the gap in the numbers of the batches, and asks for a snapshot.

`AppendNotifier` wakes those who wait for an append to a session, in whatever event loop they run.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from threading import Lock
from typing import TypeVar

from windlass.core.live_batch import LiveBatch


class AppendNotifier:
    """The waiters of one journal. The writer calls `notify`; each waiter holds a future."""

    def __init__(self) -> None:
        self._waiters: dict[str, set[asyncio.Future[None]]] = {}
        self._mutex = Lock()

    @contextmanager
    def subscribe(self, session: str) -> Generator[asyncio.Future[None]]:
        """Give a future that is done at the next append to the session.

        Subscribe first and then read the session: an append in between is not missed that way.
        """
        appended = asyncio.get_running_loop().create_future()
        with self._mutex:
            self._waiters.setdefault(session, set()).add(appended)
        try:
            yield appended
        finally:
            with self._mutex:
                self._waiters[session].discard(appended)
                if not self._waiters[session]:
                    del self._waiters[session]

    def notify(self, sessions: Iterable[str]) -> None:
        """Wake all who wait for one of these sessions. May be called from any thread."""
        # Most journals are never followed, and this runs after every write.
        if not self._waiters:
            return
        with self._mutex:
            waiting = [waiter for session in sessions for waiter in self._waiters.get(session, ())]
        for appended in waiting:
            # call_soon_threadsafe raises if the loop is closed; then no waiter is left.
            with suppress(RuntimeError):
                appended.get_loop().call_soon_threadsafe(_set_done, appended)


def _set_done(appended: asyncio.Future[None]) -> None:
    if not appended.done():
        appended.set_result(None)


ValueT = TypeVar("ValueT")
INBOX_BATCHES_MAX = 256


class BatchInbox:
    """Belongs to the event loop that it was made in; `deliver` may be called from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._batches: deque[LiveBatch] = deque()
        self._arrived = asyncio.Event()

    async def receive(self) -> LiveBatch:
        """Wait for a batch and take it."""
        while not self._batches:
            self._arrived.clear()
            await self._arrived.wait()
        return self._batches.popleft()

    def deliver(self, batch: LiveBatch) -> None:
        """Put a batch in."""
        call_in_loop(self._loop, lambda: self.put(batch))

    def put(self, batch: LiveBatch) -> None:
        """Put a batch in, from the inbox's own event loop."""
        if len(self._batches) >= INBOX_BATCHES_MAX:
            self._batches.clear()
        self._batches.append(batch)
        self._arrived.set()


def call_in_loop(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """Call something in an event loop, from any thread; not at all if the loop has ended."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(callback)


class MemoryChannel:
    """Connects drivers and watchers that share one journal object."""

    def __init__(self) -> None:
        self._senders: dict[str, set[MemorySender]] = {}
        self._subscriptions: dict[str, set[MemorySubscription]] = {}
        # `run_sync` may drive a session from its own thread.
        self._mutex = Lock()

    def open_sender(self, session: str, on_interest: Callable[[bool], None]) -> "MemorySender":
        """Open the side of a driver, which learns at once of existing watchers."""
        sender = MemorySender(self, session, on_interest)
        with self._mutex:
            self._senders.setdefault(session, set()).add(sender)
            is_watched = session in self._subscriptions
        if is_watched:
            sender.tell_interest(is_wanted=True)
        return sender

    def subscribe(self, session: str) -> "MemorySubscription":
        """Open the side of a watcher, and ask the driver for a snapshot."""
        subscription = MemorySubscription(self, session)
        with self._mutex:
            self._subscriptions.setdefault(session, set()).add(subscription)
        self.tell_interest(session, is_wanted=True)
        return subscription

    def tell_interest(self, session: str, *, is_wanted: bool) -> None:
        """Notify the driver of a session that a snapshot is wanted, or that no watcher is left."""
        with self._mutex:
            senders = tuple(self._senders.get(session, ()))
        for sender in senders:
            sender.tell_interest(is_wanted=is_wanted)

    def send(self, session: str, batch: LiveBatch) -> None:
        """Deliver a batch to each watcher of a session."""
        with self._mutex:
            subscriptions = tuple(self._subscriptions.get(session, ()))
        for subscription in subscriptions:
            subscription.inbox.deliver(batch)

    def remove_sender(self, sender: "MemorySender") -> None:
        with self._mutex:
            _discard(self._senders, sender.session, sender)

    def remove_subscription(self, subscription: "MemorySubscription") -> None:
        session = subscription.session
        with self._mutex:
            _discard(self._subscriptions, session, subscription)
            is_watched = session in self._subscriptions
        if not is_watched:
            self.tell_interest(session, is_wanted=False)


class MemorySender:
    """The driver's side."""

    def __init__(
        self, channel: MemoryChannel, session: str, on_interest: Callable[[bool], None]
    ) -> None:
        self.session = session
        self._channel = channel
        self._on_interest = on_interest
        self._loop = asyncio.get_running_loop()
        self._is_closed = False

    def tell_interest(self, *, is_wanted: bool) -> None:
        call_in_loop(self._loop, lambda: self._on_interest(is_wanted))

    def send(self, batch: LiveBatch) -> None:
        if not self._is_closed:
            self._channel.send(self.session, batch)

    def close(self) -> None:
        self._is_closed = True
        self._channel.remove_sender(self)


class MemorySubscription:
    """A watcher's side."""

    def __init__(self, channel: MemoryChannel, session: str) -> None:
        self.session = session
        self.inbox = BatchInbox()
        self._channel = channel

    async def receive(self) -> LiveBatch:
        return await self.inbox.receive()

    def ask_snapshot(self) -> None:
        self._channel.tell_interest(self.session, is_wanted=True)

    def close(self) -> None:
        self._channel.remove_subscription(self)


def _discard(table: dict[str, set[ValueT]], key: str, value: ValueT) -> None:
    values = table.get(key, set())
    values.discard(value)
    if not values:
        table.pop(key, None)
