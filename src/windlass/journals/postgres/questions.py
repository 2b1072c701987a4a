"""The questions of sessions in Postgres.

Invariant: the row of a session is locked before the rows of its questions, by posts and by appends
alike, so they wait for one another and never deadlock.
"""

from collections.abc import Mapping, Sequence

from windlass.core.events import Fact
from windlass.core.fold.control import advance_questions
from windlass.core.verdicts import QuestionRow
from windlass.journals.mail_rules import (
    AnswerPost,
    decide_question,
    decode_question,
    encode_question,
)
from windlass.journals.postgres.config import PostgresConfig, PostgresConnection


class PostgresQuestions:
    """Statements for questions in one schema. In their text, `{0}` is its quoted name."""

    def __init__(self, config: PostgresConfig) -> None:
        self._config = config

    async def decide(self, server: PostgresConnection, post: AnswerPost) -> float:
        """Decide the question that an answer is for, and return the time by the server's clock.

        The time of `post` is not used. Raises what `decide_question` raises.
        """
        found = await server.fetchrow(
            self._format_sql(
                """SELECT questions.session, body FROM {0}.questions
                JOIN {0}.sessions ON sessions.number = questions.session
                WHERE sessions.session = $1 AND call = $2 FOR UPDATE OF questions"""
            ),
            post.asking,
            post.message.call_id,
        )
        # Asked once the row is locked: the answer may have waited for another one.
        at: float = await server.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
        row = None if found is None else decode_question(found[1])
        decided = decide_question(row, post._replace(at=at))
        if found is not None and decided is not None:
            await self._write_row(server, found[0], decided)
        return at

    async def advance(
        self, server: PostgresConnection, asking: Mapping[str, Sequence[Fact]]
    ) -> None:
        """Write what facts change about the questions of the sessions that they belong to."""
        query = "SELECT session, number FROM {0}.sessions WHERE session = ANY ($1::text[])"
        names = await server.fetch(self._format_sql(query), [*asking])
        # Locked, because an answer to a sub-agent holds the row of the session at the top instead.
        query = """SELECT session, body FROM {0}.questions
            WHERE session = ANY ($1::bigint[]) AND NOT settled ORDER BY session, call FOR UPDATE"""
        found = await server.fetch(self._format_sql(query), [name[1] for name in names])
        for session, number in names:
            rows = [decode_question(body) for owner, body in found if owner == number]
            unsettled = {row.call_id: row for row in rows}
            for row in advance_questions(session, unsettled, asking[session]).values():
                await self._write_row(server, number, row)

    async def read_unsettled(
        self, server: PostgresConnection, session: str
    ) -> Sequence[QuestionRow]:
        """Return the questions of a session that no fact has settled."""
        query = """SELECT body FROM {0}.questions
            JOIN {0}.sessions ON sessions.number = questions.session
            WHERE sessions.session = $1 AND NOT settled ORDER BY call"""
        rows = await server.fetch(self._format_sql(query), session)
        return [decode_question(row[0]) for row in rows]

    async def _write_row(self, server: PostgresConnection, number: int, row: QuestionRow) -> None:
        query = """INSERT INTO {0}.questions VALUES ($1, $2, $3, $4)
            ON CONFLICT (session, call) DO UPDATE
            SET body = excluded.body, settled = excluded.settled"""
        await server.execute(
            self._format_sql(query), number, row.call_id, encode_question(row), row.is_settled
        )

    def _format_sql(self, text: str) -> str:
        return text.format(self._config.quoted_schema)
