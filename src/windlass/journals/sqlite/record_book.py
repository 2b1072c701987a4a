"""Which version of each shared record is the last one, signed, so that an old row is not used.

A row that was deleted keeps its signature: put back, it would count again, such as a token that was
revoked. The book of records names the last version of each record that gives a right. It is signed,
and how often it has changed is remembered outside the file.
"""

from collections.abc import Iterator

import msgspec

from windlass.journals.record_rules import ANCHORED_KINDS
from windlass.journals.signing import JournalKey, JournalMark
from windlass.ports.records import SharedRecord
from windlass.sqlite_file import SqliteConnection

OLDER_RECORDS = (
    "the tokens, schedules and webhooks of this journal are older than they were, or signed with "
    "another key; if you restored or moved the journal, run `windlass sessions verify --accept`"
)
READ_BOOK = "SELECT value FROM meta WHERE name = 'records'"
_WRITE = "INSERT OR REPLACE INTO meta VALUES ('records', ?)"
_ALL = "SELECT kind, name, version FROM shared_records"


class RecordVersions(msgspec.Struct, frozen=True):
    """The last version of each record, by kind and name."""

    count: int = 0
    """How often it has changed."""
    versions: dict[str, dict[str, int]] = {}
    signature: str = ""


class RecordBook:
    """The versions of the shared records of one file, with the key of the user."""

    def __init__(self, key: JournalKey, journal: str) -> None:
        self._key = key
        self._journal = journal
        self._mark_name = f"{journal} records"
        self._written = JournalMark()
        """What the change under way has written: only its own transaction makes it durable."""
        self._marked = 0

    def last_count(self) -> int:
        """Return how often the book has changed, as it is remembered outside the file.

        Ask before a row is read: then a change that comes meanwhile is not taken for a loss.
        """
        mark = self._key.read_mark(self._mark_name)
        return max(self._marked, mark.count if mark else 0)

    def is_current(self, record: SharedRecord, text: str | None, last: int) -> bool:
        """Whether a row is the last version of its record, as far as that is kept of its kind.

        `text` is the book, read in one statement with the row, and `last` what was known before.
        """
        if record.kind not in ANCHORED_KINDS:
            return True
        book = self._decode(text, last)
        return book is not None and book.versions.get(record.kind, {}).get(record.name) == (
            record.version
        )

    def note_version(
        self, connection: SqliteConnection, kind: str, name: str, version: int | None
    ) -> None:
        """Note that a record was written, or deleted. Call it in the same transaction.

        A book that is not genuine stays as it is, so that a change by others is not covered up.
        """
        if kind not in ANCHORED_KINDS:
            return
        book = self._decode(connection.execute(READ_BOOK).get, self.last_count())
        if book is None:
            return
        versions = {each: dict(names) for each, names in book.versions.items()}
        names = versions.setdefault(kind, {})
        if version is None:
            names.pop(name, None)
        else:
            names[name] = version
        self._write(connection, book.count + 1, versions)

    def accept(self, connection: SqliteConnection) -> None:
        """Take the rows as they are for the last ones. Call it in a transaction."""
        versions: dict[str, dict[str, int]] = {}
        for kind, name, version in connection.execute(_ALL):
            if kind in ANCHORED_KINDS:
                versions.setdefault(kind, {})[name] = version
        self._write(connection, self.last_count() + 1, versions)

    def begin_change(self) -> None:
        """Begin a change of the file, in the thread of the writer."""
        self._written = JournalMark()

    def end_change(self) -> JournalMark:
        """Return what the change wrote, to `remember` once it is durable."""
        return self._written

    def remember(self, mark: JournalMark) -> None:
        """Remember the book outside the file, once the change that wrote it is durable.

        Never sooner: if the process died before, the file would be taken for an older one, and its
        records would not be used.
        """
        if mark.count > self._marked:
            self._marked = mark.count
            self._key.write_mark(self._mark_name, mark)

    def find_problems(self, connection: SqliteConnection) -> Iterator[str]:
        """Yield which records were put back or removed by another program, in words."""
        book = self._decode(connection.execute(READ_BOOK).get, self.last_count())
        if book is None:
            yield OLDER_RECORDS
            return
        rows = {
            (kind, name): version
            for kind, name, version in connection.execute(_ALL)
            if kind in ANCHORED_KINDS
        }
        known = {
            (kind, name): version
            for kind, names in book.versions.items()
            for name, version in names.items()
        }
        for kind, name in sorted(rows.keys() | known.keys()):
            place = (kind, name)
            if place not in rows:
                yield f"{kind} {name!r} was removed by another program"
            elif rows[place] != known.get(place):
                yield f"{kind} {name!r} was put back by another program, and is not used"

    def _decode(self, text: str | None, last: int) -> RecordVersions | None:
        """Return the book; None if it is not genuine, or older than it was."""
        if text is None:
            return None if last else RecordVersions()
        try:
            book = msgspec.json.decode(text, type=RecordVersions)
        except msgspec.MsgspecError:
            return None
        is_genuine = self._key.is_valid(book.signature, "records", self._journal, *_signed(book))
        return book if is_genuine and book.count >= last else None

    def _write(
        self, connection: SqliteConnection, count: int, versions: dict[str, dict[str, int]]
    ) -> None:
        book = RecordVersions(count, versions)
        signature = self._key.sign("records", self._journal, *_signed(book))
        signed = msgspec.structs.replace(book, signature=signature)
        connection.execute(_WRITE, (msgspec.json.encode(signed).decode(),))
        self._written = JournalMark(count, signature)


def _signed(book: RecordVersions) -> tuple[object, ...]:
    kinds = sorted((kind, sorted(names.items())) for kind, names in book.versions.items())
    return (book.count, kinds)
