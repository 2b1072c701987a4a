"""Seals and anchors: signed ends of sessions, so that nothing is added or taken away unnoticed.

The hash of a record covers all records before it. A seal is the hash of a session's last record,
signed with the user's key: it is stored in the row of the session, and every append replaces it. An
anchor is a hash that is signed for good. It is written with every answer of a person, and whenever
the state of a session changes, so a session cannot go back to a seal that it had before that.

What anchors and budgets add up to is the book of the file. It is signed too, and remembered
outside the file.

Invariant: only what this process wrote itself is signed. A seal or a book that does not verify is
not renewed by the next append, so that a change by others is never covered up.
"""

import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from windlass.core.events import CallAnswered, SessionImported
from windlass.journals.codec import RecordProblem
from windlass.journals.session_rows import SessionEnd
from windlass.journals.signing import JournalKey, JournalMark
from windlass.journals.sqlite.record_book import RecordBook
from windlass.sqlite_file import SqliteConnection

MARK_INTERVAL_S = 5.0
"""How often the book is remembered outside the file, at most, if no person answers."""
OLDER_JOURNAL = (
    "this journal is older than it was: records were taken away, or it was restored from a backup; "
    "if you did that, run `windlass sessions verify --accept`"
)
_SUM_BITS = 256
_ANSWERED = str(CallAnswered.__struct_config__.tag)
_IMPORTED = str(SessionImported.__struct_config__.tag)
_READ_BOOK = "SELECT value FROM meta WHERE name = 'anchors'"
_INSERT_ANCHOR = "INSERT OR IGNORE INTO anchors VALUES (?, ?, ?, ?, ?)"
_LAST_RECORDS = """SELECT session, seq, hash FROM sessions JOIN records USING (number)
    WHERE seq = (SELECT seq FROM records AS own WHERE own.number = sessions.number
        AND own.body ->> '$.type' <> ?1 ORDER BY seq DESC LIMIT 1)"""
"""The last record of each session that is not an answer."""
_ANSWERS = """SELECT session, seq, hash FROM sessions JOIN records USING (number)
    WHERE body ->> '$.type' = ?1"""

PoolRow = tuple[str, str, str, int]
"""A row of `pools`: the budget, its window, the money and the tokens that are promised."""


class NewAnchor(NamedTuple):
    """A record to anchor."""

    session: str
    seq: int
    head: bytes
    at: float


class _Book(msgspec.Struct, frozen=True):
    """What the signed rows of a file add up to."""

    count: int = 0
    """How often it has changed."""
    total: str = "0"
    """The sum of all anchors."""
    pools: str = "0"
    """The sum over all budgets."""
    signature: str = ""

    def add(self, *, anchors: int = 0, pools: int = 0) -> "_Book":
        return _Book(self.count + 1, _add(self.total, anchors), _add(self.pools, pools))


