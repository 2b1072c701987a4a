"""Settings in, an agent out: its model, tools, gate, limits and journal.

The law: whatever is wrong is said before the first request is made.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windlass.agent.agent import Agent
from windlass.core.limits import Limits
from windlass.environ import read_environment
from windlass.gates.combined import all_of
from windlass.gates.flow_guard import flow_guard
from windlass.gates.policy_file import load_policy
from windlass.gates.presets import allow_all, ask, read_only
from windlass.knowledge.instructions import read_instructions
from windlass.knowledge.skills import Skills
from windlass.ports import Approver, Gate, Journal
from windlass.project.files import read_mcp_servers
from windlass.project.schema_output import schema_type
from windlass.project.settings import Settings
from windlass.tools.core_tools import core_tools
from windlass.tools.function import Tool, tool
from windlass.tools.mcp.config import McpHttp, McpStdio
from windlass.tools.mcp.servers import McpServers
from windlass.tools.profile import Profile
from windlass.tools.toolbox import Toolbox

TOOL_PROFILES = ("all", "none", "core", "read-only")
"""Words for many tools: all of them, none, those without MCP, and those that only read."""
GATE_PRESETS = {"ask": ask, "read-only": read_only, "allow-all": allow_all}
DEFAULT_INSTRUCTIONS = (
    "You work in the folder {folder} with the tools that you are given. Look before you change "
    "something, change what was asked for and no more, and check that it works. Some calls are "
    "judged by a policy or a person first: if one is denied, do not try to get around it. Say "
    "briefly at the end what you did and what you found."
)
"""What the model is told unless the settings say otherwise."""
TOOLLESS_INSTRUCTIONS = "Answer briefly and to the point."
"""What it is told if it has no tools."""


@dataclass(frozen=True, slots=True)
class AgentSession:
    """An agent that is ready to run, and what it was made of."""

    agent: Agent[Any]
    journal: Journal
    toolbox: Toolbox
    settings: Settings
    folder: Path
    mcp_failures: Mapping[str, str]
    """The MCP servers that could not be reached, and why."""


@asynccontextmanager
async def open_agent(
    settings: Settings,
    *,
    folder: Path,
    journal: Journal,
    approver: Approver | None = None,
    schema: dict[str, Any] | None = None,
) -> AsyncGenerator[AgentSession]:
    """An agent for as long as the block lasts; what it opened is closed afterwards."""
    async with McpServers(configured_servers(settings, folder)) as servers:
        toolbox = build_toolbox(settings, folder, await servers.tools())
        agent = Agent[Any](
            settings.model,
            fallbacks=settings.fallbacks,
            name=settings.agent,
            instructions=build_instructions(settings, folder, toolbox),
            tools=toolbox,
            gate=build_gate(settings, folder),
            approver=approver,
            limits=Limits(
                steps=settings.max_steps,
                usd=settings.max_usd,
                tokens=settings.max_tokens,
                seconds=settings.timeout,
            ),
            journal=journal,
            output_type=str if schema is None else schema_type(schema),
        )
        try:
            yield AgentSession(agent, journal, toolbox, settings, folder, servers.failures)
        finally:
            await agent.aclose()


def configured_servers(settings: Settings, folder: Path) -> tuple[McpStdio | McpHttp, ...]:
    """The servers whose tools are wanted."""
    if settings.tools in (("none",), ("core",)):
        return ()
    path = Path(settings.mcp_config) if settings.mcp_config else None
    return read_mcp_servers(folder, path=path)


def build_toolbox(
    settings: Settings, folder: Path, extra_tools: list[Tool[..., Any]] | None = None
) -> Toolbox:
    """The tools that the settings ask for: by profile, or by patterns over their names."""
    if settings.tools == ("none",):
        return Toolbox(())
    tools = [*core_tools(folder, environ=read_environment(folder)), *(extra_tools or ())]
    skills = Skills.from_project(folder)
    if len(skills):
        tools.append(tool(skills.skill, effect="read"))
    if "read-only" in settings.tools:
        tools = [one for one in tools if one.spec.effect == "read"]
    patterns = [one for one in settings.tools if one not in TOOL_PROFILES]
    left_out = tuple(one[1:] for one in patterns if one.startswith("-"))
    wanted = tuple(one for one in patterns if not one.startswith("-"))
    # What reads the rest of a long result is a part of every choice but an empty one.
    include = (*wanted, "read_artifact*") if wanted else ("*",)
    return Toolbox(tools, profile=Profile(include=include, exclude=left_out))


def build_gate(settings: Settings, folder: Path) -> Gate:
    """The policy, or the preset, and the flow guard with it."""
    if settings.policy:
        gate: Gate = load_policy(settings.policy, root=folder)
    else:
        gate = GATE_PRESETS[settings.permission_mode]()
    return all_of(gate, flow_guard()) if settings.flow_guard else gate


def build_instructions(settings: Settings, folder: Path, toolbox: Toolbox) -> str:
    """What the settings say, or what we say; and then what the project tells every agent (X5)."""
    own = settings.instructions or (
        DEFAULT_INSTRUCTIONS.format(folder=folder) if toolbox.specs else TOOLLESS_INSTRUCTIONS
    )
    places = (place for place in (folder, *folder.parents) if (place / ".git").exists())
    theirs = read_instructions(next(places, folder), folder).text
    knows_skills = any(spec.name == "skill" for spec in toolbox.specs)
    skills = Skills.from_project(folder).catalogue if knows_skills else ""
    return "\n\n".join(part for part in (own, theirs, skills) if part)
