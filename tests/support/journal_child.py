"""A process that uses a SQLite journal and may be killed: `python journal_child.py what path …`."""

import asyncio
import os
import sys
from pathlib import Path

from disk import Disk
from windlass.core.errors import SessionBusy
from windlass.core.events import Fact
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing.samples import notes


async def write(path: Path) -> None:
    """Append for ever; say each number once it is acknowledged."""
    with SqliteJournal(path) as journal:
        last = len(await journal.read("s"))
        while True:
            last += 1
            await journal.append("s", notes(last, last))
            print(last, flush=True)  # noqa: T201


async def contend(path: Path, name: str, appends: int) -> None:
    """Append to a session of one's own, and as often as it goes to one that others write too."""
    won = 0
    with SqliteJournal(path) as journal:
        for at in range(1, appends + 1):
            await journal.append(name, notes(at, at, name))
            last = len(await journal.read("shared"))
            try:
                await journal.append("shared", notes(last + 1, last + 1, name))
            except SessionBusy:
                continue
            won += 1
    print(won, flush=True)  # noqa: T201


def start(path: Path, die_at: int) -> None:
    """Make the file, append, go on after closing; die at the nth change of a file."""
    with Disk(die_at=die_at):
        for facts in (notes(1, 1), notes(2, 3)):
            with SqliteJournal(path) as journal:
                asyncio.run(_append(journal, facts))
            path.with_suffix(".ack").write_text(str(facts[-1].seq), "utf-8")


async def _append(journal: SqliteJournal, facts: list[Fact]) -> None:
    await journal.append("s", facts)


def start_and_die(folder: Path) -> None:
    """In child after child, die one change later, until one of them comes through."""
    die_at = 0
    while True:
        die_at += 1
        child = os.fork()
        if child == 0:
            start(folder / f"{die_at}.db", die_at)
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
            print(die_at, flush=True)  # noqa: T201
            return


if __name__ == "__main__":
    what, place, *rest = sys.argv[1:]
    if what == "write":
        asyncio.run(write(Path(place)))
    elif what == "contend":
        asyncio.run(contend(Path(place), rest[0], int(rest[1])))
    else:
        start_and_die(Path(place))
