"""How everything here is measured, and the rows that come of it."""

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
"""Makes ready outside the clock, and gives what is run under it."""


class BenchRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table. `aim` bounds the ratio, or `windlass` itself when there is no unit."""

    name: str
    unit: str = ""
    model: float | None = None
    """What the scripted model alone costs, which is part of both."""
    floor: float
    windlass: float
    aim: float | None = None

    @property
    def ratio(self) -> float | None:
        return self.windlass / self.floor if self.unit and self.floor else None


class RunTimes(msgspec.Struct, frozen=True):
    """Seconds of one run."""

    cpu_s: float
    wall_s: float


def race_contestants(contestants: Mapping[str, Contestant], rounds: int) -> dict[str, RunTimes]:
    """The usual times of each, run in turn so that a change of the weather strikes all alike."""
    times: dict[str, list[RunTimes]] = {name: [] for name in contestants}
    for at in range(rounds + 1):
        for name, contestant in contestants.items():
            taken = _time_work(contestant())
            if at > 0:  # The first round warms up.
                times[name].append(taken)
    # A disk that others use too makes a run slow and never fast: of the wall time, the best counts.
    return {
        name: RunTimes(median(one.cpu_s for one in some), min(one.wall_s for one in some))
        for name, some in times.items()
    }


def _time_work(work: Work) -> RunTimes:
    with asyncio.Runner() as runner:
        return runner.run(_measure_work(work))


async def _measure_work(work: Work) -> RunTimes:
    """Starts with no garbage. The collector stays on: what it costs, it costs in life too."""
    gc.collect()
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    await work()
    return RunTimes(time.process_time() - cpu_s, time.perf_counter() - wall_s)


def run_in_child(code: str, **environment: str) -> Any:  # noqa: ANN401 - whatever it prints as JSON
    """What a fresh interpreter prints, which finds the same modules as this one."""
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**inherited, "PYTHONPATH": path, **environment},
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)