class AnchorBook:
    """The seals and anchors of one file, for a process that has the key."""

    def __init__(self, key: JournalKey, journal: str) -> None:
        self._key = key
        self._journal = journal
        self.records = RecordBook(key, journal)
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

    def hash_value(self, value: str | bytes) -> str:
        """Return a hash that only the user's key can make, for the name of a tombstone."""
        return self._key.sign("erased", self._journal, value)

    # ── the ends of sessions ─────────────────────────────────────────────────

    def seal_end(self, end: SessionEnd) -> SessionEnd:
        """Return the end with its seal; without one if what it follows was not sealed."""
        if not end.is_genuine:
            return end._replace(seal="")
        return end._replace(seal=self._sign_end(*_sealed_values(end)))

    def is_sealed(self, end: SessionEnd) -> bool:
        """Whether an end that was found in the file was sealed with the user's key."""
        if end.last_link.seq == 0:
            return True
        return self._key.is_valid(end.seal, "end", self._journal, *_sealed_values(end))

    def _sign_end(self, session: str, seq: int, head: bytes) -> str:
        return self._key.sign("end", self._journal, session, seq, head)

    # ── anchors and budgets ──────────────────────────────────────────────────

    def write_anchors(self, connection: SqliteConnection, anchors: Iterable[NewAnchor]) -> None:
        """Write anchors, and what they add up to. Call it in the transaction of the records."""
        self._change_book(connection, anchors=self._insert_anchors(connection, anchors))

    def forget_session(self, connection: SqliteConnection, session: str) -> None:
        """Remove the anchors of a session that is deleted."""
        rows = connection.execute("SELECT signature FROM anchors WHERE session = ?", (session,))
        removed = sum(_number(row[0]) for row in list(rows))
        connection.execute("DELETE FROM anchors WHERE session = ?", (session,))
        self._change_book(connection, anchors=-removed)

    def change_pool(
        self, connection: SqliteConnection, before: PoolRow | None, after: PoolRow
    ) -> None:
        """Note that a budget has another sum. Call it in the transaction that changes it."""
        removed = 0 if before is None else self._pool_number(before)
        self._change_book(connection, pools=self._pool_number(after) - removed)

    def _insert_anchors(self, connection: SqliteConnection, anchors: Iterable[NewAnchor]) -> int:
        """Write anchors; returns the sum of those that were not there yet."""
        added = 0
        for anchor in anchors:
            values = (anchor.session, anchor.seq, anchor.head)
            signature = self._key.sign("anchor", self._journal, *values)
            connection.execute(_INSERT_ANCHOR, (*anchor, signature))
            if connection.execute("SELECT changes()").get:
                added += int(signature, 16)
        return added

    def _pool_number(self, row: PoolRow) -> int:
        return int(self._key.sign("pool", self._journal, *row), 16)

    def _sum_pools(self, connection: SqliteConnection) -> int:
        rows = connection.execute("SELECT budget, period, usd, tokens FROM pools")
        return sum(self._pool_number((row[0], row[1], row[2], row[3])) for row in rows)

    # ── the book ─────────────────────────────────────────────────────────────

    def _change_book(
        self, connection: SqliteConnection, *, anchors: int = 0, pools: int = 0
    ) -> None:
        if not anchors and not pools:
            return
        book = self._read_book(connection)
        if book is not None and self._is_valid(book):
            self._write_book(connection, book.add(anchors=anchors, pools=pools))

    def _read_book(self, connection: SqliteConnection) -> _Book | None:
        text = connection.execute(_READ_BOOK).get
        if text is None:
            # It begins with the first anchor, unless it is known that there were some already.
            is_new = self._key.read_mark(self._journal) is None
            return self._sign_book(_Book()) if is_new else None
        try:
            return msgspec.json.decode(text, type=_Book)
        except msgspec.MsgspecError:
            return None

    def _sign_book(self, book: _Book) -> _Book:
        values = (book.count, book.total, book.pools)
        return msgspec.structs.replace(
            book, signature=self._key.sign("book", self._journal, *values)
        )

    def _is_valid(self, book: _Book) -> bool:
        values = (book.count, book.total, book.pools)
        return self._key.is_valid(book.signature, "book", self._journal, *values)

    def _write_book(self, connection: SqliteConnection, book: _Book) -> None:
        signed = self._sign_book(book)
        text = msgspec.json.encode(signed).decode()
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('anchors', ?)", (text,))
        self._last = JournalMark(signed.count, signed.signature)

    def remember(self, *, now: bool = False) -> None:
        """Remember the book outside the file, if that was not done a moment ago."""
        moment = time.monotonic()
        if self._last.count and (now or moment - self._marked_at > MARK_INTERVAL_S):
            self._marked_at = moment
            self._key.write_mark(self._journal, self._last)

    # ── checking ─────────────────────────────────────────────────────────────

    def find_problems(self, connection: SqliteConnection) -> list[str]:
        """Return what is wrong with the signed rows of the file as a whole, in words."""
        book = self._read_book(connection)
        mark = self._key.read_mark(self._journal)
        if book is None or not self._is_valid(book):
            problem = (
                "the anchors of this journal were removed, or signed with another key; if you "
                "moved the journal here yourself, run `windlass sessions verify --accept`"
            )
            return [problem]
        signatures = connection.execute("SELECT signature FROM anchors")
        problems: list[str] = []
        if _add("0", sum(_number(row[0]) for row in signatures)) != book.total:
            problems.append("anchors of this journal were added or removed by another program")
        if _add("0", self._sum_pools(connection)) != book.pools:
            problems.append("budgets of this journal were changed or emptied by another program")
        if mark is not None and (
            mark.count > book.count
            or (mark.count == book.count and mark.signature != book.signature)
        ):
            problems.append(OLDER_JOURNAL)
        lost = connection.execute(
            """SELECT DISTINCT session FROM anchors WHERE NOT EXISTS
            (SELECT 1 FROM sessions WHERE sessions.session = anchors.session)"""
        )
        problems += [f"session {row[0]!r} was deleted by another program" for row in lost]
        problems += self.records.find_problems(connection)
        return problems

    def is_session_genuine(self, connection: SqliteConnection, end: SessionEnd) -> bool:
        """Whether a session ends as it was left: sealed, and not before its last anchor.

        This costs the same however long the session is.
        """
        query = "SELECT max(seq) FROM anchors WHERE session = ?"
        anchored: int = connection.execute(query, (end.summary.session,)).get or 0
        return self.is_sealed(end) and anchored <= end.last_link.seq

    def find_session_problems(
        self, connection: SqliteConnection, end: SessionEnd
    ) -> Iterator[RecordProblem]:
        """Yield what the signatures of a session contradict. The records are not decoded for it."""
        session = end.summary.session
        rows = connection.execute(
            "SELECT seq, head, signature FROM anchors WHERE session = ? ORDER BY seq", (session,)
        )
        anchors = {seq: (head, signature) for seq, head, signature in rows}
        hashes, answers = _read_hashes(connection, session)
        for seq, (head, signature) in anchors.items():
            if not self._key.is_valid(signature, "anchor", self._journal, session, seq, head):
                yield RecordProblem(seq, "its anchor is not signed with this user's key")
            elif hashes.get(seq) != head:
                yield RecordProblem(seq, "the record that was anchored here was removed or changed")
        first = min(anchors, default=0)
        for seq in answers:
            if seq not in anchors:
                yield RecordProblem(seq, _unsigned_answer(seq, first))
        if not self.is_sealed(end):
            what = "the session does not end as the user's key says: records were added or removed"
            yield RecordProblem(end.last_link.seq, what)

    def accept(self, connection: SqliteConnection) -> None:
        """Sign the journal again as it is now. Call it in a transaction."""
        connection.execute("DELETE FROM anchors")
        at = time.time()
        rows = list(connection.execute(_LAST_RECORDS, (_ANSWERED,)))
        rows += connection.execute(_ANSWERS, (_ANSWERED,))
        anchors = (NewAnchor(row[0], row[1], row[2], at) for row in rows)
        total = self._insert_anchors(connection, anchors)
        ends = connection.execute("SELECT session, facts, head FROM sessions WHERE facts > 0")
        seals = [(self._sign_end(*row), row[0]) for row in ends]
        connection.executemany("UPDATE sessions SET seal = ? WHERE session = ?", seals)
        mark = self._key.read_mark(self._journal) or JournalMark()
        book = self._read_book(connection) or _Book()
        pools = self._sum_pools(connection)
        accepted = _Book(max(mark.count, book.count)).add(anchors=total, pools=pools)
        self._write_book(connection, accepted)


