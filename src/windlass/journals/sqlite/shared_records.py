"""Shared records in an SQLite file, each signed with the user's key.

What can write the file of a journal could make itself a token for the service. So a record that
was not written with the key is never used.
"""

from collections.abc import Sequence
from typing import Any

from windlass.journals.record_rules import forged_record_error, record_conflict_error
from windlass.journals.sqlite.anchors import AnchorBook
from windlass.ports import SharedRecord
from windlass.sqlite_file import SqliteConnection

_COLUMNS = "kind, name, version, data, signature"
_PUT = "INSERT OR REPLACE INTO shared_records VALUES (?, ?, ?, ?, ?)"
_FIND = f"SELECT {_COLUMNS} FROM shared_records WHERE kind = ? AND name = ?"  # noqa: S608 - our own text
_LIST = f"""SELECT {_COLUMNS} FROM shared_records WHERE kind = ? AND name > ?
    ORDER BY name LIMIT ?"""  # noqa: S608 - our own text
_NEXT_VERSION = """UPDATE meta SET value = CAST(value AS INTEGER) + 1 WHERE name = 'record_version'
    RETURNING CAST(value AS INTEGER)"""


class RecordTable:
    """The shared records of one file."""

    def __init__(self, location: str, book: AnchorBook | None) -> None:
        self._location = location
        self._book = book

    def get_record(self, connection: SqliteConnection, kind: str, name: str) -> SharedRecord | None:
        """Return a record; raises JournalCorrupt if it was not written with the key."""
        row = connection.execute(_FIND, (kind, name)).fetchone()
        return None if row is None else self._read_row(row)

    def list_records(
        self, connection: SqliteConnection, kind: str, after: str, limit: int
    ) -> Sequence[SharedRecord]:
        """Return the records of a kind after a name; raises JournalCorrupt for a forged one."""
        rows = connection.execute(_LIST, (kind, after, limit))
        return [self._read_row(row) for row in rows]

    def put_record(
        self, connection: SqliteConnection, kind: str, name: str, data: bytes, version: int
    ) -> SharedRecord:
        """Replace a record, in the transaction of the writer."""
        row = connection.execute(_FIND, (kind, name)).fetchone()
        if (0 if row is None else row[2]) != version:
            raise record_conflict_error(kind, name, version)
        record = SharedRecord(kind, name, connection.execute(_NEXT_VERSION).get, data)
        self._write_record(connection, record)
        return record

    def delete_record(
        self, connection: SqliteConnection, kind: str, name: str, version: int | None
    ) -> bool:
        """Delete a record, forged or not. Returns whether there was one."""
        row = connection.execute(_FIND, (kind, name)).fetchone()
        if row is None:
            return False
        if version is not None and row[2] != version:
            raise record_conflict_error(kind, name, version)
        connection.execute("DELETE FROM shared_records WHERE kind = ? AND name = ?", (kind, name))
        return True

    def sign_all(self, connection: SqliteConnection) -> None:
        """Take all records as they are for genuine. Call it in a transaction."""
        rows = connection.execute(f"SELECT {_COLUMNS} FROM shared_records")  # noqa: S608 - ours
        for kind, name, version, data, _ in list(rows):
            self._write_record(connection, SharedRecord(kind, name, version, data))

    def _write_record(self, connection: SqliteConnection, record: SharedRecord) -> None:
        signature = "" if self._book is None else self._book.sign_record(*_values(record))
        connection.execute(_PUT, (*_values(record), signature))

    def _read_row(self, row: Sequence[Any]) -> SharedRecord:
        kind, name, version, data, signature = row
        record = SharedRecord(kind, name, version, data)
        if self._book is None or self._book.is_genuine_record(signature, *_values(record)):
            return record
        raise forged_record_error(self._location, kind, name)


def _values(record: SharedRecord) -> tuple[str, str, int, bytes]:
    return (record.kind, record.name, record.version, record.data)
