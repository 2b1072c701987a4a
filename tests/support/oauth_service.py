"""An MCP server behind OAuth, with its authorization server: it checks what real ones check.

    service = OAuthService()
    async with FaultServer(always=service) as server:
        url = service.url_of(server)

Whoever comes to sign in is signed in. `problems` says what a client did wrong; a right one leaves
it empty.
"""

import base64
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from windlass.testing.fault_server import FaultServer, ReceivedRequest
from windlass.testing.wire import WireAnswer, refuse_with

_GREETING = {
    "name": "greet",
    "description": "Greet somebody.",
    "inputSchema": {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
    },
}


@dataclass
class _Grant:
    """What one sign-in has led to."""

    client_id: str
    redirect_uri: str
    challenge: str
    resource: str
    scope: str
    tokens: set[str] = field(default_factory=set[str])
    refresh_token: str = ""
    is_revoked: bool = False


@dataclass
class OAuthService:
    """A server with one tool, `greet`, which greets with the token if the name is `token`."""

    scope: str = "read"
    """What each request needs."""
    call_scope: str = ""
    """What calls need besides."""
    grants: str | None = None
    """The rights that a sign-in gets, whatever it asks for; None for those."""
    expires_in: float = 3600
    method: str = "none"
    """How clients show who they are at the token endpoint."""
    rotates: bool = True
    """Whether a refresh token is good for one time only."""
    resource_metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the description of the resource says instead."""
    server_metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the description of the authorization server says instead."""
    answer_iss: str | None = ""
    """The issuer in the answer to a sign-in; empty for the right one, None for none."""
    problems: list[str] = field(default_factory=list[str])
    sign_ins: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    """The queries of all that came to sign in."""
    refreshes: int = 0
    revoked: list[str] = field(default_factory=list[str])
    """The tokens that clients gave back."""
    clients: dict[str, tuple[str, list[str]]] = field(
        default_factory=dict[str, tuple[str, list[str]]]
    )
    """The secret and the redirects of each client, by its id."""
    _codes: dict[str, _Grant] = field(default_factory=dict[str, _Grant])
    _grants: list[_Grant] = field(default_factory=list[_Grant])
    _ends: dict[str, float] = field(default_factory=dict[str, float])

    @staticmethod
    def url_of(server: FaultServer) -> str:
        """Return the address of the MCP server."""
        return server.url.removesuffix("/v1") + "/mcp"

    def expire_tokens(self) -> None:
        """Let the time of all access tokens be over."""
        self._ends = dict.fromkeys(self._ends, 0.0)

    def forget_sign_ins(self) -> None:
        """Withdraw all tokens, also those that renew others."""
        self._grants.clear()

    def __call__(self, request: ReceivedRequest) -> WireAnswer:
        base = f"http://{request.headers['host']}"
        path, _, query = request.path.partition("?")
        match request.method, path:
            case "GET", "/.well-known/oauth-protected-resource/mcp":
                return _as_json(self._describe_resource(base))
            case "GET", "/.well-known/oauth-authorization-server":
                return _as_json(self._describe_server(base))
            case "POST", "/register":
                return self._register(request)
            case "GET", "/authorize":
                return self._authorize(base, _read_pairs(query))
            case "POST", "/token":
                return self._give_token(request, _read_pairs(request.body.decode()))
            case "POST", "/revoke":
                self.revoked.append(_read_pairs(request.body.decode())["token"])
                return _as_json({})
            case "POST", "/mcp":
                return self._answer_client(base, request)
            case _:
                return refuse_with(404, {"error": "not_found"})

    def _describe_resource(self, base: str) -> dict[str, Any]:
        return {
            "resource": f"{base}/mcp",
            "authorization_servers": [base],
            **self.resource_metadata,
        }

    def _describe_server(self, base: str) -> dict[str, Any]:
        return {
            "issuer": base,
            "authorization_endpoint": f"{base}/authorize",
            "token_endpoint": f"{base}/token",
            "registration_endpoint": f"{base}/register",
            "revocation_endpoint": f"{base}/revoke",
            "token_endpoint_auth_methods_supported": [self.method],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            **self.server_metadata,
        }

    def _register(self, request: ReceivedRequest) -> WireAnswer:
        client_id = f"client-{len(self.clients) + 1}"
        secret = "" if self.method == "none" else secrets.token_urlsafe(12)
        redirects = request.json["redirect_uris"]
        self.clients[client_id] = (secret, redirects)
        answer = {"client_id": client_id, "redirect_uris": redirects}
        if secret:
            answer["client_secret"] = secret
        return _as_json(answer, 201)

    def _authorize(self, base: str, query: dict[str, str]) -> WireAnswer:
        self.sign_ins.append(query)
        redirect = query.get("redirect_uri", "")
        host = urlsplit(redirect).hostname
        if redirect not in self.clients.get(query.get("client_id", ""), ("", []))[1]:
            return self._refuse("the redirect is not the client's")
        if host != "127.0.0.1":
            return self._refuse("the redirect is not on this machine")
        if query.get("code_challenge_method") != "S256" or "code_challenge" not in query:
            return self._refuse("there is no S256 challenge")
        if not query.get("state"):
            return self._refuse("there is no state")
        if query.get("resource") != self._describe_resource(base)["resource"]:
            return self._refuse("the resource is another one")
        code = secrets.token_urlsafe(16)
        self._codes[code] = _Grant(
            query["client_id"],
            redirect,
            query["code_challenge"],
            query["resource"],
            query.get("scope", self.scope) if self.grants is None else self.grants,
        )
        answer = {"code": code, "state": query["state"]}
        if self.answer_iss is not None:
            answer["iss"] = self.answer_iss or base
        return refuse_with(302, "", {"Location": f"{redirect}?{urlencode(answer)}"})

    def _give_token(self, request: ReceivedRequest, form: dict[str, str]) -> WireAnswer:
        client_id = self._find_client(request, form)
        if client_id is None:
            return self._refuse("the client did not show who it is", "invalid_client", 401)
        if form.get("grant_type") == "refresh_token":
            return self._refresh(client_id, form)
        grant = self._codes.get(form.get("code", ""))
        if grant is None:
            return self._refuse("the code is unknown", "invalid_grant")
        if grant in self._grants:
            grant.is_revoked = True
            return self._refuse("the code was used twice", "invalid_grant")
        self._grants.append(grant)
        digest = sha256(form.get("code_verifier", "").encode()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != grant.challenge:
            return self._refuse("the verifier is another one", "invalid_grant")
        if (client_id, form.get("redirect_uri")) != (grant.client_id, grant.redirect_uri):
            return self._refuse("client or redirect are other ones", "invalid_grant")
        return self._issue(grant, form)

    def _find_client(self, request: ReceivedRequest, form: dict[str, str]) -> str | None:
        authorization = request.headers.get("authorization", "")
        client_id, secret = form.get("client_id", ""), form.get("client_secret", "")
        method = "client_secret_post" if secret else "none"
        if authorization.startswith("Basic "):
            method = "client_secret_basic"
            pair = base64.b64decode(authorization.removeprefix("Basic ")).decode()
            client_id, secret = map(unquote, pair.split(":"))
        known = self.clients.get(client_id)
        is_right = known is not None and known[0] == secret and method == self.method
        return client_id if is_right else None

    def _refresh(self, client_id: str, form: dict[str, str]) -> WireAnswer:
        given = form.get("refresh_token", "")
        grant = next((one for one in self._grants if given in one.tokens), None)
        if grant is None or grant.is_revoked or grant.client_id != client_id:
            return self._refuse("the refresh token is unknown", "invalid_grant")
        if given != grant.refresh_token:
            grant.is_revoked = True
            return self._refuse("a refresh token was used twice", "invalid_grant")
        self.refreshes += 1
        return self._issue(grant, form)

    def _issue(self, grant: _Grant, form: dict[str, str]) -> WireAnswer:
        if form.get("resource") != grant.resource:
            return self._refuse("the resource is another one", "invalid_target")
        token = f"access-{secrets.token_urlsafe(16)}"
        self._ends[token] = time.time() + self.expires_in
        answer = {
            "access_token": token,
            "token_type": "Bearer",
            "expires_in": self.expires_in,
            "scope": grant.scope,
        }
        if self.rotates or not grant.refresh_token:
            grant.refresh_token = f"refresh-{secrets.token_urlsafe(16)}"
            answer["refresh_token"] = grant.refresh_token
        grant.tokens |= {token, grant.refresh_token}
        return _as_json(answer)

    def _answer_client(self, base: str, request: ReceivedRequest) -> WireAnswer:
        asked = request.json
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        grant = next((one for one in self._grants if token in one.tokens), None)
        metadata = f'resource_metadata="{base}/.well-known/oauth-protected-resource/mcp"'
        is_over = self._ends.get(token, 0.0) <= time.time()
        if scheme != "Bearer" or grant is None or grant.is_revoked or is_over:
            words = f'Bearer {metadata}, scope="{self.scope}"'
            return refuse_with(401, {"error": "invalid_token"}, {"WWW-Authenticate": words})
        needed = self.scope.split()
        if asked["method"] == "tools/call":
            needed += self.call_scope.split()
        if not set(needed) <= set(grant.scope.split()):
            words = f'Bearer error="insufficient_scope", scope="{" ".join(needed)}", {metadata}'
            return refuse_with(403, {"error": "insufficient_scope"}, {"WWW-Authenticate": words})
        return _answer_message(asked, token)

    def _refuse(self, reason: str, error: str = "invalid_request", status: int = 400) -> WireAnswer:
        self.problems.append(reason)
        return refuse_with(status, {"error": error, "error_description": reason})


def _answer_message(asked: dict[str, Any], token: str) -> WireAnswer:
    """Answer as an MCP server of the older protocol."""
    match asked["method"]:
        case "initialize":
            result: dict[str, Any] = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "own", "version": "1"},
            }
        case "tools/list":
            result = {"tools": [_GREETING]}
        case "tools/call":
            name = asked["params"]["arguments"]["name"]
            text = f"Hello {token if name == 'token' else name}"
            result = {"content": [{"type": "text", "text": text}]}
        case method if method.startswith("notifications/"):
            return refuse_with(202)
        case _:
            error = {"code": -32601, "message": "Method not found"}
            return _as_json({"jsonrpc": "2.0", "id": asked.get("id"), "error": error})
    return _as_json({"jsonrpc": "2.0", "id": asked["id"], "result": result})


def _as_json(body: dict[str, Any], status: int = 200) -> WireAnswer:
    return refuse_with(status, body)


def _read_pairs(text: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(text).items()}
