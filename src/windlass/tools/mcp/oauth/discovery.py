"""Find out where a server wants people to sign in, by the documents that it publishes."""

from contextlib import suppress
from typing import TypeVar

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.text_clip import printable_line
from windlass.tools.mcp.oauth.documents import (
    Challenge,
    ResourceMetadata,
    ServerMetadata,
    assume_metadata,
    check_issuer,
    check_resource,
    is_same_issuer,
    origin_of,
    resource_metadata_urls,
    resource_name,
    server_metadata_urls,
    server_name,
)
from windlass.tools.mcp.oauth.requests import OAuthRequests
from windlass.tools.unavailable import ToolUnavailable

DocumentT = TypeVar("DocumentT")


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

    Raises ConfigError if a document contradicts itself, and ToolUnavailable if one cannot be had.
    """
    description = await _fetch_first(
        requests, resource_metadata_urls(server_url, challenge), ResourceMetadata
    )
    if description is None:
        return await _discover_older(requests, server_url, issuer)
    check_resource(server_url, description.resource)
    chosen = _choose_server(description, issuer)
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
        server = assume_metadata(server_url)
    check_issuer(server, root, of_first_version=True)
    if issuer and not is_same_issuer(server.issuer, issuer):
        raise _wrong_issuer(issuer)
    return Discovered(server_name(server_url), resource_name(server_url), server)


def _choose_server(description: ResourceMetadata, issuer: str) -> str:
    servers = description.authorization_servers
    if issuer:
        servers = [server for server in servers if is_same_issuer(server, issuer)]
        if not servers:
            raise _wrong_issuer(issuer)
    if not servers:
        raise ConfigError("the server names no authorization server")
    return servers[0]


def _wrong_issuer(issuer: str) -> ConfigError:
    return ConfigError(f"the server does not name the issuer of the settings, {issuer}")


async def _fetch_first(
    requests: OAuthRequests, urls: list[str], document: type[DocumentT]
) -> DocumentT | None:
    """Return the first document that is there.

    A server that fails says nothing about whether it has one, so that nothing is concluded.
    """
    for url in urls:
        answer = await requests.get(url)
        if answer.is_temporary:
            place = printable_line(url, 200)
            raise ToolUnavailable(f"{place} cannot be fetched now (HTTP {answer.status})")
        if answer.is_good:
            # Some sites answer any address with their own page.
            with suppress(ConfigError):
                return answer.decode(document)
    return None
