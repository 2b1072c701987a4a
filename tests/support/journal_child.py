"""A process that uses a SQLite journal and may be killed: `python journal_child.py what path …`."""

import asyncio
import os
import sys
from pathlib import Path

from disk import FaultyDisk
from windlass.core.errors import SessionBusy
from windlass.core.events import Fact
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing.journals import append_facts
from windlass.testing.samples import note_facts


async def append_forever(path: Path) -> None:
    """Append for ever; say each number once it is acknowledged."""
    with SqliteJournal(path) as journal:
        last = len(await journal.read("s"))
        while True:
            last += 1
            await append_facts(journal, "s", note_facts(last, last))
            print(last, flush=True)  # noqa: T201


async def append_against_others(path: Path, name: str, appends: int) -> None:
    """Append to an own session, and as often as possible to one that others write to as well."""
    won = 0
    with SqliteJournal(path) as journal:
        for at in range(1, appends + 1):
            await append_facts(journal, name, note_facts(at, at, name))
            last = len(await journal.read("shared"))
            try:
                await append_facts(journal, "shared", note_facts(last + 1, last + 1, name))
            except SessionBusy:
                continue
            won += 1
    print(won, flush=True)  # noqa: T201


def make_and_append(path: Path, die_at: int) -> None:
    """Create the file, append, close, open and append again; die at the nth change of a file."""
    with FaultyDisk(die_at=die_at):
        for facts in (note_facts(1, 1), note_facts(2, 3)):
            with SqliteJournal(path) as journal:
                asyncio.run(_append_facts(journal, facts))
            path.with_suffix(".ack").write_text(str(facts[-1].seq), "utf-8")


async def _append_facts(journal: SqliteJournal, facts: list[Fact]) -> None:
    await append_facts(journal, "s", facts)


def start_and_die(folder: Path) -> None:
    """In child after child, die one change later, until one of them comes through."""
    die_at = 0
    while True:
        die_at += 1
        child = os.fork()
        if child == 0:
            make_and_append(folder / f"{die_at}.db", die_at)
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
            print(die_at, flush=True)  # noqa: T201
            return


if __name__ == "__main__":
    what, place, *rest = sys.argv[1:]
    if what == "write":
        asyncio.run(append_forever(Path(place)))
    elif what == "contend":
        asyncio.run(append_against_others(Path(place), rest[0], int(rest[1])))
    else:
        start_and_die(Path(place))
