"""The live channel: what a delta costs while nobody watches, and how long one takes elsewhere."""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from statistics import quantiles
from typing import Any

from measures.journal.postgres import run_server
from meter import BenchRow, Work, child_environment, race_contestants

from windlass import Agent, TextDelta
from windlass.core.events import Event, ReplyEnd, ReplyPiece
from windlass.core.live_batch import LiveBatch
from windlass.core.setup import ModelInfo
from windlass.core.view import Prompt
from windlass.journals.memory import MemoryJournal
from windlass.journals.postgres.journal import PostgresJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing import ScriptedModel

JournalOpener = Callable[[str], MemoryJournal | SqliteJournal]
COST_AIM = 1.01
DELAY_AIM_MS = 250
GAP_S = 0.02
"""Seconds between two deltas."""


class _SilentSender:
    """Sends nothing."""

    def send(self, batch: LiveBatch) -> None:
        """Drop what is sent."""
        del batch

    def close(self) -> None:
        """Do nothing."""


class _MemoryWithout(MemoryJournal):
    open_live: Any = staticmethod(lambda *_: _SilentSender())


class _SqliteWithout(SqliteJournal):
    open_live: Any = staticmethod(lambda *_: _SilentSender())


def measure(count: int, rounds: int, deltas: int) -> list[BenchRow]:
    """Measure unwatched deltas with and without the channel, then delays to another process."""
    rows = [*_measure_cost(count, rounds)]
    with tempfile.TemporaryDirectory() as folder:
        rows += _measure_delay("SQLite", str(Path(folder) / "s.db"), deltas)
    with run_server() as dsn:
        if dsn:
            rows += _measure_delay("Postgres", dsn, deltas)
    return rows


def _measure_cost(count: int, rounds: int) -> list[BenchRow]:
    rows: list[BenchRow] = []
    for name, without, journal in (
        ("memory", lambda _: _MemoryWithout(), lambda _: MemoryJournal()),
        ("SQLite", _SqliteWithout, SqliteJournal),
    ):
        # Each side twice, in both orders: whoever runs first in a round has a small advantage.
        contestants: dict[str, JournalOpener] = {
            "floor": without,
            "windlass": journal,
            "windlass again": journal,
            "floor again": without,
        }
        with tempfile.TemporaryDirectory() as folder:
            ready = {
                side: lambda make=make, side=side: _unwatched_work(make, f"{folder}/{side}", count)
                for side, make in contestants.items()
            }
            times = race_contestants(ready, rounds)
        floor, windlass = (
            (times[side].cpu_s + times[f"{side} again"].cpu_s) / 2 / count * 1e6
            for side in ("floor", "windlass")
        )
        label = f"unwatched delta, {name}, no channel"
        rows.append(
            BenchRow(name=label, unit="µs CPU", aim=COST_AIM, floor=floor, windlass=windlass)
        )
    return rows


def _unwatched_work(open_journal: JournalOpener, path: str, count: int) -> Work:
    model = ScriptedModel(["word" * count])

    async def work() -> None:
        journal = open_journal(path)
        await Agent(model, journal=journal).run("Go.")
        if isinstance(journal, SqliteJournal):
            journal.close()

    return work


class _TickingModel:
    """Says what time it is, again and again."""

    info = ModelInfo("ticking:model")

    def __init__(self, deltas: int) -> None:
        self._deltas = deltas

    async def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:
        del prompt
        await asyncio.sleep(1.0)
        for _ in range(self._deltas):
            yield TextDelta(f"{time.time()} ")
            await asyncio.sleep(GAP_S)
        yield ReplyEnd("end")


def _open_journal(store: str) -> PostgresJournal | SqliteJournal:
    return PostgresJournal(store) if store.startswith("postgres") else SqliteJournal(store)


def drive_ticking(store: str, deltas: int) -> None:
    """Drive a run whose model says what time it is; for a process of its own."""

    async def drive() -> None:
        journal = _open_journal(store)
        await Agent(_TickingModel(deltas), journal=journal).run("Go.", session="s")
        await asyncio.to_thread(journal.close)

    asyncio.run(drive())


def _measure_delay(name: str, store: str, deltas: int) -> list[BenchRow]:
    code = f"from measures.journal.live import drive_ticking; drive_ticking({store!r}, {deltas})"
    near = asyncio.run(_watch_here(deltas))
    with subprocess.Popen([sys.executable, "-c", code], env=child_environment()) as driver:
        far = asyncio.run(_watch_there(store))
        driver.wait()
    rows: list[BenchRow] = []
    for percent in (50, 99):
        near_ms, far_ms = (quantiles(delays, n=100)[percent - 1] * 1000 for delays in (near, far))
        label = f"delay to another process, {name}, p{percent}, in ms"
        rows.append(BenchRow(name=label, aim=DELAY_AIM_MS, floor=near_ms, windlass=far_ms))
    return rows


async def _watch_here(deltas: int) -> list[float]:
    delays: list[float] = []
    async with Agent(_TickingModel(deltas)).stream("Go.") as events:
        async for event in events:
            delays += _delays_of(event)
    return delays


async def _watch_there(store: str) -> list[float]:
    journal = _open_journal(store)
    delays: list[float] = []
    async with asyncio.timeout(120):
        while not await journal.read("s"):
            await journal.wait_for_append("s", 0)
        async for event in Agent(ScriptedModel([]), journal=journal).watch("s"):
            delays += _delays_of(event)
    await asyncio.to_thread(journal.close)
    return delays


def _delays_of(event: Event) -> list[float]:
    if not isinstance(event, TextDelta):
        return []
    return [time.time() - float(stamp) for stamp in event.text.split()]
