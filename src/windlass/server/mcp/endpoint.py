"""The MCP server behind HTTP: between the service's own requests and the SDK's transport.

Invariant: who calls is decided by the service before the SDK sees a request. Messages of versions
with a handshake are answered from the journal (`handshake.py`), at any replica; all others by the
SDK, which keeps nothing of them.
"""

import asyncio
from collections.abc import AsyncGenerator, MutableMapping
from contextlib import suppress
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from windlass.server.access import Caller
from windlass.server.mcp.agent_calls import RequestContext
from windlass.server.mcp.handshake import HandshakeEndpoint
from windlass.server.mcp.server import build_server
from windlass.server.messages import (
    SSE_TYPE,
    HttpReply,
    HttpRequest,
    Reply,
    StreamReply,
    check_keys,
)
from windlass.server.service import Service

CALLER_KEY = "windlass.caller"
VERSION_HEADER = "mcp-protocol-version"
CHUNKS_WAITING_MAX = 64
"""Pieces of a reply that wait for a slow client; then the SDK waits too."""
END_S = 5.0
"""How long the SDK may take to notice that a client is gone."""
AsgiMessage = MutableMapping[str, Any]


def read_caller(ctx: RequestContext) -> Caller:
    """Return on whose behalf a request over HTTP is made."""
    caller = ctx.request.scope[CALLER_KEY] if ctx.request is not None else None
    if not isinstance(caller, Caller):
        raise TypeError("the request was not admitted by the service")
    return caller


class McpEndpoint:
    """Serves MCP for one service."""

    def __init__(self, service: Service, server: Server[Any] | None = None) -> None:
        """Make an endpoint.

        `server`: another one than that of the service's agents. The SDK then keeps the sessions of
        its clients, in this process.
        """
        self._handshakes = HandshakeEndpoint(service) if server is None else None
        self._manager = StreamableHTTPSessionManager(
            server or build_server(service, read_caller),
            max_request_body_size=service.limits.body_bytes,
        )
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        service.background.start("mcp", self._run)

    async def _run(self) -> None:
        async with self._manager.run():
            self._ready.set_result(None)
            await asyncio.get_running_loop().create_future()

    async def handle(self, request: HttpRequest) -> Reply:
        """Answer a request whose caller is known. Raises ApiError."""
        version = request.header(VERSION_HEADER)
        has_handshake = not version or version in HANDSHAKE_PROTOCOL_VERSIONS
        if self._handshakes is not None and has_handshake:
            return await self._handshakes.handle(request)
        body = await request.read_body()
        check_keys(body)
        await asyncio.shield(self._ready)
        exchange = _AsgiExchange(request, body)
        return await exchange.begin(self._manager)


class _AsgiExchange:
    """One request as the SDK sees it, and the reply that it makes."""

    def __init__(self, request: HttpRequest, body: bytes) -> None:
        self._request = request
        self._body: bytes | None = body
        self._closed = asyncio.Event()
        self._messages: asyncio.Queue[AsgiMessage | None] = asyncio.Queue(CHUNKS_WAITING_MAX)
        self._task: asyncio.Task[None] | None = None

    async def begin(self, manager: StreamableHTTPSessionManager) -> Reply:
        """Let the SDK answer; returns when the head of its reply is known."""
        self._task = asyncio.create_task(self._run(manager))
        head = await self._messages.get()
        if head is None:
            self._task.result()
            raise RuntimeError("the MCP transport sent no reply")
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in head["headers"]
        }
        content_type = headers.pop("content-type", "application/json")
        headers.pop("content-length", None)
        status = int(head["status"])
        if content_type.startswith(SSE_TYPE):
            return StreamReply(self._stream(), status, content_type, headers)
        body = b"".join([chunk async for chunk in self._stream()])
        return HttpReply(status, body, headers, content_type)

    async def _run(self, manager: StreamableHTTPSessionManager) -> None:
        try:
            await manager.handle_request(self._make_scope(), self._receive, self._send)
        finally:
            with suppress(asyncio.QueueFull):
                self._messages.put_nowait(None)
            self._closed.set()

    def _make_scope(self) -> dict[str, Any]:
        request = self._request
        caller = request.caller
        token = AccessToken(
            token="", client_id=caller.name or "owner", scopes=[], subject=caller.token
        )
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": request.scheme,
            "path": request.path,
            "raw_path": request.path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [
                (name.encode("latin-1"), value.encode("latin-1"))
                for name, value in request.headers.items()
            ],
            "client": (request.remote, 0),
            "server": None,
            "user": AuthenticatedUser(token),
            CALLER_KEY: caller,
        }

    async def _receive(self) -> AsgiMessage:
        if self._body is not None:
            body = self._body
            self._body = None
            return {"type": "http.request", "body": body, "more_body": False}
        waits = {
            asyncio.create_task(self._closed.wait()),
            asyncio.create_task(self._request.wait_disconnect()),
        }
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
        return {"type": "http.disconnect"}

    async def _send(self, message: AsgiMessage) -> None:
        if self._closed.is_set():
            raise OSError("the client is gone")
        await self._messages.put(message)

    async def _stream(self) -> AsyncGenerator[bytes]:
        """Yield the body. When the client disconnects, only the SDK is notified."""
        try:
            while True:
                message = await self._next_message()
                if message is None:
                    return
                if message.get("body"):
                    yield message["body"]
                if not message.get("more_body", False):
                    return
        finally:
            self._closed.set()
            if self._task is not None:
                await asyncio.wait({self._task}, timeout=END_S)
                self._task.cancel()

    async def _next_message(self) -> AsgiMessage | None:
        if self._messages.empty() and self._task is not None and self._task.done():
            return None
        return await self._messages.get()
