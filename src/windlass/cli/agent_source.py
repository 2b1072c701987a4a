"""The agents that `serve`, `worker` and `mcp serve` run, and the journal that they run on."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import click

from windlass.agent.agent import Agent
from windlass.cli.command_context import load_context
from windlass.cli.journal_option import read_keys
from windlass.cli.options import collect_flags
from windlass.project.agents import ProjectAgent
from windlass.project.journals import ManagedJournal, journal_name, open_journal
from windlass.server.limits import WorkspaceMode
from windlass.server.project_agents import (
    import_agents,
    load_project_agents,
    open_project_agents,
)
from windlass.server.served_agents import name_agents, share_journal
from windlass.server.service import Service


@dataclass(frozen=True, slots=True)
class OpenedAgents:
    """Agents by name, ready to run on a journal."""

    agents: Mapping[str, Agent[Any]]
    journal: ManagedJournal
    workspace: WorkspaceMode
    contexts: Mapping[str, Mapping[str, Any]]
    """What the runs of an agent begin with, by its name."""


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
            return
        flags = collect_flags({**given, "journal": journal})
        agent = load_context(flags, quiet=quiet, trust=given["trust"]).with_chosen_model().agent
        self._project_agents = load_project_agents(agent, flags, agent.project)
        self._journal = journal_name(agent.settings)
        self._workspace = agent.settings.workspace

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[OpenedAgents]:
        """Open the journal and the agents, and close both when the block ends."""
        async with open_journal(self._journal, self._keys) as journal:
            if self.is_program:
                shared = share_journal(self._named, journal)
                yield OpenedAgents(shared, journal, self._workspace, {})
                return
            async with open_project_agents(self._project_agents, journal) as served:
                for warning in served.warnings:
                    click.echo(warning, err=True)
                yield OpenedAgents(served.agents, journal, self._workspace, served.contexts)
