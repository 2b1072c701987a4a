"""The processes of this machine, as /proc shows them.

Invariant: a signal goes only to the process that was looked at. The system uses a process id again
after a while, but an id together with a start time belongs to one process.

The supervisor of a command imports this module before every command, so it imports little.
"""

import os
import signal
import time
from collections.abc import Callable

HAS_PROC = os.path.isdir("/proc/self/fd")  # noqa: PTH112 - the supervisor must start fast
EXEC_POLLS_MAX = 200
EXEC_POLL_S = 0.005
_DEAD_STATES = ("Z", "X")


class ProcessInfo:
    """One process. Its start time distinguishes it from a later one with the same id."""

    __slots__ = ("parent", "pid", "start", "state")

    def __init__(self, pid: int, parent: int, start: int, state: str = "") -> None:
        self.pid = pid
        self.parent = parent
        self.start = start
        """In ticks since the machine started."""
        self.state = state

    @property
    def is_alive(self) -> bool:
        return self.state not in _DEAD_STATES

    def is_same_process(self) -> bool:
        """Whether the process id still belongs to this process."""
        current = find_process(self.pid)
        return current is not None and current.start == self.start

    def read_proc_file(self, name: str) -> bytes:
        """Read /proc/PID/name; empty if it may not be read, or if the process is gone."""
        try:
            with open(f"/proc/{self.pid}/{name}", "rb") as file:  # noqa: PTH123 - as above
                return file.read()
        except OSError:
            return b""

    def read_environ(self) -> bytes:
        """Read the environment that the process was started with."""
        for _ in range(EXEC_POLLS_MAX):
            if (data := self.read_proc_file("environ")) or not self._is_in_exec():
                return data or self.read_proc_file("environ")
            time.sleep(EXEC_POLL_S)
        return b""

    def _is_in_exec(self) -> bool:
        """Whether it is in the middle of an `exec`, when its environment is not visible yet."""
        try:
            with open(f"/proc/{self.pid}/environ", "rb") as file:  # noqa: PTH123 - as above
                if file.read(1):
                    return False
            fields = _stat_fields(self.pid)
            # It has memory (vsize), but no address for an environment (env_start), which even a
            # process with an empty environment has.
            return int(fields[20]) > 0 and int(fields[47]) == 0
        except (OSError, IndexError, ValueError):
            return False

    def send_signal(self, number: int) -> bool:
        """Signal this process, and never another one that got its id in the meantime.

        Returns whether the signal was sent.
        """
        try:
            pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            return False
        try:
            # A pidfd is bound to one process. So if this check holds now, it still holds when
            # the signal is sent.
            if not self.is_same_process():
                return False
            signal.pidfd_send_signal(pidfd, number)
            return True
        except OSError:
            return False
        finally:
            os.close(pidfd)


def find_process(pid: int) -> ProcessInfo | None:
    """Return the process that has this id now; None without one, or without /proc."""
    try:
        fields = _stat_fields(pid)
        return ProcessInfo(pid, int(fields[1]), int(fields[19]), fields[0].decode())
    except (OSError, IndexError, ValueError):
        return None


def _stat_fields(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the third one on."""
    with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - as above
        # The second field is the program's name in brackets, which may itself contain brackets.
        return file.read().rpartition(b")")[2].split()


def list_processes() -> list[ProcessInfo]:
    """List all processes that are visible; empty where there is no /proc."""
    if not HAS_PROC:
        return []
    found = [find_process(int(name)) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
    return [process for process in found if process is not None]


def find_descendants(*roots: int) -> list[ProcessInfo]:
    """Return the living descendants of some processes."""
    children: dict[int, list[ProcessInfo]] = {}
    for process in list_processes():
        children.setdefault(process.parent, []).append(process)
    found: list[ProcessInfo] = []
    queue = list(roots)
    seen = set(roots)
    while queue:
        for child in children.get(queue.pop(), ()):
            if child.pid not in seen:
                seen.add(child.pid)
                queue.append(child.pid)
                found.append(child)
    return [process for process in found if process.is_alive]


def find_ancestors(pid: int) -> set[int]:
    """Return the ids of a process and of its ancestors."""
    ancestors: set[int] = set()
    while pid not in ancestors and (process := find_process(pid)) is not None:
        ancestors.add(pid)
        pid = process.parent
    return ancestors


def kill_processes(find: Callable[[], list[ProcessInfo]]) -> list[ProcessInfo]:
    """Kill all processes that `find` returns, and return those that were killed.

    They are stopped first, until `find` returns no new one: a process that is stopped cannot fork
    away from the kill.
    """
    seen: dict[tuple[int, int], ProcessInfo] = {}
    while new := [process for process in find() if (process.pid, process.start) not in seen]:
        for process in new:
            process.send_signal(signal.SIGSTOP)
            seen[process.pid, process.start] = process
    return [process for process in seen.values() if process.send_signal(signal.SIGKILL)]
