"""The live channel of a Postgres journal: notifications of the server, on its own connection.

Invariant: an append never waits for it, and no delta is in an append's transaction. A driver hears
of interest on the connection that stays open, so that it costs nothing before the first
watcher comes. What is sent goes out in the background, from a bounded queue. Notifications need a
connection that stays the same: behind a pooler in transaction mode there are facts only, and a
warning says so.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from windlass.core.live_batch import LiveBatch
from windlass.journals.live.frames import BadFrame, decode_batch, encode_batch
from windlass.journals.live.inbox import BatchInbox
from windlass.journals.postgres.config import PostgresConnection
from windlass.journals.postgres.direct_connection import DirectConnection
from windlass.journals.postgres.live_wire import BatchAssembly, InterestTable, split_batch
from windlass.journals.postgres.pool import ConnectionPool
from windlass.logs import get_logger

RENEW_S = 5.0
"""How often an interest is renewed."""
ASK_GAP_S = 0.05
RETRY_S = 1.0
"""How long to wait after the connection broke."""
PROBE_S = 2.0
"""How long a notification may take that shows whether they come through."""
CLOSE_S = 1.0
WAITING_BYTES_MAX = 4_000_000
"""What may wait for the server; what does not fit is lost."""
_NOTIFY = "SELECT pg_notify(c, p) FROM unnest($1::text[], $2::text[]) AS n(c, p)"
_log = get_logger(__name__)


class PostgresSender:
    """The driver's side, for one session."""

    def __init__(self, live: "PostgresLive", key: str, on_interest: Callable[[bool], None]) -> None:
        self.key = key
        self.on_interest = on_interest
        self._live = live
        self._is_closed = False

    def send(self, batch: LiveBatch) -> None:
        body = None if self._is_closed else encode_batch(batch)
        if body is not None:
            self._live.notify(self.key, split_batch(f"{batch.driver}.{batch.number}", body))

    def close(self) -> None:
        self._is_closed = True
        self._live.remove_sender(self)


class PostgresSubscription:
    """A watcher's side."""

    def __init__(self, live: "PostgresLive", key: str) -> None:
        self.key = key
        self.id = os.urandom(8).hex()
        self.needs_snapshot = True
        self._live = live
        self._inbox = BatchInbox()
        self._assembly = BatchAssembly()

    async def receive(self) -> LiveBatch:
        return await self._inbox.receive()

    def ask_snapshot(self) -> None:
        self.needs_snapshot = True
        self._live.wake()

    def close(self) -> None:
        self._live.unsubscribe(self)

    def take_payload(self, payload: str) -> None:
        """Take one notification, which may be a part of a batch."""
        try:
            body = self._assembly.add(payload)
            if body is not None:
                self._inbox.put(decode_batch(body))
        except BadFrame as error:
            _log.warning("a notification of the live channel is odd: %s", error)


