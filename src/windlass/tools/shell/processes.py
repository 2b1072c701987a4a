"""The processes of this machine, as /proc shows them.

The law: a signal goes to the very process that was looked at. A number is used again some day; a
number and a start are not.
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
    """One process. Its start tells it from a later one with the same number."""

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
        """Whether its number still means this process."""
        now = find_process(self.pid)
        return now is not None and now.start == self.start

    def read_proc_file(self, name: str) -> bytes:
        """What /proc holds under a name; nothing if that may not be read, or no longer."""
        try:
            with open(f"/proc/{self.pid}/{name}", "rb") as file:  # noqa: PTH123 - as above
                return file.read()
        except OSError:
            return b""

    def read_environ(self) -> bytes:
        """The environment that it was started with."""
        for _ in range(EXEC_POLLS_MAX):
            if (data := self.read_proc_file("environ")) or not self._is_in_exec():
                return data or self.read_proc_file("environ")
            time.sleep(EXEC_POLL_S)
        return b""

    def _is_in_exec(self) -> bool:
        """Whether it is in the middle of an `exec`, when its environment cannot be seen yet."""
        try:
            with open(f"/proc/{self.pid}/environ", "rb") as file:  # noqa: PTH123 - as above
                if file.read(1):
                    return False
            fields = _stat_fields(self.pid)
            # It has memory, and no place in it for an environment, not even for an empty one.
            return int(fields[20]) > 0 and int(fields[47]) == 0
        except (OSError, IndexError, ValueError):
            return False

    def send_signal(self, number: int) -> bool:
        """Signal it, and never another that got its number meanwhile."""
        try:
            handle = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            return False
        try:
            # A handle is bound to a process, so once this holds it cannot cease to.
            if not self.is_same_process():
                return False
            signal.pidfd_send_signal(handle, number)
            return True
        except OSError:
            return False
        finally:
            os.close(handle)


def find_process(pid: int) -> ProcessInfo | None:
    """The process that has a number now."""
    try:
        fields = _stat_fields(pid)
        return ProcessInfo(pid, int(fields[1]), int(fields[19]), fields[0].decode())
    except (OSError, IndexError, ValueError):
        return None


def _stat_fields(pid: int) -> list[bytes]:
    """What /proc/PID/stat says, from the third field on."""
    with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - as above
        # A command's name stands in brackets, and may hold some itself.
        return file.read().rpartition(b")")[2].split()


def list_processes() -> list[ProcessInfo]:
    """All that live and can be seen; none where there is no /proc."""
    if not HAS_PROC:
        return []
    seen = [find_process(int(name)) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
    return [one for one in seen if one is not None]


def find_descendants(*roots: int) -> list[ProcessInfo]:
    """The living descendants of some processes."""
    children: dict[int, list[ProcessInfo]] = {}
    for one in list_processes():
        children.setdefault(one.parent, []).append(one)
    found: list[ProcessInfo] = []
    queue, known = list(roots), set(roots)
    while queue:
        for child in children.get(queue.pop(), ()):
            if child.pid not in known:
                known.add(child.pid)
                queue.append(child.pid)
                found.append(child)
    return [one for one in found if one.is_alive]


def find_ancestors(pid: int) -> set[int]:
    """A process and its ancestors."""
    line: set[int] = set()
    while pid not in line and (one := find_process(pid)) is not None:
        line.add(pid)
        pid = one.parent
    return line


def kill_processes(find: Callable[[], list[ProcessInfo]]) -> list[ProcessInfo]:
    """SIGKILL all that is found; stopped first, so that nothing can fork away meanwhile."""
    seen: dict[tuple[int, int], ProcessInfo] = {}
    while new := [one for one in find() if (one.pid, one.start) not in seen]:
        for one in new:
            one.send_signal(signal.SIGSTOP)
            seen[one.pid, one.start] = one
    return [one for one in seen.values() if one.send_signal(signal.SIGKILL)]
