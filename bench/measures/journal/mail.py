"""Mail: how long a message takes to wake a driver in another process, and what a step writes."""

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import quantiles
from typing import Any

from measures.journal.postgres import run_server
from meter import BenchRow, child_environment
from world import make_agent, script_steps

from windlass.core.mail import CancelMail
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.journals.urls import open_journal
from windlass.testing import ScriptedModel
from windlass.testing.journals import append_facts
from windlass.testing.samples import note_facts

WAKE_AIM_MS = 250
WRITE_AIM_KIB = 30
GAP_S = 0.03
SESSION = "s"


def measure(posts: int, steps: int) -> list[BenchRow]:
    """Measure the wake-ups of a waiting driver, and the bytes that a durable step writes."""
    rows: list[BenchRow] = []
    with tempfile.TemporaryDirectory() as folder:
        rows += _measure_wake("SQLite", str(Path(folder) / "s.db"), posts)
        rows.append(asyncio.run(_measure_writing(Path(folder) / "w.db", steps)))
    with run_server() as dsn:
        if dsn:
            rows += _measure_wake("Postgres", dsn, posts)
    return rows


def _measure_wake(store: str, place: str, posts: int) -> list[BenchRow]:
    """Post from a child process; each message carries the time at which it was posted."""
    delays = sorted(asyncio.run(_wait_for_posts(place, posts)))
    cuts = quantiles(delays, n=100)
    name = f"{store}: a post wakes another process"
    return [
        BenchRow(name=f"{name}, median ms", floor=0, windlass=cuts[49]),
        BenchRow(name=f"{name}, p99 ms", floor=0, windlass=cuts[98], aim=WAKE_AIM_MS),
    ]


async def _wait_for_posts(place: str, posts: int) -> list[float]:
    journal: Any = open_journal(place)
    try:
        await append_facts(journal, SESSION, note_facts(1, 1))
        command = [sys.executable, __file__, place, str(posts)]
        child = await asyncio.to_thread(subprocess.Popen, command, env=child_environment())
        delays: list[float] = []
        while len(delays) < posts:
            await journal.wait_for_mail(SESSION, "control", len(delays))
            now = time.time()
            letters = await journal.read_mail(SESSION, "control", len(delays))
            delays += [(now - float(letter.message.reason)) * 1e3 for letter in letters]
        await asyncio.to_thread(child.wait)
        return delays
    finally:
        await asyncio.to_thread(journal.close)


async def _post(place: str, posts: int) -> None:
    journal: Any = open_journal(place)
    for _ in range(posts):
        await asyncio.sleep(GAP_S)
        await journal.post_mail(SESSION, CancelMail(run=1, reason=str(time.time())))
    await asyncio.to_thread(journal.close)


async def _measure_writing(path: Path, steps: int) -> BenchRow:
    with SqliteJournal(path) as journal:
        agent = make_agent(ScriptedModel(script_steps(steps)), journal)
        before = _bytes_written()
        await agent.run("Go.")
        written = (_bytes_written() - before) / steps / 1024
    return BenchRow(name="durable step, KiB written", floor=0, windlass=written, aim=WRITE_AIM_KIB)


def _bytes_written() -> int:
    place = Path("/proc/self/io")
    if not place.exists():
        return 0
    lines = place.read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])


if __name__ == "__main__":
    asyncio.run(_post(sys.argv[1], int(sys.argv[2])))
