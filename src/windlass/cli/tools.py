"""`windlass tools`: what an agent could call here."""

import asyncio
from typing import Any

import click
import msgspec

from windlass.cli.command_context import desk_for
from windlass.cli.options import agent_options, flags_of
from windlass.cli.renderer import TROUBLE
from windlass.cli.screen import Screen
from windlass.cli.slash_commands import show_tools
from windlass.project.agents import servers_of, toolbox_of
from windlass.tools.mcp.servers import McpServers


@click.command(
    epilog="""\b
Examples:
  windlass tools
  windlass tools --tools "read-only,-grep"
  windlass tools --json"""
)
@agent_options
@click.option("--json", "as_json", is_flag=True, help="With the whole schema of each.")
def tools(as_json: bool, **given: Any) -> None:  # noqa: ANN401 - the shared options, by name
    """List the tools that an agent would have here: its own, and those of MCP servers."""
    asyncio.run(_list(flags_of(given), as_json=as_json))


async def _list(flags: dict[str, object], *, as_json: bool) -> None:
    desk, screen = desk_for(flags), Screen()
    async with McpServers(servers_of(desk.settings, desk.folder)) as servers:
        found = toolbox_of(desk.settings, desk.folder, await servers.tools()).specs
        failures = servers.failures
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
        return
    show_tools(screen, found)
    for name, why in failures.items():
        screen.line(f"MCP server {name}: {why}", TROUBLE, mark=screen.glyphs.trouble)
