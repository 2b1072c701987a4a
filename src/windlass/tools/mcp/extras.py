"""Resources and prompts of an MCP server, offered as tools: a model can only call."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windlass.core.messages import Result
from windlass.tools.mcp.lists import all_prompts, all_resources, all_templates
from windlass.tools.mcp.results import prompt_result, resource_lines, resource_result
from windlass.tools.run_context import RunContext

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import Prompt, Resource, ResourceTemplate

ABOUT_CHARS_MAX = 200
_NOT_KNOWN = -32601

Request = Callable[["Client", RunContext[object], Mapping[str, Any]], Awaitable[Result]]


@dataclass(frozen=True, slots=True)
class Extra:
    """A tool of ours over what a server has."""

    name: str
    description: str
    input_schema: dict[str, Any]
    request: Request
    title: str | None = None


async def extras(client: "Client") -> list[Extra]:
    """What can be offered of this server's resources and prompts."""
    found: list[Extra] = []
    # Some servers say that they have resources, and have none.
    if client.server_capabilities.resources is not None and any(await _resources(client)):
        found += [_LIST, _READ]
    if client.server_capabilities.prompts is not None:
        prompts = await all_prompts(client)
        found += [_prompt(prompts)] if prompts else []
    return found


async def _resources(client: "Client") -> "tuple[list[Resource], list[ResourceTemplate]]":
    from mcp import MCPError  # noqa: PLC0415 - of the extra

    resources = await all_resources(client)
    try:
        return resources, await all_templates(client)
    except MCPError as error:
        if error.code != _NOT_KNOWN:
            raise
        return resources, []


async def _list(client: "Client", _: RunContext[object], _arguments: Mapping[str, Any]) -> Result:
    lines = "\n".join(resource_lines(*await _resources(client)))
    return Result.say("value", lines or "There are no resources.")


async def _read(client: "Client", _: RunContext[object], arguments: Mapping[str, Any]) -> Result:
    return resource_result(await client.read_resource(arguments["uri"]))


async def _get(client: "Client", _: RunContext[object], arguments: Mapping[str, Any]) -> Result:
    given = arguments.get("arguments")
    return prompt_result(await client.get_prompt(arguments["name"], given))


_LIST = Extra(
    "list_resources",
    "List the resources of this server: their addresses, for read_resource, and what they are.",
    {"type": "object", "properties": {}, "additionalProperties": False},
    _list,
)
_READ = Extra(
    "read_resource",
    "Read a resource of this server.",
    {
        "type": "object",
        "properties": {
            "uri": {"type": "string", "description": "Its address, as list_resources gives it."}
        },
        "required": ["uri"],
        "additionalProperties": False,
    },
    _read,
)


def _prompt(prompts: "list[Prompt]") -> Extra:
    about = "\n".join(map(_about, prompts))
    texts = {"type": "object", "additionalProperties": {"type": "string"}}
    return Extra(
        "get_prompt",
        f"Get one of this server's prompts, which are instructions for a task:\n{about}",
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "enum": [one.name for one in prompts]},
                "arguments": {**texts, "description": "The prompt's arguments, by name."},
            },
            "required": ["name"],
            "additionalProperties": False,
        },
        _get,
    )


def _about(prompt: "Prompt") -> str:
    taken = ", ".join(
        one.name if one.required else f"{one.name}?" for one in prompt.arguments or ()
    )
    about = (prompt.description or prompt.title or "")[:ABOUT_CHARS_MAX]
    return f"- {prompt.name}({taken})" + (f": {about}" if about else "")
