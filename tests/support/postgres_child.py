"""A process that uses a Postgres journal and may be killed: `python postgres_child.py what dsn`."""

import asyncio
import sys

from windlass.core.errors import SessionBusy
from windlass.journals.postgres.journal import PostgresJournal
from windlass.testing.samples import notes


async def write(dsn: str) -> None:
    """Append for ever; say each number once it is acknowledged."""
    async with PostgresJournal(dsn) as journal:
        last = len(await journal.read("s"))
        while True:
            last += 1
            await journal.append("s", notes(last, last))
            print(last, flush=True)  # noqa: T201


async def contend(dsn: str, name: str, appends: str) -> None:
    """Append to a session of one's own, and as often as it goes to one that others write too."""
    won = 0
    async with PostgresJournal(dsn) as journal:
        for at in range(1, int(appends) + 1):
            await journal.append(name, notes(at, at, name))
            last = len(await journal.read("shared"))
            try:
                await journal.append("shared", notes(last + 1, last + 1, name))
            except SessionBusy:
                continue
            won += 1
    print(won, flush=True)  # noqa: T201


async def hold(dsn: str, session: str) -> None:
    """Lease a session until the end."""
    async with PostgresJournal(dsn) as journal:
        await journal.lease(session)
        print("held", flush=True)  # noqa: T201
        await asyncio.sleep(3_600)


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    asyncio.run({"write": write, "contend": contend, "hold": hold}[what](*rest))
