"""Withdraw a prompt from the queue of a session, and count them, with nothing but the journal.

Invariant: a prompt that is withdrawn begins no run, and is withdrawn by a fact: one that is written
here while the session has no driver, else one that its driver writes for a message.
"""

from collections.abc import Collection

from windlass.agent.control import ControlReceipt, OpenRun, cancel, check_still_open
from windlass.agent.options import build_mask
from windlass.core.errors import NothingToDo, SessionBusy
from windlass.core.events import PromptWithdrawn
from windlass.core.fold.run import fold
from windlass.core.mail import WithdrawMail
from windlass.core.session_summary import check_session
from windlass.core.state import State
from windlass.journals.completing import complete_journal
from windlass.ports import GivenJournal, Journal
from windlass.runtime.leases import hold_session
from windlass.runtime.mailbox import read_queue
from windlass.runtime.recorder import RealClock, Recorder


async def withdraw_prompt(
    journal: GivenJournal, session: str, number: int, *, by: str = ""
) -> ControlReceipt:
    """Withdraw a prompt that waits behind a run, by its number in the queue.

    If it is a run by now, that waits for its first driver, the run is cancelled. Raises NothingToDo
    if no such prompt waits.
    """
    journal = complete_journal(journal)
    state = fold(check_session(session), await journal.read(session))
    if state.run is not None and state.is_queued and state.run.queued_mail == number:
        return await cancel(journal, session, run=state.run.number, by=by)
    await _require_waiting(journal, state, number)
    fact = PromptWithdrawn(number, str(by))
    try:
        lease = await hold_session(journal, session)
    except SessionBusy:
        target = OpenRun(journal, state, check_still_open(state, None))
        return await target.post(WithdrawMail(run=target.number, prompt=number), by=by)
    with lease:
        state = fold(session, await journal.read(session))
        await _require_waiting(journal, state, number)
        await Recorder(journal, RealClock(), state, build_mask(None)).record(fact)
    run = state.run.number if state.run is not None else 0
    return ControlReceipt(journal, session, run, fact=fact)


async def _require_waiting(journal: Journal, state: State, number: int) -> None:
    """Raise NothingToDo unless a prompt waits in the queue of a session."""
    waiting = {letter.number for letter in await read_queue(journal, state)}
    is_run = state.run is not None and state.is_queued and state.run.queued_mail == number
    if number not in waiting or is_run:
        raise NothingToDo(f"prompt {number} does not wait in the queue of session {state.session}")


async def count_queued(journal: Journal, sessions: Collection[str]) -> dict[str, int]:
    """Return how many prompts wait in the queues of these sessions, for those that have any."""
    counts: dict[str, int] = {}
    for session in sessions:
        if not await journal.read_mail(session, "prompts"):
            continue
        # A prompt that has become a run stays in the mailbox for a moment.
        state = fold(session, await journal.read(session))
        counts[session] = len(await read_queue(journal, state))
    return {session: count for session, count in counts.items() if count}
