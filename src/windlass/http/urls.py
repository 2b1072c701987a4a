"""Addresses of requests, and the proxies between.

Invariant: what is checked is what is requested. An address is parsed once; the name that is
resolved, the `Host` header and the request line all come from the same fields.
"""

import re
from base64 import b64encode
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from urllib.parse import quote, unquote, urljoin, urlsplit

import msgspec
from typing_extensions import override

from windlass.http.errors import HttpError

_DEFAULT_PORTS = {"http": 80, "https": 443}
_RESERVED = "%/:?#[]@!$&'()*+,;="
"""What `quote` leaves as it is: an address is sent as it was written wherever it can be."""
HOST_CHARS_MAX = 255


class HttpUrl(msgspec.Struct, frozen=True):
    """An http or https URL. Fragments are dropped."""

    scheme: str
    host: str
    """In ASCII and lower case, without brackets."""
    port: int
    target: str
    """Path and query, as in the request line."""
    authority: str
    """Host and port as in the `Host` header; a default port is left out."""
    credentials: str | None = None
    """User and password, with a colon between."""

    @override
    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"

    def join(self, reference: str) -> "HttpUrl":
        """Return the address that a redirect or a link leads to. Raises HttpError."""
        try:
            return parse_url(urljoin(str(self), reference))
        except ValueError:
            raise HttpError("url", "the address cannot be parsed") from None


@lru_cache(maxsize=256)
def parse_url(text: str) -> HttpUrl:
    """Parse an address. Raises HttpError."""
    try:
        text.encode()  # What cannot be sent is refused before any part of it is used.
        parts = urlsplit(text.strip())
        port = parts.port
        host = _encode_host(parts.hostname or "")
    except (ValueError, UnicodeError):
        raise HttpError("url", "the address cannot be parsed") from None
    if parts.scheme not in _DEFAULT_PORTS or not host or port == 0:
        raise HttpError("url", "the address is not an http or https URL")
    credentials = None
    if parts.username is not None or parts.password is not None:
        credentials = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    target = quote(parts.path or "/", safe=_RESERVED)
    if parts.query:
        target += "?" + quote(parts.query, safe=_RESERVED)
    default = _DEFAULT_PORTS[parts.scheme]
    authority = f"[{host}]" if ":" in host else host
    if port and port != default:
        authority += f":{port}"
    return HttpUrl(parts.scheme, host, port or default, target, authority, credentials)


def _encode_host(host: str) -> str:
    """Return a name as it is resolved. Raises ValueError for what cannot be the name of a host."""
    if ":" in host:
        if "%" in host:
            raise ValueError(host)
        return str(IPv6Address(host))
    if not host.isascii():
        import idna  # noqa: PLC0415 - its tables are large, and most names need none

        host = idna.encode(host, uts46=True).decode()
    if len(host) > HOST_CHARS_MAX or not re.fullmatch(r"[a-z0-9_.-]*", host):
        raise ValueError(host)
    return host


def find_proxy(url: str, environ: Mapping[str, str]) -> str | None:
    """Return the proxy that the environment names for a URL, by the rules of curl."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_loopback(host) or _is_excluded(host, environ):
        return None
    for name in (f"{parts.scheme}_proxy", "all_proxy"):
        proxy = environ.get(name)
        # HTTP_PROXY in capitals is ignored: in a CGI program, a request could set it.
        if not proxy and name != "http_proxy":
            proxy = environ.get(name.upper())
        if proxy:
            return proxy
    return None


def is_loopback(host: str) -> bool:
    """Whether a name or an address is that of this machine. `127.example.com` is not."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _is_excluded(host: str, environ: Mapping[str, str]) -> bool:
    """Whether NO_PROXY names the host, a domain of it, or everything."""
    excluded = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    entries = excluded.split(",")
    domains = filter(None, (entry.strip().lstrip("*.") for entry in entries))
    return "*" in entries or any(f".{host}".endswith(f".{domain}") for domain in domains)


def parse_proxy(proxy: str) -> HttpUrl:
    """Parse the address of a proxy; `host:port` is one too. Raises HttpError."""
    try:
        return parse_url(proxy if "://" in proxy else f"http://{proxy}")
    except HttpError:
        raise HttpError("proxy", "its address is not an http or https URL") from None


def basic_auth(credentials: str) -> str:
    """Return the value of a header with a user and a password."""
    return f"Basic {b64encode(credentials.encode()).decode()}"
