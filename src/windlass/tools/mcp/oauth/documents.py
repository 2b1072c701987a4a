"""What servers publish about signing in, and what follows from it. Nothing here waits.

Challenges are those of RFC 6750 and RFC 9728, documents those of RFC 9728 and RFC 8414. The law: a
document is believed only about the address that it was asked for. The resource must be the server
itself or a part of its address, and the issuer must be the one whose document was fetched.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit, urlunsplit

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.text_clip import printable_line

OFFLINE_SCOPE = "offline_access"
_RESOURCE_PATH = "/.well-known/oauth-protected-resource"
_SERVER_PATH = "/.well-known/oauth-authorization-server"
_OPENID_PATH = "/.well-known/openid-configuration"
_PARAMETER = re.compile(r'([A-Za-z_-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))')
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Challenge(msgspec.Struct, frozen=True):
    """Why a server refused a request, and where it says more."""

    needs_scope: bool = False
    """The token is good, and its rights do not suffice."""
    scope: str = ""
    resource_metadata: str = ""


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


def read_challenge(status: int, headers: Mapping[str, str]) -> Challenge | None:
    """Return the challenge of an answer; None if it does not ask for a token, or for another."""
    words = headers.get("www-authenticate", "")
    found = {
        name.lower(): quoted or plain for name, quoted, plain in _PARAMETER.findall(words[:8_192])
    }
    needs_scope = status == HTTPStatus.FORBIDDEN and found.get("error") == "insufficient_scope"
    if status != HTTPStatus.UNAUTHORIZED and not needs_scope:
        return None
    return Challenge(
        needs_scope=needs_scope,
        scope=" ".join(found.get("scope", "").split()),
        resource_metadata=found.get("resource_metadata", ""),
    )


def resource_metadata_urls(server_url: str, challenge: Challenge) -> list[str]:
    """Return where the description of a resource may be, the likeliest place first."""
    base = urlsplit(server_url)
    urls = [challenge.resource_metadata] if challenge.resource_metadata else []
    path = base.path.rstrip("/")
    if path:
        urls.append(_at_origin(base, f"{_RESOURCE_PATH}{path}"))
    urls.append(_at_origin(base, _RESOURCE_PATH))
    return list(dict.fromkeys(urls))


def server_metadata_urls(issuer: str) -> list[str]:
    """Return where the description of an authorization server may be."""
    base = urlsplit(issuer)
    path = base.path.rstrip("/")
    if not path:
        return [_at_origin(base, _SERVER_PATH), _at_origin(base, _OPENID_PATH)]
    return [
        _at_origin(base, f"{_SERVER_PATH}{path}"),
        _at_origin(base, f"{_OPENID_PATH}{path}"),
        _at_origin(base, f"{path}{_OPENID_PATH}"),
    ]


def assume_metadata(server_url: str) -> ServerMetadata:
    """Return the addresses that a server without any document has, by the first specification."""
    base = urlsplit(server_url)
    return ServerMetadata(
        issuer=origin_of(server_url),
        authorization_endpoint=_at_origin(base, "/authorize"),
        token_endpoint=_at_origin(base, "/token"),
        registration_endpoint=_at_origin(base, "/register"),
        is_assumed=True,
    )


def check_resource(server_url: str, resource: str) -> None:
    """Raise ConfigError unless a server may call itself by this resource."""
    wanted = urlsplit(server_url)
    given = urlsplit(resource)
    path = given.path.rstrip("/")
    is_part = wanted.path.rstrip("/") == path or wanted.path.startswith(f"{path}/")
    if origin_of(server_url) != origin_of(resource) or not is_part or given.query:
        raise ConfigError(
            f"the server says that it is {_shown(resource)}, but its address is "
            f"{_shown(server_url)}: a token for one would be good for the other"
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
        f"the authorization server {_shown(issuer)} says that it is {_shown(metadata.issuer)}"
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


def server_name(server_url: str) -> str:
    """Return the address of a server in one form, without a password in it."""
    parts = urlsplit(server_url)
    return urlunsplit((parts.scheme.lower(), _host_of(parts), parts.path, parts.query, ""))


def resource_name(server_url: str) -> str:
    """Return the address of a server as the name of a resource (RFC 8707).

    Some addresses have a key in their query, which nobody else needs to know.
    """
    parts = urlsplit(server_url)
    return urlunsplit((parts.scheme.lower(), _host_of(parts), parts.path, "", ""))


def origin_of(url: str) -> str:
    """Return scheme, host and port of an address, in one form."""
    parts = urlsplit(url)
    try:
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme.lower(), 0)
    except ValueError:
        raise ConfigError(f"{_shown(url)} has no valid port") from None
    return f"{parts.scheme.lower()}://{(parts.hostname or '').lower()}:{port}"


def is_loopback_url(url: str) -> bool:
    """Whether an address names this machine, where nobody can listen to plain HTTP."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def check_encrypted(url: str) -> None:
    """Raise ConfigError unless a secret may be sent to an address."""
    parts = urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback_url(url)):
        return
    raise ConfigError(f"{_shown(url)} must begin with https://")


def _at_origin(base: SplitResult, path: str) -> str:
    return urlunsplit((base.scheme, _host_of(base), path, "", ""))


def _host_of(parts: SplitResult) -> str:
    """Return host and port, without a user and a password."""
    return parts.netloc.rpartition("@")[2].lower()


def _shown(url: str) -> str:
    """Return an address of others without what could steer a terminal."""
    return printable_line(url, 200)
