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
from windlass.logs import logger
from windlass.tools.mcp.config import McpHttp, McpSettings, McpStdio
from windlass.tools.mcp.stdio import stdio_transport
from windlass.tools.results import error_text
from windlass.tools.unavailable import ToolUnavailable

if TYPE_CHECKING:
    import httpx2
    from mcp import Client, MCPError

CONNECT_S_MAX = 30.0
BACKOFF_S = 0.5
"""The wait after the first connection that could not be made; it doubles from there."""
BACKOFF_S_MAX = 30.0
CLOSE_S = 8.0
"""For a server to end: a process is killed well before that."""
CAUSE_S = 1.5
"""For the cause of a broken connection to be known."""
HTTP_S = 30.0
"""For a server to take a connection or a request."""

_REFUSED = ("Session terminated",)
"""What an older server says to a request that it did not look at: it wants a new session."""
_STAND_IN = "Server returned an error response"
"""What the SDK says in place of an HTTP error."""
_PASSING = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)

T = TypeVar("T")
_log = logger(__name__)
_statuses: ContextVar[deque[int] | None] = ContextVar("_statuses", default=None)
"""The HTTP errors that the requests of this context met: the SDK does not pass them on."""


class McpLost(ToolUnavailable):
    """The server went away while it was at work on a request."""


@final
class Connection:
    """One connection, and the task that keeps it."""

    def __init__(self, settings: McpSettings) -> None:
        self.client: Client | None = None
        self.why = ""
        """Why it ended, or was never made."""
        self.settled = asyncio.Event()
        """It is made, or will not be."""
        self.over = False
        self._settings = settings
        self._leave = asyncio.Event()
        self.keeper = asyncio.create_task(self._keep(), name=f"MCP server {settings.name}")

    def leave(self, why: str = "") -> None:
        """Begin to end it."""
        self.why = self.why or why
        self.over = True
        self._leave.set()

    async def close(self) -> None:
        self.leave("it was closed")
        if not self.settled.is_set():
            self.keeper.cancel()
        await asyncio.wait({self.keeper}, timeout=CLOSE_S)
        if not self.keeper.done():
            self.keeper.cancel()
            await asyncio.wait({self.keeper}, timeout=CLOSE_S)

    async def _keep(self) -> None:
        limit_s = min(CONNECT_S_MAX, self._settings.timeout_s or CONNECT_S_MAX)
        seen = _watched_statuses()
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(limit_s):
                    client = await _open(self._settings, stack, self.leave)
                self.client = client
                self.settled.set()
                await self._leave.wait()
        except TimeoutError:
            self.leave(f"it did not answer within {limit_s:g} s")
        except Exception as error:  # noqa: BLE001 - whatever it is, the server is not there
            _log.debug("the connection to MCP server %s", self._settings.name, exc_info=True)
            self.leave(f"{_cause(error)}{_http_error(seen)}")
        finally:
            self.leave("it was cancelled")
            self.settled.set()


