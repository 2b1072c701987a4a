"""The grants of OAuth 2.1, with PKCE and the resource that the token is for.

Invariant: a code is exchanged only with the verifier of its own request, at the server that gave
it. What goes into an error is the server's word for what went wrong, never a code, a token or a
secret.
"""

import base64
import hashlib
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from msgspec.structs import replace

from windlass.core.errors import ConfigError
from windlass.core.text_clip import printable_line
from windlass.tools.breaker import ToolUnavailable
from windlass.tools.mcp.oauth.discovery import OFFLINE_SCOPE, Discovered, ServerMetadata
from windlass.tools.mcp.oauth.redirect import RedirectAnswer, RedirectServer
from windlass.tools.mcp.oauth.requests import HttpAnswer, OAuthRequests
from windlass.tools.mcp.oauth.settings import McpCredentials, McpSignIn
from windlass.tools.mcp.oauth.tokens import McpToken, OAuthClient

CLIENT_NAME = "Windlass"
TOKEN_CHARS_MAX = 65_536
ASSERTION_S = 300
_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_SECRET_FIELDS = ("code", "code_verifier", "refresh_token", "client_assertion")
_SECRET_METHODS = ("client_secret_basic", "client_secret_post")
_METHODS = ("none", *_SECRET_METHODS)

ShowPage = Callable[[str], Awaitable[None]]
"""Shows a person the address at which to sign in."""


class TokenRefused(ConfigError):
    """The authorization server gave no token, and the same request would not get one later."""


class _TokenAnswer(msgspec.Struct, frozen=True):
    access_token: str
    token_type: str = "Bearer"  # noqa: S105 - a kind
    expires_in: float | None = None
    refresh_token: str | None = None
    scope: str | None = None


class _OAuthProblem(msgspec.Struct, frozen=True):
    error: str | None = None
    error_description: str | None = None


class _RegisteredClient(msgspec.Struct, frozen=True):
    client_id: str
    client_secret: str | None = None
    token_endpoint_auth_method: str | None = None


async def find_client(
    requests: OAuthRequests, settings: McpSignIn, server: ServerMetadata, redirect_uri: str
) -> OAuthClient:
    """Return the client to sign in with: the settings' own, a document's address, or a new one."""
    methods = server.token_endpoint_auth_methods_supported
    if settings.client_id:
        method = "none"
        if settings.client_secret:
            method = _choose_method(methods, _SECRET_METHODS)
        return OAuthClient(settings.client_id, settings.client_secret, method, redirect_uri)
    if settings.client_metadata_url and server.client_id_metadata_document_supported:
        return OAuthClient(settings.client_metadata_url, redirect_uri=redirect_uri)
    if not server.registration_endpoint:
        raise ConfigError(
            "the authorization server does not register clients: register one there, and "
            'name it in the settings of the server: "auth": {"type": "authorization_code", '
            '"client_id": …}'
        )
    return await _register_client(
        requests, server.registration_endpoint, _choose_method(methods, _METHODS), redirect_uri
    )


async def _register_client(
    requests: OAuthRequests, url: str, method: str, redirect_uri: str
) -> OAuthClient:
    about = {
        "client_name": CLIENT_NAME,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        "application_type": "native",
    }
    answer = await requests.send("POST", url, content=about)
    if not answer.is_good:
        raise _describe_refusal(answer, "the authorization server did not register a client")
    given = answer.decode(_RegisteredClient)
    method = given.token_endpoint_auth_method or method
    if method not in _METHODS or (method != "none" and not given.client_secret):
        raise ConfigError("the authorization server registered a client that cannot be used")
    return OAuthClient(given.client_id, given.client_secret or "", method, redirect_uri)


def _choose_method(supported: list[str] | None, wanted: tuple[str, ...]) -> str:
    """Return the first method that both know. A server that lists none takes any."""
    if supported is None:
        return wanted[0]
    found = next((method for method in wanted if method in supported), None)
    if found is None:
        raise ConfigError("the authorization server knows no way of ours to name a client")
    return found


async def authorize(
    requests: OAuthRequests,
    found: Discovered,
    client: OAuthClient,
    scope: str,
    redirect: RedirectServer,
    show_page: ShowPage,
) -> McpToken:
    """Let a person sign in, and exchange the code that comes back for a token."""
    server = found.server
    if not server.is_assumed and "S256" not in (server.code_challenge_methods_supported or ()):
        raise ConfigError("the authorization server does not support PKCE (S256)")
    await requests.check_address(server.authorization_endpoint)
    verifier = secrets.token_urlsafe(64)
    query = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": client.redirect_uri,
        "state": redirect.make_state(),
        "code_challenge": make_challenge(verifier),
        "code_challenge_method": "S256",
        "resource": found.resource,
    }
    if scope:
        query["scope"] = scope
    if OFFLINE_SCOPE in scope.split():
        query["prompt"] = "consent"
    sign = "&" if urlsplit(server.authorization_endpoint).query else "?"
    await show_page(f"{server.authorization_endpoint}{sign}{urlencode(query)}")
    answer = await redirect.wait()
    _check_answer(answer, server)
    form = {
        "grant_type": "authorization_code",
        "code": answer.code,
        "redirect_uri": client.redirect_uri,
        "code_verifier": verifier,
    }
    return await request_token(requests, _describe_token(found, client, scope), form)


