"""Answers from outside a run: with nothing but the journal, for the run or for its sub-agents.

The law: a question of a sub-agent is answered at the top, because only the root of a tree is
driven. The answer is posted to the root, which passes it on when it is driven. A journal without
mailboxes takes it in the sub-agent's own session, where it is found when the root is resumed.
"""

from typing import NamedTuple

from windlass.agent.approvals import make_answer
from windlass.agent.options import build_mask, check_session
from windlass.core.errors import NothingToDo, SessionBusy
from windlass.core.fold.run import fold
from windlass.core.mail import AnswerMail
from windlass.core.result import Question, open_questions
from windlass.core.secrets.mask import Mask
from windlass.core.state import State, find_call
from windlass.core.verdicts import PersonAnswer
from windlass.journals.wording import describe_unknown_session
from windlass.ports import Clock, Journal, Mailbox
from windlass.runtime.clock import RealClock
from windlass.runtime.leases import hold_session
from windlass.runtime.recorder import Recorder
from windlass.runtime.session_tree import find_root


class AskedQuestion(NamedTuple):
    """Where a question waits."""

    root: State
    """The session at the top, which is the one that is driven."""
    asking: State
    """The session of the run that asks: the root itself, or a sub-agent's."""

    @property
    def is_nested(self) -> bool:
        return self.root.session != self.asking.session


async def answer(
    journal: Journal,
    session: str,
    call_id: str,
    reply: PersonAnswer,
    *,
    digest: str | None = None,
    by: str = "",
    clock: Clock | None = None,
) -> tuple[Question, ...]:
    """Answer a question without an agent, with nothing but the journal.

    `session` is the run's own session, or that of the sub-agent that asks. Returns the questions
    that still wait; the run goes on when it is resumed, or at once if it is being driven. Give the
    digest that the question showed, and the answer cannot be for other arguments. Raises
    NothingToDo if no such question waits, ConfigError if the answer does not fit it, and
    SessionBusy if the session is driven and the journal has no mailboxes.
    """
    clock = clock or RealClock()
    asked = await find_question(journal, check_session(session), call_id)
    if not asked.asking.seq:
        raise NothingToDo(await describe_unknown_session(journal, session))
    if not asked.is_nested:
        try:
            return await _write_answer(journal, session, call_id, reply, clock, digest, by)
        except SessionBusy:
            if not isinstance(journal, Mailbox):
                raise
    await pass_on_answer(journal, asked, call_id, reply, clock, digest=digest, by=by)
    return await _questions_left(journal, asked, call_id)


async def _questions_left(
    journal: Journal, asked: AskedQuestion, call_id: str
) -> tuple[Question, ...]:
    """Return the questions at the top that have no answer, neither on record nor in the mailbox."""
    root = asked.root
    answered = {(asked.asking.session if asked.is_nested else "", call_id)}
    if isinstance(journal, Mailbox):
        for letter in await journal.read_mail(root.session, "control", root.mail_taken):
            message = letter.message
            if isinstance(message, AnswerMail) and root.run and message.run == root.run.number:
                answered.add((message.session, message.call_id))
    return tuple(
        question
        for question in open_questions(root)
        if (question.session, question.call.id) not in answered
    )


async def find_question(journal: Journal, session: str, call_id: str) -> AskedQuestion:
    """Return where a question waits, by the session of its run, or of the run at the top.

    Raises NothingToDo if the session of the sub-agent that asks cannot be found.
    """
    asking = await _read_state(journal, session)
    root = await find_root(journal, asking)
    own = find_call(asking, call_id)
    if own is None or own.question is None:
        nested = [one.session for one in open_questions(asking) if one.call.id == call_id]
        if nested and nested[0]:
            asking = await _read_state(journal, nested[0])
    return AskedQuestion(root, asking)


async def pass_on_answer(
    journal: Journal,
    asked: AskedQuestion,
    call_id: str,
    reply: PersonAnswer,
    clock: Clock,
    *,
    digest: str | None,
    by: str,
    mask: Mask | None = None,
) -> None:
    """Post an answer to the run at the top; without mailboxes, write it where it was asked.

    Raises NothingToDo or ConfigError if it does not fit the question.
    """
    asking = asked.asking
    now = max(clock.now(), asking.at)
    fact = make_answer(asking, call_id, reply, now, digest=digest, by=by)
    if not isinstance(journal, Mailbox) or asked.root.run is None:
        await _write_answer(journal, asking.session, call_id, reply, clock, digest, by, mask)
        return
    message = AnswerMail(
        run=asked.root.run.number,
        call_id=call_id,
        digest=fact.digest,
        verdict=reply,
        session=asking.session if asked.is_nested else "",
    )
    masked_by = (mask or build_mask(None)).mask_text(by)
    await journal.post_mail(asked.root.session, message, by=masked_by)


async def _write_answer(
    journal: Journal,
    session: str,
    call_id: str,
    reply: PersonAnswer,
    clock: Clock,
    digest: str | None,
    by: str,
    mask: Mask | None = None,
) -> tuple[Question, ...]:
    """Write an answer into a session that nobody drives. Returns the questions that still wait."""
    with await hold_session(journal, session):
        state = await _read_state(journal, session)
        recorder = Recorder(journal, clock, state, mask or build_mask(None))
        now = max(clock.now(), state.at)
        await recorder.record(make_answer(state, call_id, reply, now, digest=digest, by=by))
        return open_questions(recorder.state)


async def _read_state(journal: Journal, session: str) -> State:
    return fold(session, await journal.read(session))
