"""What every store does with an answer: it decides the question, or says why it does not count.

Invariant: a store calls `decide_question` while no other post and no append can change the row, and
writes the row and the message together or not at all. So a question has one decision, and each
person who answers receives that one.
"""

from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from windlass.core.errors import ConfigError, JournalCorrupt, NothingToDo, QuestionDecided
from windlass.core.fold.control import name_message
from windlass.core.mail import AnswerMail
from windlass.core.verdicts import GivenAnswer, QuestionRow, classify_answer, tally

_encode_row = msgspec.json.Encoder().encode
_decode_row = msgspec.json.Decoder(QuestionRow).decode


class AnswerPost(NamedTuple):
    """An answer on its way into a mailbox."""

    session: str
    """The session whose mailbox it goes to."""
    number: int
    """The number that it gets there."""
    message: AnswerMail
    by: str
    key: str
    at: float = 0.0
    """The time by the store's clock."""

    @property
    def asking(self) -> str:
        """The session of the run that asks: that of the mailbox, or a sub-agent's."""
        return self.message.session or self.session


def decide_question(row: QuestionRow | None, post: AnswerPost) -> QuestionRow | None:
    """Return the question as the answer decides it; None if the answer is the decision already.

    The latter is an answer that the run at the top passes on to its sub-agent. Raises NothingToDo
    if no such question waits, QuestionDecided if it was decided before, and ConfigError if the
    answer is for other arguments.
    """
    message = post.message
    if row is None:
        raise no_question_error(message.call_id, post.asking)
    if row.terms.digest != message.digest:
        raise other_arguments_error(message.call_id)
    if row.via and row.via == post.key:
        return None
    if row.decision is not None:
        raise QuestionDecided(row.call_id, row.decision)
    if row.is_settled:
        raise no_question_error(message.call_id, post.asking)
    given = GivenAnswer(classify_answer(message.verdict), post.by, post.at)
    decision = tally(row.terms, (*row.answers, given))
    if decision is None:
        raise NothingToDo(f"the question about call {row.call_id} has not expired yet")
    if decision.answer == "expiry" and given.answer != "expiry":
        raise QuestionDecided(row.call_id, decision)
    via = name_message(post.session, post.number)
    return replace(row, answers=(*row.answers, given), decision=decision, via=via)


def encode_question(row: QuestionRow) -> str:
    """Return a question as it is stored."""
    return _encode_row(row).decode()


def decode_question(body: str | bytes) -> QuestionRow:
    """Read a question as it was stored. Raises JournalCorrupt if it cannot be read."""
    try:
        return _decode_row(body)
    except msgspec.MsgspecError as error:
        raise JournalCorrupt(f"a question cannot be read: {error}") from None


def no_question_error(call_id: str, session: str) -> NothingToDo:
    """There is nothing to answer."""
    return NothingToDo(f"no question about call {call_id} waits in session {session}")


def other_arguments_error(call_id: str) -> ConfigError:
    """The arguments were changed since the person saw them, or were never those."""
    return ConfigError(
        f"the answer is for other arguments than those of call {call_id}: look at the question "
        "again"
    )
