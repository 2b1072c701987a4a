"""What is looked up and taken out in a SQLite file, statement by statement."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from windlass.core.errors import JournalCorrupt, JournalFailed
from windlass.core.events import Fact
from windlass.core.session_summary import SessionSummary
from windlass.journals.chain import ChainLink, RecordProblem, chain_root, walk_chain
from windlass.journals.codec import BlobFetcher, UnreadableRecord, blob_name, is_blob_name
from windlass.journals.sqlite import budgets as shares
from windlass.journals.sqlite.file import SqliteConnection
from windlass.journals.sqlite.writer import (
    FIND_SESSION,
    SELECT_SESSION,
    SessionEnd,
    session_end_from_row,
)

ENDED_BEFORE = "updated < ? AND outcome IS NOT NULL"


def read_facts(file: SqliteConnection, session: str, after: int) -> Iterator[Fact | RecordProblem]:
    """The facts of a session past a number, each checked against the chain."""
    row = file.execute(FIND_SESSION, (session,)).fetchone()
    end = session_end_from_row(row) if row else None
    if end is None or after >= end.last_link.seq:
        return iter(())
    if end.summary.session != session:
        return iter((RecordProblem(0, f"it is filed under {end.summary.session!r}"),))
    rows = file.execute(
        """SELECT seq, CAST(body AS BLOB), hash FROM records
        WHERE number = ? AND seq > ? ORDER BY seq""",
        (end.number, after),
    )
    return walk_chain(rows, _link_before(file, end, after), end.last_link, _blob_fetcher(file))


def _link_before(file: SqliteConnection, end: SessionEnd, after: int) -> ChainLink:
    if after <= 0:
        return chain_root(end.summary.session)
    place = (end.number, after)
    found = file.execute("SELECT hash FROM records WHERE number = ? AND seq = ?", place).get
    return ChainLink(after, found or b"")


def _blob_fetcher(file: SqliteConnection) -> BlobFetcher:
    def fetch(name: str) -> bytes:
        data = file.execute("SELECT data FROM blobs WHERE hash = ?", (name,)).get
        if data is None:
            raise UnreadableRecord(f"its attachment {name} is missing")
        if blob_name(data) != name:
            raise UnreadableRecord(f"its attachment {name} was changed")
        return data

    return fetch


def last_seq(file: SqliteConnection, session: str) -> int:
    """The number of a session's last record; 0 if there is none."""
    return file.execute("SELECT facts FROM sessions WHERE session = ?", (session,)).get or 0


def list_sessions(
    file: SqliteConnection, query: str, limit: int, *, unfinished: bool
) -> list[SessionSummary]:
    """The sessions whose name or title holds the query, the latest first."""
    where = ["outcome IS NULL"] if unfinished else []
    if query:
        where.append("instr(lower(session || char(10) || title), lower(?))")
    bindings = (query, limit) if query else (limit,)
    return _select_summaries(file, " AND ".join(where) or "TRUE", bindings, "LIMIT ?")


def list_open_sessions(file: SqliteConnection) -> list[SessionSummary]:
    """The sessions that have not ended and wait for nobody, the latest first."""
    # As `Summary.state` has it: many may wait for a person, and none of those is read.
    return _select_summaries(file, "outcome IS NULL AND (asked = 0 OR proposed > 0)", (), "")


def _select_summaries(
    file: SqliteConnection, which: str, bindings: tuple[Any, ...], some: str
) -> list[SessionSummary]:
    listing = f"{SELECT_SESSION} WHERE {which} ORDER BY updated DESC {some}"
    return [session_end_from_row(row).summary for row in file.execute(listing, bindings)]


def keep_blob(file: SqliteConnection, session: str, data: bytes) -> str:
    """Keep data under its hash, for as long as the session."""
    number = file.execute("SELECT number FROM sessions WHERE session = ?", (session,)).get
    if number is None:
        raise JournalFailed(f"session {session!r}: there is none that could keep anything")
    name = blob_name(data)
    file.execute("INSERT OR IGNORE INTO blobs VALUES (?, ?)", (name, data))
    file.execute("INSERT OR IGNORE INTO uses VALUES (?, ?)", (name, number))
    return name


def fetch_blob(file: SqliteConnection, session: str, name: str) -> bytes | None:
    """What the session keeps under a name, or under one that begins so."""
    if not is_blob_name(name):
        return None
    # No character of a hash comes after `f`.
    row = file.execute(
        """SELECT blobs.hash, blobs.data FROM sessions JOIN uses USING (number)
        JOIN blobs USING (hash) WHERE session = ?1 AND uses.hash BETWEEN ?2 AND ?2 || 'g'""",
        (session, name),
    ).fetchone()
    if row is None:
        return None
    whole, data = row
    if blob_name(data) != whole:
        raise JournalCorrupt(f"session {session!r}: what it keeps as {whole} was changed")
    return data


def spare_nobody(_session: str) -> bool:
    """No session is spared."""
    return False


def list_ended_numbers(file: SqliteConnection, before: float) -> list[int]:
    """The numbers of the sessions that ended and were not touched since, the oldest first."""
    return [end.number for end in _select_ends(file, f"{ENDED_BEFORE} ORDER BY updated", before)]


def prune_sessions(
    file: SqliteConnection, numbers: Sequence[int], before: float, spared: Callable[[str], bool]
) -> int:
    """Delete those of these sessions that are still as `ended` found them."""
    named = ", ".join(map(str, numbers))
    return delete_sessions(file, f"number IN ({named}) AND {ENDED_BEFORE}", before, spared)


def delete_sessions(
    file: SqliteConnection, which: str, given: str | float, spared: Callable[[str], bool]
) -> int:
    """Delete sessions, what only they used, and their shares; how many it were."""
    gone = [end for end in _select_ends(file, which, given) if not spared(end.summary.session)]
    for end in gone:
        file.execute("DELETE FROM records WHERE number = ?", (end.number,))
        file.execute(
            """DELETE FROM blobs WHERE hash IN (SELECT hash FROM uses WHERE number = ?1)
            AND NOT EXISTS (
                SELECT 1 FROM uses WHERE uses.hash = blobs.hash AND uses.number <> ?1)""",
            (end.number,),
        )
        file.execute("DELETE FROM uses WHERE number = ?", (end.number,))
        file.execute("DELETE FROM sessions WHERE number = ?", (end.number,))
        shares.forget_shares(file, end.summary.session)
    return len(gone)


def _select_ends(file: SqliteConnection, which: str, given: str | float) -> list[SessionEnd]:
    return [
        session_end_from_row(row)
        for row in file.execute(f"{SELECT_SESSION} WHERE {which}", (given,))
    ]
