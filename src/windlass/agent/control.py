"""Speak to a run with nothing but its journal: steer, cancel, pause, resume, raise its limits.

Invariant: a message is durable before it is acknowledged, and names its run. The driver of the run
takes it and writes the fact that follows from it; this module writes a fact itself only while the
session is without a driver, and only facts without free text, because it does not know the secrets
of the agent. Text waits in the mailbox for the next driver.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from windlass.agent import lazy_imports
from windlass.agent.child_sessions import UndrivenRuns
from windlass.agent.options import PromptInput, build_mask, check_prompt
from windlass.core.errors import ConfigError, MailRejected, NothingToDo, SessionBusy
from windlass.core.events import (
    RULES_VERSION,
    Fact,
    LimitsRaised,
    MailRefused,
    RunContinued,
    RunEnded,
    RunPaused,
    RunReleased,
    RunResumed,
    SteeringGiven,
)
from windlass.core.fold.control import mail_places
from windlass.core.fold.run import fold
from windlass.core.limits import RaisedLimits
from windlass.core.mail import (
    CancelMail,
    ContinueMail,
    ControlMail,
    Letter,
    MailLane,
    MailReceipt,
    PauseMail,
    RaiseLimitsMail,
    ReleaseMail,
    SteerMail,
)
from windlass.core.session_summary import check_session
from windlass.core.state import RunState, State
from windlass.journals.wording import describe_unknown_session
from windlass.ports import GivenJournal, Journal
from windlass.runtime.leases import find_root, hold_session
from windlass.runtime.recorder import RealClock, Recorder

WAKE_S = 5.0
"""How long to wait for an append before looking again anyway."""
CANCELLED_FIRST = "the run was cancelled before anybody took the message"


@dataclass(frozen=True, slots=True)
class ControlReceipt:
    """Proof that a message to a run is durable. Await `taken` to know the result."""

    journal: Journal
    session: str
    run: int
    fact: Fact | None = None
    """What was written at once, because the run was without a driver; None if the message waits."""
    mail: MailReceipt | None = None
    after: int = 0
    """The last fact of the session before the message was posted."""

    async def taken(self, timeout: float | None = None) -> Fact:
        """Wait until the message is taken up, and return the fact that did it.

        Raises MailRejected with the reason if it was refused, and TimeoutError after `timeout`
        seconds. The message then still waits: a later driver may take it.
        """
        if self.fact is not None:
            return self.fact
        if self.mail is None:
            raise NothingToDo("this receipt does not belong to a message")
        async with asyncio.timeout(timeout):
            return await wait_until_taken(
                self.journal, self.session, self.mail.lane, self.mail.number, self.after
            )


async def wait_until_taken(
    journal: Journal, session: str, lane: MailLane, number: int, after: int = 0
) -> Fact:
    """Return the fact that took up a message. Raises MailRejected if a fact refuses it."""
    while True:
        for fact in await journal.read(session, after):
            after = fact.seq
            if (lane, number) not in mail_places(fact):
                continue
            if isinstance(fact, MailRefused):
                raise MailRejected(f"the {fact.kind} message was refused: {fact.reason}")
            return fact
        await wait_for_change(journal, session, after)


async def wait_for_change(
    journal: Journal, session: str, after: int, wait_s: float = WAKE_S
) -> None:
    """Return when the session may have facts after a number, or after a while without one."""
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            await journal.wait_for_append(session, after)


async def wait_for_work(journal: Journal, session: str, after: int) -> None:
    """Return when a session that waits may need a driver: it has new facts, or a message."""
    taken = fold(session, await journal.read(session)).mail_taken
    waits = {
        asyncio.create_task(wait_for_change(journal, session, after)),
        asyncio.create_task(journal.wait_for_mail(session, "control", taken)),
    }
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


async def steer(
    journal: GivenJournal,
    session: str,
    prompt: PromptInput,
    *,
    run: int | None = None,
    by: str = "",
    key: str = "",
) -> ControlReceipt:
    """Post a message that a run reads before its next step, now or when it is next driven.

    It goes to the open run unless `run` is given. A message with a key counts once, however often
    it is posted. Raises NothingToDo if the session does not exist, its run has ended or its run
    undoes an earlier one; ConfigError if the message cannot be taken; MailboxFull.
    """
    parts = check_prompt(prompt)
    target = await find_open_run(journal, session, run)
    check_takes_steering(target.state)
    masked = build_mask(None).mask_fact(SteeringGiven(parts))
    if isinstance(masked, SteeringGiven):
        parts = masked.prompt
    return await target.post(SteerMail(run=target.number, prompt=parts), by=by, key=key)


async def pause(
    journal: GivenJournal,
    session: str,
    reason: str = "",
    *,
    run: int | None = None,
    by: str = "",
) -> ControlReceipt:
    """Stop a run before its next request, until it is resumed. Raises what `steer` raises.

    A run that waits for its first driver is paused when this returns, without the reason.
    """
    target = await find_open_run(journal, session, run)
    if target.state.is_queued and target.run_state.pause is None:
        # Without the agent, it is unknown which secrets the reason may hold.
        receipt = await target.write_if_free(RunPaused(by=str(by)))
        if receipt is not None:
            return receipt
    text = build_mask(None).mask_text(str(reason))
    return await target.post(PauseMail(run=target.number, reason=text), by=by)


async def resume(
    journal: GivenJournal, session: str, *, run: int | None = None, by: str = ""
) -> ControlReceipt:
    """End the pause of a run. A run without a driver continues once it is driven.

    To continue a run in this process, use `Agent.resume` or `Agent.drive`. Raises what `steer`
    raises, and NothingToDo if the run is not paused.
    """
    target = await find_open_run(journal, session, run)
    letters = await target.waiting_letters()
    if target.run_state.pause is None and not _will_pause(letters):
        raise NothingToDo(f"the run of session {session} is not paused")
    if not letters:
        receipt = await target.write_if_free(RunContinued(str(by)))
        if receipt is not None:
            return receipt
    return await target.post(ContinueMail(run=target.number), by=by)


async def withdraw_pause(journal: Journal, session: str, *, by: str = "") -> bool:
    """Post a resume behind a pause that was not taken yet. Returns whether there was one.

    The next driver of the run takes both, and continues.
    """
    # The mailbox comes first, because most sessions are without messages, and reading a session may
    # take long.
    if not _will_pause(await journal.read_mail(session, "control")):
        return False
    try:
        target = await find_open_run(journal, session, None)
    except (NothingToDo, ConfigError):
        return False
    if not _will_pause(await target.waiting_letters()):
        return False
    await target.post(ContinueMail(run=target.number), by=by)
    return True


def _will_pause(letters: Sequence[Letter]) -> bool:
    """Whether a run is to be paused once its messages are taken."""
    kinds = [
        letter.message for letter in letters if isinstance(letter.message, PauseMail | ContinueMail)
    ]
    return bool(kinds) and isinstance(kinds[-1], PauseMail)


async def raise_limits(
    journal: GivenJournal,
    session: str,
    limits: RaisedLimits,
    *,
    run: int | None = None,
    by: str = "",
) -> ControlReceipt:
    """Raise the limits of a run and its sub-agents, for every driver.

    A run that paused because its money or tokens were used up continues. Raises what `steer`
    raises.
    """
    if not limits.describe():
        raise ConfigError("no limit is given: pass RaisedLimits(steps=…), for example")
    target = await find_open_run(journal, session, run)
    if not target.state.is_queued and not await target.waiting_letters():
        receipt = await target.write_if_free(LimitsRaised(limits, str(by)))
        if receipt is not None:
            return receipt
    return await target.post(RaiseLimitsMail(run=target.number, limits=limits), by=by)


async def cancel(
    journal: GivenJournal,
    session: str,
    reason: str = "cancelled",
    *,
    run: int | None = None,
    by: str = "",
) -> ControlReceipt:
    """End a run. A run without a driver has ended when this returns.

    The reason reaches a run that is driven. Otherwise only the author is recorded: without the
    agent, it is unknown which secrets a text may hold. Raises what `steer` raises.
    """
    target = await find_open_run(journal, session, run)
    text = build_mask(None).mask_text(str(reason))
    mail: MailReceipt | None = None
    while True:
        fact = await _end_undriven(target, str(by), mail)
        if fact is not None:
            return ControlReceipt(target.journal, session, target.number, fact=fact)
        if mail is not None:
            return ControlReceipt(
                target.journal, session, target.number, mail=mail, after=target.state.seq
            )
        # The driver may release the run before it reads this, so check again.
        receipt = await target.post(CancelMail(run=target.number, reason=text), by=by)
        mail = receipt.mail


async def release(
    journal: GivenJournal, session: str, reason: str = "", *, by: str = ""
) -> ControlReceipt:
    """Move the open run off its driver, which releases it, so that another one resumes it.

    Calls and the reply that are under way get some time. Raises what `steer` raises, and
    NothingToDo if the run has no driver.
    """
    target = await find_open_run(journal, session, None)
    if not await target.journal.is_leased(session):
        raise NothingToDo(f"the run of session {session} has no driver: the next worker takes it")
    text = build_mask(None).mask_text(str(reason))
    mail = ReleaseMail(run=target.number, opening=target.run_state.opening_seq, reason=text)
    return await target.post(mail, by=by)


class OpenRun(msgspec.Struct, frozen=True):
    """The open run of a session, as its journal shows it."""

    journal: Journal
    state: State
    run_state: RunState

    @property
    def number(self) -> int:
        return self.run_state.number

    async def post(self, message: ControlMail, *, by: str, key: str = "") -> ControlReceipt:
        """Put a message into the mailbox of the session."""
        mail = await self.journal.post_mail(self.state.session, message, by=str(by), key=key)
        # The same key gives the receipt of the first post, whose fact may be on record already.
        after = 0 if key else self.state.seq
        return ControlReceipt(self.journal, self.state.session, self.number, mail=mail, after=after)

    async def waiting_letters(self) -> Sequence[Letter]:
        """Return the control messages that were not taken yet."""
        return await self.journal.read_mail(self.state.session, "control", self.state.mail_taken)

    async def write_if_free(self, fact: Fact) -> ControlReceipt | None:
        """Write a fact without free text, or return None if the run is driven.

        Raises NothingToDo if the run has ended in the meantime.
        """
        session = self.state.session
        try:
            lease = await hold_session(self.journal, session)
        except SessionBusy:
            return None
        with lease:
            state = fold(session, await self.journal.read(session))
            check_still_open(state, self.number)
            is_paused = state.run is not None and state.run.pause is not None
            if isinstance(fact, RunContinued) and not is_paused:
                raise NothingToDo(f"the run of session {session} is not paused")
            if isinstance(fact, RunPaused) and (is_paused or not state.is_queued):
                return None  # A driver has begun it meanwhile: its messages decide.
            recorder = Recorder(self.journal, RealClock(), state, build_mask(None))
            facts: tuple[Fact, ...] = (fact,)
            if state.run is not None and state.run.is_released:
                # Nothing may be written in a run that its driver has released, so it is taken over
                # for a moment.
                facts = (RunResumed(rules=RULES_VERSION), fact, RunReleased())
            await recorder.record(*facts)
            written = await self.journal.read(session, state.seq)
        found = next((each for each in written if type(each) is type(fact)), fact)
        return ControlReceipt(self.journal, session, self.number, fact=found)


async def find_open_run(journal: GivenJournal, session: str, run: int | None) -> OpenRun:
    """Return the open run of a session. Raises NothingToDo without one, or for another number."""
    session = check_session(session)
    journal = lazy_imports.complete_journal(journal)
    state = fold(session, await journal.read(session))
    if not state.seq:
        raise NothingToDo(await describe_unknown_session(journal, session))
    last = check_still_open(state, run)
    root = await find_root(journal, state)
    if root.session != session:
        raise ConfigError(
            f"session {session} belongs to a sub-agent: use session {root.session}, which it "
            "works for"
        )
    return OpenRun(journal, state, last)


def check_still_open(state: State, run: int | None) -> RunState:
    """Return the open run of a session. Raises NothingToDo without one, or if another is open."""
    last = state.run
    if last is None or not state.is_active:
        raise NothingToDo(f"session {state.session} has no open run: its last run has ended")
    if run not in (None, last.number):
        raise NothingToDo(
            f"run {run} of session {state.session} is not open: the open run is {last.number}"
        )
    return last


def check_takes_steering(state: State) -> None:
    """Raise NothingToDo if the last run of a session asks no model any more."""
    if not state.is_active:
        raise NothingToDo(f"session {state.session} has no open run: start a new run instead")
    if not state.takes_steering:
        raise NothingToDo(
            f"the open run of session {state.session} undoes an earlier one and asks no model: "
            "start a new run when it has ended"
        )


async def _end_undriven(target: OpenRun, by: str, mail: MailReceipt | None) -> Fact | None:
    """End a run without a driver. Returns its end, or None if the run is driven."""
    journal = target.journal
    session = target.state.session
    try:
        lease = await hold_session(journal, session)
    except SessionBusy:
        return None
    with lease:
        state = fold(session, await journal.read(session))
        if mail is not None and state.mail_taken >= mail.number:
            # The driver took the message just before it released the run.
            return await wait_until_taken(journal, session, mail.lane, mail.number)
        check_still_open(state, target.number)
        own = mail.number if mail is not None else 0
        end = RunEnded("cancelled", "cancelled", by=by, mail=own)
        return await UndrivenRuns.in_journal(journal).end_run(state, end, CANCELLED_FIRST)
