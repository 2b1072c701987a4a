"""What a command that drives runs works with: the agent its options describe, and the terminal.

async with context.open_session(journal) as session: …
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from windlass.agent.call_previews import preview_call
from windlass.agent.options import parts_of
from windlass.cli.output import OutputFormat
from windlass.cli.screen import QUIET, TROUBLE
from windlass.cli.terminal import read_stdin_line
from windlass.cli.terminal_run import TerminalRun, open_terminal
from windlass.cli.trust import open_trusted
from windlass.core.errors import ConfigError
from windlass.ports import Approver, Journal
from windlass.project.agent_session import AgentSession
from windlass.project.agents import ProjectAgent, load_agent
from windlass.project.journals import OpenedJournal, journal_name, open_journal
from windlass.project.local_servers import (
    LocalServer,
    choose_model,
    explain_no_base_url,
    find_servers,
)
from windlass.project.trust import ProjectFolder


@dataclass(frozen=True, slots=True)
class CommandContext:
    """The agent of a command, and the terminal that shows its runs."""

    agent: ProjectAgent
    terminal: TerminalRun
    trust: bool | None = None
    """The flag `--trust` or `--no-trust`; None to ask about a project that is not trusted."""

    def with_chosen_model(self, command: str = "run") -> "CommandContext":
        """The same context with a model, if the settings name none. Shows which model it is.

        `command` is the one whose advice is given. Raises ConfigError, with what to do, if no model
        can be used, or if the model's server is not known.
        """
        if self.agent.settings.model:
            return self._with_server() if self.agent.needs_base_url() else self
        if self.agent.settings.base_url:
            raise ConfigError("base_url needs a model: add -m openai-compatible:MODEL.")
        terminal = self.terminal
        can_ask = terminal.question_prompt is not None
        project = self.agent.project
        accept = self._accept_server if can_ask else None
        choice = asyncio.run(choose_model(project.environ, project.weights, accept, command))
        if not terminal.quiet:
            note = f"model {choice.model}: {choice.note}"
            terminal.screen.write_line(note, QUIET, mark=terminal.screen.glyphs.progress)
        return replace(self, agent=self.agent.with_model(choice.model))

    def _with_server(self) -> "CommandContext":
        """The same context with the model's server, if one on this machine may be used."""
        model = self.agent.settings.model
        servers = asyncio.run(find_servers())
        for server in servers if self.terminal.question_prompt is not None else ():
            if self._ask_to_use(f"No address is set for {model}, but a server is at {server.url}."):
                return replace(self, agent=self.agent.with_base_url(server.url))
        raise ConfigError(explain_no_base_url(model, servers))

    def _accept_server(self, server: LocalServer) -> bool:
        """Ask the person whether a server on this machine may be used."""
        return self._ask_to_use(
            f"No key is set, but {server.model} is running on port {server.port}."
        )

    def _ask_to_use(self, found: str) -> bool:
        screen = self.terminal.screen
        screen.write_line(found)
        screen.write_verbatim("Use it? [Y/n] ")
        answer = read_stdin_line()
        screen.forget_line()
        return answer is not None and answer.lower() in ("", "y", "yes")

    def open_folder(self, folder: Path) -> ProjectFolder:
        """The project of a session's folder; the person is asked about it once."""
        project = self.agent.project
        if folder.resolve() == project.snapshot.folder:
            return project
        return open_trusted(folder, self.trust)

    def open_journal(self) -> OpenedJournal:
        """The journal of the settings; it is created if it does not exist."""
        return open_journal(journal_name(self.agent.settings))

    def show_tools_to_person(self, session: AgentSession) -> None:
        """Check the answers of the person by the tools of the agent from now on."""
        if self.terminal.question_prompt is not None:
            preview = partial(preview_call, parts_of(session.agent))
            self.terminal.question_prompt.use_tools(session.toolbox.specs, preview)

    @asynccontextmanager
    async def open_session(
        self, journal: Journal, approver: Approver | None = None
    ) -> AsyncGenerator[AgentSession]:
        """Build the agent. Its questions go to the person at the terminal, if there is one.

        `approver` answers in their place.
        """
        approver = approver or self.terminal.question_prompt
        async with self.agent.open_session(journal, approver) as session:
            self.show_tools_to_person(session)
            screen = self.terminal.screen
            for name, reason in session.mcp_failures.items():
                message = f"continuing without the MCP server {name}: {reason}"
                screen.write_line(message, TROUBLE, mark=screen.glyphs.trouble)
            yield session


def load_context(
    flags: Mapping[str, object],
    *,
    schema: dict[str, Any] | None = None,
    output_format: OutputFormat = "text",
    quiet: bool = False,
    trust: bool | None = None,
    page: TextIO | None = None,
) -> CommandContext:
    """The context of the current folder, with the flags of the command line.

    `page` replaces standard output. Raises FolderNotTrusted if the project here is not trusted and
    there is no person to ask.
    """
    agent = load_agent(flags, schema=schema, project=open_trusted(trust=trust))
    terminal = open_terminal(
        output_format=output_format,
        quiet=quiet,
        thinking=agent.settings.thinking,
        page=page,
        notify_by=agent.settings.notify,
    )
    return CommandContext(agent, terminal, trust)
