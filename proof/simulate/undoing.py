"""After the last run, runs are undone, because it did not complete or because a person wants it.

The processes that do it may die.
"""

from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Literal

from proof.simulate.agents import build_agent
from proof.simulate.outside import OutsideWorld, ProcessPower
from proof.simulate.people import reply_to_question
from proof.simulate.plan import SessionPlan
from windlass.agent.agent import Agent
from windlass.agent.answering import list_undecided
from windlass.core.errors import NothingToDo
from windlass.core.events import Fact, RunStarted, UndoPlanned
from windlass.core.fold.run import fold
from windlass.core.result import RunFailed
from windlass.testing.clock import VirtualClock
from windlass.testing.faults import PowerCut

UNDONE_SHARE = 0.5
"""How many of the sessions are undone."""
PROCESSES_MAX = 12
DEATHS_MAX = 4


async def undo_session(plan: SessionPlan, outside: OutsideWorld, clock: VirtualClock) -> None:
    """Undo all runs of a session, if its plan is to be undone."""
    random = Random(f"{plan.seed} undo of {plan.session}")
    if random.random() > UNDONE_SHARE:
        return
    for process in range(PROCESSES_MAX):
        try:
            await _run_process(outside, clock, _draw_crash(random, process))
        except NothingToDo:
            break
        except RunFailed:
            if process >= DEATHS_MAX:
                break  # What is left is denied each time.
    if fold(plan.session, await outside.store.read(plan.session)).is_active:
        raise AssertionError(f"undoing did not end in {PROCESSES_MAX} processes")


async def finish_due_undo(plan: SessionPlan, outside: OutsideWorld, clock: VirtualClock) -> None:
    """Go on with undoing a run that did not complete, if the process of the run died before."""
    random = Random(f"{plan.seed} due undo of {plan.session}")
    for process in range(PROCESSES_MAX):
        run = fold(plan.session, await outside.store.read(plan.session)).run
        if run is None or (run.outcome is not None and not run.undo_due):
            return
        with suppress(RunFailed):
            await _run_process(outside, clock, _draw_crash(random, process))
    raise AssertionError(f"the run was not undone in {PROCESSES_MAX} processes")


def split_undo_facts(facts: Sequence[Fact]) -> tuple[list[Fact], list[Fact]]:
    """Return the facts of a session before the first run that undoes another, and the rest."""
    starts = [at for at, fact in enumerate(facts) if isinstance(fact, RunStarted)]
    cut = next((at for at in starts if _undoes(facts, at)), len(facts))
    return list(facts[:cut]), list(facts[cut:])


def _undoes(facts: Sequence[Fact], start: int) -> bool:
    return any(isinstance(fact, UndoPlanned) for fact in facts[start + 1 : start + 2])


def _draw_crash(random: Random, process: int) -> tuple[int, Literal["before", "after"]] | None:
    if process >= DEATHS_MAX:
        return None
    return random.randint(1, 9), random.choice(("before", "after"))


async def _run_process(
    outside: OutsideWorld,
    clock: VirtualClock,
    crash: tuple[int, Literal["before", "after"]] | None,
) -> None:
    power = ProcessPower(crash, has_run=False)
    agent = build_agent(outside, power, clock)
    try:
        with suppress(PowerCut):
            await _undo_further(agent, outside)
    finally:
        power.turn_off()


async def _undo_further(agent: Agent[str], outside: OutsideWorld) -> None:
    """Do the next thing: answer a question, go on with the run that undoes, or begin one."""
    session = outside.plan.session
    state = fold(session, await outside.store.read(session))
    if state.run is not None and state.run.undo_due:
        await agent.resume(session)
    elif not state.is_active:
        await agent.undo(session)
    # An answer may have been accepted before its process died: then it is not given again.
    elif waiting := await list_undecided(outside.store, state):
        question = waiting[0]
        reply = reply_to_question(outside, question)
        asker = question.session
        await agent.answer(asker, question.call_id, reply, digest=question.digest)
    else:
        await agent.resume(session)
