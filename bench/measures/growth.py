"""CPU time of a step in runs of several lengths, and how the total grows with the length."""

import asyncio
from collections.abc import Sequence
from functools import partial
from math import log
from statistics import linear_regression

from meter import BenchRow, RunTimes, Work, race_contestants
from world import TextWatcher, drain_model, make_agent, make_floor, script_steps

from windlass.testing import ScriptedModel

AIM = 3.0
EXPONENT_AIM = 1.1


def measure(lengths: Sequence[int], rounds: int) -> list[BenchRow]:
    """Measure runs in which each step is one reply with one call."""
    taken = {length: _race_length(length, rounds) for length in lengths}
    rows = [_make_row(length, times) for length, times in taken.items()]
    totals = {
        side: [taken[length][side].cpu_s for length in lengths] for side in ("floor", "windlass")
    }
    return [
        *rows,
        BenchRow(
            name=f"exponent of the total, {lengths[0]} to {lengths[-1]} steps",
            floor=growth_exponent(lengths, totals["floor"]),
            windlass=growth_exponent(lengths, totals["windlass"]),
            aim=EXPONENT_AIM,
        ),
        # The cost of a run without steps hides growth in short runs.
        BenchRow(
            name=f"the same, {lengths[-2]} to {lengths[-1]} steps",
            floor=growth_exponent(lengths[-2:], totals["floor"][-2:]),
            windlass=growth_exponent(lengths[-2:], totals["windlass"][-2:]),
            aim=EXPONENT_AIM,
        ),
    ]


def _race_length(length: int, rounds: int) -> dict[str, RunTimes]:
    contestants = {"model": _model_work, "floor": _floor_work, "windlass": _windlass_work}
    # Short runs are repeated, so that the clock has something to measure.
    ready = {name: partial(make, length) for name, make in contestants.items()}
    return race_contestants(ready, max(rounds, rounds * 200 // length))


def _make_row(length: int, times: dict[str, RunTimes]) -> BenchRow:
    each = {side: time.cpu_s / length * 1e6 for side, time in times.items()}
    return BenchRow(name=f"step, of {length:,}", unit="µs CPU", aim=AIM, **each)


def growth_exponent(lengths: Sequence[int], totals: Sequence[float]) -> float:
    return linear_regression([log(n) for n in lengths], [log(total) for total in totals]).slope


def _model_work(length: int) -> Work:
    """Return the work of the model alone: it gets the prompts of an untimed run of the floor."""
    rehearsal = ScriptedModel(script_steps(length))
    model = ScriptedModel(script_steps(length))
    asyncio.run(make_floor(rehearsal).run("Go.", TextWatcher().on_text))
    return lambda: drain_model(model, rehearsal.prompts)


def _floor_work(length: int) -> Work:
    floor = make_floor(ScriptedModel(script_steps(length)))
    return lambda: floor.run("Go.", TextWatcher().on_text)


def _windlass_work(length: int) -> Work:
    agent = make_agent(ScriptedModel(script_steps(length)))
    return lambda: agent.run("Go.", on_event=TextWatcher().on_event)
