"""The driver's side of the live channel of a file: a socket, served by its own thread.

Invariant: a peer on the other end cannot slow a run down or make it use more memory. The event loop
of the driver only puts bytes into bounded buffers. A watcher that falls behind loses all that waits
for it, and gets a snapshot when it has caught up. One that does not renew its interest is dropped.
"""

import asyncio
import os
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakSet

import msgspec

from windlass.core.live_batch import LiveBatch
from windlass.journals.live.frames import BadFrame, FrameReader, build_frame, encode_batch
from windlass.journals.live.inbox import call_in_loop
from windlass.journals.live.places import (
    journal_prefix,
    new_socket_name,
    open_socket_folder,
    remove_stale_sockets,
    socket_address,
)
from windlass.logs import get_logger

INTEREST_S = 15.0
"""How long a watcher may be silent before its interest has expired."""
SWEEP_S = 1.0
WATCHERS_MAX = 256
REQUEST_BYTES_MAX = 16_384
WAITING_BYTES_MAX = 1_000_000
"""What may wait for one watcher, unless a single batch is longer."""
READ_BYTES = 65_536
CLOSE_TIMEOUT_S = 2.0
_PEER_CREDENTIALS = struct.Struct("3i")
_log = get_logger(__name__)
_servers: WeakSet["LiveSocketServer"] = WeakSet()


class WatchRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a watcher says: which session it watches, and whether it needs a snapshot.

    Each request renews its interest.
    """

    session: str
    asks: bool = False


_decode_request = msgspec.json.Decoder(WatchRequest).decode


class SocketSender:
    """The driver's side, for one session."""

    def __init__(
        self, server: "LiveSocketServer", session: str, on_interest: Callable[[bool], None]
    ) -> None:
        self.session = session
        self._server = server
        self._on_interest = on_interest
        self._loop = asyncio.get_running_loop()

    def tell_interest(self, *, is_wanted: bool) -> None:
        """Tell the driver, from any thread."""
        call_in_loop(self._loop, lambda: self._on_interest(is_wanted))

    def send(self, batch: LiveBatch) -> None:
        self._server.send(self, batch)

    def close(self) -> None:
        self._server.remove_sender(self)


