"""How facts open and settle the questions of a session, for the rows that stores keep of them."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from windlass.core.control_facts import MailRefused
from windlass.core.events import CallAnswered, CallJudged, Fact, RunEnded, SessionImported
from windlass.core.questions import Decision, QuestionRow, QuestionTerms, classify_answer
from windlass.core.setup import digest
from windlass.core.state import State, find_call
from windlass.core.verdicts import Ask

_SETTLING_FACTS = frozenset((CallAnswered, MailRefused, RunEnded, SessionImported))


def bind_question(state: State, fact: CallJudged) -> CallJudged:
    """Return a verdict that asks a question with the digest of what it asks about.

    `state` is the one after the fact. Other verdicts are returned unchanged.
    """
    if not isinstance(fact.verdict, Ask):
        return fact
    call = find_call(state, fact.call_id)
    return fact if call is None else replace(fact, digest=digest(call.decoded_arguments))


def touches_questions(facts: Iterable[Fact], *, has_open: bool) -> bool:
    """Whether facts may open or settle a question; `has_open`: some are open before them."""
    for fact in facts:
        kind = type(fact)  # asked of every fact that is written
        if kind in _SETTLING_FACTS and has_open:
            return True
        if isinstance(fact, CallJudged) and isinstance(fact.verdict, Ask):
            return True
    return False


def advance_questions(
    session: str, unsettled: Mapping[str, QuestionRow], facts: Iterable[Fact]
) -> dict[str, QuestionRow]:
    """Return the rows that facts change, by call, from those that are not settled. Pure."""
    rows = dict(unsettled)
    for fact in facts:
        match fact:
            case CallJudged(call_id=call_id, verdict=Ask(expires_at=expires_at)) if fact.digest:
                rows[call_id] = QuestionRow(call_id, QuestionTerms(fact.digest, expires_at))
            case CallAnswered(call_id=call_id) if call_id in rows:
                rows[call_id] = _settle_answered(rows[call_id], fact)
            case MailRefused(mail=number, lane="control"):
                via = name_message(session, number)
                rows = {
                    call_id: _reopen(row) if row.via == via else row
                    for call_id, row in rows.items()
                }
            case RunEnded() | SessionImported():
                rows = {call_id: replace(row, is_settled=True) for call_id, row in rows.items()}
            case _:
                pass
    return {call_id: row for call_id, row in rows.items() if row != unsettled.get(call_id)}


def name_message(session: str, number: int) -> str:
    """Return what names a control message: it is the key under which an answer is passed on."""
    return f"{session}#{number}"


def _settle_answered(row: QuestionRow, fact: CallAnswered) -> QuestionRow:
    answered = Decision(classify_answer(fact.verdict), fact.by, fact.accepted_at or fact.at)
    return replace(row, decision=row.decision or answered, is_settled=True)


def _reopen(row: QuestionRow) -> QuestionRow:
    """Return a question whose answer the driver could not take, so that another one may come."""
    return replace(row, answers=(), decision=None, via="", is_settled=row.is_settled)
