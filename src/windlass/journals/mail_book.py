"""The mailboxes of sessions as a list of entries: what each entry adds, and which may follow.

Both the journal in memory and a completed store (`completing.py`) keep mail this way. An entry
holds the outcome of a post, so applying the same entries in the same order always gives the same
book. Cursors and questions are not in it: they follow from the facts of the sessions.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from windlass.core.events import Fact
from windlass.core.fold.control import advance_questions
from windlass.core.mail import AnswerMail, Letter, Mail, MailLane, MailReceipt, lane_of
from windlass.core.verdicts import QuestionRow
from windlass.journals.mail_rules import (
    AnswerPost,
    MailCounters,
    MailLimits,
    caller_of,
    decide_question,
    decode_message,
    encode_message,
    mailbox_full_error,
    no_facts_error,
)
from windlass.ports.fleet import CallerQueue

FactsOf = Callable[[str], Sequence[Fact]]
"""Returns the facts of a session."""


class DecidedQuestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """A question as an answer decided it."""

    session: str
    """The session that asks."""
    seen: int
    """The last fact of that session when the answer was accepted."""
    row: QuestionRow


class MailPosted(msgspec.Struct, frozen=True, omit_defaults=True, tag="posted"):
    """A message was accepted, and decided a question if it is an answer."""

    session: str
    letter: Letter
    decided: DecidedQuestion | None = None

    @property
    def receipt(self) -> MailReceipt:
        """The proof for the poster."""
        return MailReceipt(self.session, self.letter.lane, self.letter.number, self.letter.at)


class MailRemoved(msgspec.Struct, frozen=True, tag="removed"):
    """The messages of a lane up to a number were removed."""

    session: str
    lane: MailLane
    upto: int


class MailDraft(msgspec.Struct, frozen=True):
    """A message on its way into a mailbox."""

    session: str
    message: Mail
    by: str = ""
    key: str = ""

    @property
    def asking(self) -> str:
        """The session whose question the message answers; its own if it is no answer."""
        message = self.message
        return (isinstance(message, AnswerMail) and message.session) or self.session


class _SessionMail(msgspec.Struct):
    """The mailbox of one session."""

    counters: MailCounters = MailCounters()
    letters: dict[tuple[MailLane, int], Letter] = {}
    receipts: dict[tuple[MailLane, str], MailReceipt] = {}
    """By lane and key. They outlive their letters: a key is accepted once per session."""


class MailBook:
    """The mail of many sessions."""

    def __init__(self, limits: MailLimits) -> None:
        self._limits = limits
        self._sessions: dict[str, _SessionMail] = {}
        self._decided: dict[str, list[DecidedQuestion]] = {}

    def plan_post(self, draft: MailDraft, facts_of: FactsOf, at: float) -> MailPosted | MailReceipt:
        """Return the entry that keeps a message, or the receipt of its first post.

        Raises NothingToDo, QuestionDecided, MailboxFull, and ConfigError for one that cannot be
        kept.
        """
        session = draft.session
        # Decoded again, so that a later change of its context by the poster has no effect.
        message = decode_message(encode_message(draft.message, draft.by, draft.key))
        lane = lane_of(message)
        facts = facts_of(session)
        if lane == "control" and not facts:
            raise no_facts_error(session, message)
        mail = self._sessions.get(session, _SessionMail())
        if draft.key and (lane, draft.key) in mail.receipts:
            return mail.receipts[lane, draft.key]
        counters = mail.counters.advance(facts).of_lane(lane)
        if len(_waiting(mail, lane, counters.taken)) >= self._limits.of_lane(lane):
            raise mailbox_full_error(session, lane, self._limits.of_lane(lane))
        number = counters.next_number
        letter = Letter(number=number, at=at, message=message, by=draft.by, key=draft.key)
        decided = None
        if isinstance(message, AnswerMail):
            post = AnswerPost(session, number, message, draft.by, draft.key, at)
            asked = facts_of(post.asking)
            row = self._questions(post.asking, asked).get(message.call_id)
            if (changed := decide_question(row, post)) is not None:
                decided = DecidedQuestion(post.asking, asked[-1].seq, changed)
        return MailPosted(session, letter, decided)

    def apply(self, entry: MailPosted | MailRemoved) -> None:
        """Add an entry."""
        mail = self._sessions.setdefault(entry.session, _SessionMail())
        if isinstance(entry, MailRemoved):
            for lane, number in [*mail.letters]:
                if lane == entry.lane and number <= entry.upto:
                    del mail.letters[lane, number]
            return
        letter = entry.letter
        lane = letter.lane
        mail.letters[lane, letter.number] = letter
        last = replace(mail.counters.of_lane(lane), last=letter.number)
        mail.counters = mail.counters.replace_lane(lane, last)
        if letter.key:
            mail.receipts[lane, letter.key] = entry.receipt
        if entry.decided is not None:
            self._decided.setdefault(entry.decided.session, []).append(entry.decided)

    def read(self, session: str, lane: MailLane, after: int) -> Sequence[Letter]:
        """Return the letters of a lane after a number, in order."""
        mail = self._sessions.get(session)
        return () if mail is None else _waiting(mail, lane, after)

    def read_questions(self, session: str, facts: Sequence[Fact]) -> Sequence[QuestionRow]:
        """Return the questions of a session that no fact has settled."""
        rows = self._questions(session, facts).values()
        return tuple(row for row in rows if not row.is_settled)

    def has_waiting(self, session: str, facts: Sequence[Fact]) -> bool:
        """Whether a session has messages that no fact carries."""
        return any(True for _ in self._untaken(session, facts))

    def list_filled(self) -> list[str]:
        """Return the sessions that have messages, also such that facts carry."""
        return [session for session, mail in self._sessions.items() if mail.letters]

    def list_untaken(self, session: str, facts: Sequence[Fact]) -> Sequence[Letter]:
        """Return the messages of a session that no fact carries, those of each lane in order."""
        return tuple(self._untaken(session, facts))

    def list_mailed(self, facts_of: FactsOf, limit: int) -> list[str]:
        """Return the sessions with messages that no fact carries, the oldest first."""
        found = [(name, self.list_untaken(name, facts_of(name))) for name in self.list_filled()]
        times = {name: min(letter.at for letter in each) for name, each in found if each}
        return sorted(times, key=lambda name: (times[name], name))[:limit]

    def list_queues(self, facts_of: FactsOf) -> list[CallerQueue]:
        """Return how many prompts of each caller wait, and since when; the longest wait first."""
        times: dict[str, list[float]] = {}
        for session, mail in self._sessions.items():
            waiting = self._untaken(session, facts_of(session)) if mail.letters else ()
            for letter in waiting:
                if letter.lane == "prompts":
                    times.setdefault(caller_of(letter.message), []).append(letter.at)
        queues = [CallerQueue(caller, len(each), min(each)) for caller, each in times.items()]
        return sorted(queues, key=lambda queue: (queue.oldest_at, queue.caller))

    def delete(self, session: str, facts: Sequence[Fact]) -> bool:
        """Forget the mailbox of a session; returns whether messages waited that no fact carries."""
        had_waiting = self.has_waiting(session, facts)
        self._sessions.pop(session, None)
        self._decided.pop(session, None)
        return had_waiting

    def _untaken(self, session: str, facts: Sequence[Fact]) -> Iterator[Letter]:
        mail = self._sessions.get(session)
        if mail is None or not mail.letters:
            return
        counters = mail.counters.advance(facts)
        yield from _waiting(mail, "control", counters.control.taken)
        yield from _waiting(mail, "prompts", counters.prompts.taken)

    def _questions(self, session: str, facts: Sequence[Fact]) -> Mapping[str, QuestionRow]:
        """Return the questions of a session by call: its facts and its decisions, in their order.

        Facts may have come while an answer was posted. They count as later than the decision.
        """
        rows: dict[str, QuestionRow] = {}
        noted = 0
        for decided in self._decided.get(session, ()):
            _advance(rows, session, facts[noted : decided.seen])
            rows[decided.row.call_id] = decided.row
            noted = decided.seen
        _advance(rows, session, facts[noted:])
        return rows


def _advance(rows: dict[str, QuestionRow], session: str, facts: Sequence[Fact]) -> None:
    unsettled = {call_id: row for call_id, row in rows.items() if not row.is_settled}
    rows.update(advance_questions(session, unsettled, facts))


def _waiting(mail: _SessionMail, lane: MailLane, after: int) -> Sequence[Letter]:
    """Return the letters of a lane after a number, in order."""
    found = (mail.letters[place] for place in mail.letters if place[0] == lane and place[1] > after)
    return tuple(sorted(found, key=lambda letter: letter.number))
