"""Many sessions in one file: the cost to find, resume and delete them, compared with a small file.

The file is written through the journal: each session is one append of the facts of a real run, with
its own prompt.
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
from windlass.core.session_summary import UNFINISHED_STATES
from windlass.journals.memory import MemoryJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing.journals import append_facts, start_append

NEEDLE = "the lighthouse keeper"
WORDS = ("orchard", "ledger", "harbour", "copper", "garden", "winter", "letter", "bridge")
OPEN = 20
"""How many sessions a dead process left open, in a file of any size."""
IN_FLIGHT = 2_000
DAY_S = 86_400.0
ROUNDS = 7


async def template_facts() -> dict[str, Sequence[Fact]]:
    """Return the facts of a run that ended, of one that waits, and of one left in the middle."""
    journal = MemoryJournal()
    agent = make_agent(journal)
    await agent.run("Look.", session="ended")
    await agent.run("Look, then send.", session="waiting")
    ended = await journal.read("ended")
    waiting = await journal.read("waiting")
    return {"ended": ended, "waiting": waiting, "open": ended[:4]}


async def build_library(path: Path, sessions: int) -> TimeTaken:
    """Write a file of sessions, the oldest first. Every fifth waits for a person."""
    kinds = await template_facts()
    rolls = random.Random(sessions)
    began = time.time() - sessions
    with SqliteJournal(path, durability="relaxed") as journal, measure_time() as taken:
        for start in range(0, sessions, IN_FLIGHT):
            some = range(start, min(start + IN_FLIGHT, sessions))
            await asyncio.gather(
                *(
                    start_append(
                        journal,
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
    words = NEEDLE if at == 7 else " ".join(rolls.choices(WORDS, k=8))
    filled = [replace(fact, at=began + at) for fact in facts]
    first = filled[0]
    assert isinstance(first, RunStarted)
    filled[0] = replace(first, prompt=(TextPart(f"Look at {words}."),))
    return filled


async def look_up(path: Path, sessions: int) -> dict[str, TimeTaken]:
    """Measure what a person or a program asks of the file."""
    with SqliteJournal(path, durability="relaxed") as journal:
        agent = make_agent(journal)
        names = iter(f"s-{at}" for at in range(0, sessions, 5))
        fresh = iter(range(10**6))

        async def answer() -> None:
            name = next(names)
            questions = open_questions(fold(name, await journal.read(name)))
            await agent.answer(name, questions[0].call_id, Allow())

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
                lambda: journal.sessions(state=UNFINISHED_STATES), ROUNDS
            ),
            f"the {OPEN} that were abandoned": await usual_time(journal.list_abandoned, ROUNDS),
            "read one": await usual_time(lambda: journal.read("s-7"), ROUNDS),
            "find one, answer it, finish its run": await usual_time(answer, ROUNDS * 2),
            "begin one and run it": await usual_time(
                lambda: agent.run("Look.", session=f"new-{next(fresh)}"), ROUNDS * 2
            ),
        }


async def list_first_page(path: Path) -> TimeTaken:
    """Measure the first page of the list alone."""
    with SqliteJournal(path) as journal:
        return await usual_time(journal.sessions, ROUNDS)


async def prune_library(path: Path, sessions: int) -> tuple[TimeTaken, int, float]:
    """Delete the older half of the ended sessions, while another task appends.

    Returns the time, the number of deleted sessions, and the longest wait of an append in seconds.
    """
    with SqliteJournal(path, durability="relaxed") as journal:
        ended = (await template_facts())["ended"]
        longest = 0.0
        over = asyncio.Event()

        async def append() -> None:
            nonlocal longest
            at = 0
            while not over.is_set():
                began = time.perf_counter()
                await append_facts(journal, f"meanwhile-{at}", [*ended])
                longest = max(longest, time.perf_counter() - began)
                at += 1
                await asyncio.sleep(0.02)

        appending = asyncio.create_task(append())
        await asyncio.sleep(0.2)
        longest = 0.0
        with measure_time() as taken:
            deleted = await journal.prune(time.time() - sessions * 3 / 8)
        over.set()
        await appending
        return taken, deleted, longest


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
