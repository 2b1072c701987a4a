"""The rows of the tables, and how work is timed."""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import msgspec

LINE = "{:<52} {:>8} {:>11} {:>11} {:>8}"


class ScaleRow(msgspec.Struct, frozen=True):
    """One row: the same work with few sessions and with many."""

    title: str
    unit: str
    much: float
    little: float | None = None

    @property
    def line(self) -> str:
        little = "" if self.little is None else f"{self.little:,.2f}"
        ratio = f"{self.much / self.little:.2f}" if self.little else ""
        return LINE.format(self.title, self.unit, little, f"{self.much:,.2f}", ratio).rstrip()


def table_head(little: str, much: str) -> str:
    return LINE.format("", "", little, much, "ratio")


class TimeTaken(msgspec.Struct):
    """CPU time and wall time of some work, in seconds."""

    cpu_s: float = 0.0
    wall_s: float = 0.0


@contextmanager
def measure_time() -> Generator[TimeTaken]:
    """Measure the time of the block, with all its threads."""
    gc.collect()
    taken = TimeTaken()
    cpu_s = time.process_time()
    wall_s = time.perf_counter()
    yield taken
    taken.cpu_s = time.process_time() - cpu_s
    taken.wall_s = time.perf_counter() - wall_s


async def usual_time(work: Callable[[], Awaitable[object]], rounds: int) -> TimeTaken:
    """Return the median CPU time and the best wall time of a round."""
    rounds_taken: list[TimeTaken] = []
    await work()
    for _ in range(rounds):
        with measure_time() as taken:
            await work()
        rounds_taken.append(taken)
    return TimeTaken(
        median(one.cpu_s for one in rounds_taken), min(one.wall_s for one in rounds_taken)
    )


async def run_limited(works: Sequence[Callable[[], Awaitable[object]]], at_once: int) -> None:
    """Do all of the work, at most `at_once` at a time."""
    waiting = iter(works)

    async def take() -> None:
        for work in waiting:
            await work()

    await asyncio.gather(*(take() for _ in range(at_once)))


def memory_kb(field: str = "VmRSS") -> int:
    """Return the memory of this process in kB: now, or at its peak (`VmHWM`)."""
    gc.collect()
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(dict(line.split(":", 1) for line in lines)[field].split()[0])
