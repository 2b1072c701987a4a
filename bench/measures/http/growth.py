"""CPU time of runs of several lengths over HTTP, how it grows, and how much is sent."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from measures.growth import growth_exponent
from meter import BenchRow, RunTimes, Work, race_contestants
from wire_server import WireServer, run_server
from world import TextWatcher, make_wire_agent, make_wire_floor

AIM = 5.0
EXPONENT_AIM = 1.2


def measure(lengths: Sequence[int], rounds: int) -> list[BenchRow]:
    """Measure runs in which each step is one reply with one call.

    The bytes that are sent grow with the square of the length on both sides.
    """
    sides = {"floor": _floor_work, "windlass": _windlass_work}
    with run_server() as server:
        taken = {
            length: _race_length(sides, server.calls_url(length), length, rounds)
            for length in lengths
        }
        sent = {side: _count_sent(server, make, lengths[-1]) for side, make in sides.items()}
    totals = {side: [taken[length][side].cpu_s for length in lengths] for side in sides}
    return [
        *(_make_row(length, times) for length, times in taken.items()),
        BenchRow(
            name=f"exponent of the total, {lengths[0]} to {lengths[-1]} HTTP steps",
            aim=EXPONENT_AIM,
            **{side: growth_exponent(lengths, total) for side, total in totals.items()},
        ),
        BenchRow(name=f"bodies sent in {lengths[-1]:,} HTTP steps", unit="kB", **sent),
    ]


def _race_length(
    sides: dict[str, Callable[[str], Work]], url: str, length: int, rounds: int
) -> dict[str, RunTimes]:
    # Short runs are repeated, so that the clock has something to measure.
    ready = {side: partial(make, url) for side, make in sides.items()}
    return race_contestants(ready, max(rounds, rounds * 200 // length))


def _make_row(length: int, times: dict[str, RunTimes]) -> BenchRow:
    each = {side: time.cpu_s / length * 1e6 for side, time in times.items()}
    return BenchRow(name=f"HTTP step, of {length:,}", unit="µs CPU", aim=AIM, **each)


def _count_sent(server: WireServer, make: Callable[[str], Work], length: int) -> float:
    work = make(server.calls_url(length))

    async def play() -> None:
        await work()

    server.take_counts()
    asyncio.run(play())
    counts = server.take_counts()
    assert counts.requests == length + 1, f"{counts.requests} requests for {length} calls"
    return counts.body_bytes / 1024


def _floor_work(url: str) -> Work:
    floor = make_wire_floor(url)
    return lambda: floor.run("Go.", TextWatcher().on_text)


def _windlass_work(url: str) -> Work:
    agent = make_wire_agent(url)
    return lambda: agent.run("Go.", on_event=TextWatcher().on_event)
