"""Read the lists of an MCP server, with all their pages, up to a bound."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from windlass.logs import get_logger
from windlass.tools.results import weigh_value

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import Prompt, Resource, ResourceTemplate, Tool

PAGES_MAX = 100
"""A server whose pages never end must not block the runtime."""
TOOLS_MAX = 1_000
"""Tools of one server that are read. A request with more of them fits no model."""
ITEMS_MAX = 10_000
"""Prompts, resources or templates of one server that are read."""
LIST_CHARS_MAX = 8_000_000
"""Of all pages of a list together. The page that exceeds it is the last one that is read."""

_log = get_logger(__name__)


class ListPage(Protocol):
    next_cursor: str | None


ListPageT = TypeVar("ListPageT", bound=ListPage)
ItemT = TypeVar("ItemT")


async def list_all_tools(client: "Client") -> "list[Tool]":
    if client.server_capabilities.tools is None:
        return []
    pages = _iterate_pages(lambda cursor: client.list_tools(cursor=cursor))
    return await _collect_items(pages, lambda page: page.tools, TOOLS_MAX)


async def list_all_prompts(client: "Client") -> "list[Prompt]":
    pages = _iterate_pages(lambda cursor: client.list_prompts(cursor=cursor))
    return await _collect_items(pages, lambda page: page.prompts, ITEMS_MAX)


async def list_all_resources(client: "Client") -> "list[Resource]":
    pages = _iterate_pages(lambda cursor: client.list_resources(cursor=cursor))
    return await _collect_items(pages, lambda page: page.resources, ITEMS_MAX)


async def list_all_templates(client: "Client") -> "list[ResourceTemplate]":
    pages = _iterate_pages(lambda cursor: client.list_resource_templates(cursor=cursor))
    return await _collect_items(pages, lambda page: page.resource_templates, ITEMS_MAX)


async def _collect_items(
    pages: AsyncIterator[ListPageT], items_of: Callable[[ListPageT], list[ItemT]], items_max: int
) -> list[ItemT]:
    """Return the items of all pages. One more than the maximum shows that there are others."""
    items: list[ItemT] = []
    async for page in pages:
        items += items_of(page)
        if len(items) > items_max:
            return items[: items_max + 1]
    return items


def clip_text(text: str, chars_max: int) -> str:
    """Return the beginning of a text; `…` shows that it was cut."""
    return text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"


async def _iterate_pages(
    fetch: Callable[[str | None], Awaitable[ListPageT]],
) -> AsyncIterator[ListPageT]:
    cursor: str | None = None
    room = LIST_CHARS_MAX
    for _ in range(PAGES_MAX):
        page = await fetch(cursor)
        yield page
        cursor = page.next_cursor
        if cursor is None:
            return
        room -= weigh_value(page, room)
        if room < 0:
            _log.warning("an MCP server has a list of more than %d characters", LIST_CHARS_MAX)
            return
