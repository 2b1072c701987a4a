"""CPU of runs of several lengths over HTTP, how it grows, and what is sent."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from measures.growth import exponent
from meter import Row, Times, Work, race
from wire_server import Server, serving
from world import Watcher, agent_at, floor_at

AIM = 5.0
EXPONENT_AIM = 1.2


def measure(lengths: Sequence[int], rounds: int) -> list[Row]:
    """Each step is one reply with one call. What is sent grows with the square on both sides."""
    sides = {"floor": _floor, "windlass": _windlass}
    with serving() as server:
        taken = {length: _race(sides, server.calls(length), length, rounds) for length in lengths}
        sent = {side: _sent(server, make, lengths[-1]) for side, make in sides.items()}
    totals = {side: [taken[length][side].cpu_s for length in lengths] for side in sides}
    return [
        *(_row(length, times) for length, times in taken.items()),
        Row(
            name=f"exponent of the total, {lengths[0]} to {lengths[-1]} HTTP steps",
            aim=EXPONENT_AIM,
            **{side: exponent(lengths, total) for side, total in totals.items()},
        ),
        Row(name=f"bodies sent in {lengths[-1]:,} HTTP steps", unit="kB", **sent),
    ]


def _race(
    sides: dict[str, Callable[[str], Work]], url: str, length: int, rounds: int
) -> dict[str, Times]:
    # Short runs are repeated, so that the clock has something to measure.
    ready = {side: partial(make, url) for side, make in sides.items()}
    return race(ready, max(rounds, rounds * 200 // length))


def _row(length: int, times: dict[str, Times]) -> Row:
    each = {side: time.cpu_s / length * 1e6 for side, time in times.items()}
    return Row(name=f"HTTP step, of {length:,}", unit="µs CPU", aim=AIM, **each)


def _sent(server: Server, make: Callable[[str], Work], length: int) -> float:
    work = make(server.calls(length))

    async def play() -> None:
        await work()

    server.counted()
    asyncio.run(play())
    counts = server.counted()
    assert counts.requests == length + 1, f"{counts.requests} requests for {length} calls"
    return counts.body_bytes / 1024


def _floor(url: str) -> Work:
    floor = floor_at(url)
    return lambda: floor.run("Go.", Watcher().on_text)


def _windlass(url: str) -> Work:
    agent = agent_at(url)
    return lambda: agent.run("Go.", on_event=Watcher().on_event)
