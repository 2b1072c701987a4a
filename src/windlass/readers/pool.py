"""Run functions on foreign bytes in processes that may die.

A parser can hang, abort or fill the memory, and it holds the interpreter's lock while it works, so
a thread is not enough. A pool starts one server process at the first job (`server.py`), which forks
a reader for each job.

Invariant: a job ends. Its reader is killed when its time is over, when it uses too much memory or
returns too much, and when the caller is cancelled.
"""

import asyncio
import atexit
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple, final

from windlass.readers.server import (
    DONE,
    FRAME,
    HEADER,
    PART,
    REFUSED,
    STARTED,
    JobRequest,
)

SERVER_PROGRAM = "from windlass.readers.server import main; main()"
STARTS_MAX = 3
"""How often a job is handed to a server. One that is idle may end just then: the second attempt
notices it, and the third one has a new server."""
_STOP_S = 1.0
_CHUNK_BYTES = 2**18


class ReaderJob(NamedTuple):
    """What a reader does, and its limits."""

    function: str
    """Where the function is: `module:name`. It takes the bytes, and yields parts as bytes."""
    arguments: Mapping[str, Any]
    """Keyword arguments of the function, which have a JSON form."""
    seconds: float
    memory_bytes: int
    result_bytes: int
    preload: tuple[str, ...] = ()
    """Modules that the server imports once, so that the next reader need not."""


class ReaderResult(NamedTuple):
    """What a reader returned before it ended."""

    parts: tuple[bytes, ...]
    failure: str = ""
    """Why it did not finish, in one line; empty if it did."""
    is_late: bool = False
    """Whether its time was over."""


@final
class ReaderPool:
    """Up to `readers_max` readers at a time, and the server process that forks them."""

    def __init__(self, readers_max: int) -> None:
        self._readers_max = readers_max
        self._lock = threading.Lock()
        self._owner_pid = 0
        self._threads: ThreadPoolExecutor
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    async def run(self, job: ReaderJob, data: bytes) -> ReaderResult:
        """Run a job, and wait for it without blocking the event loop. A cancel kills the reader."""
        call = _ReaderCall(self, job, data)
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._get_threads(), call.run)
        finally:
            call.stop()

    def run_blocking(self, job: ReaderJob, data: bytes) -> ReaderResult:
        """Run a job, and block this thread until it ends."""
        call = _ReaderCall(self, job, data)
        try:
            return self._get_threads().submit(call.run).result()
        finally:
            call.stop()  # After Ctrl-C, nothing works on.

    def _get_threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._owner_pid != os.getpid():
                self._owner_pid = os.getpid()
                self._threads = ThreadPoolExecutor(self._readers_max, "windlass-reader")
                self._control = self._process = None
            return self._threads

    def submit(self, job: ReaderJob, size: int, end: socket.socket) -> None:
        """Hand a job to the server, which is started if there is none. Raises OSError."""
        request = JobRequest(
            job.function,
            dict(job.arguments),
            list(job.preload),
            size,
            job.seconds,
            job.memory_bytes,
        )
        header = json.dumps(request).encode()
        with self._lock:
            control = self._control or self._start_server()
            try:
                socket.send_fds(control, [HEADER.pack(len(header))], [end.fileno()])
                control.sendall(header)
            except OSError:
                control.close()
                self._control = None
                raise

    def _start_server(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            # -P: a file beside a document must not take the place of a package.
            command = [sys.executable, "-P", "-c", SERVER_PROGRAM, str(theirs.fileno())]
            process = subprocess.Popen(  # noqa: S603 - our own program
                command,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # Ctrl-C in a terminal is for the runtime alone.
                start_new_session=True,
            )
        # It ends by itself when it is idle, and must not stay behind as a zombie.
        threading.Thread(target=process.wait, name="windlass-reader-end", daemon=True).start()
        if self._process is None:
            atexit.register(self._end_server)
        self._control, self._process = ours, process
        return ours

    def _end_server(self) -> None:
        if self._owner_pid != os.getpid() or self._process is None:
            return
        if self._control is not None:
            self._control.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_S)


