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
from windlass.environ import environment
from windlass.gates.combined import all_of
from windlass.gates.flow_guard import flow_guard
from windlass.gates.policy_file import load_policy
from windlass.gates.presets import allow_all, ask, read_only
from windlass.knowledge.instructions import read_instructions
from windlass.knowledge.skills import Skills
from windlass.ports import Approver, Gate, Journal
from windlass.project.files import mcp_servers
from windlass.project.schema_output import typed
from windlass.project.settings import Settings
from windlass.tools.core_tools import core_tools
from windlass.tools.function import Tool, tool
from windlass.tools.mcp.config import McpHttp, McpStdio
from windlass.tools.mcp.servers import McpServers
from windlass.tools.profile import Profile
from windlass.tools.toolbox import Toolbox

PROFILES = ("all", "none", "core", "read-only")
"""Words for many tools: all of them, none, those without MCP, and those that only read."""
PRESETS = {"ask": ask, "read-only": read_only, "allow-all": allow_all}
INSTRUCTIONS = (
    "You work in the folder {folder} with the tools that you are given. Look before you change "
    "something, change what was asked for and no more, and check that it works. Some calls are "
    "judged by a policy or a person first: if one is denied, do not try to get around it. Say "
    "briefly at the end what you did and what you found."
)
"""What the model is told unless the settings say otherwise."""
PLAIN = "Answer briefly and to the point."
"""What it is told if it has no tools."""


@dataclass(frozen=True, slots=True)
class Rig:
    """An agent that is ready to run, and what it was made of."""

    agent: Agent[Any]
    journal: Journal
    toolbox: Toolbox
    settings: Settings
    folder: Path
    failures: Mapping[str, str]
    """The MCP servers that could not be reached, and why."""


@asynccontextmanager
async def rigged(
    settings: Settings,
    *,
    folder: Path,
    journal: Journal,
    approver: Approver | None = None,
    schema: dict[str, Any] | None = None,
) -> AsyncGenerator[Rig]:
    """An agent for as long as the block lasts; what it opened is closed afterwards."""
    async with McpServers(servers_of(settings, folder)) as servers:
        toolbox = toolbox_of(settings, folder, await servers.tools())
        agent = Agent[Any](
            settings.model,
            fallbacks=settings.fallbacks,
            name=settings.agent,
            instructions=instructions_of(settings, folder, toolbox),
            tools=toolbox,
            gate=gate_of(settings, folder),
            approver=approver,
            limits=Limits(
                steps=settings.max_steps,
                usd=settings.max_usd,
                tokens=settings.max_tokens,
                seconds=settings.timeout,
            ),
            journal=journal,
            output_type=str if schema is None else typed(schema),
        )
        try:
            yield Rig(agent, journal, toolbox, settings, folder, servers.failures)
        finally:
            await agent.aclose()


def servers_of(settings: Settings, folder: Path) -> tuple[McpStdio | McpHttp, ...]:
    """The servers whose tools are wanted."""
    if settings.tools in (("none",), ("core",)):
        return ()
    path = Path(settings.mcp_config) if settings.mcp_config else None
    return mcp_servers(folder, path=path)


def toolbox_of(
    settings: Settings, folder: Path, others: list[Tool[..., Any]] | None = None
) -> Toolbox:
    """The tools that the settings ask for: by profile, or by patterns over their names."""
    if settings.tools == ("none",):
        return Toolbox(())
    tools = [*core_tools(folder, environ=environment(folder)), *(others or ())]
    skills = Skills.under(folder)
    if len(skills):
        tools.append(tool(skills.skill, effect="read"))
    if "read-only" in settings.tools:
        tools = [one for one in tools if one.spec.effect == "read"]
    patterns = [one for one in settings.tools if one not in PROFILES]
    left_out = tuple(one[1:] for one in patterns if one.startswith("-"))
    wanted = tuple(one for one in patterns if not one.startswith("-"))
    # What reads the rest of a long result is a part of every choice but an empty one.
    include = (*wanted, "read_artifact*") if wanted else ("*",)
    return Toolbox(tools, profile=Profile(include=include, exclude=left_out))


def gate_of(settings: Settings, folder: Path) -> Gate:
    """The policy, or the preset, and the flow guard with it."""
    if settings.policy:
        gate: Gate = load_policy(settings.policy, root=folder)
    else:
        gate = PRESETS[settings.permission_mode]()
    return all_of(gate, flow_guard()) if settings.flow_guard else gate


def instructions_of(settings: Settings, folder: Path, toolbox: Toolbox) -> str:
    """What the settings say, or what we say; and then what the project tells every agent (X5)."""
    own = settings.instructions or (INSTRUCTIONS.format(folder=folder) if toolbox.specs else PLAIN)
    places = (place for place in (folder, *folder.parents) if (place / ".git").exists())
    theirs = read_instructions(next(places, folder), folder).text
    knows_skills = any(spec.name == "skill" for spec in toolbox.specs)
    skills = Skills.under(folder).catalogue if knows_skills else ""
    return "\n\n".join(part for part in (own, theirs, skills) if part)
