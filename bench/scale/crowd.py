"""Many sessions in one process: most of them idle, a thousand active."""

import asyncio
import gc
import tempfile
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

from people import make_agent
from tally import ScaleRow, measure_time, memory_kb, run_limited

from windlass import Agent, Allow
from windlass.core.fold.run import fold
from windlass.core.result import open_questions
from windlass.journals.memory import MemoryJournal
from windlass.journals.sqlite.journal import SqliteJournal

MOMENT_S = 0.05
AT_ONCE = 1_000
FOLLOWED_S = 5.0

Work = Callable[[], Awaitable[object]]


async def measure(sessions: int, active: int) -> list[ScaleRow]:
    """Measure sessions in a file. Where it makes sense, compare with the first tenth of them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "crowd.db")
        journal = SqliteJournal(path, durability="relaxed")
        agent = make_agent(journal)
        await run_limited(_start_sessions(agent, "warm", 200), 100)
        rows = [*await _measure_idle(agent, sessions), *await _measure_active(journal, active)]
        rows += await _measure_answers(journal, agent, sessions)
        rows.append(await _measure_followers(journal, path, active))
        journal.close()
        return rows


async def memory_journal(sessions: int) -> list[ScaleRow]:
    """Measure idle sessions in a journal in memory, which holds every fact."""
    agent = make_agent(MemoryJournal())
    await run_limited(_start_sessions(agent, "warm", 200), 100)
    gc.collect()
    tracemalloc.start()
    await run_limited(_start_sessions(agent, "s", sessions), AT_ONCE)
    gc.collect()
    each = tracemalloc.get_traced_memory()[0] / 1024 / sessions
    tracemalloc.stop()
    return [ScaleRow(f"memory of an idle session, of {sessions:,}, in memory", "kB", each)]


def _start_sessions(agent: Agent[str], name: str, count: int, start: int = 0) -> list[Work]:
    """Return the work of new sessions. Every other one ends; the rest wait for a person."""
    prompts = ("Look, then send.", "Look.")
    return [
        partial(agent.run, prompts[at % 2], session=f"{name}-{at}")
        for at in range(start, start + count)
    ]


async def _measure_idle(agent: Agent[str], sessions: int) -> list[ScaleRow]:
    part = sessions // 10
    before = memory_kb()
    peaks: list[float] = []
    cpu: list[float] = []
    for start in range(0, sessions, part):
        with measure_time() as taken:
            await run_limited(_start_sessions(agent, "s", part, start), min(AT_ONCE, part))
        cpu.append(taken.cpu_s / part * 1e6)
        peaks.append(float(memory_kb()))
    rising = (peaks[-1] - peaks[len(peaks) // 2]) / (sessions - sessions * 6 // 10)
    return [
        ScaleRow("CPU to begin one and run it", "µs", cpu[-1], cpu[0]),
        ScaleRow(
            "memory of all over the start",
            *("MB RSS", (peaks[-1] - before) / 1024, (peaks[0] - before) / 1024),
        ),
        ScaleRow("memory that an idle session adds, late", "kB RSS", rising),
    ]


async def _measure_active(journal: SqliteJournal, active: int) -> list[ScaleRow]:
    """Measure active sessions, all at once with a slow model, compared with a tenth of them."""
    agent = make_agent(journal, MOMENT_S)
    found: list[tuple[float, float, float]] = []
    for count in (active // 10, active):
        work = _start_sessions(agent, f"active{count}", count)
        with measure_time() as taken:
            await asyncio.gather(*(one() for one in work))
        held = await _measure_memory(_start_sessions(agent, f"held{count}", count))
        found.append((taken.cpu_s / count * 1e6, held / count, taken.wall_s))
    (cpu, kb, wall), (cpus, kbs, walls) = found
    return [
        ScaleRow(f"CPU of a run, {active:,} at once, against {active // 10:,}", "µs", cpus, cpu),
        ScaleRow("memory of one at work", "kB", kbs, kb),
        ScaleRow("until all of them are done", "s wall", walls, wall),
    ]


async def _measure_memory(work: list[Work]) -> float:
    """Return the memory that all of them hold while their model is thinking, in kB."""
    gc.collect()
    tracemalloc.start()
    running = asyncio.gather(*(one() for one in work))
    await asyncio.sleep(MOMENT_S * 3)
    held = tracemalloc.get_traced_memory()[0] / 1024
    tracemalloc.stop()
    await running
    return held


async def _measure_answers(
    journal: SqliteJournal, agent: Agent[str], sessions: int
) -> list[ScaleRow]:
    """Answer the waiting sessions: the first tenth, then the last tenth."""
    found: list[float] = []
    part = sessions // 10
    for start in (0, sessions - part):
        names = [f"s-{at}" for at in range(start, start + part, 2)]
        asked = list(zip(names, await _waiting_calls(journal, names), strict=True))
        with measure_time() as taken:
            await run_limited(
                [partial(agent.answer, *one, Allow()) for one in asked], min(AT_ONCE, part)
            )
        found.append(taken.cpu_s / len(names) * 1e6)
    again = [partial(agent.run, "Look.", session=f"s-{at}") for at in range(1, part, 2)]
    with measure_time() as taken:
        await run_limited(again, min(AT_ONCE, part))
    return [
        ScaleRow("CPU to answer one and finish its run", "µs", found[1], found[0]),
        ScaleRow("CPU to go on with one by a new prompt", "µs", taken.cpu_s / len(again) * 1e6),
    ]


async def _waiting_calls(journal: SqliteJournal, names: list[str]) -> list[str]:
    return [open_questions(fold(name, await journal.read(name)))[0].call_id for name in names]


async def _measure_followers(journal: SqliteJournal, path: Path, count: int) -> ScaleRow:
    """Measure watchers of silent sessions that another process drives."""
    names = [f"s-{at}" for at in range(count, 3 * count, 2)]  # These are still waiting.
    shares: list[float] = []
    with SqliteJournal(path) as elsewhere:
        for some in (names[: count // 10], names):
            leases = [await elsewhere.lease(name) for name in some]
            agent = make_agent(journal)
            watching = [asyncio.create_task(_watch_session(agent, name)) for name in some]
            await asyncio.sleep(1.0)
            with measure_time() as taken:
                await asyncio.sleep(FOLLOWED_S)
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)
            for lease in leases:
                lease.release()
            shares.append(taken.cpu_s / taken.wall_s * 100)
    title = f"CPU to watch {count:,} silent ones elsewhere, and {count // 10:,}"
    return ScaleRow(title, "% core", shares[1], shares[0])


async def _watch_session(agent: Agent[str], session: str) -> None:
    async for _ in agent.watch(session):
        pass


def crowd_rows(sessions: int, active: int) -> Iterator[ScaleRow]:
    yield from asyncio.run(measure(sessions, active))
    yield from asyncio.run(memory_journal(sessions // 5))
