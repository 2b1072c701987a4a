"""One POST over pooled connections, with the events of its response as they arrive.

Invariant: one request, and never a second one. Every failure is raised as a ModelError of one line
that names the host. When the generator is closed, so is the connection, unless the reply had ended:
then the rest of the response is read in the background, and the connection is used again.
"""

import asyncio
import errno
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from windlass.core.errors import ModelError, is_out_of_files
from windlass.core.rate_limits import RateLimits
from windlass.http.client import send_request
from windlass.http.connection import Response
from windlass.http.errors import HttpError
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

ERROR_BODY_BYTES_MAX = 65_536
"""How much of the body of an error is read."""
WHOLE_REPLY_BYTES_MAX = 16 * 2**20
"""How much is read of a reply that does not stream."""
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
    progress = progress or ReplyProgress()
    signed: Mapping[str, str] = await signer.sign_request(url, body) if signer else {}
    headers = {"Accept": "text/event-stream", **headers, **signed}
    began_at = asyncio.get_running_loop().time()
    try:
        response = await send_request(
            "POST", url, headers=headers, body=body, proxy=proxy, connect_s=timeouts.connect_s
        )
        try:
            whole_reply = await _read_whole_reply(response, progress, target)
            yield STREAM_OPENED
            parser = progress.new_parser()
            chunk = await _read_chunk(response, progress)
            if chunk.lstrip().startswith(b"{"):  # No line of a stream begins like this.
                whole_reply = await _read_mislabelled_reply(chunk, response, progress, target)
            while chunk and not whole_reply:
                if events := parser.feed(chunk):
                    yield events
                chunk = await _read_chunk(response, progress)
            if events := whole_reply or parser.finish():
                yield events
        finally:
            _leave_response(response, reply_ended=progress.ended)
    except (HttpError, TimeoutError) as error:
        fault = _network_error(error, target, timeouts, began_at)
    else:
        return
    raise fault  # Without its context, whose traceback holds the headers, and so the key.


async def _read_chunk(response: Response, progress: ReplyProgress) -> bytes:
    """Return the next bytes; none at the end, or if a finished reply gets no end marker."""
    reader = progress.reader
    if reader is None or not reader.is_finishing:
        return await response.read()
    # One deadline for all that follows: a server may send keep-alives for as long as it likes.
    progress.wait_until = progress.wait_until or asyncio.get_running_loop().time() + AFTER_FINISH_S
    try:
        async with asyncio.timeout_at(progress.wait_until):
            return await response.read()
    except TimeoutError:
        return b""


def _leave_response(response: Response, *, reply_ended: bool) -> None:
    """Close a response, or read the little that is left of it in the background."""
    # A response that was received to its end is closed already, and its connection in the pool.
    if response.connection is None:
        return
    if not reply_ended:
        response.close()
        return
    task = asyncio.get_running_loop().create_task(_read_rest(response))
    _background.add(task)
    task.add_done_callback(_background.discard)


async def _read_rest(response: Response) -> None:
    """Read to the end of a response, so that its connection can be used again.

    A server that keeps the response open, or keeps sending, loses the connection.
    """
    left = REST_BYTES_MAX
    try:
        async with asyncio.timeout(REST_S):
            while left > 0 and (chunk := await response.read()):
                left -= len(chunk)
    except (HttpError, TimeoutError):
        pass  # The reply is whole; what happens to its connection now is of no interest.
    finally:
        response.close()


