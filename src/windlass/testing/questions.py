"""The conformance suite for questions: an answer decides its question where it is accepted."""

import asyncio

from msgspec.structs import replace

from windlass.core.errors import AnswerNotQualified, ConfigError, NothingToDo, QuestionDecided
from windlass.core.events import (
    AnswerCounted,
    CallAnswered,
    CallJudged,
    Fact,
    MailRefused,
    RunEnded,
)
from windlass.core.mail import AnswerMail, MailReceipt
from windlass.core.verdicts import (
    CLOCK,
    EXPIRED_DENIAL,
    Allow,
    AllowAlways,
    Approval,
    Ask,
    Decision,
    Deny,
    Modify,
    PersonAnswer,
    Starter,
    VerifiedPerson,
)
from windlass.ports import Journal
from windlass.testing.journals import (
    SESSION,
    JournalSuite,
    append_facts,
    error_of,
    on_a_journal,
    on_two_journals,
)

DIGEST = "ab" * 16
CHILD = f"{SESSION}/c1"
LONG_AGO = 1.0
FAR_AWAY = 4e9


def _ask(call_id: str = "a", seq: int = 1, expires_at: float | None = None) -> Fact:
    question = Ask("May I?", expires_at=expires_at)
    return CallJudged(call_id, question, digest=DIGEST, seq=seq, at=1.0)


def _answer(
    verdict: PersonAnswer, call_id: str = "a", digest: str = DIGEST, session: str = ""
) -> AnswerMail:
    return AnswerMail(run=1, call_id=call_id, digest=digest, verdict=verdict, session=session)


def _person(name: str, role: str = "finance") -> VerifiedPerson:
    return VerifiedPerson(name, name, (role,), origin="page, 192.0.2.7")


def _agree(name: str, role: str = "finance") -> AnswerMail:
    return replace(_answer(Allow()), person=_person(name, role))


async def _decision_of(journal: Journal, session: str = SESSION) -> Decision | None:
    (row,) = await journal.read_questions(session)
    return row.decision


