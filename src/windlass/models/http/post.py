"""One POST, its events as they arrive, over pooled connections.

The law: one request, never a second one. Every way in which it can fail comes out as a ModelError
of one line that names the host, and the connection is gone as soon as the generator is closed.
"""

import asyncio
import io
import ssl
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from windlass.core.errors import ModelError
from windlass.models.http.errors import Site, from_response, from_stream, masked
from windlass.models.http.sse import Event, SseParser
from windlass.ports import Timeouts

if TYPE_CHECKING:
    import aiohttp

BODY_BYTES_MAX = 65_536
"""How much of a refusal is read."""
LARGE_BYTES = 2**20
"""From here on a body is sent in parts, with turns of the loop in between."""
_STREAMS = ("text/event-stream", "text/plain", "application/octet-stream", "")
"""What servers call an event stream; the last ones do not know better."""
_STATUS_OK = range(200, 300)

_Opener = AsyncGenerator["aiohttp.ClientSession"]
_sessions: dict[asyncio.AbstractEventLoop, tuple["aiohttp.ClientSession", _Opener]] = {}


async def post_sse(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    site: Site,
    timeouts: Timeouts,
    proxy: str | None = None,
) -> AsyncGenerator[Event]:
    """Send the body, stream the events of the response. Only connecting has a time limit here."""
    import aiohttp

    session = await _session()
    # After two turns of the loop it is known which pooled connections the server has closed.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    limit = aiohttp.ClientTimeout(connect=timeouts.connect_s)
    data = body if len(body) < LARGE_BYTES else io.BytesIO(body)
    try:
        # Redirects are refused: a key must not follow one to another host.
        async with session.post(
            url, data=data, headers=headers, timeout=limit, proxy=proxy, allow_redirects=False
        ) as response:
            try:
                if not _is_stream(response):
                    raise _refusal(response, await _head(response), site)
                parser = SseParser()
                while chunk := await response.content.readany():
                    for event in parser.feed(chunk):
                        yield event
                for event in parser.end():
                    yield event
            finally:
                # Nothing to wait for: a response that was read to its end is already in the pool.
                response.close()
    except (aiohttp.ClientError, OSError, ValueError) as error:
        broken = _broken(error, site, timeouts)
    else:
        return
    raise broken  # On its own: what the library raises may hold the request's headers, and the key.


async def _session() -> "aiohttp.ClientSession":
    """The connections of this event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _sessions:
        opener = _open(loop)
        _sessions[loop] = await anext(opener), opener
    return _sessions[loop][0]


async def _open(loop: asyncio.AbstractEventLoop) -> _Opener:
    # A loop closes the async generators that are still open when it shuts down, and so this one.
    import aiohttp

    # How many requests go out at a time is not for the pool to decide.
    connector = aiohttp.TCPConnector(limit=0)
    jar = aiohttp.DummyCookieJar()
    sent = {"Accept": "text/event-stream", "Accept-Encoding": "identity"}
    async with aiohttp.ClientSession(connector=connector, cookie_jar=jar, headers=sent) as session:
        try:
            yield session
        finally:
            _sessions.pop(loop, None)


def _is_stream(response: "aiohttp.ClientResponse") -> bool:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return response.status in _STATUS_OK and kind in _STREAMS


async def _head(response: "aiohttp.ClientResponse") -> bytes:
    head = bytearray()
    while len(head) < BODY_BYTES_MAX and (chunk := await response.content.readany()):
        head += chunk
    return bytes(head[:BODY_BYTES_MAX])


def _refusal(response: "aiohttp.ClientResponse", body: bytes, site: Site) -> ModelError:
    if response.status not in _STATUS_OK:
        return from_response(response.status, response.headers, body, site)
    kind = response.headers.get("content-type", "").partition(";")[0]
    if kind.endswith("json") and b'"error"' in body:
        return from_stream(body, site)
    what = "a web page" if kind == "text/html" else kind
    told = f"{site.vendor}: {_host(site)} answered with {what} and not with an event stream"
    return ModelError("bad_request", f"{told}. Check base_url: {masked(site.url)}")


def _broken(error: Exception, site: Site, timeouts: Timeouts) -> ModelError:
    """What the network did, in words. Certificates and addresses do not mend themselves."""
    import aiohttp

    again = True
    match error:
        case aiohttp.ClientPayloadError():
            told = f"{site.vendor}: {_host(site)} broke off in the middle of its reply"
            return ModelError("incomplete_stream", told)
        case aiohttp.ClientConnectorCertificateError():
            told, again = (
                f"cannot trust the certificate of {_host(site)}. {_FIX_CERTIFICATE}",
                False,
            )
        case aiohttp.ClientConnectorSSLError() | ssl.SSLError():
            told, again = f"no TLS with {_host(site)}. {_FIX_TLS}", False
        case aiohttp.ClientConnectorDNSError():
            told = f"no host {_host(site)}. Check base_url and the network."
        case aiohttp.ClientProxyConnectionError():
            told = f"the proxy for {_host(site)} cannot be reached. Check HTTPS_PROXY."
        case aiohttp.ClientHttpProxyError():
            told = f"the proxy refused to connect to {_host(site)} ({error.status})"
        case aiohttp.ClientConnectorError():
            told = f"{_host(site)} refuses connections. {site.hint or _FIX_REFUSED}"
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            told, again = f"{masked(site.url)} is no URL. {_FIX_URL}", False
        case TimeoutError():
            told = f"{_host(site)} took no connection within {timeouts.connect_s:g} s"
        case _:
            told = f"the connection to {_host(site)} was lost ({type(error).__name__})"
    return ModelError("network", f"{site.vendor}: {told}", retryable=again)


_FIX_CERTIFICATE = "Is a proxy in between? Set SSL_CERT_FILE to its authority."
_FIX_TLS = "Does base_url need http:// in place of https://?"
_FIX_REFUSED = "Is the server running, and is base_url right?"
_FIX_URL = "base_url reads like https://host/v1."


def _host(site: Site) -> str:
    return urlsplit(site.url).netloc.rpartition("@")[2] or masked(site.url)


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """The proxy that the environment names for a URL, as curl would choose it."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    spared = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    names = [name.strip().lstrip("*.") for name in spared.split(",") if name.strip()]
    local = host in {"localhost", "::1"} or host.startswith("127.")
    if local or "*" in spared.split(",") or any(_within(host, name) for name in names):
        return None
    for name in (f"{parts.scheme}_proxy", "all_proxy"):
        # HTTP_PROXY in capitals is what a CGI request can set.
        found = environ.get(name) or (name != "http_proxy" and environ.get(name.upper())) or None
        if found:
            return found
    return None


def _within(host: str, domain: str) -> bool:
    return bool(domain) and (host == domain or host.endswith(f".{domain}"))
