"""Where a server wants people to sign in, by the documents that it and others publish.

The documents are those of RFC 9728 and RFC 8414. Invariant: a document is believed only about the
address that it was asked for. The resource must be the server itself or a part of its address, and
the issuer must be the one whose document was fetched.
"""

from contextlib import suppress
from typing import TypeVar
from urllib.parse import SplitResult, urlsplit, urlunsplit

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.text_clip import printable_line
from windlass.tools.breaker import ToolUnavailable
from windlass.tools.mcp.oauth.requests import Challenge, OAuthRequests, origin_of

OFFLINE_SCOPE = "offline_access"
_RESOURCE_PATH = "/.well-known/oauth-protected-resource"
_SERVER_PATH = "/.well-known/oauth-authorization-server"
_OPENID_PATH = "/.well-known/openid-configuration"

DocumentT = TypeVar("DocumentT")


class ResourceMetadata(msgspec.Struct, frozen=True):
    """What a server says about itself as a resource (RFC 9728)."""

    resource: str
    authorization_servers: list[str] = []
    scopes_supported: list[str] | None = None


class ServerMetadata(msgspec.Struct, frozen=True):
    """What an authorization server says about itself (RFC 8414)."""

    issuer: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    scopes_supported: list[str] | None = None
    token_endpoint_auth_methods_supported: list[str] | None = None
    code_challenge_methods_supported: list[str] | None = None
    client_id_metadata_document_supported: bool | None = None
    authorization_response_iss_parameter_supported: bool | None = None
    is_assumed: bool = False
    """Nothing was published: these are the addresses that older servers have."""


class Discovered(msgspec.Struct, frozen=True):
    """Where to sign in at a server, and for what."""

    server_url: str
    resource: str
    server: ServerMetadata
    description: ResourceMetadata | None = None


async def discover(
    requests: OAuthRequests, server_url: str, challenge: Challenge, issuer: str = ""
) -> Discovered:
    """Find the authorization server of an MCP server. `issuer`: the only one to accept.

    Raises ConfigError if a document contradicts itself, and ToolUnavailable if a server fails.
    """
    urls = resource_metadata_urls(server_url, challenge)
    description = await _fetch_first(requests, urls, ResourceMetadata)
    if description is None:
        return await _discover_older(requests, server_url, issuer)
    check_resource(server_url, description.resource)
    chosen = _choose_server(description.authorization_servers, issuer)
    server = await _fetch_first(requests, server_metadata_urls(chosen), ServerMetadata)
    if server is None:
        raise ConfigError(
            f"the authorization server {printable_line(chosen, 200)} publishes no description"
        )
    check_issuer(server, chosen, of_first_version=False)
    return Discovered(server_name(server_url), description.resource, server, description)


async def _discover_older(requests: OAuthRequests, server_url: str, issuer: str) -> Discovered:
    """Ask a server that does not describe itself: it is its own authorization server."""
    root = origin_of(server_url)
    server = await _fetch_first(requests, server_metadata_urls(root)[:1], ServerMetadata)
    if server is None:
        # The addresses that the first specification gives a server without any document.
        base = urlsplit(server_url)
        server = ServerMetadata(
            issuer=root,
            authorization_endpoint=_at_origin(base, "/authorize"),
            token_endpoint=_at_origin(base, "/token"),
            registration_endpoint=_at_origin(base, "/register"),
            is_assumed=True,
        )
    check_issuer(server, root, of_first_version=True)
    _choose_server([server.issuer], issuer)
    # A query may have a key in it, which no authorization server needs to know.
    return Discovered(server_name(server_url), server_name(server_url, query=False), server)


def _choose_server(offered: list[str], issuer: str) -> str:
    if issuer:
        offered = [server for server in offered if is_same_issuer(server, issuer)]
        if not offered:
            raise ConfigError(f"the server does not name the issuer of the settings, {issuer}")
    if not offered:
        raise ConfigError("the server names no authorization server")
    return offered[0]


