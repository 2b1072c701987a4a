"""Offers the resources and prompts of an MCP server as tools, since a model can only call tools.

With `resource_references`, a prompt names a resource as `@server:address`, and the tool reads it
before the first step: gated, recorded and labelled as any other call.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windlass.core.messages import ContentPart, ToolResult
from windlass.core.setup import Reference
from windlass.core.text_clip import printable_line
from windlass.tools.function import Tool
from windlass.tools.mcp.lists import (
    clip_text,
    list_all_prompts,
    list_all_resources,
    list_all_templates,
)
from windlass.tools.mcp.results import (
    convert_off_loop,
    convert_prompt_parts,
    convert_prompt_result,
    convert_resource_result,
    format_resources,
)
from windlass.tools.run_context import RunContext

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import Prompt, Resource, ResourceTemplate

ABOUT_CHARS_MAX = 200
PROMPTS_MAX = 100
PROMPT_ARGUMENTS_MAX = 20
_METHOD_NOT_FOUND = -32601
_READ_NAME = re.compile(r"(.+)__read_resource(?:_[0-9a-z]+)?")
_ADDRESS = r"[^\s<>\"'`)\]]*[^\s<>\"'`)\].,;:!?]"
"""Up to a sign that ends a word, or a sentence."""

McpRequest = Callable[["Client", RunContext[object], Mapping[str, Any]], Awaitable[ToolResult]]


@dataclass(frozen=True, slots=True)
class ExtraTool:
    """A tool of Windlass for the resources or prompts of a server."""

    name: str
    description: str
    input_schema: dict[str, Any]
    request: McpRequest
    title: str | None = None
    sends_data: bool = True
    """Whether the model chooses something that is sent to the server."""


@dataclass(frozen=True, slots=True)
class McpPrompt:
    """A prompt that a server has for people, who choose it by name."""

    server: str
    name: str
    description: str
    arguments: tuple[str, ...]
    """The names of its arguments, in the order of the server."""
    required: frozenset[str]
    """Those that cannot be left out."""

    @classmethod
    def of_server(cls, server: str, prompt: "Prompt") -> "McpPrompt":
        """Return a prompt as a server lists it."""
        arguments = (prompt.arguments or [])[:PROMPT_ARGUMENTS_MAX]
        return cls(
            server,
            prompt.name,
            printable_line(clip_text(prompt.description or prompt.title or "", ABOUT_CHARS_MAX)),
            tuple(argument.name for argument in arguments),
            frozenset(argument.name for argument in arguments if argument.required),
        )


def resource_references(tools: "Iterable[Tool[..., Any]]") -> tuple[Reference, ...]:
    """Return what a prompt may refer to as `@server:address`, for `Hydration(references=…)`.

    `tools`: those of the servers. A server without resources has no reference.
    """
    schema = _READ_RESOURCE_TOOL.input_schema
    found = (
        (tool.name, match[1])
        for tool in tools
        # A server may have a tool of that name itself, which takes something else.
        if (match := _READ_NAME.fullmatch(tool.name)) and tool.spec.parameters == schema
    )
    return tuple(
        Reference(rf"(?<![\w@])@{re.escape(server)}:({_ADDRESS})", name, "uri")
        for name, server in found
    )


async def list_usable_prompts(client: "Client") -> "list[Prompt]":
    """Return the prompts of a server, as many as can be offered."""
    if client.server_capabilities.prompts is None:
        return []
    prompts = await list_all_prompts(client)
    # A longer name would be cut in the description, and could not be chosen.
    return [prompt for prompt in prompts if len(prompt.name) <= ABOUT_CHARS_MAX][:PROMPTS_MAX]


async def fetch_prompt(
    client: "Client", name: str, arguments: Mapping[str, str] | None
) -> tuple[ContentPart, ...]:
    """Return a prompt as the parts of a message."""
    answer = await client.get_prompt(name, dict(arguments or {}))
    return await convert_off_loop(answer, convert_prompt_parts)


async def list_extra_tools(client: "Client", prompts: "list[Prompt]") -> list[ExtraTool]:
    """Return the tools for this server's resources, if it has any, and for its prompts."""
    tools: list[ExtraTool] = []
    # Some servers announce resources and have none.
    if client.server_capabilities.resources is not None and any(await _list_resources(client)):
        tools += [_LIST_RESOURCES_TOOL, _READ_RESOURCE_TOOL]
    if prompts:
        tools.append(_build_prompt_tool(prompts))
    return tools


async def _list_resources(client: "Client") -> "tuple[list[Resource], list[ResourceTemplate]]":
    from mcp import MCPError  # noqa: PLC0415 - of the extra

    resources = await list_all_resources(client)
    try:
        return resources, await list_all_templates(client)
    except MCPError as error:
        if error.code != _METHOD_NOT_FOUND:  # Many servers have resources but no templates.
            raise
        return resources, []


async def _answer_list_resources(
    client: "Client", _: RunContext[object], _arguments: Mapping[str, Any]
) -> ToolResult:
    lines = "\n".join(format_resources(*await _list_resources(client)))
    return ToolResult.from_text("value", lines or "There are no resources.")


async def _answer_read_resource(
    client: "Client", _: RunContext[object], arguments: Mapping[str, Any]
) -> ToolResult:
    answer = await client.read_resource(arguments["uri"])
    return await convert_off_loop(answer, convert_resource_result)


async def _answer_get_prompt(
    client: "Client", _: RunContext[object], arguments: Mapping[str, Any]
) -> ToolResult:
    answer = await client.get_prompt(arguments["name"], arguments.get("arguments"))
    return await convert_off_loop(answer, convert_prompt_result)


_LIST_RESOURCES_TOOL = ExtraTool(
    "list_resources",
    "List the resources of this server with their addresses, for read_resource.",
    {"type": "object", "properties": {}, "additionalProperties": False},
    _answer_list_resources,
    sends_data=False,
)
_READ_RESOURCE_TOOL = ExtraTool(
    "read_resource",
    "Read a resource of this server.",
    {
        "type": "object",
        "properties": {
            "uri": {"type": "string", "description": "Its address, from list_resources."}
        },
        "required": ["uri"],
        "additionalProperties": False,
    },
    _answer_read_resource,
)


def _build_prompt_tool(prompts: "list[Prompt]") -> ExtraTool:
    about = "\n".join(map(_describe_prompt, prompts))
    string_map = {"type": "object", "additionalProperties": {"type": "string"}}
    return ExtraTool(
        "get_prompt",
        f"Get one of this server's prompts. Each is a set of instructions for a task:\n{about}",
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "enum": [prompt.name for prompt in prompts]},
                "arguments": {**string_map, "description": "The prompt's arguments, by name."},
            },
            "required": ["name"],
            "additionalProperties": False,
        },
        _answer_get_prompt,
    )


def _describe_prompt(prompt: "Prompt") -> str:
    names = [
        clip_text(argument.name if argument.required else f"{argument.name}?", ABOUT_CHARS_MAX)
        for argument in (prompt.arguments or ())[:PROMPT_ARGUMENTS_MAX]
    ]
    line = f"- {prompt.name}({', '.join(names)})"
    about = clip_text(prompt.description or prompt.title or "", ABOUT_CHARS_MAX)
    return f"{line}: {about}" if about else line
