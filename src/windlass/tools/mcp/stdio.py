"""An MCP server as a child process, its pipes as streams of the SDK, and its end.

Invariant: the server never outlives the runtime, nor does anything that it started. It runs in its
own session. A guard in its process group holds the read end of a pipe: whatever ends the runtime,
even SIGKILL, closes the pipe, and the guard kills the group. As the guard is in the group, the
group's id is not given to other processes while the runtime may still signal it.

The end of the server's output is the end of the connection. It is reported before any request that
waits for an answer wakes up, so that the request can say why.
"""

import asyncio
import os
import shutil
import signal
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from windlass.core.errors import ConfigError
from windlass.core.text_clip import printable_line
from windlass.logs import get_logger
from windlass.tools.helper_programs import absolute_entries
from windlass.tools.mcp.config import ANSWER_BYTES_MAX, McpStdio
from windlass.tools.mcp.message_bounds import bound_message, find_request_id
from windlass.tools.process_calls import close_pipes, wait_for_exit
from windlass.tools.processes import find_descendants

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client import Transport
    from mcp.shared.message import SessionMessage
    from mcp_types import JSONRPCError

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
LINES_AT_ONCE = 100
"""Lines that are read before other tasks of the event loop get their turn."""
REASON_CHARS = 200
_log = get_logger(__name__)


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
            self._signal_group(signal.SIGKILL)
            for process in descendants:  # Those that left the group.
                process.send_signal(signal.SIGKILL)
            if self._lifeline >= 0:
                os.close(self._lifeline)
                self._lifeline = -1
        await wait_for_exit(self._process, EXIT_CODE_S)
        close_pipes(self._process)

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


def stdio_transport(settings: McpStdio, on_end: Callable[[str], None]) -> "Transport":
    """Return a transport that starts the server process.

    `on_end` is called with the reason when there is nothing more to come.
    """
    return _open_streams(settings, on_end)


@asynccontextmanager
async def _open_streams(
    settings: McpStdio, on_end: Callable[[str], None]
) -> "AsyncGenerator[tuple[MemoryObjectReceiveStream[Any], MemoryObjectSendStream[Any]]]":
    import anyio  # noqa: PLC0415 - of the extra

    process = await start_server(settings)
    send_in, receive_in = anyio.create_memory_object_stream["SessionMessage | Exception"](0)
    send_out, receive_out = anyio.create_memory_object_stream["SessionMessage"](0)
    pumps = [
        asyncio.create_task(_log_errors(process, settings.name)),
        asyncio.create_task(_read_messages(process, send_in, on_end)),
        asyncio.create_task(_write_messages(process, receive_out)),
    ]
    try:
        yield receive_in, send_out
    finally:
        try:
            with anyio.CancelScope(shield=True):
                await process.stop()
        finally:
            for pump in pumps:
                pump.cancel()
            for stream in (send_in, receive_in, send_out, receive_out):
                stream.close()


async def _read_messages(
    process: ServerProcess,
    stream: "MemoryObjectSendStream[SessionMessage | Exception]",
    on_end: Callable[[str], None],
) -> None:
    """Deliver the server's messages until its output ends.

    It keeps reading after the messages are no longer wanted: a server that blocks while it writes
    does not notice that its input has ended.
    """
    reason = ""
    lines = 0
    try:
        while line := await process.output.readline():
            await _deliver_line(line, stream)
            lines += 1
            if lines % LINES_AT_ONCE == 0:
                # Lines that have come already are read without waiting.
                await asyncio.sleep(0)
    except ValueError:
        limit = f"{ANSWER_BYTES_MAX / 2**20:.0f} MiB"
        reason = f"it sent a message that is longer than {limit}; ask for less"
    except OSError as error:
        reason = str(error)
    on_end(reason or await process.describe_exit())
    stream.close()


async def _deliver_line(
    line: bytes, stream: "MemoryObjectSendStream[SessionMessage | Exception]"
) -> None:
    import anyio  # noqa: PLC0415 - of the extra
    from mcp.shared.message import SessionMessage  # noqa: PLC0415 - of the extra
    from mcp_types import jsonrpc_message_adapter  # noqa: PLC0415 - of the extra

    line = await bound_message(line)
    if not line.strip():
        return
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError as error:
            refusal = _refuse_answer(line, error)
            if refusal is None:
                # Some servers print to their standard output, which is no reason to drop them.
                _log.debug("an MCP server wrote a line that is not a message: %.200r", line)
            else:
                await stream.send(SessionMessage(refusal))
        else:
            await stream.send(SessionMessage(message))


def _refuse_answer(line: bytes, error: ValueError) -> "JSONRPCError | None":
    """Return an error in place of an answer that cannot be read; None if it is not an answer.

    Without it, the request would wait for an answer until its time-out.
    """
    from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError  # noqa: PLC0415 - of the extra

    # It may be too deep for a JSON reader, so only its ends are searched.
    request_id = find_request_id(line)
    if request_id is None:
        return None
    reason = (
        f"the server sent an answer that cannot be read: {printable_line(str(error), REASON_CHARS)}"
    )
    return JSONRPCError(
        jsonrpc="2.0", id=request_id, error=ErrorData(code=PARSE_ERROR, message=reason)
    )


async def _write_messages(
    process: ServerProcess, messages: "MemoryObjectReceiveStream[SessionMessage]"
) -> None:
    # After a broken pipe, the output ends too, and `_read_messages` reports that.
    with suppress(OSError):
        async for message in messages:
            line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.input.write(line.encode() + b"\n")
            await process.input.drain()


async def _log_errors(process: ServerProcess, name: str) -> None:
    """Copy the server's standard error to the log."""
    while True:
        try:
            data = await process.errors.readline()
        except ValueError:  # A line that is too long is skipped.
            continue
        if not data:
            return
        line = data.decode("utf-8", "replace").rstrip()
        process.remember_error_line(line)
        _log.debug("%s: %s", name, line)
