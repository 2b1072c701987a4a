"""The agents that `serve`, `worker` and `mcp serve` run, and the journal that they run on.

Invariant: a project's settings count only if a person has trusted them. The first agent is the
default one; it is recorded without a name, as in the terminal, so that both show the same sessions.
"""

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import click

from windlass.agent.agent import Agent
from windlass.agent.folder_store import FolderStore
from windlass.cli.command_context import load_context
from windlass.cli.journal_option import read_keys
from windlass.cli.options import collect_flags
from windlass.core.errors import ConfigError
from windlass.core.retention import RetentionRules
from windlass.ports import Journal
from windlass.project.agents import ProjectAgent, load_agent
from windlass.project.files import load_settings
from windlass.project.journals import ManagedJournal, journal_name, open_journal
from windlass.project.launches import launch_context
from windlass.project.program_objects import import_object
from windlass.project.trust import ProjectFolder
from windlass.server.limits import WorkspaceMode
from windlass.server.served_agents import name_agents, share_folders, share_journal
from windlass.server.service import Service

DEFAULT_NAME = "default"
"""What the agent without a name is called in the service."""


@dataclass(frozen=True, slots=True)
class OpenedAgents:
    """Agents by name, ready to run on a journal."""

    agents: Mapping[str, Agent[Any]]
    journal: ManagedJournal
    workspace: WorkspaceMode
    contexts: Mapping[str, Mapping[str, Any]]
    """What the runs of an agent begin with, by its name."""
    retention: RetentionRules
    """How long sessions are kept."""

    def make_service(self, **options: Any) -> Service:  # noqa: ANN401 - those of a service
        """Return a service of these agents, with further options."""
        return Service(
            self.agents,
            journal=self.journal,
            contexts=self.contexts,
            workspace=self.workspace,
            retention=self.retention,
            **options,
        )


class AgentSource:
    """Agents as the options of a command say: those of this folder, or those of a program.

    `service` is set instead if the program makes a service, which has agents and a journal.
    """

    def __init__(
        self,
        target: str | None,
        journal: str | None,
        given: Mapping[str, Any],
        *,
        quiet: bool = False,
    ) -> None:
        """Load the settings of this folder, or the program. Raises ConfigError."""
        self._keys = read_keys(given) if "signing_key" in given else None
        self.is_program = target is not None
        self.service: Service | None = None
        self._named: Mapping[str, Agent[Any]] = {}
        self._project_agents: Mapping[str, ProjectAgent] = {}
        if target is not None:
            found = import_agents(target, given.get("workspace_store"))
            if isinstance(found, Service):
                self.service = found
            else:
                self._named = name_agents(found)
            self._journal = journal_name(named=journal)
            self._workspace: WorkspaceMode = given.get("workspace") or "per-caller"
            self._retention = RetentionRules(load_settings().settings.retention)
            return
        flags = collect_flags({**given, "journal": journal})
        context = load_context(flags, quiet=quiet, trust=given["trust"])
        command = click.get_current_context().command_path.partition(" ")[2]
        agent = context.with_chosen_model(command).agent
        self._project_agents = load_project_agents(agent, flags, agent.project)
        self._journal = journal_name(agent.settings)
        self._workspace = agent.settings.workspace
        # The default agent is recorded without a name.
        others = [(name, each) for name, each in self._project_agents.items() if each is not agent]
        rules = {name: each.settings.retention for name, each in others}
        self._retention = RetentionRules(agent.settings.retention, rules)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[OpenedAgents]:
        """Open the journal and the agents, and close both when the block ends."""
        async with open_journal(self._journal, self._keys) as journal:
            if self.is_program:
                shared = share_journal(self._named, journal)
                yield OpenedAgents(shared, journal, self._workspace, {}, self._retention)
                return
            async with open_project_agents(self._project_agents, journal) as served:
                for warning in served.warnings:
                    click.echo(warning, err=True)
                yield OpenedAgents(
                    served.agents, journal, self._workspace, served.contexts, self._retention
                )


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
