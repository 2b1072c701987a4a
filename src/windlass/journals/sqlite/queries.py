"""What is read from an SQLite file and deleted from it, statement by statement."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from windlass.core.events import Fact
from windlass.core.session_summary import PagePlace, SessionQuery, SessionSummary, find_tree
from windlass.journals.codec import RecordProblem, blob_name, first_hash
from windlass.journals.session_rows import SessionEnd, find_row_problems
from windlass.journals.sqlite.anchors import AnchorBook
from windlass.journals.sqlite.budgets import forget_shares
from windlass.journals.sqlite.mail import HAS_MAIL
from windlass.journals.sqlite.schema import end_sharing, is_shared
from windlass.journals.sqlite.session_table import (
    FIND_SESSION,
    SELECT_SESSION,
    session_end_from_row,
    walk_records,
    write_ends,
)
from windlass.journals.sqlite.tombstones import bury_session, find_tombstone
from windlass.journals.stored_catalog import SqlCondition, query_conditions
from windlass.journals.tombstones import find_put_back
from windlass.journals.upgrades import VERSION, UpgradeStatus, older_wrote_error
from windlass.journals.wording import session_missing_error
from windlass.sqlite_file import SqliteConnection

TEXT_INDEX_CHARS_MIN = 3
ROWS_AT_ONCE = 500
RECORDS_AT_ONCE = 2_000
"""Records that are folded again in one transaction; an append waits for one batch at most."""
ALL_ROWS = -1
"""No limit, in SQLite."""
ENDED_BEFORE = f"changed < ? AND outcome IS NOT NULL AND NOT {HAS_MAIL}"


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
    return walk_records(connection, end, after)


def last_seq(connection: SqliteConnection, session: str) -> int:
    """Return the number of a session's last record; 0 if there is none."""
    query = "SELECT facts FROM sessions WHERE session = ?"
    return connection.execute(query, (session,)).get or 0


def list_sessions(
    connection: SqliteConnection, query: SessionQuery, place: PagePlace | None, limit: int
) -> list[SessionSummary]:
    """List the sessions behind a place that fit the query: last changed first, then by name."""
    conditions = query_conditions(query, place)
    if query.text:
        conditions.append(_text_condition(query.text))
    where = " AND ".join(condition.text.replace("{}", "?") for condition in conditions) or "TRUE"
    values: list[Any] = [value for condition in conditions for value in condition.values]
    statement = f"{SELECT_SESSION} WHERE {where} ORDER BY changed DESC, session LIMIT ?"
    rows = connection.execute(statement, (*values, limit))
    return [session_end_from_row(row).summary for row in rows]


def _text_condition(text: str) -> SqlCondition:
    # The index knows groups of three characters. It finds more than it should at most.
    condition = "instr(lower(session || char(10) || title), lower({})) > 0"
    if len(text) < TEXT_INDEX_CHARS_MIN or not text.isascii() or "\0" in text:
        return SqlCondition(condition, (text,))
    phrase = '"' + text.replace('"', '""') + '"'
    indexed = "number IN (SELECT rowid FROM session_text WHERE session_text MATCH {})"
    return SqlCondition(f"{indexed} AND {condition}", (phrase, text))


def find_summary(connection: SqliteConnection, session: str) -> SessionSummary | None:
    """Return the summary of a session; None if it has no records."""
    row = connection.execute(f"{FIND_SESSION} AND facts > 0", (session,)).fetchone()
    if row is None:
        return None
    return session_end_from_row(row).summary


def put_blob(connection: SqliteConnection, session: str, data: bytes) -> str:
    """Store data for as long as the session, and return its name."""
    query = "SELECT number FROM sessions WHERE session = ? AND facts > 0"
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


def delete_tree(
    connection: SqliteConnection,
    session: str,
    lease_below: Callable[[str], None],
    book: AnchorBook | None,
    *,
    erase: bool = False,
) -> bool:
    """Delete a session and all that work for it; returns whether there was one.

    Each of the latter is leased first; what `lease_below` raises is raised, and nothing is deleted.
    """
    if not connection.execute("SELECT 1 FROM sessions WHERE session = ?", (session,)).get:
        return False
    # Only its own driver begins sessions below it, and its lease is held.
    rows = list_sessions(connection, SessionQuery(prefix=f"{session}/"), None, ALL_ROWS)
    below = find_tree(session, rows)
    for name in below:
        lease_below(name)
    delete_sessions(connection, (session, *below), book, erase=erase)
    return True


