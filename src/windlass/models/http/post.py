"""One POST over pooled connections, with the events of its response as they arrive.

Invariant: one request, and never a second one. Every failure is raised as a ModelError of one line
that names the host. When the generator is closed, so is the connection, unless the reply had ended:
then the rest of the response is read in the background, and the connection is used again.
"""

import asyncio
import io
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from windlass.core.errors import ModelError
from windlass.core.rate_limits import RateLimits
from windlass.models.dialect import FinishingReader, RequestSigner, StreamParser
from windlass.models.http.provider_errors import (
    RequestTarget,
    error_from_response,
    error_from_stream,
    mask_keys,
)
from windlass.models.http.rate_limits import read_rate_limits
from windlass.models.http.sse import SseEvent, SseParser
from windlass.ports import Timeouts

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

ERROR_BODY_BYTES_MAX = 65_536
"""How much of the body of an error is read."""
WHOLE_REPLY_BYTES_MAX = 16 * 2**20
"""How much is read of a reply that does not stream."""
LARGE_BODY_BYTES = 2**20
"""From this size on a body is sent in parts, so that other tasks run in between."""
_STREAM_TYPES = (
    "text/event-stream",
    "application/vnd.amazon.eventstream",
    "text/plain",
    "application/octet-stream",
    "",
)
"""The content types under which servers send event streams; all but the first two are mistakes."""
_STATUS_OK = range(200, 300)

STREAM_OPENED: Sequence[SseEvent] = ()
"""Comes before all events of a response: its head is there."""
AFTER_FINISH_S = 2.0
"""How long to wait for more once the server has said why the model stopped.

What comes then is usage and the end marker. Some servers send neither, and keep the response open.
"""
REST_S = 1.0
"""How long the rest of a response is awaited, in the background, to use its connection again."""
REST_BYTES_MAX = 65_536
"""How much of that rest is read."""
_background: set[asyncio.Task[None]] = set()
"""The tasks that read such rests. The event loop itself keeps only weak references."""

_SessionOpener = AsyncGenerator["aiohttp.ClientSession"]
_sessions: dict[asyncio.AbstractEventLoop, tuple["aiohttp.ClientSession", _SessionOpener]] = {}


@dataclass(slots=True)
class ReplyProgress:
    """What the reader of a reply reports to the connection that the reply comes from."""

    reader: FinishingReader | None = None
    """Knows whether the model has finished although the end marker has not come."""
    ended: bool = False
    """The end marker has come. What follows it does not matter."""
    limits: RateLimits | None = None
    """What the head of the response says about the provider's rate limits."""
    wait_until: float | None = None
    """When a finished reply counts as ended without its end marker, by the clock of the loop."""
    new_parser: Callable[[], StreamParser] = SseParser
    """Makes the parser of the response."""
    split_reply: Callable[[bytes], Sequence[SseEvent] | None] | None = None
    """Turns a reply that came whole into the events of a stream, if the reader can."""


async def post_sse(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    target: RequestTarget,
    timeouts: Timeouts,
    proxy: str | None = None,
    progress: ReplyProgress | None = None,
    signer: RequestSigner | None = None,
) -> AsyncGenerator[Sequence[SseEvent]]:
    """Send the body; yield STREAM_OPENED, then the events of each read. Connecting has a limit."""
    import aiohttp

    progress = progress or ReplyProgress()
    if signer is not None:
        headers = {**headers, **await signer.sign_request(url, body)}
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    try:
        response = await _send_post(url, body, headers, timeouts, proxy)
        try:
            progress.limits = read_rate_limits(response.headers)
            whole_reply = await _read_whole_reply(response, progress, target)
            yield STREAM_OPENED
            if whole_reply:
                yield whole_reply
            parser = progress.new_parser()
            while chunk := await _read_chunk(response, progress):
                if events := parser.feed(chunk):
                    yield events
            if events := parser.finish():
                yield events
        finally:
            _leave_response(response, reply_ended=progress.ended)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        fault = _network_error(error, target, timeouts, loop.time() - began_at)
    else:
        return
    raise fault  # Without its cause: the library's error may hold the headers, and so the key.


