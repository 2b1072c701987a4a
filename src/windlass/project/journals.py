"""The journal that keeps the sessions: which one it is, and how it is opened.

A journal is named by a path or a URL. The strongest layer that names one decides: a flag, then
`WINDLASS_JOURNAL`, then the user's settings, then those of a project that is trusted.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol, runtime_checkable

from windlass.core.errors import ConfigError, JournalFailed
from windlass.environ import read_process_environment
from windlass.journals.saved_journal import SavedJournal
from windlass.journals.service_keys import ServiceKeys
from windlass.journals.upgrades import UpgradeStatus
from windlass.journals.urls import open_journal as open_by_name
from windlass.journals.wording import parse_journal_name, resolve_journal_name
from windlass.ports import Journal
from windlass.private_files import make_private_folder
from windlass.project.files import load_settings
from windlass.project.settings import Settings


class ManagedJournal(Journal, Protocol):
    """A journal with all that the command line does with one, wherever it keeps the sessions."""

    async def check(self) -> list[str]:
        """Return what is wrong with the journal as a whole, in words."""
        ...


@runtime_checkable
class UpgradableJournal(Protocol):
    """A journal that older versions may share until its upgrade is finished."""

    async def upgrade_status(self) -> UpgradeStatus:
        """Return how far the upgrade is."""
        ...

    async def migrate(
        self,
        *,
        finish: bool = False,
        limit: int | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> UpgradeStatus:
        """Bring sessions up to date; with `finish`, older versions refuse the journal.

        `limit` ends it after about so many sessions, and `on_progress` is called with their number.
        """
        ...


@runtime_checkable
class AnchoredJournal(Protocol):
    """A journal that notices when it was rolled back, moved or changed by others."""

    async def accept(self) -> None:
        """Take the journal as it is for genuine."""
        ...


@runtime_checkable
class SavableJournal(Protocol):
    """A journal that can be saved while it is in use."""

    async def save(self, target: Path) -> SavedJournal:
        """Save the journal to a new file, and check every record of it."""
        ...

    async def load(self, backup: Path) -> SavedJournal:
        """Load a backup into this journal, which must be empty."""
        ...


@runtime_checkable
class KeyedJournal(Protocol):
    """A journal that many machines share, and whose answers and records a service can sign."""

    @property
    def is_signed(self) -> bool:
        """Whether answers and records count only if a service signed them."""
        ...

    async def sign_records(self, *, accept: bool = False) -> int:
        """Sign the records again with the present key; returns how many."""
        ...


def describe_unsigned(journal: Journal) -> str | None:
    """Return a line that says that answers are unsigned; None if they are signed, or in a file."""
    if not isinstance(journal, KeyedJournal) or journal.is_signed:
        return None
    return (
        "answers, tokens, schedules, webhooks and quotas in this journal are unsigned: a login of "
        "the database can forge them. Make a key with `windlass key new FILE`"
    )


def journal_name(settings: Settings | None = None, *, named: str | None = None) -> str:
    """The path or URL of the journal: the one that is named, or the settings', or the user's own.

    The settings of the current folder are read if none are given and none is named. Raises
    ConfigError if it is not a name of a journal.
    """
    if not named:
        settings = settings or load_settings().settings
        named = settings.journal
    if not named:
        return default_journal_name()
    return resolve_journal_name(named, str(Path.cwd()))


def default_journal_name(environ: Mapping[str, str] | None = None) -> str:
    """The path or URL of the journal if no setting names one."""
    if environ is None:
        environ = read_process_environment()
    named = environ.get("WINDLASS_JOURNAL", "")
    if named:
        return resolve_journal_name(named, str(Path.cwd()))
    data = Path(environ.get("XDG_DATA_HOME", ""))
    if not data.is_absolute():
        # The XDG specification says to ignore a path that is not absolute.
        data = Path.home() / ".local" / "share"
    return str(data / "windlass" / "sessions.db")


def journal_exists(name: str | os.PathLike[str]) -> bool:
    """Whether there is such a journal. For a server, only using it shows that."""
    parsed = parse_journal_name(os.fspath(name))
    return parsed.kind != "sqlite" or Path(parsed.location).exists()


def require_folder(name: str) -> None:
    """Raise ConfigError if a journal is a file in a folder that is not there: a slip, mostly."""
    parsed = parse_journal_name(resolve_journal_name(name, str(Path.cwd())))
    if parsed.kind == "sqlite" and not (folder := Path(parsed.location).parent).exists():
        raise ConfigError(
            f"--journal {parsed.shown}: there is no folder {folder}. Correct the path, or add "
            "--create to make it."
        )


class OpenedJournal:
    """A journal that is open for as long as a `with` or an `async with` block lasts."""

    def __init__(self, journal: ManagedJournal) -> None:
        self._journal = journal

    def __enter__(self) -> ManagedJournal:
        return self._journal

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._journal.close()

    async def __aenter__(self) -> ManagedJournal:
        return self._journal

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._journal.aclose()


def open_journal(name: str | os.PathLike[str], keys: ServiceKeys | None = None) -> OpenedJournal:
    """Open a journal for as long as the block lasts, and create it if it does not exist.

    `keys`: what a Postgres journal signs and verifies with; by default, as the environment says.
    Raises JournalFailed if the folder of a file cannot be created, and ConfigError or JournalFailed
    if it cannot be opened.
    """
    parsed = parse_journal_name(os.fspath(name))
    try:
        if parsed.kind == "sqlite":
            make_private_folder(Path(parsed.location).parent)
    except OSError as error:
        raise JournalFailed(
            f"cannot create the folder of the journal {parsed.shown}: {error.strerror}. "
            "Name another file with WINDLASS_JOURNAL=PATH or --journal PATH."
        ) from None
    return OpenedJournal(open_by_name(parsed.location, keys=keys))


def open_existing_journal(
    name: str | os.PathLike[str], keys: ServiceKeys | None = None
) -> OpenedJournal:
    """Open a journal that must exist; raises ConfigError if it does not."""
    parsed = parse_journal_name(os.fspath(name))
    if not journal_exists(name):
        raise ConfigError(f"there is no journal {parsed.shown}. Name another one with --journal.")
    return OpenedJournal(open_by_name(parsed.location, keys=keys))
