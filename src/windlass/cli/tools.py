"""`windlass tools`: what an agent could call in this folder."""

import asyncio
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from windlass.cli.options import agent_options, collect_flags
from windlass.cli.screen import CALL_STYLE, QUIET, TROUBLE, Screen
from windlass.cli.trust import open_trusted
from windlass.core.messages import ToolSpec
from windlass.project.agents import ProjectAgent, load_agent


@click.command(
    epilog="""\b
Examples:
  windlass tools
  windlass tools --tools "read-only,-grep"
  windlass tools --json"""
)
@agent_options
@click.option("--json", "as_json", is_flag=True, help="Show the full schema of each tool.")
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


def show_tools(screen: Screen, specs: Sequence[ToolSpec]) -> None:
    """Write a line for each tool: its name, its effect and labels, and what it is for."""
    name_width = max((len(spec.name) for spec in specs), default=0)
    effects = {spec.name: ", ".join((spec.effect, *spec.labels)) for spec in specs}
    effect_width = min(20, max(map(len, effects.values()), default=0))
    for spec in specs:
        first_line = spec.description.strip().partition("\n")[0]
        screen.write_verbatim(f"{spec.name:<{name_width}}  ", CALL_STYLE)
        line = f"{effects[spec.name]:<{effect_width}}  {first_line}"
        style = QUIET if spec.effect == "read" else ""
        screen.write_verbatim(screen.trim_to_width(line, name_width + 2), style)
        screen.start_new_line()
    if not specs:
        screen.write_line("No tools.", QUIET)
