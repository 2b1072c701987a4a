"""The process that forks a reader for each job: the other end of `pool`.

It has one thread and imports the packages that read a format once, so that a fork is safe and
cheap. A reader handles one job, inside its limits, and ends.

Invariant: no reader outlives its caller. If the caller closes the socket of a job, its reader is
killed. If the control socket ends, because the runtime ended or was killed, all of them are killed.
If this process is killed, the kernel kills them.
"""

import gc
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

IDLE_S = 60.0
"""Without a job for this long, the process ends. The next job starts another one."""
CPU_GRACE_S = 5
"""CPU time of a reader beyond its time limit, which the caller enforces by its own clock."""
HEADER = struct.Struct(">I")
FRAME = struct.Struct(">cI")
STARTED, PART, REFUSED, FAILED, DONE = b"s", b"p", b"r", b"f", b"d"
"""Kinds of frames. A refusal is a message for people; a failure is the name of an error."""

_PR_SET_PDEATHSIG = 1
_CHUNK_BYTES = 2**20


class JobRequest(NamedTuple):
    """What a reader has to do, as its caller sends it."""

    function: str
    """Where the function is: `module:name`. It takes the bytes, and yields parts of the result."""
    arguments: dict[str, Any]
    """Keyword arguments of the function, which have a JSON form."""
    preload: list[str]
    """Modules that are imported once, before the fork."""
    size: int
    """Bytes of input, which follow on the socket of the job."""
    seconds: float
    memory_bytes: int


class ReaderRefusal(Exception):
    """A reader does not read its input; the message says why, in one line."""


class _Reader(NamedTuple):
    pid: int
    job: int
    """Our copy of the job's socket. It shows when the caller hangs up."""
    pulse: int
    """The read end of a pipe that ends with the reader."""


def main() -> None:
    """Serve jobs from the control socket, whose descriptor is the first argument."""
    control = socket.socket(fileno=int(sys.argv[1]))
    # A reader that is aborted must not leave its memory, with the document in it, on the disk.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123 - starts fast
        # When the machine runs out of memory, a reader ends, and not the runtime.
        file.write("1000")
    with suppress(ImportError):
        import_module("ctypes")  # Once, for all readers.
    readers: list[_Reader] = []
    try:
        while _serve_events(control, readers):
            pass
    finally:
        for reader in readers:
            os.kill(reader.pid, signal.SIGKILL)


def _serve_events(control: socket.socket, readers: list[_Reader]) -> bool:
    """Wait for something to happen, and handle it. Returns whether to continue."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    for reader in readers:
        poll.register(reader.pulse, select.POLLIN)
        poll.register(reader.job, 0)  # Only whether the caller has hung up.
    events = dict(poll.poll(None if readers else IDLE_S * 1_000))
    for reader in tuple(readers):
        if reader.pulse in events:
            readers.remove(reader)
            os.waitpid(reader.pid, 0)
            os.close(reader.pulse)
            os.close(reader.job)  # The caller sees the end of the answer.
        elif reader.job in events:
            # It is not reaped yet, so the id is still its own. Its pulse ends next.
            os.kill(reader.pid, signal.SIGKILL)
    if control.fileno() in events:
        return _accept_job(control, readers)
    return bool(events)


def _accept_job(control: socket.socket, readers: list[_Reader]) -> bool:
    """Fork a reader for the next job. Returns False if there is no caller any more."""
    head, descriptors, _, _ = socket.recv_fds(control, HEADER.size, 1)
    if not descriptors:
        return False
    # The caller writes the whole request at once, under a lock.
    request = JobRequest(*json.loads(_receive_exactly(control, HEADER.unpack(head)[0])))
    for module in (request.function.partition(":")[0], *request.preload):
        with suppress(Exception):  # The reader imports it again, and reports the error.
            import_module(module)
    job = descriptors[0]
    # A collection in the reader would touch, and so copy, all that the server has imported.
    gc.freeze()
    pulse, pulse_end = os.pipe()
    server = os.getpid()
    pid = os.fork()
    if pid == 0:
        # A copy of a descriptor would hide the end of another reader from its caller.
        control.close()
        os.close(pulse)
        for other in readers:
            os.close(other.job)
            os.close(other.pulse)
        _run_reader(request, socket.socket(fileno=job), server)
    os.close(pulse_end)
    readers.append(_Reader(pid, job, pulse))
    return True


def _run_reader(request: JobRequest, job: socket.socket, server: int) -> NoReturn:
    """Be the reader: do the job, and end the process."""
    try:
        with suppress(ImportError, OSError, AttributeError):  # Only Linux has it.
            import_module("ctypes").CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != server:  # It ended before this process could ask for the signal.
            os._exit(1)
        _set_limits(request)
        _send_frame(job, STARTED)
        data = _receive_exactly(job, request.size)
        module, _, name = request.function.partition(":")
        function: Callable[..., Iterator[bytes]] = getattr(import_module(module), name)
        for part in function(data, **request.arguments):
            _send_frame(job, PART, part)
        _send_frame(job, DONE)
    except ReaderRefusal as refusal:
        with suppress(OSError):
            _send_frame(job, REFUSED, str(refusal).encode("utf-8", "replace"))
    except Exception as error:  # noqa: BLE001 - readers raise errors of many kinds
        with suppress(OSError):
            _send_frame(job, FAILED, type(error).__name__.encode("utf-8", "replace"))
    finally:
        os._exit(0)


def _set_limits(request: JobRequest) -> None:
    cpu_s = max(int(request.seconds), 0) + CPU_GRACE_S
    limits = {
        resource.RLIMIT_AS: request.memory_bytes,
        resource.RLIMIT_CPU: cpu_s,
        resource.RLIMIT_FSIZE: 0,
    }
    for kind, limit in limits.items():
        with suppress(ValueError, OSError):  # Not every system has all of these limits.
            resource.setrlimit(kind, (limit, limit))


def _receive_exactly(source: socket.socket, size: int) -> bytes:
    """Return exactly this many bytes. Raises EOFError if the other end closes before."""
    data = bytearray()
    while len(data) < size:
        chunk = source.recv(min(size - len(data), _CHUNK_BYTES))
        if not chunk:
            raise EOFError
        data += chunk
    return bytes(data)


def _send_frame(job: socket.socket, kind: bytes, body: bytes = b"") -> None:
    job.sendall(FRAME.pack(kind, len(body)) + body)
