"""The rows of sessions in an SQLite file: how they are read and written."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

from windlass.core.events import Fact
from windlass.journals.codec import (
    BlobFetcher,
    ChainLink,
    RecordProblem,
    chain_root,
    check_blob,
    walk_chain,
)
from windlass.journals.session_rows import (
    CHANGING_COLUMNS,
    COUNTER_COLUMNS,
    SESSION_COLUMNS,
    SessionEnd,
    counter_values,
)
from windlass.journals.upgrades import VERSION
from windlass.sqlite_file import SqliteConnection

STATEMENT_ROWS_MAX = 1_000
"""Rows in one statement; SQLite accepts 32,766 values, and a row has at most 25."""

SELECT_SESSION = f"SELECT {SESSION_COLUMNS}, number, seal FROM sessions"  # noqa: S608 - our own names
FIND_SESSION = f"{SELECT_SESSION} WHERE session = ?"
_INSERT_SESSION = f"INSERT INTO sessions ({SESSION_COLUMNS}, number, seal) VALUES "  # noqa: S608 - as above
_SESSION_VALUES = f"({', '.join('?' * (SESSION_COLUMNS.count(',') + 3))})"
_OR_UPDATE_SESSION = " ON CONFLICT (number) DO UPDATE SET " + ", ".join(
    f"{column} = excluded.{column}" for column in (*CHANGING_COLUMNS, "seal")
)
_MOVED_COLUMNS = ("head", "facts", "seal", "version", *COUNTER_COLUMNS)
_MOVE_ENDS = f"WITH moved (number, {', '.join(_MOVED_COLUMNS)}) AS (VALUES "
_MOVED_VALUES = f"({', '.join('?' * (len(_MOVED_COLUMNS) + 1))})"
_MOVES = ", ".join(f"{name} = moved.{name}" for name in _MOVED_COLUMNS)
_OF_SESSIONS = f") UPDATE sessions SET {_MOVES} FROM moved WHERE sessions.number = moved.number"  # noqa: S608 - our own names
_TAKE_MAIL = "WITH new (number, mail, prompts) AS (VALUES "
_BY_SESSIONS = """) UPDATE sessions SET mail_taken = max(mail_taken, new.mail),
    prompts_taken = max(prompts_taken, new.prompts) FROM new WHERE sessions.number = new.number"""


def session_end_from_row(row: Sequence[Any]) -> SessionEnd:
    """Read the end of a session from a row of SELECT_SESSION."""
    *columns, number, seal = row
    return SessionEnd.from_row(columns, number, seal)


def read_end(connection: SqliteConnection, session: str) -> SessionEnd | None:
    """Return the end of a session; None if its row is missing."""
    row = connection.execute(FIND_SESSION, (session,)).fetchone()
    return None if row is None else session_end_from_row(row)


def walk_records(
    connection: SqliteConnection, end: SessionEnd, after: int
) -> Iterator[Fact | RecordProblem]:
    """Yield the facts of a session after a number, each checked against the chain."""
    rows = connection.execute(
        """SELECT seq, CAST(body AS BLOB), hash, encoding FROM records
        WHERE number = ? AND seq > ? ORDER BY seq""",
        (end.number, after),
    )
    start = _link_at(connection, end, after)
    return walk_chain(rows, start, end.last_link, _blob_fetcher(connection))


def _link_at(connection: SqliteConnection, end: SessionEnd, seq: int) -> ChainLink:
    if seq <= 0:
        return chain_root(end.summary.session)
    query = "SELECT hash FROM records WHERE number = ? AND seq = ?"
    # If the record is missing, the empty hash makes the walk report the record after it.
    return ChainLink(seq, connection.execute(query, (end.number, seq)).get or b"")


def _blob_fetcher(connection: SqliteConnection) -> BlobFetcher:
    def fetch(name: str) -> bytes:
        data = connection.execute("SELECT data FROM blobs WHERE hash = ?", (name,)).get
        return check_blob(name, data)

    return fetch


def write_ends(connection: SqliteConnection, ends: Iterable[SessionEnd]) -> None:
    """Write the rows of sessions: whole where the state changed, else what is in no index."""
    whole: list[tuple[Any, ...]] = []
    moved: list[tuple[Any, ...]] = []
    mailed: list[tuple[Any, ...]] = []
    for end in ends:
        if end.changes_state:
            whole.append((*map(_to_column, end.to_row()), end.number, end.seal))
        else:
            link = end.last_link
            counters = map(_to_column, counter_values(end.summary))
            moved.append((end.number, link.hash, link.seq, end.seal, VERSION, *counters))
        if end.mail.control.taken or end.mail.prompts.taken:
            mailed.append((end.number, end.mail.control.taken, end.mail.prompts.taken))
    execute = connection.execute
    insert_rows(execute, _INSERT_SESSION, _SESSION_VALUES, whole, _OR_UPDATE_SESSION)
    insert_rows(execute, _MOVE_ENDS, _MOVED_VALUES, moved, _OF_SESSIONS)
    insert_rows(execute, _TAKE_MAIL, "(?, ?, ?)", mailed, _BY_SESSIONS)


def insert_rows(
    execute: Callable[[str, Sequence[Any]], object],
    insert: str,
    placeholders: str,
    rows: Sequence[Sequence[Any]],
    rest: str = "",
) -> None:
    """Write the rows in one statement, or in as few as SQLite accepts."""
    for start in range(0, len(rows), STATEMENT_ROWS_MAX):
        chunk = rows[start : start + STATEMENT_ROWS_MAX]
        values = [value for row in chunk for value in row]
        execute(f"{insert}{', '.join([placeholders] * len(chunk))}{rest}", values)


def _to_column(value: object) -> object:
    # Money is stored as text, because SQLite's numbers are not exact.
    return str(value) if isinstance(value, Decimal) else value