@final
class _ReaderCall:
    """One job, from the caller's side."""

    def __init__(self, pool: ReaderPool, job: ReaderJob, data: bytes) -> None:
        self._pool = pool
        self._job = job
        self._data = data
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_stopped = False

    def stop(self) -> None:
        """End the job, from any thread: the server kills the reader when the socket is shut."""
        with self._lock:
            self._is_stopped = True
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def run(self) -> ReaderResult:
        result: ReaderResult | None = None
        for _ in range(STARTS_MAX):
            ours, theirs = socket.socketpair()
            with ours, theirs, suppress(OSError):
                with self._lock:
                    if self._is_stopped:
                        break
                    self._socket = ours
                try:
                    self._pool.submit(self._job, len(self._data), theirs)
                    theirs.close()
                    result = self._exchange(ours)
                finally:
                    with self._lock:
                        self._socket = None
            if result is not None:
                return result
        return ReaderResult((), "its reader could not be started")

    def _exchange(self, job: socket.socket) -> ReaderResult | None:
        """Send the input and collect the answer. Returns None if no reader has started."""
        deadline = time.monotonic() + self._job.seconds
        parts: list[bytes] = []
        is_started = False
        bytes_left = self._job.result_bytes
        try:
            with suppress(BrokenPipeError, ConnectionResetError):
                # A reader that ended early may have said why.
                _send_until(job, self._data, deadline)
            frames = _FrameReader(job, deadline)
            while (frame := frames.read(bytes_left)) is not None:
                kind, body = frame
                is_started = True
                bytes_left -= FRAME.size + len(body)
                if kind == PART:
                    parts.append(body)
                elif kind != STARTED:
                    return ReaderResult(
                        tuple(parts), self._describe_end(kind, body.decode("utf-8", "replace"))
                    )
        except TimeoutError:
            late = f"it takes more than {self._job.seconds:g} seconds"
            return ReaderResult(tuple(parts), late, is_late=True)
        except _TooLong:
            return ReaderResult(tuple(parts), "its reader returned too much")
        except ConnectionResetError:
            pass  # It ended before it had read all of its input.
        if not is_started:
            return None
        likely = f"most likely it needs more than {self._memory_limit} of memory"
        return ReaderResult(tuple(parts), f"its reader crashed: {likely}")

    @property
    def _memory_limit(self) -> str:
        return f"{self._job.memory_bytes / 2**20:.0f} MiB"

    def _describe_end(self, kind: bytes, text: str) -> str:
        if kind == DONE:
            return ""
        if kind == REFUSED:
            return text
        if text == "MemoryError":
            return f"it needs more than {self._memory_limit} of memory"
        return f"it cannot be read ({text})"


class _TooLong(Exception):
    pass


@final
class _FrameReader:
    """Reads the frames of an answer."""

    def __init__(self, job: socket.socket, deadline: float) -> None:
        self._job = job
        self._deadline = deadline
        self._pending = bytearray()

    def read(self, bytes_max: int) -> tuple[bytes, bytes] | None:
        """Return the kind and the body of the next frame; None at the end.

        Raises TimeoutError at the deadline, and `_TooLong` if the body is longer than `bytes_max`.
        """
        if not self._fill(FRAME.size):
            return None
        kind, size = FRAME.unpack_from(self._pending)
        if size > bytes_max:
            raise _TooLong
        if not self._fill(FRAME.size + size):
            return None
        body = bytes(self._pending[FRAME.size : FRAME.size + size])
        del self._pending[: FRAME.size + size]
        return kind, body

    def _fill(self, size: int) -> bool:
        while len(self._pending) < size:
            _set_timeout(self._job, self._deadline)
            chunk = self._job.recv(_CHUNK_BYTES)
            if not chunk:
                return False
            self._pending += chunk
        return True


def _send_until(job: socket.socket, data: bytes, deadline: float) -> None:
    view = memoryview(data)
    while view:
        _set_timeout(job, deadline)
        view = view[job.send(view[:_CHUNK_BYTES]) :]


def _set_timeout(job: socket.socket, deadline: float) -> None:
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    job.settimeout(seconds)
