"""The parent of one command: a small process between the runtime and the shell.

Invariant: the supervisor ends last. It adopts every process that the command leaves behind (also
one that called `setsid` or forked twice), so all of them stay its descendants, and it exits only
when none is left. It ends the command when its time is up, when the runtime asks for it, and when
the runtime is gone, even by SIGKILL.

It talks over a socket on its standard input. It reads one `CommandOrder`; then the end of the file
means stop, no matter which side closed it. It writes one line of JSON at the end. It runs without
the rest of the package (see `helper_programs`) and imports little, because every command waits for
it to start.
"""

import ctypes
import json
import os
import resource
import select
import signal
import sys
import time

from windlass.tools.processes import HAS_PROC, ProcessInfo, find_descendants, kill_processes

LEFTOVER_GRACE_S = 0.2
"""For the background processes of a finished command, between SIGTERM and SIGKILL."""
KILL_S = 3.0
"""A process that is alive after this is stuck in the kernel, or another user's. It is reported."""
FILTER_FD = 100
"""The number under which a wrapper finds the filter. It is far above those that are in use."""

# Options of prctl(2).
_PDEATHSIG = 1
_CHILD_SUBREAPER = 36
_KEYCTL_NUMBERS = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}
"""The system call keyctl(2), for which the C library has no function, by kind of processor."""
_JOIN_SESSION_KEYRING = 1
_RESOURCE_LIMITS = {"memory_bytes": resource.RLIMIT_AS, "cpu_s": resource.RLIMIT_CPU}


