"""Sessions that may need a driver, and whose work they are: by their mail, or by their questions.

A session that waits with a question which was not answered in time needs a driver, which denies the
question. No row of a session says when its question expires, so each one that waits is read once,
and again only after its records have changed.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter

from windlass.core.errors import JournalCorrupt
from windlass.core.events import RunEnded, RunQueued, RunStarted
from windlass.core.fold.run import fold
from windlass.core.mail import PromptMail
from windlass.core.rate_limits import read_priority
from windlass.core.result import open_questions
from windlass.core.session_summary import SessionSummary
from windlass.core.state import State
from windlass.logs import get_logger
from windlass.ports import Journal

_log = get_logger(__name__)
WAITING_AT_ONCE = 100
"""How many waiting sessions one look goes through; the next look continues behind them."""
BACKLOG_SEEN = 1_000
"""How many sessions with messages are known at a time: of these, the most urgent come first."""


@dataclass(frozen=True, slots=True)
class WorkItem:
    """A session that may need a driver."""

    session: str
    agent: str
    caller: str
    has_mail: bool = False
    """Found by its messages, not by a run without a driver."""
    priority: int = 0
    """Of the prompt that waits: a higher one is begun first."""


async def describe_mailed(journal: Journal, session: str, any_agent: str) -> WorkItem | None:
    """Return whose work a session with messages is; None if it is driven already.

    What any agent may do is `any_agent`'s.
    """
    if await journal.is_leased(session):
        return None
    prompt = await _find_next_prompt(journal, session)
    if prompt is not None and prompt.agent:
        priority = read_priority(prompt.context)
        return WorkItem(session, prompt.agent, prompt.caller, has_mail=True, priority=priority)
    state = fold(session, await journal.read(session))
    if state.parent:
        # A sub-agent whose caller has ended: any agent may settle it.
        return WorkItem(session, any_agent, "")
    if state.run is not None:
        return WorkItem(session, state.agent, state.run.caller, has_mail=True)
    # A prompt that names no agent, in a session without runs: any agent may begin it.
    return WorkItem(session, any_agent, "")


def take_turns(items: Iterable[WorkItem], driving: Iterable[WorkItem]) -> list[WorkItem]:
    """Return the items in the order in which they are begun.

    The caller with the fewest runs comes next, so that neither a long queue nor a high priority of
    one keeps another waiting. Of each caller, the most urgent come first, then the oldest.
    """
    running = Counter(item.caller for item in driving)
    turns: list[tuple[int, WorkItem]] = []
    for item in sorted(items, key=lambda item: -item.priority):
        turns.append((running[item.caller], item))
        running[item.caller] += 1
    return [item for _, item in sorted(turns, key=itemgetter(0))]


async def _find_next_prompt(journal: Journal, session: str) -> PromptMail | None:
    """Return the prompt that would begin now, if any.

    While a run is open, no prompt begins, and everything else that was posted is for the agent of
    that run.
    """
    prompts = [letter.message for letter in await journal.read_mail(session, "prompts")]
    prompt = next(iter(prompts), None)
    if not isinstance(prompt, PromptMail):
        return None
    if await journal.read_mail(session, "control"):
        for fact in reversed(await journal.read(session)):
            if isinstance(fact, RunEnded | RunQueued):
                return prompt
            if isinstance(fact, RunStarted):
                return None
    return prompt


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
        page = await self._journal.sessions(
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
            try:
                state = fold(summary.session, await self._journal.read(summary.session))
                expiry = find_expiry(state)
            except JournalCorrupt as error:
                # One that is damaged must not keep the others from being found.
                _log.error("session %s is damaged and left out: %s", summary.session, error)
                expiry = None
            self._expiries[summary.session] = (summary.facts, expiry)
        return expiry
