"""`windlass tools`: what an agent could call here."""

import asyncio
from typing import Any

import click
import msgspec

from windlass.cli.command_context import load_context
from windlass.cli.options import agent_options, collect_flags
from windlass.cli.renderer import TROUBLE
from windlass.cli.screen import Screen
from windlass.cli.slash_commands import show_tools
from windlass.project.agents import build_toolbox, configured_servers
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
    asyncio.run(_show_tool_list(collect_flags(given), as_json=as_json))


async def _show_tool_list(flags: dict[str, object], *, as_json: bool) -> None:
    desk, screen = load_context(flags), Screen()
    async with McpServers(configured_servers(desk.settings, desk.folder)) as servers:
        found = build_toolbox(desk.settings, desk.folder, await servers.tools()).specs
        failures = servers.failures
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
        return
    show_tools(screen, found)
    for name, why in failures.items():
        screen.write_line(f"MCP server {name}: {why}", TROUBLE, mark=screen.glyphs.trouble)
