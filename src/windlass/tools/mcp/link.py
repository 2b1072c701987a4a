"""The connection to an MCP server: made when it is first needed, and made again when it broke.

The law: a connection lives in one task, the keeper, from its making to its end, because the SDK's
cancel scopes must be left in the task that entered them. Requests are made from the tasks that want
the answers, so that a cancel goes straight to the server. What broke while a request was under way
is told, and never asked again here: only the caller knows whether it may be repeated.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from contextvars import ContextVar
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar, cast, final

from windlass.core.errors import ConfigError
from windlass.logs import get_logger
from windlass.tools.mcp.config import McpHttp, McpSettings, McpStdio
from windlass.tools.mcp.stdio import stdio_transport
from windlass.tools.results import error_text
from windlass.tools.unavailable import ToolUnavailable

if TYPE_CHECKING:
    import httpx2
    from mcp import Client, MCPError

CONNECT_S_MAX = 30.0
RECONNECT_BACKOFF_S = 0.5
"""The wait after the first connection that could not be made; it doubles from there."""
RECONNECT_BACKOFF_S_MAX = 30.0
CLOSE_S_MAX = 8.0
"""For a server to end: a process is killed well before that."""
CAUSE_S_MAX = 1.5
"""For the cause of a broken connection to be known."""
HTTP_TIMEOUT_S = 30.0
"""For a server to take a connection or a request."""

_SESSION_ENDED_MESSAGES = ("Session terminated",)
"""What an older server says to a request that it did not look at: it wants a new session."""
_SDK_HTTP_ERROR_MESSAGE = "Server returned an error response"
"""What the SDK says in place of an HTTP error."""
_TEMPORARY_STATUSES = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)

T = TypeVar("T")
_log = get_logger(__name__)
_statuses: ContextVar[deque[int] | None] = ContextVar("_statuses", default=None)
"""The HTTP errors that the requests of this context met: the SDK does not pass them on."""


class McpServerLost(ToolUnavailable):
    """The server went away while it was at work on a request."""


@final
class McpConnection:
    """One connection, and the task that keeps it."""

    def __init__(self, settings: McpSettings) -> None:
        self.client: Client | None = None
        self.end_reason = ""
        """Why it ended, or was never made."""
        self.settled = asyncio.Event()
        """It is made, or will not be."""
        self.is_over = False
        self._settings = settings
        self._close_requested = asyncio.Event()
        self.keeper_task = asyncio.create_task(
            self._keep_open(), name=f"MCP server {settings.name}"
        )

    def begin_close(self, reason: str = "") -> None:
        """Begin to end it."""
        self.end_reason = self.end_reason or reason
        self.is_over = True
        self._close_requested.set()

    async def close(self) -> None:
        self.begin_close("it was closed")
        if not self.settled.is_set():
            self.keeper_task.cancel()
        await asyncio.wait({self.keeper_task}, timeout=CLOSE_S_MAX)
        if not self.keeper_task.done():
            self.keeper_task.cancel()
            await asyncio.wait({self.keeper_task}, timeout=CLOSE_S_MAX)

    async def _keep_open(self) -> None:
        limit_s = min(CONNECT_S_MAX, self._settings.timeout_s or CONNECT_S_MAX)
        seen = _record_statuses()
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(limit_s):
                    client = await _open_client(self._settings, stack, self.begin_close)
                self.client = client
                self.settled.set()
                await self._close_requested.wait()
        except TimeoutError:
            self.begin_close(f"it did not answer within {limit_s:g} s")
        except Exception as error:  # noqa: BLE001 - whatever it is, the server is not there
            _log.debug("the connection to MCP server %s", self._settings.name, exc_info=True)
            self.begin_close(f"{_describe_cause(error)}{_http_error_suffix(seen)}")
        finally:
            self.begin_close("it was cancelled")
            self.settled.set()


@final
class McpLink:
    """A server that is asked, whether or not a connection to it stands."""

    def __init__(self, settings: McpSettings) -> None:
        self._settings = settings
        self._connection: McpConnection | None = None
        self._open_connections: set[McpConnection] = set()
        self._home_loop: asyncio.AbstractEventLoop | None = None
        self._failures = 0
        self._not_before = 0.0
        self._closed = False

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and not self._connection.is_over

    async def send_request(self, request: "Callable[[Client], Awaitable[T]]") -> T:
        """Make a request; raises ToolUnavailable if the server is not there, or went away."""
        await _require_sdk()
        from mcp import MCPError  # noqa: PLC0415 - of the extra

        seen, sessions = _record_statuses(), 0
        while True:
            connection, client = await self._get_connection()
            sessions += 1
            try:
                return await request(client)
            except MCPError as error:
                if error.message not in _SESSION_ENDED_MESSAGES or sessions > 1:
                    raise await self._translate_error(error, connection, seen) from error
                connection.begin_close("its session was over")

    async def close(self) -> None:
        self._closed = True
        current = [] if self._connection is None else [self._connection]
        await asyncio.gather(*(one.close() for one in {*self._open_connections, *current}))

    async def _get_connection(self) -> "tuple[McpConnection, Client]":
        loop = asyncio.get_running_loop()
        self._home_loop = self._home_loop or loop
        if self._home_loop is not loop:
            raise ConfigError(
                "the tools of an MCP server run in the event loop in which it was opened: "
                "use `await agent.run(...)` there"
            )
        if self._closed:
            raise ToolUnavailable(f"MCP server {self._settings.name!r} is closed")
        connection = self._connection
        if connection is None or connection.is_over:
            connection = self._start_connection(connection, loop.time())
        await connection.settled.wait()
        if connection.client is None:
            raise ToolUnavailable(
                f"MCP server {self._settings.name!r} cannot be reached: {connection.end_reason}"
            )
        return connection, connection.client

    def _start_connection(self, last: McpConnection | None, now: float) -> McpConnection:
        if last is not None and now < self._not_before:
            raise ToolUnavailable(
                f"MCP server {self._settings.name!r} cannot be reached: {last.end_reason}; "
                f"it is tried again in {self._not_before - now:.1f} s"
            )
        connection = self._connection = McpConnection(self._settings)
        self._open_connections.add(connection)
        connection.keeper_task.add_done_callback(lambda _: self._on_connection_end(connection))
        return connection

    def _on_connection_end(self, connection: McpConnection) -> None:
        self._open_connections.discard(connection)
        if connection.client is not None:
            self._failures = 0
            return
        self._failures += 1
        wait_s = min(RECONNECT_BACKOFF_S * 2 ** (self._failures - 1), RECONNECT_BACKOFF_S_MAX)
        self._not_before = connection.keeper_task.get_loop().time() + wait_s

    async def _translate_error(
        self, error: "MCPError", connection: McpConnection, statuses: deque[int]
    ) -> Exception:
        """What an error of the protocol means: a server that is not there, or an answer."""
        from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT  # noqa: PLC0415 - of the extra

        name = self._settings.name
        if error.code == CONNECTION_CLOSED and (
            connection.is_over or isinstance(self._settings, McpHttp)
        ):
            connection.begin_close()
            await asyncio.wait({connection.keeper_task}, timeout=CAUSE_S_MAX)
            return McpServerLost(
                f"MCP server {name!r} went away: {connection.end_reason or error.message}"
            )
        if error.code == REQUEST_TIMEOUT:
            return ToolUnavailable(f"MCP server {name!r} does not answer: {error.message}")
        told = f"MCP server {name!r}: {error.message}{_http_error_suffix(statuses)}"
        if statuses and (statuses[-1] in _TEMPORARY_STATUSES or statuses[-1] >= HTTPStatus(500)):
            return ToolUnavailable(told)
        return ConfigError(told) if error.message == _SDK_HTTP_ERROR_MESSAGE else error


async def _require_sdk() -> None:
    if "mcp" not in sys.modules:
        # It takes a second: the loop goes on meanwhile.
        await asyncio.to_thread(_import_sdk)
    _import_sdk()


def _import_sdk() -> None:
    try:
        from mcp import Client  # noqa: F401, PLC0415 # pyright: ignore[reportUnusedImport]
    except ImportError:
        raise ConfigError(
            "MCP servers need a package that is not installed: pip install 'windlass[mcp]'"
        ) from None


async def _open_client(
    settings: McpSettings, stack: AsyncExitStack, on_end: Callable[[str], None]
) -> "Client":
    """Connect, in whichever of the two protocols the server speaks."""
    from mcp import Client  # noqa: PLC0415 - of the extra
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 - of the extra

    match settings:
        case McpStdio():
            transport = stdio_transport(settings, on_end)
        case McpHttp():
            http = await stack.enter_async_context(_build_http_client(settings))
            transport = streamable_http_client(settings.url, http_client=http)
    client = Client(transport, mode="auto", cache=None)
    return await stack.enter_async_context(client)


def _build_http_client(settings: McpHttp) -> "httpx2.AsyncClient":
    import httpx2  # noqa: PLC0415 - of the extra

    async def record_status(response: httpx2.Response) -> None:
        seen = _statuses.get()
        if seen is not None and response.status_code >= HTTPStatus.BAD_REQUEST:
            seen.append(response.status_code)

    # An answer may take as long as its call may: whoever waits for it has a limit of its own.
    return httpx2.AsyncClient(
        headers=dict(settings.headers),
        timeout=httpx2.Timeout(HTTP_TIMEOUT_S, read=None),
        event_hooks={"response": [record_status]},
    )


def _describe_cause(error: BaseException) -> str:
    """The first of the errors that a broken connection is made of."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[Any]", error).exceptions[0]
    return str(error) if isinstance(error, ConfigError) else error_text(error)


def _record_statuses() -> deque[int]:
    """The HTTP errors of this context from here on, the last few."""
    seen: deque[int] = deque(maxlen=4)
    _statuses.set(seen)
    return seen


def _http_error_suffix(statuses: deque[int]) -> str:
    return f" (HTTP {statuses[-1]})" if statuses else ""
