"""The tools `bash`, `bash_output` and `bash_kill`: commands in the workspace.

Invariant: no command outlives its call, and no background command outlives the runtime. The exit
code is always part of the result; output that is too long is cut in the middle; and each result
says whether there was a sandbox.
"""

import asyncio
import hashlib
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Protocol, final

from msgspec import Meta
from msgspec.structs import replace as struct_replace

from windlass.core.errors import ConfigError, ModelRetry
from windlass.core.messages import ToolResult
from windlass.environ import xdg_folder
from windlass.tools.function import Tool, tool
from windlass.tools.helper_programs import find_program
from windlass.tools.run_context import RunContext, discard_report
from windlass.tools.shell.jobs import JobEnd, JobLimits, ShellJob
from windlass.tools.shell.reaper import ProcessReaper
from windlass.tools.shell.sandbox import DEFAULT_PATH, ActiveSandbox, Sandbox, activate_sandbox

COMMAND_BYTES_MAX = 100_000
"""The kernel accepts at most 128 KiB in one argument."""
STATE_FOLDER = Path(".windlass") / "processes"
"""Where a workspace keeps the registry of its running commands."""
ENDED_JOBS_MAX = 32
"""Background commands that have ended and can still be read."""
WAIT_S_MAX = 300.0


class HasRoot(Protocol):
    """Anything with a root folder, such as a `Workspace`."""

    @property
    def root(self) -> Path: ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ShellLimits:
    """What commands may use."""

    timeout_s: float = 60.0
    """Unless the model asks for another. A background command has no limit unless it asks."""
    timeout_s_max: float = 600.0
    grace_s: float = 1.0
    """Between SIGTERM and SIGKILL. Less than the toolbox's grace, which abandons the call."""
    output_bytes_max: int = 1024 * 1024
    """Kept of the output of one command. The model is shown less at a time."""
    background_max: int = 8


@final
class WorkspaceShell:
    """The commands of one workspace."""

    def __init__(
        self, sandbox: ActiveSandbox, reaper: ProcessReaper, limits: ShellLimits | None = None
    ) -> None:
        self.sandbox = sandbox
        self.reaper = reaper
        self.limits = limits or ShellLimits()
        path = sandbox.build_environment().get("PATH", DEFAULT_PATH)
        places = os.pathsep.join((path, DEFAULT_PATH))
        found = (find_program(name, sandbox.root, places) for name in ("bash", "sh"))
        program = sandbox.shell_program or next(filter(None, found), None)
        if program is None:
            raise ConfigError(f"neither bash nor sh was found in PATH={path}")
        self._program = program
        self._jobs: dict[tuple[str, str], ShellJob] = {}

    def start_job(
        self, context: RunContext, command: str, timeout_s: float | None, *, background: bool
    ) -> ShellJob:
        """Start a command. Raises ModelRetry if it is invalid, or too many run already."""
        _check_command(command)
        background_max = self.limits.background_max
        if background and sum(job.is_running for job in self._jobs.values()) >= background_max:
            raise ModelRetry(
                f"{background_max} background commands are running, which is the limit. End one "
                "with bash_kill first."
            )
        limits = JobLimits(
            timeout_s=timeout_s,
            grace_s=self.limits.grace_s,
            output_bytes_max=self.limits.output_bytes_max,
        )
        # The call of a background command is over at once, so its reports are not watched.
        return ShellJob(
            [self._program, "-c", command],
            self.sandbox,
            self.reaper,
            limits,
            discard_report if background else context.report,
            command=command,
            background=background,
        )

    def keep_job(self, session: str, job: ShellJob) -> str:
        """Keep a background command, and return the handle to find it by in its session."""
        ended = [key for key, kept in self._jobs.items() if not kept.is_running]
        for key in ended[: -ENDED_JOBS_MAX + 1]:
            del self._jobs[key]
        handle = f"bg-{secrets.token_hex(3)}"
        self._jobs[session, handle] = job
        return handle

    def find_job(self, session: str, handle: str) -> ShellJob:
        """Return a background command of a session; raises ModelRetry if the handle is unknown."""
        job = self._jobs.get((session, handle))
        if job is None:
            handles = [name for owner, name in self._jobs if owner == session]
            if handles:
                known = f"Known handles: {', '.join(handles)}."
            else:
                known = "There are none."
            raise ModelRetry(
                f"There is no background command {handle!r}. Background commands end with the "
                f"runtime. {known}"
            )
        return job

    def build_result(self, job: ShellJob, end: JobEnd) -> ToolResult:
        """Build the result of a command that has ended."""
        output, _ = job.output.read_text()
        text = f"{_format_output(output)}\n[{job.state_text}; {self.sandbox.short_text}]"
        match end.cause:
            case "timed_out":
                return ToolResult.from_text("timed_out", text)
            case "failed" | "lost":
                return ToolResult.from_text("error", text)
            case "exited" | "stopped":
                return ToolResult.from_text("value", text)

    def close(self) -> None:
        """End the background commands, and wait for that."""
        for job in self._jobs.values():
            job.stop()
        for job in self._jobs.values():
            job.end_future.result()
        self.reaper.close()

    def recover(self) -> list[str]:
        """End what a dead runtime left running here, and return a line about each process."""
        return [f"{one.program} (of: {one.command})" for one in self.reaper.reap_leftovers()]

    @property
    def tools(self) -> tuple[Tool[..., Any], ...]:
        """`bash`, `bash_output` and `bash_kill`."""
        bash = _build_bash(self)
        spec = struct_replace(bash.spec, notice=self.sandbox.notice, isolated=True)
        bash = replace(bash, spec=spec, recover=self.recover)
        return bash, _build_bash_output(self), _build_bash_kill(self)


