"""Finds and ends the processes that a dead runtime left running.

Invariant: only our own processes are ended. Every process that a runtime starts has a marker in its
environment, which is random and unique to that runtime. Only a process with the marker of a dead
runtime, or a descendant of one, is ended. A runtime is dead if the lock on its registry file is
free and its process is gone.

The registry file of a runtime is named by its marker. Its content (the running commands) only
serves to describe them, so a torn file does no harm. A stranger may have made the folder: nothing
with another name, and nothing behind a link, is opened or removed.
"""

import fcntl
import json
import os
import re
import secrets
import stat
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast, final

from windlass.tools.processes import (
    ProcessInfo,
    find_ancestors,
    find_descendants,
    find_process,
    kill_processes,
    list_processes,
)

MARKER = "WINDLASS_CALL"
"""The environment variable that says which call a process belongs to: `<runtime>/<call>`."""
COMMAND_CHARS_MAX = 500
REGISTRY_NAME = re.compile(r"[0-9a-f]{32}\.json")
REGISTRY_BYTES_MAX = 1_048_576
REAP_S_MAX = 3.0
"""A process that is not dead by then cannot be killed."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ReapedProcess:
    """A process that outlived its runtime, and was ended."""

    pid: int
    program: str
    """Its command line."""
    command: str
    """The command of the call that it belonged to; empty if that is no longer known."""
    call: str
    """`<runtime>/<call>`, from its marker."""
    started: datetime | None
    """When that call began."""


@final
class ProcessReaper:
    """The registry of one runtime, and the end of what other runtimes left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._token = secrets.token_hex(16)
        self._registry_path = folder / f"{self._token}.json"
        self._calls: dict[str, dict[str, Any]] = {}
        self._registry_fd = -1
        self._lock = threading.Lock()

    def register_command(self, command: str) -> str:
        """Record a command before it runs, and return the marker that its processes must have."""
        marker = f"{self._token}/{secrets.token_hex(4)}"
        with self._lock:
            self._calls[marker] = {
                "command": command[:COMMAND_CHARS_MAX],
                "started": time.time(),
            }
            self._write_registry()
        return marker

    def forget_command(self, marker: str) -> None:
        """Remove a command of which nothing runs any more."""
        with self._lock:
            if self._calls.pop(marker, None) is not None:
                self._write_registry()

    def close(self) -> None:
        """Remove the registry if nothing runs any more; otherwise the next runtime reads it."""
        with self._lock:
            if self._registry_fd >= 0 and not self._calls:
                self._registry_path.unlink(missing_ok=True)
                os.close(self._registry_fd)
                self._registry_fd = -1

    def reap_leftovers(self) -> list[ReapedProcess]:
        """End what dead runtimes left running, and return what it was."""
        reaped: list[ReapedProcess] = []
        for path in sorted(self.folder.glob("*.json")):
            if path == self._registry_path or not REGISTRY_NAME.fullmatch(path.name):
                continue
            with suppress(OSError), os.fdopen(_open_plain_file(path), "r+b") as file:
                registry = _parse_registry(file.read(REGISTRY_BYTES_MAX))
                if _is_locked_by_other(file.fileno()) or _is_runtime_alive(registry):
                    continue
                reaped += [marked.to_reaped(registry) for marked in kill_marked(f"{path.stem}/")]
                path.unlink()
        return reaped

    def _write_registry(self) -> None:
        if self._registry_fd < 0:
            self._registry_fd = self._open_registry()
        own_process = find_process(os.getpid())
        registry = {
            "pid": os.getpid(),
            "start": own_process.start if own_process else 0,
            "calls": self._calls,
        }
        os.ftruncate(self._registry_fd, 0)
        os.pwrite(self._registry_fd, json.dumps(registry).encode(), 0)

    def _open_registry(self) -> int:
        """Create the registry. It is locked before another runtime can find it by its name."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with suppress(FileExistsError), (self.folder / ".gitignore").open("x") as ignore:
            ignore.write("*\n")
        temporary = self._registry_path.with_suffix(".new")
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        _is_locked_by_other(fd)
        temporary.rename(self._registry_path)
        return fd


@final
@dataclass(frozen=True, slots=True)
class MarkedProcess:
    """A process that has a marker, or descends from one that has."""

    process: ProcessInfo
    marker: str
    program: str

    def to_reaped(self, registry: dict[str, Any]) -> ReapedProcess:
        call: dict[str, Any] = registry.get("calls", {}).get(self.marker, {})
        started = call.get("started")
        return ReapedProcess(
            pid=self.process.pid,
            program=self.program,
            command=call.get("command", ""),
            call=self.marker,
            started=None if started is None else datetime.fromtimestamp(started, UTC),
        )


def kill_marked(prefix: str) -> list[MarkedProcess]:
    """Kill all processes whose marker begins with `prefix`, and all their descendants."""
    seen: dict[tuple[int, int], MarkedProcess] = {}
    killed: dict[tuple[int, int], MarkedProcess] = {}

    def find_marked() -> list[ProcessInfo]:
        found = _find_marked(prefix)
        seen.update({(marked.process.pid, marked.process.start): marked for marked in found})
        return [marked.process for marked in found]

    until = time.monotonic() + REAP_S_MAX
    while (dead := kill_processes(find_marked)) and time.monotonic() < until:
        killed.update({(one.pid, one.start): seen[one.pid, one.start] for one in dead})
        time.sleep(0.01)
    return list(killed.values())


def _find_marked(prefix: str) -> list[MarkedProcess]:
    # A runtime that was itself started by such a command must not end itself.
    spared = find_ancestors(os.getpid())
    marked: list[MarkedProcess] = []
    for process in list_processes():
        if process.is_alive and process.pid not in spared:
            marker = _read_marker(process, prefix)
            if marker is not None:
                marked.append(MarkedProcess(process, marker, _command_line(process)))
    pids = {one.process.pid for one in marked}
    descendants = [one for one in find_descendants(*pids) if one.pid not in pids | spared]
    return marked + [MarkedProcess(one, f"{prefix}?", _command_line(one)) for one in descendants]


def _read_marker(process: ProcessInfo, prefix: str) -> str | None:
    wanted = f"{MARKER}={prefix}".encode()
    for variable in process.read_environ().split(b"\0"):
        # Asked after the environment was read, so that it was the environment of this process.
        if variable.startswith(wanted) and process.is_same_process():
            return variable.partition(b"=")[2].decode(errors="replace")
    return None


def _command_line(process: ProcessInfo) -> str:
    words = process.read_proc_file("cmdline").rstrip(b"\0").split(b"\0")
    return b" ".join(words).decode(errors="replace")[:COMMAND_CHARS_MAX]


def _open_plain_file(path: Path) -> int:
    """Open a registry file. Raises OSError if it is a link, a pipe or anything else."""
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(0, "it is not a regular file", str(path))
    return fd


def _is_locked_by_other(fd: int) -> bool:
    """Try to take the lock, and return whether another process has it.

    On a file system without locks, it is always free.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _is_runtime_alive(registry: dict[str, Any]) -> bool:
    try:
        return ProcessInfo(int(registry["pid"]), 0, int(registry["start"])).is_same_process()
    except (KeyError, TypeError, ValueError):
        return False


def _parse_registry(data: bytes) -> dict[str, Any]:
    try:
        registry: Any = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", registry) if isinstance(registry, dict) else {}
