"""`windlass tools`: what an agent could call in this folder."""

import asyncio
from typing import Any

import click
import msgspec

from windlass.cli.options import agent_options, collect_flags
from windlass.cli.screen import TROUBLE, Screen
from windlass.cli.slash_commands import show_tools
from windlass.project.agents import load_agent


@click.command(
    epilog="""\b
Examples:
  windlass tools
  windlass tools --tools "read-only,-grep"
  windlass tools --json"""
)
@agent_options
@click.option("--json", "as_json", is_flag=True, help="With the full schema of each tool.")
def tools(as_json: bool, **given: Any) -> None:  # noqa: ANN401 - the shared options, by name
    """List the tools that an agent would have here: its own, and those of MCP servers."""
    asyncio.run(_show_tool_list(collect_flags(given), as_json=as_json))


async def _show_tool_list(flags: dict[str, object], *, as_json: bool) -> None:
    async with load_agent(flags).open_toolbox() as (toolbox, mcp_failures):
        specs = toolbox.specs
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(specs), indent=2))
        return
    screen = Screen()
    show_tools(screen, specs)
    for name, reason in mcp_failures.items():
        screen.write_line(f"MCP server {name}: {reason}", TROUBLE, mark=screen.glyphs.trouble)
