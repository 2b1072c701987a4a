"""`windlass tools`: what an agent could call in this folder."""

import asyncio
from typing import Any

import click
import msgspec

from windlass.cli.options import agent_options, collect_flags
from windlass.cli.screen import TROUBLE, Screen
from windlass.cli.slash_commands import show_tools
from windlass.cli.trust import open_trusted
from windlass.project.agents import ProjectAgent, load_agent


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
    project = open_trusted(trust=given["trust"])
    agent = load_agent(collect_flags(given), project=project)
    asyncio.run(_show_tool_list(agent, as_json=as_json))


async def _show_tool_list(agent: ProjectAgent, *, as_json: bool) -> None:
    async with agent.open_toolbox() as (toolbox, mcp_failures):
        specs = toolbox.specs
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(specs), indent=2))
        return
    screen = Screen()
    show_tools(screen, specs)
    for name, reason in mcp_failures.items():
        screen.write_line(f"MCP server {name}: {reason}", TROUBLE, mark=screen.glyphs.trouble)
