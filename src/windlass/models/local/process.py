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
from windlass.models.http.errors import masked

_PROGRAM = Path(__file__).with_name("local_server.py")
DEATH_S = 1.0
"""How long a connection may be broken before its server is seen to be dead."""
LOG_BYTES_MAX = 4_096


@dataclass(frozen=True, slots=True)
class Weights:
    """A model's file, and how it is to be held in memory."""

    path: Path
    alias: str
    window: int
    threads: int


class Server:
    """A server that listens, or did."""

    def __init__(self, url: str, key: Secret) -> None:
        self.url = url
        self.key = key
        self.ended: Future[str] = Future()
        """What it died of, in words."""
        self.ended.set_running_or_notify_cancel()

    async def death(self) -> str | None:
        """What it died of, or None if it lives. Called when its connection broke."""
        await asyncio.wait({asyncio.wrap_future(self.ended)}, timeout=DEATH_S)
        return self.ended.result() if self.ended.done() else None


_Start = Future[Server]
_starts: dict[tuple[int, Weights], _Start] = {}
"""By process as well: a fork has none of its parent's servers, and must not stop them."""
_processes: set[tuple[int, subprocess.Popen[bytes]]] = set()
_one_at_a_time = threading.Lock()


async def server_of(weights: Weights) -> Server:
    """The running server of a model; starts it if there is none, or if it has died."""
    with _one_at_a_time:
        start = _starts.get((os.getpid(), weights))
        if start is None or _is_over(start):
            start = _starts[os.getpid(), weights] = _begin(weights)
    return await asyncio.wrap_future(start)


def _is_over(start: _Start) -> bool:
    if not start.done():
        return False
    return start.exception() is not None or start.result().ended.done()


def _begin(weights: Weights) -> _Start:
    _stop_at_exit()
    start: _Start = Future()
    start.set_running_or_notify_cancel()  # So that one who gives up does not cancel it for all.
    threading.Thread(target=_keep, args=(weights, start), name="local model", daemon=True).start()
    return start


def _keep(weights: Weights, start: _Start) -> None:
    """Start a server and stay with it: on Linux it dies with the thread that started it."""
    try:
        with tempfile.TemporaryFile() as log:
            _run(weights, start, log)
    except Exception as error:  # noqa: BLE001 - whoever waits must be told
        if not start.done():
            told = f"local: no server for {weights.alias}: {masked(str(error))}"
            start.set_exception(ModelError("server", told))


def _run(weights: Weights, start: _Start, log: IO[bytes]) -> None:
    command = [sys.executable, "-P", str(_PROGRAM)]
    pipe = subprocess.PIPE
    # In a session of its own, so that Ctrl-C in a terminal is for the runtime alone.
    with subprocess.Popen(  # noqa: S603 - our own program, and its order is not in the command
        command, stdin=pipe, stdout=pipe, stderr=log, start_new_session=True
    ) as process:
        owned = os.getpid(), process
        _processes.add(owned)
        try:
            server = _introduced(weights, process)
            if server is not None:
                start.set_result(server)
            code = process.wait()
        finally:
            process.kill()
            _processes.discard(owned)
    if server is None:
        start.set_exception(_stillborn(weights, code, log))
    else:
        server.ended.set_result(_cause(code))


def _introduced(weights: Weights, process: subprocess.Popen[bytes]) -> Server | None:
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
    return Server(msgspec.json.decode(line, type=dict[str, str])["url"], key) if line else None


def _stillborn(weights: Weights, code: int, log: IO[bytes]) -> ModelError:
    """Why a model could not be loaded. A kill may not come again; the rest will."""
    log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_BYTES_MAX))
    lines = log.read().decode("utf-8", "replace").splitlines()
    said = next((line for line in lines if " error" in line or "Error" in line), "")
    told = f"local: {weights.path} cannot be loaded ({_cause(code)})"
    return ModelError("server", f"{told}: {masked(said)}".rstrip(": "), retryable=code < 0)


def _cause(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


@cache
def _stop_at_exit() -> None:
    atexit.register(_stop)


def _stop() -> None:
    """End the servers of this process. They hold nothing that must be kept."""
    mine = [process for owner, process in _processes if owner == os.getpid()]
    for process in mine:
        process.kill()
    for process in mine:
        process.wait()
