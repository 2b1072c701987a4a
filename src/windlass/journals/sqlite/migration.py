"""How the rows of an older file get the columns of this version, while others use the file.

Opening the file only adds the columns, which takes no time. The rows are brought up to date later:
each when its session goes on, and all of them by `windlass migrate`, in batches.
"""

from windlass.core.errors import JournalCorrupt
from windlass.journals.session_rows import SessionEnd
from windlass.journals.sqlite.anchors import AnchorBook
from windlass.journals.sqlite.schema import VERSION, end_sharing, is_shared
from windlass.journals.sqlite.session_table import (
    SELECT_SESSION,
    catch_up,
    session_end_from_row,
    write_ends,
)
from windlass.journals.upgrades import UpgradeStatus, older_wrote_error
from windlass.sqlite_file import SqliteConnection

BATCH_RECORDS = 2_000
"""Records that are read in one transaction; an append waits for one batch at most."""
_BEHIND = "summarized <> facts AND (summarized = 0 OR ?1)"
"""Rows that an older version wrote. Those of this version may be behind by some records."""


def upgrade_status(connection: SqliteConnection) -> UpgradeStatus:
    """Return where the upgrade of a file stands."""
    shared = is_shared(connection)
    query = f"SELECT count(*) FROM sessions WHERE {_BEHIND}"  # noqa: S608 - our own text
    return UpgradeStatus(VERSION, not shared, connection.execute(query, (shared,)).get)


def catch_up_batch(connection: SqliteConnection) -> int:
    """Bring the rows of some sessions up to date; returns how many, 0 if none is left."""
    shared = is_shared(connection)
    rows = connection.execute(f"{SELECT_SESSION} WHERE {_BEHIND} LIMIT 500", (shared,))
    ends: list[SessionEnd] = []
    count = 0
    for row in rows:
        end = session_end_from_row(row)
        ends.append(_catch_up_anyway(connection, end))
        count += end.last_link.seq
        if count >= BATCH_RECORDS:
            break
    write_ends(connection, ends, shared=True)
    return len(ends)


def _catch_up_anyway(connection: SqliteConnection, end: SessionEnd) -> SessionEnd:
    try:
        return catch_up(connection, end)
    except JournalCorrupt:
        # It stays as the older version left it; `windlass verify` names what is wrong with it.
        return end.trust_row()


def finish(connection: SqliteConnection, book: AnchorBook | None) -> None:
    """Let older versions refuse the file. Raises JournalFailed if rows are not up to date."""
    if not is_shared(connection):
        return
    if upgrade_status(connection).sessions_left:
        raise older_wrote_error()
    end_sharing(connection)
    if book is not None:
        book.accept(connection, with_answers=False)
