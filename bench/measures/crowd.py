"""Many runs at once in one process: the CPU of each, and the peak of memory."""

import asyncio
import json
import resource
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from meter import Row, Work, in_child, race
from world import Switchboard, Watcher, agent_of, floor_of, steps

STEPS = 3
"""Replies of the model in each run: two with a call, and the answer."""


def measure(runs: int, rounds: int) -> list[Row]:
    sides = {"floor": _floor, "windlass": _windlass}
    times = race({side: partial(make, runs) for side, make in sides.items()}, rounds)
    code = "from measures.crowd import print_peak; print_peak({!r}, {})"
    peak = {side: in_child(code.format(side, runs)) for side in sides}
    return [
        Row(
            name=f"run, of {runs:,} at once, {STEPS} steps",
            unit="µs CPU",
            **{side: time.cpu_s / runs * 1e6 for side, time in times.items()},
        ),
        Row(name=f"peak over the start, {runs:,} at once", unit="MB RSS", **peak),
    ]


def _switchboard(runs: int) -> Switchboard:
    return Switchboard({f"Go {at}.": steps(STEPS - 1) for at in range(runs)})


def _floor(runs: int) -> Work:
    model = _switchboard(runs)
    floor = floor_of(model)
    return lambda: _at_once(model, lambda prompt: floor.run(prompt, Watcher().on_text))


def _windlass(runs: int) -> Work:
    model = _switchboard(runs)
    agent = agent_of(model)
    return lambda: _at_once(model, lambda prompt: agent.run(prompt, on_event=Watcher().on_event))


async def _at_once(model: Switchboard, run: Callable[[str], Awaitable[object]]) -> list[object]:
    return await asyncio.gather(*map(run, model.models))


def print_peak(side: str, runs: int) -> None:
    """In a process of its own, since a peak is never forgotten."""
    work = {"floor": _floor, "windlass": _windlass}[side](runs)
    before = peak_mb()

    async def play() -> None:
        await work()

    asyncio.run(play())
    print(json.dumps(peak_mb() - before))


def peak_mb() -> float:
    status = Path("/proc/self/status")
    if status.exists():  # Elsewhere the peak may be the one of the parent, before the child began.
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) / 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