class PostgresLive:
    """Drivers and watchers of one event loop."""

    def __init__(self, pool: ConnectionPool, direct: DirectConnection) -> None:
        self._pool = pool
        self._direct = direct
        self._control = pool.config.channel_name("interest")
        self._senders: dict[str, set[PostgresSender]] = {}
        self._interests = InterestTable(pool.loop, self._tell_drivers)
        self._hearing: asyncio.Task[None] | None = None
        """Begins to listen for interest, once there is a driver."""
        self._subscriptions: dict[str, set[PostgresSubscription]] = {}
        self._listening: set[str] = set()
        """The channels of sessions that the present connection listens on."""
        self._server: PostgresConnection | None = None
        self._mutex = asyncio.Lock()
        self._waiting: deque[tuple[str, str]] = deque()
        self._waiting_bytes = 0
        self._pump: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._is_refused = not pool.config.has_direct
        self._tasks = set[asyncio.Task[Any]]()

    # Drivers.

    def open_sender(self, session: str, on_interest: Callable[[bool], None]) -> PostgresSender:
        """Open the driver's side of a session. The first one begins to listen for interest."""
        sender = PostgresSender(self, self._pool.config.channel_name(session), on_interest)
        self._senders.setdefault(sender.key, set()).add(sender)
        if self._hearing is None:
            self._hearing = self._start_task(self._hear_control())
        if self._interests.is_wanted(sender.key):
            self._pool.loop.call_soon(on_interest, True)  # noqa: FBT003 - it is a callback
        return sender

    def remove_sender(self, sender: PostgresSender) -> None:
        senders = self._senders.get(sender.key, set())
        senders.discard(sender)
        if not senders:
            self._senders.pop(sender.key, None)

    def notify(self, channel: str, payloads: list[str]) -> None:
        """Let payloads wait for the server: all of them, or none if they do not fit."""
        size_bytes = sum(map(len, payloads))
        if self._is_refused or self._waiting_bytes + size_bytes > WAITING_BYTES_MAX:
            return
        self._waiting.extend((channel, payload) for payload in payloads)
        self._waiting_bytes += size_bytes
        if self._pump is None or self._pump.done():
            self._pump = self._start_task(self._send_waiting())

    async def _hear_control(self) -> None:
        try:
            await self._direct.listen_to(self._control, self._on_control)
        except Exception as error:  # noqa: BLE001 - what is shown cannot stop a run
            self._hearing = None
            _log.info("watchers elsewhere see facts only, no deltas: %s", error)

    def _on_control(self, _server: object, _process: int, _channel: str, payload: object) -> None:
        self._interests.take(str(payload))

    def _tell_drivers(self, key: str, is_wanted: bool) -> None:  # noqa: FBT001 - it is a callback
        for sender in tuple(self._senders.get(key, ())):
            sender.on_interest(is_wanted)

    async def _send_waiting(self) -> None:
        while self._waiting:
            waiting = list(self._waiting)
            self._waiting.clear()
            self._waiting_bytes = 0
            channels = [channel for channel, _ in waiting]
            payloads = [payload for _, payload in waiting]
            await self._attempt(partial(_notify_all, channels=channels, payloads=payloads))

    # Watchers.

    def subscribe(self, session: str) -> PostgresSubscription:
        """Open a watcher's side of a session."""
        subscription = PostgresSubscription(self, self._pool.config.channel_name(session))
        self._subscriptions.setdefault(subscription.key, set()).add(subscription)
        if self._watching is None or self._watching.done():
            self._watching = self._start_task(self._serve_watchers())
        self.wake()
        return subscription

    def unsubscribe(self, subscription: PostgresSubscription) -> None:
        subscriptions = self._subscriptions.get(subscription.key, set())
        if subscription not in subscriptions:
            return
        subscriptions.discard(subscription)
        if not subscriptions:
            self._subscriptions.pop(subscription.key, None)
        if not self._pool.is_closed:
            self.notify(self._control, [f"{subscription.key} {subscription.id} leave"])
        self.wake()

    def wake(self) -> None:
        self._wake.set()

    async def _serve_watchers(self) -> None:
        """Listen on the channels of the watched sessions, and announce that they are watched."""
        renew_at = 0.0
        while self._subscriptions and not (self._is_refused or self._pool.is_closed):
            self._wake.clear()
            is_listening = await self._attempt(self._listen_to_sessions)
            now = self._pool.loop.time()
            is_renewal = now >= renew_at
            if is_renewal:
                renew_at = now + RENEW_S
            if is_listening:
                self._state_interests(is_renewal=is_renewal)
            await asyncio.sleep(ASK_GAP_S if is_listening else RETRY_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, renew_at - self._pool.loop.time())):
                    await self._wake.wait()

    def _state_interests(self, *, is_renewal: bool) -> None:
        for subscription in [one for group in self._subscriptions.values() for one in group]:
            if subscription.needs_snapshot or is_renewal:
                verb = "ask" if subscription.needs_snapshot else "keep"
                subscription.needs_snapshot = False
                self.notify(self._control, [f"{subscription.key} {subscription.id} {verb}"])

    async def _listen_to_sessions(self, server: PostgresConnection) -> None:
        wanted = set(self._subscriptions)
        for channel in self._listening - wanted:
            self._listening.discard(channel)
            await server.remove_listener(channel, self._on_payload)
        for channel in wanted - self._listening:
            await server.add_listener(channel, self._on_payload)
            self._listening.add(channel)

    def _on_payload(self, _server: object, _process: int, channel: str, payload: object) -> None:
        for subscription in tuple(self._subscriptions.get(channel, ())):
            subscription.take_payload(str(payload))

    # The connection.

    async def close(self) -> None:
        """Send what is waiting, for a moment, and stop."""
        # The listener for interest continues in the other connection, until it is done.
        last = {task for task in (self._pump, self._hearing) if task is not None}
        if last:
            await asyncio.wait(last, timeout=CLOSE_S)
        self._interests.close()
        for task in tuple(self._tasks):
            task.cancel()

    async def _attempt(
        self, work: Callable[[PostgresConnection], Coroutine[Any, Any, object]]
    ) -> bool:
        """Do something on the connection, once. Returns whether it was done."""
        async with self._mutex:
            server = self._server
            try:
                if server is None or server.is_closed():
                    server = await self._open()
                if server is None:
                    return False
                await work(server)
            except Exception as error:  # noqa: BLE001 - deltas may be lost, a run continues
                self._server = None
                if server is not None:
                    self._pool.drop_connection(server)
                if not self._pool.is_closed:
                    _log.info("the live channel lost its connection: %s", error)
                return False
            return True

    async def _open(self) -> PostgresConnection | None:
        """Open the connection; None if notifications do not come through it."""
        if self._is_refused:
            return None
        server = await self._pool.open_connection(is_direct=True)
        self._listening.clear()
        if not await self._is_notified(server):
            self._is_refused = True
            self._pool.drop_connection(server)
            _log.warning(
                "%s: notifications do not come through, as behind a pooler in transaction mode: "
                "watchers in other processes see facts only, no text as it streams. Add "
                "?pooler=transaction to the URL, and ?direct= with the URL of the server itself.",
                self._pool.config.location,
            )
            return None
        self._server = server
        return server

    async def _is_notified(self, server: PostgresConnection) -> bool:
        """Whether the connection is one to the server itself, or as good as one."""
        if server.get_server_pid() == await server.fetchval("SELECT pg_backend_pid()"):
            return True
        # Something is in between. A notification from another connection shows of what kind.
        heard = asyncio.Event()
        channel = self._pool.config.channel_name(f"probe {os.urandom(8).hex()}")
        await server.add_listener(channel, lambda *_: heard.set())
        await self._pool.run_on_connection(
            partial(_notify_all, channels=[channel], payloads=["probe"])
        )
        with suppress(TimeoutError):
            async with asyncio.timeout(PROBE_S):
                await heard.wait()
        return heard.is_set()

    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        # The set keeps a reference to the task: the event loop itself has only a weak one.
        task = self._pool.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _notify_all(
    server: PostgresConnection, *, channels: list[str], payloads: list[str]
) -> None:
    await server.execute(_NOTIFY, channels, payloads)