def _sealed_values(end: SessionEnd) -> tuple[str, int, bytes]:
    return end.summary.session, end.last_link.seq, end.last_link.hash


def _read_hashes(connection: SqliteConnection, session: str) -> tuple[dict[int, bytes], list[int]]:
    """Return the hash of each record, and the records that are answers which still count."""
    records: Iterable[tuple[Any, ...]] = connection.execute(
        """SELECT seq, hash, body ->> '$.type' FROM sessions JOIN records USING (number)
        WHERE session = ? ORDER BY seq""",
        (session,),
    )
    hashes: dict[int, bytes] = {}
    answers: list[int] = []
    for seq, head, tag in records:
        hashes[seq] = head
        if tag == _IMPORTED:
            # The answers of an imported file are void.
            answers.clear()
        elif tag == _ANSWERED:
            answers.append(seq)
    return hashes, answers


def _unsigned_answer(seq: int, first_anchor: int) -> str:
    if seq > first_anchor > 0:
        return "nobody with the user's key gave this answer"
    return (
        "this answer is older than the signatures of this journal, and nothing says who gave it; "
        "if you know it, run `windlass sessions verify --accept`"
    )


def _add(total: str, change: int) -> str:
    return f"{(int(total, 16) + change) % 2**_SUM_BITS:x}"


def _number(signature: str) -> int:
    try:
        return int(signature, 16)
    except ValueError:
        return 0
