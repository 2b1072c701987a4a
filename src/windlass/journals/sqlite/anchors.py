"""Anchors: signed ends of sessions, so that records cannot be added or taken away unnoticed.

An anchor is the hash of a record, signed with the user's key. It is written with every answer of a
person, and whenever the state of a session changes. All anchors of a file add up to a total, which
is signed too, and remembered outside of the file.

The law: only what this process wrote itself is signed. A total that does not verify is left as it
is, so that a change by others is never covered up by the next append.
"""

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from windlass.core.events import CallAnswered, SessionImported
from windlass.journals.chain import RecordProblem
from windlass.journals.signing import JournalKey, JournalMark
from windlass.sqlite_file import SqliteConnection

MARK_INTERVAL_S = 5.0
"""How often the total is remembered outside of the file, at most."""
_TOTAL_BITS = 256
_ANSWERED = str(CallAnswered.__struct_config__.tag)
_IMPORTED = str(SessionImported.__struct_config__.tag)
_BOOK = "SELECT value FROM meta WHERE name = 'anchors'"


class NewAnchor(NamedTuple):
    """A record to anchor."""

    session: str
    seq: int
    head: bytes
    at: float


class _Book(msgspec.Struct, frozen=True):
    """The row about all anchors of a file."""

    count: int = 0
    total: str = "0"
    signature: str = ""


