"""A durable run, compared with the floor plus one raw commit for each fact."""

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

import apsw
from meter import BenchRow, Contestant, Work, race_contestants
from world import TextWatcher, make_agent, make_floor, script_steps

from windlass.journals.codec import encode_fact
from windlass.journals.memory import MemoryJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing import ScriptedModel

AIM = 4.0
WRITTEN_AIM_KIB = 20.0
IO_COUNTS = Path("/proc/self/io")


def measure(length: int, rounds: int) -> list[BenchRow]:
    """Measure a durable step. The floor makes one commit with an fsync for each fact."""
    with tempfile.TemporaryDirectory() as folder:
        bodies = asyncio.run(_record_bodies(length))
        paths = (Path(folder, f"{number}.db") for number in count())
        sides: dict[str, Contestant] = {
            "floor": lambda: _floor_work(length, bodies, next(paths)),
            "windlass": lambda: _windlass_work(length, next(paths)),
        }
        times = race_contestants(sides, rounds)
        written = _measure_written(sides, length)
    name = f"durable step, of {length:,}"
    cpu = {side: time.cpu_s / length * 1e6 for side, time in times.items()}
    wall = {side: time.wall_s / length * 1e6 for side, time in times.items()}
    return [
        BenchRow(
            name=f"{name}, {len(bodies) / length:.0f} facts each", unit="µs CPU", aim=AIM, **cpu
        ),
        BenchRow(name=f"{name}, best", unit="µs wall", aim=AIM, **wall),
        *written,
    ]


def _measure_written(sides: Mapping[str, Contestant], length: int) -> list[BenchRow]:
    """Measure what a step hands to the system to write, log and checkpoints included."""
    if not IO_COUNTS.exists():  # only Linux counts it
        return []
    each: dict[str, float] = {}
    for side, contestant in sides.items():
        work = contestant()
        before = _written_bytes()
        asyncio.run(_play(work))
        each[side] = (_written_bytes() - before) / length / 1024
    return [BenchRow(name="durable step, KiB written", unit="", aim=WRITTEN_AIM_KIB, **each)]


async def _play(work: Work) -> None:
    await work()


def _written_bytes() -> int:
    counts = dict(line.split(": ") for line in IO_COUNTS.read_text().splitlines())
    return int(counts["wchar"])


async def _record_bodies(length: int) -> list[bytes]:
    """Return the encoded records of such a run."""
    journal = MemoryJournal()
    result = await make_agent(ScriptedModel(script_steps(length)), journal).run("Go.")
    return [encode_fact(fact).body for fact in await journal.read(result.session_id)]


def _floor_work(length: int, bodies: Sequence[bytes], path: Path) -> Work:
    floor = make_floor(ScriptedModel(script_steps(length)))

    async def work() -> None:
        file = apsw.Connection(str(path))
        file.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")
        file.execute("CREATE TABLE records (seq INTEGER PRIMARY KEY, body BLOB NOT NULL)")
        await floor.run("Go.", TextWatcher().on_text)
        for body in bodies:
            file.execute("INSERT INTO records (body) VALUES (?)", (body,))
        file.close()

    return work


def _windlass_work(length: int, path: Path) -> Work:
    async def work() -> None:
        with SqliteJournal(path) as journal:
            agent = make_agent(ScriptedModel(script_steps(length)), journal)
            await agent.run("Go.", on_event=TextWatcher().on_event)

    return work