async def _send_post(
    url: str, body: bytes, headers: Mapping[str, str], timeouts: Timeouts, proxy: str | None
) -> "aiohttp.ClientResponse":
    """Send the request, and return its response once the head is there."""
    import aiohttp

    session = await loop_session()
    # After two turns of the loop it is known which pooled connections the server has closed.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return await session.post(
        wire_url(url),
        data=body if len(body) < LARGE_BODY_BYTES else io.BytesIO(body),
        headers=headers,
        timeout=aiohttp.ClientTimeout(connect=timeouts.connect_s),
        proxy=proxy,
        allow_redirects=False,  # A key must not be sent to another host.
    )


async def _read_chunk(response: "aiohttp.ClientResponse", progress: ReplyProgress) -> bytes:
    """Return the next bytes; none at the end, or if a finished reply gets no end marker."""
    reader = progress.reader
    if reader is None or not reader.is_finishing:
        return await response.content.readany()
    # One deadline for all that follows: a server may send keep-alives for as long as it likes.
    progress.wait_until = progress.wait_until or asyncio.get_running_loop().time() + AFTER_FINISH_S
    try:
        async with asyncio.timeout_at(progress.wait_until):
            return await response.content.readany()
    except TimeoutError:
        return b""


def _leave_response(response: "aiohttp.ClientResponse", *, reply_ended: bool) -> None:
    """Close a response, or read the little that is left of it in the background."""
    # A response that was received to its end is closed already, and its connection in the pool.
    if response.closed:
        return
    if not reply_ended:
        response.close()
        return
    task = asyncio.get_running_loop().create_task(_read_rest(response))
    _background.add(task)
    task.add_done_callback(_background.discard)


async def _read_rest(response: "aiohttp.ClientResponse") -> None:
    """Read to the end of a response, so that its connection can be used again.

    A server that keeps the response open, or keeps sending, loses the connection.
    """
    import aiohttp

    left = REST_BYTES_MAX
    try:
        async with asyncio.timeout(REST_S):
            while left > 0 and (chunk := await response.content.readany()):
                left -= len(chunk)
    except (aiohttp.ClientError, OSError):
        pass  # The reply is whole; what happens to its connection now is of no interest.
    finally:
        response.close()


def wire_url(url: str) -> "str | URL":
    """Return a URL that is sent as it is written.

    A signature covers each character of the path, and the client would write `%3A` as a colon.
    """
    from yarl import URL  # noqa: PLC0415 - comes with aiohttp, and costs as much time

    return URL(url, encoded=True) if "%" in url else url


async def loop_session() -> "aiohttp.ClientSession":
    """Return the session of this event loop. It holds the loop's connections."""
    loop = asyncio.get_running_loop()
    if loop not in _sessions:
        opener = _open_session(loop)
        _sessions[loop] = await anext(opener), opener
    return _sessions[loop][0]


async def _open_session(loop: asyncio.AbstractEventLoop) -> _SessionOpener:
    # A generator, because a loop that shuts down closes its open async generators: the session is
    # closed with its loop, and callers need not remember to do it.
    import aiohttp

    # The number of requests at a time is limited elsewhere, and not by the pool.
    connector = aiohttp.TCPConnector(limit=0)
    cookies = aiohttp.DummyCookieJar()
    headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity"}
    async with aiohttp.ClientSession(
        connector=connector, cookie_jar=cookies, headers=headers
    ) as session:
        try:
            yield session
        finally:
            _sessions.pop(loop, None)


def _content_type(response: "aiohttp.ClientResponse") -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _read_whole_reply(
    response: "aiohttp.ClientResponse", progress: ReplyProgress, target: RequestTarget
) -> Sequence[SseEvent]:
    """Return the events of a reply that came as one JSON document; none if it is a stream.

    Some servers, gateways and caches ignore that a stream was asked for. The reply is paid for, and
    it says the same. Raises ModelError for a response that is neither.
    """
    content_type = _content_type(response)
    is_ok = response.status in _STATUS_OK
    if is_ok and content_type in _STREAM_TYPES:
        return ()
    is_json = is_ok and content_type.endswith("json")
    body = await _read_body(response, WHOLE_REPLY_BYTES_MAX if is_json else ERROR_BODY_BYTES_MAX)
    events = progress.split_reply(body) if is_json and progress.split_reply is not None else None
    if events is not None:
        return events
    raise _refusal_error(response, body, target)


