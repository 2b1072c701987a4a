"""The audit trail of a journal in a period: of every session that changed in it."""

from windlass.core.audit.trail import AuditEntry, list_entries
from windlass.core.errors import JournalCorrupt
from windlass.logs import get_logger
from windlass.ports import Journal

ENTRIES_MAX = 100_000
"""Entries of one export; a longer period is exported in parts."""
PAGE_SESSIONS = 200
_log = get_logger(__name__)


async def read_trail(journal: Journal, since: float, until: float) -> list[AuditEntry]:
    """Return the entries between two times, in their order; at most `ENTRIES_MAX`, the first ones.

    A session that cannot be read is left out, and logged.
    """
    found: list[AuditEntry] = []
    cursor: str | None = None
    while True:
        page = await journal.sessions(limit=PAGE_SESSIONS, cursor=cursor)
        for summary in page:
            if summary.updated < since:
                continue
            try:
                facts = await journal.read(summary.session)
            except JournalCorrupt as error:
                _log.warning("session %s is left out of the trail: %s", summary.session, error)
                continue
            entries = list_entries(summary.session, facts)
            found += (entry for entry in entries if since <= entry.at < until)
        cursor = page.cursor
        if cursor is None:
            break
    found.sort(key=lambda entry: (entry.at, entry.session, entry.seq))
    return found[:ENTRIES_MAX]