def shell_tools(
    root: Path | HasRoot,
    *,
    sandbox: Sandbox | None = None,
    environ: Mapping[str, str] | None = None,
    state: Path | None = None,
    limits: ShellLimits | None = None,
) -> tuple[Tool[..., Any], ...]:
    """Build `bash`, `bash_output` and `bash_kill` for a workspace.

    Args:
        root: The folder in which commands run.
        sandbox: How commands are confined; by default as well as this machine can.
        environ: The environment of which commands inherit what `Sandbox.pass_env` names.
        state: The folder that registers what runs, so that the next runtime can end what a
            crash left; `.windlass/processes` in the workspace by default.
        limits: What commands may use.
    """
    return open_shell(root, sandbox=sandbox, environ=environ, state=state, limits=limits).tools


def open_shell(
    root: Path | HasRoot,
    *,
    sandbox: Sandbox | None = None,
    environ: Mapping[str, str] | None = None,
    state: Path | None = None,
    limits: ShellLimits | None = None,
) -> WorkspaceShell:
    """Like `shell_tools`, but return the shell, which can be closed and knows its sandbox."""
    folder = root if isinstance(root, Path) else root.root
    active = activate_sandbox(folder, sandbox, environ)
    registry = ProcessReaper(state or _find_state_folder(active.root))
    return WorkspaceShell(active, registry, limits)


def _find_state_folder(root: Path) -> Path:
    """Return the folder that registers what runs in a workspace.

    A repository may hold a link of that name, which leads to files of the user. Then the folder is
    one of the user's own.
    """
    folder = root / STATE_FOLDER
    if folder.resolve() == folder:
        return folder
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:32]
    return xdg_folder("STATE", ".local/state") / "processes" / name


