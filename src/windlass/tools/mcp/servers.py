"""The tools of MCP servers, as tools like any other (T15).

    async with McpServers(mcp_settings(text, environ)) as servers:
        agent = Agent(model, tools=[*await servers.tools()])

The law: what a server says of its tools is a hint, and what it says otherwise is text from outside.
Hints choose the effect, and our settings overrule them; results are labelled `untrusted`. A list
of tools is fixed once it was given: ask for it again between runs, and it is the server's new one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, final

from windlass.core.errors import ConfigError
from windlass.core.messages import Effect, Label, ToolResult
from windlass.core.suggestions import suggest_names
from windlass.logs import get_logger
from windlass.tools.function import Tool
from windlass.tools.mcp.config import McpSettings, find_override, is_tool_offered
from windlass.tools.mcp.extras import ExtraTool, McpRequest, list_extra_tools
from windlass.tools.mcp.link import McpLink, McpServerLost
from windlass.tools.mcp.lists import list_all_tools
from windlass.tools.mcp.names import tool_name
from windlass.tools.mcp.results import convert_call_result
from windlass.tools.results import error_message, error_text
from windlass.tools.run_context import RunContext
from windlass.tools.unavailable import ToolUnavailable

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import Tool as Listed

_log = get_logger(__name__)
_LABELS: tuple[Label, ...] = ("untrusted", "private", "external")

McpCall = Callable[..., Awaitable[ToolResult]]


@final
class McpServer:
    """One server. It is connected to when it is first needed, and left when the block is."""

    def __init__(self, settings: McpSettings) -> None:
        self.settings = settings
        self.skipped: Mapping[str, str] = {}
        """The tools that could not be taken over, and why."""
        self._link = McpLink(settings)
        self._entered = False

    async def __aenter__(self) -> Self:
        self._entered = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._link.close()

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def is_connected(self) -> bool:
        return self._link.is_connected

    async def tools(self) -> list[Tool[..., Any]]:
        """The tools that it has now; raises ToolUnavailable or ConfigError."""
        if not self._entered:
            raise ConfigError("an MCP server is left when a block is: `async with McpServers(...)`")
        async with asyncio.timeout(self.settings.timeout_s):
            listed, more = await self._link.send_request(_list_offers)
        names = {one.name for one in listed}
        tools: dict[str, Tool[..., Any]] = {}
        skipped: dict[str, str] = {}
        for one in [*listed, *more]:
            own = not isinstance(one, ExtraTool)
            name = tool_name(self.name, one.name, taken=not own and one.name in names)
            if is_tool_offered(self.settings, one.name) and name not in tools:
                try:
                    tools[name] = self._build_tool(name, one)
                except ConfigError as error:
                    skipped[one.name] = str(error)
                    _log.warning("MCP server %s: a tool is left out: %s", self.name, error)
        self.skipped = skipped
        self._check_overrides([*names, *(one.name for one in more)])
        return list(tools.values())

    def _build_tool(self, name: str, listed: "Listed | ExtraTool") -> Tool[..., Any]:
        """One of its tools; raises ConfigError if it has no schema that can be used."""
        extra = isinstance(listed, ExtraTool)
        effect, labels = ("read", ("untrusted",)) if extra else _read_hints(listed)
        timeout_s, said = self.settings.timeout_s, find_override(self.settings, listed.name)
        if said is not None:
            effect = said.effect or effect
            labels = labels if said.labels is None else said.labels
            timeout_s = said.timeout_s or timeout_s
        request = listed.request if extra else _build_request(listed.name)
        made = Tool[..., Any].from_schema(
            name,
            listed.description or listed.title or "",
            listed.input_schema,
            self._build_function(request, effect),
            effect=effect,
            timeout=timeout_s,
            endpoint=f"mcp:{self.name}",
            untrusted="untrusted" in labels,
            private="private" in labels,
            external="external" in labels,
        )
        return replace(made, source=f"{listed.name!r} of MCP server {self.name!r}")

    def _build_function(self, request: McpRequest, effect: Effect) -> McpCall:
        async def call(context: RunContext[object], /, **arguments: object) -> ToolResult:
            try:
                return await self._link.send_request(
                    lambda client: request(client, context, arguments)
                )
            except McpServerLost as lost:
                unsure = "" if effect == "read" else ". Whether the call took effect is not known"
                raise ToolUnavailable(f"{lost}{unsure}") from lost

        return call

    def _check_overrides(self, names: list[str]) -> None:
        """A setting for a tool that is not there is a mistake that nobody would see."""
        for pattern in (*(one.pattern for one in self.settings.overrides), *self.settings.include):
            if not set("*?[") & set(pattern) and pattern not in names:
                near = suggest_names(pattern, names)
                raise ConfigError(f"MCP server {self.name!r} has no tool {pattern!r}.{near}")


@final
class McpServers:
    """Several servers, opened and left together."""

    def __init__(self, settings: Iterable[McpSettings]) -> None:
        given = list(settings)
        self.servers = {one.name: McpServer(one) for one in given}
        self.failures: Mapping[str, str] = {}
        """The servers that are not required and could not be reached, and why."""
        if len(self.servers) < len(given):
            raise ConfigError("two MCP servers have the same name: rename one")

    async def __aenter__(self) -> Self:
        for server in self.servers.values():
            await server.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        leaving = (server.__aexit__(kind, error, trace) for server in self.servers.values())
        await asyncio.gather(*leaving)

    async def tools(self) -> list[Tool[..., Any]]:
        """All tools that the servers have now, in the order of the settings.

        Raises ConfigError if a server that is required cannot be reached.
        """
        servers = list(self.servers.values())
        found = await asyncio.gather(*(one.tools() for one in servers), return_exceptions=True)
        tools: list[Tool[..., Any]] = []
        failures: dict[str, str] = {}
        for server, given in zip(servers, found, strict=True):
            if isinstance(given, BaseException):
                failures[server.name] = _describe_failure(server, given)
            else:
                tools += given
        self.failures = failures
        return tools


def _describe_failure(server: McpServer, error: BaseException) -> str:
    """Why a server has no tools, if one may go on without them."""
    if isinstance(error, ConfigError) or not isinstance(error, Exception):
        raise error
    if isinstance(error, ToolUnavailable):
        why = str(error)
    else:
        why = f"MCP server {server.name!r} did not list its tools: {error_text(error)}"
    if server.settings.required:
        raise ConfigError(why) from error
    _log.warning("%s", why)
    return why


async def _list_offers(client: "Client") -> "tuple[list[Listed], list[ExtraTool]]":
    return await list_all_tools(client), await list_extra_tools(client)


def _read_hints(listed: "Listed") -> tuple[Effect, tuple[Label, ...]]:
    """What a server's hints make of a tool.

    Where it says nothing, the protocol's defaults hold: it writes, and it reaches the outside.
    """
    hints = listed.annotations
    if hints is None:
        return "write", ("untrusted", "external")
    effect: Effect = "idempotent" if hints.idempotent_hint else "write"
    labels: tuple[Label, ...] = (
        ("untrusted",) if hints.open_world_hint is False else ("untrusted", "external")
    )
    return ("read" if hints.read_only_hint else effect), labels


def _build_request(name: str) -> McpRequest:
    async def request(
        client: "Client", context: RunContext[object], arguments: Mapping[str, Any]
    ) -> ToolResult:
        async def report(progress: float, total: float | None, message: str | None) -> None:
            share = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
            context.report(f"{message} ({share})" if message else share)

        try:
            answer = await client.call_tool(name, dict(arguments), progress_callback=report)
        except RuntimeError as error:
            # The SDK checks an answer against the schema that the server gave for it.
            return ToolResult.from_text(
                "error", f"{name} was done, but its answer is wrong: {_first_line(error)}"
            )
        return convert_call_result(answer)

    return request


def _first_line(error: Exception) -> str:
    return error_message(error).partition("\n")[0]
