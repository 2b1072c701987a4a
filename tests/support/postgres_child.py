"""A process that uses a Postgres journal and may be killed: `python postgres_child.py what dsn`."""

import asyncio
import sys

from windlass.core.errors import SessionBusy
from windlass.journals.postgres.journal import PostgresJournal
from windlass.testing.journals import append_facts
from windlass.testing.samples import note_facts


async def append_forever(dsn: str) -> None:
    """Append for ever; say each number once it is acknowledged."""
    async with PostgresJournal(dsn) as journal:
        last = len(await journal.read("s"))
        while True:
            last += 1
            await append_facts(journal, "s", note_facts(last, last))
            print(last, flush=True)  # noqa: T201


async def append_against_others(dsn: str, name: str, appends: str) -> None:
    """Append to an own session, and as often as possible to one that others write to as well."""
    won = 0
    async with PostgresJournal(dsn) as journal:
        for at in range(1, int(appends) + 1):
            await append_facts(journal, name, note_facts(at, at, name))
            last = len(await journal.read("shared"))
            try:
                await append_facts(journal, "shared", note_facts(last + 1, last + 1, name))
            except SessionBusy:
                continue
            won += 1
    print(won, flush=True)  # noqa: T201


async def hold_session(dsn: str, session: str, lease_s: str = "10") -> None:
    """Lease a session until the end."""
    async with PostgresJournal(dsn, lease_s=float(lease_s)) as journal:
        await journal.lease(session)
        print("held", flush=True)  # noqa: T201
        await asyncio.sleep(3_600)


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    asyncio.run(
        {"write": append_forever, "contend": append_against_others, "hold": hold_session}[what](
            *rest
        )
    )
