"""An MCP server as a child process, and the end of it with all that it started.

The law: it never outlives us. It runs in a session of its own, with a guard in its process group
that holds the other end of a pipe of ours: whatever ends us, SIGKILL too, closes the pipe, and the
guard kills the group. As the guard is in the group, the group's number is not given to others while
we may still kill it.
"""

import asyncio
import os
import shutil
import signal
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import final

from windlass.core.errors import ConfigError
from windlass.tools.mcp.config import McpStdio

LINE_BYTES_MAX = 64 * 2**20
"""One message: pictures travel in them."""
STOP_STEP_S = 2.0
"""From the end of its input until it is told to end, and from there until it is killed."""
EXIT_CODE_S = 1.0
"""From the end of its output until its exit code is there."""
POLL_S = 0.01
ERROR_LINES_MAX = 20
ERROR_CHARS_MAX = 300

_GUARD_SCRIPT = (
    '(trap "" HUP INT TERM; read -r _ <"/dev/fd/$1"; kill -KILL 0) '
    '</dev/null >/dev/null 2>&1 & shift; exec "$@"'
)


@final
class ServerProcess:
    """A running server."""

    def __init__(self, process: asyncio.subprocess.Process, lifeline: int) -> None:
        self._process = process
        self._lifeline = lifeline
        self._error_lines: deque[str] = deque(maxlen=ERROR_LINES_MAX)
        assert process.stdin is not None  # noqa: S101 - all three are pipes
        assert process.stdout is not None  # noqa: S101
        assert process.stderr is not None  # noqa: S101
        self.input = process.stdin
        self.output = process.stdout
        self.errors = process.stderr

    @property
    def pid(self) -> int:
        return self._process.pid

    def remember_error_line(self, line: str) -> None:
        """Remember what it wrote to its standard error, to tell it if it dies."""
        if line.strip():
            self._error_lines.append(line.strip())

    async def describe_exit(self) -> str:
        """What it died of, in words."""
        await self._wait_for_exit(EXIT_CODE_S)
        code = self._process.returncode
        if code is None:
            return "it closed its output"
        said = f": {self._error_lines[-1][:ERROR_CHARS_MAX]}" if self._error_lines and code else ""
        return f"it ended with {_describe_code(code)}{said}"

    async def stop(self) -> None:
        """Let it end by itself, then tell it to, then kill it; and its descendants in any case."""
        strays = _descendants(self.pid)
        try:
            self.input.close()
            if not await self._wait_for_exit(STOP_STEP_S):
                self._signal_group(signal.SIGTERM)
                await self._wait_for_exit(STOP_STEP_S)
        finally:
            self._kill_all(strays)
        await self._wait_for_exit(EXIT_CODE_S)
        # Nothing public closes the pipes while a survivor holds their other end.
        transport = getattr(self._process, "_transport", None)
        if isinstance(transport, asyncio.SubprocessTransport):
            with suppress(OSError):
                transport.close()

    def _kill_all(self, strays: frozenset[tuple[int, str]]) -> None:
        self._signal_group(signal.SIGKILL)
        for pid, born in strays:
            if _born(pid) == born:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def _signal_group(self, number: signal.Signals) -> None:
        if self._lifeline >= 0:  # Else the group is gone, and its number may be another's.
            with suppress(OSError):
                os.killpg(self.pid, number)

    async def _wait_for_exit(self, seconds: float) -> bool:
        """Whether it ended in time. `wait` would wait for its descendants' pipes as well."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while self._process.returncode is None and loop.time() < until:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        return self._process.returncode is not None


async def start_server(settings: McpStdio) -> ServerProcess:
    """Start a server; raises ConfigError or OSError."""
    program = _find_program(settings)
    watched, lifeline = os.pipe()
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *(
                "/bin/sh",
                "-c",
                _GUARD_SCRIPT,
                "windlass-mcp",
                str(watched),
                program,
                *settings.args,
            ),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            cwd=settings.cwd,
            env=dict(settings.env),
            limit=LINE_BYTES_MAX,
            pass_fds=(watched,),
            # Ctrl-C in a terminal is for the runtime alone.
            start_new_session=True,
        )
    except BaseException:
        os.close(lifeline)
        raise
    finally:
        os.close(watched)
    return ServerProcess(process, lifeline)


def _find_program(settings: McpStdio) -> str:
    if settings.cwd is not None and not Path(settings.cwd).is_dir():
        raise ConfigError(f"there is no folder {settings.cwd!r}: mend its `cwd`")
    named = settings.command
    if os.sep in named:
        named = str(Path(settings.cwd or ".", Path(named).expanduser()).absolute())
    found = shutil.which(named, path=settings.env.get("PATH", os.defpath))
    if found is None:
        raise ConfigError(
            f"there is no program {settings.command!r}: install it, or mend its `command`"
        )
    return found


def _describe_code(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _descendants(pid: int) -> frozenset[tuple[int, str]]:
    """All that a process started, with the times of their births; nothing where no /proc is."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        stat = _stat(int(entry.name))
        if stat:
            children.setdefault(int(stat[1]), []).append(int(entry.name))
    found: set[int] = set()
    queue = [pid]
    while queue:
        fresh = [one for one in children.get(queue.pop(), ()) if one not in found]
        found.update(fresh)
        queue += fresh
    return frozenset((one, _born(one)) for one in found)


def _born(pid: int) -> str:
    stat = _stat(pid)
    return stat[19] if stat else ""


def _stat(pid: int) -> list[str]:
    """The fields of a process after its name: its state is the first, its parent the second."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []
