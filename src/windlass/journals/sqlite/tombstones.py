"""Tombstones in an SQLite file, and how the bytes of what was deleted leave it."""

import time

from windlass.journals.session_rows import SessionEnd
from windlass.journals.sqlite.anchors import AnchorBook
from windlass.journals.tombstones import KIND, hash_without_key, make_tombstone, read_tombstone
from windlass.ports.records import Tombstone
from windlass.sqlite_file import SqliteConnection

SCRUB_TRIES = 50
SCRUB_WAIT_S = 0.1
"""How often, and how long apart, the log is tried to be emptied while others read."""
_FIRST_HASH = "SELECT hash FROM records WHERE number = ? AND seq = 1"
_PUT = "INSERT OR REPLACE INTO shared_records VALUES (?, ?, ?, ?, ?)"
_NEXT_VERSION = """UPDATE meta SET value = CAST(value AS INTEGER) + 1 WHERE name = 'record_version'
    RETURNING CAST(value AS INTEGER)"""


def bury_session(
    connection: SqliteConnection, end: SessionEnd, book: AnchorBook | None, *, erase: bool
) -> None:
    """Write the tombstones of a session. Call it in the transaction that deletes it."""
    first: bytes | None = connection.execute(_FIRST_HASH, (end.number,)).get
    if first is not None:
        write_tombstone(connection, end.summary.session, book, erase=erase)
        write_tombstone(connection, first, book, erase=erase)


def write_tombstone(
    connection: SqliteConnection, value: str | bytes, book: AnchorBook | None, *, erase: bool
) -> None:
    """Write a tombstone under the hash of a value. Call it in a transaction."""
    name = _hash_value(connection, book, value)
    data = make_tombstone(erased=erase)
    values = (KIND, name, connection.execute(_NEXT_VERSION).get, data)
    signature = "" if book is None else book.sign_record(*values)
    connection.execute(_PUT, (*values, signature))


def find_tombstone(
    connection: SqliteConnection, value: str | bytes, book: AnchorBook | None
) -> Tombstone | None:
    """Return the tombstone of a session, by its name or the hash of its first record.

    One that was not signed with the user's key does not count.
    """
    name = _hash_value(connection, book, value)
    row = connection.execute(
        "SELECT version, data, signature FROM shared_records WHERE kind = ? AND name = ?",
        (KIND, name),
    ).fetchone()
    if row is None:
        return None
    version, data, signature = row
    if book is not None and not book.is_genuine_record(signature, KIND, name, version, data):
        return None
    return read_tombstone(data)


def _hash_value(connection: SqliteConnection, book: AnchorBook | None, value: str | bytes) -> str:
    if book is not None:
        return book.hash_value(value)
    journal: str = connection.execute("SELECT value FROM meta WHERE name = 'journal'").get
    return hash_without_key(journal, value)


def scrub_file(connection: SqliteConnection) -> bool:
    """Shorten the file by its free pages, and empty the log; return whether the log is empty.

    Free pages are zeros already, because the writer deletes with `secure_delete`. The log still has
    the pages as they were before. Call it outside a transaction.
    """
    for _ in connection.execute("PRAGMA incremental_vacuum"):
        pass
    for _ in range(SCRUB_TRIES):
        busy, left, _ = next(iter(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")))
        if not busy and not left:
            return True
        # A reader still needs what is in the log.
        time.sleep(SCRUB_WAIT_S)
    return False
