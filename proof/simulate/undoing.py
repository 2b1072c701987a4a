"""After the last run, a person undoes one run after another, in processes that may die."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Literal

from proof.simulate.agents import build_agent
from proof.simulate.outside import OutsideWorld, ProcessPower
from proof.simulate.plan import SessionPlan
from windlass.core.errors import NothingToDo, RunFailed
from windlass.core.events import Fact
from windlass.core.fold.run import fold
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
        state = fold(plan.session, await outside.store.read(plan.session))
        work = partial(agent.resume if state.is_active else agent.undo, plan.session)
        try:
            with suppress(PowerCut):
                await work()
        except NothingToDo:
            break
        except RunFailed:
            if process >= DEATHS_MAX:
                break  # What is left is denied each time.
        finally:
            power.turn_off()
    return await outside.store.read(plan.session, before)
