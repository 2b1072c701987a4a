"""Requests to a service, sent again where that is safe, and its streams of events.

Invariant: every change carries an `Idempotency-Key`, so a request whose reply was lost is sent
again without a second effect. Nothing is sent again that the service refused for good.
"""

import asyncio
import random
import secrets
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec

from windlass.core.errors import ForOperator, ModelError
from windlass.core.text_clip import printable_line
from windlass.environ import read_process_environment
from windlass.http.client import send_request
from windlass.http.connection import Response
from windlass.http.errors import HttpError
from windlass.http.urls import find_proxy
from windlass.models.http.sse import SseEvent, SseParser
from windlass.server.errors import ErrorReply

T = TypeVar("T")
REPLY_BYTES_MAX = 256 * 2**20
WORDS_MAX = 4_000
"""Characters of each text of an error."""
FIRST_WAIT_S = 0.2
WAIT_MAX_S = 5.0
SILENCE_S = 60.0
"""A service sends a comment every 15 seconds: a stream that is silent for so long is lost."""
LATER = frozenset({429, 502, 503, 504})
"""Statuses of a service, or of its proxy, that will answer the same request later."""


class ServiceError(ForOperator):
    """A service refused a request, or cannot be reached."""

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(f"{message} {hint}".strip())
        self.status = status
        """The status of HTTP; 0 if the service could not be reached."""
        self.code = code
        """What is wrong, for programs, such as `session_busy`."""
        self.message = message
        self.hint = hint
        """What to do about it."""
        self.retry_after_s = 0.0
        """How long the service wants to be left alone, in seconds."""


class ServiceTransport:
    """Sends requests to one service."""

    def __init__(self, url: str, token: str, *, timeout_s: float, retry_s: float) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"}
        self._timeout_s = timeout_s
        self._retry_s = retry_s
        self._proxy = find_proxy(url, read_process_environment())

    async def ask(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        body: object = None,
        query: Mapping[str, Any] | None = None,
        key: str = "",
    ) -> T:
        """Return the reply to a request as a value of a type. Raises ServiceError.

        A request whose reply did not come is sent again for `retry_s` seconds.
        """
        headers = {**self._headers, "Accept": "application/json"}
        data = None
        if method != "GET":
            headers["Idempotency-Key"] = key or secrets.token_hex(16)
            headers["Content-Type"] = "application/json"
            data = msgspec.json.encode(body if body is not None else {})
        url = self._url + path + _encode_query(query)
        waits = _Waits(self._retry_s)
        while True:
            try:
                async with asyncio.timeout(self._timeout_s):
                    response = await self._send(method, url, headers, data)
                    reply = await response.read_up_to(REPLY_BYTES_MAX)
                status = response.status
            except (HttpError, TimeoutError) as error:
                if not await waits.wait():
                    raise _unreachable(self._url, error) from None
                continue
            if status < HTTPStatus.MULTIPLE_CHOICES:
                return _decode_reply(status, reply, kind)
            refusal = _read_error(response, reply)
            if status not in LATER or not await waits.wait(refusal.retry_after_s):
                raise refusal

    async def stream(self, path: str, last_id: int) -> AsyncGenerator[SseEvent]:
        """Yield the events of a stream until it breaks or ends.

        Yields nothing if there is nothing to wait for. Raises ServiceError, HttpError and
        TimeoutError.
        """
        headers = {**self._headers, "Accept": "text/event-stream"}
        if last_id:
            headers["Last-Event-ID"] = str(last_id)
        async with asyncio.timeout(self._timeout_s):
            response = await self._send("GET", self._url + path, headers, None)
        try:
            if response.status == HTTPStatus.NO_CONTENT:
                raise StreamOver
            if response.status >= HTTPStatus.MULTIPLE_CHOICES:
                raise _read_error(response, await response.read_up_to(REPLY_BYTES_MAX))
            parser = SseParser()
            while chunk := await _read_chunk(response):
                for event in parser.feed(chunk):
                    yield event
        except ModelError as error:
            # The parser is that of models: it bounds the length of an event.
            raise _not_the_service(response.status, str(error)) from None
        finally:
            response.close()

    async def follow(self, path: str, cursor: "StreamCursor") -> AsyncGenerator[SseEvent]:
        """Yield the events of a stream, and connect again after the last fact where it breaks.

        Ends when the service says that nothing is left to wait for. Raises ServiceError if it
        cannot be reached for `retry_s` seconds, sends nothing new in that time, or refuses.
        """
        waits = _Waits(self._retry_s)
        while True:
            wanted_s = 0.0
            before, began = cursor.seq, time.monotonic()
            try:
                async with aclosing(self.stream(path, cursor.seq)) as events:
                    async for event in events:
                        yield event
            except StreamOver:
                return
            except ServiceError as error:
                if error.status not in LATER:
                    raise
                problem: Exception = error
                wanted_s = error.retry_after_s
            except (HttpError, TimeoutError) as error:
                problem = error
            else:
                problem = HttpError("broken", "the stream ended")
            if cursor.seq > before or time.monotonic() - began > WAIT_MAX_S:
                waits = _Waits(self._retry_s)
            if not await waits.wait(wanted_s):
                raise _unreachable(self._url, problem) from None

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], data: bytes | None
    ) -> Response:
        return await send_request(method, url, headers=headers, body=data, proxy=self._proxy)