@final
class Link:
    """A server that is asked, whether or not a connection to it stands."""

    def __init__(self, settings: McpSettings) -> None:
        self._settings = settings
        self._connection: Connection | None = None
        self._leaving: set[Connection] = set()
        self._home: asyncio.AbstractEventLoop | None = None
        self._failures = 0
        self._not_before = 0.0
        self._closed = False

    @property
    def connected(self) -> bool:
        return self._connection is not None and not self._connection.over

    async def ask(self, request: "Callable[[Client], Awaitable[T]]") -> T:
        """Make a request; raises ToolUnavailable if the server is not there, or went away."""
        await _require_sdk()
        from mcp import MCPError  # noqa: PLC0415 - of the extra

        seen, sessions = _watched_statuses(), 0
        while True:
            connection, client = await self._connected()
            sessions += 1
            try:
                return await request(client)
            except MCPError as error:
                if error.message not in _REFUSED or sessions > 1:
                    raise await self._told(error, connection, seen) from error
                connection.leave("its session was over")

    async def close(self) -> None:
        self._closed = True
        current = [] if self._connection is None else [self._connection]
        await asyncio.gather(*(one.close() for one in {*self._leaving, *current}))

    async def _connected(self) -> "tuple[Connection, Client]":
        loop = asyncio.get_running_loop()
        self._home = self._home or loop
        if self._home is not loop:
            raise ConfigError(
                "the tools of an MCP server run in the event loop in which it was opened: "
                "use `await agent.run(...)` there"
            )
        if self._closed:
            raise ToolUnavailable(f"MCP server {self._settings.name!r} is closed")
        connection = self._connection
        if connection is None or connection.over:
            connection = self._connect(connection, loop.time())
        await connection.settled.wait()
        if connection.client is None:
            raise ToolUnavailable(
                f"MCP server {self._settings.name!r} cannot be reached: {connection.why}"
            )
        return connection, connection.client

    def _connect(self, last: Connection | None, now: float) -> Connection:
        if last is not None and now < self._not_before:
            raise ToolUnavailable(
                f"MCP server {self._settings.name!r} cannot be reached: {last.why}; "
                f"it is tried again in {self._not_before - now:.1f} s"
            )
        connection = self._connection = Connection(self._settings)
        self._leaving.add(connection)
        connection.keeper.add_done_callback(lambda _: self._ended(connection))
        return connection

    def _ended(self, connection: Connection) -> None:
        self._leaving.discard(connection)
        if connection.client is not None:
            self._failures = 0
            return
        self._failures += 1
        wait_s = min(BACKOFF_S * 2 ** (self._failures - 1), BACKOFF_S_MAX)
        self._not_before = connection.keeper.get_loop().time() + wait_s

    async def _told(
        self, error: "MCPError", connection: Connection, statuses: deque[int]
    ) -> Exception:
        """What an error of the protocol means: a server that is not there, or an answer."""
        from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT  # noqa: PLC0415 - of the extra

        name = self._settings.name
        if error.code == CONNECTION_CLOSED and (
            connection.over or isinstance(self._settings, McpHttp)
        ):
            connection.leave()
            await asyncio.wait({connection.keeper}, timeout=CAUSE_S)
            return McpLost(f"MCP server {name!r} went away: {connection.why or error.message}")
        if error.code == REQUEST_TIMEOUT:
            return ToolUnavailable(f"MCP server {name!r} does not answer: {error.message}")
        told = f"MCP server {name!r}: {error.message}{_http_error(statuses)}"
        if statuses and (statuses[-1] in _PASSING or statuses[-1] >= HTTPStatus(500)):
            return ToolUnavailable(told)
        return ConfigError(told) if error.message == _STAND_IN else error


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


async def _open(
    settings: McpSettings, stack: AsyncExitStack, ended: Callable[[str], None]
) -> "Client":
    """Connect, in whichever of the two protocols the server speaks."""
    from mcp import Client  # noqa: PLC0415 - of the extra
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 - of the extra

    match settings:
        case McpStdio():
            transport = stdio_transport(settings, ended)
        case McpHttp():
            http = await stack.enter_async_context(_http_client(settings))
            transport = streamable_http_client(settings.url, http_client=http)
    client = Client(transport, mode="auto", cache=None)
    return await stack.enter_async_context(client)


def _http_client(settings: McpHttp) -> "httpx2.AsyncClient":
    import httpx2  # noqa: PLC0415 - of the extra

    async def note(response: httpx2.Response) -> None:
        seen = _statuses.get()
        if seen is not None and response.status_code >= HTTPStatus.BAD_REQUEST:
            seen.append(response.status_code)

    # An answer may take as long as its call may: whoever waits for it has a limit of its own.
    return httpx2.AsyncClient(
        headers=dict(settings.headers),
        timeout=httpx2.Timeout(HTTP_S, read=None),
        event_hooks={"response": [note]},
    )


def _cause(error: BaseException) -> str:
    """The first of the errors that a broken connection is made of."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[Any]", error).exceptions[0]
    return str(error) if isinstance(error, ConfigError) else error_text(error)


def _watched_statuses() -> deque[int]:
    """The HTTP errors of this context from here on, the last few."""
    seen: deque[int] = deque(maxlen=4)
    _statuses.set(seen)
    return seen


def _http_error(statuses: deque[int]) -> str:
    return f" (HTTP {statuses[-1]})" if statuses else ""
