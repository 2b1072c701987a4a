"""What a look for work and a claim read, with more and more sessions: `make bench-looks`.

Counted are blocks of 8 kB that Postgres reads from its cache or its disk (`EXPLAIN (ANALYZE,
BUFFERS)`), and pages of 1 kB that SQLite reads. They do not depend on the machine.
"""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))

import apsw

from windlass.core.mail import PromptMail
from windlass.core.messages import TextPart
from windlass.journals.postgres.config import PostgresConfig
from windlass.journals.postgres.work_rows import WorkRows
from windlass.journals.session_rows import SESSION_COLUMNS
from windlass.journals.sqlite import work
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.ports import Journal, WorkLane, WorkShare, WorkWanted
from windlass.testing.journals import append_facts
from windlass.testing.samples import facts_of_every_kind

CALLERS = 5
CLAIMED = 8
AT_LIMIT = "caller 0"
"""The caller that may have no more runs: a worker takes nothing of its lane."""
WANTED = WorkWanted(["clerk"], time.time())
KEPT_SQL = """INSERT INTO {schema}sessions ({columns}{more}) SELECT {values}{more_values}
    FROM {schema}sessions AS kept, {series} WHERE kept.session = 'kept'"""


def _format(sql: str, schema: str, name: str, count: int, series: str, more: str = "") -> str:
    values = ", ".join(
        f"'{name} ' || at" if column == "session" else f"kept.{column}"
        for column in SESSION_COLUMNS.split(", ")
    )
    return sql.format(
        schema=schema,
        columns=SESSION_COLUMNS,
        values=values,
        series=series.format(count),
        more=more,
        more_values=", kept.seal" if more else "",
    )


async def prepare(journal: Journal) -> None:
    """Make the sessions that are copied: one that has ended, and one that is queued."""
    await append_facts(journal, "kept", facts_of_every_kind())
    prompt = PromptMail(prompt=(TextPart("Go."),), caller="caller 0", agent="clerk")
    await journal.post_mail("queued", prompt)


