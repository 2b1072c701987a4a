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
from windlass.models.http.errors import (
    RequestTarget,
    error_from_response,
    error_from_stream,
    mask_keys,
)
from windlass.models.http.sse import SseEvent, SseParser
from windlass.ports import Timeouts

if TYPE_CHECKING:
    import aiohttp

ERROR_BODY_BYTES_MAX = 65_536
"""How much of a refusal is read."""
LARGE_BODY_BYTES = 2**20
"""From here on a body is sent in parts, with turns of the loop in between."""
_STREAM_TYPES = ("text/event-stream", "text/plain", "application/octet-stream", "")
"""What servers call an event stream; the last ones do not know better."""
_STATUS_OK = range(200, 300)

_SessionOpener = AsyncGenerator["aiohttp.ClientSession"]
_sessions: dict[asyncio.AbstractEventLoop, tuple["aiohttp.ClientSession", _SessionOpener]] = {}


async def post_sse(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    site: RequestTarget,
    timeouts: Timeouts,
    proxy: str | None = None,
) -> AsyncGenerator[SseEvent]:
    """Send the body, stream the events of the response. Only connecting has a time limit here."""
    import aiohttp

    session = await _loop_session()
    # After two turns of the loop it is known which pooled connections the server has closed.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    limit = aiohttp.ClientTimeout(connect=timeouts.connect_s)
    data = body if len(body) < LARGE_BODY_BYTES else io.BytesIO(body)
    try:
        # Redirects are refused: a key must not follow one to another host.
        async with session.post(
            url, data=data, headers=headers, timeout=limit, proxy=proxy, allow_redirects=False
        ) as response:
            try:
                if not _is_event_stream(response):
                    raise _refusal_error(response, await _read_error_body(response), site)
                parser = SseParser()
                while chunk := await response.content.readany():
                    for event in parser.feed(chunk):
                        yield event
                for event in parser.finish():
                    yield event
            finally:
                # Nothing to wait for: a response that was read to its end is already in the pool.
                response.close()
    except (aiohttp.ClientError, OSError, ValueError) as error:
        broken = _network_error(error, site, timeouts)
    else:
        return
    raise broken  # On its own: what the library raises may hold the request's headers, and the key.


async def _loop_session() -> "aiohttp.ClientSession":
    """The connections of this event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _sessions:
        opener = _open_session(loop)
        _sessions[loop] = await anext(opener), opener
    return _sessions[loop][0]


async def _open_session(loop: asyncio.AbstractEventLoop) -> _SessionOpener:
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


def _is_event_stream(response: "aiohttp.ClientResponse") -> bool:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return response.status in _STATUS_OK and kind in _STREAM_TYPES


async def _read_error_body(response: "aiohttp.ClientResponse") -> bytes:
    head = bytearray()
    while len(head) < ERROR_BODY_BYTES_MAX and (chunk := await response.content.readany()):
        head += chunk
    return bytes(head[:ERROR_BODY_BYTES_MAX])


def _refusal_error(
    response: "aiohttp.ClientResponse", body: bytes, site: RequestTarget
) -> ModelError:
    if response.status not in _STATUS_OK:
        return error_from_response(response.status, response.headers, body, site)
    kind = response.headers.get("content-type", "").partition(";")[0]
    if kind.endswith("json") and b'"error"' in body:
        return error_from_stream(body, site)
    what = "a web page" if kind == "text/html" else kind
    told = f"{site.vendor}: {_host_name(site)} answered with {what} and not with an event stream"
    return ModelError("bad_request", f"{told}. Check base_url: {mask_keys(site.url)}")


def _network_error(error: Exception, site: RequestTarget, timeouts: Timeouts) -> ModelError:
    """What the network did, in words. Certificates and addresses do not mend themselves."""
    import aiohttp

    again = True
    match error:
        case aiohttp.ClientPayloadError():
            told = f"{site.vendor}: {_host_name(site)} broke off in the middle of its reply"
            return ModelError("incomplete_stream", told)
        case aiohttp.ClientConnectorCertificateError():
            told, again = (
                f"cannot trust the certificate of {_host_name(site)}. {_FIX_CERTIFICATE}",
                False,
            )
        case aiohttp.ClientConnectorSSLError() | ssl.SSLError():
            told, again = f"no TLS with {_host_name(site)}. {_FIX_TLS}", False
        case aiohttp.ClientConnectorDNSError():
            told = f"no host {_host_name(site)}. Check base_url and the network."
        case aiohttp.ClientProxyConnectionError():
            told = f"the proxy for {_host_name(site)} cannot be reached. Check HTTPS_PROXY."
        case aiohttp.ClientHttpProxyError():
            told = f"the proxy refused to connect to {_host_name(site)} ({error.status})"
        case aiohttp.ClientConnectorError():
            told = f"{_host_name(site)} refuses connections. {site.hint or _FIX_REFUSED}"
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            told, again = f"{mask_keys(site.url)} is no URL. {_FIX_URL}", False
        case TimeoutError():
            told = f"{_host_name(site)} took no connection within {timeouts.connect_s:g} s"
        case _:
            told = f"the connection to {_host_name(site)} was lost ({type(error).__name__})"
    return ModelError("network", f"{site.vendor}: {told}", retryable=again)


_FIX_CERTIFICATE = "Is a proxy in between? Set SSL_CERT_FILE to its authority."
_FIX_TLS = "Does base_url need http:// in place of https://?"
_FIX_REFUSED = "Is the server running, and is base_url right?"
_FIX_URL = "base_url reads like https://host/v1."


def _host_name(site: RequestTarget) -> str:
    return urlsplit(site.url).netloc.rpartition("@")[2] or mask_keys(site.url)


def find_proxy(url: str, environ: Mapping[str, str]) -> str | None:
    """The proxy that the environment names for a URL, as curl would choose it."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    spared = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    names = [name.strip().lstrip("*.") for name in spared.split(",") if name.strip()]
    local = host in {"localhost", "::1"} or host.startswith("127.")
    if local or "*" in spared.split(",") or any(_is_in_domain(host, name) for name in names):
        return None
    for name in (f"{parts.scheme}_proxy", "all_proxy"):
        # HTTP_PROXY in capitals is what a CGI request can set.
        found = environ.get(name) or (name != "http_proxy" and environ.get(name.upper())) or None
        if found:
            return found
    return None


def _is_in_domain(host: str, domain: str) -> bool:
    return bool(domain) and (host == domain or host.endswith(f".{domain}"))
