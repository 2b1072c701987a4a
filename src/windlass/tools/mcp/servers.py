"""Offers the tools of MCP servers like any other tools.

    async with McpServers(mcp_settings(text, environ)) as servers:
        agent = Agent(model, tools=[*await servers.tools()])

Invariant: a server's description of its tools is its own word, and everything else that it says is
text from outside. A tool writes and sends data out unless the user's settings say otherwise, or say
that this server's hints are to be trusted; results are labelled `untrusted`. What a server lists is
bounded in number and length. A list of tools does not change once it was returned: ask again
between runs for the server's new one.

A tool is called `server__tool` (`config.tool_name`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, final

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.messages import ContentPart, Effect, Label, ToolResult
from windlass.core.schema import JsonSchema
from windlass.core.schema_faults import find_faults
from windlass.core.text_clip import printable_chars, printable_line
from windlass.logs import get_logger
from windlass.tools.breaker import ToolUnavailable
from windlass.tools.function import Tool
from windlass.tools.mcp.config import (
    NAME_CHARS_MAX,
    McpSettings,
    find_override,
    is_tool_offered,
    tool_name,
)
from windlass.tools.mcp.extras import (
    ExtraTool,
    McpPrompt,
    McpRequest,
    fetch_prompt,
    list_extra_tools,
    list_usable_prompts,
)
from windlass.tools.mcp.http import build_keeper
from windlass.tools.mcp.link import McpLink, McpServerLost
from windlass.tools.mcp.lists import TOOLS_MAX, clip_text, list_all_tools
from windlass.tools.mcp.oauth.grants import ShowPage
from windlass.tools.mcp.oauth.tokens import McpTokenStore
from windlass.tools.mcp.results import convert_call_result, convert_off_loop
from windlass.tools.mcp.server_requests import ServerRequests
from windlass.tools.results import error_text
from windlass.tools.run_context import RunContext
from windlass.tools.search import check_patterns

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult, Prompt
    from mcp_types import Tool as ServerTool

DESCRIPTION_CHARS_MAX = 10_000
OFFER_CHARS_MAX = 4_000_000
"""Of the descriptions and schemas of all tools of a server. Further tools are left out."""
REPORTS_MAX = 1_000
"""Reports of progress that one call may make."""

_log = get_logger(__name__)

McpCall = Callable[..., Awaitable[ToolResult]]


@final
class McpServer:
    """One server. It is connected when it is first needed, and closed at the end of the block."""

    def __init__(
        self,
        settings: McpSettings,
        *,
        private: bool = False,
        tokens: McpTokenStore | None = None,
        sign_in: ShowPage | None = None,
    ) -> None:
        self.settings = settings
        self._private = private
        self.skipped: Mapping[str, str] = {}
        """The tools that could not be used, and why."""
        self.prompts: tuple[McpPrompt, ...] = ()
        """The prompts for people that it had when `tools` was called last."""
        self._requests = ServerRequests(settings)
        self._keeper = build_keeper(settings, tokens, sign_in)
        self._link = McpLink(settings, self._requests, self._keeper)
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
        """Whether there is a connection now. One that broke is made again by the next call."""
        return self._link.is_connected

    @property
    def has_changed(self) -> bool:
        """Whether the server has announced other tools since `tools` was called last.

        A list that was returned stays as it is. Call `tools` again for an agent of the next run.
        """
        return self._requests.has_changed_lists

    async def tools(self) -> list[Tool[..., Any]]:
        """Return the tools that the server has now.

        Raises ToolUnavailable if it cannot be reached, TimeoutError if it takes too long, and
        ConfigError if the settings name a tool that it does not have.
        """
        if not self._entered:
            raise ConfigError(
                "an MCP server must be opened before its tools are used: "
                "`async with McpServers(...) as servers`"
            )
        self._requests.has_changed_lists = False
        async with asyncio.timeout(self._link.timeout_s):
            server_tools, extra_tools, prompts = await self._link.send_request(_list_offers)
        self.prompts = tuple(McpPrompt.of_server(self.name, prompt) for prompt in prompts)
        own_names = {listed.name for listed in server_tools}
        tools: dict[str, Tool[..., Any]] = {}
        skipped: dict[str, str] = {}
        room = OFFER_CHARS_MAX
        for listed in [*server_tools[:TOOLS_MAX], *extra_tools]:
            # The server's own `read_resource` keeps the plain name, and ours gets a hash.
            taken = isinstance(listed, ExtraTool) and listed.name in own_names
            name = tool_name(self.name, listed.name, taken=taken)
            if is_tool_offered(self.settings, listed.name) and name not in tools:
                try:
                    tools[name] = self._build_tool(name, listed)
                    room -= _check_room(listed, room)
                except ConfigError as error:
                    tools.pop(name, None)
                    skipped[clip_text(listed.name, NAME_CHARS_MAX)] = str(error)
                    _log.warning("MCP server %s: a tool is left out: %s", self.name, error)
        if len(server_tools) > TOOLS_MAX:
            _log.warning("MCP server %s: only %d tools are read", self.name, TOOLS_MAX)
        self.skipped = skipped
        patterns = [*(one.pattern for one in self.settings.overrides), *self.settings.include]
        all_names = own_names | {extra.name for extra in extra_tools}
        check_patterns(patterns, all_names, f"MCP server {self.name!r}")
        return list(tools.values())

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None
    ) -> tuple[ContentPart, ...]:
        """Return a prompt of the server, to be given to an agent. It is text of the server's own.

        Raises ToolUnavailable if it cannot be reached, and TimeoutError if it takes too long.
        """
        async with asyncio.timeout(self.settings.timeout_s):
            return await self._link.send_request(
                lambda client: fetch_prompt(client, name, arguments)
            )

    def _build_tool(self, name: str, listed: "ServerTool | ExtraTool") -> Tool[..., Any]:
        """Build one tool; raises ConfigError if its schema cannot be used."""
        effect, labels = _classify_tool(listed, trust_hints=self.settings.trust_hints)
        if self._private:
            labels = (*labels, "private")
        if isinstance(listed, ExtraTool):
            request = listed.request
        else:
            schema = listed.output_schema
            output = None if schema is None else JsonSchema(schema)
            request = _build_request(listed.name, output)
        timeout_s = self.settings.timeout_s
        override = find_override(self.settings, listed.name)
        if override is not None:
            effect, labels = override.apply(effect, labels)
            timeout_s = override.timeout_s or timeout_s
        built = Tool[..., Any].from_schema(
            name,
            # It is shown to people too, and must not steer their terminal.
            printable_chars(
                clip_text(listed.description or listed.title or "", DESCRIPTION_CHARS_MAX),
                keep="\n\t",
            ),
            listed.input_schema,
            self._build_function(request, effect),
            effect=effect,
            timeout=timeout_s,
            endpoint=f"mcp:{self.name}",
            untrusted="untrusted" in labels,
            private="private" in labels,
            external="external" in labels,
        )
        return replace(built, source=f"{listed.name!r} of MCP server {self.name!r}")

    def _build_function(self, request: McpRequest, effect: Effect) -> McpCall:
        async def call(context: RunContext[object], /, **arguments: object) -> ToolResult:
            try:
                with self._requests.open_call(context) as open_call:
                    result = await self._link.send_request(
                        lambda client: request(client, context, arguments)
                    )
                    result = open_call.add_notes(result)
                    return self._keeper.mask.mask_result(result) if self._keeper else result
            except McpServerLost as lost:
                if effect == "read":
                    doubt = ""
                else:
                    doubt = ". Whether the call took effect is not known"
                raise ToolUnavailable(f"{lost}{doubt}") from lost

        return call


@final
class McpServers:
    """Several servers, opened and closed together.

    `private`: what their tools return is private data, unless the settings give a tool its labels.
    `tokens`: where the tokens are kept for servers at which a person has signed in. `sign_in` shows
    a person the address at which to sign in, when a server asks for it. Without it, such a server
    cannot be used before a person has signed in: `windlass mcp login NAME`.
    """

    def __init__(
        self,
        settings: Iterable[McpSettings],
        *,
        private: bool = False,
        tokens: McpTokenStore | None = None,
        sign_in: ShowPage | None = None,
    ) -> None:
        all_settings = list(settings)
        self.servers = {
            one.name: McpServer(one, private=private, tokens=tokens, sign_in=sign_in)
            for one in all_settings
        }
        self.failures: Mapping[str, str] = {}
        """The servers that are not required and could not be reached, and why."""
        if len(self.servers) < len(all_settings):
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
        exits = (server.__aexit__(kind, error, trace) for server in self.servers.values())
        await asyncio.gather(*exits)

    @property
    def has_changed(self) -> bool:
        """Whether one of the servers has announced other tools since `tools` was called last."""
        return any(server.has_changed for server in self.servers.values())

    async def tools(self) -> list[Tool[..., Any]]:
        """Return all tools that the servers have now, in the order of the settings.

        Raises ConfigError if a required server cannot be reached. Other servers that cannot be
        reached are in `failures`.
        """
        servers = list(self.servers.values())
        answers = await asyncio.gather(
            *(server.tools() for server in servers), return_exceptions=True
        )
        tools: list[Tool[..., Any]] = []
        failures: dict[str, str] = {}
        for server, answer in zip(servers, answers, strict=True):
            if isinstance(answer, BaseException):
                failures[server.name] = _describe_failure(server, answer)
            else:
                tools += answer
        self.failures = failures
        return tools


def _describe_failure(server: McpServer, error: BaseException) -> str:
    """Say why a server has no tools; raises if the agent cannot do without them."""
    if isinstance(error, ConfigError) or not isinstance(error, Exception):
        raise error
    if isinstance(error, ToolUnavailable):
        reason = str(error)
    else:
        reason = f"MCP server {server.name!r} did not list its tools: {error_text(error)}"
    if server.settings.required:
        raise ConfigError(reason) from error
    _log.warning("%s", reason)
    return reason


async def _list_offers(
    client: "Client",
) -> "tuple[list[ServerTool], list[ExtraTool], list[Prompt]]":
    prompts = await list_usable_prompts(client)
    return await list_all_tools(client), await list_extra_tools(client, prompts), prompts


def _check_room(listed: "ServerTool | ExtraTool", room: int) -> int:
    """Return the length of a tool's description and schema; raises ConfigError beyond the room."""
    length = len(listed.description or "") + len(msgspec.json.encode(listed.input_schema))
    if length > room:
        raise ConfigError(
            f"tool {printable_line(listed.name)!r}: the tools of this server are described in more "
            f"than {OFFER_CHARS_MAX} characters"
        )
    return length


