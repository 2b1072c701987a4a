"""Answers from outside a run: with nothing but the journal, for the run or for its sub-agents.

Invariant: an answer is a message, and the store decides the question when it accepts it. The driver
of the run records it; without one, it waits for the next. A question of a sub-agent is answered at
the top, because only the root of a tree is driven: the root passes the answer on.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from msgspec.structs import replace

from windlass.agent.approvals import find_asking_call, fit_answer
from windlass.agent.control import ControlReceipt
from windlass.agent.options import build_mask
from windlass.core.errors import NothingToDo, QuestionDecided
from windlass.core.events import CallAnswered, Fact
from windlass.core.fold.run import fold
from windlass.core.mail import AnswerMail
from windlass.core.question import Question
from windlass.core.result import open_questions
from windlass.core.secrets.mask import Mask
from windlass.core.session_summary import check_session
from windlass.core.setup import digest as digest_of
from windlass.core.state import State, find_call
from windlass.core.verdicts import (
    CLOCK,
    EXPIRED_DENIAL,
    Decision,
    PersonAnswer,
    VerifiedPerson,
    classify_answer,
)
from windlass.journals.completing import complete_journal
from windlass.journals.wording import describe_unknown_session
from windlass.ports import Clock, GivenJournal, Journal
from windlass.runtime.leases import find_root
from windlass.runtime.recorder import RealClock


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
    journal: GivenJournal,
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
    that still wait; the run resumes when it is driven next, or at once if it is being driven. Give
    the digest that the question showed, and the answer cannot be for other arguments. `clock` is
    used only with a store of facts: journals judge the expiry by their own.

    Raises NothingToDo if no such question waits, QuestionDecided if it was decided before,
    AnswerNotQualified if certain people have to answer it, and ConfigError if the answer does not
    fit it.
    """
    journal = complete_journal(journal, (clock or RealClock()).now)
    asked = await find_question(journal, check_session(session), call_id)
    await post_answer(journal, asked, call_id, reply, digest=digest, by=by)
    return await list_undecided(journal, await _read_state(journal, asked.root.session))


async def list_undecided(journal: Journal, root: State) -> tuple[Question, ...]:
    """Return the open questions of a run and its sub-agents that no accepted answer decides."""
    questions = open_questions(root)
    decided: set[tuple[str, str]] = set()
    for session in {question.session for question in questions}:
        rows = await journal.read_questions(session)
        decided.update((session, row.call_id) for row in rows if row.decision is not None)
    return tuple(
        question for question in questions if (question.session, question.call_id) not in decided
    )


async def find_question(journal: Journal, session: str, call_id: str) -> AskedQuestion:
    """Return where a question waits, by the session of its run, or of the run at the top.

    Raises NothingToDo if there is no such session, or that of the sub-agent that asks cannot be
    found, and QuestionDecided if a fact has answered the question.
    """
    facts = await journal.read(session)
    if not facts:
        raise NothingToDo(await describe_unknown_session(journal, session))
    asking = fold(session, facts)
    root = await find_root(journal, asking)
    own = find_call(asking, call_id)
    if own is None or own.question is None:
        nested = [one.session for one in open_questions(asking) if one.call_id == call_id]
        if nested and nested[0] != session:
            asking = await _read_state(journal, nested[0])
        else:
            _check_undecided(facts, call_id)
    return AskedQuestion(root, asking)


def _check_undecided(facts: Sequence[Fact], call_id: str) -> None:
    """Raise QuestionDecided if a fact has answered the question about a call."""
    for fact in reversed(facts):
        if isinstance(fact, CallAnswered) and fact.call_id == call_id:
            at = fact.accepted_at or fact.at
            raise QuestionDecided(call_id, Decision(classify_answer(fact.verdict), fact.by, at))


@contextmanager
def accept_expiry() -> Generator[None]:
    """Continue if an answer came too late: it counts as a no, and the run resumes with that."""
    try:
        yield
    except QuestionDecided as decided:
        if decided.decision.answer != "expiry":
            raise


async def post_answer(
    journal: Journal,
    asked: AskedQuestion,
    call_id: str,
    reply: PersonAnswer,
    *,
    digest: str | None,
    by: str,
    mask: Mask | None = None,
    person: VerifiedPerson | None = None,
) -> ControlReceipt:
    """Post an answer to the run at the top. `person` is who answers, if a service verified that.

    Raises NothingToDo, QuestionDecided, AnswerNotQualified or ConfigError if it does not fit the
    question.
    """
    mask = mask or build_mask(None)
    root = asked.root
    number = root.run.number if root.run else 0
    message = _make_message(asked, number, call_id, reply, digest=digest, mask=mask)
    message = replace(message, person=person)
    try:
        mail = await journal.post_mail(root.session, message, by=mask.mask_text(str(by)))
    except QuestionDecided as decided:
        if decided.decision.answer == "expiry":
            # The run must learn of it. Another process may have reported it first.
            expired = replace(message, verdict=EXPIRED_DENIAL)
            with suppress(NothingToDo):
                await journal.post_mail(root.session, expired, by=CLOCK)
        raise
    return ControlReceipt(journal, root.session, number, mail=mail, after=root.seq)


def _make_message(
    asked: AskedQuestion,
    run: int,
    call_id: str,
    reply: PersonAnswer,
    *,
    digest: str | None,
    mask: Mask,
) -> AnswerMail:
    """Return an answer as a message. The store judges the expiry; the rest is checked here."""
    asking = asked.asking
    call = find_asking_call(asking, call_id, digest)
    fact = mask.mask_fact(fit_answer(asking, call, reply))
    grant = fact.grant if isinstance(fact, CallAnswered) else None
    return AnswerMail(
        run=run,
        call_id=call_id,
        digest=digest_of(call.decoded_arguments),
        verdict=fact.verdict if isinstance(fact, CallAnswered) and grant is None else reply,
        session=asking.session if asked.is_nested else "",
        grant=grant,
    )


async def _read_state(journal: Journal, session: str) -> State:
    return fold(session, await journal.read(session))
