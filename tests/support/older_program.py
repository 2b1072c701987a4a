"""A program of the version before: it opens, reads and appends with the statements of its time.

Run as `python older_program.py FILE SESSION COUNT`: it appends COUNT notes to the session, each in
a transaction of its own, and says how far it came. What it does is frozen; it imports nothing of
the store that it shares the file with, apart from the encoding of facts.
"""

import asyncio
import sys
from typing import Any

from windlass.core.session_summary import SessionSummary, advance_summary
from windlass.journals.chain import chain_hash, chain_root
from windlass.journals.codec import encode_fact
from windlass.testing.samples import note_facts

KNOWN_FILE_VERSION = 2
KNOWN_SCHEMA_VERSION = 1
COLUMNS = "head, session, title, created, updated, facts, runs, steps, outcome, proposed, asked"


class NewerVersion(Exception):
    """The journal was made by a newer version."""


def next_rows(row: Any, session: str, text: str) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the next record of a session, and the row of the session after it."""
    if row is None:
        head = chain_root(session).hash
        summary = SessionSummary(session)
    else:
        head, *values = row
        names = COLUMNS.split(", ")[1:]
        summary = SessionSummary(**dict(zip(names, values, strict=True)))
    (fact,) = note_facts(summary.facts + 1, summary.facts + 1, text)
    body = encode_fact(fact).body
    head = chain_hash(head, body)
    after = advance_summary(summary, [fact])
    values = [getattr(after, name) for name in COLUMNS.split(", ")[1:]]
    return (fact.seq, body.decode(), head), (head, *values)


def append_to_file(path: str, session: str, count: int) -> None:
    """Append notes to a session in an SQLite file, as the version before did."""
    import apsw  # noqa: PLC0415 - only one of the two is needed

    file = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    file.set_busy_timeout(30_000)
    if file.execute("PRAGMA user_version").get > KNOWN_FILE_VERSION:
        raise NewerVersion
    for _ in range(count):
        file.execute("BEGIN IMMEDIATE")
        query = f"SELECT {COLUMNS}, number FROM sessions WHERE session = ?"
        found = file.execute(query, (session,)).fetchone()
        newest = file.execute("SELECT max(number) FROM sessions").get or 0
        number = found[-1] if found else newest + 1
        record, row = next_rows(found[:-1] if found else None, session, "older")
        file.execute(
            "INSERT INTO records (number, seq, body, hash) VALUES (?, ?, CAST(? AS TEXT), ?)",
            (number, record[0], record[1].encode(), record[2]),
        )
        changes = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS.split(", "))
        file.execute(
            f"INSERT INTO sessions ({COLUMNS}, number) VALUES ({', '.join('?' * 12)}) "
            f"ON CONFLICT (number) DO UPDATE SET {changes}",
            (*row, number),
        )
        file.execute("COMMIT")
        sys.stdout.write(f"{record[0]}\n")
    file.close()


async def append_to_server(dsn: str, session: str, count: int) -> None:
    """Append notes to a session in Postgres, as the version before did."""
    import asyncpg  # noqa: PLC0415 - only one of the two is needed

    server = await asyncpg.connect(dsn)
    if await server.fetchval("SELECT version FROM windlass.windlass") > KNOWN_SCHEMA_VERSION:
        raise NewerVersion
    table = "windlass.sessions"
    for _ in range(count):
        async with server.transaction():
            query = f"SELECT {COLUMNS} FROM {table} WHERE session = $1 FOR UPDATE"
            found = await server.fetchrow(query, session)
            record, row = next_rows(found and tuple(found), session, "older")
            places = ", ".join(f"${at}" for at in range(1, 12))
            changes = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS.split(", "))
            number = await server.fetchval(
                f"INSERT INTO {table} ({COLUMNS}) VALUES ({places}) "
                f"ON CONFLICT (session) DO UPDATE SET {changes} RETURNING number",
                *row,
            )
            await server.execute(
                "INSERT INTO windlass.records (number, seq, body, hash) VALUES ($1, $2, $3, $4)",
                number,
                *record,
            )
        sys.stdout.write(f"{record[0]}\n")
    await server.close()


if __name__ == "__main__":
    place, name, notes = sys.argv[1:]
    if "://" in place:
        asyncio.run(append_to_server(place, name, int(notes)))
    else:
        append_to_file(place, name, int(notes))
