"""An MCP server as a child process, and the end of it with everything that it started.

The law: the server never outlives the runtime. It runs in its own session. A guard in its process
group holds the read end of a pipe: whatever ends the runtime, even SIGKILL, closes the pipe, and
the guard kills the group. As the guard is in the group, the group's id is not given to other
processes while the runtime may still signal it.
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
from windlass.tools.child_process import close_pipes, wait_for_exit
from windlass.tools.helper_programs import absolute_entries
from windlass.tools.mcp.config import ANSWER_BYTES_MAX, McpStdio
from windlass.tools.processes import ProcessInfo, find_descendants

STOP_STEP_S = 2.0
"""From the end of its input to SIGTERM, and from SIGTERM to SIGKILL."""
EXIT_CODE_S = 1.0
"""From the end of its output until its exit code is known."""
ERROR_LINES_MAX = 20
ERROR_CHARS_MAX = 300

# $1 is the descriptor of the pipe, the rest is the server's command line.
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
        """Keep a line from its standard error, which may explain its end."""
        if line.strip():
            self._error_lines.append(line.strip())

    async def describe_exit(self) -> str:
        """Say in words how it ended."""
        await wait_for_exit(self._process, EXIT_CODE_S)
        code = self._process.returncode
        if code is None:
            return "it closed its output"
        text = f"it ended with {_describe_code(code)}"
        if self._error_lines and code:
            text += f": {self._error_lines[-1][:ERROR_CHARS_MAX]}"
        return text

    async def stop(self) -> None:
        """Close its input, then send SIGTERM, then SIGKILL; its descendants are killed anyway."""
        descendants = find_descendants(self.pid)
        try:
            self.input.close()
            if not await wait_for_exit(self._process, STOP_STEP_S):
                self._signal_group(signal.SIGTERM)
                await wait_for_exit(self._process, STOP_STEP_S)
        finally:
            self._kill_all(descendants)
        await wait_for_exit(self._process, EXIT_CODE_S)
        close_pipes(self._process)

    def _kill_all(self, descendants: list[ProcessInfo]) -> None:
        self._signal_group(signal.SIGKILL)
        for process in descendants:  # Those that left the group.
            process.send_signal(signal.SIGKILL)
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def _signal_group(self, number: signal.Signals) -> None:
        # Without the lifeline the guard is gone, and the group's id may be another group's.
        if self._lifeline >= 0:
            with suppress(OSError):
                os.killpg(self.pid, number)


async def start_server(settings: McpStdio) -> ServerProcess:
    """Start a server. Raises ConfigError if its program or folder is missing, or OSError."""
    program = _find_program(settings)
    guard_end, lifeline = os.pipe()
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", _GUARD_SCRIPT, "windlass-mcp"),
            *(str(guard_end), program, *settings.args),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            cwd=settings.cwd,
            env={**settings.env, "PATH": _server_path(settings)},
            limit=ANSWER_BYTES_MAX,
            pass_fds=(guard_end,),
            # Ctrl-C in a terminal is for the runtime alone.
            start_new_session=True,
        )
    except BaseException:
        os.close(lifeline)
        raise
    finally:
        os.close(guard_end)
    return ServerProcess(process, lifeline)


def _find_program(settings: McpStdio) -> str:
    if settings.cwd is not None and not Path(settings.cwd).is_dir():
        raise ConfigError(f"there is no folder {settings.cwd!r}: correct its `cwd`")
    command = settings.command
    if os.sep in command:
        command = str(Path(settings.cwd or ".", Path(command).expanduser()).absolute())
    found = shutil.which(command, path=_server_path(settings))
    if found is None:
        raise ConfigError(
            f"there is no program {settings.command!r}: install it, or correct its `command`"
        )
    return found


def _server_path(settings: McpStdio) -> str:
    """Return where a server and its programs are looked up: never in the current folder.

    The current folder may be a stranger's, with a program in it that has the name of a server.
    """
    path = settings.env.get("PATH", os.defpath)
    return os.pathsep.join(absolute_entries(path))


def _describe_code(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
