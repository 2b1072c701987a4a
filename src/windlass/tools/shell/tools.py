"""`bash`: a command in the workspace, and commands that go on in the background.

The law: no command outlives its call, nor a background command the runtime. An exit code is told,
whatever it is; what prints too much is cut in the middle; and each result says whether there was a
sandbox.
"""

import asyncio
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Protocol, final

from msgspec import Meta

from windlass.core.errors import ConfigError, ModelRetry
from windlass.core.messages import ToolResult
from windlass.tools.function import Tool, tool
from windlass.tools.run_context import RunContext
from windlass.tools.shell.jobs import JobEnd, JobLimits, ShellJob
from windlass.tools.shell.reaper import ProcessReaper
from windlass.tools.shell.sandbox import DEFAULT_PATH, ActiveSandbox, Sandbox, activate_sandbox

COMMAND_BYTES_MAX = 100_000
"""The kernel takes 128 KiB in one argument."""
STATE_FOLDER = Path(".windlass") / "processes"
"""Where a workspace keeps the registry of what runs in it."""
ENDED_JOBS_MAX = 32
"""Background commands that are over, and can still be read."""
WAIT_S_MAX = 300.0


class HasRoot(Protocol):
    """A workspace."""

    @property
    def root(self) -> Path: ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ShellLimits:
    """What commands may take."""

    timeout_s: float = 60.0
    """Unless the model asks for another; a background command has none unless it asks."""
    timeout_s_max: float = 600.0
    grace_s: float = 1.0
    """Between SIGTERM and SIGKILL. Below the toolbox's own, which gives up on the call."""
    output_bytes_max: int = 1024 * 1024
    """Kept of what one command prints; the model is shown less at a time."""
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
        shell = shutil.which("bash", path=path) or shutil.which("sh", path=path)
        if shell is None:
            raise ConfigError(f"there is neither bash nor sh in {path}")
        self._program = shell
        self._jobs: dict[tuple[str, str], ShellJob] = {}

    def start_job(
        self, context: RunContext, command: str, timeout_s: float | None, *, background: bool
    ) -> ShellJob:
        _check_command(command)
        if (
            background
            and sum(job.is_running for job in self._jobs.values()) >= self._background_max
        ):
            raise ModelRetry(
                f"{self._background_max} background commands run already: end one first."
            )
        bounds = JobLimits(
            timeout_s=timeout_s,
            grace_s=self.limits.grace_s,
            output_bytes_max=self.limits.output_bytes_max,
        )
        return ShellJob(
            [self._program, "-c", command],
            self.sandbox,
            self.reaper,
            bounds,
            _discard_report if background else context.report,
            command=command,
        )

    @property
    def _background_max(self) -> int:
        return self.limits.background_max

    def keep_job(self, session: str, job: ShellJob) -> str:
        """Give a background command the name to find it by, in its own session."""
        over = [name for name, job in self._jobs.items() if not job.is_running]
        for name in over[: -ENDED_JOBS_MAX + 1]:
            del self._jobs[name]
        handle = f"bg-{secrets.token_hex(3)}"
        self._jobs[session, handle] = job
        return handle

    def find_job(self, session: str, handle: str) -> ShellJob:
        job = self._jobs.get((session, handle))
        if job is None:
            own = [name for owner, name in self._jobs if owner == session]
            known = f"There are: {', '.join(own)}." if own else "There is none."
            raise ModelRetry(
                f"There is no background command {handle!r}: they end with the runtime. {known}"
            )
        return job

    def build_result(self, job: ShellJob, end: JobEnd) -> ToolResult:
        """The result of a command that is over."""
        text, _ = job.output.read_text()
        body = text.rstrip("\n") or "(no output)"
        said = f"{body}\n[{job.state_text}; {self.sandbox.short_text}]"
        match end.cause:
            case "timed_out":
                return ToolResult.from_text("timed_out", said)
            case "failed" | "lost":
                return ToolResult.from_text("error", said)
            case "exited" | "stopped":
                return ToolResult.from_text("value", said)

    def close(self) -> None:
        """End what runs in the background."""
        for job in self._jobs.values():
            job.stop()
        for job in self._jobs.values():
            job.end_future.result()
        self.reaper.close()

    def recover(self) -> list[str]:
        """End what a dead runtime left running here."""
        return [f"{one.program} (of: {one.command})" for one in self.reaper.reap_leftovers()]

    @property
    def tools(self) -> tuple[Tool[..., Any], ...]:
        bash = replace(_build_bash(self), recover=self.recover)
        return bash, _build_bash_output(self), _build_bash_kill(self)


