"""Plays a plan: process after process works on one session until nothing is left to do."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from windlass.agent.agent import Agent
from windlass.core.errors import RunFailed
from windlass.core.events import Event, Fact
from windlass.core.fold import fold
from windlass.core.report import questions
from windlass.core.result import Question, RunResult
from windlass.core.setup import Limits, Rules
from windlass.core.verdicts import Allow, Deny
from windlass.journals.memory import MemoryJournal
from windlass.ports import Timeouts
from windlass.testing.clock import VirtualClock
from windlass.testing.faults import PowerCut
from windlass.testing.simulate.plan import Plan
from windlass.testing.simulate.world import (
    Outside,
    Power,
    SimGate,
    SimJournal,
    SimModel,
    SimTools,
)

SESSION = "sim"
PROCESSES_MAX = 60
LINGER_S = 4.0
"""How long a process lives on after its run."""


@dataclass(slots=True)
class Drive:
    """One drive of a run in one process: what a watcher saw, and how it ended."""

    events: list[Event] = field(default_factory=list[Event])
    result: RunResult[Any] | None = None
    cancelled_at: float | None = None
    ended_at: float = 0.0
    powered: bool = True


@dataclass(slots=True)
class Played:
    """A session that was played to its end."""

    plan: Plan
    outside: Outside
    store: MemoryJournal
    drives: list[Drive]
    facts: list[Fact] = field(default_factory=list[Fact])


def play(plan: Plan) -> Played:
    """Play a plan on virtual time."""
    clock = VirtualClock(seed=plan.seed)
    return clock.run(lambda clock: _session(plan, clock), tasks_left="cancel")


async def _session(plan: Plan, clock: VirtualClock) -> Played:
    played = Played(plan, Outside(plan), MemoryJournal(), [])
    cuts = list(plan.crashes)
    for number in range(1, plan.runs + 1):
        for _ in range(PROCESSES_MAX):
            power = Power(cuts.pop(0) if cuts else None)
            played.drives.append(await _process(played, power, clock, f"Prompt {number}", number))
            played.facts = list(await played.store.read(SESSION))
            run = fold(SESSION, played.facts).run
            if run is not None and run.number == number and run.outcome is not None:
                break
        else:
            raise AssertionError(f"run {number} did not end in {PROCESSES_MAX} processes")
    return played


async def _process(
    played: Played, power: Power, clock: VirtualClock, prompt: str, number: int
) -> Drive:
    """One process's life: it starts a run, or does the next thing for the one that it finds."""
    drive, plan = Drive(), played.plan
    agent = _agent(played, power, clock)
    task = asyncio.create_task(_work(agent, drive, played, prompt, number))

    def cancel() -> None:
        told = task.cancel() if plan.outer_cancel else agent.cancel(SESSION)
        drive.cancelled_at = clock.elapsed_s if told else None

    if not played.drives and plan.cancel_after_s is not None:
        asyncio.get_running_loop().call_later(plan.cancel_after_s, cancel)
    with suppress(asyncio.CancelledError, PowerCut):
        await task
    drive.ended_at, drive.powered = clock.elapsed_s, power.on
    await asyncio.sleep(LINGER_S)  # A tool that was given up may still come to its end.
    power.on = False
    return drive


async def _work(agent: Agent[str], drive: Drive, played: Played, prompt: str, number: int) -> None:
    watch = drive.events.append if played.plan.watched else None
    state = fold(SESSION, played.facts)
    waiting = questions(state) if state.active else ()
    try:
        if state.run is None or state.run.number < number:
            drive.result = await agent.run(prompt, session=SESSION, on_event=watch)
        elif waiting:
            verdict = _answer(played.outside, waiting[0])
            call_id = waiting[0].call.id
            drive.result = await agent.answer(SESSION, call_id, verdict, on_event=watch)
        else:
            drive.result = await agent.resume(SESSION, on_event=watch)
    except RunFailed as failed:
        drive.result = failed.result


def _answer(outside: Outside, question: Question) -> Allow | Deny:
    if question.question.endswith("Run it again?"):
        key = f"{SESSION}/{question.call.id}"
        done = any(key == known for known, _, _ in outside.effects)
        return Deny("it was done, I looked") if done else Allow("it was not done, I looked")
    planned = outside.call_plan(int(str(question.arguments["number"])) % 1000)
    return Allow("a person") if planned.answer else Deny("a person said no")


def _agent(played: Played, power: Power, clock: VirtualClock) -> Agent[str]:
    plan, outside = played.plan, played.outside
    return Agent(
        SimModel(outside, power),
        instructions="You are simulated.",
        tools=SimTools(outside, power),
        gate=SimGate(outside),
        limits=Limits(steps=plan.steps_max, usd=plan.usd_max, seconds=plan.seconds_max),
        journal=SimJournal(played.store, power, plan.journal_wait_s),
        rules=Rules(on_partial=plan.on_partial, on_limit=plan.on_limit, on_unknown=plan.on_unknown),
        timeouts=Timeouts(first_byte_s=20.0, idle_s=10.0),
        clock=clock,
    )
