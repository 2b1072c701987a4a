"""The only way from a page to the network: a proxy on loopback that checks every address.

Invariant: a page reaches exactly the addresses that `fetch` may reach. The browser resolves no name
itself. Whatever it asks for, be it a page, a redirect, a picture, a request of a script or a
WebSocket, this proxy resolves the name once, checks all of its addresses, and opens the connection
to one of them. A name that points elsewhere the next time changes nothing.
"""

import asyncio
import base64
import hmac
import re
import secrets
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypedDict, final

from windlass.core.errors import ModelRetry
from windlass.tools.web.addresses import AllowedHosts
from windlass.tools.web.guarded_http import HostResolver, parse_web_url, resolve_checked

HEAD_BYTES_MAX = 256 * 1024
"""Of the head of a request or a response."""
HEAD_S_MAX = 30.0
CONNECT_S_MAX = 15.0
CONNECTION_BYTES_MAX = 200 * 2**20
"""What one connection may bring in: a page that never ends must not fill the memory."""
REFUSALS_MAX = 20

PROXY_USER = "windlass"

_CHUNK_BYTES = 64 * 1024
_ASK_PASSWORD = (
    b"HTTP/1.1 407 Proxy Authentication Required\r\n"
    b'Proxy-Authenticate: Basic realm="windlass"\r\nContent-Length: 0\r\n'
    b"Connection: close\r\n\r\n"
)
_REQUEST_LINE = re.compile(rb"([A-Z]{1,20}) (\S+) HTTP/1\.[01]")
_ABSOLUTE_TARGET = re.compile(r"(https?://[^/?#]+)(.*)", re.DOTALL)
_HOP_HEADERS = (b"connection", b"keep-alive", b"proxy-authorization", b"proxy-connection")


class ProxyCredentials(TypedDict):
    """What a browser needs to use the proxy."""

    username: str
    password: str


@final
class GuardedProxy:
    """An HTTP proxy for one profile of a browser."""

    def __init__(self, allowed: AllowedHosts, resolve: HostResolver) -> None:
        self._allowed = allowed
        self._resolve = resolve
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._refusals: dict[str, None] = {}
        # Other programs of this machine find the port, and must not get inside by `allow`.
        self._password = secrets.token_urlsafe(24)
        login = base64.b64encode(f"{PROXY_USER}:{self._password}".encode()).decode()
        self._authorization = f"Basic {login}".encode()

    @property
    def credentials(self) -> ProxyCredentials:
        """The user and the password that the browser of this profile gives."""
        return {"username": PROXY_USER, "password": self._password}

    async def start(self) -> str:
        """Listen on loopback, and return the address of the proxy."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=HEAD_BYTES_MAX)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """Stop listening, and end all connections."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def take_refusals(self) -> list[str]:
        """Return why requests were refused since the last time, each reason once."""
        refusals = list(self._refusals)
        self._refusals.clear()
        return refusals

    async def check(self, url: str) -> None:
        """Raise ModelRetry if an address may not be opened."""
        await resolve_checked(parse_web_url(url), self._allowed, self._resolve)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a server runs its handlers as tasks
        self._connections.add(task)
        try:
            await self._forward(reader, writer)
        except ModelRetry as refusal:
            # No answer at all: a page of ours would become a page of the host that was refused.
            if len(self._refusals) < REFUSALS_MAX:
                self._refusals[str(refusal)] = None
        except (OSError, TimeoutError, EOFError, asyncio.LimitOverrunError):
            pass  # To the browser, a server that does not answer correctly.
        except asyncio.CancelledError:
            pass  # Only `close` cancels a connection.
        finally:
            self._connections.discard(task)
            writer.close()

    def _is_authorized(self, head: bytes) -> bool:
        """Whether the head of a request has the password of this proxy."""
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"proxy-authorization":
                return hmac.compare_digest(value.strip(), self._authorization)
        return False

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect one request of the browser with its server."""
        async with asyncio.timeout(HEAD_S_MAX):
            head = await reader.readuntil(b"\r\n\r\n")
        if not self._is_authorized(head):
            # A browser gives the password when it is asked for it, on its own connection: the
            # request may have a body, which is not read here.
            writer.write(_ASK_PASSWORD)
            await writer.drain()
            return
        method, target = _parse_request(head)
        if method == "CONNECT":
            # An encrypted connection, or a WebSocket. What is in it stays unknown.
            origin, path = f"https://{target}", ""
        else:
            absolute = _ABSOLUTE_TARGET.fullmatch(target)
            if absolute is None:
                # Not a proxy's request: a page of another browser found the port.
                raise ConnectionError("the request is not for a proxy")
            origin, path = absolute[1], absolute[2]
        url = parse_web_url(origin)
        addresses = await resolve_checked(url, self._allowed, self._resolve)
        server_reader, server_writer = await _connect(addresses, url.port)
        try:
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                incoming = _relay(server_reader, writer)
            else:
                server_writer.write(_rewrite_request(head, method, path))
                incoming = _relay_response(server_reader, writer)
            await _wait_for_either(_relay(reader, server_writer), incoming)
        finally:
            server_writer.close()


def _parse_request(head: bytes) -> tuple[str, str]:
    line = _REQUEST_LINE.match(head)
    if line is None:
        raise ConnectionError("not a request")
    return line[1].decode(), line[2].decode("latin-1")


def _rewrite_request(head: bytes, method: str, path: str) -> bytes:
    """Return the head of a request as a server expects it, for one request per connection."""
    if not path.startswith("/"):
        path = f"/{path}"
    return b"\r\n".join([f"{method} {path} HTTP/1.1".encode("latin-1"), *_end_to_end(head)])


def _end_to_end(head: bytes) -> list[bytes]:
    """Return the headers that are not about the connection, and one that closes it.

    The browser would otherwise send its next request on the same connection, also one for another
    host, with the cookies of that host.
    """
    lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")[1:]
    kept = [line for line in lines if line.partition(b":")[0].strip().lower() not in _HOP_HEADERS]
    return [*kept, b"Connection: close", b"", b""]


async def _connect(
    addresses: Sequence[str], port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first address that answers. Raises OSError or TimeoutError if none does."""
    async with asyncio.timeout(CONNECT_S_MAX):
        for address in addresses[:-1]:
            with suppress(OSError):
                return await asyncio.open_connection(address, port, limit=HEAD_BYTES_MAX)
        return await asyncio.open_connection(addresses[-1], port, limit=HEAD_BYTES_MAX)


async def _relay_response(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    while head.startswith((b"HTTP/1.1 1", b"HTTP/1.0 1")):  # 100 and 103 come before the answer.
        head = await reader.readuntil(b"\r\n\r\n")
    status = head.partition(b"\r\n")[0]
    writer.write(b"\r\n".join([status, *_end_to_end(head)]))
    await _relay(reader, writer)


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    bytes_left = CONNECTION_BYTES_MAX
    while bytes_left > 0 and (data := await reader.read(_CHUNK_BYTES)):
        bytes_left -= len(data)
        writer.write(data)
        await writer.drain()


async def _wait_for_either(*directions: Coroutine[Any, Any, None]) -> None:
    """Run both directions of a connection until one of them has ended."""
    tasks = [asyncio.create_task(direction) for direction in directions]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
