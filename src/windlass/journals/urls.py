"""Open a journal by its name: a path, or a URL.

sessions.db, sqlite:sessions.db    a SQLite file, which is created if it does not exist
memory:, :memory:                  a journal in memory, which ends with the process
postgresql://user@host/database    a Postgres database
"""

from pathlib import Path, PurePath

from windlass.core.errors import ConfigError
from windlass.core.suggestions import suggest_names
from windlass.journals.memory import MemoryJournal
from windlass.journals.postgres.journal import PostgresJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.ports import Journal

SCHEMES = ("memory", "sqlite", "postgresql")
POSTGRES_SCHEMES = ("postgresql", "postgres")
MEMORY_NAMES = ("memory:", "memory://", ":memory:", "sqlite::memory:")


def open_journal(name: str | PurePath) -> Journal:
    """Open the journal that a path or a URL names. The caller closes it.

    Raises ConfigError if the name is empty or its scheme is not known, and what the journal itself
    raises if it cannot be opened.
    """
    text = str(name)
    if not text.strip():
        raise ConfigError("journal='' names no journal: give a path such as 'sessions.db'")
    if text in MEMORY_NAMES:
        return MemoryJournal()
    scheme, colon, rest = text.partition(":")
    # A single letter is a drive of Windows.
    if not colon or len(scheme) == 1 or "/" in scheme or isinstance(name, PurePath):
        return _open_file(Path(text))
    if scheme in POSTGRES_SCHEMES:
        return PostgresJournal(text)
    if scheme in ("sqlite", "file"):
        return _open_file(Path(rest.removeprefix("//")))
    raise ConfigError(
        f"journal={text!r}: there is no journal of kind {scheme!r}.{suggest_names(scheme, SCHEMES)}"
        " Give a path, memory: or postgresql://…"
    )


def _open_file(path: Path) -> Journal:
    path = path.expanduser()
    if not path.parent.is_dir():
        raise ConfigError(
            f"journal={str(path)!r}: there is no folder {path.parent}. "
            "Create it, or give another path."
        )
    return SqliteJournal(path)
