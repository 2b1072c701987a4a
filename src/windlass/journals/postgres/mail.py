"""The mailboxes of sessions in Postgres.

Invariant: the row of the session is locked before a number is given out, so that numbers appear in
order: a reader never sees a number before those below it. A sequence of the database would not do
that.

Each function may be run again when its connection breaks: `nonce` distinguishes a message that was
posted already from another one with the same words.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from windlass.core.errors import JournalCorrupt
from windlass.core.mail import AnswerMail, Letter, Mail, MailLane, MailReceipt, lane_of
from windlass.core.verdicts import QuestionRow
from windlass.journals.answer_proofs import sign_answer
from windlass.journals.mail_rules import (
    AnswerPost,
    LaneCounters,
    MailLimits,
    agent_of,
    caller_of,
    mailbox_full_error,
    no_facts_error,
    priority_of,
    read_message,
)
from windlass.journals.postgres.batch import to_column
from windlass.journals.postgres.config import PostgresConfig, PostgresConnection
from windlass.journals.postgres.history import LAST_FAILOVER
from windlass.journals.postgres.questions import PostgresQuestions
from windlass.journals.service_keys import ServiceKeys
from windlass.journals.session_rows import SESSION_COLUMNS, SessionEnd
from windlass.ports.fleet import CallerQueue

LANE_COLUMNS: dict[MailLane, str] = {"control": "mail", "prompts": "prompts"}
"""What the columns of a lane's counters begin with."""
_IS_WAITING = """mail.message IS NOT NULL AND mail.number >
    CASE lane WHEN 'prompts' THEN sessions.prompts_taken ELSE sessions.mail_taken END"""
HAS_MAIL = f"EXISTS (SELECT FROM {{0}}.mail WHERE mail.session = sessions.number AND {_IS_WAITING})"
"""Whether a session has messages that no fact carries yet."""


_LIST_MAILED = f"""
SELECT sessions.session FROM {{0}}.mail JOIN {{0}}.sessions ON sessions.number = mail.session
WHERE {_IS_WAITING} GROUP BY sessions.session ORDER BY min(at), 1 LIMIT $1
"""  # noqa: S608 - our own text
_LIST_QUEUES = f"""
SELECT mail.caller, count(*), min(mail.at) FROM {{0}}.mail
JOIN {{0}}.sessions ON sessions.number = mail.session
WHERE lane = 'prompts' AND {_IS_WAITING} GROUP BY mail.caller ORDER BY min(mail.at), mail.caller
"""  # noqa: S608 - our own text


GAP = 1_000
"""Numbers that are left out after a failover: the messages that it lost may have had them."""
_HAS_GAP = f"""(SELECT last.number FROM ({LAST_FAILOVER}) AS last
    WHERE last.reason <> '' AND sessions.number <= last.sessions AND sessions.raised < last.number)
"""  # noqa: S608 - our own text
_LEAVE_GAP = f"""
UPDATE {{0}}.sessions SET raised = $2, mail_last = greatest(mail_last, mail_taken) + {GAP},
    prompts_last = greatest(prompts_last, prompts_taken) + {GAP} WHERE number = $1
"""  # noqa: S608 - our own text


class _Acceptance(NamedTuple):
    """How a message was accepted: its number in its lane, and of an answer also the time."""

    number: int
    at: float | None = None
    signature: str = ""


class ServerLetter(NamedTuple):
    """A message to post, as it is stored."""

    session: str
    message: Mail
    body: bytes
    by: str
    key: str
    nonce: str

    @property
    def asking(self) -> str:
        """The session of the run that an answer is for: its own, or a sub-agent's."""
        own = self.message.session if isinstance(self.message, AnswerMail) else ""
        return own or self.session


