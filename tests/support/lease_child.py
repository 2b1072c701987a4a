"""A process that holds sessions, draws on a budget or makes a file: `python lease_child.py what …`.

It says in a line what it did, and goes on when it is told to in a line.
"""

import asyncio
import os
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path

from disk import FaultyDisk
from version_2 import version_2
from windlass.core.errors import JournalFailed, SessionBusy
from windlass.core.limits import Amount, Budget
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing.journals import append_facts
from windlass.testing.samples import note_facts

LONG_S = 600.0


def print_line(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201


async def hold_session(path: Path) -> None:
    """Hold a session until killed."""
    with SqliteJournal(path) as journal:
        await journal.lease("s")
        print_line("held")
        time.sleep(LONG_S)  # noqa: ASYNC251


async def hold_and_start(path: Path, how: str) -> None:
    """Hold a session and start a child process that outlives this one."""
    journal = SqliteJournal(path)
    await journal.lease("s")
    if how == "exec":
        command = [sys.executable, "-c", f"import time; time.sleep({LONG_S})"]
        print_line(subprocess.Popen(command, close_fds=False).pid, "started")  # noqa: ASYNC220
    elif os.fork() == 0:
        try:
            await journal.lease("other")
        except JournalFailed as error:
            print_line(os.getpid(), "refused" if "fork" in str(error) else error)
    time.sleep(LONG_S)  # noqa: ASYNC251


async def race_for_sessions(path: Path) -> None:
    """Each line names a session: try to take it, and hold it until the next line."""
    with SqliteJournal(path) as journal:
        print_line("ready")
        held = None
        for line in sys.stdin:
            if held is not None:
                held.release()
            try:
                held = await journal.lease(line.strip())
            except SessionBusy:
                held = None
            print_line("lost" if held is None else "won")


async def draw_budget(path: Path, name: str, runs: int) -> None:
    """Draw on a budget with run after run; say what they may spend in all."""
    budget = Budget("team", Decimal(1))
    shares = Decimal(0)
    with SqliteJournal(path) as journal:
        print_line("ready")
        sys.stdin.readline()
        for run in range(runs):
            amount = await journal.draw_budget(budget, name, run, Amount(Decimal("0.013")))
            share = amount.usd or Decimal(0)
            if run % 3 == 0:
                share /= 2
                await journal.settle_budget(budget, name, run, Amount(share))
            shares += share
    print_line(shares)


async def follow_session(path: Path) -> None:
    """Say each number of a session as soon as it is there."""
    with SqliteJournal(path) as journal:
        print_line("ready")
        seen = 0
        while True:
            await journal.wait_for_append("s", seen)
            for fact in await journal.read("s", seen):
                print_line(fact.seq)
                seen = fact.seq


async def make_old_file(path: Path) -> None:
    """A file of version 1, with a session in it."""
    with SqliteJournal(path) as journal:
        await append_facts(journal, "s", note_facts(1, 3))


def migrate_and_die(folder: Path) -> None:
    """In child after child, die one change of a file later, until one of them comes through."""
    die_at = 0
    while True:
        die_at += 1
        path = folder / f"{die_at}.db"
        child = os.fork()
        if child == 0:
            asyncio.run(make_old_file(path))
            with version_2(), FaultyDisk(die_at=die_at):
                SqliteJournal(path).close()
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
            print_line(die_at)
            return


def make_files(folder: Path, how: str) -> None:
    """Make file after file, new or from an old one; say where it is at."""
    at = 0
    while True:
        at += 1
        path = folder / f"{at}.db"
        if how == "old":
            asyncio.run(make_old_file(path))
        print_line(at)
        with version_2():
            SqliteJournal(path).close()


if __name__ == "__main__":
    what, place, *rest = sys.argv[1:]
    where = Path(place)
    match what:
        case "hold":
            asyncio.run(hold_session(where))
        case "hold_and_start":
            asyncio.run(hold_and_start(where, rest[0]))
        case "race":
            asyncio.run(race_for_sessions(where))
        case "draw":
            asyncio.run(draw_budget(where, rest[0], int(rest[1])))
        case "follow":
            asyncio.run(follow_session(where))
        case "make":
            make_files(where, rest[0])
        case _:
            migrate_and_die(where)
