"""Files of an older version, and files whose making was cut short."""

import asyncio
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import apsw
import pytest

from lease_child import make_old_file
from processes import start_child
from version_2 import version_2
from windlass.core.limits import Amount, Budget
from windlass.core.session_summary import UNFINISHED_STATES
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing.journals import append_facts
from windlass.testing.samples import note_facts

BUDGET = Budget("team", tokens=10)


def run_sql(path: Path, sql: str) -> list[tuple[Any, ...]]:
    file = apsw.Connection(str(path))
    try:
        return file.execute(sql).fetchall()
    finally:
        file.close()


async def check_usable(path: Path, *lengths: int) -> None:
    """All that a journal does can be done with the file; so many facts may be in it."""
    with version_2(), SqliteJournal(path) as journal:
        facts = len(await journal.read("s"))
        assert facts in lengths
        assert list(await journal.read("s")) == note_facts(1, facts)
        await append_facts(journal, "s", note_facts(facts + 1, facts + 1))
        name = await journal.put_blob("s", b"kept")
        assert await journal.get_blob("s", name) == b"kept"
        assert await journal.draw_budget(BUDGET, "s", 1, Amount(tokens=7)) == Amount(tokens=7)
        assert [one.session for one in await journal.sessions(state=UNFINISHED_STATES)] == ["s"]
        assert await journal.verify("s") == []
        assert await journal.check() == []
        await journal.migrate(finish=True)
    assert run_sql(path, "PRAGMA user_version") == [(2,)]


def test_a_file_of_the_version_before_is_migrated(tmp_path: Path) -> None:
    """J11: its sessions are there, and it can do all that a new one can."""
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    asyncio.run(make_old_file(old))
    assert run_sql(old, "SELECT name FROM sqlite_schema WHERE name = 'moods'") == []
    asyncio.run(check_usable(old, 3))
    asyncio.run(check_usable(new, 0))
    tables = "SELECT type, name, sql FROM sqlite_schema ORDER BY name"
    assert run_sql(old, tables) == run_sql(new, tables)


@pytest.mark.slow
def test_a_kill_at_any_change_of_a_file_that_is_migrated_loses_nothing(tmp_path: Path) -> None:
    """J4, J11: it is of the old version or of the new one, and goes on either way."""
    with start_child("migrate_and_die", tmp_path) as one:
        moments = int(one.read_line())
    assert moments > 10
    for moment in range(1, moments + 1):
        asyncio.run(check_usable(tmp_path / f"{moment}.db", 3))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["new", "old"])
def test_a_kill_at_any_moment_leaves_a_file_that_can_be_used(tmp_path: Path, how: str) -> None:
    """J4, J11: while it is made for the first time, or migrated."""
    chance = random.Random(how)
    for turn in range(10):
        folder = tmp_path / str(turn)
        folder.mkdir()
        with start_child("make", folder, how) as maker:
            maker.read_line()
            time.sleep(chance.random() * 0.02)
            maker.kill()
            last = max((int(word) for word in maker.read_rest()), default=1)
        asyncio.run(check_usable(folder / f"{last}.db", 3 if how == "old" else 0))
        asyncio.run(check_usable(folder / f"{last + 1}.db", 0, 3))


@pytest.mark.parametrize(
    ("listing", "plan"),
    [
        ("TRUE", "SCAN sessions USING INDEX sessions_by_time"),
        ("state IN ('open')", "SEARCH sessions USING INDEX sessions_by_state (state=?)"),
        (
            "agent = 'a' AND agent <> ''",
            "SEARCH sessions USING INDEX sessions_by_agent (agent=?)",
        ),
        (
            "instr(lower(session || char(10) || title), 'x')",
            "SCAN sessions USING INDEX sessions_by_time",
        ),
    ],
)
def test_a_list_reads_the_latest_and_sorts_nothing(tmp_path: Path, listing: str, plan: str) -> None:
    """J6: among a hundred thousand sessions it costs what it shows."""
    path = tmp_path / "journal.db"
    SqliteJournal(path).close()
    order = "ORDER BY changed DESC LIMIT 50"
    found = run_sql(path, f"EXPLAIN QUERY PLAN SELECT * FROM sessions WHERE {listing} {order}")
    assert [row[3] for row in found] == [plan]


@pytest.mark.slow
@pytest.mark.realtime
async def test_a_hundred_thousand_sessions_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    SqliteJournal(path).close()
    run_sql(
        path,
        """WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 100000)
        INSERT INTO sessions (number, session, head, seal, facts, version, state, changed, title,
            created, runs, outcome, agent, caller, parent, pause, released, updated, steps, asked,
            tokens, tags)
        SELECT x, 'session ' || x, x'00', '', 1, 1,
            iif(x % 100, 'completed', iif(x % 200, 'open', 'waiting')), x, 'Title ' || (x % 1000),
            x, 1, iif(x % 100, 'completed', NULL), '', '', '', '', 0, x, 0, x % 200 = 0, 0, ''
        FROM n""",
    )
    with SqliteJournal(path) as journal:
        assert [one.session for one in await journal.sessions(limit=2)] == [
            "session 100000",
            "session 99999",
        ]
        assert len(await journal.sessions("TITLE 77", limit=200)) == 200
        assert [one.session for one in await journal.sessions("session 4711")][-1] == "session 4711"
        held = await journal.lease("session 100")
        assert len(await journal.list_abandoned(limit=1_000)) == 499
        held.release()
        assert len(await journal.list_abandoned(limit=1_000)) == 500


OPENING = (
    "import sys; from windlass.journals.sqlite.journal import SqliteJournal; "
    "SqliteJournal(sys.argv[1])"
)


@pytest.mark.slow
def test_processes_that_make_one_file_at_once_all_get_it(tmp_path: Path) -> None:
    """J5: SQLite does not wait by itself while another process switches a new file to WAL."""
    for turn in range(4):
        program = [sys.executable, "-c", OPENING, str(tmp_path / f"{turn}.db")]
        started = [subprocess.Popen(program, stderr=subprocess.PIPE) for _ in range(4)]
        told = [one.communicate(timeout=50)[1] for one in started]
        assert [(one.returncode, text) for one, text in zip(started, told, strict=True)] == [
            (0, b"")
        ] * 4
