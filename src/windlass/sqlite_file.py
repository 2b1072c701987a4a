"""A SQLite file of Windlass: how it is opened, migrated and used. Journals and knowledge share it.

Invariant: opening is the same whether the file is new, old, or was left behind by a process that
was killed while creating it. The missing steps are taken, all in one transaction. A database of
another program or of another format is refused and left untouched.

One file may hold a journal and knowledge. Each is a `TableSet` with its own steps and version.
"""

import errno
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import apsw

from windlass.core.errors import ConfigError, ForOperator
from windlass.private_files import (
    APPLICATION_ID,
    make_private_folder,
    mark_private,
    register_private,
)

Durability = Literal["full", "relaxed"]

BUSY_MS = 30_000
"""How long to wait while another process writes."""
RETRY_INTERVAL_S = 0.005

_ERROR_TEXTS: tuple[tuple[type[apsw.Error], str], ...] = (
    (apsw.FullError, "the disk is full; free some space and try again"),
    (apsw.ReadOnlyError, "the file is read-only; make it writable, or name another file"),
    (apsw.BusyError, "another program has locked it for too long; stop that one and try again"),
    (apsw.CorruptError, "the file is damaged; restore it from a backup"),
    (apsw.NotADBError, "the file is not a SQLite database; name another file"),
    (apsw.CantOpenError, "the file cannot be opened; check that its folder is writable"),
    (apsw.IOError, "the disk failed; repair it and try again"),
)
_ERRNO_TEXTS = {
    errno.ENOSPC: "the disk is full; free some space and try again",
    errno.EDQUOT: "the disk quota is used up; free some space and try again",
    errno.EFBIG: (
        "the file has reached the file-size limit of this process; raise the limit "
        "(`ulimit -f`, RLIMIT_FSIZE) and try again"
    ),
    errno.EROFS: "the disk is mounted read-only; mount it for writing, or name another file",
}
"""Causes that SQLite reports as a disk that failed. They come before the texts above."""


class SqliteRows(Protocol):
    """The rows that a statement returns."""

    @property
    def get(self) -> Any:  # noqa: ANN401 - a value of SQLite
        """The only value of the first row, or None without a row."""
        ...

    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...

    def fetchone(self) -> tuple[Any, ...] | None: ...


class SqliteConnection(Protocol):
    """The part of `apsw.Connection` that Windlass uses: apsw's own types need Python 3.12."""

    @property
    def in_transaction(self) -> bool: ...

    @property
    def system_errno(self) -> int: ...

    def execute(self, statements: str, bindings: Sequence[Any] = ()) -> SqliteRows: ...

    def executemany(self, statements: str, bindings: Iterable[Sequence[Any]]) -> SqliteRows: ...

    def set_busy_timeout(self, milliseconds: int) -> None: ...

    def config(self, option: int, value: int, /) -> int: ...

    def close(self, *, force: bool = False) -> None: ...


@dataclass(frozen=True, slots=True)
class TableSet:
    """The tables of one part of Windlass in a file, and how its errors are raised."""

    noun: str
    """What the file is called in errors: `journal`, `knowledge`."""
    failure: Callable[[str], ForOperator]
    """The error class for a file that could be used but failed."""
    steps: Sequence[str]
    """Each step brings the tables to the next version; a new file starts at version 0."""
    version_table: str = ""
    """The table that holds the version. Empty: SQLite's `user_version`, which is the journal's."""
    upgrade_table: str = ""
    """A table of names and values with the steps that were taken, as `schema`.

    Programs of an older version refuse a higher `user_version`. Those of the version before can use
    the tables: it stays theirs until `finish_upgrade`. A new file is finished from the beginning.
    """
    page_bytes: int = 4_096
    """The size of the pages of a new file. One that exists keeps its own."""

    def make_error(self, path: Path, error: Exception) -> ForOperator:
        """What went wrong with the file and what to do about it, in one line."""
        texts = (text for kind, text in _ERROR_TEXTS if isinstance(error, kind))
        text = _ERRNO_TEXTS.get(getattr(error, "system_errno", 0)) or next(
            texts, "SQLite reported an error"
        )
        return self.failure(f"{self.noun} {path}: {text} ({error})")


