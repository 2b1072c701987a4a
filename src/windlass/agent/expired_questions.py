"""Find sessions that wait with a question which nobody answered in time.

Such a session needs a driver, which denies the question. No row of a session says when its question
expires, so each one that waits is read once, and again only after its records have changed.
"""

from windlass.core.fold.run import fold
from windlass.core.result import open_questions
from windlass.core.session_summary import SessionSummary
from windlass.core.state import State
from windlass.ports import Journal, SessionCatalog

WAITING_AT_ONCE = 100
"""How many waiting sessions one look goes through; the next look goes on behind them."""


def find_expiry(state: State) -> float | None:
    """Return when the first open question expires; None if none does."""
    times = [question.expires_at for question in open_questions(state)]
    return min((at for at in times if at is not None), default=None)


class ExpiredQuestions:
    """Looks through the waiting root sessions of one agent, a page at a time."""

    def __init__(self, journal: Journal, agent: str) -> None:
        self._journal = journal
        self._agent = agent
        self._cursor: str | None = None
        self._expiries: dict[str, tuple[int, float | None]] = {}
        """How many facts a session had when it was read, and when its first question expires."""
        self._listed: set[str] = set()
        """The sessions that were listed since the first page."""

    async def find(self, now: float) -> list[SessionSummary]:
        """Return those of the next page that have a question which expired before a time."""
        journal = self._journal
        if not isinstance(journal, SessionCatalog):
            return []
        page = await journal.sessions(
            state="waiting",
            agent=self._agent,
            parent="",
            limit=WAITING_AT_ONCE,
            cursor=self._cursor,
        )
        found: list[SessionSummary] = []
        for summary in page:
            expiry = await self._find_expiry(summary)
            if expiry is not None and expiry < now:
                found.append(summary)
        self._listed.update(summary.session for summary in page)
        self._cursor = page.cursor
        if page.cursor is None:
            # All of them were listed: the others do not wait any more.
            self._expiries = {
                name: known for name, known in self._expiries.items() if name in self._listed
            }
            self._listed = set()
        return found

    async def _find_expiry(self, summary: SessionSummary) -> float | None:
        facts, expiry = self._expiries.get(summary.session, (0, None))
        if facts != summary.facts:
            state = fold(summary.session, await self._journal.read(summary.session))
            expiry = find_expiry(state)
            self._expiries[summary.session] = (summary.facts, expiry)
        return expiry
