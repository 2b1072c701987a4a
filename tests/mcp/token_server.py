"""An MCP server behind OAuth, with its own authorization server: checks what a real one checks."""

import base64
import sys
from urllib.parse import parse_qs

import uvicorn
from mcp.server.mcpserver import MCPServer
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

PORT = int(sys.argv[2])
URL = f"http://127.0.0.1:{PORT}"
server = MCPServer("own")
issued: list[str] = []


@server.tool()
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello {name}"


async def answer_auth(request: Request) -> Response | None:
    match request.url.path:
        case "/.well-known/oauth-protected-resource/mcp" | "/.well-known/oauth-protected-resource":
            return JSONResponse({"resource": f"{URL}/mcp", "authorization_servers": [URL]})
        case "/.well-known/oauth-authorization-server":
            return JSONResponse(
                {
                    "issuer": URL,
                    "authorization_endpoint": f"{URL}/authorize",
                    "token_endpoint": f"{URL}/token",
                    "response_types_supported": ["code"],
                    "grant_types_supported": ["client_credentials"],
                    "token_endpoint_auth_methods_supported": ["client_secret_basic"],
                }
            )
        case "/token":
            form = parse_qs((await request.body()).decode())
            basic = base64.b64encode(b"clerk:open-sesame-1234").decode()
            right = request.headers.get("authorization") == f"Basic {basic}"
            if not right or form.get("grant_type") != ["client_credentials"]:
                return JSONResponse({"error": "invalid_client"}, 401)
            issued.append(f"token-{len(issued)}")
            return JSONResponse({"access_token": issued[-1], "token_type": "Bearer"})
    if issued and request.headers.get("authorization") == f"Bearer {issued[-1]}":
        return None
    metadata = f"{URL}/.well-known/oauth-protected-resource/mcp"
    challenge = {"WWW-Authenticate": f'Bearer resource_metadata="{metadata}"'}
    return Response(status_code=401, headers=challenge)


app = server.sse_app() if sys.argv[1] == "sse" else server.streamable_http_app()


async def guarded(scope, receive, send):  # noqa: ANN001, ANN201 - ASGI
    if scope["type"] == "http" and sys.argv[1] == "oauth":
        refused = await answer_auth(Request(scope, receive))
        if refused is not None:
            await refused(scope, receive, send)
            return
    await app(scope, receive, send)


if __name__ == "__main__":
    uvicorn.run(guarded, host="127.0.0.1", port=PORT, log_level="error")
