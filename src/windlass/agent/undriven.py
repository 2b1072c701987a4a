"""Messages to a session that nobody drives, taken with nothing but the journal.

The law: without the agent, its secrets are not known, so only facts without free text of others are
written: a cancel, and refusals. All else waits in the mailbox for a driver. A run that is ended so
takes those along that work for it.
"""

from contextlib import suppress

from msgspec.structs import replace

from windlass.agent.options import build_mask, check_session
from windlass.agent.subagents import open_children, unreported_charges
from windlass.core.errors import ConfigError, NothingToDo, SessionBusy
from windlass.core.events import RULES_VERSION, Fact, RunEnded, RunResumed
from windlass.core.fold.run import fold
from windlass.core.mail import CancelMail, Letter, MailReceipt
from windlass.core.state import State
from windlass.journals.wording import describe_unknown_session
from windlass.ports import Clock, Journal, Mailbox
from windlass.runtime.clock import RealClock
from windlass.runtime.leases import hold_session
from windlass.runtime.mailbox import find_refusal, refuse_letter
from windlass.runtime.recorder import Recorder

CANCEL_REASON = "cancelled from outside"


async def cancel_run(
    journal: Journal,
    session: str,
    *,
    reason: str = "cancelled",
    by: str = "",
    clock: Clock | None = None,
) -> MailReceipt:
    """End the open run of a session, whoever drives it, with nothing but the journal.

    A driver ends it at once. If nobody drives it, it is ended here. Raises NothingToDo if no run is
    open, and ConfigError if the journal takes no messages.
    """
    if not isinstance(journal, Mailbox):
        raise ConfigError("this journal takes no messages, so only the driver can cancel its run")
    state = fold(check_session(session), await journal.read(session))
    if not state.seq:
        raise NothingToDo(await describe_unknown_session(journal, session))
    if state.run is None or not state.is_active:
        raise NothingToDo(f"session {session} has no open run")
    message = CancelMail(run=state.run.number, reason=reason)
    receipt = await journal.post_mail(session, message, by=by)
    # If it is busy, its driver takes the message.
    with suppress(SessionBusy):
        await settle_mail(journal, session, clock=clock)
    return receipt


async def settle_mail(journal: Journal, session: str, *, clock: Clock | None = None) -> int:
    """Take the messages that need no agent, in order, up to the first that needs one.

    Returns how many were taken. Raises SessionBusy if the session is driven.
    """
    if not isinstance(journal, Mailbox):
        return 0
    clock = clock or RealClock()
    taken = 0
    with await hold_session(journal, session):
        state = fold(session, await journal.read(session))
        for letter in await journal.read_mail(session, "control", state.mail_taken):
            facts = await _settle_letter(journal, state, letter, clock)
            if not facts:
                break
            state = await _write_facts(journal, state, facts, clock)
            taken += 1
        if taken:
            await journal.remove_mail(session, "control", state.mail_taken)
    return taken


async def _settle_letter(
    journal: Journal, state: State, letter: Letter, clock: Clock
) -> tuple[Fact, ...]:
    """Return the facts that follow from a message; none if only a driver can take it."""
    problem = find_refusal(state, letter)
    if problem is not None:
        return (refuse_letter(letter, problem),)
    if not isinstance(letter.message, CancelMail):
        return ()
    end = RunEnded("cancelled", CANCEL_REASON, by=letter.by)
    await end_children(journal, state, end, clock)
    charges = await unreported_charges(journal, state)
    end = replace(end, charges=charges, mail=letter.number)
    return (RunResumed(rules=RULES_VERSION), end)


async def end_children(journal: Journal, state: State, end: RunEnded, clock: Clock) -> None:
    """End the open runs of those that work for a run, as the run itself is about to end."""
    for child in await open_children(journal, state):
        if not child.is_active:
            continue
        with await hold_session(journal, child.session):
            await end_children(journal, child, end, clock)
            charges = await unreported_charges(journal, child)
            facts = (RunResumed(rules=RULES_VERSION), replace(end, charges=charges))
            await _write_facts(journal, child, facts, clock)


async def _write_facts(
    journal: Journal, state: State, facts: tuple[Fact, ...], clock: Clock
) -> State:
    recorder = Recorder(journal, clock, state, build_mask(None))
    await recorder.record(*facts)
    return recorder.state
