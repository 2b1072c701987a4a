"""Many runs at once in one process: CPU time of each, and peak memory."""

import asyncio
import gc
import json
import resource
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from meter import BenchRow, Work, race_contestants, run_in_child
from world import ModelSwitchboard, TextWatcher, make_agent, make_floor, script_steps

from windlass.server.serving import relax_garbage_collector

STEPS = 3
"""Replies of the model in each run: two with a call, and the answer."""


def measure(runs: int, rounds: int) -> list[BenchRow]:
    sides = {"floor": _floor_work, "windlass": _windlass_work}
    times = race_contestants(
        {
            **{side: partial(make, runs) for side, make in sides.items()},
            "served": lambda: as_in_serve(_windlass_work(runs)),
        },
        rounds,
    )
    served = times.pop("served")
    code = "from measures.crowd import print_peak; print_peak({!r}, {})"
    peak = {side: run_in_child(code.format(side, runs)) for side in sides}
    return [
        BenchRow(
            name=f"run, of {runs:,} at once, {STEPS} steps",
            unit="µs CPU",
            **{side: time.cpu_s / runs * 1e6 for side, time in times.items()},
        ),
        BenchRow(
            name="the same, with the collector as in serve",
            unit="µs CPU",
            floor=times["floor"].cpu_s / runs * 1e6,
            windlass=served.cpu_s / runs * 1e6,
        ),
        BenchRow(name=f"peak over the start, {runs:,} at once", unit="MB RSS", **peak),
    ]


def as_in_serve(work: Work) -> Work:
    """Return the work with the garbage collector set as `windlass serve` and `worker` set it."""
    usual = gc.get_threshold()
    relax_garbage_collector()

    async def play() -> object:
        try:
            return await work()
        finally:
            gc.set_threshold(*usual)
            gc.unfreeze()

    return play


def _make_switchboard(runs: int) -> ModelSwitchboard:
    return ModelSwitchboard({f"Go {at}.": script_steps(STEPS - 1) for at in range(runs)})


def _floor_work(runs: int) -> Work:
    model = _make_switchboard(runs)
    floor = make_floor(model)
    return lambda: _run_all_at_once(model, lambda prompt: floor.run(prompt, TextWatcher().on_text))


def _windlass_work(runs: int) -> Work:
    model = _make_switchboard(runs)
    agent = make_agent(model)
    return lambda: _run_all_at_once(
        model, lambda prompt: agent.run(prompt, on_event=TextWatcher().on_event)
    )


async def _run_all_at_once(
    model: ModelSwitchboard, run: Callable[[str], Awaitable[object]]
) -> list[object]:
    return await asyncio.gather(*map(run, model.models))


def print_peak(side: str, runs: int) -> None:
    """Print the peak memory of the work. It runs in its own process, because a peak never falls."""
    work = {"floor": _floor_work, "windlass": _windlass_work}[side](runs)
    before = peak_mb()

    async def play() -> None:
        await work()

    asyncio.run(play())
    print(json.dumps(peak_mb() - before))


def peak_mb() -> float:
    status = Path("/proc/self/status")
    if status.exists():  # `getrusage` may report the peak of the parent before the fork.
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) / 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