def shell_tools(
    root: Path | HasRoot,
    *,
    sandbox: Sandbox | None = None,
    environ: Mapping[str, str] | None = None,
    state: Path | None = None,
    limits: ShellLimits | None = None,
) -> tuple[Tool[..., Any], ...]:
    """`bash`, `bash_output` and `bash_kill` for a workspace.

    A command sees of `environ` what the sandbox lets through. What runs is registered in `state`,
    `.windlass/processes` of the workspace unless told, for a later `Reaper` to find.
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
    """The same with a handle on it: to close it, or to say what is in force."""
    folder = root if isinstance(root, Path) else root.root
    active = activate_sandbox(folder, sandbox, environ)
    return WorkspaceShell(active, ProcessReaper(state or active.root / STATE_FOLDER), limits)


def _build_bash(shell: WorkspaceShell) -> Tool[..., Any]:
    limits, sandbox = shell.limits, shell.sandbox
    network = "" if sandbox.has_network else " There is no network."
    writable = "" if sandbox.tier == "process" else " Only the workspace can be written."

    @tool(
        description=(
            "Run a command with bash, in the workspace folder. Each call is a new shell. What the "
            "command leaves running ends with it: start servers with background=true."
            f"{network}{writable}"
        ),
        timeout=limits.timeout_s_max + limits.grace_s + 15,
        # What can reach others brings their words along.
        untrusted=sandbox.has_network,
        external=sandbox.has_network,
    )
    async def bash(
        context: RunContext,
        command: Annotated[str, "The command; its standard input is empty."],
        timeout_s: Annotated[
            Annotated[float, Meta(gt=0, le=limits.timeout_s_max)] | None,
            f"Seconds until it is killed; {limits.timeout_s:g} unless given.",
        ] = None,
        *,
        background: Annotated[
            bool, "Return a handle at once; read it with bash_output, end it with bash_kill."
        ] = False,
    ) -> ToolResult:
        if background:
            job = shell.start_job(context, command, timeout_s, background=True)
            handle = shell.keep_job(context.session_id, job)
            text = f'Started in the background: handle "{handle}". [{sandbox.short_text}]'
            return ToolResult.from_text("value", text)
        job = shell.start_job(context, command, timeout_s or limits.timeout_s, background=False)
        return shell.build_result(job, await _wait_for_end(job))

    return bash


def _build_bash_output(shell: WorkspaceShell) -> Tool[..., Any]:
    @tool(effect="read", timeout=WAIT_S_MAX + 10, retries=0)
    async def bash_output(
        context: RunContext,
        handle: Annotated[str, "The handle that bash gave."],
        wait_s: Annotated[
            float, Meta(ge=0, le=WAIT_S_MAX, description="Seconds to wait for it to end.")
        ] = 0.0,
        since: Annotated[
            int, Meta(ge=0, description="The byte to read from, as the last reading told.")
        ] = 0,
    ) -> str:
        """Read what a background command has printed, and whether it still runs."""
        job = shell.find_job(context.session_id, handle)
        ended = asyncio.wrap_future(job.end_future)
        await asyncio.wait({ended}, timeout=wait_s)
        ended.cancel()  # Only this wait for it: the command goes on.
        state = job.state_text
        text, total = job.output.read_text(since)
        body = text.rstrip("\n") or "(no output)"
        return f"{body}\n[{state}; go on with since={total}; {shell.sandbox.short_text}]"

    return bash_output


def _build_bash_kill(shell: WorkspaceShell) -> Tool[..., Any]:
    @tool(effect="idempotent", retries=0)
    async def bash_kill(
        context: RunContext, handle: Annotated[str, "The handle that bash gave."]
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
        # Cancelled once more, we go; the supervisor sees to the rest.
        await asyncio.shield(ended)
        raise
    finally:
        ended.cancel()


def _check_command(command: str) -> None:
    try:
        size = len(command.encode())
    except UnicodeEncodeError:
        raise ModelRetry("The command holds half a character; write it anew.") from None
    if "\0" in command:
        raise ModelRetry("A command cannot hold a NUL character.")
    if size > COMMAND_BYTES_MAX:
        raise ModelRetry(
            f"The command has {size} bytes, and {COMMAND_BYTES_MAX} are the most: "
            "write a file first, and run that."
        )


def _discard_report(_text: str) -> None:
    """Nobody watches what goes on in the background; it is read."""
