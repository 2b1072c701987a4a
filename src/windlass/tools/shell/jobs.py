"""A running command: its supervisor, its output, and its end.

Invariant: every job ends, and its end is reported. It does not belong to an event loop: its own
thread reads what it prints, so it continues when one loop is closed and another is opened. However
much a command prints, it costs a bounded amount of memory and of events: the head and the tail of
its output are kept, and its lines are reported as they come.
"""

import codecs
import json
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, final

from windlass.tools.helper_programs import build_program, python_command
from windlass.tools.processes import ProcessInfo
from windlass.tools.shell.reaper import MARKER, ProcessReaper, kill_marked
from windlass.tools.shell.sandbox import ActiveSandbox
from windlass.tools.shell.supervisor import KILL_S, CommandOrder, read_available

REPORT_EVERY_S = 0.1
REPORT_CHARS_MAX = 2_000
"""Characters of one report: the last ones of what was printed since the report before."""
PARTIAL_LINE_S = 1.0
"""A line that has not ended after this time is reported anyway: it may be a question."""
SUPERVISOR_SLACK_S = 5.0
"""A supervisor that is this late with its end is killed itself."""
OUTPUT_DRAIN_S = 0.5
"""How long to read on after the end. A process that cannot be killed may keep the output open."""
IDLE_POLL_S = 1.0
EndCause = Literal["exited", "timed_out", "stopped", "failed", "lost"]
_SUPERVISOR = build_program(ProcessInfo.__module__, CommandOrder.__module__)


