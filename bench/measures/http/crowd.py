"""Many runs at once over HTTP with a slow model: CPU time, wall time and memory of each."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from measures.crowd import as_in_serve, peak_mb
from meter import BenchRow, Work, race_contestants, run_in_child
from wire_server import WireCounts, WireServer, run_server
from world import TextWatcher, make_wire_agent, make_wire_floor

AIM = 7.0
KIB_AIM = 30.0
STEPS = 5
"""Replies of the model in each run: four with a call, and the answer."""
LATENCY_MS = 50
WARM_UP = 5
"""Runs before the memory is measured."""


def measure(sizes: Sequence[int], rounds: int) -> list[BenchRow]:
    with run_server() as server:
        return [row for runs in sizes for row in _measure_size(server, runs, rounds)]


def _measure_size(server: WireServer, runs: int, rounds: int) -> list[BenchRow]:
    url = server.calls_url(STEPS - 1, LATENCY_MS)
    times = race_contestants(
        {
            **{side: partial(make, url, runs) for side, make in SIDES.items()},
            "served": lambda: as_in_serve(_windlass_work(url, runs)),
        },
        rounds,
    )
    served = times.pop("served")
    code = "from measures.http.crowd import print_peak; print_peak({!r}, {!r}, {})"
    peak: dict[str, float] = {}
    counts: dict[str, WireCounts] = {}
    for side in SIDES:
        server.take_counts()
        peak[side] = run_in_child(code.format(side, url, runs))
        counts[side] = server.take_counts()
        requests = counts[side].requests
        expected = (WARM_UP + runs) * STEPS
        assert requests == expected, f"{side}: {requests} requests instead of {expected}"
    return [
        BenchRow(
            name=f"HTTP run, of {runs:,} at once, {STEPS} steps",
            unit="µs CPU",
            aim=AIM,
            **{side: time.cpu_s / runs * 1e6 for side, time in times.items()},
        ),
        BenchRow(
            name="the same, with the collector as in serve",
            unit="µs CPU",
            aim=AIM,
            floor=times["floor"].cpu_s / runs * 1e6,
            windlass=served.cpu_s / runs * 1e6,
        ),
        BenchRow(
            name=f"all {runs:,}, {LATENCY_MS} ms of latency a step, best",
            unit="ms wall",
            **{side: time.wall_s * 1e3 for side, time in times.items()},
        ),
        BenchRow(
            name=f"peak over the start, each of {runs:,}, in KiB",
            aim=KIB_AIM,
            **{side: mb * 1024 / runs for side, mb in peak.items()},
        ),
        # As many as there are runs, unless a connection pool holds them back.
        BenchRow(
            name=f"requests at once, of {runs:,} runs",
            **{side: float(count.at_once) for side, count in counts.items()},
        ),
    ]


def _floor_work(url: str, runs: int) -> Work:
    floor = make_wire_floor(url)
    return lambda: _run_all_at_once(runs, lambda: floor.run("Go.", TextWatcher().on_text))


def _windlass_work(url: str, runs: int) -> Work:
    agent = make_wire_agent(url)
    return lambda: _run_all_at_once(runs, lambda: agent.run("Go.", on_event=TextWatcher().on_event))


SIDES: dict[str, Callable[[str, int], Work]] = {"floor": _floor_work, "windlass": _windlass_work}


async def _run_all_at_once(runs: int, run: Callable[[], Awaitable[object]]) -> list[object]:
    return await asyncio.gather(*(run() for _ in range(runs)))


def print_peak(side: str, url: str, runs: int) -> None:
    """Print the peak memory of the work. It runs in its own process, because a peak never falls."""

    async def play() -> float:
        await SIDES[side](url, WARM_UP)()
        work = SIDES[side](url, runs)
        before = peak_mb()
        await work()
        return peak_mb() - before

    print(json.dumps(asyncio.run(play())))