def _build_bash(shell: WorkspaceShell) -> Tool[..., Any]:
    limits = shell.limits
    sandbox = shell.sandbox
    network = "" if sandbox.has_network else " There is no network."
    is_confined = sandbox.tier in {"bubblewrap", "container"}
    writable = " Only the workspace is writable." if is_confined else ""

    @tool(
        description=(
            "Run a command with bash in the workspace folder. Each call is a new shell. Processes "
            "that the command leaves running are ended with it: start servers with "
            f"background=true.{network}{writable}"
        ),
        timeout=limits.timeout_s_max + limits.grace_s + 15,
        # A command with a network can bring in text from strangers.
        untrusted=sandbox.has_network,
        external=sandbox.has_network,
    )
    async def bash(
        context: RunContext,
        command: Annotated[str, "The command. Its standard input is empty."],
        timeout_s: Annotated[
            Annotated[float, Meta(gt=0, le=limits.timeout_s_max)] | None,
            f"Seconds until it is killed; {limits.timeout_s:g} by default.",
        ] = None,
        *,
        background: Annotated[
            bool, "Return a handle at once. Read it with bash_output, end it with bash_kill."
        ] = False,
    ) -> ToolResult:
        if background:
            job = shell.start_job(context, command, timeout_s, background=True)
            handle = shell.keep_job(context.session_id, job)
            text = f'Started in the background with handle "{handle}". [{sandbox.short_text}]'
            return ToolResult.from_text("value", text)
        job = shell.start_job(context, command, timeout_s or limits.timeout_s, background=False)
        return shell.build_result(job, await _wait_for_end(job))

    return bash


def _build_bash_output(shell: WorkspaceShell) -> Tool[..., Any]:
    @tool(effect="read", timeout=WAIT_S_MAX + 10, retries=0)
    async def bash_output(
        context: RunContext,
        handle: Annotated[str, "The handle that bash returned."],
        wait_s: Annotated[
            float, Meta(ge=0, le=WAIT_S_MAX, description="Seconds to wait for its end.")
        ] = 0.0,
        since: Annotated[
            int, Meta(ge=0, description="The byte to read from, as the last result says.")
        ] = 0,
    ) -> str:
        """Read what a background command has printed, and whether it is still running."""
        job = shell.find_job(context.session_id, handle)
        ended = asyncio.wrap_future(job.end_future)
        await asyncio.wait({ended}, timeout=wait_s)
        ended.cancel()  # Cancels this wait only: the command continues.
        state = job.state_text
        output, total = job.output.read_text(since)
        note = f"[{state}; continue with since={total}; {shell.sandbox.short_text}]"
        return f"{_format_output(output)}\n{note}"

    return bash_output


def _build_bash_kill(shell: WorkspaceShell) -> Tool[..., Any]:
    @tool(effect="idempotent", retries=0)
    async def bash_kill(
        context: RunContext, handle: Annotated[str, "The handle that bash returned."]
    ) -> ToolResult:
        """End a background command and everything that it started."""
        job = shell.find_job(context.session_id, handle)
        job.stop()
        return shell.build_result(job, await _wait_for_end(job))

    return bash_kill


async def _wait_for_end(job: ShellJob) -> JobEnd:
    """Wait for the end. A cancel ends the command, and waits for that."""
    ended = asyncio.wrap_future(job.end_future)
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        job.stop()
        # A second cancel leaves this wait at once; the supervisor still ends the command.
        await asyncio.shield(ended)
        raise
    finally:
        ended.cancel()


def _format_output(output: str) -> str:
    return output.rstrip("\n") or "(no output)"


def _check_command(command: str) -> None:
    try:
        command_bytes = len(command.encode())
    except UnicodeEncodeError:
        raise ModelRetry(
            "The command contains an unpaired surrogate (half a character). Write it again."
        ) from None
    if "\0" in command:
        raise ModelRetry("The command contains a NUL character, which bash does not accept.")
    if command_bytes > COMMAND_BYTES_MAX:
        raise ModelRetry(
            f"The command has {command_bytes} bytes, and {COMMAND_BYTES_MAX} is the limit. Write "
            "it to a file and run the file."
        )
