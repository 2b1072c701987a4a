"""The HTTP client of a connection to an MCP server: its token, its bounds and its errors.

The law: an answer is bounded while it is read, and a compressed one is refused.
"""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from contextvars import ContextVar
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from windlass.tools.mcp.config import ANSWER_BYTES_MAX, McpHttp

if TYPE_CHECKING:
    import httpx2
    from mcp.client._transport import Transport

HTTP_TIMEOUT_S = 30.0
"""For a server to accept a connection or a request."""

_statuses: ContextVar[deque[int] | None] = ContextVar("_statuses", default=None)
"""The HTTP errors that requests of this context got. The SDK does not pass them on."""


async def http_transport(settings: McpHttp, stack: AsyncExitStack) -> "Transport":
    """Return the transport of a server at an address, the older one if the settings say so."""
    from mcp.client.sse import sse_client  # noqa: PLC0415 - of the extra
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 - of the extra

    def make_client(*_: object, **__: object) -> "httpx2.AsyncClient":
        return _build_http_client(settings)

    if settings.sse:
        # All answers come in one stream of events.
        return sse_client(settings.url, httpx_client_factory=make_client)
    client = await stack.enter_async_context(make_client())
    return streamable_http_client(
        settings.url, http_client=client, max_sse_event_size=ANSWER_BYTES_MAX
    )


def _build_auth(settings: McpHttp) -> "httpx2.Auth | None":
    """Return what gets a token when the server asks for one, and renews it."""
    given = settings.auth
    if given is None:
        return None
    from mcp.client.auth.extensions.client_credentials import (  # noqa: PLC0415 - of the extra
        ClientCredentialsOAuthProvider,
    )

    return ClientCredentialsOAuthProvider(
        settings.url,
        TokenMemory(),
        given.client_id,
        given.client_secret,
        scope=given.scope,
        issuer=given.issuer,
    )


class TokenMemory:
    """Keeps the token of one connection. A program can always get another one."""

    def __init__(self) -> None:
        self._tokens: Any = None
        self._client: Any = None

    async def get_tokens(self) -> Any:  # noqa: ANN401 - types of the extra
        return self._tokens

    async def set_tokens(self, tokens: Any) -> None:  # noqa: ANN401 - as above
        self._tokens = tokens

    async def get_client_info(self) -> Any:  # noqa: ANN401 - as above
        return self._client

    async def set_client_info(self, client_info: Any) -> None:  # noqa: ANN401 - as above
        self._client = client_info


def _build_http_client(settings: McpHttp) -> "httpx2.AsyncClient":
    import httpx2  # noqa: PLC0415 - of the extra

    async def record_status(response: httpx2.Response) -> None:
        statuses = _statuses.get()
        if statuses is not None and response.status_code >= HTTPStatus.BAD_REQUEST:
            statuses.append(response.status_code)

    # No read timeout: an answer may take as long as its call, which has its own limit.
    return httpx2.AsyncClient(
        headers={"Accept-Encoding": "identity", **settings.headers},
        timeout=httpx2.Timeout(HTTP_TIMEOUT_S, read=None),
        auth=_build_auth(settings),
        event_hooks={"response": [record_status, partial(_bound_body, bounds_events=settings.sse)]},
    )


async def _bound_body(response: "httpx2.Response", *, bounds_events: bool) -> None:
    """Read no more of an answer than ANSWER_BYTES_MAX, and nothing that is compressed.

    A few compressed bytes could be gigabytes. A stream of events may go on for ever: each event is
    bounded, here or by the SDK, which does not do it for the older transport.
    """
    import httpx2  # noqa: PLC0415 - of the extra

    class BoundedBody(httpx2.AsyncByteStream):
        @override
        async def __aiter__(self) -> AsyncIterator[bytes]:
            if encoding:
                raise httpx2.StreamError(f"the answer is compressed ({encoding})")
            size = 0
            async for piece in body:
                # Of a stream, each event is bounded by itself.
                end = piece.rfind(b"\n\n") if is_stream else -1
                size = len(piece) - end if end >= 0 else size + len(piece)
                if size > ANSWER_BYTES_MAX:
                    limit = f"{ANSWER_BYTES_MAX / 2**20:.0f} MiB"
                    raise httpx2.StreamError(f"the answer is longer than {limit}; ask for less")
                yield piece

        @override
        async def aclose(self) -> None:
            await body.aclose()

    is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
    encoding = response.headers.get("content-encoding", "").replace("identity", "")
    stream = response.stream
    bounds = bool(encoding) or not is_stream or bounds_events
    if isinstance(stream, httpx2.AsyncByteStream) and bounds:
        body = stream
        response.stream = BoundedBody()


def record_statuses() -> deque[int]:
    """Start to record the last few HTTP errors of this context, and return the record."""
    statuses: deque[int] = deque(maxlen=4)
    _statuses.set(statuses)
    return statuses


def http_error_suffix(statuses: deque[int]) -> str:
    return f" (HTTP {statuses[-1]})" if statuses else ""
