"""What is read from an SQLite file and deleted from it, statement by statement."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from windlass.core.events import Fact
from windlass.core.session_summary import SessionSummary
from windlass.journals.chain import ChainLink, RecordProblem, chain_root, walk_chain
from windlass.journals.codec import BlobFetcher, blob_name, check_blob
from windlass.journals.sqlite.budgets import forget_shares
from windlass.journals.sqlite.writer import FIND_SESSION, SELECT_SESSION, session_end_from_row
from windlass.journals.stored_journal import OPEN_AND_NOT_WAITING, UNFINISHED, SessionEnd
from windlass.journals.wording import session_missing_error
from windlass.sqlite_file import SqliteConnection

ENDED_BEFORE = "updated < ? AND outcome IS NOT NULL"


def read_facts(
    connection: SqliteConnection, session: str, after: int
) -> Iterator[Fact | RecordProblem]:
    """Yield the facts of a session after a number, each checked against the chain."""
    row = connection.execute(FIND_SESSION, (session,)).fetchone()
    end = session_end_from_row(row) if row else None
    if end is None or after >= end.last_link.seq:
        return iter(())
    # A damaged index can lead to the row of another session.
    if end.summary.session != session:
        return iter((RecordProblem(0, f"it is stored as session {end.summary.session!r}"),))
    rows = connection.execute(
        """SELECT seq, CAST(body AS BLOB), hash FROM records
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


def last_seq(connection: SqliteConnection, session: str) -> int:
    """Return the number of a session's last record; 0 if there is none."""
    query = "SELECT facts FROM sessions WHERE session = ?"
    return connection.execute(query, (session,)).get or 0


def list_sessions(
    connection: SqliteConnection, query: str, limit: int, *, unfinished: bool
) -> list[SessionSummary]:
    """List the sessions whose name or title contains the query, the latest first."""
    conditions = [UNFINISHED] if unfinished else []
    bindings: list[Any] = []
    if query:
        conditions.append("instr(lower(session || char(10) || title), lower(?))")
        bindings.append(query)
    condition = " AND ".join(conditions) or "TRUE"
    return _select_summaries(connection, condition, (*bindings, limit), "LIMIT ?")


def list_open_sessions(connection: SqliteConnection) -> list[SessionSummary]:
    """List the sessions with an open run that waits for no person, the latest first."""
    return _select_summaries(connection, OPEN_AND_NOT_WAITING, (), "")


def _select_summaries(
    connection: SqliteConnection, condition: str, bindings: tuple[Any, ...], limit: str
) -> list[SessionSummary]:
    query = f"{SELECT_SESSION} WHERE {condition} ORDER BY updated DESC {limit}"
    return [session_end_from_row(row).summary for row in connection.execute(query, bindings)]


def put_blob(connection: SqliteConnection, session: str, data: bytes) -> str:
    """Store data for as long as the session, and return its name."""
    query = "SELECT number FROM sessions WHERE session = ?"
    number = connection.execute(query, (session,)).get
    if number is None:
        raise session_missing_error(session)
    name = blob_name(data)
    connection.execute("INSERT OR IGNORE INTO blobs VALUES (?, ?)", (name, data))
    connection.execute("INSERT OR IGNORE INTO uses VALUES (?, ?)", (name, number))
    return name


def get_blob(connection: SqliteConnection, session: str, prefix: str) -> bytes | None:
    """Return the session's blob whose name begins with `prefix`, unchecked."""
    # Names are hexadecimal, so "g" sorts after all names that begin with the prefix.
    return connection.execute(
        """SELECT blobs.data FROM sessions JOIN uses USING (number)
        JOIN blobs USING (hash) WHERE session = ?1 AND uses.hash BETWEEN ?2 AND ?2 || 'g'""",
        (session, prefix),
    ).get


def list_ended_numbers(connection: SqliteConnection, before: float) -> list[int]:
    """Return the row numbers of the sessions that ended before a time, the oldest first."""
    ends = _select_ends(connection, f"{ENDED_BEFORE} ORDER BY updated", before)
    return [end.number for end in ends]


def delete_session(connection: SqliteConnection, session: str) -> bool:
    """Delete a session; returns whether there was one."""
    ends = _select_ends(connection, "session = ?", session)
    for end in ends:
        _delete_rows(connection, end)
    return bool(ends)


def prune_sessions(
    connection: SqliteConnection,
    numbers: Sequence[int],
    before: float,
    is_driven: Callable[[str], bool],
) -> int:
    """Delete those of these sessions that are still ended and not driven; returns how many.

    A session may have been continued since its number was listed, so it is looked at again.
    """
    condition = f"number IN ({', '.join(map(str, numbers))}) AND {ENDED_BEFORE}"
    ends = _select_ends(connection, condition, before)
    unused = [end for end in ends if not is_driven(end.summary.session)]
    for end in unused:
        _delete_rows(connection, end)
    return len(unused)


def _delete_rows(connection: SqliteConnection, end: SessionEnd) -> None:
    """Delete the records of a session, the blobs that only it used, and its budget shares."""
    number = (end.number,)
    connection.execute("DELETE FROM records WHERE number = ?", number)
    connection.execute(
        """DELETE FROM blobs WHERE hash IN (SELECT hash FROM uses WHERE number = ?1)
        AND NOT EXISTS (
            SELECT 1 FROM uses WHERE uses.hash = blobs.hash AND uses.number <> ?1)""",
        number,
    )
    connection.execute("DELETE FROM uses WHERE number = ?", number)
    connection.execute("DELETE FROM sessions WHERE number = ?", number)
    forget_shares(connection, end.summary.session)


def _select_ends(
    connection: SqliteConnection, condition: str, binding: str | float
) -> list[SessionEnd]:
    rows = connection.execute(f"{SELECT_SESSION} WHERE {condition}", (binding,))
    return [session_end_from_row(row) for row in rows]