class AnswerConformance(JournalSuite):
    """A question has one decision, and each person who answers gets that one."""

    @on_two_journals
    async def test_a_question_is_there_from_the_append_that_asks_to_the_one_that_answers(
        self, one: Journal, two: Journal
    ) -> None:
        """G6: its row is written with the fact, and its answer with the message."""
        await append_facts(one, SESSION, [CallJudged("a", Allow(), seq=1, at=1.0)])
        assert not await two.read_questions(SESSION)
        assert isinstance(await error_of(two.post_mail(SESSION, _answer(Allow()))), NothingToDo)
        await append_facts(one, SESSION, [_ask(seq=2)])
        assert await _decision_of(two) is None
        receipt = await two.post_mail(SESSION, _answer(Allow()), by="ann")
        decision = Decision("allow", "ann", receipt.at)
        assert await _decision_of(one) == decision
        answered = CallAnswered("a", Allow(), DIGEST, "ann", mail=1, accepted_at=receipt.at)
        await append_facts(one, SESSION, [_placed(answered, 3)])
        assert not await two.read_questions(SESSION)
        refusal = await error_of(one.post_mail(SESSION, _answer(Deny("no"))))
        assert isinstance(refusal, QuestionDecided)
        assert refusal.decision == decision

    @on_two_journals
    async def test_of_many_answers_at_once_one_counts_and_all_are_told_of_it(
        self, one: Journal, two: Journal
    ) -> None:
        """G6: of both kinds, by several people; what was refused is not in the mailbox."""
        await append_facts(one, SESSION, [_ask()])
        replies: list[PersonAnswer] = [Allow(), Deny("no"), AllowAlways(), Modify({}, "rather")]
        posts = [
            (one, two)[nth % 2].post_mail(SESSION, _answer(replies[nth % 4]), by=f"person {nth}")
            for nth in range(16)
        ]
        told = await asyncio.gather(*posts, return_exceptions=True)
        (accepted,) = [each for each in told if isinstance(each, MailReceipt)]
        decision = await _decision_of(two)
        refusals = [each for each in told if isinstance(each, QuestionDecided)]
        assert len(refusals) == len(posts) - 1
        assert {refusal.decision for refusal in refusals} == {decision}
        (letter,) = await two.read_mail(SESSION, "control")
        assert (letter.number, letter.at) == (accepted.number, accepted.at)
        assert decision is not None
        assert (decision.by, decision.at) == (letter.by, letter.at)

    @on_two_journals
    async def test_a_question_for_two_people_is_decided_by_the_second_of_them(
        self, one: Journal, two: Journal
    ) -> None:
        """G10: who does not qualify is refused, and nobody counts twice."""
        approval = Approval("finance", 2, not_starter=True)
        question = Ask("May I?", approvals=(approval,), starter=Starter("ann", "ann"))
        await append_facts(one, SESSION, [CallJudged("a", question, digest=DIGEST, seq=1, at=1.0)])
        for message in (_answer(Allow()), _answer(Deny("no")), _agree("ann"), _agree("eve", "it")):
            by = message.person.name if message.person else "owner"
            refusal = await error_of(two.post_mail(SESSION, message, by=by))
            assert isinstance(refusal, AnswerNotQualified)
        first = await two.post_mail(SESSION, _agree("bea"), by="bea")
        assert await _decision_of(one) is None
        assert isinstance(await error_of(one.post_mail(SESSION, _agree("bea"))), NothingToDo)
        receipt = await one.post_mail(SESSION, _agree("carl"), by="carl")
        assert await _decision_of(two) == Decision("allow", "carl", receipt.at)
        late = await error_of(two.post_mail(SESSION, _agree("dora"), by="dora"))
        assert isinstance(late, QuestionDecided)
        bea, carl = _person("bea"), _person("carl")
        counted = AnswerCounted("a", Allow(), DIGEST, "bea", 1, first.at, person=bea)
        answered = CallAnswered(
            "a", Allow(), DIGEST, "carl", mail=2, accepted_at=receipt.at, person=carl
        )
        await append_facts(one, SESSION, [_placed(counted, 2), _placed(answered, 3)])
        assert not await two.read_questions(SESSION)

    @on_two_journals
    async def test_one_no_decides_and_an_answer_that_a_fact_refuses_is_not_counted(
        self, one: Journal, two: Journal
    ) -> None:
        """G10: of three people who have to agree, the first is refused by the driver."""
        question = Ask("May I?", approvals=(Approval(people=3),))
        await append_facts(one, SESSION, [CallJudged("a", question, digest=DIGEST, seq=1, at=1.0)])
        await two.post_mail(SESSION, _agree("bea"), by="bea")
        await append_facts(one, SESSION, [_placed(MailRefused(1, "answer", "no"), 2)])
        (row,) = await two.read_questions(SESSION)
        assert not row.answers
        await two.post_mail(SESSION, _agree("bea"), by="bea")
        denial = replace(_agree("carl"), verdict=Deny("too much"))
        await one.post_mail(SESSION, denial, by="carl")
        decision = await _decision_of(two)
        assert decision is not None
        assert (decision.answer, decision.by) == ("deny", "carl")

    @on_a_journal
    async def test_an_answer_is_for_exactly_the_arguments_that_were_shown(
        self, journal: Journal
    ) -> None:
        """G6: one with another digest is for another question."""
        await append_facts(journal, SESSION, [_ask()])
        other = _answer(Allow(), digest="cd" * 16)
        assert isinstance(await error_of(journal.post_mail(SESSION, other)), ConfigError)
        unknown = _answer(Allow(), call_id="b")
        assert isinstance(await error_of(journal.post_mail(SESSION, unknown)), NothingToDo)
        assert await _decision_of(journal) is None
        assert not await journal.read_mail(SESSION, "control")

    @on_a_journal
    async def test_the_clock_of_the_store_judges_the_expiry(self, journal: Journal) -> None:
        """G6: a late answer is refused, and an expiry that is reported too early too."""
        await append_facts(
            journal,
            SESSION,
            [_ask("late", 1, LONG_AGO), _ask("early", 2, FAR_AWAY), _ask("never", 3)],
        )
        refusal = await error_of(journal.post_mail(SESSION, _answer(Allow(), "late")))
        assert isinstance(refusal, QuestionDecided)
        assert (refusal.decision.answer, refusal.decision.by) == ("expiry", CLOCK)
        for call_id in ("early", "never"):
            expired = _answer(EXPIRED_DENIAL, call_id)
            error = await error_of(journal.post_mail(SESSION, expired, by=CLOCK))
            assert isinstance(error, NothingToDo)
        await journal.post_mail(SESSION, _answer(EXPIRED_DENIAL, "late"), by=CLOCK)
        rows = {row.call_id: row for row in await journal.read_questions(SESSION)}
        late = rows["late"].decision
        assert late is not None
        assert (late.answer, late.by) == ("expiry", CLOCK)
        assert rows["early"].decision is rows["never"].decision is None

    @on_two_journals
    async def test_an_answer_that_a_fact_refuses_leaves_the_question_open(
        self, one: Journal, two: Journal
    ) -> None:
        """D4: its driver could not take it, so that another one may come."""
        await append_facts(one, SESSION, [_ask()])
        await two.post_mail(SESSION, _answer(Modify({"no": 1}, "rather")), by="ann")
        refused = MailRefused(1, "answer", "it does not fit")
        await append_facts(one, SESSION, [_placed(refused, 2)])
        assert await _decision_of(two) is None
        await two.post_mail(SESSION, _answer(Allow()), by="ann")
        assert (await _decision_of(one)) is not None

    @on_two_journals
    async def test_the_end_of_a_run_closes_its_questions(self, one: Journal, two: Journal) -> None:
        """D4: an answer that comes later is refused, and one for a deleted session too."""
        await append_facts(one, SESSION, [_ask()])
        await append_facts(one, SESSION, [_placed(RunEnded("cancelled"), 2)])
        assert not await two.read_questions(SESSION)
        assert isinstance(await error_of(two.post_mail(SESSION, _answer(Allow()))), NothingToDo)
        if not self.lists:
            return
        await append_facts(one, SESSION, [_ask("b", 3)])
        await one.delete(SESSION)
        await append_facts(one, SESSION, [CallJudged("a", Allow(), seq=1, at=1.0)])
        assert not await two.read_questions(SESSION)

    @on_two_journals
    async def test_an_answer_for_a_sub_agent_is_decided_at_the_top_and_passed_on_once(
        self, one: Journal, two: Journal
    ) -> None:
        """D13: it lies in the mailbox of the root, and only that message is passed on."""
        await append_facts(one, SESSION, [CallJudged("x", Allow(), seq=1, at=1.0)])
        await append_facts(one, CHILD, [_ask()])
        await two.post_mail(SESSION, _answer(Allow(), session=CHILD), by="ann")
        assert not await one.read_mail(CHILD, "control")
        others = {SESSION: _answer(Deny("no"), session=CHILD), CHILD: _answer(Deny("no"))}
        for session, message in others.items():
            error = await error_of(two.post_mail(session, message, by="bob"))
            assert isinstance(error, QuestionDecided)
        passed = [await one.post_mail(CHILD, _answer(Allow()), key=f"{SESSION}#1") for _ in "ab"]
        assert [receipt.number for receipt in passed] == [1, 1]
        assert (await _decision_of(two, CHILD)) is not None


def _placed(fact: Fact, seq: int) -> Fact:
    return replace(fact, seq=seq, at=1.0)