class CommandOrder:
    """What to run, and for how long."""

    def __init__(  # noqa: PLR0913 - a record, by keywords: the helper has no dataclasses
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
        filter_hex: str = "",
        holds_stdin: bool = False,
    ) -> None:
        self.argv = argv
        self.env = env
        self.cwd = cwd
        self.wrapped = wrapped
        """The child is a wrapper, such as bubblewrap, that ends by itself after the command."""
        self.runtime = runtime
        """The process id of the runtime. The command ends when the runtime does."""
        self.timeout_s = timeout_s
        self.grace_s = grace_s
        """Between SIGTERM and SIGKILL."""
        self.limits = limits
        self.filter_hex = filter_hex
        """The filter for system calls that the wrapper reads from FILTER_FD; empty for none."""
        self.holds_stdin = holds_stdin
        """Standard input is a pipe without data that stays open as long as the supervisor lives."""

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
        self._stdin: tuple[int, int] | None = None
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)

    def run(self) -> dict[str, object]:
        """Run the command, and return the fields of a `JobEnd`."""
        self._prctl(_CHILD_SUBREAPER, 1)
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        error = self._fork_command()
        if error:
            return {"cause": "failed", "error": error}
        cause = self._wait_for_cause()
        left: list[ProcessInfo] = []
        grace_s = self._order.grace_s
        if cause == "exited":
            grace_s = LEFTOVER_GRACE_S
            if not self._order.wrapped:
                left = find_descendants(os.getpid())
        stuck = self._end_descendants(grace_s)
        return {"cause": cause, "code": self._exit_code(), "left": len(left), "stuck": len(stuck)}

    def _on_signal(self, number: int, _frame: object) -> None:
        self._stop_requested = self._stop_requested or number != signal.SIGCHLD

    def _fork_command(self) -> str:
        """Fork, and return what went wrong before the command could start; empty if nothing did."""
        error_reader, error_writer = os.pipe()
        if self._order.holds_stdin:
            self._stdin = os.pipe()
        parent = os.getpid()
        self._command_pid = os.fork()
        if self._command_pid == 0:
            try:
                self._exec_command(parent)
            except BaseException as error:  # noqa: BLE001 - the child must not run on
                os.write(error_writer, str(error).encode(errors="replace") or b"?")
            os._exit(127)
        os.close(error_writer)
        devnull = os.open(os.devnull, os.O_RDWR)
        # From now on only the command holds the output, so the output ends when the command does.
        os.dup2(devnull, 1)
        os.dup2(devnull, 2)
        # A successful exec closes the other end of the pipe, and the read returns nothing.
        error = os.read(error_reader, 65_536)
        os.close(error_reader)
        return error.decode(errors="replace")

    def _exec_command(self, parent: int) -> None:
        """In the child: become the command."""
        os.setsid()
        self._prctl(_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # The parent died before PDEATHSIG was set.
            return
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            if signal.getsignal(number) not in (signal.SIG_DFL, None):
                signal.signal(number, signal.SIG_DFL)
        os.dup2(self._stdin[0] if self._stdin else os.open(os.devnull, os.O_RDONLY), 0)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for name, limit in self._order.limits.items():
            resource.setrlimit(_RESOURCE_LIMITS[name], (limit, limit))
        if self._order.wrapped:
            _leave_keyring()
        if self._order.filter_hex:
            data = bytes.fromhex(self._order.filter_hex)
            # A pipe holds all of it.
            reader, writer = os.pipe()
            os.write(writer, data)
            os.close(writer)
            os.dup2(reader, FILTER_FD)
        os.chdir(self._order.cwd)
        os.execve(self._order.argv[0], self._order.argv, self._order.env)  # noqa: S606 - no shell

    def _wait_for_cause(self) -> str:
        """Wait for a reason to end the command, and return it as an `EndCause`."""
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(self._wake_reader, select.POLLIN)
        runtime_fd = _open_pidfd(self._order.runtime)
        if runtime_fd is not None:
            poll.register(runtime_fd, select.POLLIN)
        if os.getppid() != self._order.runtime:  # The runtime died before the pidfd was opened.
            return "stopped"
        started = time.monotonic()
        while True:
            self._collect_children()
            if self._status is not None:
                return "exited"
            if self._stop_requested:
                return "stopped"
            wait_ms = None
            if self._order.timeout_s is not None:
                left_s = started + self._order.timeout_s - time.monotonic()
                if left_s <= 0:
                    return "timed_out"
                wait_ms = left_s * 1000 + 1
            ready = {fd for fd, _ in poll.poll(wait_ms)}
            if 0 in ready or runtime_fd in ready:
                return "stopped"
            read_available(self._wake_reader)

    def _end_descendants(self, grace_s: float) -> list[ProcessInfo]:
        """End all descendants, and return those that could not be killed."""
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
        for process in find_descendants(os.getpid()):
            # A wrapper ends by itself after the command. Ended before, it would take the command
            # along without its grace.
            if not (self._order.wrapped and process.pid == self._command_pid):
                process.send_signal(signal.SIGTERM)
                process.send_signal(signal.SIGCONT)  # A stopped process sees SIGTERM only then.
        if not HAS_PROC:
            self._signal_group(signal.SIGTERM)

    def _signal_group(self, number: int) -> None:
        try:
            os.killpg(self._command_pid, number)
        except OSError:
            return

    def _wait_briefly(self) -> None:
        """Wait for a child to end, but not for long: there is no signal for a grandchild's end."""
        select.select([self._wake_reader], [], [], 0.02)
        read_available(self._wake_reader)

    def _collect_children(self) -> bool:
        """Collect the children that have ended, and return whether any are left."""
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
    """Return prctl(2); elsewhere than on Linux a function without effect."""
    libc = ctypes.CDLL(None)
    return libc.prctl if sys.platform == "linux" else libc.getpid


def _leave_keyring() -> None:
    """Begin a new session keyring, which is empty.

    No namespace of the wrapper hides the keys that the kernel keeps for a user's login: tickets,
    passwords of network drives, tokens. Where there are no keyrings, this has no effect.
    """
    number = _KEYCTL_NUMBERS.get(os.uname().machine)
    if number is not None and sys.platform == "linux":
        ctypes.CDLL(None).syscall(number, _JOIN_SESSION_KEYRING, None)


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def read_available(fd: int) -> bytes:
    """Read what is there; empty at the end of the file, or if it cannot be read."""
    try:
        return os.read(fd, 65_536)
    except OSError:
        return b""


def main() -> None:
    """Read the order, run it, and write how it ended."""
    line = b""
    while not line.endswith(b"\n"):
        more = read_available(0)
        if not more:
            return
        line += more
    status: dict[str, object]
    try:
        status = CommandSupervisor(CommandOrder(**json.loads(line))).run()
    except Exception as error:  # noqa: BLE001 - the runtime must learn of it
        status = {"cause": "failed", "error": f"{type(error).__name__}: {error}"}
    try:
        os.write(0, json.dumps(status).encode() + b"\n")
    except OSError:
        return
