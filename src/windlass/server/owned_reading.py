"""What the journal knows of a session, read through the handle of a caller who may see it.

Invariant: the journal takes any name, so in the service only this module and those that find
sessions for callers read it by name. What a protocol reads, it reads with an `OwnedSession`.
"""

from collections.abc import Sequence

from windlass.agent import control
from windlass.core.events import CallFinished, CallLate, Fact
from windlass.core.fold.run import fold
from windlass.core.mail import Letter
from windlass.core.question import Question
from windlass.core.session_summary import SessionSummary
from windlass.core.state import State
from windlass.journals.codec import RecordProblem
from windlass.ports import Journal
from windlass.runtime import mailbox
from windlass.server.session_directory import OwnedSession


async def read_recorded_facts(
    journal: Journal, session: OwnedSession, after: int = 0
) -> Sequence[Fact]:
    """Return the facts of a session after a number, as they are on record."""
    return await journal.read(session.name, after)


async def read_last_times(journal: Journal, listed: SessionSummary, count: int) -> list[float]:
    """Return when the last facts of a session were recorded, which a list of the caller's shows."""
    facts = await journal.read(listed.session, max(0, listed.facts - count))
    return [fact.at for fact in facts]


async def read_state(journal: Journal, session: OwnedSession) -> State:
    """Return what the facts of a session add up to."""
    return fold(session.name, await journal.read(session.name))


async def read_queue(journal: Journal, session: OwnedSession) -> tuple[State, Sequence[Letter]]:
    """Return the state of a session, and the prompts in its queue that are to begin runs."""
    state = await read_state(journal, session)
    return state, await mailbox.read_queue(journal, state)


async def has_queued_prompt(journal: Journal, session: OwnedSession) -> bool:
    """Return whether a prompt waits until the runs before it have ended."""
    if not await journal.read_mail(session.name, "prompts"):
        return False  # Most sessions: their facts need not be read.
    _, letters = await read_queue(journal, session)
    return bool(letters)


async def is_caught_up(journal: Journal, session: OwnedSession, seq: int) -> bool:
    """Return whether nothing came after a fact: no record, and no message such as an answer."""
    facts = await journal.read(session.name)
    if facts[-1].seq > seq:
        return False
    taken = fold(session.name, facts).mail_taken
    return not await journal.read_mail(session.name, "control", taken)


async def drop_decided(journal: Journal, questions: Sequence[Question]) -> Sequence[Question]:
    """Return the questions of a caller's view that no accepted answer decides.

    An answer counts from when it is accepted; the view shows it once a driver has taken it.
    """
    decided: set[tuple[str, str]] = set()
    for session in {question.session for question in questions}:
        rows = await journal.read_questions(session)
        decided.update((session, row.call_id) for row in rows if row.decision is not None)
    return [each for each in questions if (each.session, each.call_id) not in decided]


async def is_driven(journal: Journal, session: OwnedSession) -> bool:
    """Return whether a process drives a session."""
    return await journal.is_leased(session.name)


async def wait_for_records(
    journal: Journal, session: OwnedSession, seen: int, seconds: float
) -> None:
    """Return when a session may have facts after a number, or after some seconds."""
    await control.wait_for_change(journal, session.name, seen, seconds)


async def erase_session(journal: Journal, session: OwnedSession) -> bool:
    """Delete a session with those that work for it, and its bytes where the journal can.

    Returns whether there was one. Raises SessionBusy if one of them is driven.
    """
    erased = await journal.delete(session.name, erase=True)
    await journal.scrub()
    return erased


async def list_children(
    journal: Journal, session: OwnedSession, limit: int
) -> Sequence[SessionSummary]:
    """Return the sessions of sub-agents that work for a session."""
    return list(await journal.sessions(parent=session.name, limit=limit))


async def read_artifact_text(journal: Journal, session: OwnedSession, name: str) -> bytes | None:
    """Return the whole text of a shortened result, in UTF-8; None if the session has none.

    Blobs also hold pictures and attachments. Only a name that a result gives is an artifact.
    """
    for fact in await journal.read(session.name):
        if isinstance(fact, CallFinished | CallLate) and name in fact.result.artifacts:
            return await journal.get_blob(session.name, name)
    return None


async def find_problems(journal: Journal, session: OwnedSession) -> Sequence[RecordProblem]:
    """Return which records were changed, moved or removed."""
    return await journal.verify(session.name)


async def find_forgeries(journal: Journal, session: OwnedSession) -> list[str]:
    """Return what was done to a session without the user's key, in words."""
    return [str(found) for found in await journal.find_forgeries(session.name)]
