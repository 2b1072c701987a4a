"""One server process per local model, shared by everything that uses the model in this process.

Invariant: a server is started once, at the first request, by a thread that stays with it until it
ends. Waiting for a server never blocks an event loop, and a caller that gives up does not stop the
server for the others.
"""

import asyncio
import atexit
import os
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from secrets import token_urlsafe
from typing import IO, cast

import msgspec

from windlass.core.errors import ModelError
from windlass.core.secrets.mask import Secret
from windlass.models.http.provider_errors import mask_keys

_SERVER_PROGRAM = Path(__file__).with_name("server.py")
EXIT_WAIT_S = 1.0
"""How long to wait, after a connection broke, for the exit of its server."""
LOG_BYTES_MAX = 4_096
"""How much of the end of a server's log is searched for an error."""


@dataclass(frozen=True, slots=True)
class LocalWeights:
    """A model's file, and how it is loaded."""

    path: Path
    alias: str
    window: int
    """In tokens."""
    threads: int


class LocalModelServer:
    """A server that listens, or did."""

    def __init__(self, url: str, key: Secret) -> None:
        self.url = url
        self.key = key
        self.exited: Future[str] = Future()
        """Gets the cause, in words, when the process has exited."""
        # A running future cannot be cancelled by a caller that stops waiting for it.
        self.exited.set_running_or_notify_cancel()

    async def exit_cause(self) -> str | None:
        """Return why the server exited, or None if it is running. Call it after a connection broke.

        Waits up to EXIT_WAIT_S, because the connection breaks before the exit is noticed.
        """
        await asyncio.wait({asyncio.wrap_future(self.exited)}, timeout=EXIT_WAIT_S)
        return self.exited.result() if self.exited.done() else None


_ServerStart = Future[LocalModelServer]
_starts: dict[tuple[int, LocalWeights], _ServerStart] = {}
"""By process id as well: a fork has none of its parent's servers, and must not stop them."""
_processes: set[tuple[int, subprocess.Popen[bytes]]] = set()
_starts_lock = threading.Lock()


async def get_server(weights: LocalWeights) -> LocalModelServer:
    """Return the running server of a model. Starts one if needed, even if the last one exited.

    Raises ModelError if it cannot be started.
    """
    with _starts_lock:
        start = _starts.get((os.getpid(), weights))
        if start is None or _is_start_over(start):
            start = _starts[os.getpid(), weights] = _start_thread(weights)
    return await asyncio.wrap_future(start)


def _is_start_over(start: _ServerStart) -> bool:
    if not start.done():
        return False
    return start.exception() is not None or start.result().exited.done()


def _start_thread(weights: LocalWeights) -> _ServerStart:
    _stop_at_exit()
    start: _ServerStart = Future()
    # A running future cannot be cancelled, so a caller that gives up does not cancel it for all.
    start.set_running_or_notify_cancel()
    threading.Thread(
        target=_supervise_server, args=(weights, start), name="local model", daemon=True
    ).start()
    return start


def _supervise_server(weights: LocalWeights, start: _ServerStart) -> None:
    """Start a server and stay with it: on Linux it dies with the thread that started it."""
    try:
        with tempfile.TemporaryFile() as log:
            _run_process(weights, start, log)
    except Exception as error:  # noqa: BLE001 - the callers that wait must get an answer
        if not start.done():
            message = f"local: cannot start a server for {weights.alias}: {mask_keys(str(error))}"
            start.set_exception(ModelError("server", message))


def _run_process(weights: LocalWeights, start: _ServerStart, log: IO[bytes]) -> None:
    # The process has its own session, so that Ctrl-C in a terminal reaches only the runtime.
    with subprocess.Popen(  # noqa: S603 - our own program; its settings are not in the command
        [sys.executable, "-P", str(_SERVER_PROGRAM)],
        # What a buffer could not write would be written again, and fail again, at its end.
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        start_new_session=True,
    ) as process:
        owned = os.getpid(), process
        _processes.add(owned)
        try:
            server = _wait_until_listening(weights, process)
            if server is not None:
                start.set_result(server)
            code = process.wait()
        finally:
            # Harmless for a process that has exited; needed if it did not understand us.
            process.kill()
            _processes.discard(owned)
    if server is None:
        start.set_exception(_load_error(weights, code, log))
    else:
        server.exited.set_result(_describe_exit(code))


def _wait_until_listening(
    weights: LocalWeights, process: subprocess.Popen[bytes]
) -> LocalModelServer | None:
    """Return the server once it listens, or None if its process ended before that."""
    key = Secret(token_urlsafe(24))
    settings = {
        "parent": os.getpid(),
        "path": str(weights.path),
        "alias": weights.alias,
        "window": weights.window,
        "threads": weights.threads,
        "key": key.reveal(),
    }
    stdin = cast("IO[bytes]", process.stdin)
    stdout = cast("IO[bytes]", process.stdout)
    try:
        # Over stdin, because other users of the machine can read a command line.
        stdin.write(msgspec.json.encode(settings) + b"\n")
        stdin.flush()
    except BrokenPipeError:
        return None
    line = stdout.readline()
    if not line:
        return None
    return LocalModelServer(msgspec.json.decode(line, type=dict[str, str])["url"], key)


def _load_error(weights: LocalWeights, code: int, log: IO[bytes]) -> ModelError:
    """Return why a model could not be loaded. Only a killed process is worth another attempt."""
    log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_BYTES_MAX))
    lines = log.read().decode("utf-8", "replace").splitlines()
    logged = next((line for line in lines if " error" in line or "Error" in line), "")
    message = f"local: {weights.path} cannot be loaded ({_describe_exit(code)})"
    if logged:
        message = f"{message}: {mask_keys(logged)}"
    return ModelError("server", message, retryable=code < 0)


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


@cache
def _stop_at_exit() -> None:
    atexit.register(_stop_servers)


def _stop_servers() -> None:
    """Kill the servers of this process. They hold nothing that must be kept."""
    own = [process for owner, process in _processes if owner == os.getpid()]
    for process in own:
        process.kill()
    for process in own:
        process.wait()
