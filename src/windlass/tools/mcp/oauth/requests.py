"""The requests of a sign-in: to authorization servers, whose addresses a server has named.

Invariant: an address that comes from a document must be public, unless the settings name its host,
or the server is on this machine and so is the address. It is encrypted, but for this machine. No
redirect is followed, no answer is read beyond its bound, and no error shows what was sent.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from windlass.core.errors import ConfigError, ModelRetry
from windlass.core.text_clip import printable_line
from windlass.http.connection import Response
from windlass.http.urls import is_loopback
from windlass.tools.breaker import ToolUnavailable
from windlass.tools.web.addresses import AllowedHosts
from windlass.tools.web.guarded_http import (
    HostResolver,
    open_checked,
    parse_web_url,
    resolve_checked,
    resolve_host,
)

REQUEST_S = 20.0
DOCUMENT_BYTES_MAX = 256 * 1024
_LOOPBACK = ("127.0.0.0/8", "::1/128")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_PARAMETER = re.compile(r'([A-Za-z_-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))')

_NOT_BY_POST = (404, 405)
_FORM_TYPE = "application/x-www-form-urlencoded"
_HELLO_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
}
_HELLO = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}'
"""What no server answers without a token if it wants one at all."""

DocumentT = TypeVar("DocumentT")


class Challenge(msgspec.Struct, frozen=True):
    """Why a server refused a request, and where it says more (RFC 6750, RFC 9728)."""

    needs_scope: bool = False
    """The token is good, and its rights do not suffice."""
    scope: str = ""
    resource_metadata: str = ""


class HttpAnswer(msgspec.Struct, frozen=True):
    """The answer of a server."""

    status: int
    body: bytes

    @property
    def is_good(self) -> bool:
        return self.status in (200, 201)

    @property
    def is_temporary(self) -> bool:
        """Whether the server failed, so that the same request may work later."""
        return self.status >= 500 or self.status in (408, 429)  # noqa: PLR2004 - HTTP

    def decode(self, document: type[DocumentT]) -> DocumentT:
        """Return what it says. Raises ConfigError, without showing any of it."""
        try:
            return msgspec.json.decode(self.body, type=document, strict=False)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            raise ConfigError("the answer of the authorization server cannot be read") from None


class OAuthRequests:
    """Sends the requests of a sign-in at one server."""

    def __init__(
        self, server_url: str, issuer: str = "", *, resolve: HostResolver = resolve_host
    ) -> None:
        hosts = [urlsplit(url).hostname or "" for url in (server_url, issuer) if url]
        local = _LOOPBACK if _is_loopback_url(server_url) else ()
        self._allowed = AllowedHosts([*filter(None, hosts), *local])
        self._resolve = resolve

    async def check_address(self, url: str) -> None:
        """Raise ConfigError or ToolUnavailable unless a person may be led to an address."""
        check_encrypted(url)
        if not url.isascii() or not url.isprintable() or " " in url:
            raise ConfigError("the address for the sign-in is not valid")
        await self._find_addresses(url)

    async def send(
        self,
        method: str,
        url: str,
        *,
        form: Mapping[str, str] | None = None,
        content: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpAnswer:
        """Send a form, as token endpoints take it, or JSON, as registration endpoints do, or none.

        Raises ConfigError if the answer is too long, and ToolUnavailable if the server does not
        answer.
        """
        sent = {"Accept": "application/json", **(headers or {})}
        data: bytes | None = None
        if form is not None:
            sent["Content-Type"] = _FORM_TYPE
            data = urlencode(form).encode()
        elif content is not None:
            sent["Content-Type"] = "application/json"
            data = msgspec.json.encode(content)
        body = bytearray()
        async with self._open(method, url, sent, data) as response:
            while chunk := await response.read():
                body += chunk
                if len(body) > DOCUMENT_BYTES_MAX:
                    raise ConfigError("the authorization server sent a document that is too long")
            return HttpAnswer(response.status, bytes(body))

    async def ask_challenge(self, url: str, headers: Mapping[str, str]) -> Challenge | None:
        """Return what the server itself says to a request without a token; None if it takes it.

        Only the head of its answer is read: the rest may be a stream that does not end.
        """
        sent = {**_HELLO_HEADERS, **headers}
        for method, data in (("POST", _HELLO), ("GET", None)):
            async with self._open(method, url, sent, data) as response:
                challenge = read_challenge(response.status, response.headers)
                # Servers of the older transport are asked by GET.
                if challenge is not None or response.status not in _NOT_BY_POST:
                    return challenge
        return None

    async def _find_addresses(self, url: str) -> list[str]:
        try:
            parsed = parse_web_url(url)
            return list(await resolve_checked(parsed, self._allowed, self._resolve))
        except ModelRetry as error:
            raise ToolUnavailable(f"{printable_line(url, 200)}: {error}") from None

    @asynccontextmanager
    async def _open(
        self, method: str, url: str, headers: Mapping[str, str], data: bytes | None
    ) -> AsyncGenerator[Response]:
        check_encrypted(url)
        place = urlsplit(url).hostname
        addresses = await self._find_addresses(url)
        try:
            async with asyncio.timeout(REQUEST_S):
                opened = open_checked(
                    parse_web_url(url), addresses, headers, method=method, data=data
                )
                async with opened as response:
                    yield response
        except ModelRetry:
            # Its text may have parts of what was sent.
            raise ToolUnavailable(f"{place} does not answer correctly") from None
        except TimeoutError:
            raise ToolUnavailable(f"{place} did not answer within {REQUEST_S:g} s") from None


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


def origin_of(url: str) -> str:
    """Return scheme, host and port of an address, in one form."""
    parts = urlsplit(url)
    try:
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme.lower(), 0)
    except ValueError:
        raise ConfigError(f"{printable_line(url, 200)} has no valid port") from None
    return f"{parts.scheme.lower()}://{(parts.hostname or '').lower()}:{port}"


def check_encrypted(url: str) -> None:
    """Raise ConfigError unless a secret may be sent to an address."""
    scheme = urlsplit(url).scheme
    if scheme == "https" or (scheme == "http" and _is_loopback_url(url)):
        return
    raise ConfigError(f"{printable_line(url, 200)} must begin with https://")


def _is_loopback_url(url: str) -> bool:
    """Whether an address names this machine, where nothing listens to plain HTTP on the way."""
    return is_loopback(urlsplit(url).hostname or "")
