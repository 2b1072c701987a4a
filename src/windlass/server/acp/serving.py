"""`windlass acp`: serve the editor at the other end of standard input and output."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from acp.core import AgentSideConnection
from acp.schema import PermissionOption, RequestPermissionResponse, ToolCallUpdate

from windlass.server.acp.editor_agent import EditorAgent
from windlass.server.acp.transport import LINE_BYTES_MAX, LineTransport
from windlass.server.acp.updates import Update


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
