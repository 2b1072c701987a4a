"""How the measures are timed, and the rows that they return."""

import asyncio
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from statistics import median
from typing import Any

import msgspec

Work = Callable[[], Awaitable[object]]
Contestant = Callable[[], Work]
"""Prepares the work outside of the timed part, and returns the part that is timed."""


class BenchRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table. `aim` limits the ratio, or `windlass` itself if there is no unit."""

    name: str
    unit: str = ""
    model: float | None = None
    """The cost of the scripted model alone, which is part of both sides."""
    floor: float
    windlass: float
    aim: float | None = None

    @property
    def ratio(self) -> float | None:
        return self.windlass / self.floor if self.unit and self.floor else None


class RunTimes(msgspec.Struct, frozen=True):
    """CPU time and wall time of one run, in seconds."""

    cpu_s: float
    wall_s: float


def race_contestants(contestants: Mapping[str, Contestant], rounds: int) -> dict[str, RunTimes]:
    """Return the typical times of each contestant.

    They run in turn, so that a slow moment of the machine affects all of them alike.
    """
    times: dict[str, list[RunTimes]] = {name: [] for name in contestants}
    for at in range(rounds + 1):
        for name, contestant in contestants.items():
            taken = _time_work(contestant())
            if at > 0:  # The first round warms up.
                times[name].append(taken)
    # A shared disk makes a run slower, never faster: so the best wall time counts.
    return {
        name: RunTimes(median(run.cpu_s for run in runs), min(run.wall_s for run in runs))
        for name, runs in times.items()
    }


def _time_work(work: Work) -> RunTimes:
    with asyncio.Runner() as runner:
        return runner.run(_measure_work(work))


async def _measure_work(work: Work) -> RunTimes:
    """Time the work, starting without garbage. The collector stays on, as it does in production."""
    gc.collect()
    cpu_s = time.process_time()
    wall_s = time.perf_counter()
    await work()
    return RunTimes(time.process_time() - cpu_s, time.perf_counter() - wall_s)


def run_in_child(code: str, **environment: str) -> Any:  # noqa: ANN401 - whatever it prints as JSON
    """Run code in a fresh interpreter with the same import path, and decode what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**child_environment(), **environment},
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


def child_environment() -> dict[str, str]:
    """Return the environment of a process with the same import path."""
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**inherited, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
