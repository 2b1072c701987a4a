"""Control from outside: beginning a run, speaking to it, and watching it while nothing happens."""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from measures.journal.postgres import run_server
from meter import BenchRow, Work, race_contestants
from typing_extensions import override
from world import TextWatcher, make_agent, script_steps

import windlass
from windlass import Agent, Event, RaisedLimits
from windlass.core.mail import Letter, MailLane
from windlass.journals.memory import MemoryJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.journals.urls import open_journal
from windlass.ports import Journal
from windlass.testing import ScriptedModel, pause, say

TAKEN_AIM_MS = 250
ALONE_AIM = 1.03
ALONE_STEPS = 200
QUIET_S = 3.0
LONG = [pause(3_600), say("Done.")]


def measure(starts: int, posts: int, watchers: int, rounds: int) -> list[BenchRow]:
    """Measure a step that nobody speaks to, first events, messages, and idle watchers."""
    alone = _measure_alone(rounds)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        rows = [alone, asyncio.run(_measure_start(place / "start.db", starts))]
        rows += asyncio.run(_measure_taking("SQLite", str(place / "taken.db"), posts))
        rows.append(asyncio.run(_measure_watchers(place / "watched.db", watchers)))
    with run_server() as dsn:
        if dsn:
            rows += asyncio.run(_measure_taking("Postgres", dsn, posts))
    return rows


class _DeafJournal(MemoryJournal):
    """A journal in memory whose mailbox is always empty."""

    @override
    async def read_mail(self, session: str, lane: MailLane, after: int = 0) -> Sequence[Letter]:
        del session, lane, after
        return ()

    @override
    async def wait_for_mail(self, session: str, lane: MailLane, after: int) -> None:
        del session, lane, after
        await asyncio.get_running_loop().create_future()


def _measure_alone(rounds: int) -> BenchRow:
    """A step of a run that can be spoken to and is not; the floor is a run that cannot be."""
    times = race_contestants(
        {
            "floor": lambda: _run_alone(_DeafJournal()),
            "windlass": lambda: _run_alone(MemoryJournal()),
        },
        rounds,
    )
    each = {side: taken.cpu_s / ALONE_STEPS * 1e6 for side, taken in times.items()}
    return BenchRow(name="step, nobody outside", unit="µs CPU", aim=ALONE_AIM, **each)


def _run_alone(journal: Journal) -> Work:
    agent = make_agent(ScriptedModel(script_steps(ALONE_STEPS)), journal)
    return lambda: agent.run("Go.", on_event=TextWatcher().on_event)


async def _measure_start(path: Path, starts: int) -> BenchRow:
    """The floor is the first event of `run`, which is called back in the task that drives."""
    taken: dict[str, list[float]] = {"floor": [], "windlass": []}
    with SqliteJournal(path) as journal:
        agent = Agent(ScriptedModel(["Done."] * 2 * (starts + 1)), journal=journal)
        sides = {"floor": _first_of_run, "windlass": _first_of_start}
        for at in range(starts + 1):
            for name, side in sides.items():
                took = await side(agent)
                if at:  # The first round warms up.
                    taken[name].append(took * 1e3)
    typical = {name: median(times) for name, times in taken.items()}
    return BenchRow(name="start to first event, SQLite", unit="ms wall", **typical)


async def _first_of_run(agent: Agent[str]) -> float:
    seen: list[float] = []

    def note(_: Event) -> None:
        seen.append(time.perf_counter())

    began = time.perf_counter()
    await agent.run("Go.", on_event=note)
    return seen[0] - began


async def _first_of_start(agent: Agent[str]) -> float:
    began = time.perf_counter()
    handle = await agent.start("Go.")
    async with aclosing(handle.events()) as events:
        await anext(events)
        took = time.perf_counter() - began
    await handle.result()
    return took


async def _measure_taking(store: str, place: str, posts: int) -> list[BenchRow]:
    """From the post through a second connection to the fact that its poster has read."""
    driving: Any = open_journal(place)
    posting: Any = open_journal(place)
    try:
        agent = Agent(ScriptedModel([LONG]), journal=driving)
        handle = await agent.start("Go.", session="s")
        delays: list[float] = []
        for at in range(posts):
            began = time.perf_counter()
            limits = RaisedLimits(steps=1_000 + at)
            receipt = await windlass.raise_limits(posting, "s", limits)
            await receipt.taken(timeout=60)
            delays.append((time.perf_counter() - began) * 1e3)
        await handle.cancel()
        await handle.result()
        await agent.aclose()
    finally:
        await asyncio.to_thread(posting.close)
        await asyncio.to_thread(driving.close)
    cuts = quantiles(delays, n=100)
    name = f"{store}: post to taken"
    return [
        BenchRow(name=f"{name}, median ms", floor=0, windlass=cuts[49]),
        BenchRow(name=f"{name}, p99 ms", floor=0, windlass=cuts[98], aim=TAKEN_AIM_MS),
    ]


async def _measure_watchers(path: Path, watchers: int) -> BenchRow:
    """CPU while a run waits for its model; the floor is the same run without watchers."""
    with SqliteJournal(path) as journal:
        agent = Agent(ScriptedModel([LONG]), journal=journal)
        handle = await agent.start("Go.", session="s")
        floor = await _cpu_ms_per_s(lambda: asyncio.sleep(QUIET_S))

        async def watch() -> None:
            async for _ in agent.watch("s"):
                pass

        tasks = [asyncio.create_task(watch()) for _ in range(watchers)]
        await asyncio.sleep(QUIET_S)  # Until all of them have read what is there.
        cost = await _cpu_ms_per_s(lambda: asyncio.sleep(QUIET_S))
        assert not any(task.done() for task in tasks), "a watcher left before the run had ended"
        await handle.cancel()
        await handle.result()
        await asyncio.gather(*tasks)
    name = f"{watchers:,} idle watchers, ms CPU a second"
    return BenchRow(name=name, floor=floor, windlass=cost)


async def _cpu_ms_per_s(work: Callable[[], Awaitable[object]]) -> float:
    cpu = time.process_time()
    wall = time.perf_counter()
    await work()
    return (time.process_time() - cpu) / (time.perf_counter() - wall) * 1e3
