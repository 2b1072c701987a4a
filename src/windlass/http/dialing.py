"""Opens connections: names, addresses, TLS and proxies.

Invariant: whatever fails or is cancelled on the way, no socket stays open. With addresses given,
no name is looked up: the socket goes to one of them, and the certificate must be that of the name.
"""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import ip_address

from windlass.http.connection import SUCCESS, Connection
from windlass.http.errors import HttpError
from windlass.http.urls import HttpUrl, basic_auth

HEAD_START_S = 0.25
"""How long an address is tried alone before the next one is tried next to it."""
LOOKUP_S = 10.0
"""How long the addresses of a name are used for other connections."""


class Dialer:
    """Opens the connections of one event loop."""

    def __init__(self) -> None:
        self._lookups: dict[tuple[str, int], asyncio.Task[list[str]]] = {}

    def close(self) -> None:
        for lookup in self._lookups.values():
            lookup.cancel()

    async def connect(self, url: HttpUrl, addresses: Sequence[str] = ()) -> Connection:
        """Open a connection to a server. Raises HttpError and TimeoutError."""
        addresses = addresses or await self._look_up(url.host, url.port)
        try:
            sock = await _race(addresses, url.port)
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            reason = error.strerror or type(error).__name__
            raise HttpError("refused", f"{url.host} takes no connections ({reason})") from None
        context = _tls_context() if url.scheme == "https" else None
        name = url.host if context else None
        loop = asyncio.get_running_loop()
        try:
            opened = await loop.create_connection(
                Connection, sock=sock, ssl=context, server_hostname=name
            )
        except OSError as error:
            raise _tls_error(error, url.host) from None
        return opened[1]

    async def tunnel(self, url: HttpUrl, proxy: HttpUrl) -> Connection:
        """Open a connection to an https server through a proxy. Raises as `connect` does."""
        connection = await self.connect_proxy(proxy)
        place = f"[{url.host}]:{url.port}" if ":" in url.host else f"{url.host}:{url.port}"
        head = f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n"
        if proxy.credentials is not None:
            head += f"Proxy-Authorization: {basic_auth(proxy.credentials)}\r\n"
        response = await connection.exchange("CONNECT", f"{head}\r\n".encode(), b"")
        transport = connection.transport
        # A proxy that sends more than its answer is closing, too.
        if response.status not in SUCCESS or transport is None or transport.is_closing():
            connection.abort()
            text = f"the proxy refused to connect to {url.host} ({response.status})"
            raise HttpError("proxy_refused", text, response.status)
        connection.reset_parser()
        try:
            connection.transport = await asyncio.get_running_loop().start_tls(
                transport, connection, _tls_context(), server_hostname=url.host
            )
        except BaseException as error:
            transport.abort()
            if isinstance(error, OSError):
                raise _tls_error(error, url.host) from None
            raise
        return connection

    async def connect_proxy(self, proxy: HttpUrl) -> Connection:
        """Open a connection to a proxy. Raises as `connect` does."""
        try:
            return await self.connect(proxy)
        except HttpError as error:
            raise HttpError("proxy", f"the proxy cannot be reached: {error}") from None

    async def _look_up(self, host: str, port: int) -> list[str]:
        """Return the addresses of a name. Connections that are opened together ask once."""
        try:
            return [str(ip_address(host))]
        except ValueError:
            pass
        lookup = self._lookups.get((host, port))
        if lookup is None:
            loop = asyncio.get_running_loop()
            lookup = self._lookups[host, port] = loop.create_task(_find_addresses(host, port))
            lookup.add_done_callback(lambda done: self._keep_lookup((host, port), done))
        try:
            return await asyncio.shield(lookup)
        except (OSError, UnicodeError):
            raise HttpError("host", f"there is no host {host}") from None

    def _keep_lookup(self, key: tuple[str, int], lookup: asyncio.Task[list[str]]) -> None:
        failed = lookup.cancelled() or lookup.exception() is not None
        lookup.get_loop().call_later(0 if failed else LOOKUP_S, self._lookups.pop, key, None)


async def _find_addresses(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[4][0]) for address in found))


async def _race(addresses: Sequence[str], port: int) -> socket.socket:
    """Connect to the first address that answers. Each one has a head start over the next."""
    if len(addresses) == 1:
        return await _dial(addresses[0], port)
    waiting = list(addresses)
    dials: set[asyncio.Task[socket.socket]] = set()
    error: BaseException = OSError("it has no address")
    try:
        while waiting or dials:
            if waiting:
                dials.add(asyncio.get_running_loop().create_task(_dial(waiting.pop(0), port)))
            await asyncio.wait(
                dials,
                timeout=HEAD_START_S if waiting else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for dial in [dial for dial in dials if dial.done()]:
                dials.remove(dial)
                if (failure := dial.exception()) is None:
                    return dial.result()
                error = failure
    finally:
        for dial in dials:
            dial.add_done_callback(_close_late)
            dial.cancel()
    raise error


def _close_late(dial: asyncio.Task[socket.socket]) -> None:
    """Close what another address was faster than, or what nothing waits for any more."""
    if not dial.cancelled() and dial.exception() is None:
        dial.result().close()


async def _dial(address: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        sock.setblocking(False)  # noqa: FBT003 - its only parameter
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        await asyncio.get_running_loop().sock_connect(sock, (address, port))
    except BaseException:
        sock.close()
        raise
    return sock


def _tls_context() -> ssl.SSLContext:
    # The variables SSL_CERT_FILE and SSL_CERT_DIR are part of the paths.
    return _load_certificates(ssl.get_default_verify_paths())


@lru_cache(maxsize=8)
def _load_certificates(paths: ssl.DefaultVerifyPaths) -> ssl.SSLContext:  # noqa: ARG001 - the key of the cache
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _tls_error(error: OSError, host: str) -> Exception:
    match error:
        case ssl.SSLCertVerificationError():
            text = f"the certificate of {host} is not trusted ({error.verify_message})"
            return HttpError("certificate", text)
        case ssl.SSLError():
            reason = error.reason or type(error).__name__
            return HttpError("tls", f"no TLS connection with {host} ({reason})")
        case TimeoutError():
            return error
        case _:
            return HttpError("lost", f"the connection to {host} was lost ({type(error).__name__})")