class PostgresMail:
    """Statements for mail in one schema. In their text, `{0}` is its quoted name."""

    def __init__(self, config: PostgresConfig, limits: MailLimits, keys: ServiceKeys) -> None:
        self._config = config
        self._limits = limits
        self._keys = keys
        self._questions = PostgresQuestions(config)

    async def post_letter(
        self, server: PostgresConnection, letter: ServerLetter, had: int = 0
    ) -> tuple[MailReceipt, bool]:
        """Keep a message. Returns also whether a process may wait for it.

        `had` is the number that it had before a failover lost it. Raises NothingToDo,
        QuestionDecided and MailboxFull.
        """
        lane = lane_of(letter.message)
        async with server.transaction():
            row = await self._lock_session(server, letter.session, lane, is_again=had > 0)
            if lane == "control" and (row is None or row[1] == 0):
                raise no_facts_error(letter.session, letter.message)
            if row is None:
                row = await self._insert_session(server, letter.session, lane)
            session, _, last, taken, is_waited = row
            first = await server.fetchrow(
                self._format_sql(
                    """SELECT number, at FROM {0}.mail
                    WHERE session = $1 AND lane = $2 AND (nonce = $3 OR key = $4 AND key <> '')"""
                ),
                session,
                lane,
                letter.nonce,
                letter.key,
            )
            if first is not None:
                return MailReceipt(letter.session, lane, first[0], first[1]), is_waited
            await self._check_room(server, letter.session, session, lane, taken)
            number = LaneCounters(last, taken).next_number
            # A queued run names its prompt; a reader of other messages may be past this number.
            if had > taken and (lane == "prompts" or had >= number):
                number = had if await self._is_free(server, session, lane, had) else number
            accepted = _Acceptance(number)
            if isinstance(letter.message, AnswerMail):
                accepted = await self._accept_answer(server, letter, letter.message, number)
            at = await self._insert_letter(server, letter, session, accepted)
            return MailReceipt(letter.session, lane, number, at), is_waited

    async def _accept_answer(
        self, server: PostgresConnection, letter: ServerLetter, answer: AnswerMail, number: int
    ) -> "_Acceptance":
        """Decide the question that an answer is for, and sign the answer with the time of that."""
        post = AnswerPost(letter.session, number, answer, letter.by, letter.key)
        at = await self._questions.decide(server, post)
        return _Acceptance(
            number, at, sign_answer(self._keys, letter.asking, answer, letter.by, at)
        )

    async def _lock_session(
        self, server: PostgresConnection, session: str, lane: MailLane, *, is_again: bool = False
    ) -> Sequence[Any] | None:
        """Lock a session. Returns its key, its records and the counters of a lane.

        The last value is whether a process may wait for its messages: its driver does. The first
        message after a failover leaves out the numbers of those that it may have lost, unless it is
        one of them (`is_again`).
        """
        name = LANE_COLUMNS[lane]
        query = f"""SELECT number, facts, {name}_last, {name}_taken,
            worker IS NOT NULL OR coalesce(waited > clock_timestamp(), false), {_HAS_GAP}
            FROM {{0}}.sessions"""  # noqa: S608 - a constant
        query += " WHERE session = $1 FOR UPDATE"
        row = await server.fetchrow(self._format_sql(query), session)
        if row is not None and row[5] and not is_again:
            await server.execute(self._format_sql(_LEAVE_GAP), row[0], row[5])
            row = await server.fetchrow(self._format_sql(query), session)
        return None if row is None else row[:5]

    async def _insert_session(
        self, server: PostgresConnection, session: str, lane: MailLane
    ) -> Sequence[Any]:
        """Make the row of a session whose first message is a prompt."""
        values = [to_column(value) for value in SessionEnd.of_mailbox(session).to_row()]
        places = ", ".join(f"${at}" for at in range(1, len(values) + 1))
        query = f"""INSERT INTO {{0}}.sessions ({SESSION_COLUMNS}) VALUES ({places})
            ON CONFLICT (session) DO NOTHING"""  # noqa: S608 - our own names
        await server.execute(self._format_sql(query), *values)
        # Another poster or driver may have been faster. Then its row is the one.
        row = await self._lock_session(server, session, lane)
        if row is None:
            raise JournalCorrupt(f"session {session!r}: its row cannot be made")
        return row

    async def _is_free(
        self, server: PostgresConnection, session: int, lane: MailLane, number: int
    ) -> bool:
        query = """SELECT NOT EXISTS (SELECT FROM {0}.mail
            WHERE session = $1 AND lane = $2 AND number = $3)"""
        return await server.fetchval(self._format_sql(query), session, lane, number)

    async def _check_room(
        self, server: PostgresConnection, name: str, session: int, lane: MailLane, taken: int
    ) -> None:
        query = """SELECT count(*) FROM {0}.mail
            WHERE session = $1 AND lane = $2 AND number > $3 AND message IS NOT NULL"""
        count = await server.fetchval(self._format_sql(query), session, lane, taken)
        limit = self._limits.of_lane(lane)
        if count >= limit:
            raise mailbox_full_error(name, lane, limit)

    async def _insert_letter(
        self,
        server: PostgresConnection,
        letter: ServerLetter,
        session: int,
        accepted: "_Acceptance",
    ) -> float:
        """Keep the message under its number. Returns its time.

        The time is the server's in any case: an answer is judged by that, on whichever machine it
        was given.
        """
        lane = lane_of(letter.message)
        query = """INSERT INTO {0}.mail
            (session, lane, number, at, by, key, nonce, message, signature, caller, agent,
                priority)
            VALUES ($1, $2, $3,
                coalesce($8::float8, extract(epoch FROM clock_timestamp())::float8),
                $4, $5, $6, $7, $9, $10, $11, $12)
            RETURNING at"""
        accepted_at: float = await server.fetchval(
            self._format_sql(query),
            session,
            lane,
            accepted.number,
            letter.by,
            letter.key,
            letter.nonce,
            letter.body.decode(),
            accepted.at,
            accepted.signature,
            to_column(caller_of(letter.message)),
            to_column(agent_of(letter.message)),
            priority_of(letter.message),
        )
        name = LANE_COLUMNS[lane]
        counter = f"""UPDATE {{0}}.sessions SET {name}_last = greatest({name}_last, $1)
            WHERE number = $2"""  # noqa: S608 - a constant
        await server.execute(self._format_sql(counter), accepted.number, session)
        return accepted_at

    async def read_letters(
        self, server: PostgresConnection, session: str, lane: MailLane, after: int
    ) -> Sequence[Letter]:
        """Return the messages of a lane after a number, in order."""
        rows = await server.fetch(
            self._format_sql(
                """SELECT mail.number, at, by, key, message, signature FROM {0}.sessions
                JOIN {0}.mail ON mail.session = sessions.number
                WHERE sessions.session = $1 AND lane = $2 AND mail.number > $3
                    AND message IS NOT NULL ORDER BY mail.number"""
            ),
            session,
            lane,
            after,
        )
        return [
            Letter(
                number=row[0],
                at=row[1],
                by=row[2],
                key=row[3],
                message=read_message(row[4], lane),
                signature=row[5],
            )
            for row in rows
        ]

    async def read_questions(
        self, server: PostgresConnection, session: str
    ) -> Sequence[QuestionRow]:
        """Return the questions of a session that no fact has settled."""
        return await self._questions.read_unsettled(server, session)

    async def has_letters(
        self, server: PostgresConnection, session: str, lane: MailLane, after: int
    ) -> bool:
        """Whether a lane has messages after a number."""
        query = """SELECT EXISTS (SELECT FROM {0}.sessions
            JOIN {0}.mail ON mail.session = sessions.number WHERE sessions.session = $1
            AND lane = $2 AND mail.number > $3 AND message IS NOT NULL)"""
        return await server.fetchval(self._format_sql(query), session, lane, after)

    async def remove_letters(
        self, server: PostgresConnection, session: str, lane: MailLane, upto: int
    ) -> None:
        """Forget the messages of a lane up to a number. Of those with a key, the number stays."""
        condition = """lane = $2 AND mail.number <= $3
            AND mail.session = (SELECT number FROM {0}.sessions WHERE session = $1)"""
        for statement in (
            "DELETE FROM {0}.mail WHERE key = '' AND ",
            "UPDATE {0}.mail SET message = NULL, by = '' WHERE message IS NOT NULL AND ",
        ):
            await server.execute(self._format_sql(statement + condition), session, lane, upto)

    async def list_mailed(self, server: PostgresConnection, limit: int) -> list[str]:
        """Return the sessions that have messages which no fact carries, the oldest first."""
        return [row[0] for row in await server.fetch(self._format_sql(_LIST_MAILED), limit)]

    async def list_queues(self, server: PostgresConnection) -> list[CallerQueue]:
        """Return how many prompts of each caller wait, and since when; the longest wait first."""
        rows = await server.fetch(self._format_sql(_LIST_QUEUES))
        return [CallerQueue(*row) for row in rows]

    def _format_sql(self, text: str) -> str:
        return text.format(self._config.quoted_schema)
