"""The service on sockets, by aiohttp.

Invariant: a lost connection closes the iterator of a stream and marks the request as disconnected.
It cancels no handler: what a request began is finished, whether or not anybody reads the reply.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.web_protocol import RequestHandler
from typing_extensions import override

from windlass.logs import get_logger
from windlass.server.errors import ApiError, body_cut
from windlass.server.limits import ServiceLimits
from windlass.server.messages import (
    CountBytes,
    HttpReply,
    HttpRequest,
    Reply,
    StreamReply,
    close_unread,
    error_reply,
)

_log = get_logger(__name__)
HEADER_BYTES_MAX = 16_384
LINGER_S = 1.0
"""How long the rest of a body is read that a refused request still sends."""
STOP_S = 5.0
"""For requests that are under way when the server stops."""
PIECE_BYTES = 2**17
"""Of a longer reply at a time, so that a client that takes nothing of it is noticed."""
REFUSED_AT_ONCE = 64
"""Connections beyond the bound that get an error reply; further ones are dropped without one."""


class BoundedServer(web.Server):
    """A server of aiohttp that knows how many connections it has, idle ones too."""

    def __init__(self, handler: Callable[[web.BaseRequest], Any], limits: ServiceLimits) -> None:
        super().__init__(
            handler,
            handler_cancellation=True,
            # Counts from the first moment of a connection: a head that comes too slowly ends it.
            keepalive_timeout=limits.receive_s,
            lingering_time=LINGER_S,
            max_line_size=HEADER_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX,
            access_log=None,
        )
        self._connections_max = limits.connections
        self._count = 0

    @property
    def is_full(self) -> bool:
        """Whether there are more connections than the limits say."""
        return self._count > self._connections_max

    @override
    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._count += 1
        if self._count > self._connections_max + REFUSED_AT_ONCE:
            transport.abort()

    @override
    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        self._count -= 1
        super().connection_lost(handler, exc)


class AnswersRequests(Protocol):
    """What a server carries requests to: a `Dispatcher`, without the routes and all behind them."""

    limits: ServiceLimits

    async def handle(self, request: HttpRequest) -> Reply: ...


class HttpServer:
    """Carries the requests of one dispatcher over aiohttp."""

    def __init__(self, dispatcher: AnswersRequests, *, scheme: str = "http") -> None:
        self._dispatcher = dispatcher
        self._limits = dispatcher.limits
        self._scheme = scheme
        self._streams: set[asyncio.Task[object]] = set()
        self.server = BoundedServer(self._handle, self._limits)
        """What aiohttp runs for each connection."""

    async def close_streams(self) -> None:
        """End all streams. Their clients connect again, to this service or another replica."""
        streams = list(self._streams)
        for task in streams:
            task.cancel()
        await asyncio.gather(*streams, return_exceptions=True)

    async def _handle(self, raw: web.BaseRequest) -> web.StreamResponse:
        if self.server.is_full:
            return _to_response(error_reply(_too_many_connections()))
        request = self._read_request(raw)
        answering = asyncio.create_task(self._dispatcher.handle(request))
        try:
            reply = await asyncio.shield(answering)
        except asyncio.CancelledError:
            request.mark_disconnected()
            answering.add_done_callback(close_unread)
            raise
        if isinstance(reply, StreamReply):
            return await self._write_stream(raw, request, reply)
        return await self._write_whole(raw, reply)

    def _read_request(self, raw: web.BaseRequest) -> HttpRequest:
        query: dict[str, list[str]] = {}
        for name, value in raw.rel_url.query.items():
            query.setdefault(name, []).append(value)

        async def read_body(bytes_max: int, count: CountBytes) -> bytes:
            return await _read_body(raw, bytes_max, count, self._limits.receive_s)

        return HttpRequest(
            raw.method,
            raw.rel_url.raw_path,
            query=query,
            headers={name.lower(): value for name, value in raw.headers.items()},
            read_body=read_body,
            remote=raw.remote or "",
            scheme=self._scheme,
            target_host=urlsplit(raw.raw_path).netloc,
        )

    async def _write_whole(self, raw: web.BaseRequest, reply: HttpReply) -> web.StreamResponse:
        body = reply.encode_body()
        if len(body) <= PIECE_BYTES:
            await reply.close()
            return _to_response(reply)
        response = web.StreamResponse(status=reply.status, headers=dict(reply.headers))
        response.headers["Content-Type"] = reply.content_type
        response.content_length = len(body)
        try:
            await response.prepare(raw)
            with _StreamWriter(raw, response, b"", self._limits) as writer:
                for start in range(0, len(body), PIECE_BYTES):
                    await writer.write(body[start : start + PIECE_BYTES])
            await response.write_eof()
        except ConnectionError:
            # The client has gone away.
            pass
        finally:
            await reply.close()
        return response

    async def _write_stream(
        self, raw: web.BaseRequest, request: HttpRequest, reply: StreamReply
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=reply.status, headers=dict(reply.headers))
        response.content_type = reply.content_type
        task = asyncio.current_task()
        if task is not None:
            self._streams.add(task)
        try:
            await response.prepare(raw)
            with _StreamWriter(raw, response, reply.keep_alive, self._limits) as writer:
                async for chunk in reply.chunks:
                    await writer.write(chunk)
            await response.write_eof()
        except ConnectionError:
            # The client has disconnected. What it watched continues.
            pass
        finally:
            if task is not None:
                self._streams.discard(task)
            request.mark_disconnected()
            await reply.close()
        return response


class _StreamWriter:
    """Writes chunks, and something to keep the connection alive when there are none."""

    def __init__(
        self,
        raw: web.BaseRequest,
        response: web.StreamResponse,
        keep_alive: bytes,
        limits: ServiceLimits,
    ) -> None:
        self._raw = raw
        self._response = response
        self._keep_alive = keep_alive
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._is_idle = True
        self._writing_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._beat: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self._schedule()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._beat is not None:
            self._beat.cancel()

    async def write(self, chunk: bytes) -> None:
        self._is_idle = False
        self._writing_since = self._loop.time()
        await self._response.write(chunk)
        self._writing_since = None

    def _schedule(self) -> None:
        every_s = min(self._limits.keep_alive_s, self._limits.stalled_write_s)
        self._timer = self._loop.call_later(every_s, self._tick)

    def _tick(self) -> None:
        since = self._writing_since
        if since is not None:
            stalled_s = self._loop.time() - since
            if stalled_s >= self._limits.stalled_write_s and self._raw.transport is not None:
                # The client takes nothing. It can come back, and gets what it has missed.
                _log.info("a client took nothing for %.1f s: its stream is cut off", stalled_s)
                self._raw.transport.abort()
                return
        elif self._is_idle and self._keep_alive:
            self._beat = asyncio.ensure_future(self._write_keep_alive())
        self._is_idle = True
        self._schedule()

    async def _write_keep_alive(self) -> None:
        with suppress(ConnectionError):
            await self._response.write(self._keep_alive)


async def _read_body(
    raw: web.BaseRequest, bytes_max: int, count: CountBytes, receive_s: float
) -> bytes:
    if (raw.content_length or 0) > bytes_max:
        raise _body_too_long(bytes_max)
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(receive_s):
            async for piece in raw.content.iter_any():
                size += len(piece)
                if size > bytes_max:
                    raise _body_too_long(bytes_max)
                count(len(piece))
                pieces.append(piece)
    except ConnectionError:
        raise body_cut() from None
    except TimeoutError:
        raise ApiError(
            408,
            "body_too_slow",
            f"The body did not arrive within {receive_s:g} s.",
            "Send it faster.",
            headers={"Connection": "close"},
        ) from None
    return b"".join(pieces)


def _body_too_long(bytes_max: int) -> ApiError:
    return ApiError(
        413,
        "body_too_long",
        f"The body is longer than {bytes_max} bytes.",
        "Send less, or raise the limit of the service.",
        headers={"Connection": "close"},
    )


def _too_many_connections() -> ApiError:
    return ApiError(
        503,
        "too_many_connections",
        "The service has as many connections as it takes.",
        "Try again later, or at another replica.",
        retry_after=2.0,
        headers={"Connection": "close"},
    )


def _to_response(reply: HttpReply) -> web.Response:
    body = reply.encode_body()
    response = web.Response(status=reply.status, body=body, headers=dict(reply.headers))
    if body:
        response.headers["Content-Type"] = reply.content_type
    else:
        response.headers.pop("Content-Type", None)
    if reply.headers.get("Connection") == "close":
        response.force_close()
    return response


@asynccontextmanager
async def listen(
    dispatcher: AnswersRequests,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    tls: ssl.SSLContext | None = None,
) -> AsyncGenerator[str]:
    """Listen for as long as the block lasts, and yield the address.

    Leaving the block ends all streams, and waits for the requests that are under way.
    """
    scheme = "http" if tls is None else "https"
    carrier = HttpServer(dispatcher, scheme=scheme)
    runner = web.ServerRunner(carrier.server, handle_signals=False, shutdown_timeout=STOP_S)
    await runner.setup()
    site = web.TCPSite(runner, host, port, ssl_context=tls, backlog=1024)
    await site.start()
    try:
        yield _address_of(runner, scheme, host)
    finally:
        await site.stop()
        await carrier.close_streams()
        await runner.cleanup()


def _address_of(runner: web.ServerRunner, scheme: str, host: str) -> str:
    port = runner.addresses[0][1]
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{port}"
