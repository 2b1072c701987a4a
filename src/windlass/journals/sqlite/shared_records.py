"""Shared records in an SQLite file, each signed with the user's key.

What can write the file of a journal could make itself a token for the service. So a record that
was not written with the key is never used, nor an old one that was put back (`record_book.py`).
"""

from abc import ABC
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from windlass.journals.record_rules import (
    check_record_data,
    check_record_key,
    clamp_page,
    forged_record_error,
    old_record_error,
    record_conflict_error,
)
from windlass.journals.signing import JournalMark
from windlass.journals.sqlite.anchors import AnchorBook
from windlass.journals.sqlite.mailbox import SqliteMailbox
from windlass.journals.sqlite.record_book import READ_BOOK
from windlass.ports.records import SharedRecord
from windlass.sqlite_file import SqliteConnection

T = TypeVar("T")
_COLUMNS = "kind, name, version, data, signature"
_PUT = "INSERT OR REPLACE INTO shared_records VALUES (?, ?, ?, ?, ?)"
_FIND = f"""SELECT {_COLUMNS}, ({READ_BOOK}) FROM shared_records
    WHERE kind = ? AND name = ?"""  # noqa: S608 - our own text
_LIST = f"""SELECT {_COLUMNS}, ({READ_BOOK}) FROM shared_records WHERE kind = ? AND name > ?
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
        last = self._last_count()
        row = connection.execute(_FIND, (kind, name)).fetchone()
        return None if row is None else self._read_row(row, last)

    def list_records(
        self, connection: SqliteConnection, kind: str, after: str, limit: int
    ) -> Sequence[SharedRecord]:
        """Return the records of a kind after a name; raises JournalCorrupt for a forged one."""
        last = self._last_count()
        rows = connection.execute(_LIST, (kind, after, limit))
        return [self._read_row(row, last) for row in rows]

    def put_record(
        self, connection: SqliteConnection, kind: str, name: str, data: bytes, version: int
    ) -> SharedRecord:
        """Replace a record, in the transaction of the writer."""
        row = connection.execute(_FIND, (kind, name)).fetchone()
        if (0 if row is None else row[2]) != version:
            raise record_conflict_error(kind, name, version)
        record = SharedRecord(kind, name, connection.execute(_NEXT_VERSION).get, data)
        self._write_record(connection, record)
        if self._book is not None:
            self._book.records.note_version(connection, kind, name, record.version)
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
        if self._book is not None:
            self._book.records.note_version(connection, kind, name, None)
        return True

    def sign_all(self, connection: SqliteConnection) -> None:
        """Take all records as they are for genuine. Call it in a transaction."""
        rows = connection.execute(f"SELECT {_COLUMNS} FROM shared_records")  # noqa: S608 - ours
        for kind, name, version, data, _ in list(rows):
            self._write_record(connection, SharedRecord(kind, name, version, data))
        if self._book is not None:
            self._book.records.accept(connection)

    def make_change(
        self, connection: SqliteConnection, work: Callable[[SqliteConnection], T]
    ) -> tuple[T, JournalMark]:
        """Change records in the transaction of the writer; return the mark to `remember` as well.

        The writer may be at a later change by the time that this one's caller continues, so the
        mark is taken here.
        """
        if self._book is None:
            return work(connection), JournalMark()
        self._book.records.begin_change()
        return work(connection), self._book.records.end_change()

    def remember(self, mark: JournalMark) -> None:
        """Remember outside the file which records are the last ones, after a change."""
        if self._book is not None:
            self._book.records.remember(mark)

    def _write_record(self, connection: SqliteConnection, record: SharedRecord) -> None:
        signature = "" if self._book is None else self._book.sign_record(*_values(record))
        connection.execute(_PUT, (*_values(record), signature))

    def _last_count(self) -> int:
        return 0 if self._book is None else self._book.records.last_count()

    def _read_row(self, row: Sequence[Any], last: int) -> SharedRecord:
        kind, name, version, data, signature, versions = row
        record = SharedRecord(kind, name, version, data)
        book = self._book
        if book is None:
            return record
        if not book.is_genuine_record(signature, *_values(record)):
            raise forged_record_error(self._location, kind, name)
        if not book.records.is_current(record, versions, last):
            raise old_record_error(self._location, kind, name)
        return record


def _values(record: SharedRecord) -> tuple[str, str, int, bytes]:
    return (record.kind, record.name, record.version, record.data)


class SqliteRecordStore(SqliteMailbox, ABC):
    """Keeps the shared records of a file."""

    _records: RecordTable

    async def get_record(self, kind: str, name: str) -> SharedRecord | None:
        """Return a shared record; raises JournalCorrupt if it is not signed with the user's key."""
        check_record_key(kind, name)
        return await self._run_query(lambda file: self._records.get_record(file, kind, name))

    async def put_record(self, kind: str, name: str, data: bytes, version: int) -> SharedRecord:
        """Replace the shared record with this version; raises RecordConflict if it has another."""
        check_record_key(kind, name)
        check_record_data(kind, name, data)
        return await self._change_records(
            lambda file: self._records.put_record(file, kind, name, data, version)
        )

    async def delete_record(self, kind: str, name: str, version: int | None = None) -> bool:
        """Delete a shared record. Returns whether there was one."""
        check_record_key(kind, name)
        return await self._change_records(
            lambda file: self._records.delete_record(file, kind, name, version)
        )

    async def _change_records(self, work: Callable[[SqliteConnection], T]) -> T:
        changed, mark = await self._submit_change(
            lambda file: self._records.make_change(file, work)
        )
        self._records.remember(mark)
        return changed

    async def list_records(
        self, kind: str, after: str = "", limit: int = 100
    ) -> Sequence[SharedRecord]:
        """Return the shared records of a kind after a name, in the order of names."""
        check_record_key(kind, after or "first")
        return await self._run_query(
            lambda file: self._records.list_records(file, kind, after, clamp_page(limit))
        )
