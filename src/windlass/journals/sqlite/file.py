"""The SQLite file: its tables, how it is opened, and its troubles in words.

Opening is the same whether the file is new, old, or was left by a process that was killed while it
made it: whatever steps are missing are taken, all in one transaction.
"""

import os
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import apsw

from windlass.core.errors import ConfigError, ForOperator, JournalFailed


class SqliteRows(Protocol):
    """What a statement gives."""

    @property
    def get(self) -> Any:  # noqa: ANN401 - a value of SQLite
        """The one value of the first row, or None."""
        ...

    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...

    def fetchone(self) -> tuple[Any, ...] | None: ...


class SqliteConnection(Protocol):
    """As much of `apsw.Connection` as is used here: its own types need Python 3.12."""

    @property
    def in_transaction(self) -> bool: ...

    def execute(self, statements: str, bindings: Sequence[Any] = ()) -> SqliteRows: ...

    def set_busy_timeout(self, milliseconds: int) -> None: ...

    def close(self) -> None: ...


Durability = Literal["full", "relaxed"]

APPLICATION_ID = 0x57_4E_44_4C
"""`WNDL`, in the header of the file: tells our files from those of other programs."""
BUSY_MS = 30_000
"""How long to wait while another process writes."""
RETRY_INTERVAL_S = 0.005

STEPS = (
    # Records lie in the order in which they came: a group of many sessions fills a few pages. Kept
    # together by session, each append would write a page of its own, at four times the cost.
    """
    CREATE TABLE sessions (
        number INTEGER PRIMARY KEY,
        session TEXT NOT NULL UNIQUE,
        head BLOB NOT NULL,
        title TEXT NOT NULL,
        created REAL NOT NULL,
        updated REAL NOT NULL,
        facts INTEGER NOT NULL,
        runs INTEGER NOT NULL,
        steps INTEGER NOT NULL,
        outcome TEXT,
        proposed INTEGER NOT NULL,
        asked INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE records (
        arrival INTEGER PRIMARY KEY,
        number INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        body TEXT NOT NULL,
        hash BLOB NOT NULL,
        UNIQUE (number, seq)
    ) STRICT;
    CREATE TABLE blobs (hash TEXT PRIMARY KEY, data BLOB NOT NULL) STRICT;
    CREATE TABLE uses (
        hash TEXT NOT NULL,
        number INTEGER NOT NULL,
        PRIMARY KEY (hash, number)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX uses_by_session ON uses (number);
    """,
    # A list of sessions reads as many as it shows. Of the shared budgets, a pool is what its
    # shares come to; money is text, since no number of SQLite's is exact.
    """
    CREATE INDEX sessions_by_time ON sessions (updated);
    CREATE INDEX sessions_left_open ON sessions (updated) WHERE outcome IS NULL;
    CREATE TABLE pools (
        budget TEXT NOT NULL,
        period TEXT NOT NULL,
        usd TEXT NOT NULL,
        tokens INTEGER NOT NULL,
        PRIMARY KEY (budget, period)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE shares (
        session TEXT NOT NULL,
        run INTEGER NOT NULL,
        budget TEXT NOT NULL,
        period TEXT NOT NULL,
        usd TEXT NOT NULL,
        tokens INTEGER NOT NULL,
        PRIMARY KEY (session, run, budget)
    ) STRICT, WITHOUT ROWID;
    """,
)
"""Each step brings a file to the next version; a new file starts at version 0."""

_ERROR_TEXTS: tuple[tuple[type[apsw.Error], str], ...] = (
    (apsw.FullError, "the disk is full; make room, then resume"),
    (apsw.ReadOnlyError, "the file is read-only; make it writable, or name another file"),
    (apsw.BusyError, "another program has held it for too long; stop that one, then resume"),
    (apsw.CorruptError, "the file is damaged; restore it from a copy"),
    (apsw.NotADBError, "the file is no SQLite database; name another file"),
    (apsw.CantOpenError, "the file cannot be opened; check that its folder can be written"),
    (apsw.IOError, "the disk failed; mend it, then resume"),
)


