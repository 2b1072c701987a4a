"""Many runs at once over HTTP, with a model that takes its time: CPU, wall time, memory of each."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from measures.crowd import peak_mb
from meter import Row, Work, in_child, race
from wire_server import Counts, Server, serving
from world import Watcher, agent_at, floor_at

AIM = 5.0
STEPS = 5
"""Replies of the model in each run: four with a call, and the answer."""
LATENCY_MS = 50
WARM_UP = 5
"""Runs before the memory is looked at."""


def measure(sizes: Sequence[int], rounds: int) -> list[Row]:
    with serving() as server:
        return [row for runs in sizes for row in _rows(server, runs, rounds)]


def _rows(server: Server, runs: int, rounds: int) -> list[Row]:
    url = server.calls(STEPS - 1, LATENCY_MS)
    times = race({side: partial(make, url, runs) for side, make in SIDES.items()}, rounds)
    code = "from measures.http_crowd import print_peak; print_peak({!r}, {!r}, {})"
    peak: dict[str, float] = {}
    counts: dict[str, Counts] = {}
    for side in SIDES:
        server.counted()
        peak[side] = in_child(code.format(side, url, runs))
        counts[side] = server.counted()
        asked, due = counts[side].requests, (WARM_UP + runs) * STEPS
        assert asked == due, f"{side}: {asked} requests in place of {due}"
    return [
        Row(
            name=f"HTTP run, of {runs:,} at once, {STEPS} steps",
            unit="µs CPU",
            aim=AIM,
            **{side: time.cpu_s / runs * 1e6 for side, time in times.items()},
        ),
        Row(
            name=f"all {runs:,}, {LATENCY_MS} ms of latency a step, best",
            unit="ms wall",
            **{side: time.wall_s * 1e3 for side, time in times.items()},
        ),
        Row(
            name=f"peak over the start, each of {runs:,}",
            unit="kB RSS",
            **{side: mb * 1024 / runs for side, mb in peak.items()},
        ),
        # As many as there are runs, if no pool holds them back.
        Row(
            name=f"requests at once, of {runs:,} runs",
            **{side: float(count.at_once) for side, count in counts.items()},
        ),
    ]


def _floor(url: str, runs: int) -> Work:
    floor = floor_at(url)
    return lambda: _at_once(runs, lambda: floor.run("Go.", Watcher().on_text))


def _windlass(url: str, runs: int) -> Work:
    agent = agent_at(url)
    return lambda: _at_once(runs, lambda: agent.run("Go.", on_event=Watcher().on_event))


SIDES: dict[str, Callable[[str, int], Work]] = {"floor": _floor, "windlass": _windlass}


async def _at_once(runs: int, run: Callable[[], Awaitable[object]]) -> list[object]:
    return await asyncio.gather(*(run() for _ in range(runs)))


def print_peak(side: str, url: str, runs: int) -> None:
    """In a process of its own, since a peak is never forgotten; the first runs warm it up."""

    async def play() -> float:
        await SIDES[side](url, WARM_UP)()
        work, before = SIDES[side](url, runs), peak_mb()
        await work()
        return peak_mb() - before

    print(json.dumps(asyncio.run(play())))