def open_database(
    path: Path, tables: TableSet, registry: Path, durability: Durability = "full"
) -> SqliteConnection:
    """Open a file for writing; create it, its folder and its tables where they are missing.

    `registry`: the folder in which other processes of this user see that the file is private.
    Raises ConfigError for a path that cannot be a file of ours, and the failure of the table set
    for a file that could be but cannot be used now.
    """
    mark_private(path)
    _create_file(path, tables)
    register_private(path, registry)
    try:
        connection = open_connection(path, durability)
        try:
            _read_version(connection, path, tables)  # Refuses a file that is not ours.
            connection.execute(f"PRAGMA page_size = {tables.page_bytes}")
            # Of a new file: free pages can be given back without writing the whole file again.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            if not connection.execute("PRAGMA application_id").get:
                # Before there is a log: the file itself says from its first byte whose it is, so
                # that no command of another process writes into it (`private_files.py`).
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            _enable_wal(connection)
            _migrate_tables(connection, path, tables)
        except BaseException as error:
            _note_cause(connection, error)
            connection.close()
            raise
        return connection
    except apsw.NotADBError as error:
        msg = f"{tables.noun} {path}: the file is not a SQLite database; name another file"
        raise ConfigError(msg) from error
    except apsw.Error as error:
        raise tables.make_error(path, error) from error


def open_connection(path: Path, durability: Durability = "full") -> SqliteConnection:
    """A new connection to a file that exists. Raises apsw.Error."""
    opened = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    connection = cast("SqliteConnection", opened)
    connection.set_busy_timeout(BUSY_MS)
    connection.execute(f"PRAGMA synchronous = {'FULL' if durability == 'full' else 'NORMAL'}")
    # What is deleted is overwritten, so that its bytes are not found in free space.
    connection.execute("PRAGMA secure_delete = ON")
    return connection


@contextmanager
def write_transaction(connection: SqliteConnection) -> Generator[None]:
    """One transaction, all or nothing. It waits for other writers before it starts, not midway."""
    _rollback_leftover(connection)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException as error:
        _note_cause(connection, error)
        # If the rollback fails too, the next transaction tries again before it begins.
        with suppress(apsw.Error):
            _rollback_leftover(connection)
        raise


@contextmanager
def read_transaction(connection: SqliteConnection) -> Generator[None]:
    """All statements inside see the file as it was at one moment."""
    _rollback_leftover(connection)
    connection.execute("BEGIN")
    try:
        yield
    except apsw.Error as error:
        _note_cause(connection, error)
        raise
    finally:
        with suppress(apsw.Error):
            _rollback_leftover(connection)


def _note_cause(connection: SqliteConnection, error: BaseException) -> None:
    """Keep the error number of the system: SQLite's own code does not say why a disk failed."""
    if isinstance(error, apsw.IOError) and not hasattr(error, "system_errno"):
        setattr(error, "system_errno", connection.system_errno)  # noqa: B010 - not in apsw's types


def _rollback_leftover(connection: SqliteConnection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _create_file(path: Path, tables: TableSet) -> None:
    try:
        make_private_folder(path.parent)
        if not path.exists():
            # Sessions and notes are private: only the owner may read the file.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        # Never open a file that exists: closing it would drop the locks that SQLite holds on it
        # for other connections of this process.
        elif path.is_dir():
            raise IsADirectoryError
        elif not os.access(path, os.R_OK | os.W_OK):
            raise PermissionError
    except OSError as error:
        raise _creation_error(path, tables, error) from error


def _creation_error(path: Path, tables: TableSet, error: OSError) -> ForOperator:
    match error:
        case IsADirectoryError():
            return ConfigError(f"{tables.noun} {path}: this is a folder; name a file in it")
        case NotADirectoryError() | FileExistsError():
            return ConfigError(f"{tables.noun} {path}: its folder is a file; name another place")
        case PermissionError():
            what = "the file is read-only" if path.exists() else "its folder is not writable"
            return tables.failure(
                f"{tables.noun} {path}: {what}; change that, or name another file"
            )
        case _:
            return tables.failure(f"{tables.noun} {path}: it cannot be created: {error.strerror}")


def _enable_wal(connection: SqliteConnection) -> None:
    """Switch to WAL. Here SQLite does not wait for another process that does the same."""
    deadline = time.monotonic() + BUSY_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_INTERVAL_S)
        else:
            return


