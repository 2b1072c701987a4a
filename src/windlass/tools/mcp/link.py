"""The connection to an MCP server: opened when it is first needed, and again after it broke.

Invariant: one task, the keeper, opens a connection and closes it, because the SDK's cancel scopes
must be left in the task that entered them. Requests are sent from the tasks that want the answers,
so a cancel goes directly to the server. A request that fails because the connection broke raises an
error, and is never repeated here: only the caller knows whether it may be repeated.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar, cast, final

from windlass.core.errors import ConfigError, WindlassError
from windlass.logs import get_logger
from windlass.tools.breaker import ToolUnavailable
from windlass.tools.mcp.config import McpHttp, McpSettings, McpStdio
from windlass.tools.mcp.http import HttpErrors, http_transport, record_errors
from windlass.tools.mcp.oauth.keeper import TokenKeeper
from windlass.tools.mcp.server_requests import ServerRequests, forget_current_call
from windlass.tools.mcp.stdio import stdio_transport
from windlass.tools.results import error_text

if TYPE_CHECKING:
    from mcp import Client, MCPError
    from mcp_types import CallToolResult

CONNECT_S_MAX = 30.0
RECONNECT_BACKOFF_S = 0.5
"""The wait after the first connection that failed. It doubles with each further failure."""
RECONNECT_BACKOFF_S_MAX = 30.0
CLOSE_S_MAX = 8.0
"""For a server to end. A server process is killed well before that."""
CAUSE_S_MAX = 1.5
"""To wait for the cause of a broken connection."""

_SESSION_ENDED_MESSAGES = ("Session terminated",)
"""The answer of an older server to a request that it did not run: it wants a new session."""
_SDK_HTTP_ERROR_MESSAGE = "Server returned an error response"
"""The text that the SDK raises instead of an HTTP error."""
_SDK_STREAM_ERROR = "SSE stream failed"
"""How the SDK begins the text about a stream that broke a rule, such as the size of an event."""
_TEMPORARY_STATUSES = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)

T = TypeVar("T")
_log = get_logger(__name__)


class McpServerLost(ToolUnavailable):
    """The connection broke while the server worked on a request."""


@final
class McpConnection:
    """One connection, and the task that keeps it open."""

    def __init__(
        self, settings: McpSettings, requests: ServerRequests, keeper: TokenKeeper | None = None
    ) -> None:
        self.client: Client | None = None
        self.errors = HttpErrors()
        self.end_reason = ""
        """Why it ended, or could not be opened."""
        self.settled = asyncio.Event()
        """Set once it is open, or has failed."""
        self.is_over = False
        self._settings = settings
        self._requests = requests
        self._keeper = keeper
        self._close_requested = asyncio.Event()
        self.keeper_task = asyncio.create_task(
            self._keep_open(), name=f"MCP server {settings.name}"
        )

    def begin_close(self, reason: str = "") -> None:
        """Begin to close it. The first reason that is given counts."""
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

    async def _open_client(self, stack: AsyncExitStack) -> "Client":
        """Connect over standard input and output, or over HTTP."""
        from mcp import Client  # noqa: PLC0415 - of the extra

        match self._settings:
            case McpStdio():
                transport = stdio_transport(self._settings, self.begin_close)
            case McpHttp():
                transport = await http_transport(self._settings, stack, self._keeper)
        options = self._requests.client_options()
        client = Client(transport, mode="auto", cache=None, **options)
        await stack.enter_async_context(client)
        # The SDK's validator has no bounds, and works on the event loop. `servers.py` checks.
        client.session.validate_tool_result = _skip_validation
        return client

    async def _prepare_token(self) -> None:
        """Let a person sign in first, for whom the time limits of a connection are too short."""
        if self._keeper is None or not isinstance(self._settings, McpHttp):
            return
        try:
            await self._keeper.prepare(self._settings.headers)
        except WindlassError as error:
            self.errors.note_refusal(error)
            raise

    async def _keep_open(self) -> None:
        limit_s = min(CONNECT_S_MAX, self._settings.timeout_s or CONNECT_S_MAX)
        self.errors = record_errors()
        # This task inherits the context of the call that happened to need the connection first.
        forget_current_call()
        try:
            async with AsyncExitStack() as stack:
                await self._prepare_token()
                async with asyncio.timeout(limit_s):
                    client = await self._open_client(stack)
                await stack.enter_async_context(_follow_changes(client, self._requests))
                self.client = client
                self.settled.set()
                await self._close_requested.wait()
        except TimeoutError:
            self.begin_close(f"it did not answer within {limit_s:g} s")
        except Exception as error:  # noqa: BLE001 - for any reason the server is unavailable
            _log.debug("the connection to MCP server %s failed", self._settings.name, exc_info=True)
            self.begin_close(self.errors.describe(_describe_cause(error)))
        finally:
            self.begin_close("it was cancelled")
            self.settled.set()


@final
class McpLink:
    """Sends requests to a server, and connects to it whenever there is no connection."""

    def __init__(
        self, settings: McpSettings, requests: ServerRequests, keeper: TokenKeeper | None = None
    ) -> None:
        self._settings = settings
        self._requests = requests
        self._keeper = keeper
        self._connection: McpConnection | None = None
        self._open_connections: set[McpConnection] = set()
        self._home_loop: asyncio.AbstractEventLoop | None = None
        self._failures = 0
        self._not_before = 0.0
        self._closed = False

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and not self._connection.is_over

    @property
    def timeout_s(self) -> float | None:
        """How long a request may take that needs a connection first."""
        limit_s = self._settings.timeout_s
        if limit_s is None or self._keeper is None:
            return limit_s
        return limit_s + self._keeper.patience_s

    async def send_request(self, request: "Callable[[Client], Awaitable[T]]") -> T:
        """Send a request and return its answer.

        Raises ToolUnavailable if the server cannot be reached or the connection broke, and
        ConfigError if the extra is not installed or the server refuses the connection.
        """
        if "mcp" not in sys.modules:
            # The import takes about a second; in a thread it does not block the event loop.
            await asyncio.to_thread(_import_sdk)
        _import_sdk()
        from mcp import MCPError  # noqa: PLC0415 - of the extra

        errors = record_errors()
        is_new_session = False
        while True:
            connection, client = await self._get_connection()
            try:
                return await request(client)
            except MCPError as error:
                if error.message not in _SESSION_ENDED_MESSAGES or is_new_session:
                    raise await self._translate_error(error, connection, errors) from error
                # The server did not run the request, so it can safely be sent again, once.
                connection.begin_close("its session had ended")
                is_new_session = True

    async def close(self) -> None:
        self._closed = True
        connections = set(self._open_connections)
        if self._connection is not None:
            connections.add(self._connection)
        await asyncio.gather(*(connection.close() for connection in connections))

    async def _get_connection(self) -> "tuple[McpConnection, Client]":
        loop = asyncio.get_running_loop()
        self._home_loop = self._home_loop or loop
        if self._home_loop is not loop:
            raise ConfigError(
                "the tools of an MCP server only work in the event loop in which the server was "
                "opened: use `await agent.run(...)` in that loop"
            )
        if self._closed:
            raise ToolUnavailable(f"MCP server {self._settings.name!r} is closed")
        connection = self._connection
        if connection is None or connection.is_over:
            connection = self._start_connection(connection, loop.time())
        await connection.settled.wait()
        if connection.client is None:
            if connection.errors.refusal is not None:
                raise ToolUnavailable(str(connection.errors.refusal))
            raise ToolUnavailable(
                f"MCP server {self._settings.name!r} cannot be reached: {connection.end_reason}"
            )
        return connection, connection.client

    def _start_connection(self, last: McpConnection | None, now: float) -> McpConnection:
        if last is not None and now < self._not_before:
            raise ToolUnavailable(
                f"MCP server {self._settings.name!r} cannot be reached: {last.end_reason}; "
                f"the next attempt is in {self._not_before - now:.1f} s"
            )
        if last is not None:
            # Changes while it was disconnected were not announced.
            self._requests.note_change()
        connection = McpConnection(self._settings, self._requests, self._keeper)
        self._connection = connection
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
        self, error: "MCPError", connection: McpConnection, errors: HttpErrors
    ) -> Exception:
        """Return what to raise for an error of the protocol.

        This is ToolUnavailable if the server is unavailable, ConfigError if it refused the HTTP
        request, and otherwise the error itself, which is the server's answer.
        """
        from mcp import MCPError  # noqa: PLC0415 - of the extra
        from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT  # noqa: PLC0415 - of the extra

        name = self._settings.name
        if error.code == CONNECTION_CLOSED and (
            connection.is_over or isinstance(self._settings, McpHttp)
        ):
            # What the SDK says about a stream that it gave up is the cause itself.
            is_cause = error.message.startswith(_SDK_STREAM_ERROR)
            connection.begin_close(error.message if is_cause else "")
            await asyncio.wait({connection.keeper_task}, timeout=CAUSE_S_MAX)
            return McpServerLost(
                f"The connection to MCP server {name!r} broke: "
                f"{connection.end_reason or error.message}"
            )
        if error.code == REQUEST_TIMEOUT:
            return ToolUnavailable(f"MCP server {name!r} does not answer: {error.message}")
        if errors.refusal is not None:
            return errors.refusal
        message = f"MCP server {name!r}: {errors.describe(error.message)}"
        statuses = errors.statuses
        if statuses and (statuses[-1] in _TEMPORARY_STATUSES or statuses[-1] >= HTTPStatus(500)):
            return ToolUnavailable(message)
        if error.message == _SDK_HTTP_ERROR_MESSAGE:
            return ConfigError(message)
        if self._keeper is not None:
            # What the server was sent, it may repeat.
            return MCPError(error.code, self._keeper.mask.mask_text(error.message))
        return error


def _import_sdk() -> None:
    try:
        from mcp import Client  # noqa: F401, PLC0415 # pyright: ignore[reportUnusedImport]
    except ImportError:
        raise ConfigError(
            "MCP servers need the package `mcp`, which is not installed: "
            "pip install 'windlass[mcp]'"
        ) from None


@asynccontextmanager
async def _follow_changes(client: "Client", requests: ServerRequests) -> AsyncGenerator[None]:
    """Hear of changed lists from servers of the newest protocol, which tell only who listens."""
    following = asyncio.create_task(_listen_for_changes(client, requests))
    try:
        yield
    finally:
        following.cancel()
        await asyncio.wait({following})


async def _listen_for_changes(client: "Client", requests: ServerRequests) -> None:
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS  # noqa: PLC0415 - of the extra

    capabilities = client.server_capabilities
    offers = (capabilities.tools, capabilities.prompts, capabilities.resources)
    tools, prompts, resources = (bool(offer and offer.list_changed) for offer in offers)
    is_modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
    if not is_modern or not (tools or prompts or resources):
        return
    try:
        async with client.listen(
            tools_list_changed=tools,
            prompts_list_changed=prompts,
            resources_list_changed=resources,
        ) as events:
            async for _ in events:
                requests.note_change()
    except Exception:  # noqa: BLE001 - a server that cannot tell of changes is still of use
        _log.debug("an MCP server does not tell of its changes", exc_info=True)


async def _skip_validation(name: str, result: "CallToolResult") -> None:
    """Replace the SDK's check of an answer."""


def _describe_cause(error: BaseException) -> str:
    """Describe the first error in the groups that the SDK raises."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[Any]", error).exceptions[0]
    return str(error) if isinstance(error, ConfigError) else error_text(error)
