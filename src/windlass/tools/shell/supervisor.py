"""The parent of one command: a small process of its own, between the runtime and the shell.

The law: it goes last. It adopts whatever the command leaves behind (also what called `setsid` or
forked twice), so that all of it stays below it; and it ends only when nothing is left there. It
ends the command when its time is up, when it is told to, and when the runtime is gone, be it by
SIGKILL.

It talks over the socket on its standard input: one `Order` in; then the end of the file, which says
stop, whoever closed it; one line of JSON out. It runs by itself, without the rest of the package,
and imports little: every command waits for it to start.
"""

import ctypes
import json
import os
import resource
import select
import signal
import sys
import time

from windlass.tools.shell.processes import HAS_PROC, ProcessInfo, find_descendants, kill_processes

LEFTOVER_GRACE_S = 0.2
"""What the background processes of a finished command get between SIGTERM and SIGKILL."""
KILL_S = 3.0
"""What is not dead by then is stuck in the kernel, or is another user's; it is told of."""

BOOT = """
import sys, types
for name, path in (("windlass", sys.argv[1]), ("windlass.tools", sys.argv[1] + "/tools")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
from windlass.tools.shell.supervisor import main
main()
"""
"""Imports this module and not the package around it, which takes ten times as long."""

_PDEATHSIG, _CHILD_SUBREAPER = 1, 36
_RESOURCE_LIMITS = {"memory_bytes": resource.RLIMIT_AS, "cpu_s": resource.RLIMIT_CPU}


class CommandOrder:
    """What to run, and for how long."""

    def __init__(
        self,
        *,
        argv: list[str],
        env: dict[str, str],
        cwd: str,
        wrapped: bool,
        runtime: int,
        timeout_s: float | None,
        grace_s: float,
        limits: dict[str, int],
    ) -> None:
        self.argv = argv
        self.env = env
        self.cwd = cwd
        self.wrapped = wrapped
        """The child is a wrapper, such as bubblewrap, that ends by itself after the command."""
        self.runtime = runtime
        """The process that must live for the command to go on."""
        self.timeout_s = timeout_s
        self.grace_s = grace_s
        """Between SIGTERM and SIGKILL."""
        self.limits = limits

    def to_json_line(self) -> bytes:
        return json.dumps(vars(self)).encode() + b"\n"


class CommandSupervisor:
    """Runs one order to its end."""

    def __init__(self, order: CommandOrder) -> None:
        self._order = order
        self._prctl = _find_prctl()
        self._status: int | None = None
        self._stop_requested = False
        self._command_pid = 0
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)

    def run(self) -> dict[str, object]:
        self._prctl(_CHILD_SUBREAPER, 1)
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        error = self._fork_command()
        if error:
            return {"cause": "failed", "error": error}
        cause = self._wait_for_cause()
        left = [] if self._order.wrapped or cause != "exited" else find_descendants(os.getpid())
        stuck = self._end_descendants(
            LEFTOVER_GRACE_S if cause == "exited" else self._order.grace_s
        )
        return {"cause": cause, "code": self._exit_code(), "left": len(left), "stuck": len(stuck)}

    def _on_signal(self, number: int, _frame: object) -> None:
        self._stop_requested = self._stop_requested or number != signal.SIGCHLD

    def _fork_command(self) -> str:
        """Fork, and return what went wrong before the command could start."""
        told, tell = os.pipe()
        parent = os.getpid()
        self._command_pid = os.fork()
        if self._command_pid == 0:
            try:
                self._exec_command(parent)
            except BaseException as error:  # noqa: BLE001 - this process must not go on
                os.write(tell, str(error).encode(errors="replace") or b"?")
            os._exit(127)
        os.close(tell)
        nothing = os.open(os.devnull, os.O_RDWR)
        # The output now belongs to the command alone, so it ends when the command does.
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        error = os.read(told, 65_536)
        os.close(told)
        return error.decode(errors="replace")

    def _exec_command(self, parent: int) -> None:
        """In the child: turn into the command."""
        os.setsid()
        self._prctl(_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            if signal.getsignal(number) not in (signal.SIG_DFL, None):
                signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for name, most in self._order.limits.items():
            resource.setrlimit(_RESOURCE_LIMITS[name], (most, most))
        os.chdir(self._order.cwd)
        os.execve(self._order.argv[0], self._order.argv, self._order.env)  # noqa: S606 - no shell

    def _wait_for_cause(self) -> str:
        """Wait for a reason to end; say which."""
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(self._wake_reader, select.POLLIN)
        runtime = _open_pidfd(self._order.runtime)
        if runtime is not None:
            poll.register(runtime, select.POLLIN)
        if os.getppid() != self._order.runtime:
            return "stopped"
        timeout_s = self._order.timeout_s
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self._collect_children()
            if self._status is not None:
                return "exited"
            if self._stop_requested:
                return "stopped"
            left_s = None if until is None else until - time.monotonic()
            if left_s is not None and left_s <= 0:
                return "timed_out"
            ready = {fd for fd, _ in poll.poll(None if left_s is None else left_s * 1000 + 1)}
            if 0 in ready or runtime in ready:
                return "stopped"
            _read_available(self._wake_reader)

    def _end_descendants(self, grace_s: float) -> list[ProcessInfo]:
        """End all that is below, and return what would not go."""
        self._terminate_all()
        until = time.monotonic() + grace_s
        while self._collect_children() and time.monotonic() < until:
            self._wait_briefly()
        until = time.monotonic() + KILL_S
        while self._collect_children():
            if time.monotonic() > until:
                return find_descendants(os.getpid())
            kill_processes(lambda: find_descendants(os.getpid()))
            if not HAS_PROC:
                self._signal_group(signal.SIGKILL)
            self._wait_briefly()
        return []

    def _terminate_all(self) -> None:
        for one in find_descendants(os.getpid()):
            if not (self._order.wrapped and one.pid == self._command_pid):
                one.send_signal(signal.SIGTERM)
                one.send_signal(signal.SIGCONT)
        if not HAS_PROC:
            self._signal_group(signal.SIGTERM)

    def _signal_group(self, number: int) -> None:
        try:
            os.killpg(self._command_pid, number)
        except OSError:
            return

    def _wait_briefly(self) -> None:
        """Until a child ends, but not for long: a grandchild's end is not told."""
        select.select([self._wake_reader], [], [], 0.02)
        _read_available(self._wake_reader)

    def _collect_children(self) -> bool:
        """Collect who has ended; say whether anyone is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._command_pid:
                self._status = status

    def _exit_code(self) -> int | None:
        return None if self._status is None else os.waitstatus_to_exitcode(self._status)


def _find_prctl() -> "ctypes._NamedFuncPointer":  # pyright: ignore[reportPrivateUsage] - no public name
    """A way to tell the kernel; where there is none, nobody listens."""
    libc = ctypes.CDLL(None)
    return libc.prctl if sys.platform == "linux" else libc.getpid


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _read_available(fd: int) -> bytes:
    try:
        return os.read(fd, 65_536)
    except OSError:
        return b""


def main() -> None:
    """Take the order, carry it out, and tell how it ended."""
    line = b""
    while not line.endswith(b"\n"):
        more = _read_available(0)
        if not more:
            return
        line += more
    status: dict[str, object]
    try:
        status = CommandSupervisor(CommandOrder(**json.loads(line))).run()
    except Exception as error:  # noqa: BLE001 - the runtime must hear of it
        status = {"cause": "failed", "error": f"{type(error).__name__}: {error}"}
    try:
        os.write(0, json.dumps(status).encode() + b"\n")
    except OSError:
        return