class StreamCursor(msgspec.Struct):
    """How far a watcher has come: the number of the last fact that it has."""

    seq: int = 0


class StreamOver(Exception):
    """A stream has nothing left to send."""


class _Waits:
    """How long to wait before the next try: longer each time, and not for ever."""

    def __init__(self, retry_s: float) -> None:
        self._until = time.monotonic() + retry_s
        self._next_s = FIRST_WAIT_S

    async def wait(self, wanted_s: float = 0.0) -> bool:
        """Wait, as long as a service wants if it says so. Returns False if the time is over.

        A service that wants to be left alone for longer than that is not waited for.
        """
        if time.monotonic() + wanted_s >= self._until:
            return False
        await asyncio.sleep(max(wanted_s, self._next_s * random.uniform(0.5, 1.0)))  # noqa: S311 - no secret
        self._next_s = min(WAIT_MAX_S, self._next_s * 2)
        return True


async def _read_chunk(response: Response) -> bytes:
    async with asyncio.timeout(SILENCE_S):
        return await response.read()


def _encode_query(query: Mapping[str, Any] | None) -> str:
    given = {name: value for name, value in (query or {}).items() if value not in (None, "", ())}
    return f"?{urlencode(given, doseq=True)}" if given else ""


def _decode_reply(status: int, reply: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(reply or b"null", type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _not_the_service(status, str(error)) from None


def _read_error(response: Response, reply: bytes) -> ServiceError:
    status = response.status
    try:
        error = msgspec.json.decode(reply, type=ErrorReply).error
    except (msgspec.DecodeError, RecursionError):
        refusal = _not_the_service(status)
    else:
        # Programs print it: the words of a service must not steer a terminal.
        words = (error.code, error.message, error.hint)
        refusal = ServiceError(status, *(printable_line(text, WORDS_MAX) for text in words))
    wanted = response.headers.get("retry-after", "")
    refusal.retry_after_s = float(wanted) if wanted.isascii() and wanted.isdigit() else 0.0
    return refusal


def _not_the_service(status: int, problem: str = "") -> ServiceError:
    """It comes from something between here and the service, or another one listens there."""
    text = f"The answer has the status {status}{f' and cannot be read: {problem}' * bool(problem)}."
    return ServiceError(status, "not_the_service", printable_line(text))


def read_event(data: bytes, decoder: msgspec.json.Decoder[T]) -> T | None:
    """Return an event; None for one of a newer service that this client does not know.

    Raises ServiceError if it is not JSON.
    """
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, RecursionError) as error:
        raise _not_the_service(HTTPStatus.OK, str(error)) from None


def _unreachable(url: str, error: Exception) -> ServiceError:
    text = str(error) or "it did not answer in time"
    return ServiceError(
        0, "unreachable", f"The service at {url} cannot be reached: {text}.", "Is it running?"
    )
