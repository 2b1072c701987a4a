"""The mailboxes of sessions in memory."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from windlass.core.events import Fact
from windlass.core.fold.questions import advance_questions, touches_questions
from windlass.core.mail import AnswerMail, Letter, Mail, MailLane, MailReceipt, lane_of
from windlass.core.questions import QuestionRow
from windlass.journals.mail_rules import (
    MailCounters,
    MailLimits,
    decode_message,
    encode_message,
    mailbox_full_error,
)
from windlass.journals.question_rules import AnswerPost, decide_question


class _SessionMail(msgspec.Struct):
    """The mailbox of one session."""

    counters: MailCounters = MailCounters()
    letters: dict[tuple[MailLane, int], Letter] = {}
    receipts: dict[tuple[MailLane, str], MailReceipt] = {}
    """By lane and key. They outlive their letters: a key is accepted once per session."""
    questions: dict[str, QuestionRow] = {}
    """By call."""


class MemoryMailboxes:
    """The mail of all sessions of one journal. The journal's mutex is held by the caller."""

    def __init__(self, limits: MailLimits) -> None:
        self._limits = limits
        self._sessions: dict[str, _SessionMail] = {}

    def __contains__(self, session: str) -> bool:
        return session in self._sessions

    def post(self, session: str, message: Mail, by: str, key: str, at: float) -> MailReceipt:
        """Keep a message. Raises MailboxFull, and ConfigError for one that cannot be kept."""
        # Decoded again, so that nobody changes its context afterwards.
        message = decode_message(encode_message(message, by, key))
        lane = lane_of(message)
        mail = self._sessions.get(session) or _SessionMail()
        if key and (lane, key) in mail.receipts:
            return mail.receipts[lane, key]
        if len(self._waiting(mail, lane)) >= self._limits.of_lane(lane):
            raise mailbox_full_error(session, lane, self._limits.of_lane(lane))
        counters = mail.counters.of_lane(lane)
        number = counters.next_number
        if isinstance(message, AnswerMail):
            self._decide(AnswerPost(session, number, message, by, key, at))
        letter = Letter(number=number, at=at, message=message, by=by, key=key)
        receipt = MailReceipt(session, lane, number, at)
        mail.letters[lane, number] = letter
        mail.counters = mail.counters.replace_lane(lane, replace(counters, last=number))
        if key:
            mail.receipts[lane, key] = receipt
        self._sessions[session] = mail
        return receipt

    def _decide(self, post: AnswerPost) -> None:
        """Decide the question that an answer is for."""
        mail = self._sessions.get(post.asking)
        row = mail.questions.get(post.message.call_id) if mail else None
        decided = decide_question(row, post)
        if mail is not None and decided is not None:
            mail.questions[decided.call_id] = decided

    def note_facts(self, session: str, facts: Sequence[Fact]) -> None:
        """Follow the cursors and the questions of a session to which facts were appended."""
        mail = self._sessions.get(session) or _SessionMail()
        counters = mail.counters.advance(facts)
        changed: dict[str, QuestionRow] = {}
        unsettled = {row.call_id: row for row in self.read_questions(session)}
        if touches_questions(facts, has_open=bool(unsettled)):
            changed = advance_questions(session, unsettled, facts)
        if counters != mail.counters or changed:
            mail.counters = counters
            mail.questions.update(changed)
            self._sessions[session] = mail

    def read_questions(self, session: str) -> Sequence[QuestionRow]:
        """Return the questions of a session that no fact has settled."""
        mail = self._sessions.get(session)
        rows = mail.questions.values() if mail else ()
        return tuple(row for row in rows if not row.is_settled)

    def read(self, session: str, lane: MailLane, after: int) -> Sequence[Letter]:
        """Return the letters of a lane after a number, in order."""
        mail = self._sessions.get(session)
        if mail is None:
            return ()
        found = [
            letter for (where, nth), letter in mail.letters.items() if where == lane and nth > after
        ]
        return tuple(sorted(found, key=lambda letter: letter.number))

    def remove(self, session: str, lane: MailLane, upto: int) -> None:
        """Forget the letters of a lane up to a number."""
        mail = self._sessions.get(session)
        for place in [*mail.letters] if mail else ():
            if mail and place[0] == lane and place[1] <= upto:
                del mail.letters[place]

    def delete(self, session: str) -> bool:
        """Forget the mailbox of a session; returns whether it held messages that nobody took."""
        mail = self._sessions.pop(session, None)
        return mail is not None and self._has_waiting(mail)

    def has_waiting(self, session: str) -> bool:
        """Whether a session has messages that nobody has taken."""
        mail = self._sessions.get(session)
        return mail is not None and self._has_waiting(mail)

    def list_mailed(self, limit: int) -> list[str]:
        """Return the sessions with messages that nobody has taken, the oldest message first."""
        oldest: dict[str, float] = {}
        for session, mail in self._sessions.items():
            waiting = [*self._waiting(mail, "control"), *self._waiting(mail, "prompts")]
            if waiting:
                oldest[session] = min(letter.at for letter in waiting)
        return sorted(oldest, key=lambda session: oldest[session])[:limit]

    def _has_waiting(self, mail: _SessionMail) -> bool:
        return bool(self._waiting(mail, "control") or self._waiting(mail, "prompts"))

    def _waiting(self, mail: _SessionMail, lane: MailLane) -> list[Letter]:
        """Return the letters of a lane that no fact carries yet."""
        taken = mail.counters.of_lane(lane).taken
        return [
            letter for (where, nth), letter in mail.letters.items() if where == lane and nth > taken
        ]
