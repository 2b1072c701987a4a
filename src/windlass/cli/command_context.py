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
from windlass.cli.terminal import typed_line
from windlass.cli.terminal_run import Stage
from windlass.core.errors import ConfigError, JournalFailed
from windlass.core.fold.run import fold
from windlass.environ import environment
from windlass.journals.memory import MemoryJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.models.resolve import resolve
from windlass.ports import Journal
from windlass.project.agents import Rig, rigged
from windlass.project.files import journal_path, settings
from windlass.project.launches import Launch, launch_of, recorded
from windlass.project.layers import Loaded
from windlass.project.local_servers import Nearby, choose
from windlass.project.settings import Settings


@dataclass(frozen=True, slots=True)
class Desk:
    """Everything but the model's first word."""

    loaded: Loaded
    folder: Path
    schema: dict[str, Any] | None = None

    @property
    def settings(self) -> Settings:
        return self.loaded.settings

    @property
    def launch(self) -> Launch:
        return launch_of(self.settings, self.folder, self.schema)

    def with_model(self, screen: Screen, *, ask: bool, say: bool = True) -> "Desk":
        """The same, with a model at all events; what was chosen is said."""
        if self.settings.model:
            return self

        def accept(server: Nearby) -> bool:
            screen.line(f"No key is set, but {server.model} answers on port {server.port}.")
            screen.verbatim("Ask it? [Y/n] ")
            said = typed_line()
            screen.typed()
            return said is not None and said.lower() in ("", "y", "yes")

        choice = choose(environment(self.folder), self.folder, accept if ask else None)
        if say:
            screen.line(f"model {choice.model}: {choice.note}", QUIET, mark=screen.glyphs.progress)
        chosen = msgspec.structs.replace(self.settings, model=choice.model)
        return replace(self, loaded=replace(self.loaded, settings=chosen))

    def check_model(self) -> None:
        """Raise ConfigError if the model cannot be asked: no such provider, or no key."""
        resolve(self.settings.model, environ=environment(self.folder))

    @asynccontextmanager
    async def rig(self, stage: Stage, journal: Journal) -> AsyncGenerator[Rig]:
        """The agent, whose questions go to whoever sits at the stage."""
        made = rigged(
            self.settings,
            folder=self.folder,
            journal=journal,
            approver=stage.asker,
            schema=self.schema,
        )
        async with made as rig:
            if stage.asker is not None:
                stage.asker.specs = {spec.name: spec for spec in rig.toolbox.specs}
            for name, why in rig.failures.items():
                told = f"goes on without the MCP server {name}: {why}"
                stage.screen.line(told, TROUBLE, mark=stage.screen.glyphs.trouble)
            yield rig


def desk_for(
    flags: Mapping[str, object], folder: Path | None = None, schema: dict[str, Any] | None = None
) -> Desk:
    """The desk of a folder, with what was given on the command line."""
    here = (folder or Path.cwd()).absolute()
    return Desk(settings(flags, folder=here), here, schema)


async def desk_of(journal: Journal, session: str, flags: Mapping[str, object]) -> Desk:
    """The desk that a session was started at, as far as it is known and not given anew."""
    facts = await journal.read(session)
    launch = recorded(facts)
    if launch is not None:
        return _again(launch, session, flags)
    # Some other program began it; what is known is whom it asked.
    asked = fold(session, facts).setup
    return desk_for({"model": asked.model.name, **flags} if asked else flags)


def _again(launch: Launch, session: str, flags: Mapping[str, object]) -> Desk:
    folder = Path(launch.folder)
    if not folder.is_dir():
        raise ConfigError(f"session {session} worked in {folder}, which is gone")
    return desk_for({**launch.flags, **flags}, folder, launch.schema)


@contextmanager
def open_journal(given: Settings) -> Generator[SqliteJournal]:
    """The journal that keeps the sessions; raises ConfigError if its file cannot be opened."""
    path = Path(given.journal) if given.journal else journal_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        told = f"journal {path}: {error.strerror}. Name another with WINDLASS_JOURNAL=FILE."
        raise JournalFailed(told) from None
    with SqliteJournal(path) as journal:
        yield journal


def memory() -> Journal:
    return MemoryJournal()


def person() -> str:
    """Who answers and asks: the name of the login, if there is one."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""
