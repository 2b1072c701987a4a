"""After the last run, a person undoes one run after another, in processes that may die."""

from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Literal

from proof.simulate.agents import build_agent
from proof.simulate.outside import OutsideWorld, ProcessPower
from proof.simulate.people import reply_to_question
from proof.simulate.plan import SessionPlan
from windlass.agent.agent import Agent
from windlass.core.errors import NothingToDo, RunFailed
from windlass.core.events import Fact
from windlass.core.fold.run import fold
from windlass.core.result import open_questions
from windlass.testing.clock import VirtualClock
from windlass.testing.faults import PowerCut

UNDONE_SHARE = 0.5
"""How many of the sessions are undone."""
PROCESSES_MAX = 12
DEATHS_MAX = 4


async def undo_session(
    plan: SessionPlan, outside: OutsideWorld, clock: VirtualClock
) -> Sequence[Fact]:
    """Undo all runs of a session, if its plan is to be undone, and return the facts of that."""
    random = Random(f"{plan.seed} undo of {plan.session}")
    if random.random() > UNDONE_SHARE:
        return ()
    before = len(await outside.store.read(plan.session))
    for process in range(PROCESSES_MAX):
        crash: tuple[int, Literal["before", "after"]] | None = None
        if process < DEATHS_MAX:
            crash = (random.randint(1, 9), random.choice(("before", "after")))
        power = ProcessPower(crash, has_run=False)
        agent = build_agent(outside, power, clock)
        try:
            with suppress(PowerCut):
                await _undo_further(agent, outside)
        except NothingToDo:
            break
        except RunFailed:
            if process >= DEATHS_MAX:
                break  # What is left is denied each time.
        finally:
            power.turn_off()
    return await outside.store.read(plan.session, before)


async def _undo_further(agent: Agent[str], outside: OutsideWorld) -> None:
    """Do the next thing: answer a question, go on with the run that undoes, or begin one."""
    session = outside.plan.session
    state = fold(session, await outside.store.read(session))
    if not state.is_active:
        await agent.undo(session)
    elif waiting := open_questions(state):
        question = waiting[0]
        reply = reply_to_question(outside, question)
        await agent.answer(session, question.call.id, reply, digest=question.digest)
    else:
        await agent.resume(session)