@final
class OutputBuffer:
    """The first and the last bytes of a stream, and the number of bytes between them."""

    def __init__(self, bytes_max: int) -> None:
        self._half_bytes = max(1, bytes_max // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0
        self._lock = threading.Lock()

    @property
    def total_bytes(self) -> int:
        return self._total

    def add_data(self, data: bytes) -> None:
        with self._lock:
            room = self._half_bytes - len(self._head)
            self._head += data[:room]
            self._tail += data[max(0, room) :]
            # Cut only when twice as long, so that adding a byte does not copy the tail each time.
            if len(self._tail) > 2 * self._half_bytes:
                del self._tail[: -self._half_bytes]
            self._total += len(data)

    def read_text(self, since: int = 0) -> tuple[str, int]:
        """Return what is kept from byte `since` on, and the position of its end."""
        with self._lock:
            total = self._total
            head = bytes(self._head[since:])
            tail = bytes(self._tail[-self._half_bytes :])
            tail_start = total - len(tail)
            gap = tail_start - max(since, len(self._head))
            tail = tail[max(0, since - tail_start) :]
        if gap <= 0:
            return _decode_text(head + tail), total
        # The cut may go through a character, which is then shown by a replacement character.
        first = _decode_text(head).rstrip("\ufffd")
        last = _decode_text(tail).lstrip("\ufffd")
        note = f"[… {gap} bytes left out; to keep everything, redirect the output to a file …]"
        return f"{first}\n{note}\n{last}", total


@final
class LineReporter:
    """Reports whole lines, several at a time, and at most every REPORT_EVERY_S."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._waiting = ""
        self._skipped_chars = 0
        self._waiting_since = 0.0
        self._reported_at = 0.0

    @property
    def has_pending(self) -> bool:
        return bool(self._waiting)

    def add_data(self, data: bytes) -> None:
        if not self._waiting:
            self._waiting_since = time.monotonic()
        self._waiting += self._decode(data)
        excess = len(self._waiting) - REPORT_CHARS_MAX
        if excess > 0:
            self._skipped_chars += excess
            self._waiting = self._waiting[excess:]

    def report_due(self) -> None:
        """Report what is due by now."""
        now = time.monotonic()
        if not self._waiting or now - self._reported_at < REPORT_EVERY_S:
            return
        due_chars = self._waiting.rfind("\n") + 1
        if now - self._waiting_since >= PARTIAL_LINE_S:
            due_chars = len(self._waiting)
        if due_chars:
            self._report_text(due_chars)
            self._waiting_since = now
            self._reported_at = now

    def close(self) -> None:
        """Report the rest."""
        self._waiting += self._decode(b"", True)  # noqa: FBT003 - the decoder's own parameter
        if self._waiting:
            self._report_text(len(self._waiting))

    def _report_text(self, due_chars: int) -> None:
        text = self._waiting[:due_chars].rstrip("\n")
        self._waiting = self._waiting[due_chars:]
        if self._skipped_chars:
            text = f"[… {self._skipped_chars} characters …]\n{text}"
            self._skipped_chars = 0
        if text:
            with suppress(Exception):  # A watcher that fails must not end the command.
                self._report(text.replace("\0", "\ufffd"))


def _decode_text(data: bytes) -> str:
    return data.decode(errors="replace").replace("\0", "\ufffd")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """How a command ended. The supervisor sends these fields as JSON."""

    cause: EndCause
    code: int | None = None
    """The exit code; below zero, minus the number of the signal that killed it."""
    left: int = 0
    """Processes that the command had left running, and that were ended with it."""
    stuck: int = 0
    """Processes that could not be killed."""
    error: str = ""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class JobLimits:
    """What one command may use."""

    timeout_s: float | None
    grace_s: float
    output_bytes_max: int


@final
class ShellJob:
    """One command, from its start to its end."""

    def __init__(
        self,
        argv: list[str],
        sandbox: ActiveSandbox,
        reaper: ProcessReaper,
        limits: JobLimits,
        report: Callable[[str], None],
        *,
        command: str,
        background: bool = False,
    ) -> None:
        self.output = OutputBuffer(limits.output_bytes_max)
        self.end_future: Future[JobEnd] = Future()
        self.end_future.set_running_or_notify_cancel()  # From now on it cannot be cancelled.
        self._reaper = reaper
        self._limits = limits
        self._reporter = LineReporter(report)
        self._stopping = threading.Event()
        self._deadline: float | None = None
        if limits.timeout_s is not None:
            self._set_deadline(limits.timeout_s)
        self._marker = reaper.register_command(command)
        try:
            self._start_supervisor(argv, sandbox, sandbox.socket_filter(background=background))
        except BaseException:
            reaper.forget_command(self._marker)
            raise

    @property
    def is_running(self) -> bool:
        return not self.end_future.done()

    @property
    def state_text(self) -> str:
        """The state in words, for the model."""
        if self.is_running:
            return "still running"
        return _describe_end(self.end_future.result(), self._limits.timeout_s)

    def stop(self) -> None:
        """Ask it to end: SIGTERM, the grace, SIGKILL. Returns at once."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._set_deadline(0)
            with suppress(OSError):
                self._control.shutdown(socket.SHUT_WR)

    def _set_deadline(self, seconds: float) -> None:
        slack = self._limits.grace_s + KILL_S + SUPERVISOR_SLACK_S
        self._deadline = time.monotonic() + seconds + slack

    def _start_supervisor(
        self, argv: list[str], sandbox: ActiveSandbox, socket_filter: bytes
    ) -> None:
        self._control, supervisor_end = socket.socketpair()
        try:
            self._supervisor = subprocess.Popen(  # noqa: S603 - our own program
                python_command(_SUPERVISOR),
                stdin=supervisor_end.fileno(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={MARKER: self._marker},
                cwd="/",
                start_new_session=True,
            )
        except BaseException:
            self._control.close()
            raise
        finally:
            supervisor_end.close()
        threading.Thread(
            target=self._watch_supervisor,
            args=(argv, sandbox, socket_filter),
            name="windlass-job",
            daemon=True,
        ).start()

    def _watch_supervisor(
        self, argv: list[str], sandbox: ActiveSandbox, socket_filter: bytes
    ) -> None:
        """In the thread: send the order, read until the end, clean up, and set the end."""
        end = JobEnd(cause="lost", error="its supervisor was killed or does not respond")
        try:
            # Made here, because to find what must be hidden may take a while in a large folder.
            order = self._make_order(argv, sandbox, socket_filter).to_json_line()
            with suppress(OSError):  # It died at once, or `stop` was called before.
                self._control.sendall(order)
            if status := self._read_until_end():
                end = JobEnd(**json.loads(status))
        except Exception as error:  # noqa: BLE001 - callers that wait must get an end
            end = JobEnd(cause="lost", error=f"{type(error).__name__}: {error}")
        try:
            self._clean_up(sweep=end.cause == "lost" or bool(end.stuck))
        finally:
            if end.cause == "lost" and self._stopping.is_set():
                end = JobEnd(cause="stopped")
            self.end_future.set_result(end)

    def _make_order(
        self, argv: list[str], sandbox: ActiveSandbox, socket_filter: bytes
    ) -> CommandOrder:
        return CommandOrder(
            argv=sandbox.wrap_command(argv, [self._reaper.folder], filtered=bool(socket_filter)),
            env={**sandbox.process_environment(), MARKER: self._marker},
            cwd=str(sandbox.root),
            wrapped=sandbox.tier != "process",
            runtime=os.getpid(),
            timeout_s=self._limits.timeout_s,
            grace_s=self._limits.grace_s,
            limits=sandbox.process_limits,
            filter_hex=socket_filter.hex(),
            holds_stdin=sandbox.tier == "ssh",
        )

    def _clean_up(self, *, sweep: bool) -> None:
        if sweep:
            # If the supervisor is alive, it is killed here too, with all its descendants. They
            # include processes that removed the marker from their environment.
            kill_marked(self._marker)
        self._supervisor.kill()
        self._supervisor.wait()
        self._control.close()
        with suppress(OSError):
            self._reaper.forget_command(self._marker)

    def _read_until_end(self) -> bytes:
        """Read output and status until both end, or the deadline passes. Returns the status."""
        assert self._supervisor.stdout is not None  # noqa: S101 - it was opened as a pipe
        with self._supervisor.stdout as pipe:
            output_fd = pipe.fileno()
            control_fd = self._control.fileno()
            poll = select.poll()
            poll.register(output_fd, select.POLLIN)
            poll.register(control_fd, select.POLLIN)
            status = b""
            open_fds = {output_fd, control_fd}
            while open_fds:
                if self._deadline is not None and time.monotonic() > self._deadline:
                    break
                is_ending = open_fds != {output_fd, control_fd}
                # Poll often while there is something to report, or one of the two has ended.
                is_busy = self._reporter.has_pending or is_ending
                wait_s = REPORT_EVERY_S if is_busy else IDLE_POLL_S
                for fd, _ in poll.poll(1000 * wait_s):
                    data = read_available(fd)
                    if not data:
                        poll.unregister(fd)
                        open_fds.discard(fd)
                        if fd == control_fd:
                            self._deadline = time.monotonic() + OUTPUT_DRAIN_S
                    elif fd == output_fd:
                        self.output.add_data(data)
                        self._reporter.add_data(data)
                    else:
                        status += data
                self._reporter.report_due()
            self._reporter.close()
        return status


def _describe_end(end: JobEnd, timeout_s: float | None) -> str:
    match end.cause:
        case "exited":
            text = _describe_exit_code(end.code or 0)
        case "timed_out":
            text = f"timed out after {timeout_s or 0:g} s and was killed"
        case "stopped":
            text = "stopped"
        case "failed":
            text = f"it could not be started: {end.error}"
        case "lost":
            text = f"it was lost, and its remaining processes were killed: {end.error}"
    if end.left:
        text += f"; processes that it left running were ended: {end.left}"
    if end.stuck:
        text += f"; processes that could not be killed: {end.stuck}"
    return text


def _describe_exit_code(code: int) -> str:
    """Name the signal in an exit code: -9 by the system, 128 + 9 by a shell."""
    number = -code if code < 0 else code - 128
    with suppress(ValueError):
        name = signal.Signals(number).name
        return f"killed by {name}" if code < 0 else f"exit code {code} ({name})"
    return f"exit code {code}"