def delete_sessions(
    connection: SqliteConnection,
    names: Sequence[str],
    book: AnchorBook | None,
    *,
    erase: bool = False,
) -> int:
    """Delete sessions, and leave their tombstones; returns how many of them there were."""
    ends = [end for name in names for end in _select_ends(connection, "session = ?", name)]
    for end in ends:
        bury_session(connection, end, book, erase=erase)
        _delete_rows(connection, end)
        if book is not None:
            book.forget_session(connection, end.summary.session)
    return len(ends)


def delete_ended_trees(
    connection: SqliteConnection,
    trees: Sequence[Sequence[str]],
    before: float,
    is_driven: Callable[[str], bool],
    book: AnchorBook | None,
) -> int:
    """Delete the trees whose root is still ended and of which nothing is driven.

    The first name of a tree is its root. It may have been continued since it was listed, so it is
    looked at again. Returns how many sessions were deleted.
    """
    count = 0
    for tree in trees:
        roots = _select_ends(connection, f"session = ? AND {ENDED_BEFORE}", tree[0], before)
        if roots and not any(map(is_driven, tree)):
            count += delete_sessions(connection, tree, book)
    return count


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
    connection: SqliteConnection, condition: str, *bindings: str | float
) -> list[SessionEnd]:
    rows = connection.execute(f"{SELECT_SESSION} WHERE {condition}", bindings)
    return [session_end_from_row(row) for row in rows]


def verify_session(
    connection: SqliteConnection, session: str, book: AnchorBook | None
) -> list[RecordProblem]:
    """Return what is wrong with a session; nothing if it is as it was written."""
    found = list(read_facts(connection, session, 0))
    problems = [problem for problem in found if isinstance(problem, RecordProblem)]
    if problems:
        return problems
    facts = [fact for fact in found if not isinstance(fact, RecordProblem)]
    row = connection.execute(FIND_SESSION, (session,)).fetchone()
    if row is None:
        return problems
    end = session_end_from_row(row)
    problems += find_row_problems(end, facts)
    if facts:
        first = first_hash(session, facts[0])
        problems += find_put_back(find_tombstone(connection, first, book))
    if book is not None:
        problems += book.find_session_problems(connection, end)
    return problems


def find_forgeries(
    connection: SqliteConnection, session: str, book: AnchorBook
) -> list[RecordProblem]:
    """Return what the signatures of a session contradict; nothing if its end is genuine."""
    row = connection.execute(FIND_SESSION, (session,)).fetchone()
    if row is None:
        return []
    end = session_end_from_row(row)
    if book.is_session_genuine(connection, end):
        return []
    return list(book.find_session_problems(connection, end))


def upgrade_status(connection: SqliteConnection) -> UpgradeStatus:
    """Return the state of the upgrade of the file."""
    query = "SELECT count(*) FROM sessions WHERE version < ?"
    left = connection.execute(query, (VERSION,)).get
    return UpgradeStatus(VERSION, not is_shared(connection), left)


def fold_rows_again(connection: SqliteConnection) -> int:
    """Write the rows of some sessions that the version before wrote; returns how many.

    A session whose records are not sound keeps its row; `windlass verify` names what is wrong.
    """
    query = f"{SELECT_SESSION} WHERE version < ? LIMIT {ROWS_AT_ONCE}"
    rows = connection.execute(query, (VERSION,))
    ends: list[SessionEnd] = []
    count = 0
    for end in map(session_end_from_row, rows):
        found = list(walk_records(connection, end, 0))
        facts = [fact for fact in found if not isinstance(fact, RecordProblem)]
        is_sound = len(facts) == len(found)
        ends.append(end.fold_again(facts) if is_sound else end._replace(row=None))
        count += end.last_link.seq
        if count >= RECORDS_AT_ONCE:
            break
    write_ends(connection, ends)
    return len(ends)


def finish_upgrade(connection: SqliteConnection) -> None:
    """Let older versions refuse the file. Raises JournalFailed if one of them has just written."""
    if upgrade_status(connection).sessions_left:
        raise older_wrote_error()
    end_sharing(connection)


def check_file(connection: SqliteConnection, book: AnchorBook | None) -> list[str]:
    """Return what is wrong with the file: its pages, its budgets, its anchors."""
    report = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
    problems = [] if report == ["ok"] else report
    # Shares of deleted sessions are gone, but what they spent stays in the sum.
    emptied = connection.execute(
        """SELECT shares.budget, shares.period FROM shares
        LEFT JOIN pools USING (budget, period) GROUP BY shares.budget, shares.period
        HAVING coalesce(max(pools.tokens), -1) < sum(shares.tokens)
            OR round(coalesce(max(CAST(pools.usd AS REAL)), -1), 6)
                < round(sum(CAST(shares.usd AS REAL)), 6)"""
    )
    problems += [f"budget {row[0]!r} is less than the sum of its shares" for row in emptied]
    if book is not None:
        problems += book.find_problems(connection)
    return problems
