"""The routes of the MCP server: one path, as streamable HTTP wants it."""

from importlib.util import find_spec
from typing import Any, Literal
from weakref import WeakKeyDictionary

import msgspec

from windlass.server import mcp
from windlass.server.errors import ApiError
from windlass.server.messages import (
    JSON_TYPE,
    SSE_TYPE,
    HttpReply,
    HttpRequest,
    Reply,
    error_headers,
)
from windlass.server.routing import Routes
from windlass.server.service import Service

PATH = "/mcp"
INVALID_REQUEST = -32600
_ENDPOINTS: "WeakKeyDictionary[Service, mcp.McpEndpoint]" = WeakKeyDictionary()


class McpMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message of JSON-RPC: a request, a notification or a response."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: str | int | None = None
    method: str = ""
    params: dict[str, Any] = {}
    result: dict[str, Any] = {}


class McpFault(msgspec.Struct, frozen=True):
    """What went wrong, in the words of JSON-RPC."""

    code: int
    message: str
    data: dict[str, Any]


class McpErrorReply(msgspec.Struct, frozen=True):
    """The body of an error."""

    error: McpFault
    jsonrpc: Literal["2.0"] = "2.0"
    id: None = None


def shape_error(error: ApiError) -> HttpReply:
    """Return an error as JSON-RPC has it."""
    fault = McpFault(INVALID_REQUEST, str(error), {"code": error.code, "hint": error.hint})
    return HttpReply(error.status, McpErrorReply(fault), error_headers(error))


ROUTES = Routes()
SHAPE: dict[str, Any] = {"error_shape": shape_error, "error_body": McpErrorReply}


@ROUTES.add(
    "POST",
    PATH,
    role="watch",
    scope="caller",
    name="sendMcpMessage",
    summary="A message of the Model Context Protocol: agents as tools, runs as tasks.",
    body=McpMessage,
    reply=dict[str, Any],
    streams=True,
    content_types=(JSON_TYPE, SSE_TYPE),
    other_statuses=(202,),
    **SHAPE,
)
@ROUTES.add(
    "GET",
    PATH,
    role="watch",
    scope="caller",
    name="openMcpStream",
    summary="Go on with the stream of a request, by Last-Event-ID (older versions of MCP).",
    streams=True,
    content_types=(SSE_TYPE,),
    **SHAPE,
)
@ROUTES.add(
    "DELETE",
    PATH,
    role="watch",
    scope="caller",
    name="endMcpSession",
    summary="End the session of a client of an older version of MCP.",
    status=204,
    **SHAPE,
)
async def exchange_messages(service: Service, request: HttpRequest) -> Reply:
    """Take a message of a client, open its stream, or end its session."""
    endpoint = _ENDPOINTS.get(service)
    if endpoint is None:
        if find_spec("mcp") is None:
            raise ApiError(
                501,
                "extra_missing",
                "This service does not speak MCP.",
                "Install it with its extra: pip install 'windlass[mcp]'",
            )
        endpoint = _ENDPOINTS[service] = mcp.McpEndpoint(service)
    return await endpoint.handle(request)
