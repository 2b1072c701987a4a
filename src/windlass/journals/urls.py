"""Open a journal by its name: a path, or a URL. `journals/wording.py` says which there are."""

from pathlib import Path, PurePath

from windlass.core.errors import ConfigError
from windlass.journals.memory import MemoryJournal
from windlass.journals.postgres.journal import PostgresJournal
from windlass.journals.service_keys import ServiceKeys
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.journals.wording import parse_journal_name


def open_journal(
    name: str | PurePath, *, create_folder: bool = False, keys: ServiceKeys | None = None
) -> MemoryJournal | SqliteJournal | PostgresJournal:
    """Open the journal that a path or a URL names. The caller closes it.

    `create_folder`: also create the folder of a file. `keys`: what a Postgres journal signs and
    verifies with; by default, as the environment says. Raises ConfigError if the name is empty or
    its scheme is not known, and what the journal itself raises if it cannot be opened.
    """
    parsed = parse_journal_name(name)
    match parsed.kind:
        case "memory":
            return MemoryJournal()
        case "postgres":
            return PostgresJournal(parsed.location, keys=keys)
        case "sqlite":
            return _open_file(Path(parsed.location), create_folder=create_folder)


def _open_file(path: Path, *, create_folder: bool) -> SqliteJournal:
    if not create_folder and not path.parent.is_dir():
        raise ConfigError(
            f"journal={str(path)!r}: there is no folder {path.parent}. "
            "Create it, or pass another path."
        )
    return SqliteJournal(path)
