"""An MCP server behind the SDK's own authorization server: `sdk_auth_server.py METHOD PORT`.

METHOD is the one way of naming a client that the server offers. Whoever comes to sign in is signed
in. Each token says that its time is almost up, so that a client renews it before each use.
"""

import secrets
import sys
import time

import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.routes import build_metadata
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.responses import JSONResponse
from typing_extensions import override

METHOD, PORT = sys.argv[1], int(sys.argv[2])
URL = AnyHttpUrl(f"http://127.0.0.1:{PORT}")


class OneGrant(
    OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken],
):
    """Keeps clients, codes and tokens in memory. A refresh token counts once."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}

    @override
    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    @override
    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id or ""] = client_info

    @override
    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        code = AuthorizationCode(
            code=secrets.token_urlsafe(16),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id or "",
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    @override
    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    @override
    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._issue(client, authorization_code.resource)

    @override
    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    @override
    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self.refresh[refresh_token.token]
        return self._issue(client, refresh_token.resource)

    @override
    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    @override
    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.clear()
        self.refresh.clear()

    def _issue(self, client: OAuthClientInformationFull, resource: str | None) -> OAuthToken:
        owner = client.client_id or ""
        token, renewal = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
        self.access = {
            token: AccessToken(token=token, client_id=owner, scopes=[], resource=resource)
        }
        self.refresh[renewal] = RefreshToken(
            token=renewal, client_id=owner, scopes=[], resource=resource
        )
        return OAuthToken(access_token=token, expires_in=1, refresh_token=renewal)


registration, revocation = ClientRegistrationOptions(enabled=True), RevocationOptions(enabled=True)
server = MCPServer(
    "own",
    auth_server_provider=OneGrant(),
    auth=AuthSettings(
        issuer_url=URL,
        resource_server_url=AnyHttpUrl(f"{URL}mcp"),
        client_registration_options=registration,
        revocation_options=revocation,
        validate_token_resource=True,
    ),
)


@server.tool()
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello {name}"


app = server.streamable_http_app()
metadata = build_metadata(URL, None, registration, revocation)
metadata.token_endpoint_auth_methods_supported = [METHOD]


async def narrowed(scope, receive, send):  # noqa: ANN001, ANN201 - ASGI
    if scope.get("path") == "/.well-known/oauth-authorization-server":
        body = metadata.model_dump(mode="json", exclude_none=True)
        await JSONResponse(body)(scope, receive, send)
        return
    await app(scope, receive, send)


if __name__ == "__main__":
    uvicorn.run(narrowed, host="127.0.0.1", port=PORT, log_level="error")
