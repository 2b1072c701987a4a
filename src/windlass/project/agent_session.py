"""An agent of a project that is open, with its tools and its MCP servers.

Invariant: a run has the tools that it began with. What servers offer later counts from the next
run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.agent.agent import Agent
from windlass.core.messages import ToolSpec
from windlass.ports import Journal
from windlass.tools import McpServers
from windlass.tools.function import Tool
from windlass.tools.toolbox import Toolbox


@dataclass(slots=True)
class AgentSession:
    """An agent that is ready to run, and what it was built from."""

    agent: Agent[Any]
    journal: Journal
    toolbox: Toolbox
    servers: McpServers
    build_toolbox: Callable[[list[Tool[..., Any]]], Toolbox]
    """Makes the toolbox of the agent with these tools of servers."""
    build_agent: Callable[[Toolbox], Agent[Any]]

    @property
    def mcp_failures(self) -> Mapping[str, str]:
        """The optional MCP servers that could not be reached, by name, and why."""
        return self.servers.failures

    async def take_changed_tools(self) -> list[str]:
        """Build the agent again if an MCP server has announced other tools; only between two runs.

        Returns what has changed, in words: nothing if all is as it was. Raises ConfigError if the
        new tools cannot be used, and then keeps the agent that it has.
        """
        if not self.servers.has_changed:
            return []
        toolbox = self.build_toolbox(await self.servers.tools())
        changes = describe_changes(self.toolbox.specs, toolbox.specs)
        if changes:
            agent = self.build_agent(toolbox)
            await self.agent.aclose()
            self.agent = agent
            self.toolbox = toolbox
        return changes


def describe_changes(before: Sequence[ToolSpec], after: Sequence[ToolSpec]) -> list[str]:
    """Say which tools are new, gone or described otherwise."""
    old = {spec.name: spec for spec in before}
    new = {spec.name: spec for spec in after}
    changed = [name for name in new if name in old and new[name] != old[name]]
    groups = {
        "new tools": [name for name in new if name not in old],
        "tools that are gone": [name for name in old if name not in new],
        "tools that are described otherwise now": changed,
    }
    return [f"{what}: {', '.join(names)}" for what, names in groups.items() if names]
