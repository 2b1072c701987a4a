"""Many sessions in one file: what finding, resuming and deleting cost against a file of few.

The file is made through the journal: each session is one append of the facts of a real run, with a
prompt of its own.
"""

import asyncio
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace
from people import agent_in
from tally import Row, Taken, timed, usual

from windlass import Allow, Fact, RunStarted, Text
from windlass.core.fold.run import fold
from windlass.core.run_report import questions
from windlass.journals.memory import MemoryJournal
from windlass.journals.sqlite.journal import SqliteJournal

NEEDLE = "the lighthouse keeper"
WORDS = ("orchard", "ledger", "harbour", "copper", "garden", "winter", "letter", "bridge")
OPEN = 20
"""Sessions that a dead process left open, in a file of any size."""
IN_FLIGHT = 2_000
DAY_S = 86_400.0
ROUNDS = 7


async def templates() -> dict[str, Sequence[Fact]]:
    """The facts of a run that ended, of one that waits, and of one that was left in the middle."""
    journal = MemoryJournal()
    agent = agent_in(journal)
    await agent.run("Look.", session="ended")
    await agent.run("Look, then send.", session="waiting")
    ended, waiting = await journal.read("ended"), await journal.read("waiting")
    return {"ended": ended, "waiting": waiting, "open": ended[:4]}


async def build(path: Path, sessions: int) -> Taken:
    """A file of so many sessions, the oldest first; every fifth waits for a person."""
    kinds, rolls = await templates(), random.Random(sessions)
    began = time.time() - sessions
    with SqliteJournal(path, durability="relaxed") as journal, timed() as taken:
        for start in range(0, sessions, IN_FLIGHT):
            some = range(start, min(start + IN_FLIGHT, sessions))
            await asyncio.gather(
                *(
                    journal.append(f"s-{at}", _told(kinds[_kind(at, sessions)], at, rolls, began))
                    for at in some
                )
            )
    return taken


def _kind(at: int, sessions: int) -> str:
    if at % (sessions // OPEN) == 1:
        return "open"
    return "waiting" if at % 5 == 0 else "ended"


def _told(facts: Sequence[Fact], at: int, rolls: random.Random, began: float) -> list[Fact]:
    said = NEEDLE if at == 7 else " ".join(rolls.choices(WORDS, k=8))
    told = [replace(fact, at=began + at) for fact in facts]
    first = told[0]
    assert isinstance(first, RunStarted)
    told[0] = replace(first, prompt=(Text(f"Look at {said}."),))
    return told


async def look_up(path: Path, sessions: int) -> dict[str, Taken]:
    """What a person or a program asks of the file."""
    with SqliteJournal(path, durability="relaxed") as journal:
        agent = agent_in(journal)
        names = iter(f"s-{at}" for at in range(0, sessions, 5))
        fresh = iter(range(10**6))

        async def answer() -> None:
            name = next(names)
            asked = questions(fold(name, await journal.read(name)))
            await agent.answer(name, asked[0].call.id, Allow())

        return {
            "first page of the list, 50": await usual(journal.sessions, ROUNDS),
            "search for a word that is everywhere": await usual(
                lambda: journal.sessions("harbour"), ROUNDS
            ),
            "search for the one oldest": await usual(lambda: journal.sessions(NEEDLE), ROUNDS),
            "search for what is nowhere": await usual(lambda: journal.sessions("zebra"), ROUNDS),
            "first page of the unfinished": await usual(
                lambda: journal.sessions(unfinished=True), ROUNDS
            ),
            f"the {OPEN} that were abandoned": await usual(journal.abandoned, ROUNDS),
            "read one": await usual(lambda: journal.read("s-7"), ROUNDS),
            "find one, answer it, finish its run": await usual(answer, ROUNDS * 2),
            "begin one and run it": await usual(
                lambda: agent.run("Look.", session=f"new-{next(fresh)}"), ROUNDS * 2
            ),
        }


async def listed(path: Path) -> Taken:
    """The first page alone."""
    with SqliteJournal(path) as journal:
        return await usual(journal.sessions, ROUNDS)


async def prune(path: Path, sessions: int) -> tuple[Taken, int, float]:
    """Delete the older half of what ended; how long the longest append had to wait meanwhile."""
    with SqliteJournal(path, durability="relaxed") as journal:
        ended = (await templates())["ended"]
        longest, over = 0.0, asyncio.Event()

        async def append() -> None:
            nonlocal longest
            at = 0
            while not over.is_set():
                began = time.perf_counter()
                await journal.append(f"meanwhile-{at}", [*ended])
                longest = max(longest, time.perf_counter() - began)
                at += 1
                await asyncio.sleep(0.02)

        appending = asyncio.create_task(append())
        await asyncio.sleep(0.2)
        longest = 0.0
        with timed() as taken:
            gone = await journal.prune(time.time() - sessions * 3 / 8)
        over.set()
        await appending
        return taken, gone, longest


async def measure(little: int, much: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        paths = {count: Path(folder, f"{count}.db") for count in (little, much)}
        built = {count: await build(path, count) for count, path in paths.items()}
        found = {count: await look_up(path, count) for count, path in paths.items()}
        sizes = {count: path.stat().st_size / 1024 / count for count, path in paths.items()}
        pruned = {count: await prune(path, count) for count, path in paths.items()}
        after = {count: await listed(path) for count, path in paths.items()}
    per = {count: taken.cpu_s / count * 1e6 for count, taken in built.items()}
    rows = [
        Row("CPU to append one whole", "µs", per[much], per[little]),
        Row("file, a session", "kB", sizes[much], sizes[little]),
    ]
    for title, taken in found[much].items():
        rows.append(Row(title, "ms CPU", taken.cpu_s * 1e3, found[little][title].cpu_s * 1e3))
    (many, gone, waited), (few, gone_of_few, waited_few) = pruned[much], pruned[little]
    rows += [
        Row(
            f"prune {gone:,}, and {gone_of_few:,}: CPU of each",
            *("µs", many.cpu_s / gone * 1e6, few.cpu_s / gone_of_few * 1e6),
        ),
        Row("the same, all of it", "s wall", many.wall_s, few.wall_s),
        Row("longest wait of an append meanwhile", "ms wall", waited * 1e3, waited_few * 1e3),
    ]
    again = (after[much].cpu_s * 1e3, after[little].cpu_s * 1e3)
    rows.append(Row("first page of the list, 50, after that", "ms CPU", *again))
    return rows


def rows(little: int, much: int) -> Iterator[Row]:
    yield from asyncio.run(measure(little, much))
