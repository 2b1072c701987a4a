"""The mailboxes of sessions in an SQLite file, statement by statement.

Invariant: the numbers come from counters in the session's row, and every statement that changes
mail runs in the one transaction of the writer. Numbers are given out in the order of the commits.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from windlass.core.mail import AnswerMail, Letter, Mail, MailLane, MailReceipt, lane_of
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
from windlass.journals.session_rows import SessionEnd
from windlass.journals.sqlite.anchors import AnchorBook
from windlass.journals.sqlite.questions import decide_question_row
from windlass.journals.sqlite.session_table import write_ends
from windlass.ports.fleet import CallerQueue
from windlass.sqlite_file import SqliteConnection

LANE_COLUMNS: dict[MailLane, str] = {"control": "mail", "prompts": "prompts"}
"""What the columns of a lane's counters begin with."""
_IS_WAITING = """mail.message IS NOT NULL AND mail.number >
    CASE lane WHEN 'prompts' THEN sessions.prompts_taken ELSE sessions.mail_taken END"""
HAS_MAIL = f"EXISTS (SELECT 1 FROM mail WHERE mail.session = sessions.number AND {_IS_WAITING})"  # noqa: S608 - our own text
"""Whether a session has messages that no fact carries yet."""


class FileLetter(NamedTuple):
    """A message to post, as it is stored."""

    session: str
    message: Mail
    body: bytes
    by: str
    key: str
    at: float
    book: AnchorBook | None = None
    """Signs for the user; None without a key."""


def post_letter(
    connection: SqliteConnection, letter: FileLetter, limits: MailLimits
) -> MailReceipt:
    """Keep a message. Raises NothingToDo, QuestionDecided and MailboxFull."""
    lane = lane_of(letter.message)
    row = _lane_row(connection, letter.session, lane)
    if lane == "control" and (row is None or row[1] == 0):
        raise no_facts_error(letter.session, letter.message)
    if row is None:
        _insert_session(connection, letter.session)
        row = _lane_row(connection, letter.session, lane) or (0, 0, 0, 0)
    session, _, last, taken = row
    if letter.key:
        query = "SELECT number, at FROM mail WHERE session = ? AND lane = ? AND key = ?"
        first = connection.execute(query, (session, lane, letter.key)).fetchone()
        if first is not None:
            return MailReceipt(letter.session, lane, *first)
    waiting = """SELECT count(*) FROM mail
        WHERE session = ? AND lane = ? AND number > ? AND message IS NOT NULL"""
    limit = limits.of_lane(lane)
    if connection.execute(waiting, (session, lane, taken)).get >= limit:
        raise mailbox_full_error(letter.session, lane, limit)
    number = LaneCounters(last, taken).next_number
    message = letter.message
    if isinstance(message, AnswerMail):
        post = AnswerPost(letter.session, number, message, letter.by, letter.key, letter.at)
        decide_question_row(connection, post)
    values = (letter.session, lane, number, letter.at, letter.by, letter.key, letter.body)
    signature = letter.book.sign_letter(*values) if letter.book else ""
    insert = "INSERT INTO mail VALUES (?, ?, ?, ?, ?, ?, CAST(? AS TEXT), ?, ?, ?, ?)"
    owner = (caller_of(message), agent_of(message), priority_of(message))
    connection.execute(insert, (session, *values[1:], signature, *owner))
    counter = f"UPDATE sessions SET {LANE_COLUMNS[lane]}_last = ? WHERE number = ?"  # noqa: S608 - a constant
    connection.execute(counter, (number, session))
    return MailReceipt(letter.session, lane, number, letter.at)


def signed_values(session: str, letter: Letter) -> tuple[object, ...]:
    """Return what the signature of a message covers."""
    body = msgspec.json.encode(letter.message)
    return (session, letter.lane, letter.number, letter.at, letter.by, letter.key, body)


def _lane_row(
    connection: SqliteConnection, session: str, lane: MailLane
) -> tuple[int, int, int, int] | None:
    """Return the key of the session, its records, and the counters of a lane."""
    name = LANE_COLUMNS[lane]
    query = f"SELECT number, facts, {name}_last, {name}_taken FROM sessions WHERE session = ?"  # noqa: S608 - a constant
    row = connection.execute(query, (session,)).fetchone()
    return None if row is None else (row[0], row[1], row[2], row[3])


def _insert_session(connection: SqliteConnection, session: str) -> None:
    """Make the row of a session whose first message is a prompt."""
    number = (connection.execute("SELECT max(number) FROM sessions").get or 0) + 1
    write_ends(connection, [SessionEnd.of_mailbox(session, number)])


def read_letters(
    connection: SqliteConnection, session: str, lane: MailLane, after: int
) -> Sequence[Letter]:
    """Return the messages of a lane after a number, in order."""
    rows = connection.execute(
        """SELECT mail.number, at, by, key, CAST(message AS BLOB), signature
        FROM sessions JOIN mail ON mail.session = sessions.number
        WHERE sessions.session = ? AND lane = ? AND mail.number > ? AND message IS NOT NULL
        ORDER BY mail.number""",
        (session, lane, after),
    )
    letters: list[Letter] = []
    for number, at, by, key, body, signature in rows:
        letters.append(
            Letter(
                number=number,
                at=at,
                message=read_message(body, lane),
                by=by,
                key=key,
                signature=signature,
            )
        )
    return letters


def has_letters(connection: SqliteConnection, session: str, lane: MailLane, after: int) -> bool:
    """Whether a lane has messages after a number."""
    query = """SELECT 1 FROM sessions JOIN mail ON mail.session = sessions.number
        WHERE sessions.session = ? AND lane = ? AND mail.number > ? AND message IS NOT NULL
        LIMIT 1"""
    return connection.execute(query, (session, lane, after)).get is not None


def remove_letters(connection: SqliteConnection, session: str, lane: MailLane, upto: int) -> None:
    """Forget the messages of a lane up to a number. Of those with a key, the number stays."""
    condition = """lane = ?2 AND number <= ?3
        AND session = (SELECT number FROM sessions WHERE session = ?1)"""
    place = (session, lane, upto)
    connection.execute(f"DELETE FROM mail WHERE key = '' AND {condition}", place)  # noqa: S608 - ours
    emptied = f"UPDATE mail SET message = NULL, by = '' WHERE message IS NOT NULL AND {condition}"  # noqa: S608 - ours
    connection.execute(emptied, place)


def list_queues(connection: SqliteConnection) -> list[CallerQueue]:
    """Return how many prompts of each caller wait, and since when; the longest wait first."""
    query = f"""SELECT mail.caller, count(*), min(at) FROM mail
        JOIN sessions ON sessions.number = mail.session
        WHERE lane = 'prompts' AND {_IS_WAITING} GROUP BY mail.caller ORDER BY 3, 1"""  # noqa: S608 - our own text
    return [
        CallerQueue(str(row[0]), int(row[1]), float(row[2])) for row in connection.execute(query)
    ]


def list_mailed(connection: SqliteConnection, limit: int) -> list[str]:
    """Return the sessions that have messages which no fact carries, the oldest first."""
    query = f"""SELECT sessions.session FROM mail
        JOIN sessions ON sessions.number = mail.session
        WHERE {_IS_WAITING} GROUP BY sessions.session ORDER BY min(at), 1 LIMIT ?"""  # noqa: S608 - our own text
    return [str(row[0]) for row in connection.execute(query, (limit,))]
