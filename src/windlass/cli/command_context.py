"""What a command needs before it can drive a run: its settings, its folder, its journal, a model.

async with desk.rig(stage) as rig: …
"""

import getpass
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from windlass.cli.renderer import QUIET, TROUBLE
from windlass.cli.screen import Screen
from windlass.cli.terminal import read_stdin_line
from windlass.cli.terminal_run import TerminalRun
from windlass.core.errors import ConfigError, JournalFailed
from windlass.core.fold.run import fold
from windlass.environ import read_environment
from windlass.journals.memory import MemoryJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.models.resolve import resolve_model
from windlass.ports import Journal
from windlass.project.agents import AgentSession, open_agent
from windlass.project.files import default_journal_path, load_settings
from windlass.project.launches import SessionLaunch, build_launch, last_launch
from windlass.project.layers import LoadedSettings
from windlass.project.local_servers import LocalServer, choose_model
from windlass.project.settings import Settings


@dataclass(frozen=True, slots=True)
class CommandContext:
    """Everything but the model's first word."""

    loaded: LoadedSettings
    folder: Path
    schema: dict[str, Any] | None = None

    @property
    def settings(self) -> Settings:
        return self.loaded.settings

    @property
    def launch(self) -> SessionLaunch:
        return build_launch(self.settings, self.folder, self.schema)

    def choose_model(
        self, screen: Screen, *, ask_person: bool, show_choice: bool = True
    ) -> "CommandContext":
        """The same, with a model at all events; what was chosen is said."""
        if self.settings.model:
            return self

        def accept(server: LocalServer) -> bool:
            screen.write_line(f"No key is set, but {server.model} answers on port {server.port}.")
            screen.write_verbatim("Ask it? [Y/n] ")
            said = read_stdin_line()
            screen.forget_line()
            return said is not None and said.lower() in ("", "y", "yes")

        choice = choose_model(
            read_environment(self.folder), self.folder, accept if ask_person else None
        )
        if show_choice:
            screen.write_line(
                f"model {choice.model}: {choice.note}", QUIET, mark=screen.glyphs.progress
            )
        chosen = msgspec.structs.replace(self.settings, model=choice.model)
        return replace(self, loaded=replace(self.loaded, settings=chosen))

    def check_model(self) -> None:
        """Raise ConfigError if the model cannot be asked: no such provider, or no key."""
        resolve_model(self.settings.model, environ=read_environment(self.folder))

    @asynccontextmanager
    async def open_agent(
        self, terminal: TerminalRun, journal: Journal
    ) -> AsyncGenerator[AgentSession]:
        """The agent, whose questions go to whoever sits at the stage."""
        made = open_agent(
            self.settings,
            folder=self.folder,
            journal=journal,
            approver=terminal.question_prompt,
            schema=self.schema,
        )
        async with made as rig:
            if terminal.question_prompt is not None:
                terminal.question_prompt.specs = {spec.name: spec for spec in rig.toolbox.specs}
            for name, why in rig.mcp_failures.items():
                told = f"goes on without the MCP server {name}: {why}"
                terminal.screen.write_line(told, TROUBLE, mark=terminal.screen.glyphs.trouble)
            yield rig


def load_context(
    flags: Mapping[str, object], folder: Path | None = None, schema: dict[str, Any] | None = None
) -> CommandContext:
    """The desk of a folder, with what was given on the command line."""
    here = (folder or Path.cwd()).absolute()
    return CommandContext(load_settings(flags, folder=here), here, schema)


async def load_session_context(
    journal: Journal, session: str, flags: Mapping[str, object]
) -> CommandContext:
    """The desk that a session was started at, as far as it is known and not given anew."""
    facts = await journal.read(session)
    launch = last_launch(facts)
    if launch is not None:
        return _restore_context(launch, session, flags)
    # Some other program began it; what is known is whom it asked.
    asked = fold(session, facts).setup
    return load_context({"model": asked.model.name, **flags} if asked else flags)


def _restore_context(
    launch: SessionLaunch, session: str, flags: Mapping[str, object]
) -> CommandContext:
    folder = Path(launch.folder)
    if not folder.is_dir():
        raise ConfigError(f"session {session} worked in {folder}, which is gone")
    return load_context({**launch.flags, **flags}, folder, launch.schema)


@contextmanager
def open_journal(settings: Settings) -> Generator[SqliteJournal]:
    """The journal that keeps the sessions; raises ConfigError if its file cannot be opened."""
    path = Path(settings.journal) if settings.journal else default_journal_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        told = f"journal {path}: {error.strerror}. Name another with WINDLASS_JOURNAL=FILE."
        raise JournalFailed(told) from None
    with SqliteJournal(path) as journal:
        yield journal


def memory_journal() -> Journal:
    return MemoryJournal()


def login_name() -> str:
    """Who answers and asks: the name of the login, if there is one."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""