async def _fetch_first(
    requests: OAuthRequests, urls: list[str], document: type[DocumentT]
) -> DocumentT | None:
    """Return the first document that is there.

    A server that fails says nothing about whether it has one, so that nothing is concluded.
    """
    for url in urls:
        answer = await requests.send("GET", url)
        if answer.is_temporary:
            place = printable_line(url, 200)
            raise ToolUnavailable(f"{place} cannot be fetched now (HTTP {answer.status})")
        if answer.is_good:
            # Some sites answer any address with their own page.
            with suppress(ConfigError):
                return answer.decode(document)
    return None


def resource_metadata_urls(server_url: str, challenge: Challenge) -> list[str]:
    """Return where the description of a resource may be, the likeliest place first."""
    base = urlsplit(server_url)
    places = [f"{_RESOURCE_PATH}{base.path.rstrip('/')}", _RESOURCE_PATH]
    named = [challenge.resource_metadata] if challenge.resource_metadata else []
    return list(dict.fromkeys([*named, *(_at_origin(base, place) for place in places)]))


def server_metadata_urls(issuer: str) -> list[str]:
    """Return where the description of an authorization server may be."""
    base = urlsplit(issuer)
    path = base.path.rstrip("/")
    places = [f"{_SERVER_PATH}{path}", f"{_OPENID_PATH}{path}", f"{path}{_OPENID_PATH}"]
    return list(dict.fromkeys(_at_origin(base, place) for place in places))


def check_resource(server_url: str, resource: str) -> None:
    """Raise ConfigError unless a server may call itself by this resource."""
    wanted = urlsplit(server_url)
    given = urlsplit(resource)
    path = given.path.rstrip("/")
    is_part = wanted.path.rstrip("/") == path or wanted.path.startswith(f"{path}/")
    if origin_of(server_url) != origin_of(resource) or not is_part or given.query:
        raise ConfigError(
            f"the server says that it is {printable_line(resource, 200)}, but its address is "
            f"{printable_line(server_url, 200)}: a token for one would be good for the other"
        )


def check_issuer(metadata: ServerMetadata, issuer: str, *, of_first_version: bool) -> None:
    """Raise ConfigError unless the description is that of this issuer.

    Servers of the first version of the specification have one at the root of their address,
    whatever the path in its name is.
    """
    if is_same_issuer(metadata.issuer, issuer):
        return
    if of_first_version and origin_of(metadata.issuer) == origin_of(issuer):
        return
    raise ConfigError(
        f"the authorization server {printable_line(issuer, 200)} says that it is "
        f"{printable_line(metadata.issuer, 200)}"
    )


def is_same_issuer(one: str, other: str) -> bool:
    """Compare two issuers as texts, but for a slash at the end of an address without a path."""
    if one == other:
        return True
    return urlsplit(one).path in ("", "/") and one.rstrip("/") == other.rstrip("/")


def choose_scope(
    configured: str | None,
    challenge: Challenge,
    resource: ResourceMetadata | None,
    server: ServerMetadata,
) -> str:
    """Return the rights to ask for; empty to leave it to the server."""
    scope = configured or challenge.scope
    if not scope and resource is not None:
        scope = " ".join(resource.scopes_supported or ())
    if scope and OFFLINE_SCOPE in (server.scopes_supported or ()):
        # Without it, such a server gives no refresh token.
        scope = join_scopes(scope, OFFLINE_SCOPE)
    return scope


def join_scopes(*scopes: str) -> str:
    """Return the words of all scopes, each of them once."""
    return " ".join(dict.fromkeys(word for scope in scopes for word in scope.split()))


def server_name(server_url: str, *, query: bool = True) -> str:
    """Return the address of a server in one form, without a password in it.

    Without its query it is the name of a resource (RFC 8707).
    """
    parts = urlsplit(server_url)
    kept = parts.query if query else ""
    return urlunsplit((parts.scheme.lower(), _host_of(parts), parts.path, kept, ""))


def _at_origin(base: SplitResult, path: str) -> str:
    return urlunsplit((base.scheme, _host_of(base), path, "", ""))


def _host_of(parts: SplitResult) -> str:
    """Return host and port, without a user and a password."""
    return parts.netloc.rpartition("@")[2].lower()
