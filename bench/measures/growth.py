"""CPU per step of runs of several lengths, and how the total grows with the length."""

import asyncio
from collections.abc import Sequence
from functools import partial
from math import log
from statistics import linear_regression

from meter import Row, Times, Work, race
from world import Watcher, agent_of, drain, floor_of, steps

from windlass.testing import ScriptedModel

AIM = 3.0
EXPONENT_AIM = 1.1


def measure(lengths: Sequence[int], rounds: int) -> list[Row]:
    """Each step is one reply with one call; the watcher is there, and has little to see."""
    taken = {length: _race(length, rounds) for length in lengths}
    rows = [_row(length, times) for length, times in taken.items()]
    totals = {
        side: [taken[length][side].cpu_s for length in lengths] for side in ("floor", "windlass")
    }
    return [
        *rows,
        Row(
            name=f"exponent of the total, {lengths[0]} to {lengths[-1]} steps",
            floor=exponent(lengths, totals["floor"]),
            windlass=exponent(lengths, totals["windlass"]),
            aim=EXPONENT_AIM,
        ),
        # The cost of a run without steps hides growth in short runs.
        Row(
            name=f"the same, {lengths[-2]} to {lengths[-1]} steps",
            floor=exponent(lengths[-2:], totals["floor"][-2:]),
            windlass=exponent(lengths[-2:], totals["windlass"][-2:]),
            aim=EXPONENT_AIM,
        ),
    ]


def _race(length: int, rounds: int) -> dict[str, Times]:
    contestants = {"model": _model, "floor": _floor, "windlass": _windlass}
    # Short runs are repeated, so that the clock has something to measure.
    ready = {name: partial(make, length) for name, make in contestants.items()}
    return race(ready, max(rounds, rounds * 200 // length))


def _row(length: int, times: dict[str, Times]) -> Row:
    each = {side: time.cpu_s / length * 1e6 for side, time in times.items()}
    return Row(name=f"step, of {length:,}", unit="µs CPU", aim=AIM, **each)


def exponent(lengths: Sequence[int], totals: Sequence[float]) -> float:
    return linear_regression([log(n) for n in lengths], [log(total) for total in totals]).slope


def _model(length: int) -> Work:
    """The model is asked what a floor that is not timed has asked another one."""
    rehearsal, model = ScriptedModel(steps(length)), ScriptedModel(steps(length))
    asyncio.run(floor_of(rehearsal).run("Go.", Watcher().on_text))
    return lambda: drain(model, rehearsal.prompts)


def _floor(length: int) -> Work:
    floor = floor_of(ScriptedModel(steps(length)))
    return lambda: floor.run("Go.", Watcher().on_text)


def _windlass(length: int) -> Work:
    agent = agent_of(ScriptedModel(steps(length)))
    return lambda: agent.run("Go.", on_event=Watcher().on_event)
