"""One server process per local model, shared by all who ask in this process.

The law: a server is started once, at the first request, by a thread that stays with it until it
ends. Nobody who waits for it holds up an event loop, and none of them can stop it by giving up.
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
from windlass.core.secrets.secret import Secret
from windlass.models.http.errors import mask_keys

_SERVER_PROGRAM = Path(__file__).with_name("server.py")
EXIT_WAIT_S = 1.0
"""How long a connection may be broken before its server is seen to be dead."""
LOG_BYTES_MAX = 4_096


@dataclass(frozen=True, slots=True)
class LocalWeights:
    """A model's file, and how it is to be held in memory."""

    path: Path
    alias: str
    window: int
    threads: int


class LocalModelServer:
    """A server that listens, or did."""

    def __init__(self, url: str, key: Secret) -> None:
        self.url = url
        self.key = key
        self.exited: Future[str] = Future()
        """What it died of, in words."""
        self.exited.set_running_or_notify_cancel()

    async def exit_cause(self) -> str | None:
        """What it died of, or None if it lives. Called when its connection broke."""
        await asyncio.wait({asyncio.wrap_future(self.exited)}, timeout=EXIT_WAIT_S)
        return self.exited.result() if self.exited.done() else None


_ServerStart = Future[LocalModelServer]
_starts: dict[tuple[int, LocalWeights], _ServerStart] = {}
"""By process as well: a fork has none of its parent's servers, and must not stop them."""
_processes: set[tuple[int, subprocess.Popen[bytes]]] = set()
_starts_lock = threading.Lock()


async def get_server(weights: LocalWeights) -> LocalModelServer:
    """The running server of a model; starts it if there is none, or if it has died."""
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
    start.set_running_or_notify_cancel()  # So that one who gives up does not cancel it for all.
    threading.Thread(
        target=_supervise_server, args=(weights, start), name="local model", daemon=True
    ).start()
    return start


def _supervise_server(weights: LocalWeights, start: _ServerStart) -> None:
    """Start a server and stay with it: on Linux it dies with the thread that started it."""
    try:
        with tempfile.TemporaryFile() as log:
            _run_process(weights, start, log)
    except Exception as error:  # noqa: BLE001 - whoever waits must be told
        if not start.done():
            told = f"local: no server for {weights.alias}: {mask_keys(str(error))}"
            start.set_exception(ModelError("server", told))


def _run_process(weights: LocalWeights, start: _ServerStart, log: IO[bytes]) -> None:
    command = [sys.executable, "-P", str(_SERVER_PROGRAM)]
    pipe = subprocess.PIPE
    # In a session of its own, so that Ctrl-C in a terminal is for the runtime alone.
    with subprocess.Popen(  # noqa: S603 - our own program, and its order is not in the command
        command, stdin=pipe, stdout=pipe, stderr=log, start_new_session=True
    ) as process:
        owned = os.getpid(), process
        _processes.add(owned)
        try:
            server = _wait_until_listening(weights, process)
            if server is not None:
                start.set_result(server)
            code = process.wait()
        finally:
            process.kill()
            _processes.discard(owned)
    if server is None:
        start.set_exception(_load_error(weights, code, log))
    else:
        server.exited.set_result(_describe_exit(code))


def _wait_until_listening(
    weights: LocalWeights, process: subprocess.Popen[bytes]
) -> LocalModelServer | None:
    """The server once it listens, or None if it ended before that."""
    key = Secret(token_urlsafe(24))
    order = {
        "parent": os.getpid(),
        "path": str(weights.path),
        "alias": weights.alias,
        "window": weights.window,
        "threads": weights.threads,
        "key": key.reveal(),
    }
    stdin, stdout = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
    try:
        stdin.write(msgspec.json.encode(order) + b"\n")
        stdin.flush()
    except BrokenPipeError:
        return None
    line = stdout.readline()
    return (
        LocalModelServer(msgspec.json.decode(line, type=dict[str, str])["url"], key)
        if line
        else None
    )


def _load_error(weights: LocalWeights, code: int, log: IO[bytes]) -> ModelError:
    """Why a model could not be loaded. A kill may not come again; the rest will."""
    log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_BYTES_MAX))
    lines = log.read().decode("utf-8", "replace").splitlines()
    said = next((line for line in lines if " error" in line or "Error" in line), "")
    told = f"local: {weights.path} cannot be loaded ({_describe_exit(code)})"
    return ModelError("server", f"{told}: {mask_keys(said)}".rstrip(": "), retryable=code < 0)


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
    """End the servers of this process. They hold nothing that must be kept."""
    mine = [process for owner, process in _processes if owner == os.getpid()]
    for process in mine:
        process.kill()
    for process in mine:
        process.wait()
