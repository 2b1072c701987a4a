"""Sessions that may need a driver, and whose work they are."""

from dataclasses import dataclass

from windlass.core.admission import read_priority
from windlass.core.events import RunEnded, RunStarted
from windlass.core.mail import PromptMail
from windlass.core.session_summary import find_parent
from windlass.ports import Journal, Mailbox, SessionLeases

BACKLOG_SEEN = 1_000
"""How many sessions with messages are known at a time: of these, the most urgent come first."""


@dataclass(frozen=True, slots=True)
class WorkItem:
    """A session that may need a driver."""

    session: str
    agent: str
    caller: str
    has_mail: bool = False
    """Found by its messages, not by a run that nobody drives."""
    priority: int = 0
    """Of the prompt that waits: a higher one is begun first."""


async def describe_mailed(journal: Journal, session: str, any_agent: str) -> WorkItem | None:
    """Return whose work a session with messages is; None if somebody drives it already.

    What any agent may do is `any_agent`'s.
    """
    if isinstance(journal, SessionLeases) and await journal.is_leased(session):
        return None
    prompt = await _find_next_prompt(journal, session)
    if prompt is not None and prompt.agent:
        priority = read_priority(prompt.context)
        return WorkItem(session, prompt.agent, prompt.caller, has_mail=True, priority=priority)
    facts = await journal.read(session)
    if find_parent(facts):
        # A sub-agent whose caller has ended: any agent may settle it.
        return WorkItem(session, any_agent, "")
    for fact in reversed(facts):
        if isinstance(fact, RunStarted):
            return WorkItem(session, fact.agent, fact.caller, has_mail=True)
    # A prompt that names no agent, in a session without runs: any agent may begin it.
    return WorkItem(session, any_agent, "")


async def _find_next_prompt(journal: Journal, session: str) -> PromptMail | None:
    """Return the prompt that would begin now; None if there is none.

    While a run is open, no prompt begins, and what else was posted is for the agent of that run.
    """
    if not isinstance(journal, Mailbox):
        return None
    prompts = [letter.message for letter in await journal.read_mail(session, "prompts")]
    prompt = next(iter(prompts), None)
    if not isinstance(prompt, PromptMail):
        return None
    if await journal.read_mail(session, "control"):
        for fact in reversed(await journal.read(session)):
            if isinstance(fact, RunEnded):
                return prompt
            if isinstance(fact, RunStarted):
                return None
    return prompt
