"""A request to exactly the address that was checked: for `fetch`, and for webhooks.

Invariant: a host is resolved once, all its addresses must be public or allowed, and the socket is
opened to one of them. So the network of this machine cannot be reached by a name that points
inside, nor by a name that points elsewhere when it is resolved a second time. Proxies and cookies
are not used, and redirects are not followed.
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from windlass.core.errors import ModelRetry
from windlass.http.client import send_request
from windlass.http.connection import Response
from windlass.http.errors import HttpError
from windlass.http.urls import HttpUrl, parse_url
from windlass.tools.web.addresses import AllowedHosts

URL_CHARS_MAX = 4_096

HostResolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host and port; raises OSError if there are none."""
_NUMERIC_HOST = re.compile(r"[\d.]+")


async def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses that the system's resolver gives for a host."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[4][0]) for address in found))


def parse_web_url(url: str, base: HttpUrl | None = None) -> HttpUrl:
    """Parse a URL, relative to `base` for a redirect; raises ModelRetry if it is invalid."""
    if len(url) > URL_CHARS_MAX:
        raise ModelRetry(f"The URL is too long: the limit is {URL_CHARS_MAX} characters.")
    try:
        parsed = parse_url(url) if base is None else base.join(url)
    except HttpError:
        subject = "The URL" if base is None else "The page redirects to a URL that"
        raise ModelRetry(
            f"{subject} is not a valid http or https URL. Give it as https://host/path."
        ) from None
    if parsed.credentials is not None:
        raise ModelRetry("The URL contains a user name or a password. Leave them out.")
    return parsed


async def resolve_checked(
    url: HttpUrl, allowed: AllowedHosts, resolve: HostResolver
) -> Sequence[str]:
    """Return the addresses of a host; raises ModelRetry unless all of them are allowed."""
    host, port = url.host, url.port
    try:
        addresses: Sequence[str] = [str(ipaddress.ip_address(host))]
    except ValueError:
        # Short forms such as 127.1: programs differ in how they read them, so what was checked
        # might not be what is connected to.
        if ":" in host or _NUMERIC_HOST.fullmatch(host):
            raise ModelRetry(f"{host!r} is not a valid address. Write it in full.") from None
        try:
            addresses = await resolve(host, port)
        except (OSError, UnicodeError):
            raise ModelRetry(f"There is no host {host!r}. Check the spelling.") from None
    allowed.check_host(host, port, addresses)
    return addresses


@asynccontextmanager
async def open_checked(
    url: HttpUrl,
    addresses: Sequence[str],
    headers: Mapping[str, str],
    *,
    method: str = "GET",
    data: bytes | None = None,
) -> AsyncGenerator[Response]:
    """Request a URL at the addresses that were checked."""
    try:
        response = await send_request(
            method, url, headers=headers, body=data, addresses=addresses, connect_s=None
        )
        try:
            yield response
        finally:
            response.close()
    except HttpError as error:
        raise ModelRetry(f"{url.host} does not answer correctly: {error}") from None