def _classify_tool(
    listed: "ServerTool | ExtraTool", *, trust_hints: bool
) -> tuple[Effect, tuple[Label, ...]]:
    """Return effect and labels of a tool.

    The strictest ones are the default: a tool writes, and what it is given leaves the machine. A
    hint of the server can only loosen that, so it counts only if the user trusts this server.
    """
    if isinstance(listed, ExtraTool):
        if trust_hints or not listed.sends_data:
            return "read", ("untrusted",)
        return "write", ("untrusted", "external")
    hints = listed.annotations
    if hints is None or not trust_hints:
        return "write", ("untrusted", "external")
    effect: Effect = "write"
    if hints.read_only_hint:
        effect = "read"
    elif hints.idempotent_hint:
        effect = "idempotent"
    if hints.open_world_hint is False:
        return effect, ("untrusted",)
    return effect, ("untrusted", "external")


def _build_request(name: str, output: JsonSchema | None) -> McpRequest:
    async def request(
        client: "Client", context: RunContext[object], arguments: Mapping[str, Any]
    ) -> ToolResult:
        reports_left = REPORTS_MAX

        async def report(progress: float, total: float | None, message: str | None) -> None:
            nonlocal reports_left
            reports_left -= 1
            if reports_left >= 0:
                if total is None:
                    share = f"{progress:g}"
                else:
                    share = f"{progress:g}/{total:g}"
                text = printable_line(message or "")
                context.report(f"{text} ({share})" if text else share)

        answer = await client.call_tool(name, dict(arguments), progress_callback=report)
        return await convert_off_loop(answer, lambda answer: _check_result(name, output, answer))

    return request


def _check_result(name: str, output: JsonSchema | None, answer: "CallToolResult") -> ToolResult:
    """Convert an answer; to an error if it does not match the schema that the server declared."""
    mismatch = None
    if output is not None and not answer.is_error:
        mismatch = _find_mismatch(output, answer)
    if mismatch is not None:
        return ToolResult.from_text(
            "error", f"{name} ran, but its answer does not match its schema: {mismatch}"
        )
    return convert_call_result(answer)


def _find_mismatch(output: JsonSchema, answer: "CallToolResult") -> str | None:
    """Return how an answer differs from the schema that the server declared, or None."""
    structured = answer.structured_content
    if structured is None and "structured_content" not in answer.model_fields_set:
        return "it has no structured content"
    if output.accepts(structured):
        return None
    faults = find_faults(output, structured)
    return "; ".join(f"{fault.path}: {fault.message}" for fault in faults)
