"""What a runtime that died has left running, found and ended by the next one.

The law: never a process that is not ours. Every process that a runtime starts carries a marker in
its environment, random and its own; only who carries the marker of a dead runtime, or descends from
one that does, is ended. A runtime is dead if the lock on its file is free and its process is gone.

The file of a runtime is named by its marker; what stands in it (the open calls and their commands)
only serves to tell of them, so a torn one does no harm.
"""

import fcntl
import json
import os
import secrets
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast, final

from windlass.tools.shell.processes import (
    ProcessInfo,
    find_ancestors,
    find_descendants,
    find_process,
    kill_processes,
    list_processes,
)

MARKER = "WINDLASS_CALL"
"""The environment variable that says whose a process is: `<runtime>/<call>`."""
COMMAND_CHARS_MAX = 500
REAP_S_MAX = 3.0
"""What is not dead by then cannot be killed."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ReapedProcess:
    """A process that outlived its runtime, and was ended."""

    pid: int
    program: str
    """Its own command line."""
    command: str
    """The command of the call that it belonged to, if that is still known."""
    call: str
    """`<runtime>/<call>`, as its marker says."""
    started: datetime | None
    """When that call began."""


@final
class ProcessReaper:
    """The registry of one runtime, and the end of what others have left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._token = secrets.token_hex(16)
        self._registry_path = folder / f"{self._token}.json"
        self._calls: dict[str, dict[str, Any]] = {}
        self._registry_fd = -1
        self._lock = threading.Lock()

    def register_command(self, command: str) -> str:
        """Put a command on record before it runs, and return the marker that it must carry."""
        marker = f"{self._token}/{secrets.token_hex(4)}"
        about = {"command": command[:COMMAND_CHARS_MAX], "started": time.time()}
        with self._lock:
            self._calls[marker] = about
            self._write_registry()
        return marker

    def forget_command(self, marker: str) -> None:
        """Nothing of this command runs any more."""
        with self._lock:
            if self._calls.pop(marker, None) is not None:
                self._write_registry()

    def close(self) -> None:
        """Give the file up if nothing runs any more; else the next runtime has to look."""
        with self._lock:
            if self._registry_fd >= 0 and not self._calls:
                self._registry_path.unlink(missing_ok=True)
                os.close(self._registry_fd)
                self._registry_fd = -1

    def reap_leftovers(self) -> list[ReapedProcess]:
        """End what dead runtimes have left, and say what that was."""
        found: list[ReapedProcess] = []
        for path in sorted(self.folder.glob("*.json")):
            if path == self._registry_path:
                continue
            with suppress(OSError), path.open("r+b") as file:
                record = _parse_registry(file.read())
                if _is_locked_by_other(file.fileno()) or _is_runtime_alive(record):
                    continue
                found += [one.to_reaped(record) for one in kill_marked(f"{path.stem}/")]
                path.unlink()
        return found

    def _write_registry(self) -> None:
        if self._registry_fd < 0:
            self._registry_fd = self._open_registry()
        me = find_process(os.getpid())
        record = {"pid": os.getpid(), "start": me.start if me else 0, "calls": self._calls}
        data = json.dumps(record).encode()
        os.ftruncate(self._registry_fd, 0)
        os.pwrite(self._registry_fd, data, 0)

    def _open_registry(self) -> int:
        """The file of this runtime: it is locked before anyone can find it under its name."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with suppress(FileExistsError), (self.folder / ".gitignore").open("x") as ignore:
            ignore.write("*\n")
        unborn = self._registry_path.with_suffix(".new")
        fd = os.open(unborn, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        _is_locked_by_other(fd)
        unborn.rename(self._registry_path)
        return fd


@final
@dataclass(frozen=True, slots=True)
class MarkedProcess:
    """A process that carries a marker, or descends from one that does."""

    process: ProcessInfo
    marker: str
    program: str

    def to_reaped(self, record: dict[str, Any]) -> ReapedProcess:
        about: dict[str, Any] = record.get("calls", {}).get(self.marker, {})
        started = about.get("started")
        return ReapedProcess(
            pid=self.process.pid,
            program=self.program,
            command=about.get("command", ""),
            call=self.marker,
            started=None if started is None else datetime.fromtimestamp(started, UTC),
        )


def kill_marked(prefix: str) -> list[MarkedProcess]:
    """Kill all whose marker begins so, with all that descends from them."""
    known: dict[tuple[int, int], MarkedProcess] = {}
    killed: dict[tuple[int, int], MarkedProcess] = {}

    def find_marked() -> list[ProcessInfo]:
        found = {(one.process.pid, one.process.start): one for one in _find_marked(prefix)}
        known.update(found)
        return [one.process for one in found.values()]

    until = time.monotonic() + REAP_S_MAX
    while (dead := kill_processes(find_marked)) and time.monotonic() < until:
        killed.update({(one.pid, one.start): known[one.pid, one.start] for one in dead})
        time.sleep(0.01)
    return list(killed.values())


def _find_marked(prefix: str) -> list[MarkedProcess]:
    # A runtime that was itself started by such a command must not end itself.
    spared = find_ancestors(os.getpid())
    own = [
        _check_marker(one, prefix)
        for one in list_processes()
        if one.is_alive and one.pid not in spared
    ]
    heads = [one for one in own if one is not None]
    known = {one.process.pid for one in heads}
    heirs = [one for one in find_descendants(*known) if one.pid not in known | spared]
    return heads + [MarkedProcess(one, f"{prefix}?", _command_line(one)) for one in heirs]


def _check_marker(one: ProcessInfo, prefix: str) -> MarkedProcess | None:
    wanted = f"{MARKER}={prefix}".encode()
    for variable in one.read_environ().split(b"\0"):
        if variable.startswith(wanted) and one.is_same_process():
            return MarkedProcess(
                one, variable.partition(b"=")[2].decode(errors="replace"), _command_line(one)
            )
    return None


def _command_line(one: ProcessInfo) -> str:
    words = one.read_proc_file("cmdline").rstrip(b"\0").split(b"\0")
    return b" ".join(words).decode(errors="replace")[:COMMAND_CHARS_MAX]


def _is_locked_by_other(fd: int) -> bool:
    """Take the lock, and say whether another has it. Where there are no locks, nobody has."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _is_runtime_alive(record: dict[str, Any]) -> bool:
    try:
        return ProcessInfo(int(record["pid"]), 0, int(record["start"])).is_same_process()
    except (KeyError, TypeError, ValueError):
        return False


def _parse_registry(data: bytes) -> dict[str, Any]:
    try:
        record: Any = json.loads(data)
    except ValueError:
        return {}
    return cast("dict[str, Any]", record) if isinstance(record, dict) else {}
