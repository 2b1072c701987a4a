"""Whether the files of a journal are still the ones that its connection has open.

A connection keeps writing to a file that was deleted or replaced, and SQLite reports no error. So
the writer looks before each transaction, and again before it reports the transaction as done.
"""

import os
import time
from contextlib import suppress
from pathlib import Path

import apsw

from windlass.core.errors import JournalFailed
from windlass.private_files import has_reserved_files
from windlass.sqlite_file import SqliteConnection, open_connection

LOG_HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
"""SQLite's file format: the log is a header and frames; a frame is a header and a page."""
LOOKS_AT_A_SHORT_LOG = 3
LOOK_INTERVAL_S = 0.01
CLOSING_BUSY_MS = 200
"""How long a journal that is closed waits for others, to empty its log."""
_FileId = tuple[int, int]


class OpenFiles:
    """The database and the write-ahead log of one connection."""

    def __init__(self, path: Path, connection: SqliteConnection) -> None:
        """Remember the files at `path`, which the connection has just opened and read."""
        self._path = path
        self._connection = connection
        # SQLite names the log after the file itself, not after a link to it.
        self._log = f"{path.resolve()}-wal"
        self._database_size = 0
        self._log_size = 0
        self._database_id: _FileId | None = None
        self._log_id: _FileId | None = None
        self.lost_log = False
        """Whether the log at the path is another one than the connections of the journal have."""
        self.check()

    def check(self) -> None:
        """Raise JournalFailed unless both are the files at their paths, and are whole."""
        self._check_database()
        self.check_log()

    def remember_sizes(self) -> None:
        """Note how long the files are, after the connection itself has made them shorter."""
        self._database_size = os.stat(self._path).st_size  # noqa: PTH116 - as elsewhere here
        self._log_size = os.stat(self._log).st_size  # noqa: PTH116 - as above

    def _check_database(self) -> None:
        try:
            found = os.stat(self._path)  # noqa: PTH116 - this is done for each append
        except OSError:
            raise self._failure(
                "the file was deleted or moved away while it was in use",
                "put it and its log back, or open another journal; what was written to it is lost "
                "otherwise",
            ) from None
        found_id = (found.st_dev, found.st_ino)
        if self._database_id is None:
            self._database_id = found_id
        if found_id != self._database_id:
            raise self._failure(
                "the file was replaced by another one while it was in use",
                "put the first one back, or open the journal again to go on with the new one",
            )
        if found.st_size < self._database_size and not self._is_whole():
            raise self._failure(
                "the file was truncated while it was in use", "restore it from a backup"
            )
        self._database_size = found.st_size

    def _is_whole(self) -> bool:
        """Whether a file that became smaller is sound: another program may have vacuumed it."""
        try:
            # SQLite takes an empty file for a new database, and deletes the log next to it.
            if not os.stat(self._path).st_size:  # noqa: PTH116 - as above
                return False
            # A new connection, because the writer's would answer from its cache.
            connection = open_connection(self._path)
            try:
                return connection.execute("PRAGMA quick_check(1)").get == "ok"
            finally:
                connection.close()
        except (apsw.Error, OSError):
            return False

    def check_log(self) -> None:
        """Raise JournalFailed unless the log is the file at its path, and is whole."""
        try:
            found = os.stat(self._log)  # noqa: PTH116 - this is done for each append
        except OSError:
            # If the file is gone as well, what the log held can be saved nowhere.
            self._check_database()
            is_saved = self._save_log()
            raise self._failure(
                f"its log {self._log} was deleted while it was in use",
                "close the journal and open it again; what was confirmed before is in the file"
                if is_saved
                else "what only the log held is lost: restore the journal from a backup",
            ) from None
        found_id = (found.st_dev, found.st_ino)
        if self._log_id is None:
            self._log_id = found_id
        if found_id != self._log_id:
            self._lose_log()
            raise self._failure(
                f"its log {self._log} was replaced while it was in use",
                "stop the program that did it, close the journal and open it again",
            )
        if found.st_size < self._log_size and self._is_log_short():
            self._lose_log()
            raise self._failure(
                f"its log {self._log} was truncated while it was in use",
                "stop the program that did it, and restore the journal from a backup",
            )
        self._log_size = found.st_size

    def _is_log_short(self) -> bool:
        """Whether the log ends before its last frame. A checkpoint may truncate it rightly."""
        page_bytes: int = self._connection.execute("PRAGMA page_size").get
        for _ in range(LOOKS_AT_A_SHORT_LOG):
            _, frames, _ = next(iter(self._connection.execute("PRAGMA wal_checkpoint(NOOP)")))
            needed = LOG_HEADER_BYTES + frames * (FRAME_HEADER_BYTES + page_bytes)
            if not frames or os.stat(self._log).st_size >= needed:  # noqa: PTH116 - as above
                return False
            # Another process may have emptied the log between the two looks.
            time.sleep(LOOK_INTERVAL_S)
        return True

    def _save_log(self) -> bool:
        """Move what is in the deleted log, which this connection still has, into the database.

        Returns whether all of it is there now.
        """
        try:
            busy, frames, saved = next(
                iter(self._connection.execute("PRAGMA wal_checkpoint(FULL)"))
            )
        except apsw.Error:
            self._lose_log()
            return False
        return not busy and frames == saved

    def _lose_log(self) -> None:
        """Note that closing must not write pages of our log to the database, or delete the log."""
        self.lost_log = True
        keep_log_on_close(self._connection)

    def _failure(self, what: str, what_to_do: str) -> JournalFailed:
        return JournalFailed(
            f"journal {self._path}: {what}, so nothing more is written to it; {what_to_do}"
        )


def keep_side_files(connection: SqliteConnection, path: Path) -> bool:
    """Let the log stay when a connection closes, if a sandbox may hide it; returns whether it does.

    A mount that hides a file is gone when the file is deleted, and then a command that still runs
    could make its own log, which SQLite would believe. All records are moved into the database
    first, so the log that stays is empty.
    """
    if not has_reserved_files(path):
        return False
    # Another process may be reading: then the log stays as it is, and nothing is lost.
    with suppress(apsw.Error):
        connection.set_busy_timeout(CLOSING_BUSY_MS)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    keep_log_on_close(connection)
    return True


def keep_log_on_close(connection: SqliteConnection) -> None:
    """Let a connection neither write to the database nor delete the log when it closes."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
