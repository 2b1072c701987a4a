"""The HTTP client of a connection to an MCP server: its token, its bounds and its errors.

Invariant: an answer is bounded while it is read, in bytes and in values, before the SDK sees it. A
compressed one is refused. The SDK gets it in units that are never less than one message: an answer
of JSON as a whole, or at least one event of a stream.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol, final

from typing_extensions import override

from windlass.core.errors import WindlassError
from windlass.tools.mcp.config import ANSWER_BYTES_MAX, McpHttp, McpSettings
from windlass.tools.mcp.message_bounds import FEW_VALUES, bound_message, count_separators
from windlass.tools.mcp.oauth.grants import ShowPage
from windlass.tools.mcp.oauth.keeper import TokenKeeper
from windlass.tools.mcp.oauth.requests import read_challenge
from windlass.tools.mcp.oauth.tokens import McpTokenStore

if TYPE_CHECKING:
    import httpx2
    from mcp.client._transport import Transport

EVENT_LINES_MAX = 10_000
"""Lines of one event. The SDK handles each line for itself."""
_LINE_END = re.compile(rb"\r\n|\n|\r")
_EVENT_END = re.compile(rb"(?>\r\n|\n|\r){2,}")
_EVENT_END_BYTES = 3
"""How much of the end of an event can be there before the rest of it comes."""
HTTP_TIMEOUT_S = 30.0
"""For a server to accept a connection or a request."""
TOKENS_MAX = 4
"""How many tokens are tried for one request: the known one, a renewed one, one with more rights."""
_REFUSALS = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class BodyRefused(Exception):
    """A body is too large; the message says in which way."""


class PendingBody(Protocol):
    """What has come of a body and is not complete yet."""

    @property
    def size(self) -> int: ...

    def add(self, piece: bytes) -> Sequence[bytes]:
        """Add a piece, and return the units that are complete now."""
        ...

    def take_rest(self) -> bytes:
        """Return the last unit, at the end of the body."""
        ...

    async def bound(self, unit: bytes) -> bytes:
        """Return a unit as the SDK may see it. Raises BodyRefused."""
        ...


async def iterate_bounded(
    body: AsyncIterable[bytes], pending: PendingBody, bytes_max: int
) -> AsyncIterator[bytes]:
    """Yield the units of a body as the SDK may see them.

    Raises BodyRefused if a unit is longer than `bytes_max`, or has too many lines.
    """
    async for piece in body:
        for unit in pending.add(piece):
            yield await pending.bound(unit)
            await asyncio.sleep(0)  # There may be thousands of them in a piece.
        if pending.size > bytes_max:
            limit = f"{bytes_max / 2**20:.0f} MiB"
            raise BodyRefused(f"the answer is longer than {limit}; ask for less")
    yield await pending.bound(pending.take_rest())


@final
class PendingAnswer:
    """An answer of JSON. Nothing of it is complete before its end."""

    def __init__(self) -> None:
        self._data = bytearray()

    @property
    def size(self) -> int:
        return len(self._data)

    def add(self, piece: bytes) -> Sequence[bytes]:
        self._data += piece
        return ()

    def take_rest(self) -> bytes:
        return bytes(self._data)

    async def bound(self, unit: bytes) -> bytes:
        return await bound_message(unit)


@final
class PendingEvents:
    """Events of a stream. Small events that come together are one unit."""

    def __init__(self) -> None:
        self._data = bytearray()

    @property
    def size(self) -> int:
        return len(self._data)

    def add(self, piece: bytes) -> Sequence[bytes]:
        search_from = max(len(self._data) - _EVENT_END_BYTES, 0)
        self._data += piece
        ends = [found.end() for found in _EVENT_END.finditer(self._data, search_from)]
        if not ends:
            return ()
        complete = bytes(self._data[: ends[-1]])
        del self._data[: ends[-1]]
        if _count_lines(complete) <= EVENT_LINES_MAX and _has_few_values(complete):
            return (complete,)
        return [complete[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    def take_rest(self) -> bytes:
        return bytes(self._data)

    async def bound(self, unit: bytes) -> bytes:
        if _count_lines(unit) > EVENT_LINES_MAX:
            raise BodyRefused(f"an event has more than {EVENT_LINES_MAX} lines")
        if _has_few_values(unit):
            return unit
        lines = _LINE_END.split(unit)
        message = b"\n".join(
            line.partition(b":")[2].removeprefix(b" ") for line in lines if _is_data(line)
        )
        taken = await bound_message(message)
        if taken == message:
            return unit
        others = [line for line in lines if line and not _is_data(line)]
        return b"\n".join([*others, b"data: " + taken, b"", b""]) if taken else b""


def _count_lines(data: bytes) -> int:
    return data.count(b"\n") + data.count(b"\r")


def _has_few_values(data: bytes) -> bool:
    # Quotes tell nothing here: a comment may have one that does not end.
    return count_separators(data) <= FEW_VALUES


def _is_data(line: bytes) -> bool:
    return line.partition(b":")[0] == b"data"


class HttpErrors:
    """The HTTP errors of one request, which the SDK does not pass on."""

    def __init__(self) -> None:
        self.statuses: deque[int] = deque(maxlen=4)
        self.problem: WindlassError | None = None
        """Why there is no token that the server takes."""

    @property
    def refusal(self) -> WindlassError | None:
        """The problem, if the server refused the last request because a token was missing."""
        is_refused = self.statuses and self.statuses[-1] in _REFUSALS
        return self.problem if is_refused else None

    def note_refusal(self, problem: WindlassError) -> None:
        """Remember that there is no token, before any request was sent."""
        self.statuses.append(HTTPStatus.UNAUTHORIZED)
        self.problem = problem

    def describe(self, cause: str) -> str:
        """Return a cause with what HTTP adds to it."""
        if self.refusal is not None:
            return str(self.refusal)
        return f"{cause} (HTTP {self.statuses[-1]})" if self.statuses else cause


_errors: ContextVar[HttpErrors | None] = ContextVar("_errors", default=None)


def record_errors() -> HttpErrors:
    """Start to record the HTTP errors of this context, and return the record."""
    errors = HttpErrors()
    _errors.set(errors)
    return errors


def _note_problem(error: WindlassError) -> None:
    errors = _errors.get()
    if errors is not None:
        errors.problem = error


def build_keeper(
    settings: McpSettings, tokens: McpTokenStore | None, show_page: ShowPage | None
) -> TokenKeeper | None:
    """Return what keeps the token for a server; None if it never gets one of ours."""
    if not isinstance(settings, McpHttp):
        return None
    if any(name.lower() == "authorization" for name in settings.headers):
        return None  # The settings have a token of their own.
    return TokenKeeper(
        settings.name, settings.url, settings.auth, tokens=tokens, show_page=show_page
    )


async def http_transport(
    settings: McpHttp, stack: AsyncExitStack, keeper: TokenKeeper | None
) -> "Transport":
    """Return the transport of a server at an address, the older one if the settings say so."""
    from mcp.client.sse import sse_client  # noqa: PLC0415 - of the extra
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 - of the extra

    def make_client(*_: object, **__: object) -> "httpx2.AsyncClient":
        return _build_http_client(settings, keeper)

    if settings.sse:
        # All answers come in one stream of events.
        return sse_client(settings.url, httpx_client_factory=make_client)
    client = await stack.enter_async_context(make_client())
    return streamable_http_client(
        settings.url, http_client=client, max_sse_event_size=ANSWER_BYTES_MAX
    )


def _build_auth(keeper: TokenKeeper) -> "httpx2.Auth":
    """Return what adds the token to a request, and gets another one if it is refused."""
    import httpx2  # noqa: PLC0415 - of the extra

    class TokenAuth(httpx2.Auth):
        @override
        async def async_auth_flow(
            self, request: httpx2.Request
        ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
            if not keeper.covers(str(request.url)):
                yield request
                return
            try:
                token = await keeper.find_token()
            except WindlassError as error:
                # The server may accept the request without a token.
                _note_problem(error)
                yield request
                return
            for _ in range(TOKENS_MAX):
                if token is not None:
                    request.headers["Authorization"] = f"Bearer {token}"
                response = yield request
                challenge = read_challenge(response.status_code, response.headers)
                if challenge is None:
                    keeper.note_accepted(token)
                    return
                try:
                    token = await keeper.replace_token(token, challenge)
                except WindlassError as error:
                    _note_problem(error)
                    return

    return TokenAuth()


def _build_http_client(settings: McpHttp, keeper: TokenKeeper | None) -> "httpx2.AsyncClient":
    import httpx2  # noqa: PLC0415 - of the extra

    async def record_status(response: httpx2.Response) -> None:
        errors = _errors.get()
        if errors is not None and response.status_code >= HTTPStatus.BAD_REQUEST:
            errors.statuses.append(response.status_code)

    # No read timeout: an answer may take as long as its call, which has its own limit.
    return httpx2.AsyncClient(
        headers={"Accept-Encoding": "identity", **settings.headers},
        timeout=httpx2.Timeout(HTTP_TIMEOUT_S, read=None),
        auth=None if keeper is None else _build_auth(keeper),
        event_hooks={"response": [record_status, _bound_body]},
    )


async def _bound_body(response: "httpx2.Response") -> None:
    """Read no more of an answer than ANSWER_BYTES_MAX, and nothing that is compressed.

    A few compressed bytes could be gigabytes. A stream of events may continue for ever: each event
    is bounded. The SDK gets an answer or an event when it is complete, and within its bounds.
    """
    import httpx2  # noqa: PLC0415 - of the extra

    class BoundedBody(httpx2.AsyncByteStream):
        @override
        async def __aiter__(self) -> AsyncIterator[bytes]:
            if encoding:
                raise httpx2.StreamError(f"the answer is compressed ({encoding})")
            pending: PendingBody = PendingEvents() if is_stream else PendingAnswer()
            try:
                async for unit in iterate_bounded(body, pending, ANSWER_BYTES_MAX):
                    yield unit
            except BodyRefused as error:
                kind = httpx2.SSEError if is_stream else httpx2.StreamError
                raise kind(str(error)) from None

        @override
        async def aclose(self) -> None:
            await body.aclose()

    # In any case of letters, as the SDK reads it.
    media_type = response.headers.get("content-type", "").lower()
    is_stream = media_type.startswith("text/event-stream")
    encoding = response.headers.get("content-encoding", "").replace("identity", "")
    if is_stream:
        # Events are UTF-8 by their definition. In another encoding they could not be counted.
        response.encoding = "utf-8"
    stream = response.stream
    if isinstance(stream, httpx2.AsyncByteStream):
        body = stream
        response.stream = BoundedBody()
