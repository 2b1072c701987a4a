"""What the signature of an answer covers, in a journal whose answers a service signs.

Invariant: the values follow from the message and from the fact alike. So the fact proves itself to
the next driver when the message is long gone. Free text that the recorder may mask is left out: it
decides nothing.
"""

from collections.abc import Iterable

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.events import AnswerCounted, CallAnswered, CallJudged, Fact
from windlass.core.fold.calls import read_given
from windlass.core.mail import AnswerMail, Letter
from windlass.core.setup import digest
from windlass.core.verdicts import (
    APPROVER,
    Ask,
    GivenAnswer,
    Grant,
    Modify,
    classify_answer,
    tally,
    terms_of,
)
from windlass.journals.codec import RecordProblem
from windlass.journals.service_keys import ServiceKeys
from windlass.ports.records import ProvenAnswers

_PURPOSE = "answer"
UNSIGNED = "it is not signed by a service that is trusted here"


def check_answer_post(keys: ServiceKeys, message: AnswerMail, by: str) -> None:
    """Raise ConfigError if this process cannot post an answer that counts.

    An answer that is passed on to a sub-agent has a signature already. That a question has expired
    follows from the clock of the database, and the approver of a driver counts for that driver.
    """
    if keys.is_configured and not keys.can_sign and not message.signature:
        if by == APPROVER or classify_answer(message.verdict) == "expiry":
            return
        raise ConfigError(
            "answers in this journal are signed by the service, and this process does not have its "
            "key: answer on the page of the service, or through its API"
        )


def sign_answer(keys: ServiceKeys, session: str, message: AnswerMail, by: str, at: float) -> str:
    """Return the signature of an answer that the store accepts at a time; empty without keys.

    `session` is the one of the run that asks.
    """
    if message.signature or not keys.is_configured:
        return message.signature
    values = _values_of(session, message)
    if keys.can_sign:
        return keys.sign(_PURPOSE, *values, by, at)
    # Who may post without the private key is said above; an expiry needs no signature.
    return keys.sign_in_process(_PURPOSE, *values, by, at) if by == APPROVER else ""


def find_answer_problem(keys: ServiceKeys, session: str, letter: Letter) -> str | None:
    """Return why a message is not to be taken; None if it is not an answer, or one that counts."""
    message = letter.message
    if not keys.is_configured or not isinstance(message, AnswerMail):
        return None
    if classify_answer(message.verdict) == "expiry":
        return None
    asking = message.session or session
    values = _values_of(asking, message)
    at = message.accepted_at or letter.at
    if keys.is_valid(letter.signature, _PURPOSE, *values, letter.by, at):
        return None
    return UNSIGNED


def find_proven(keys: ServiceKeys, session: str, facts: Iterable[Fact]) -> ProvenAnswers:
    """Return what the answers of a session prove: those that a service signed.

    If several people had to agree, it takes the signatures of all of them.
    """
    calls: dict[str, bool] = {}
    grants: list[Grant] = []
    asked: dict[str, Ask] = {}
    agreed: dict[str, tuple[GivenAnswer, ...]] = {}
    for fact in facts:
        match fact:
            case CallJudged(call_id=call_id, verdict=Ask() as question):
                asked[call_id], agreed[call_id] = question, ()
            case AnswerCounted(call_id=call_id) if _is_proven(keys, session, fact):
                agreed[call_id] = (*agreed.get(call_id, ()), read_given(fact))
            case CallAnswered(call_id=call_id):
                answers = (*agreed.get(call_id, ()), read_given(fact))
                terms = terms_of(asked.get(call_id, Ask("")), fact.digest)
                is_decided = tally(terms, answers) is not None
                # Of several answers about one call, the last one decides.
                calls[call_id] = is_decided and _is_proven(keys, session, fact)
                if calls[call_id] and fact.grant is not None:
                    grants.append(fact.grant)
            case _:
                pass
    return ProvenAnswers(frozenset(one for one, is_proven in calls.items() if is_proven), grants)


def find_unsigned_answers(
    keys: ServiceKeys, session: str, facts: Iterable[Fact]
) -> list[RecordProblem]:
    """Return a problem for each answer that a service should have signed, and did not."""
    return [
        RecordProblem(fact.seq, "no service that is trusted here signed this answer")
        for fact in facts
        if isinstance(fact, CallAnswered | AnswerCounted)
        and fact.by != APPROVER
        and classify_answer(fact.verdict) != "expiry"
        and not _is_proven(keys, session, fact)
    ]


def _is_proven(keys: ServiceKeys, session: str, fact: CallAnswered | AnswerCounted) -> bool:
    values = _values_of(session, fact)
    return keys.is_valid(fact.signature, _PURPOSE, *values, fact.by, fact.accepted_at)


def _values_of(
    session: str, given: AnswerMail | CallAnswered | AnswerCounted
) -> tuple[object, ...]:
    verdict = given.verdict
    put_in = digest(verdict.arguments) if isinstance(verdict, Modify) else ""
    grant = None if isinstance(given, AnswerCounted) else given.grant
    granted = None if grant is None else msgspec.to_builtins(grant)
    values = (session, given.call_id, given.digest, classify_answer(verdict), put_in, granted)
    person = given.person
    return values if person is None else (*values, msgspec.to_builtins(person))