async def _read_body(response: "aiohttp.ClientResponse", bytes_max: int) -> bytes:
    body = bytearray()
    while len(body) < bytes_max and (chunk := await response.content.readany()):
        body += chunk
    return bytes(body[:bytes_max])


def _refusal_error(
    response: "aiohttp.ClientResponse", body: bytes, target: RequestTarget
) -> ModelError:
    """Return the error for a response that is not an event stream."""
    if response.status not in _STATUS_OK:
        return error_from_response(response.status, response.headers, body, target)
    content_type = _content_type(response)
    if content_type.endswith("json") and b'"error"' in body:
        return error_from_stream(body, target)
    kind = "a web page" if content_type == "text/html" else content_type
    return ModelError(
        "bad_request",
        f"{target.vendor}: {_host_name(target)} answered with {kind} instead of an event stream. "
        f"Check base_url: {mask_keys(target.url)}",
    )


def _network_error(
    error: Exception, target: RequestTarget, timeouts: Timeouts, elapsed_s: float
) -> ModelError:
    """Return what went wrong in the network. Wrong certificates and URLs are not worth a retry."""
    import aiohttp

    host = _host_name(target)
    retryable = True
    match error:
        case aiohttp.ClientPayloadError():
            message = (
                f"{target.vendor}: {host} closed the connection in the middle of its reply, after "
                f"{elapsed_s:.1f} s. {_FIX_INCOMPLETE}"
            )
            return ModelError("incomplete_stream", message)
        case aiohttp.ClientConnectorCertificateError():
            problem = f"the certificate of {host} is not trusted. {_FIX_CERTIFICATE}"
            retryable = False
        case aiohttp.ClientConnectorSSLError() | ssl.SSLError():
            problem = f"no TLS connection with {host}. {_FIX_TLS}"
            retryable = False
        case aiohttp.ClientConnectorDNSError():
            problem = f"there is no host {host}. Check base_url and the network."
        case aiohttp.ClientProxyConnectionError():
            problem = f"the proxy for {host} cannot be reached. Check HTTPS_PROXY."
        case aiohttp.ClientHttpProxyError():
            problem = f"the proxy refused to connect to {host} ({error.status})"
        case aiohttp.ClientConnectorError():
            problem = f"{host} refuses connections. {target.hint or _FIX_REFUSED}"
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            problem = f"{mask_keys(target.url)} is not a URL. {_FIX_URL}"
            retryable = False
        case TimeoutError():
            problem = f"{host} accepted no connection within {timeouts.connect_s:g} s"
        case _:
            problem = f"the connection to {host} was lost ({type(error).__name__})"
    return ModelError("network", f"{target.vendor}: {problem}", retryable=retryable)


_FIX_CERTIFICATE = "If a proxy stands in between, set SSL_CERT_FILE to its certificate authority."
_FIX_INCOMPLETE = "If this happens again, a proxy or a server limit may cut long replies off."
_FIX_TLS = "Does base_url need http:// instead of https://?"
_FIX_REFUSED = "Is the server running, and is base_url right?"
_FIX_URL = "base_url should look like https://host/v1."


def _host_name(target: RequestTarget) -> str:
    return urlsplit(target.url).netloc.rpartition("@")[2] or mask_keys(target.url)


def find_proxy(url: str, environ: Mapping[str, str]) -> str | None:
    """Return the proxy that the environment names for a URL, by the rules of curl."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    is_local = host in {"localhost", "::1"} or host.startswith("127.")
    if is_local or _is_excluded(host, environ):
        return None
    for name in (f"{parts.scheme}_proxy", "all_proxy"):
        proxy = environ.get(name)
        # HTTP_PROXY in capitals is ignored: in a CGI program, a request could set it.
        if not proxy and name != "http_proxy":
            proxy = environ.get(name.upper())
        if proxy:
            return proxy
    return None


def _is_excluded(host: str, environ: Mapping[str, str]) -> bool:
    """Whether NO_PROXY names the host, a domain of it, or everything."""
    excluded = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    entries = excluded.split(",")
    domains = filter(None, (entry.strip().lstrip("*.") for entry in entries))
    return "*" in entries or any(f".{host}".endswith(f".{domain}") for domain in domains)
