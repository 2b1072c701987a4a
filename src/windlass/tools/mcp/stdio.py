"""Connects the pipes of a server process to the streams that the MCP SDK uses.

The law: the end of the server's output is the end of the connection. It is reported before any
request that waits for an answer wakes up, so that the request can say why.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from windlass.core.text_clip import printable_line
from windlass.logs import get_logger
from windlass.tools.mcp.config import ANSWER_BYTES_MAX, McpStdio
from windlass.tools.mcp.message_bounds import bound_message, find_request_id
from windlass.tools.mcp.process import ServerProcess, start_server

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client import Transport
    from mcp.shared.message import SessionMessage
    from mcp_types import JSONRPCError

LINES_AT_ONCE = 100
"""Lines that are read before other tasks of the event loop get their turn."""
REASON_CHARS = 200
_log = get_logger(__name__)


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

    It keeps reading when nobody wants the messages any more: a server that blocks while it writes
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
    """Return an error in the place of an answer that cannot be read; None if it is not an answer.

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
