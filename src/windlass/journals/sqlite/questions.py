"""The questions of sessions in an SQLite file, statement by statement.

Every change runs in the one transaction of the writer, so no other post and no append is between
reading a row and writing it.
"""

from collections.abc import Sequence

from windlass.core.events import Fact
from windlass.core.fold.control import advance_questions
from windlass.core.verdicts import QuestionRow
from windlass.journals.mail_rules import (
    AnswerPost,
    decide_question,
    decode_question,
    encode_question,
)
from windlass.sqlite_file import SqliteConnection

_UNSETTLED = "SELECT body FROM questions WHERE session = ? AND NOT settled ORDER BY call"
_WRITE = "INSERT OR REPLACE INTO questions VALUES (?, ?, ?, ?)"


def decide_question_row(connection: SqliteConnection, post: AnswerPost) -> None:
    """Decide the question that an answer is for. Raises what `decide_question` raises."""
    found = connection.execute(
        """SELECT questions.session, body FROM questions
        JOIN sessions ON sessions.number = questions.session
        WHERE sessions.session = ? AND call = ?""",
        (post.asking, post.message.call_id),
    ).fetchone()
    row = None if found is None else decode_question(found[1])
    decided = decide_question(row, post)
    if found is not None and decided is not None:
        _write_row(connection, found[0], decided)


def advance_question_rows(
    connection: SqliteConnection, number: int, session: str, facts: Sequence[Fact]
) -> None:
    """Write what facts change about the questions of a session, given by its key and its name."""
    rows = (decode_question(body) for (body,) in connection.execute(_UNSETTLED, (number,)))
    unsettled = {row.call_id: row for row in rows}
    for row in advance_questions(session, unsettled, facts).values():
        _write_row(connection, number, row)


def read_unsettled(connection: SqliteConnection, session: str) -> list[QuestionRow]:
    """Return the questions of a session that no fact has settled."""
    number = connection.execute("SELECT number FROM sessions WHERE session = ?", (session,)).get
    return [decode_question(body) for (body,) in connection.execute(_UNSETTLED, (number,))]


def _write_row(connection: SqliteConnection, number: int, row: QuestionRow) -> None:
    connection.execute(_WRITE, (number, row.call_id, encode_question(row), int(row.is_settled)))
