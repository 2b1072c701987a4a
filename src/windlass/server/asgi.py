"""The service as an ASGI app, to be mounted in another app or run by another server.

    app = create_asgi_app(Service([agent], journal="sessions.db"))

Invariant, as for the other server: a lost client closes its stream and cancels no handler. The
service begins and ends with the lifespan of the app. Starlette and FastAPI do not pass theirs on to
what they mount, so a host enters the service in its own (docs/service.md has a recipe for each). If
it does not, the service begins with its first request, and warns: until then, it resumes no runs of
a process that died.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from windlass.logs import get_logger
from windlass.server.dispatch import Dispatcher
from windlass.server.errors import ApiError, body_cut
from windlass.server.guard import AccessRules, Authenticator
from windlass.server.messages import (
    CountBytes,
    HttpReply,
    HttpRequest,
    Reply,
    StreamReply,
    close_unread,
)
from windlass.server.service import Service

_log = get_logger(__name__)
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]


def create_asgi_app(
    service: Service,
    *,
    rules: AccessRules | None = None,
    authenticators: Sequence[Authenticator] = (),
) -> AsgiApp:
    """Return an ASGI app that answers as `windlass serve` does.

    `rules`: under which names it answers; by default those of loopback, so that an app which is
    reached under another name has to say so.
    """
    dispatcher = Dispatcher(service, rules=rules, authenticators=authenticators)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(service, receive, send)
        elif scope["type"] == "http":
            await _answer(dispatcher, scope, receive, send)
        else:
            raise RuntimeError(f"the service does not speak {scope['type']}")

    return app


async def _live(service: Service, receive: Receive, send: Send) -> None:
    """Begin and end the service with the app."""
    await receive()
    try:
        service.begin()
    except Exception as error:
        await send({"type": "lifespan.startup.failed", "message": str(error)})
        raise
    async with service:
        await send({"type": "lifespan.startup.complete"})
        await receive()
    await send({"type": "lifespan.shutdown.complete"})


async def _answer(dispatcher: Dispatcher, scope: Scope, receive: Receive, send: Send) -> None:
    if not dispatcher.service.has_begun:
        _log.warning(
            "the service begins with its first request, and open runs had to wait for it: enter it "
            "in the lifespan of the app that it is mounted in, with `async with service`"
        )
        dispatcher.service.begin()
    body = _RequestBody(receive, dispatcher.service.limits.receive_s)
    request = _read_request(scope, body)
    # What a request began is finished, even when the server cancels this for a client that left.
    answering = asyncio.create_task(dispatcher.handle(request))
    watching = asyncio.create_task(body.wait_disconnect(request))
    try:
        try:
            reply = await asyncio.shield(answering)
        except asyncio.CancelledError:
            answering.add_done_callback(close_unread)
            raise
        request.skip_body()
        await _send_reply(dispatcher, request, reply, send)
    finally:
        request.mark_disconnected()
        watching.cancel()


def _read_request(scope: Scope, body: "_RequestBody") -> HttpRequest:
    headers = {
        name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
    }
    raw_path = scope.get("raw_path") or quote(scope["path"], safe="/%").encode()
    # An app that is mounted sees the whole path, and where it is mounted.
    mount = quote(scope.get("root_path", ""), safe="/%").rstrip("/")
    path = raw_path.decode("latin-1").removeprefix(mount)
    query: dict[str, list[str]] = {}
    text = scope.get("query_string", b"").decode("latin-1")
    for name, value in parse_qsl(text, keep_blank_values=True):
        query.setdefault(name, []).append(value)
    client = scope.get("client")
    request = HttpRequest(
        scope["method"],
        path,
        query=query,
        headers=headers,
        read_body=body.read,
        remote=client[0] if client else "",
        scheme=scope.get("scheme", "http"),
        target_host=urlsplit(path).netloc,
    )
    request.prefix = mount
    return request


class _RequestBody:
    """The body of a request, and the news that its client has gone: both come by one function."""

    def __init__(self, receive: Receive, receive_s: float) -> None:
        self._receive = receive
        self._receive_s = receive_s
        self._lock = asyncio.Lock()
        self._is_whole = False
        self._is_gone = False

    async def read(self, bytes_max: int, count: CountBytes) -> bytes:
        pieces: list[bytes] = []
        size = 0
        async with self._lock:
            while not self._is_whole and not self._is_gone:
                message = await self._next_message()
                pieces.append(message.get("body", b""))
                size += len(pieces[-1])
                if size > bytes_max:
                    raise ApiError(
                        413,
                        "body_too_long",
                        f"The body is longer than {bytes_max} bytes.",
                        "Send less, or raise the limit of the service.",
                    )
                count(len(pieces[-1]))
        if self._is_gone and not self._is_whole:
            raise body_cut()
        return b"".join(pieces)

    async def _next_message(self) -> MutableMapping[str, Any]:
        try:
            async with asyncio.timeout(self._receive_s):
                message = await self._receive()
        except TimeoutError:
            raise ApiError(
                408, "body_too_slow", "The body did not arrive in time.", "Send it faster."
            ) from None
        self._is_gone = message["type"] == "http.disconnect"
        self._is_whole = not self._is_gone and not message.get("more_body", False)
        return message

    async def wait_disconnect(self, request: HttpRequest) -> None:
        """Tell a request when its client has gone. Begins when the body was read."""
        await request.wait_body()
        while not self._is_gone:
            message = await self._receive()
            self._is_gone = message["type"] == "http.disconnect"
        request.mark_disconnected()


async def _send_reply(
    dispatcher: Dispatcher, request: HttpRequest, reply: Reply, send: Send
) -> None:
    headers = [
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in reply.headers.items()
    ]
    headers.append((b"content-type", reply.content_type.encode("latin-1")))
    if isinstance(reply, HttpReply):
        body = reply.encode_body()
        headers.append((b"content-length", str(len(body)).encode()))
        try:
            await send({"type": "http.response.start", "status": reply.status, "headers": headers})
            await send({"type": "http.response.body", "body": body})
        finally:
            await reply.close()
        return
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    keep_alive_s = dispatcher.service.limits.keep_alive_s
    await _send_stream(request, reply, send, keep_alive_s)


async def _send_stream(
    request: HttpRequest, reply: StreamReply, send: Send, keep_alive_s: float
) -> None:
    writing = asyncio.Lock()

    async def write(data: bytes, *, more: bool = True) -> None:
        async with writing:
            await send({"type": "http.response.body", "body": data, "more_body": more})

    async def pump() -> None:
        async for chunk in reply.chunks:
            await write(chunk)
        await write(b"", more=False)

    async def keep_alive() -> None:
        while reply.keep_alive:
            await asyncio.sleep(keep_alive_s)
            await write(reply.keep_alive)

    tasks = [asyncio.create_task(work) for work in (pump(), request.wait_disconnect())]
    tasks.append(asyncio.create_task(keep_alive()))
    try:
        await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(OSError):
            await reply.close()
    if isinstance(results[0], Exception) and not isinstance(results[0], OSError):
        raise results[0]
