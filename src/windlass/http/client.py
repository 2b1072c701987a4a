"""Sends requests over HTTP/1.1, on connections that are kept for the next one.

    response = await send_request("POST", url, headers={...}, body=b"...")
    try:
        while chunk := await response.read():
            ...
    finally:
        response.close()

Invariant: a request is sent once. A pooled connection that the server has closed is found out
before anything is sent on it; after that nothing is repeated. No redirect is followed, and no
cookie is kept. Nothing but HttpError and TimeoutError comes out. The connections of an event loop
end with it.
"""

import asyncio
import select
from collections.abc import AsyncGenerator, Mapping, Sequence

from windlass.http.connection import Connection, Response
from windlass.http.dialing import Dialer
from windlass.http.errors import HttpError
from windlass.http.urls import HttpUrl, basic_auth, parse_proxy, parse_url

CONNECT_S = 30.0
IDLE_S = 15.0
"""How long a connection is kept for the next request."""
_LINE_BREAKS = ("\r", "\n", "\0")
_DEFAULT_HEADERS = (
    ("accept", "Accept: */*"),
    ("accept-encoding", "Accept-Encoding: identity"),
    ("user-agent", "User-Agent: windlass"),
)
_OWN_HEADERS = ("content-length", "transfer-encoding")
_METHODS_WITH_BODY = ("POST", "PUT", "PATCH")
_TURNS_TO_CLOSE = 10

Route = tuple[str, str, int, HttpUrl | None]
"""Scheme, host, port and proxy: which connections can be used for a request."""


async def send_request(
    method: str,
    url: str | HttpUrl,
    *,
    headers: Mapping[str, str],
    body: bytes | None = None,
    connect_s: float | None = CONNECT_S,
    proxy: str | None = None,
    addresses: Sequence[str] = (),
) -> Response:
    """Send a request, and return its response once its head is there.

    Args:
        method: In capitals.
        url: Where it goes. A user and a password in it are sent as basic authentication.
        headers: Sent as they are, but for those about the length of the body.
        body: None if the method has none.
        connect_s: Seconds until there is a connection. Raises TimeoutError after that.
        proxy: The proxy that it goes through, with credentials where it wants some.
        addresses: If given, the only addresses that may be connected to. Such a connection is
            neither pooled nor made through a proxy.
    """
    address = parse_url(url) if isinstance(url, str) else url
    via = parse_proxy(proxy) if proxy and not addresses else None
    head = _encode_head(method, address, headers, body, via)
    loop = asyncio.get_running_loop()
    if loop not in _pools:
        opener = _open_pool(loop)
        _pools[loop] = await anext(opener), opener
    connection = await _pools[loop][0].open(address, via, addresses, connect_s)
    return await connection.exchange(method, head, body or b"")


def _encode_head(
    method: str,
    url: HttpUrl,
    headers: Mapping[str, str],
    body: bytes | None,
    proxy: HttpUrl | None,
) -> bytes:
    names = {name.lower() for name in headers}
    fields = [(name, value) for name, value in headers.items() if name.lower() not in _OWN_HEADERS]
    if "host" not in names:
        fields.insert(0, ("Host", url.authority))
    if url.credentials is not None and "authorization" not in names:
        fields.append(("Authorization", basic_auth(url.credentials)))
    # An encrypted request goes through a tunnel, and the proxy sees nothing of it.
    via = proxy if url.scheme == "http" else None
    if via is not None and via.credentials is not None:
        fields.append(("Proxy-Authorization", basic_auth(via.credentials)))
    if body is not None or method in _METHODS_WITH_BODY:
        fields.append(("Content-Length", str(len(body or b""))))
    target = url.target if via is None else str(url)
    lines = [f"{method} {target} HTTP/1.1", *[f"{name}: {value}" for name, value in fields]]
    lines += [line for name, line in _DEFAULT_HEADERS if name not in names]
    lines += ("", "")
    head = "\r\n".join(lines)
    # A line break in a value would begin another header, or another request.
    if head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1 or "\0" in head:
        broken = [name for name, value in fields if any(mark in value for mark in _LINE_BREAKS)]
        raise HttpError("request", f"a header has a line break: {', '.join(broken)[:100]!r}")
    try:
        return head.encode()
    except UnicodeEncodeError:
        raise HttpError("request", "a header has characters that cannot be sent") from None


class HttpPool:
    """The connections of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._dialer = Dialer()
        self._routes: dict[Connection, Route | None] = {}
        """All connections; those without a route are used once."""
        self._idle: dict[Route, list[Connection]] = {}
        self._sweeping: asyncio.TimerHandle | None = None

    async def open(
        self, url: HttpUrl, proxy: HttpUrl | None, addresses: Sequence[str], connect_s: float | None
    ) -> Connection:
        """Return a connection that nothing else uses. Raises HttpError and TimeoutError."""
        route = None if addresses else (url.scheme, url.host, url.port, proxy)
        if route is not None and (kept := self._take_idle(route)) is not None:
            return kept
        async with asyncio.timeout(connect_s):
            if proxy is None:
                connection = await self._dialer.connect(url, addresses)
            elif url.scheme == "https":
                connection = await self._dialer.tunnel(url, proxy)
            else:
                connection = await self._dialer.connect_proxy(proxy)
        self._routes[connection] = route
        connection.on_lost = self._routes.pop
        if route is not None:
            connection.on_idle = self._keep
        return connection

    def _take_idle(self, route: Route) -> Connection | None:
        """Return a connection that the server still holds, as far as this machine knows."""
        kept = self._idle.get(route)
        while kept:
            connection = kept.pop()
            transport = connection.transport
            is_old = self._loop.time() - connection.idle_since > IDLE_S
            if transport is not None and not transport.is_closing() and not is_old:
                # If there is something to read, it is the end, which the loop has not seen yet; or
                # it is something that was not asked for.
                poll = select.poll()
                poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
                if not poll.poll(0):
                    return connection
            connection.abort()
        return None

    def _keep(self, connection: Connection) -> None:
        """Keep a connection for the next request."""
        route = self._routes.get(connection)
        if route is None:
            return  # It was lost.
        connection.idle_since = self._loop.time()
        self._idle.setdefault(route, []).append(connection)
        if self._sweeping is None:
            self._sweeping = self._loop.call_later(IDLE_S, self._sweep)

    def _sweep(self) -> None:
        """Close what was not used for a while."""
        oldest = self._loop.time() - IDLE_S
        for route, kept in list(self._idle.items()):
            for connection in [found for found in kept if found.idle_since <= oldest]:
                kept.remove(connection)
                connection.abort()
            if not kept:
                del self._idle[route]
        self._sweeping = self._loop.call_later(IDLE_S, self._sweep) if self._idle else None

    async def close(self) -> None:
        """Close all connections."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._dialer.close()
        for connection in list(self._routes):
            connection.abort()
        for _ in range(_TURNS_TO_CLOSE):
            if self._routes:
                await asyncio.sleep(0)


_pools: dict[asyncio.AbstractEventLoop, tuple[HttpPool, AsyncGenerator[HttpPool]]] = {}


async def _open_pool(loop: asyncio.AbstractEventLoop) -> AsyncGenerator[HttpPool]:
    # A generator, because a loop that shuts down closes its open async generators: the connections
    # are closed with their loop, and callers need not remember to do it.
    pool = HttpPool(loop)
    try:
        yield pool
    finally:
        _pools.pop(loop, None)
        await pool.close()