class AnchorBook:
    """The anchors of one file, for whoever has the key."""

    def __init__(self, key: JournalKey, journal: str) -> None:
        self._key = key
        self._journal = journal
        self._marked_at = 0.0
        self._last = JournalMark()

    @classmethod
    def open(cls, connection: SqliteConnection, key: JournalKey | None) -> "AnchorBook | None":
        """Return the book of a file; None without a key."""
        journal = connection.execute("SELECT value FROM meta WHERE name = 'journal'").get
        return cls(key, journal) if key is not None and journal else None

    def sign_letter(self, *values: object) -> str:
        """Return the signature of a message in the mailbox."""
        return self._key.sign("letter", self._journal, *values)

    def is_genuine_letter(self, signature: str, *values: object) -> bool:
        """Whether a message was signed with the user's key, and not changed since."""
        return self._key.is_valid(signature, "letter", self._journal, *values)

    def sign_record(self, *values: object) -> str:
        """Return the signature of a shared record."""
        return self._key.sign("record", self._journal, *values)

    def is_genuine_record(self, signature: str, *values: object) -> bool:
        """Whether a shared record was signed with the user's key, and not changed since."""
        return self._key.is_valid(signature, "record", self._journal, *values)

    def write_anchors(self, connection: SqliteConnection, anchors: Iterable[NewAnchor]) -> None:
        """Write anchors, and what they add up to. Call it in the transaction of the records."""
        added = 0
        for anchor in anchors:
            signature = self._sign(anchor.session, anchor.seq, anchor.head)
            connection.execute(
                "INSERT OR IGNORE INTO anchors VALUES (?, ?, ?, ?, ?)", (*anchor, signature)
            )
            if connection.execute("SELECT changes()").get:
                added += int(signature, 16)
        self._change_total(connection, added)

    def forget_session(self, connection: SqliteConnection, session: str) -> None:
        """Remove the anchors of a session that is deleted."""
        rows = connection.execute("SELECT signature FROM anchors WHERE session = ?", (session,))
        removed = sum(_number(row[0]) for row in list(rows))
        connection.execute("DELETE FROM anchors WHERE session = ?", (session,))
        self._change_total(connection, -removed)

    def _sign(self, session: str, seq: int, head: bytes) -> str:
        return self._key.sign("anchor", self._journal, session, seq, head)

    def _change_total(self, connection: SqliteConnection, change: int) -> None:
        if not change:
            return
        book = self._read_book(connection)
        if book is None or not self._is_valid(book):
            return
        total = (int(book.total, 16) + change) % 2**_TOTAL_BITS
        self._write_book(connection, book.count + 1, f"{total:x}")

    def _read_book(self, connection: SqliteConnection) -> _Book | None:
        text = connection.execute(_BOOK).get
        if text is None:
            # It begins with the first anchor, unless it is known that there were some already.
            is_new = self._key.read_mark(self._journal) is None
            return self._sign_book(0, "0") if is_new else None
        try:
            return msgspec.json.decode(text, type=_Book)
        except msgspec.MsgspecError:
            return None

    def _sign_book(self, count: int, total: str) -> _Book:
        return _Book(count, total, self._key.sign("book", self._journal, count, total))

    def _is_valid(self, book: _Book) -> bool:
        return self._key.is_valid(book.signature, "book", self._journal, book.count, book.total)

    def _write_book(self, connection: SqliteConnection, count: int, total: str) -> None:
        text = msgspec.json.encode(self._sign_book(count, total)).decode()
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('anchors', ?)", (text,))
        self._last = JournalMark(count, total)

    def remember(self, *, now: bool = False) -> None:
        """Remember the total outside of the file, if that was not done a moment ago."""
        moment = time.monotonic()
        if self._last.count and (now or moment - self._marked_at > MARK_INTERVAL_S):
            self._marked_at = moment
            self._key.write_mark(self._journal, self._last)

    def find_problems(self, connection: SqliteConnection) -> list[str]:
        """Return what is wrong with the anchors of the file as a whole, in words."""
        book = self._read_book(connection)
        mark = self._key.read_mark(self._journal)
        if book is None or not self._is_valid(book):
            problem = (
                "the anchors of this journal were removed, or signed with another key; if you "
                "moved the journal here yourself, run `windlass sessions verify --accept`"
            )
            return [problem]
        signatures = connection.execute("SELECT signature FROM anchors")
        total = sum(_number(row[0]) for row in signatures) % 2**_TOTAL_BITS
        problems: list[str] = []
        if f"{total:x}" != book.total:
            problems.append("anchors of this journal were added or removed by another program")
        if mark is not None and (
            mark.count > book.count or (mark.count == book.count and mark.total != book.total)
        ):
            problems.append(
                "this journal is older than it was: records were taken away, or it was restored "
                "from a backup; if you did that, run `windlass sessions verify --accept`"
            )
        lost = connection.execute(
            """SELECT DISTINCT session FROM anchors WHERE NOT EXISTS
            (SELECT 1 FROM sessions WHERE sessions.session = anchors.session)"""
        )
        problems += [f"session {row[0]!r} was deleted by another program" for row in lost]
        return problems

    def find_session_problems(
        self, connection: SqliteConnection, session: str
    ) -> Iterator[RecordProblem]:
        """Yield what the anchors of a session contradict. The records are not decoded for it."""
        rows = connection.execute(
            "SELECT seq, head, signature FROM anchors WHERE session = ? ORDER BY seq", (session,)
        )
        anchors = {seq: (head, signature) for seq, head, signature in rows}
        if not anchors:
            # Written before the upgrade was finished, or without a key.
            return
        records = connection.execute(
            """SELECT seq, hash, body ->> '$.type' FROM sessions JOIN records USING (number)
            WHERE session = ? ORDER BY seq""",
            (session,),
        )
        hashes: dict[int, bytes] = {}
        answers: list[int] = []
        # Answers before the first anchor are older than the anchors, and those of an imported file
        # are void.
        since = min(anchors)
        for seq, head, tag in records:
            hashes[seq] = head
            if tag == _IMPORTED:
                since = max(since, seq)
            elif tag == _ANSWERED:
                answers.append(seq)
        for seq, (head, signature) in anchors.items():
            if not self._key.is_valid(signature, "anchor", self._journal, session, seq, head):
                yield RecordProblem(seq, "its anchor is not signed with this user's key")
            elif hashes.get(seq) != head:
                yield RecordProblem(seq, "the record that was anchored here was removed or changed")
        for seq in answers:
            if seq > since and seq not in anchors:
                yield RecordProblem(seq, "nobody with the user's key gave this answer")

    def accept(self, connection: SqliteConnection) -> None:
        """Anchor the journal anew as it is now. Call it in a transaction."""
        connection.execute("DELETE FROM anchors")
        at = time.time()
        # Each answer gets an anchor of its own again, like the end of each session.
        rows = connection.execute(
            """SELECT session, seq, hash FROM sessions JOIN records USING (number)
            WHERE seq = facts OR body ->> '$.type' = 'CallAnswered'"""
        )
        total = 0
        for session, seq, head in list(rows):
            signature = self._sign(session, seq, head)
            connection.execute(
                "INSERT INTO anchors VALUES (?, ?, ?, ?, ?)", (session, seq, head, at, signature)
            )
            total += int(signature, 16)
        mark = self._key.read_mark(self._journal) or JournalMark()
        book = self._read_book(connection) or _Book()
        self._write_book(connection, max(mark.count, book.count) + 1, f"{total % 2**_TOTAL_BITS:x}")


def _number(signature: str) -> int:
    try:
        return int(signature, 16)
    except ValueError:
        return 0