def sqlite_error(path: Path, error: Exception) -> JournalFailed:
    """What went wrong with the file, and what to do, in a line."""
    words = next((words for kind, words in _ERROR_TEXTS if isinstance(error, kind)), "it failed")
    return JournalFailed(f"journal {path}: {words} ({error})")


def open_writer(path: Path, durability: Durability) -> SqliteConnection:
    """Open the file for writing; make it, its folder and its tables where they are missing."""
    _create_file(path)
    try:
        file = open_connection(path, durability)
        try:
            _read_schema_version(file, path)  # A file that is not ours is left as it is.
            _enable_wal(file)
            _migrate_schema(file, path)
        except BaseException:
            file.close()
            raise
        return file
    except apsw.NotADBError as error:
        msg = f"journal {path}: the file is no SQLite database; name another file"
        raise ConfigError(msg) from error
    except apsw.Error as error:
        raise sqlite_error(path, error) from error


def _enable_wal(file: SqliteConnection) -> None:
    """Switch to WAL; SQLite itself does not wait here for a process that does the same."""
    ends = time.monotonic() + BUSY_MS / 1000
    while True:
        try:
            file.execute("PRAGMA journal_mode = WAL")
        except apsw.BusyError:
            if time.monotonic() > ends:
                raise
            time.sleep(RETRY_INTERVAL_S)
        else:
            return


def open_connection(path: Path, durability: Durability = "full") -> SqliteConnection:
    opened = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    file = cast("SqliteConnection", opened)
    file.set_busy_timeout(BUSY_MS)
    file.execute(f"PRAGMA synchronous = {'FULL' if durability == 'full' else 'NORMAL'}")
    return file


@contextmanager
def write_transaction(file: SqliteConnection) -> Generator[None]:
    """One transaction, whole or not at all. It waits for other processes first, never midway."""
    _rollback_leftover(file)
    file.execute("BEGIN IMMEDIATE")
    try:
        yield
        file.execute("COMMIT")
    except BaseException:
        # If even this fails, the next transaction tries again before it begins.
        with suppress(apsw.Error):
            _rollback_leftover(file)
        raise


@contextmanager
def read_transaction(file: SqliteConnection) -> Generator[None]:
    """All that is read inside was true at one moment."""
    _rollback_leftover(file)
    file.execute("BEGIN")
    try:
        yield
    finally:
        with suppress(apsw.Error):
            _rollback_leftover(file)


def _rollback_leftover(file: SqliteConnection) -> None:
    if file.in_transaction:
        file.execute("ROLLBACK")


def _create_file(path: Path) -> None:
    """Sessions are private: the file is made for its owner only."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise _creation_error(path, error) from error


def _creation_error(path: Path, error: OSError) -> ForOperator:
    match error:
        case IsADirectoryError():
            return ConfigError(f"journal {path}: this is a folder; name a file in it")
        case NotADirectoryError() | FileExistsError():
            return ConfigError(f"journal {path}: its folder is a file; name another place")
        case PermissionError():
            what = "the file is read-only" if path.exists() else "its folder cannot be written"
            return JournalFailed(f"journal {path}: {what}; change that, or name another file")
        case _:
            return JournalFailed(f"journal {path}: it cannot be made: {error.strerror}")


def _migrate_schema(file: SqliteConnection, path: Path) -> None:
    if _read_schema_version(file, path) == len(STEPS):
        return
    with write_transaction(file):
        # Another process may have been faster.
        for step in STEPS[_read_schema_version(file, path) :]:
            file.execute(step)
        file.execute(f"PRAGMA user_version = {len(STEPS)}")
        file.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def _read_schema_version(file: SqliteConnection, path: Path) -> int:
    version = file.execute("PRAGMA user_version").get
    owner = file.execute("PRAGMA application_id").get
    if owner != APPLICATION_ID and file.execute("SELECT count(*) FROM sqlite_schema").get:
        msg = f"journal {path}: this database belongs to another program; name another file"
        raise ConfigError(msg)
    if version > len(STEPS):
        versions = f"its version is {version}, this one knows {len(STEPS)}"
        msg = f"journal {path}: it was made by a newer Windlass; upgrade this one ({versions})"
        raise JournalFailed(msg)
    return version
