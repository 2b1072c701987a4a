"""What the projection of an event costs, beside the fold of the same facts.

The floor of the first two rows is the fold of a fact. That of the last row is an event of a short
session; `windlass` is one of a session that is several times as long: a projection that copied the
conversation would cost more with every step.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from meter import BenchRow, RunTimes, Work, race_contestants
from msgspec.structs import replace
from world import make_agent, script_steps

from windlass.core.events import AttemptStarted, Event, Fact, TextDelta
from windlass.core.fold.run import fold
from windlass.core.projection.project import project_events
from windlass.testing import ScriptedModel

AIM = 1.0
GROWTH_AIM = 1.2
TIMES = 4
SESSION = "measured"


def measure(steps: int, pieces: int, rounds: int) -> list[BenchRow]:
    """Measure sessions of steps with one call each; `pieces` deltas stream before each of them."""
    facts = _record_facts(steps)
    events = _add_deltas(facts, pieces)
    long = _add_deltas(_record_facts(steps * TIMES), pieces)
    sides = {
        "folded": partial(_fold_work, facts),
        "facts": partial(_project_work, facts),
        "events": partial(_project_work, events),
        "long": partial(_project_work, long),
    }
    times = race_contestants(sides, rounds)
    folded = _cost_each(times["folded"], facts)
    per_event = _cost_each(times["events"], events)
    return [
        _make_row("fact projected, to one folded", folded, _cost_each(times["facts"], facts)),
        _make_row("event projected, with deltas", folded, per_event),
        BenchRow(
            name=f"event projected, of {steps * TIMES:,} steps to {steps:,}",
            unit="µs CPU",
            floor=per_event,
            windlass=_cost_each(times["long"], long),
            aim=GROWTH_AIM,
        ),
    ]


def _make_row(name: str, floor: float, cost: float) -> BenchRow:
    return BenchRow(name=name, unit="µs CPU", floor=floor, windlass=cost, aim=AIM)


def _cost_each(times: RunTimes, events: Sequence[Event]) -> float:
    return times.cpu_s / len(events) * 1e6


def _record_facts(steps: int) -> list[Fact]:
    agent = make_agent(ScriptedModel(script_steps(steps)))

    async def run() -> list[Event]:
        events: list[Event] = []
        await agent.run("Go.", session=SESSION, on_event=events.append)
        return events

    return [event for event in asyncio.run(run()) if isinstance(event, Fact)]


def _add_deltas(facts: Sequence[Fact], pieces: int) -> list[Event]:
    events: list[Event] = []
    for fact in facts:
        events.append(fact)
        if isinstance(fact, AttemptStarted):
            text = TextDelta("a few words ", seq=fact.seq)
            events += (replace(text, nth=nth) for nth in range(1, pieces + 1))
    return events


def _fold_work(facts: Sequence[Fact]) -> Work:
    async def work() -> None:
        fold(SESSION, facts)

    return work


def _project_work(events: Sequence[Event]) -> Work:
    async def work() -> None:
        project_events(events, SESSION)

    return work
