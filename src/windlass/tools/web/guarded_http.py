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
from typing import TYPE_CHECKING

from typing_extensions import override

from windlass.core.errors import ModelRetry
from windlass.tools.web.addresses import AllowedHosts

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

URL_CHARS_MAX = 4_096

HostResolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host and port; raises OSError if there are none."""
_NUMERIC_HOST = re.compile(r"[\d.]+")


async def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses that the system's resolver gives for a host."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[4][0]) for address in found))


def parse_web_url(url: str, base: "URL | None" = None) -> "URL":
    """Parse a URL, relative to `base` for a redirect; raises ModelRetry if it is invalid."""
    # The type that aiohttp uses, so that the URL that is checked is the URL that is requested.
    from yarl import URL  # noqa: PLC0415

    if len(url) > URL_CHARS_MAX:
        raise ModelRetry(f"The URL is too long: the limit is {URL_CHARS_MAX} characters.")
    try:
        parsed = URL(url.strip())
        if base is not None:
            parsed = base.join(parsed)
        is_valid = parsed.scheme in {"http", "https"} and parsed.raw_host and parsed.port
    except ValueError:
        parsed = URL()
        is_valid = False
    if not is_valid:
        if base is None:
            subject = "The URL"
        else:
            subject = "The page redirects to a URL that"
        raise ModelRetry(
            f"{subject} is not a valid http or https URL. Give it as https://host/path."
        )
    if parsed.user is not None or parsed.password is not None:
        raise ModelRetry("The URL contains a user name or a password. Leave them out.")
    return parsed.with_fragment(None)


async def resolve_checked(
    url: "URL", allowed: AllowedHosts, resolve: HostResolver
) -> Sequence[str]:
    """Return the addresses of a host; raises ModelRetry unless all of them are allowed."""
    host = url.raw_host or ""
    port = url.port or 0
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
    url: "URL",
    addresses: Sequence[str],
    headers: Mapping[str, str],
    *,
    method: str = "GET",
    data: bytes | None = None,
) -> "AsyncGenerator[aiohttp.ClientResponse]":
    """Request a URL at the addresses that were checked. Nothing that is compressed is unpacked."""
    import aiohttp

    if not any(name.lower() == "accept-encoding" for name in headers):
        headers = {**headers, "Accept-Encoding": "identity"}

    session = aiohttp.ClientSession(
        connector=_pinned_connector(addresses),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=headers,
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
    )
    try:
        async with (
            session,
            session.request(method, url, data=data, allow_redirects=False) as response,
        ):
            yield response
    except (aiohttp.ClientError, OSError, ValueError) as error:
        if isinstance(error, TimeoutError):
            raise
        reason = " ".join(str(error).split())[:200]
        raise ModelRetry(f"{url.host} does not answer correctly: {reason}") from error


def _pinned_connector(addresses: Sequence[str]) -> "aiohttp.TCPConnector":
    import aiohttp
    from aiohttp.abc import AbstractResolver, ResolveResult

    class PinnedResolver(AbstractResolver):
        """Returns the addresses that were checked, even if the name has others by now."""

        @override
        async def resolve(
            self,
            host: str,
            port: int = 0,
            family: socket.AddressFamily = socket.AF_INET,
        ) -> list[ResolveResult]:
            return [
                ResolveResult(
                    hostname=host,
                    host=address,
                    port=port,
                    family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                    proto=0,
                    flags=socket.AI_NUMERICHOST,
                )
                for address in addresses
            ]

        @override
        async def close(self) -> None:
            pass

    return aiohttp.TCPConnector(resolver=PinnedResolver(), use_dns_cache=False, force_close=True)