def _content_type(response: Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _read_whole_reply(
    response: Response, progress: ReplyProgress, target: RequestTarget
) -> Sequence[SseEvent]:
    """Return the events of a reply that came as one JSON document; none if it is a stream.

    Some servers, gateways and caches ignore that a stream was asked for. The reply is paid for, and
    it says the same. Raises ModelError for a response that is neither.
    """
    progress.limits = read_rate_limits(response.headers)
    content_type = _content_type(response)
    is_ok = response.status in _STATUS_OK
    if is_ok and content_type in _STREAM_TYPES:
        return ()
    is_json = is_ok and content_type.endswith("json")
    body = await _read_body(response, WHOLE_REPLY_BYTES_MAX if is_json else ERROR_BODY_BYTES_MAX)
    events = progress.split_reply(body) if is_json and progress.split_reply is not None else None
    if events is not None:
        return events
    raise _refusal_error(response, body, target, content_type)


async def _read_mislabelled_reply(
    first_chunk: bytes, response: Response, progress: ReplyProgress, target: RequestTarget
) -> Sequence[SseEvent]:
    """Return the events of a JSON document that was sent with the content type of a stream.

    Proxies do this if they copy the `Accept` header of the request. Raises ModelError if the
    document is not a reply.
    """
    body = first_chunk + await _read_body(response, WHOLE_REPLY_BYTES_MAX)
    events = progress.split_reply(body) if progress.split_reply is not None else None
    if events is None:
        raise _refusal_error(response, body, target, "application/json")
    return events


async def _read_body(response: Response, bytes_max: int) -> bytes:
    body = bytearray()
    while len(body) < bytes_max and (chunk := await response.read()):
        body += chunk
    return bytes(body[:bytes_max])


def _refusal_error(
    response: Response, body: bytes, target: RequestTarget, content_type: str
) -> ModelError:
    """Return the error for a response that is not an event stream."""
    if response.status not in _STATUS_OK:
        return error_from_response(response.status, response.headers, body, target)
    if content_type.endswith("json") and b'"error"' in body:
        return error_from_stream(body, target)
    kind = "a web page" if content_type == "text/html" else content_type
    return ModelError(
        "bad_request",
        f"{target.vendor}: {_host_name(target)} answered with {kind} instead of an event stream. "
        f"Check base_url: {mask_keys(target.url)}",
    )


def _network_error(
    error: HttpError | TimeoutError, target: RequestTarget, timeouts: Timeouts, began_at: float
) -> ModelError:
    """Return what went wrong in the network. Wrong certificates and URLs are not worth a retry."""
    host = _host_name(target)
    if is_out_of_files(error):
        shortage = ModelError("network", f"{target.vendor}: no file descriptor left for {host}")
        # What the runtime knows it by. A fresh one, because it must not hold the request either.
        shortage.__cause__ = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return shortage
    if not isinstance(error, HttpError):
        problem = f"{host} accepted no connection within {timeouts.connect_s:g} s"
        return ModelError("network", f"{target.vendor}: {problem}")
    match error.problem:
        case "broken":
            elapsed_s = asyncio.get_running_loop().time() - began_at
            message = (
                f"{target.vendor}: {host} closed the connection in the middle of its reply, after "
                f"{elapsed_s:.1f} s. {_FIX_INCOMPLETE}"
            )
            return ModelError("incomplete_stream", message)
        case "certificate":
            problem = f"the certificate of {host} is not trusted. {_FIX_CERTIFICATE}"
        case "tls":
            problem = f"no TLS connection with {host}. {_FIX_TLS}"
        case "host":
            problem = f"there is no host {host}. Check base_url and the network."
        case "proxy":
            problem = f"the proxy for {host} cannot be reached. Check HTTPS_PROXY."
        case "proxy_refused":
            problem = f"the proxy refused to connect to {host} ({error.status})"
        case "refused":
            problem = f"{host} refuses connections. {target.hint or _FIX_REFUSED}"
        case "url":
            problem = f"{mask_keys(target.url)} is not a URL. {_FIX_URL}"
        case "request" | "lost":
            problem = f"the connection to {host} was lost ({error})"
    retryable = error.problem not in {"certificate", "tls", "url", "request"}
    return ModelError("network", f"{target.vendor}: {problem}", retryable=retryable)


_FIX_CERTIFICATE = "If a proxy stands in between, set SSL_CERT_FILE to its certificate authority."
_FIX_INCOMPLETE = "If this happens again, a proxy or a server limit may cut long replies off."
_FIX_TLS = "Does base_url need http:// instead of https://?"
_FIX_REFUSED = "Is the server running, and is base_url right?"
_FIX_URL = "base_url should look like https://host/v1."


def _host_name(target: RequestTarget) -> str:
    return urlsplit(target.url).netloc.rpartition("@")[2] or mask_keys(target.url)
