"""A watcher's side of the live channel of a file: it looks for drivers, and stays connected.

Invariant: whatever the other end sends, a watcher loses at most its deltas. Frames are bounded, and
one that is not what it should be ends the connection for a while.
"""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import cast

import msgspec
from typing_extensions import override

from windlass.core.live_batch import LiveBatch
from windlass.journals.live.frames import (
    BATCH_BYTES_MAX,
    BadFrame,
    FrameReader,
    build_frame,
    decode_batch,
)
from windlass.journals.live.inbox import BatchInbox
from windlass.journals.live.places import (
    connect_socket,
    journal_prefix,
    list_sockets,
    open_socket_folder,
)
from windlass.journals.live.socket_server import WatchRequest
from windlass.logs import get_logger

SEARCH_S = 1.0
"""How often to look for drivers that are new."""
ASK_GAP_S = 0.05
"""How often a snapshot is asked for at most."""
RENEW_S = 5.0
"""How often an interest is renewed: before it expires, though two renewals come late."""
SHUN_S = 30.0
"""How long a socket is left alone that did not speak as it should."""
RETRY_S = 0.1
"""How long a socket is left alone whose connection was closed."""
DRIVERS_MAX = 64
"""Connections to processes that have the same journal open for driving."""
_encode_json = msgspec.json.Encoder().encode
_log = get_logger(__name__)


class SocketSubscription:
    """Watches one session in whichever processes drive it, one after the other."""

    def __init__(self, journal: Path, session: str) -> None:
        self._session = session
        self._prefix = journal_prefix(journal)
        self._inbox = BatchInbox()
        self._loop = asyncio.get_running_loop()
        self._connections: dict[str, _DriverConnection] = {}
        self._shunned: dict[str, float] = {}
        """Until when a socket is left alone, by its name."""
        self._needs_snapshot = True
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._stay_connected())

    async def receive(self) -> LiveBatch:
        return await self._inbox.receive()

    def ask_snapshot(self) -> None:
        self._needs_snapshot = True
        self._wake.set()

    def close(self) -> None:
        self._task.cancel()
        for connection in tuple(self._connections.values()):
            connection.abort()

    async def _stay_connected(self) -> None:
        """Connect to drivers that are new, renew the interest, and ask for snapshots."""
        renew_at = 0.0
        while True:
            self._wake.clear()
            now = self._loop.time()
            asks = self._needs_snapshot
            self._needs_snapshot = False
            # Those that are new ask by themselves.
            known = tuple(self._connections.values())
            with suppress(OSError):
                # The folder is missing until the first driver of this user has made it.
                folder = open_socket_folder(create=False)
                for name in self._find_new(folder, now):
                    await self._connect(folder, name)
            if asks or now >= renew_at:
                renew_at = now + RENEW_S
                for connection in known:
                    connection.request(asks=asks)
            await asyncio.sleep(ASK_GAP_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(SEARCH_S):
                    await self._wake.wait()

    def _find_new(self, folder: Path, now: float) -> list[str]:
        self._shunned = {name: until for name, until in self._shunned.items() if until > now}
        known = self._connections.keys() | self._shunned.keys()
        new = [name for name in list_sockets(folder, self._prefix) if name not in known]
        return new[: DRIVERS_MAX - len(self._connections)]

    async def _connect(self, folder: Path, name: str) -> None:
        connected = connect_socket(folder, name)
        if connected is None:
            return
        connection = _DriverConnection(self, name, self._session)
        self._connections[name] = connection
        try:
            await self._loop.create_connection(lambda: connection, sock=connected)
        except BaseException:
            connected.close()
            self._connections.pop(name, None)
            raise

    # Called by connections.

    def take_batch(self, batch: LiveBatch) -> None:
        self._inbox.put(batch)

    def forget(self, name: str, *, is_bad: bool) -> None:
        """A connection is over; look at once whether there is another driver."""
        self._connections.pop(name, None)
        self._shunned[name] = self._loop.time() + (SHUN_S if is_bad else RETRY_S)
        self.ask_snapshot()


class _DriverConnection(asyncio.Protocol):
    def __init__(self, subscription: SocketSubscription, name: str, session: str) -> None:
        self._subscription = subscription
        self._name = name
        self._session = session
        self._reader = FrameReader(BATCH_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._is_bad = False

    def request(self, *, asks: bool) -> None:
        # A driver that is stopped reads nothing: then there is nothing to renew either.
        if self._transport is not None and not self._transport.get_write_buffer_size():
            self._transport.write(build_frame(_encode_json(WatchRequest(self._session, asks))))

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.request(asks=True)

    @override
    def data_received(self, data: bytes) -> None:
        try:
            for body in self._reader.feed(data):
                self._subscription.take_batch(decode_batch(body))
        except BadFrame as error:
            self._is_bad = True
            _log.warning("a process that drives sessions sent something odd: %s", error)
            self.abort()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._subscription.forget(self._name, is_bad=self._is_bad)
