"""The routes of the MCP server: one path, as streamable HTTP wants it."""

from importlib.util import find_spec
from weakref import WeakKeyDictionary

from windlass.server import mcp
from windlass.server.errors import ApiError
from windlass.server.messages import JSON_TYPE, SSE_TYPE, HttpReply, HttpRequest, Reply
from windlass.server.routing import Route
from windlass.server.service import Service

PATH = "/mcp"
INVALID_REQUEST = -32600
_ENDPOINTS: "WeakKeyDictionary[Service, mcp.McpEndpoint]" = WeakKeyDictionary()


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


def shape_error(error: ApiError) -> HttpReply:
    """Return an error as JSON-RPC has it."""
    body = {
        "jsonrpc": "2.0",
        "id": None,
        "error": {
            "code": INVALID_REQUEST,
            "message": str(error),
            "data": {"code": error.code, "hint": error.hint},
        },
    }
    headers = dict(error.headers)
    return HttpReply(error.status, body, headers)


ROUTES: tuple[Route, ...] = (
    Route(
        method="POST",
        path=PATH,
        handler=exchange_messages,
        role="watch",
        scope="caller",
        name="sendMcpMessage",
        summary="A message of the Model Context Protocol: agents as tools, runs as tasks.",
        streams=True,
        content_types=(JSON_TYPE, SSE_TYPE),
        error_shape=shape_error,
    ),
    Route(
        method="GET",
        path=PATH,
        handler=exchange_messages,
        role="watch",
        scope="caller",
        name="openMcpStream",
        summary="The stream of messages to a client of an older version of MCP.",
        streams=True,
        content_types=(SSE_TYPE,),
        error_shape=shape_error,
    ),
    Route(
        method="DELETE",
        path=PATH,
        handler=exchange_messages,
        role="watch",
        scope="caller",
        name="endMcpSession",
        summary="End the session of a client of an older version of MCP.",
        error_shape=shape_error,
    ),
)
