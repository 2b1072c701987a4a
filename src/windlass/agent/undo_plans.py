"""What sub-agents did and can be undone, read from their sessions.

The law: what a sub-agent did is undone with the run that it worked for, when the turn of its call
comes. Its session says what that was, and the setup on its record which tools can undo it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from windlass.agent.child_sessions import read_own_session
from windlass.core.decide.undoing import UndoPlan, list_outcomes, list_undo_plans, plan_undo
from windlass.core.errors import NothingToDo, RunUnfinished
from windlass.core.events import Fact, RunStarted
from windlass.core.fold.run import fold
from windlass.core.messages import ToolSpec
from windlass.core.state import State
from windlass.ports import Journal

TASK_RUN = 1
"""The run of a sub-agent's session that did the task of its call."""


async def plan_nested_undo(
    journal: Journal, state: State, tools: Sequence[ToolSpec]
) -> Mapping[str, UndoPlan]:
    """Return what sub-agents did for the calls of a session and is not undone, by call."""
    undoable = {spec.name for spec in tools if spec.undo}
    plans: dict[str, UndoPlan] = {}
    for item in list_outcomes(state):
        if item.call.name not in undoable:
            continue
        task = msgspec.json.decode(item.call.arguments, type=dict[str, Any]).get("task")
        if not isinstance(task, str):
            continue
        name, facts = await read_own_session(journal, f"{state.session}/{item.call.id}", task)
        if not facts:
            continue
        child = fold(name, facts)
        own_tools = _first_tools(facts)
        nested = await plan_nested_undo(journal, child, own_tools)
        every_run = list_undo_plans(child, facts, own_tools, nested)
        plans[item.call.id] = next(plan for plan in every_run if plan.run == TASK_RUN)
    return plans


async def plan_task_undo(
    journal: Journal, state: State, facts: Sequence[Fact], tools: Sequence[ToolSpec]
) -> UndoPlan:
    """Return what is to be undone in the session of a sub-agent.

    Raises NothingToDo if that is nothing, and RunUnfinished if its run has not ended.
    """
    if not facts:
        raise NothingToDo("the agent did nothing")
    if state.is_active:
        raise RunUnfinished(f"the run of session {state.session} has not ended")
    nested = await plan_nested_undo(journal, state, tools)
    return plan_undo(state, facts, tools, TASK_RUN, nested)


def _first_tools(facts: Sequence[Fact]) -> Sequence[ToolSpec]:
    """Return the tools that a session began with: the setup of a run that undoes has others."""
    first = facts[0]
    setup = first.setup if isinstance(first, RunStarted) else None
    return setup.tools if setup is not None else ()
