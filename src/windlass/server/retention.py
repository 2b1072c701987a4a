"""Retention by itself: every service and worker deletes what is due, part by part.

Any number of processes may do it at once: a session is deleted by one of them. In Postgres with
keys, only a service can sign the tombstone of a session, so workers without the key leave it alone.
"""

import time
from collections.abc import AsyncGenerator

from windlass.core.errors import ConfigError
from windlass.core.retention import RetentionRules
from windlass.core.session_summary import ENDED_STATES, SessionSummary
from windlass.logs import get_logger
from windlass.ports import Journal

RETENTION_S = 600.0
"""How often sessions that are due are deleted."""
PAGE_SESSIONS = 500
_log = get_logger(__name__)


async def prune_due(journal: Journal, rules: RetentionRules, *, keep: int = 0) -> int:
    """Delete the sessions whose time is over, with those below them; return how many."""
    shortest_s = rules.shortest_s
    if shortest_s is None:
        return 0
    now = time.time()
    try:
        deleted = await journal.prune(
            now - shortest_s, keep=keep, wanted=lambda session: rules.is_due(session, now)
        )
    except ConfigError as error:
        # Such as a worker that cannot sign: a service does it.
        _log.info("retention: %s", error)
        return 0
    if deleted:
        _log.info("retention: %d sessions were deleted", deleted)
        await journal.scrub()
    return deleted


async def list_due(journal: Journal, rules: RetentionRules) -> AsyncGenerator[SessionSummary]:
    """Yield the sessions that would be deleted now, without those below them."""
    shortest_s = rules.shortest_s
    if shortest_s is None:
        return
    now = time.time()
    cursor: str | None = None
    while True:
        page = await journal.sessions(
            state=ENDED_STATES,
            until=now - shortest_s,
            parent="",
            limit=PAGE_SESSIONS,
            cursor=cursor,
        )
        for session in page:
            if rules.is_due(session, now):
                yield session
        cursor = page.cursor
        if cursor is None:
            return
