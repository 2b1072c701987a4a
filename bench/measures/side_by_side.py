"""Many calls of one reply, each of which waits: how long the whole step takes."""

import asyncio
from functools import partial

from meter import BenchRow, Work, race_contestants

from windlass import Agent, Limits, Toolbox, tool
from windlass.testing import ScriptedModel, call

AIM_MS = 70.0
"""For 32 calls of 50 ms."""
CALL_MS = 50


async def wait_a_moment(at: int) -> str:
    """Wait for a slow service.

    Args:
        at: the number of the call.
    """
    await asyncio.sleep(CALL_MS / 1000)
    return f"item {at}"


def measure(calls: int, rounds: int) -> list[BenchRow]:
    """Measure a run with `calls` reads in one reply. The floor only gathers the same calls."""
    sides = {"floor": partial(_floor_work, calls), "windlass": partial(_windlass_work, calls)}
    times = race_contestants(sides, rounds)
    name = f"{calls} calls of {CALL_MS} ms in one reply"
    wall = {side: time.wall_s * 1e3 for side, time in times.items()}
    cpu = {side: time.cpu_s / calls * 1e6 for side, time in times.items()}
    return [
        BenchRow(name=f"{name}, in ms", unit="", aim=AIM_MS, **wall),
        BenchRow(name=f"{name}, each", unit="µs CPU", **cpu),
    ]


def _floor_work(calls: int) -> Work:
    return lambda: asyncio.gather(*map(wait_a_moment, range(calls)))


def _windlass_work(calls: int) -> Work:
    replies = [[call("wait_a_moment", {"at": at}) for at in range(calls)], "That is all."]
    tools = Toolbox([tool(wait_a_moment, effect="read")])
    agent = Agent(ScriptedModel(replies), tools=tools, limits=Limits(steps=None))
    return lambda: agent.run("Go.")
