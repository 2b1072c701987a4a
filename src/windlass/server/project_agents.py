"""The agents that `windlass serve` has: those of a project's settings, or a program's own.

The law: a project's settings count only if a person has trusted them. The first agent is the
default one; it is recorded without a name, as in the terminal, so that both show the same sessions.
"""

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from windlass.agent.agent import Agent
from windlass.agent.folder_store import FolderStore
from windlass.core.errors import ConfigError
from windlass.ports import Journal
from windlass.project.agents import ProjectAgent, load_agent
from windlass.project.launches import launch_context
from windlass.project.program_objects import import_object
from windlass.project.trust import ProjectFolder
from windlass.server.served_agents import name_agents, share_folders
from windlass.server.service import Service

DEFAULT_NAME = "default"
"""What the agent without a name is called in the service."""


@dataclass(slots=True)
class ServedProject:
    """The agents of a project, ready to run."""

    agents: dict[str, Agent[Any]] = field(default_factory=dict[str, Agent[Any]])
    contexts: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    warnings: list[str] = field(default_factory=list[str])


def load_project_agents(
    default: ProjectAgent, flags: Mapping[str, object], project: ProjectFolder
) -> dict[str, ProjectAgent]:
    """Return the default agent and those that the settings name, by name."""
    found = {default.settings.agent or DEFAULT_NAME: default}
    for name in default.loaded.agents:
        if name in found:
            continue
        agent = load_agent({**flags, "agent": name}, default.folder, project=project)
        if not agent.settings.model:
            agent = agent.with_model(default.settings.model)
        found[name] = agent
    return found


@asynccontextmanager
async def open_project_agents(
    project_agents: Mapping[str, ProjectAgent], journal: Journal
) -> AsyncGenerator[ServedProject]:
    """Build the agents, and close what they opened when the block ends."""
    served = ServedProject()
    async with AsyncExitStack() as stack:
        for name, project_agent in project_agents.items():
            session = await stack.enter_async_context(project_agent.open_session(journal))
            served.agents[name] = session.agent
            served.contexts[name] = launch_context(project_agent)
            served.warnings += (
                f"{name}: continuing without the MCP server {server}: {reason}"
                for server, reason in session.mcp_failures.items()
            )
        yield served


def import_agents(
    target: str, workspace_store: str | None = None
) -> Mapping[str, Agent[Any]] | list[Agent[Any]] | Service:
    """Return what `MODULE:NAME` names: an agent, several, a service, or a function that makes them.

    `workspace_store`: the folder that holds the folders of callers, if it is not as the agents say.
    Raises ConfigError if there is no such thing.
    """
    suggested = (Agent, Service, list, dict)
    found = import_object(target, example="app:agents", suggested=suggested)
    if callable(found) and not isinstance(found, Agent):
        found = found()
    agents = _check_agents(target, found)
    if workspace_store is None:
        return agents
    if isinstance(agents, Service):
        raise ConfigError(f"{target} is a service: give its agents folders=FolderStore(…) instead")
    return share_folders(name_agents(agents), FolderStore(Path(workspace_store).absolute()))


def _check_agents(target: str, found: Any) -> Mapping[str, Agent[Any]] | list[Agent[Any]] | Service:  # noqa: ANN401 - whatever the module has
    if isinstance(found, Service):
        return found
    if isinstance(found, Agent):
        return [cast("Agent[Any]", found)]
    if isinstance(found, Mapping):
        named = cast("Mapping[str, object]", found)
        if named and all(isinstance(agent, Agent) for agent in named.values()):
            return cast("Mapping[str, Agent[Any]]", named)
    elif isinstance(found, Iterable):
        listed = list(cast("Iterable[object]", found))
        if listed and all(isinstance(agent, Agent) for agent in listed):
            return cast("list[Agent[Any]]", listed)
    raise ConfigError(
        f"{target!r} is not an Agent, a list or dict of agents, or a Service, nor a function that "
        "returns one"
    )
