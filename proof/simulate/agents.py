"""Builds the agent of a simulated process as the plan says."""

import asyncio
from typing import Any

from proof.simulate.outside import OutsideWorld, ProcessPower, SimJournal
from proof.simulate.people import SimApprover, SimGate
from proof.simulate.plan import HELPER
from proof.simulate.sim_code import build_code_tool
from proof.simulate.sim_model import BatchingSimModel, HelperModel, SimModel
from proof.simulate.sim_tools import SimTools
from windlass.agent.agent import Agent
from windlass.core.events import KnowledgeRecalled
from windlass.core.limits import Budget, Limits, SessionLimits
from windlass.core.secrets.mask import Mask
from windlass.core.setup import Compaction, Hydration, LoopPolicy, Reference
from windlass.ports import Journal, Timeouts
from windlass.testing.clock import VirtualClock
from windlass.tools.function import Tool
from windlass.tools.toolbox import Toolbox

POOL = "shared"
TIMEOUTS = Timeouts(first_byte_s=20.0, idle_s=10.0)
LOOKUPS = Hydration(references=(Reference(r"look-(\d+)", "look", "number"),))
NO_KEY_MASK = Mask(key_like=False)


def build_agent(
    outside: OutsideWorld, power: ProcessPower, clock: VirtualClock, journal: Journal | None = None
) -> Agent[str]:
    """Build the agent of one process. An intruder passes its own journal."""
    plan = outside.plan
    more = plan.more
    model = BatchingSimModel if len(plan.replies) % 2 else SimModel
    others: list[Tool[..., Any]] = []
    if more.helped:
        others.append(_build_helper(outside, power, clock))
    if more.coded:
        others.append(build_code_tool(outside, power))
    return Agent(
        model(outside, power),
        instructions="You are simulated.",
        tools=SimTools(outside, power, Toolbox(others), searched=more.searched),
        gate=SimGate(outside, clock),
        approver=SimApprover(outside) if more.attended else None,
        limits=Limits(steps=plan.steps_max, usd=plan.usd_max, seconds=plan.seconds_max),
        session_limits=SessionLimits(steps=more.session_steps, usd=more.session_usd),
        budgets=() if more.budget_usd is None else (Budget(POOL, more.budget_usd),),
        compaction=Compaction(window=more.window, summary_tokens=60, cool_down=2),
        hydration=LOOKUPS if more.lookups else None,
        knowledge=None if more.knowledge == "none" else _PlannedKnowledge(outside),
        journal=journal or SimJournal(outside, power),
        rules=LoopPolicy(
            on_partial=plan.on_partial,
            on_limit=plan.on_limit,
            on_unknown=plan.on_unknown,
            on_failure=more.on_failure,
            tools_offered_max=1 if more.searched else None,
        ),
        timeouts=TIMEOUTS,
        secrets=None if more.masked else NO_KEY_MASK,
        clock=clock,
    )


def _build_helper(
    outside: OutsideWorld, power: ProcessPower, clock: VirtualClock
) -> Tool[..., Any]:
    helper = Agent(
        HelperModel(outside, power),
        name=HELPER,
        instructions="You help.",
        tools=SimTools(outside, power),
        limits=Limits(steps=4),
        timeouts=TIMEOUTS,
        secrets=NO_KEY_MASK,
        clock=clock,
    )
    return helper.as_tool()


class _PlannedKnowledge:
    """A knowledge store that finds something, finds nothing, or fails, as planned."""

    def __init__(self, outside: OutsideWorld) -> None:
        self._outside = outside

    async def __call__(self, text: str) -> KnowledgeRecalled:
        await asyncio.sleep(0.02)
        match self._outside.plan.more.knowledge:
            case "something" | "denied":
                return KnowledgeRecalled(f"Known about {text!r}: nothing bad.")
            case "fails":
                raise OSError("the knowledge store failed")
            case "nothing" | "none":
                return KnowledgeRecalled("")
