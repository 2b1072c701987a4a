"""A command under way: its supervisor, its output, and its end.

The law: every job ends, and is seen to. It belongs to no event loop: a thread of its own reads what
it prints, and it goes on when a loop is closed and another is opened.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

from windlass.tools.shell.output import REPORT_EVERY_S, LineReporter, OutputBuffer
from windlass.tools.shell.reaper import MARKER, ProcessReaper, kill_marked
from windlass.tools.shell.sandbox import ActiveSandbox
from windlass.tools.shell.supervisor import BOOT, KILL_S, CommandOrder

SUPERVISOR_SLACK_S = 5.0
"""How much later than it should have ended a supervisor is itself killed."""
OUTPUT_DRAIN_S = 0.5
"""How long the output may stay open after the end: one that cannot be killed may hold it."""
IDLE_POLL_S = 1.0

EndCause = Literal["exited", "timed_out", "stopped", "failed", "lost"]
_PACKAGE = str(Path(__file__).resolve().parents[2])


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """How a command ended."""

    cause: EndCause
    code: int | None = None
    """As the system says it: below zero, the signal that killed it."""
    left: int = 0
    """Processes that it had left running, and that were ended with it."""
    stuck: int = 0
    """Processes that could not be killed."""
    error: str = ""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class JobLimits:
    """What one command may take."""

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
        bounds: JobLimits,
        report: Callable[[str], None],
        *,
        command: str,
    ) -> None:
        self.output = OutputBuffer(bounds.output_bytes_max)
        self.end_future: Future[JobEnd] = Future()
        self.end_future.set_running_or_notify_cancel()  # From here on nobody can cancel it.
        self._reaper = reaper
        self._bounds = bounds
        self._reporter = LineReporter(report)
        self._stopping = threading.Event()
        self._deadline: float | None = None
        if bounds.timeout_s is not None:
            self._set_deadline(bounds.timeout_s)
        self._marker = reaper.register_command(command)
        try:
            self._start_supervisor(argv, sandbox)
        except BaseException:
            reaper.forget_command(self._marker)
            raise

    @property
    def is_running(self) -> bool:
        return not self.end_future.done()

    @property
    def state_text(self) -> str:
        """In words."""
        if self.is_running:
            return "still running"
        return _describe_end(self.end_future.result(), self._bounds.timeout_s)

    def stop(self) -> None:
        """Tell it to end: SIGTERM, the grace, SIGKILL. Returns at once."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._set_deadline(0)
            with suppress(OSError):
                self._control.shutdown(socket.SHUT_WR)

    def _set_deadline(self, seconds: float) -> None:
        slack = self._bounds.grace_s + KILL_S + SUPERVISOR_SLACK_S
        self._deadline = time.monotonic() + seconds + slack

    def _start_supervisor(self, argv: list[str], sandbox: ActiveSandbox) -> None:
        marker = {MARKER: self._marker}
        order = CommandOrder(
            argv=sandbox.wrap_command(argv, [self._reaper.folder]),
            env={**sandbox.build_environment(), **marker},
            cwd=str(sandbox.root),
            wrapped=sandbox.tier == "bubblewrap",
            runtime=os.getpid(),
            timeout_s=self._bounds.timeout_s,
            grace_s=self._bounds.grace_s,
            limits=sandbox.options.limits,
        )
        self._control, theirs = socket.socketpair()
        try:
            self._supervisor = subprocess.Popen(  # noqa: S603 - ourselves
                [sys.executable, "-I", "-S", "-c", BOOT, _PACKAGE],
                stdin=theirs.fileno(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=marker,
                cwd="/",
                start_new_session=True,
            )
        except BaseException:
            self._control.close()
            raise
        finally:
            theirs.close()
        threading.Thread(
            target=self._watch_supervisor,
            args=(order.to_json_line(),),
            name="windlass-job",
            daemon=True,
        ).start()

    def _watch_supervisor(self, order: bytes) -> None:
        """In the thread: give the order, read until the end, leave nothing behind, tell."""
        end = JobEnd(cause="lost", error="its supervisor was killed, or does not answer")
        try:
            with suppress(OSError):  # It died at once, or we were stopped.
                self._control.sendall(order)
            if status := self._read_until_end():
                end = JobEnd(**json.loads(status))
        except Exception as error:  # noqa: BLE001 - who waits must hear of it
            end = JobEnd(cause="lost", error=f"{type(error).__name__}: {error}")
        try:
            self._clean_up(sweep=end.cause == "lost" or bool(end.stuck))
        finally:
            stopped = end.cause == "lost" and self._stopping.is_set()
            self.end_future.set_result(JobEnd(cause="stopped") if stopped else end)

    def _clean_up(self, *, sweep: bool) -> None:
        if sweep:
            # The supervisor, if it lives, is among them: what lost its marker is still below it.
            kill_marked(self._marker)
        self._supervisor.kill()
        self._supervisor.wait()
        self._control.close()
        with suppress(OSError):
            self._reaper.forget_command(self._marker)

    def _read_until_end(self) -> bytes:
        """Read output and status until both are over, or it takes too long."""
        assert self._supervisor.stdout is not None  # noqa: S101 - it was asked for
        with self._supervisor.stdout as pipe:
            out, control = pipe.fileno(), self._control.fileno()
            poll = select.poll()
            poll.register(out, select.POLLIN)
            poll.register(control, select.POLLIN)
            status, is_open = b"", {out, control}
            while is_open and not self._is_past_deadline():
                wait_s = (
                    REPORT_EVERY_S
                    if self._reporter.has_pending or len(is_open) < 2
                    else IDLE_POLL_S
                )
                for fd, _ in poll.poll(1000 * wait_s):
                    data = _read_available(fd)
                    if not data:
                        poll.unregister(fd)
                        is_open.discard(fd)
                        if fd == control:
                            self._deadline = time.monotonic() + OUTPUT_DRAIN_S
                    elif fd == out:
                        self.output.add_data(data)
                        self._reporter.add_data(data)
                    else:
                        status += data
                self._reporter.report_due()
            self._reporter.close()
        return status

    def _is_past_deadline(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline


def _describe_end(end: JobEnd, timeout_s: float | None) -> str:
    match end.cause:
        case "exited":
            words = _describe_exit_code(end.code or 0)
        case "timed_out":
            words = f"timed out after {timeout_s or 0:g} s, and was killed"
        case "stopped":
            words = "stopped"
        case "failed":
            words = f"it could not be run: {end.error}"
        case "lost":
            words = f"it was lost, and what was left of it was killed: {end.error}"
    if end.left:
        words += f"; processes that it left running were ended: {end.left}"
    if end.stuck:
        words += f"; processes that could not be killed: {end.stuck}"
    return words


def _describe_exit_code(code: int) -> str:
    """A shell says 128 and the number of the signal where the system says minus the number."""
    number = -code if code < 0 else code - 128
    with suppress(ValueError):
        name = signal.Signals(number).name
        return f"killed by {name}" if code < 0 else f"exit code {code} ({name})"
    return f"exit code {code}"


def _read_available(fd: int) -> bytes:
    try:
        return os.read(fd, 65_536)
    except OSError:
        return b""
