"""What every store does with mail: it checks messages, counts them, and says why one is refused.

Invariant: a number of a lane is given out once. It follows the last one that was given out, and the
last one that a fact of the session carries: a fork or an import has facts with numbers of messages
that its own mailbox never held.

An answer is mail that decides a question. Invariant: a store calls `decide_question` while no other
post and no append can change the row, and writes the row and the message together or not at all. So
a question has one decision, and each person who answers receives that one.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from windlass.core.errors import (
    AnswerNotQualified,
    ConfigError,
    JournalCorrupt,
    MailboxFull,
    NothingToDo,
    QuestionDecided,
)
from windlass.core.events import Fact
from windlass.core.fold.control import mail_places, name_message
from windlass.core.mail import (
    AnswerMail,
    CancelMail,
    Mail,
    MailLane,
    PromptMail,
    SteerMail,
    kind_of,
    lane_of,
)
from windlass.core.rate_limits import read_priority
from windlass.core.setup import digest
from windlass.core.text_clip import printable_line
from windlass.core.verdicts import (
    GivenAnswer,
    Modify,
    QuestionRow,
    classify_answer,
    find_disqualification,
    list_agreed,
    list_missing,
    tally,
)

MESSAGE_BYTES_MAX = 64 * 2**20
"""Of a message as it is stored; attachments of a prompt are a part of it."""
UNREADABLE = "this message cannot be read"
NAME_CHARS_MAX = 500
"""Of the author and of the key of a message."""
PRIORITY_MAX = 2**63 - 1


class MailLimits(NamedTuple):
    """How many messages may wait in each lane of a session."""

    control: int = 1_000
    prompts: int = 100

    def of_lane(self, lane: MailLane) -> int:
        """Return the limit of a lane."""
        return self.prompts if lane == "prompts" else self.control


class LaneCounters(msgspec.Struct, frozen=True):
    """The position of a lane of a session."""

    last: int = 0
    """The last number that was given out."""
    taken: int = 0
    """The last number that a fact carries: the cursor of the fold."""

    @property
    def next_number(self) -> int:
        return max(self.last, self.taken) + 1


class MailCounters(msgspec.Struct, frozen=True):
    """The positions of both lanes of a session."""

    control: LaneCounters = LaneCounters()
    prompts: LaneCounters = LaneCounters()

    def of_lane(self, lane: MailLane) -> LaneCounters:
        """Return the counters of a lane."""
        return self.prompts if lane == "prompts" else self.control

    def replace_lane(self, lane: MailLane, counters: LaneCounters) -> "MailCounters":
        """Return the same with other counters for one lane."""
        if lane == "prompts":
            return replace(self, prompts=counters)
        return replace(self, control=counters)

    def advance(self, facts: Iterable[Fact]) -> "MailCounters":
        """Return the counters after these facts were appended: they may carry messages."""
        counters = self
        for fact in facts:
            for lane, number in mail_places(fact):
                before = counters.of_lane(lane)
                counters = counters.replace_lane(lane, replace(before, taken=number))
        return counters


_encode_mail = msgspec.json.Encoder().encode
_decode_mail = msgspec.json.Decoder(Mail).decode


def encode_message(message: Mail, by: str, key: str) -> bytes:
    """Return a message as it is stored. Raises ConfigError if it could not be read back or used."""
    for name, value in (("by", by), ("key", key)):
        _check_name(name, value)
    try:
        body = _encode_mail(message)
        _decode_mail(body)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise ConfigError(
            f"the message cannot be stored: {printable_line(str(error))}; post one of the messages "
            "of windlass.core.mail, with plain data in it"
        ) from None
    _check_content(message)
    if len(body) > MESSAGE_BYTES_MAX:
        raise ConfigError(
            f"the message has {len(body):,} bytes, and at most {MESSAGE_BYTES_MAX:,} are taken; "
            "put large attachments into files that a tool can read"
        )
    return body


def decode_message(body: bytes | str) -> Mail:
    """Read a message as it was stored. Raises msgspec.MsgspecError if it cannot be read."""
    return _decode_mail(body)


def read_message(body: bytes | str, lane: MailLane) -> Mail:
    """Read a message from a store. One that cannot be read becomes one that no run accepts.

    So the driver refuses it by a fact, and the messages behind it are taken.
    """
    try:
        message = _decode_mail(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        message = None
    if message is not None and lane_of(message) == lane:
        return message
    return PromptMail(prompt=()) if lane == "prompts" else CancelMail(run=0, reason=UNREADABLE)


def lane_name(session: str, lane: MailLane) -> str:
    """Return the name under which a waiter is notified of messages in a lane."""
    return f"{lane} {session}"


def no_facts_error(session: str, message: Mail) -> NothingToDo:
    """A message was posted to a session without a run."""
    return NothingToDo(
        f"session {session!r} does not exist, so a {kind_of(message)} message has no run to act "
        "on; check the name, or begin the session with a prompt"
    )


def mailbox_full_error(session: str, lane: MailLane, limit: int) -> MailboxFull:
    """A lane of the session has as many messages as it may hold."""
    return MailboxFull(
        f"session {session!r}: {limit:,} messages wait in its lane {lane!r}, and no more are "
        "taken; let a driver take them (`drive`), or delete the session"
    )


def _check_name(name: str, value: str) -> None:
    if len(value) > NAME_CHARS_MAX or "\0" in value:
        raise ConfigError(f"{name}= must have at most {NAME_CHARS_MAX} characters, and no NUL")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{name}= cannot be stored as text: {error.reason}") from None


def _check_content(message: Mail) -> None:
    kind = kind_of(message)
    if isinstance(message, PromptMail | SteerMail) and not message.prompt:
        raise ConfigError(f"a {kind} message needs a prompt: it is empty")
    if not isinstance(message, PromptMail) and message.run < 1:
        raise ConfigError(f"a {kind} message must name its run: runs are numbered from 1")
    if isinstance(message, AnswerMail) and not (message.call_id and message.digest):
        raise ConfigError("an answer must name its call and the digest of its arguments")


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
    if no such question waits, or the person has answered it, QuestionDecided if it was decided
    before, AnswerNotQualified if others have to answer, and ConfigError if the answer is for other
    arguments.
    """
    message = post.message
    if row is None:
        raise no_question_error(message.call_id, post.asking)
    if post.key and any(given.via == post.key for given in row.answers):
        return None
    # Who comes late learns of the decision, whichever of the arguments they were shown.
    shown = (row.digest,) if row.decision is None else (row.terms.digest, row.digest)
    if message.digest not in shown:
        raise other_arguments_error(message.call_id)
    if row.decision is not None:
        raise QuestionDecided(row.call_id, row.decision)
    if row.is_settled:
        raise no_question_error(message.call_id, post.asking)
    via = name_message(post.session, post.number)
    put_in = digest(message.verdict.arguments) if isinstance(message.verdict, Modify) else ""
    kind = classify_answer(message.verdict)
    given = GivenAnswer(kind, post.by, post.at, message.person, put_in, via)
    answers = (*row.answers, given)
    decision = tally(row.terms, answers)
    if decision is not None and decision.answer == "expiry" and kind != "expiry":
        raise QuestionDecided(row.call_id, decision)
    if decision is None:
        _check_counts(row, given)
    return replace(row, answers=answers, decision=decision, via=via if decision else "")


