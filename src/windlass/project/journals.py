"""The journal that keeps the sessions: which file it is, and how it is opened."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from windlass.core.errors import ConfigError, JournalFailed
from windlass.environ import read_process_environment
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.project.files import load_settings
from windlass.project.settings import Settings


def journal_path(settings: Settings | None = None, *, named: str | None = None) -> Path:
    """The file of the journal: the one that is named, or the settings', or the user's own.

    The settings of the current folder are read if none are given and none is named.
    """
    if not named:
        settings = settings or load_settings().settings
        named = settings.journal
    if not named:
        return default_journal_path()
    return Path(named).expanduser()


def default_journal_path(environ: Mapping[str, str] | None = None) -> Path:
    """The file that keeps the sessions if no setting names one."""
    if environ is None:
        environ = read_process_environment()
    named = environ.get("WINDLASS_JOURNAL", "")
    if named:
        return Path(named).expanduser()
    data = Path(environ.get("XDG_DATA_HOME", ""))
    if not data.is_absolute():
        # The XDG specification says to ignore a path that is not absolute.
        data = Path.home() / ".local" / "share"
    return data / "windlass" / "sessions.db"


@contextmanager
def open_journal(path: Path) -> Generator[SqliteJournal]:
    """Open a journal for as long as the block lasts, and create it if it does not exist.

    Raises JournalFailed if its folder cannot be created, and ConfigError or JournalFailed if the
    file cannot be opened.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise JournalFailed(
            f"cannot create the folder of the journal {path}: {error.strerror}. "
            "Name another file with WINDLASS_JOURNAL=FILE or --journal FILE."
        ) from None
    with SqliteJournal(path) as journal:
        yield journal


@contextmanager
def open_existing_journal(path: Path) -> Generator[SqliteJournal]:
    """Open a journal that must exist; raises ConfigError if it does not."""
    if not path.exists():
        raise ConfigError(f"there is no journal {path}. Name another one with --journal.")
    with SqliteJournal(path) as journal:
        yield journal
