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
from people import make_agent
from tally import ScaleRow, TimeTaken, measure_time, usual_time

from windlass import Allow, Fact, RunStarted, TextPart
from windlass.core.fold.run import fold
from windlass.core.result import open_questions
from windlass.journals.memory import MemoryJournal
from windlass.journals.sqlite.journal import SqliteJournal

NEEDLE = "the lighthouse keeper"
WORDS = ("orchard", "ledger", "harbour", "copper", "garden", "winter", "letter", "bridge")
OPEN = 20
"""Sessions that a dead process left open, in a file of any size."""
IN_FLIGHT = 2_000
DAY_S = 86_400.0
ROUNDS = 7


async def template_facts() -> dict[str, Sequence[Fact]]:
    """The facts of a run that ended, of one that waits, and of one that was left in the middle."""
    journal = MemoryJournal()
    agent = make_agent(journal)
    await agent.run("Look.", session="ended")
    await agent.run("Look, then send.", session="waiting")
    ended, waiting = await journal.read("ended"), await journal.read("waiting")
    return {"ended": ended, "waiting": waiting, "open": ended[:4]}


async def build_library(path: Path, sessions: int) -> TimeTaken:
    """A file of so many sessions, the oldest first; every fifth waits for a person."""
    kinds, rolls = await template_facts(), random.Random(sessions)
    began = time.time() - sessions
    with SqliteJournal(path, durability="relaxed") as journal, measure_time() as taken:
        for start in range(0, sessions, IN_FLIGHT):
            some = range(start, min(start + IN_FLIGHT, sessions))
            await asyncio.gather(
                *(
                    journal.append(
                        f"s-{at}",
                        _fill_template(kinds[_template_of(at, sessions)], at, rolls, began),
                    )
                    for at in some
                )
            )
    return taken


def _template_of(at: int, sessions: int) -> str:
    if at % (sessions // OPEN) == 1:
        return "open"
    return "waiting" if at % 5 == 0 else "ended"


def _fill_template(
    facts: Sequence[Fact], at: int, rolls: random.Random, began: float
) -> list[Fact]:
    said = NEEDLE if at == 7 else " ".join(rolls.choices(WORDS, k=8))
    told = [replace(fact, at=began + at) for fact in facts]
    first = told[0]
    assert isinstance(first, RunStarted)
    told[0] = replace(first, prompt=(TextPart(f"Look at {said}."),))
    return told


async def look_up(path: Path, sessions: int) -> dict[str, TimeTaken]:
    """What a person or a program asks of the file."""
    with SqliteJournal(path, durability="relaxed") as journal:
        agent = make_agent(journal)
        names = iter(f"s-{at}" for at in range(0, sessions, 5))
        fresh = iter(range(10**6))

        async def answer() -> None:
            name = next(names)
            asked = open_questions(fold(name, await journal.read(name)))
            await agent.answer(name, asked[0].call.id, Allow())

        return {
            "first page of the list, 50": await usual_time(journal.sessions, ROUNDS),
            "search for a word that is everywhere": await usual_time(
                lambda: journal.sessions("harbour"), ROUNDS
            ),
            "search for the one oldest": await usual_time(lambda: journal.sessions(NEEDLE), ROUNDS),
            "search for what is nowhere": await usual_time(
                lambda: journal.sessions("zebra"), ROUNDS
            ),
            "first page of the unfinished": await usual_time(
                lambda: journal.sessions(unfinished=True), ROUNDS
            ),
            f"the {OPEN} that were abandoned": await usual_time(journal.abandoned, ROUNDS),
            "read one": await usual_time(lambda: journal.read("s-7"), ROUNDS),
            "find one, answer it, finish its run": await usual_time(answer, ROUNDS * 2),
            "begin one and run it": await usual_time(
                lambda: agent.run("Look.", session=f"new-{next(fresh)}"), ROUNDS * 2
            ),
        }


async def list_first_page(path: Path) -> TimeTaken:
    """The first page alone."""
    with SqliteJournal(path) as journal:
        return await usual_time(journal.sessions, ROUNDS)


async def prune_library(path: Path, sessions: int) -> tuple[TimeTaken, int, float]:
    """Delete the older half of what ended; how long the longest append had to wait meanwhile."""
    with SqliteJournal(path, durability="relaxed") as journal:
        ended = (await template_facts())["ended"]
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
        with measure_time() as taken:
            gone = await journal.prune(time.time() - sessions * 3 / 8)
        over.set()
        await appending
        return taken, gone, longest


async def measure(little: int, much: int) -> list[ScaleRow]:
    with tempfile.TemporaryDirectory() as folder:
        paths = {count: Path(folder, f"{count}.db") for count in (little, much)}
        built = {count: await build_library(path, count) for count, path in paths.items()}
        found = {count: await look_up(path, count) for count, path in paths.items()}
        sizes = {count: path.stat().st_size / 1024 / count for count, path in paths.items()}
        pruned = {count: await prune_library(path, count) for count, path in paths.items()}
        after = {count: await list_first_page(path) for count, path in paths.items()}
    per = {count: taken.cpu_s / count * 1e6 for count, taken in built.items()}
    rows = [
        ScaleRow("CPU to append one whole", "µs", per[much], per[little]),
        ScaleRow("file, a session", "kB", sizes[much], sizes[little]),
    ]
    for title, taken in found[much].items():
        rows.append(ScaleRow(title, "ms CPU", taken.cpu_s * 1e3, found[little][title].cpu_s * 1e3))
    (many, gone, waited), (few, gone_of_few, waited_few) = pruned[much], pruned[little]
    rows += [
        ScaleRow(
            f"prune {gone:,}, and {gone_of_few:,}: CPU of each",
            *("µs", many.cpu_s / gone * 1e6, few.cpu_s / gone_of_few * 1e6),
        ),
        ScaleRow("the same, all of it", "s wall", many.wall_s, few.wall_s),
        ScaleRow("longest wait of an append meanwhile", "ms wall", waited * 1e3, waited_few * 1e3),
    ]
    again = (after[much].cpu_s * 1e3, after[little].cpu_s * 1e3)
    rows.append(ScaleRow("first page of the list, 50, after that", "ms CPU", *again))
    return rows


def library_rows(little: int, much: int) -> Iterator[ScaleRow]:
    yield from asyncio.run(measure(little, much))