def _migrate_tables(connection: SqliteConnection, path: Path, tables: TableSet) -> None:
    if _read_version(connection, path, tables) >= len(tables.steps):
        return
    with write_transaction(connection):
        # Read again: another process may have migrated the file while this one waited.
        version = _read_version(connection, path, tables)
        for step in tables.steps[version:]:
            connection.execute(step)
        final = len(tables.steps)
        if version and tables.upgrade_table:
            # Programs of the version before can use the tables, but those of earlier ones cannot.
            final -= 1
        _write_version(connection, tables, final)
        if tables.upgrade_table and _has_table(connection, tables.upgrade_table):
            note = f"INSERT OR REPLACE INTO {tables.upgrade_table} VALUES ('schema', ?)"  # noqa: S608
            connection.execute(note, (str(len(tables.steps)),))
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def _write_version(connection: SqliteConnection, tables: TableSet, version: int) -> None:
    table = tables.version_table
    if not table:
        connection.execute(f"PRAGMA user_version = {version}")
        return
    connection.execute(f"CREATE TABLE IF NOT EXISTS {table} (version INTEGER NOT NULL)")
    connection.execute(f"DELETE FROM {table}")  # noqa: S608 - the name is a constant of ours
    connection.execute(f"INSERT INTO {table} VALUES ({version})")  # noqa: S608 - so is this


def _read_version(connection: SqliteConnection, path: Path, tables: TableSet) -> int:
    """The version of the tables, 0 if there are none yet. Refuses files of another format."""
    owner = connection.execute("PRAGMA application_id").get
    if owner != APPLICATION_ID and connection.execute("SELECT count(*) FROM sqlite_schema").get:
        msg = f"{tables.noun} {path}: this database belongs to another program; name another file"
        raise ConfigError(msg)
    version = _stored_version(connection, tables.version_table)
    taken = _taken_steps(connection, tables.upgrade_table)
    if version > len(tables.steps):
        raise tables.failure(
            f"{tables.noun} {path}: its format is version {version}, and this Windlass knows "
            f"{len(tables.steps)}; use the Windlass that made it, or name another file"
        )
    return max(version, taken)


def _taken_steps(connection: SqliteConnection, table: str) -> int:
    if not table or not _has_table(connection, table):
        return 0
    query = f"SELECT value FROM {table} WHERE name = 'schema'"  # noqa: S608 - a constant
    return int(connection.execute(query).get or 0)


def is_upgrade_finished(connection: SqliteConnection, tables: TableSet) -> bool:
    """Whether no program of an older version uses the file any more."""
    return connection.execute("PRAGMA user_version").get >= len(tables.steps)


def finish_upgrade(connection: SqliteConnection, tables: TableSet) -> None:
    """Let programs of older versions refuse the file from now on. Call it in a transaction."""
    if not is_upgrade_finished(connection, tables):
        _write_version(connection, tables, len(tables.steps))


def _stored_version(connection: SqliteConnection, table: str) -> int:
    if not table:
        return connection.execute("PRAGMA user_version").get
    if not _has_table(connection, table):
        return 0
    return connection.execute(f"SELECT version FROM {table}").get  # noqa: S608 - a constant


def _has_table(connection: SqliteConnection, table: str) -> bool:
    query = "SELECT count(*) FROM sqlite_schema WHERE name = ?"
    return bool(connection.execute(query, (table,)).get)
