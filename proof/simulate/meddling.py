"""What people and other processes do to a session while a process drives it, and in between."""

import asyncio

from proof.simulate.agents import build_agent
from proof.simulate.outside import IntruderJournal, OutsideWorld, ProcessPower
from proof.simulate.plan import IntrusionKind
from windlass.agent.agent import Agent
from windlass.core.errors import NothingToDo, SessionBusy, WindlassError
from windlass.testing.clock import VirtualClock
from windlass.testing.faults import PowerCut


def start_meddlers(
    outside: OutsideWorld, power: ProcessPower, clock: VirtualClock, agent: Agent[str], process: int
) -> list[asyncio.Task[None]]:
    """Start the tasks that are planned to run beside a process."""
    more = outside.plan.more
    delays = [after_s for at, after_s in more.steers if at == process]
    tasks = [
        asyncio.create_task(_steer_session(outside, agent, f"Steer {process}.{nth}", after_s))
        for nth, after_s in enumerate(delays)
    ]
    for at, after_s, kind in more.intrusions:
        if at == process:
            tasks.append(asyncio.create_task(_try_intrusion(outside, power, clock, after_s, kind)))
    return tasks


async def steer_between(outside: OutsideWorld, clock: VirtualClock, text: str) -> None:
    """Steer a run while no process drives it."""
    await _steer_session(outside, build_agent(outside, ProcessPower(), clock), text, 0.0)


async def _steer_session(
    outside: OutsideWorld, agent: Agent[str], text: str, after_s: float
) -> None:
    await asyncio.sleep(after_s)
    try:
        await agent.steer(outside.plan.session, text)
    except (WindlassError, PowerCut):
        return
    outside.steered.append(text)


async def _try_intrusion(
    outside: OutsideWorld,
    first: ProcessPower,
    clock: VirtualClock,
    after_s: float,
    kind: IntrusionKind,
) -> None:
    await asyncio.sleep(after_s)
    session = outside.plan.session
    agent = build_agent(outside, ProcessPower(), clock, IntruderJournal(outside, first))
    try:
        match kind:
            case "resume":
                await agent.resume(session)
            case "run":
                await agent.run("Let me in", session=session)
            case "steer":
                await agent.steer(session, "Let me in")
            case "abandon":
                await agent.abandon(session)
    except (SessionBusy, NothingToDo) as error:
        outside.refused += 1
        if isinstance(error, NothingToDo) and first.has_written:
            outside.problems.append(f"a second process was told {error!r}")
        return
    outside.problems.append(f"a second process could {kind} the session")