def _check_counts(row: QuestionRow, given: GivenAnswer) -> None:
    """Raise an error if an answer that decides nothing does not count either."""
    if given.answer == "expiry":
        raise NothingToDo(f"the question about call {row.call_id} has not expired yet")
    if problem := find_disqualification(row.terms, given):
        raise AnswerNotQualified(row.call_id, problem)
    names = [one.person.name for one in list_agreed(row.answers) if one.person is not None]
    if given.answer == "allow" and given.person is not None and given.person.name in names:
        needed = ", and ".join(one.describe() for one in list_missing(row.terms, row.answers))
        raise NothingToDo(
            f"{given.person.name} has agreed to call {row.call_id} already; it still needs {needed}"
        )


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


def caller_of(message: Mail) -> str:
    """Return on whose behalf a message begins a run; empty if it begins none."""
    return message.caller if isinstance(message, PromptMail) else ""


def agent_of(message: Mail) -> str:
    """Return the agent that a message begins a run of; empty if any agent may."""
    return message.agent if isinstance(message, PromptMail) else ""


def priority_of(message: Mail) -> int:
    """Return the priority of the run that a message begins; 0 if it begins none."""
    if not isinstance(message, PromptMail):
        return 0
    # As wide as a column of the databases.
    return max(-PRIORITY_MAX, min(read_priority(message.context), PRIORITY_MAX))
