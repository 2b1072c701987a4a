"""Read the lists of an MCP server, with all their pages."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import Prompt, Resource, ResourceTemplate, Tool

PAGES_MAX = 100
"""A server whose pages never end must not block the runtime."""


class ListPage(Protocol):
    next_cursor: str | None


ListPageT = TypeVar("ListPageT", bound=ListPage)


async def list_all_tools(client: "Client") -> "list[Tool]":
    if client.server_capabilities.tools is None:
        return []
    pages = _iterate_pages(lambda cursor: client.list_tools(cursor=cursor))
    return [tool async for page in pages for tool in page.tools]


async def list_all_prompts(client: "Client") -> "list[Prompt]":
    pages = _iterate_pages(lambda cursor: client.list_prompts(cursor=cursor))
    return [prompt async for page in pages for prompt in page.prompts]


async def list_all_resources(client: "Client") -> "list[Resource]":
    pages = _iterate_pages(lambda cursor: client.list_resources(cursor=cursor))
    return [resource async for page in pages for resource in page.resources]


async def list_all_templates(client: "Client") -> "list[ResourceTemplate]":
    pages = _iterate_pages(lambda cursor: client.list_resource_templates(cursor=cursor))
    return [template async for page in pages for template in page.resource_templates]


async def _iterate_pages(
    fetch: Callable[[str | None], Awaitable[ListPageT]],
) -> AsyncIterator[ListPageT]:
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        page = await fetch(cursor)
        yield page
        cursor = page.next_cursor
        if cursor is None:
            return