class _SocketWatcher:
    """One connection, and the bytes that wait for it."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.reader = FrameReader(REQUEST_BYTES_MAX)
        self.session: str | None = None
        self.heard_at = time.monotonic()
        self.is_behind = False
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._sent_of_first = 0

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def add(self, frame: bytes) -> None:
        """Let a frame wait; if there are too many, drop all but the one that is half sent."""
        if self.is_behind:
            return
        if self._waiting and self._waiting_bytes + len(frame) > WAITING_BYTES_MAX:
            self.is_behind = True
            half_sent = [self._waiting[0]] if self._sent_of_first else []
            self._waiting = deque(half_sent)
            self._waiting_bytes = sum(map(len, half_sent))
            return
        self._waiting.append(frame)
        self._waiting_bytes += len(frame)

    def send_some(self) -> None:
        """Send what the connection takes now. Raises OSError when it is broken."""
        with suppress(BlockingIOError):
            while self._waiting:
                frame = self._waiting[0]
                self._sent_of_first += self.connection.send(frame[self._sent_of_first :])
                if self._sent_of_first == len(frame):
                    self._waiting.popleft()
                    self._waiting_bytes -= len(frame)
                    self._sent_of_first = 0


class LiveSocketServer:
    """Serves the watchers of all sessions that this process drives through one journal object."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._mutex = threading.Lock()
        self._senders: dict[str, set[SocketSender]] = {}
        self._watchers: set[_SocketWatcher] = set()
        self._thread: threading.Thread | None = None
        self._listener: socket.socket | None = None
        self._wake_sockets: tuple[socket.socket, ...] = ()
        self._process = os.getpid()
        self._is_closed = False
        self._has_failed = False

    # Called by drivers, in their event loops.

    def open_sender(self, session: str, on_interest: Callable[[bool], None]) -> SocketSender:
        """Open the driver's side of a session. The first one starts the thread."""
        sender = SocketSender(self, session, on_interest)
        with self._mutex:
            self._senders.setdefault(session, set()).add(sender)
            is_watched = any(watcher.session == session for watcher in self._watchers)
            if self._thread is None and not (self._is_closed or self._has_failed):
                self._start()
        if is_watched:
            sender.tell_interest(is_wanted=True)
        return sender

    def remove_sender(self, sender: SocketSender) -> None:
        """Forget a driver that is done."""
        with self._mutex:
            senders = self._senders.get(sender.session, set())
            senders.discard(sender)
            if not senders:
                self._senders.pop(sender.session, None)

    def send(self, sender: SocketSender, batch: LiveBatch) -> None:
        """Let a batch wait for each watcher of its session."""
        with self._mutex:
            session = sender.session
            watchers = [watcher for watcher in self._watchers if watcher.session == session]
            if not watchers or sender not in self._senders.get(session, ()):
                return
            body = encode_batch(batch)
            if body is None:
                return
            frame = build_frame(body)
            for watcher in watchers:
                watcher.add(frame)
        self._wake()

    def close(self) -> None:
        """Stop the thread and remove the socket."""
        with self._mutex:
            self._is_closed = True
            thread = self._thread
        if thread is None or self._process != os.getpid():
            return
        self._wake()
        if thread is not threading.current_thread():
            thread.join(CLOSE_TIMEOUT_S)

    def drop_inherited(self) -> None:
        """In a forked child: close the copies of the parent's sockets."""
        # A thread of the parent may have held the old mutex, and that thread is not in the child.
        self._mutex = threading.Lock()
        self._is_closed = True
        inherited = [watcher.connection for watcher in self._watchers]
        for one in (self._listener, *self._wake_sockets, *inherited):
            if one is not None:
                one.close()

    def _wake(self) -> None:
        if self._wake_sockets:
            # A full pipe wakes the thread too, and the thread of a closed one has ended.
            with suppress(OSError):
                self._wake_sockets[1].send(b"\0")

    def _start(self) -> None:
        try:
            listener, path = self._listen()
        except (OSError, AttributeError) as error:
            # A system without such sockets, or a home folder that cannot be written.
            self._has_failed = True
            _log.info("watchers in other processes see facts only, no deltas: %s", error)
            return
        _register_fork_hook(self)
        self._thread = threading.Thread(
            target=self._serve,
            args=(listener, path),
            name=f"live {self._journal}",
            daemon=True,
        )
        self._thread.start()

    def _listen(self) -> tuple[socket.socket, Path]:
        folder = open_socket_folder(create=True)
        name = new_socket_name(journal_prefix(self._journal))
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with socket_address(folder, name) as address:
                listener.bind(address)
            path = folder / name
            path.chmod(0o600)
            listener.listen(WATCHERS_MAX)
        except BaseException:
            listener.close()
            raise
        listener.settimeout(0)
        self._listener = listener
        self._wake_sockets = socket.socketpair()
        for one in self._wake_sockets:
            one.settimeout(0)
        return listener, path

    # What follows runs in the thread.

    def _serve(self, listener: socket.socket, path: Path) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ, partial(self._accept, listener))
            selector.register(self._wake_sockets[0], selectors.EVENT_READ, self._drain_wakes)
            try:
                remove_stale_sockets(path)
                while not self._is_closed:
                    self._serve_once(selector)
            except Exception:  # noqa: BLE001 - what is shown cannot stop a process
                _log.exception("watchers in other processes see no more deltas of this process")
            finally:
                with suppress(OSError):
                    path.unlink()
                for watcher in tuple(self._watchers):
                    self._drop(selector, watcher)
                for one in (listener, *self._wake_sockets):
                    one.close()

    def _serve_once(self, selector: selectors.BaseSelector) -> None:
        # Without watchers the thread sleeps until there is one.
        for key, _ in selector.select(SWEEP_S if self._watchers else None):
            if isinstance(key.data, _SocketWatcher):
                self._guarded(selector, key.data, self._read_requests)
            else:
                key.data(selector)
        now = time.monotonic()
        for watcher in tuple(self._watchers):
            if now - watcher.heard_at > INTEREST_S:
                self._drop(selector, watcher)
            elif watcher.has_waiting or watcher.is_behind:
                self._guarded(selector, watcher, self._send_waiting)
            wants = selectors.EVENT_READ
            if watcher.has_waiting:
                wants |= selectors.EVENT_WRITE
            if watcher in self._watchers and selector.get_key(watcher.connection).events != wants:
                selector.modify(watcher.connection, wants, watcher)

    def _guarded(
        self,
        selector: selectors.BaseSelector,
        watcher: _SocketWatcher,
        work: Callable[[_SocketWatcher], None],
    ) -> None:
        """Do something with a connection, and drop it if it is broken or talks nonsense."""
        try:
            if watcher in self._watchers:
                work(watcher)
        except (OSError, BadFrame, msgspec.MsgspecError, ValueError):
            self._drop(selector, watcher)

    def _accept(self, listener: socket.socket, selector: selectors.BaseSelector) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                if len(self._watchers) >= WATCHERS_MAX or not _is_same_user(connection):
                    connection.close()
                    continue
                connection.settimeout(0)
                watcher = _SocketWatcher(connection)
                with self._mutex:
                    self._watchers.add(watcher)
                selector.register(connection, selectors.EVENT_READ, watcher)

    def _drain_wakes(self, _selector: selectors.BaseSelector) -> None:
        with suppress(OSError):
            while self._wake_sockets[0].recv(READ_BYTES):
                pass

    def _read_requests(self, watcher: _SocketWatcher) -> None:
        try:
            data = watcher.connection.recv(READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise BadFrame("the watcher has left")
        for body in watcher.reader.feed(data):
            request = _decode_request(body)
            if watcher.session not in (None, request.session):
                raise BadFrame("a connection is for one session")
            is_new = watcher.session is None
            with self._mutex:
                watcher.session = request.session
            watcher.heard_at = time.monotonic()
            if is_new or request.asks:
                self._tell_interest(request.session, is_wanted=True)

    def _send_waiting(self, watcher: _SocketWatcher) -> None:
        with self._mutex:
            watcher.send_some()
            has_caught_up = watcher.is_behind and not watcher.has_waiting
            if has_caught_up:
                watcher.is_behind = False
        if has_caught_up and watcher.session is not None:
            self._tell_interest(watcher.session, is_wanted=True)

    def _drop(self, selector: selectors.BaseSelector, watcher: _SocketWatcher) -> None:
        with self._mutex:
            self._watchers.discard(watcher)
            session = watcher.session
            is_watched = any(other.session == session for other in self._watchers)
        with suppress(KeyError, ValueError):
            selector.unregister(watcher.connection)
        watcher.connection.close()
        if session is not None and not is_watched:
            self._tell_interest(session, is_wanted=False)

    def _tell_interest(self, session: str, *, is_wanted: bool) -> None:
        with self._mutex:
            senders = tuple(self._senders.get(session, ()))
        for sender in senders:
            sender.tell_interest(is_wanted=is_wanted)


def _is_same_user(connection: socket.socket) -> bool:
    """Whether the other end runs as this user or as root; where the system cannot tell, it is."""
    option: Any = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    data = connection.getsockopt(socket.SOL_SOCKET, option, _PEER_CREDENTIALS.size)
    return _PEER_CREDENTIALS.unpack(data)[1] in (os.geteuid(), 0)


def _register_fork_hook(server: LiveSocketServer) -> None:
    if not _fork_hooks:
        _fork_hooks.append(_drop_inherited)
        os.register_at_fork(after_in_child=_drop_inherited)
    _servers.add(server)


def _drop_inherited() -> None:
    for server in list(_servers):
        server.drop_inherited()


_fork_hooks: list[Callable[[], None]] = []
"""Holds the hook once it is registered: it is for all servers of the process."""
