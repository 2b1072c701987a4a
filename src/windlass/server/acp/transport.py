"""`windlass acp`: serve an editor with JSON-RPC over a pair of streams, a message on each line.

The SDK's own transport cannot take a request back. This one remembers the ids of the requests that
it sent and received, so that `$/cancel_request` works in both directions.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any, Protocol, cast

import msgspec
from acp.core import AgentSideConnection
from acp.schema import PermissionOption, RequestPermissionResponse, ToolCallUpdate

from windlass.logs import get_logger
from windlass.server.acp.editor_agent import EditorAgent
from windlass.server.acp.updates import Update

LINE_BYTES_MAX = 64 * 2**20
"""The longest message that is read. A prompt may hold images."""
CANCEL_METHOD = "$/cancel_request"
PARSE_ERROR = -32700
INVALID_REQUEST = -32600

_log = get_logger(__name__)
JsonObject = dict[str, Any]


class MessageWriter(Protocol):
    """What a transport needs of an `asyncio.StreamWriter`."""

    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...

    def close(self) -> None: ...


class LineTransport:
    """Reads and writes messages. Is a `Transport` of the SDK."""

    def __init__(self, reader: asyncio.StreamReader, writer: MessageWriter) -> None:
        """Make a transport. The reader's limit should be `LINE_BYTES_MAX`."""
        self._reader = reader
        self._writer = writer
        self._one_at_a_time = asyncio.Lock()
        self._questions: dict[tuple[str, str], int | str] = {}
        """The ids of our open requests for permission, by session and tool call."""
        self._prompts: dict[int | str, str] = {}
        """The sessions of the editor's open prompts, by the id of the request."""

    async def send(self, message: JsonObject) -> None:
        """Write a message. Raises ConnectionError if the reader is gone."""
        if message.get("method") == "session/request_permission":
            params = message["params"]
            self._questions[params["sessionId"], params["toolCall"]["toolCallId"]] = message["id"]
        elif "method" not in message:
            self._prompts.pop(message.get("id", ""), None)
        data = msgspec.json.encode(message) + b"\n"
        async with self._one_at_a_time:
            self._writer.write(data)
            await self._writer.drain()

    async def withdraw_question(self, session: str, tool_call: str) -> None:
        """Tell the editor that a question is no longer open."""
        request = self._questions.pop((session, tool_call), None)
        if request is None:
            return
        params = {"requestId": request}
        await self.send({"jsonrpc": "2.0", "method": CANCEL_METHOD, "params": params})

    def forget_question(self, session: str, tool_call: str) -> None:
        """Note that the editor has answered a question."""
        self._questions.pop((session, tool_call), None)

    async def receive(self) -> JsonObject | None:
        """Return the next message; None at the end of the stream."""
        while True:
            line = await self._read_line()
            if line is None:
                return None
            if not line.strip():
                continue
            message = await self._parse_line(line)
            if message is not None:
                return message

    async def close(self) -> None:
        """Close the stream to the editor."""
        self._writer.close()

    async def _read_line(self) -> bytes | None:
        try:
            return await self._reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            # Half a message was never sent.
            return None if not error.partial.strip() else error.partial
        except asyncio.LimitOverrunError as error:
            await self._skip_line(error.consumed)
            await self._send_error(
                INVALID_REQUEST, f"The message is longer than {LINE_BYTES_MAX} bytes."
            )
            return b"\n"

    async def _skip_line(self, consumed: int) -> None:
        while True:
            await self._reader.readexactly(consumed)
            try:
                await self._reader.readuntil(b"\n")
            except asyncio.LimitOverrunError as error:
                consumed = error.consumed
            except asyncio.IncompleteReadError:
                return
            else:
                return

    async def _parse_line(self, line: bytes) -> JsonObject | None:
        """Return a message to handle, or None if the line was answered or is of no use."""
        try:
            message = msgspec.json.decode(line, type=JsonObject)
        except msgspec.ValidationError:
            await self._send_error(INVALID_REQUEST, "A message must be a JSON object.")
            return None
        except ValueError as error:
            await self._send_error(PARSE_ERROR, f"The line is not JSON: {error}")
            return None
        return self._translate(message)

    def _translate(self, message: JsonObject) -> JsonObject | None:
        """Note an open prompt, and turn the cancel of its request into the cancel of its turn."""
        given = message.get("params")
        if not isinstance(given, dict):
            return message
        params = cast("JsonObject", given)
        method = message.get("method")
        if method == "session/prompt" and isinstance(message.get("id"), int | str):
            self._prompts[message["id"]] = str(params.get("sessionId", ""))
        if method != CANCEL_METHOD:
            return message
        session = self._prompts.get(params.get("requestId", ""))
        if session is None:
            _log.info("the editor cancelled a request that is not a prompt, or not open")
            return None
        return {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}

    async def _send_error(self, code: int, text: str) -> None:
        await self.send({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": text}})


class ConnectedEditor:
    """The editor, once the connection to it exists. Is an `EditorClient`."""

    def __init__(self, transport: LineTransport) -> None:
        self._transport = transport
        self._connection: AgentSideConnection | None = None

    def connect(self, agent: EditorAgent) -> AgentSideConnection:
        """Make the connection, over which the editor calls the agent and the agent the editor."""
        # Resume and close are stable in the protocol, and not yet in this version of the SDK.
        self._connection = AgentSideConnection(
            _as_any(agent), self._transport, listening=False, use_unstable_protocol=True
        )
        return self._connection

    async def session_update(self, session_id: str, update: Update) -> None:
        """Send an update. Raises ConnectionError if the editor is gone."""
        await self._require_connection().session_update(session_id, update)

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption]
    ) -> RequestPermissionResponse:
        """Ask the person whether a call may run."""
        connection = self._require_connection()
        response = await connection.request_permission(session_id, tool_call, options)
        self._transport.forget_question(session_id, tool_call.tool_call_id)
        return response

    async def withdraw_question(self, session: str, tool_call: str) -> None:
        """Take a question back that was answered elsewhere."""
        await self._transport.withdraw_question(session, tool_call)

    def _require_connection(self) -> AgentSideConnection:
        if self._connection is None:
            raise ConnectionError("there is no connection to an editor")
        return self._connection


def _as_any(value: Any) -> Any:  # noqa: ANN401 - the SDK's protocol names methods that are optional
    return value


async def serve_editor(
    transport: LineTransport, flags: Mapping[str, object], *, use_project: bool = True
) -> None:
    """Serve one editor until it disconnects or this program is asked to end.

    Runs that are under way are released then: any process can resume them.
    """
    editor = ConnectedEditor(transport)
    agent = EditorAgent(editor, flags, use_project=use_project)
    connection = editor.connect(agent)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    listening = asyncio.create_task(connection.listen())
    stopping = asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait({listening, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        listening.cancel()
        await asyncio.wait({stopping, listening})
        # First the runs, while what they still say can be sent.
        await agent.aclose()
        await connection.close()


async def serve_stdio(flags: Mapping[str, object], *, use_project: bool = True) -> None:
    """Serve the editor that started this program."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    # Whatever else is printed must not end up between two messages.
    output = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, output)
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    await serve_editor(LineTransport(reader, writer), flags, use_project=use_project)