def shares_of(lanes: Sequence[WorkLane]) -> list[WorkShare]:
    """Return what a worker takes that has no room for one of the callers."""
    free = [lane for lane in lanes if lane.caller != AT_LIMIT]
    return [WorkShare(lane, CLAIMED // max(1, len(free))) for lane in free[:CLAIMED]]


class PostgresLooks:
    """Counts what Postgres reads, in one database."""

    def __init__(self, server: Any) -> None:  # noqa: ANN401 - asyncpg has no types
        self._server = server
        config = PostgresConfig(
            dsn="postgresql://localhost/any",
            schema="windlass",
            durability="full",
            connections_max=1,
            timeout_s=1,
            patience_s=1,
        )
        self._rows = WorkRows(config)

    async def fill(self, kept: int, queued: int) -> None:
        """Add sessions that have ended, and queued ones, in turn of five callers."""
        series = "generate_series(1, {}) AS series (at)"
        run = self._server.execute
        await run(_format(KEPT_SQL, "windlass.", "old", kept, series))
        # The message comes first: a trigger on the row of the session reads it.
        await run("DROP TABLE IF EXISTS copies")
        await run(
            f"""CREATE TEMP TABLE copies AS SELECT nextval(pg_get_serial_sequence(
            'windlass.sessions', 'number')) AS copy, at FROM {series.format(queued)}"""
        )
        await run("ALTER TABLE windlass.mail DROP CONSTRAINT IF EXISTS mail_session_fkey")
        await run(
            """INSERT INTO windlass.mail SELECT copy, lane, 1, mail.at + copies.at, by, key, nonce,
            message, signature, 'caller ' || (copies.at % 5), agent, priority
            FROM windlass.mail, copies WHERE session =
                (SELECT number FROM windlass.sessions WHERE session = 'queued')"""
        )
        columns = SESSION_COLUMNS.split(", ")
        values = ", ".join("'queue ' || at" if c == "session" else f"kept.{c}" for c in columns)
        await run(
            f"""INSERT INTO windlass.sessions (number, {SESSION_COLUMNS}, prompts_last)
            OVERRIDING SYSTEM VALUE SELECT copy, {values}, 1
            FROM windlass.sessions AS kept, copies WHERE kept.session = 'queued'"""
        )

    async def count(self) -> tuple[int, int]:
        """Return the blocks that a look reads, and those of a claim."""
        agents = [*WANTED.agents, ""]
        look = await self._explain(self._rows.list_sql, agents, WANTED.now, [], "")
        lanes = await self._rows.list_lanes(self._server, WANTED)
        if not lanes:
            return look, 0
        shares = shares_of(lanes)
        columns = [
            [lane.agent for lane, _ in shares],
            [lane.caller for lane, _ in shares],
            [lane.is_begun for lane, _ in shares],
            [count for _, count in shares],
        ]
        return look, await self._explain(self._rows.claim_sql, *columns, [], "bench")

    async def _explain(self, sql: str, *values: object) -> int:
        blocks: list[int] = []
        for _ in range(2):  # The first one may set hints, or find the catalogue cold.
            rolled_back = self._server.transaction()
            await rolled_back.start()
            plan = await self._server.fetchval(
                f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", *values
            )
            await rolled_back.rollback()
            root = json.loads(plan)[0]["Plan"]
            blocks.append(root["Shared Hit Blocks"] + root["Shared Read Blocks"])
        return blocks[-1]


async def measure_postgres(sizes: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return what a look and a claim read at each size."""
    import asyncpg  # noqa: PLC0415 - an extra

    import postgres  # noqa: PLC0415 - it starts a server
    from windlass.journals.postgres.journal import PostgresJournal  # noqa: PLC0415 - an extra

    found: list[tuple[int, int]] = []
    for kept, queued in sizes:
        dsn = await asyncio.to_thread(postgres.dsn_of, Path(f"{kept} {queued}"))
        async with PostgresJournal(dsn) as journal:
            await prepare(journal)
        server = await asyncpg.connect(dsn)
        looks = PostgresLooks(server)
        await looks.fill(kept, queued)
        await server.execute("DELETE FROM windlass.sessions WHERE session = 'queued'")
        await server.execute("VACUUM ANALYZE")
        found.append(await looks.count())
        await server.close()
    return found


def fill_sqlite(file: Any, kept: int, queued: int) -> None:  # noqa: ANN401 - of apsw
    """Add sessions that have ended, and queued ones, in turn of five callers."""
    series = """(WITH RECURSIVE n (at) AS (VALUES (1) UNION ALL SELECT at + 1 FROM n WHERE at < {})
        SELECT at FROM n)"""
    columns = SESSION_COLUMNS.split(", ")
    file.execute("BEGIN")
    if kept:
        file.execute(_format(KEPT_SQL, "", "old", kept, series, ", seal"))
    if queued:
        values = ", ".join("'queue ' || at" if c == "session" else f"kept.{c}" for c in columns)
        base = file.execute("SELECT max(number) FROM sessions").get
        file.execute(
            f"""INSERT INTO mail SELECT {base} + n.at, lane, 1, mail.at + n.at, by, key, message,
            signature, 'caller ' || (n.at % 5), agent, priority
            FROM mail, {series.format(queued)} AS n
            WHERE session = (SELECT number FROM sessions WHERE session = 'queued')"""
        )
        file.execute(
            f"""INSERT INTO sessions (number, {SESSION_COLUMNS}, seal, prompts_last)
            SELECT {base} + at, {values}, kept.seal, 1
            FROM sessions AS kept, {series.format(queued)} WHERE kept.session = 'queued'"""
        )
    file.execute("DELETE FROM sessions WHERE session = 'queued'")
    file.execute("COMMIT")


def count_sqlite(file: Any) -> tuple[int, int]:  # noqa: ANN401 - of apsw
    """Return the pages that a look reads, and those of a claim."""

    def count_pages() -> int:
        hit = file.status(apsw.SQLITE_DBSTATUS_CACHE_HIT)[0]
        return hit + file.status(apsw.SQLITE_DBSTATUS_CACHE_MISS)[0]

    counts: list[int] = []
    lanes: list[WorkLane] = []
    for _ in range(2):
        before = count_pages()
        work.has_overdue(file, WANTED.now)
        lanes = work.list_lanes(file, WANTED, lambda _: False)
        between = count_pages()
        work.claim_sessions(file, WANTED, shares_of(lanes), lambda _: True)
        counts = [between - before, count_pages() - between]
    return counts[0], counts[1] if lanes else 0


async def measure_sqlite(sizes: Sequence[tuple[int, int]], folder: Path) -> list[tuple[int, int]]:
    """Return what a look and a claim read at each size."""
    found: list[tuple[int, int]] = []
    for at, (kept, queued) in enumerate(sizes):
        path = folder / f"{at}.db"
        with SqliteJournal(path) as journal:
            await prepare(journal)
        file = apsw.Connection(str(path))
        fill_sqlite(file, kept, queued)
        found.append(count_sqlite(file))
        file.close()
        path.unlink()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="What a look for work reads.")
    parser.add_argument("--kept", type=int, action="append", help="sessions that have ended")
    parser.add_argument("--queued", type=int, default=20_000, help="queued runs of each caller")
    parser.add_argument("--only", choices=("postgres", "sqlite"))
    given = parser.parse_args()
    kept = given.kept or [0, 50_000, 1_000_000]
    sizes = [(count, 0) for count in kept]
    sizes += [(count, CALLERS * given.queued) for count in kept]
    folder = Path(tempfile.mkdtemp(prefix="windlass-looks-"))
    print("| sessions kept | queued | store | a look | a claim of 8 |\n|--:|--:|---|--:|--:|")
    try:
        for store in ("sqlite", "postgres") if given.only is None else (given.only,):
            for size in sizes:
                if store == "sqlite":
                    [(look, claim)] = asyncio.run(measure_sqlite([size], folder))
                else:
                    [(look, claim)] = asyncio.run(measure_postgres([size]))
                shown = f"{claim}" if size[1] else "-"
                row = (f"{size[0]:,}", f"{size[1]:,}", store, f"{look}", shown)
                print(f"| {' | '.join(row)} |", flush=True)
    finally:
        shutil.rmtree(folder)
        if given.only != "sqlite":
            import postgres  # noqa: PLC0415 - it has started a server

            postgres.stop_server()


if __name__ == "__main__":
    main()