def make_challenge(verifier: str) -> str:
    """Return the S256 challenge for a verifier (RFC 7636)."""
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _check_answer(answer: RedirectAnswer, server: ServerMetadata) -> None:
    if answer.error:
        raise TokenRefused(f"the sign-in was refused: {printable_line(answer.error, 200)}")
    if answer.issuer is None:
        if server.authorization_response_iss_parameter_supported:
            raise TokenRefused("the answer to the sign-in does not say which server it is from")
    elif not server.is_assumed and answer.issuer != server.issuer:
        raise TokenRefused("the answer to the sign-in is from another authorization server")
    if not answer.code:
        raise TokenRefused("the answer to the sign-in has no code")


async def request_by_credentials(
    requests: OAuthRequests, found: Discovered, settings: McpCredentials, scope: str
) -> McpToken:
    """Get a token for a program, by its secret or by an assertion that its key signs."""
    form = {"grant_type": "client_credentials"}
    if scope:
        form["scope"] = scope
    client = OAuthClient(settings.client_id)
    if settings.private_key:
        form["client_assertion_type"] = _ASSERTION_TYPE
        form["client_assertion"] = _sign_assertion(settings, found.server.issuer)
    else:
        methods = found.server.token_endpoint_auth_methods_supported
        method = _choose_method(methods, _SECRET_METHODS)
        client = OAuthClient(settings.client_id, settings.client_secret, method)
    token = await request_token(requests, _describe_token(found, client, scope), form)
    # The credentials are at hand, so nothing else is needed to get another one.
    return replace(token, refresh_token="")


def _sign_assertion(settings: McpCredentials, issuer: str) -> str:
    import jwt  # noqa: PLC0415 - comes with the extra

    now = int(time.time())
    claims = {
        "iss": settings.client_id,
        "sub": settings.client_id,
        "aud": issuer,
        "iat": now,
        "exp": now + ASSERTION_S,
        "jti": secrets.token_urlsafe(16),
    }
    try:
        return jwt.encode(claims, settings.private_key, algorithm=settings.signing_algorithm)
    except (jwt.PyJWTError, ValueError, TypeError, NotImplementedError):
        raise ConfigError("the private key of the settings cannot sign") from None


async def revoke(requests: OAuthRequests, token: McpToken) -> None:
    """Tell the authorization server that a token is no longer used (RFC 7009)."""
    if not token.revocation_endpoint:
        return
    form, headers = _name_client(token.client, {"token": token.refresh_token or token.access_token})
    answer = await requests.send("POST", token.revocation_endpoint, form=form, headers=headers)
    if not answer.is_good:
        raise _describe_refusal(answer, "the authorization server did not revoke the token")


def _describe_token(found: Discovered, client: OAuthClient, scope: str) -> McpToken:
    """Return everything that is known of a token before it is issued."""
    return McpToken(
        server=found.server_url,
        resource=found.resource,
        issuer=found.server.issuer,
        token_endpoint=found.server.token_endpoint,
        client=client,
        access_token="",
        scope=scope,
        revocation_endpoint=found.server.revocation_endpoint or "",
    )


async def request_token(
    requests: OAuthRequests, wanted: McpToken, form: dict[str, str]
) -> McpToken:
    """Return `wanted` with the values that its token endpoint gives for a form.

    Raises TokenRefused if it gives none, and ToolUnavailable if it may give one later.
    """
    client = wanted.client
    form, headers = _name_client(client, {**form, "resource": wanted.resource})
    answer = await requests.send("POST", wanted.token_endpoint, form=form, headers=headers)
    if not answer.is_good:
        hidden = (client.secret, *(form.get(name, "") for name in _SECRET_FIELDS))
        raise _describe_refusal(answer, "the authorization server gave no token", hidden)
    given = answer.decode(_TokenAnswer)
    for value in (given.access_token, given.refresh_token or ""):
        # It becomes part of a header, and must not add another one.
        is_plain = value.isascii() and value.isprintable() and " " not in value
        if not is_plain or len(value) > TOKEN_CHARS_MAX:
            raise TokenRefused("the authorization server returned a token that cannot be used")
    if not given.access_token or given.token_type.lower() != "bearer":
        raise TokenRefused("the authorization server gave a token of an unknown kind")
    return replace(
        wanted,
        access_token=given.access_token,
        # A server that gives no other one takes the same one again.
        refresh_token=given.refresh_token or wanted.refresh_token,
        expires_at=None if given.expires_in is None else time.time() + given.expires_in,
        scope=given.scope or wanted.scope,
    )


def _name_client(
    client: OAuthClient, form: dict[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the form and the headers that say who asks.

    The form names the client also beside Basic: some servers look it up before they check it.
    """
    form = {**form, "client_id": client.client_id}
    if client.method == "client_secret_basic":
        pair = f"{quote(client.client_id, safe='')}:{quote(client.secret, safe='')}"
        return form, {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    if client.method == "client_secret_post":
        form["client_secret"] = client.secret
    return form, {}


def _describe_refusal(answer: HttpAnswer, what: str, hidden: Sequence[str] = ()) -> Exception:
    if answer.is_temporary:
        return ToolUnavailable(f"{what} (HTTP {answer.status})")
    problem = _OAuthProblem()
    with suppress(ConfigError):
        problem = answer.decode(_OAuthProblem)
    reason = ": ".join(filter(None, (problem.error, problem.error_description)))
    for value in filter(None, hidden):
        reason = reason.replace(value, "****")
    suffix = f": {printable_line(reason, 200)}" if reason else ""
    return TokenRefused(f"{what} (HTTP {answer.status}){suffix}")
