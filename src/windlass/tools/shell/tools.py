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
from windlass.core.messages import Result
from windlass.tools.function import Tool, tool
from windlass.tools.run_context import RunContext
from windlass.tools.shell.jobs import Bounds, End, Job
from windlass.tools.shell.reaper import Reaper
from windlass.tools.shell.sandbox import PATH, Confinement, Sandbox, confine

COMMAND_BYTES_MAX = 100_000
"""The kernel takes 128 KiB in one argument."""
STATE = Path(".windlass") / "processes"
"""Where a workspace keeps the registry of what runs in it."""
ENDED_MAX = 32
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
class Shell:
    """The commands of one workspace."""

    def __init__(
        self, confinement: Confinement, reaper: Reaper, limits: ShellLimits | None = None
    ) -> None:
        self.confinement = confinement
        self.reaper = reaper
        self.limits = limits or ShellLimits()
        path = confinement.environment().get("PATH", PATH)
        shell = shutil.which("bash", path=path) or shutil.which("sh", path=path)
        if shell is None:
            raise ConfigError(f"there is neither bash nor sh in {path}")
        self._program = shell
        self._jobs: dict[tuple[str, str], Job] = {}

    def start(
        self, context: RunContext, command: str, timeout_s: float | None, *, background: bool
    ) -> Job:
        _check(command)
        if background and sum(job.running for job in self._jobs.values()) >= self._most:
            raise ModelRetry(f"{self._most} background commands run already: end one first.")
        bounds = Bounds(
            timeout_s=timeout_s,
            grace_s=self.limits.grace_s,
            output_bytes_max=self.limits.output_bytes_max,
        )
        return Job(
            [self._program, "-c", command],
            self.confinement,
            self.reaper,
            bounds,
            _unheard if background else context.report,
            command=command,
        )

    @property
    def _most(self) -> int:
        return self.limits.background_max

    def keep(self, session: str, job: Job) -> str:
        """Give a background command the name to find it by, in its own session."""
        over = [name for name, job in self._jobs.items() if not job.running]
        for name in over[: -ENDED_MAX + 1]:
            del self._jobs[name]
        handle = f"bg-{secrets.token_hex(3)}"
        self._jobs[session, handle] = job
        return handle

    def find(self, session: str, handle: str) -> Job:
        job = self._jobs.get((session, handle))
        if job is None:
            own = [name for owner, name in self._jobs if owner == session]
            known = f"There are: {', '.join(own)}." if own else "There is none."
            raise ModelRetry(
                f"There is no background command {handle!r}: they end with the runtime. {known}"
            )
        return job

    def told(self, job: Job, end: End) -> Result:
        """The result of a command that is over."""
        text, _ = job.output.text()
        body = text.rstrip("\n") or "(no output)"
        said = f"{body}\n[{job.state}; {self.confinement.short}]"
        match end.cause:
            case "timed_out":
                return Result.say("timed_out", said)
            case "failed" | "lost":
                return Result.say("error", said)
            case "exited" | "stopped":
                return Result.say("value", said)

    def close(self) -> None:
        """End what runs in the background."""
        for job in self._jobs.values():
            job.stop()
        for job in self._jobs.values():
            job.ended.result()
        self.reaper.close()

    def recover(self) -> list[str]:
        """End what a dead runtime left running here."""
        return [f"{one.program} (of: {one.command})" for one in self.reaper.reap()]

    @property
    def tools(self) -> tuple[Tool[..., Any], ...]:
        bash = replace(_bash(self), recover=self.recover)
        return bash, _bash_output(self), _bash_kill(self)


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
) -> Shell:
    """The same with a handle on it: to close it, or to say what is in force."""
    folder = root if isinstance(root, Path) else root.root
    confinement = confine(folder, sandbox, environ)
    return Shell(confinement, Reaper(state or confinement.root / STATE), limits)


def _bash(shell: Shell) -> Tool[..., Any]:
    limits, confinement = shell.limits, shell.confinement
    network = "" if confinement.network else " There is no network."
    writable = "" if confinement.tier == "process" else " Only the workspace can be written."

    @tool(
        description=(
            "Run a command with bash, in the workspace folder. Each call is a new shell. What the "
            "command leaves running ends with it: start servers with background=true."
            f"{network}{writable}"
        ),
        timeout=limits.timeout_s_max + limits.grace_s + 15,
        # What can reach others brings their words along.
        untrusted=confinement.network,
        external=confinement.network,
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
    ) -> Result:
        if background:
            job = shell.start(context, command, timeout_s, background=True)
            handle = shell.keep(context.session_id, job)
            text = f'Started in the background: handle "{handle}". [{confinement.short}]'
            return Result.say("value", text)
        job = shell.start(context, command, timeout_s or limits.timeout_s, background=False)
        return shell.told(job, await _end_of(job))

    return bash


def _bash_output(shell: Shell) -> Tool[..., Any]:
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
        job = shell.find(context.session_id, handle)
        ended = asyncio.wrap_future(job.ended)
        await asyncio.wait({ended}, timeout=wait_s)
        ended.cancel()  # Only this wait for it: the command goes on.
        state = job.state
        text, total = job.output.text(since)
        body = text.rstrip("\n") or "(no output)"
        return f"{body}\n[{state}; go on with since={total}; {shell.confinement.short}]"

    return bash_output


def _bash_kill(shell: Shell) -> Tool[..., Any]:
    @tool(effect="idempotent", retries=0)
    async def bash_kill(
        context: RunContext, handle: Annotated[str, "The handle that bash gave."]
    ) -> Result:
        """End a background command and everything that it started."""
        job = shell.find(context.session_id, handle)
        job.stop()
        return shell.told(job, await _end_of(job))

    return bash_kill


async def _end_of(job: Job) -> End:
    """Wait for the end. A cancel ends the command, and waits for that."""
    ended = asyncio.wrap_future(job.ended)
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        job.stop()
        # Cancelled once more, we go; the supervisor sees to the rest.
        await asyncio.shield(ended)
        raise
    finally:
        ended.cancel()


def _check(command: str) -> None:
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


def _unheard(_text: str) -> None:
    """Nobody watches what goes on in the background; it is read."""
