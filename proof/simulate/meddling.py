"""What others do to a session while a process drives it, and between two processes."""

import asyncio

from proof.simulate.agents import agent_of
from proof.simulate.outside import Intruder, Outside, Power
from proof.simulate.plan import Intrusion
from windlass.agent.agent import Agent
from windlass.core.errors import NothingToDo, SessionBusy, WindlassError
from windlass.testing.clock import VirtualClock
from windlass.testing.faults import PowerCut


def meddle(
    outside: Outside, power: Power, clock: VirtualClock, agent: Agent[str], process: int
) -> list[asyncio.Task[None]]:
    """Start all that is planned to happen beside a process."""
    more = outside.plan.more
    said = [after_s for at, after_s in more.steers if at == process]
    tasks = [
        asyncio.create_task(_steer(outside, agent, f"Steer {process}.{nth}", after_s))
        for nth, after_s in enumerate(said)
    ]
    for at, after_s, kind in more.intrusions:
        if at == process:
            tasks.append(asyncio.create_task(_intrude(outside, power, clock, after_s, kind)))
    return tasks


async def steer_between(outside: Outside, clock: VirtualClock, text: str) -> None:
    """Say something to a run that nobody drives."""
    await _steer(outside, agent_of(outside, Power(), clock), text, 0.0)


async def _steer(outside: Outside, agent: Agent[str], text: str, after_s: float) -> None:
    await asyncio.sleep(after_s)
    try:
        await agent.steer(outside.plan.session, text)
    except (WindlassError, PowerCut):
        return
    outside.steered.append(text)


async def _intrude(
    outside: Outside, first: Power, clock: VirtualClock, after_s: float, kind: Intrusion
) -> None:
    await asyncio.sleep(after_s)
    session = outside.plan.session
    agent = agent_of(outside, Power(), clock, Intruder(outside, first))
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
        if isinstance(error, NothingToDo) and first.drives:
            outside.noticed.append(f"a second process was told {error!r}")
        return
    outside.noticed.append(f"a second process could {kind} the session")
