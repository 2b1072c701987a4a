"""Agents that work for agents.

The law: a call of a sub-agent is a session of its own, named after the call, in the same journal.
If the call is run again after a crash, it finds what was done, goes on from there, and pays for
nothing twice. A sub-agent is restricted by its caller's gate beside its own, spends its share of
what its caller has left, and is stopped with it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace as with_fields
from functools import partial
from typing import Any, Protocol, cast

from msgspec.structs import replace

from windlass.agent.build import AgentParts, unpriced_models
from windlass.agent.call_previews import FIRST_AGENT, preview_call
from windlass.agent.child_sessions import limit_spending
from windlass.agent.subagent_job import SubagentJob
from windlass.agent.subagent_world import restrict_world
from windlass.core.errors import ConfigError, ForOperator, NothingToDo
from windlass.core.limits import Amount
from windlass.core.messages import Label, ToolResult
from windlass.core.result import RunResult
from windlass.core.setup import Setup, digest
from windlass.core.state import State
from windlass.ports import CallerRun, World
from windlass.tools.function import Tool
from windlass.tools.run_context import RunContext

DEPTH_MAX = 3
"""How deep agents may be nested."""

RECALL_LABELS: tuple[Label, ...] = ("untrusted", "private")
"""What an agent with knowledge may have read, unless its knowledge says otherwise."""

_TASK_SCHEMA = {
    "type": "string",
    "minLength": 1,
    "description": "The whole task. The agent knows nothing else about this conversation.",
}

TaskFunction = Callable[..., Any]
BindRun = Callable[[CallerRun | None], TaskFunction]
"""Makes the function of a tool for one run; None outside of a run, as in a unit test."""


class DelegableAgent(Protocol):
    """An agent that can work for another."""

    @property
    def parts(self) -> AgentParts: ...


def make_agent_tool(
    parts: AgentParts, name: str, description: str, depth_max: int = DEPTH_MAX
) -> Tool[..., Any]:
    """Return a tool that gives a task to an agent. Its result is the agent's final reply."""

    def bind_run(run: CallerRun | None) -> TaskFunction:
        async def work_on_task(context: RunContext[Any], task: str) -> ToolResult:
            return await _work_on_task(run, parts, name, context, task, depth_max)

        return work_on_task

    described = f"Give a task to an agent that works on it alone. {_first_line(parts)}"
    schema = _object_schema({"task": _TASK_SCHEMA})
    return _make_tool(name, description or described, schema, bind_run, {name: parts})


def delegate(
    agents: Mapping[str, DelegableAgent], *, name: str = "delegate", depth_max: int = DEPTH_MAX
) -> Tool[..., Any]:
    """Return one tool for several agents, which the model chooses by name.

    `depth_max` limits how deep agents may be nested. Raises ConfigError if there are no agents.
    """
    if not agents:
        raise ConfigError("delegate({}): give at least one agent")
    team = {agent_name: agent.parts for agent_name, agent in agents.items()}

    def bind_run(run: CallerRun | None) -> TaskFunction:
        async def work_on_task(context: RunContext[Any], agent: str, task: str) -> ToolResult:
            return await _work_on_task(run, team[agent], agent, context, task, depth_max)

        return work_on_task

    agent_schema = {
        "type": "string",
        "enum": list(team),
        "description": "The agent that is to do it.",
    }
    lines = "\n".join(f"- {one}: {_first_line(parts)}" for one, parts in team.items())
    description = (
        f"Give a task to another agent, which works on it alone and answers once.\n{lines}"
    )
    schema = _object_schema({"agent": agent_schema, "task": _TASK_SCHEMA})
    return _make_tool(name, description, schema, bind_run, team)


def _object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": list(properties)}


def _first_line(parts: AgentParts) -> str:
    return (parts.setup.instructions.strip() or "an agent").splitlines()[0][:200]


def _make_tool(
    name: str,
    description: str,
    schema: dict[str, Any],
    bind_run: BindRun,
    team: Mapping[str, AgentParts],
) -> Tool[..., Any]:
    labels = {label for parts in team.values() for label in _possible_labels(parts)}
    from_schema = cast("Callable[..., Tool[..., Any]]", Tool.from_schema)
    tool = from_schema(
        name,
        description,
        schema,
        bind_run(None),
        effect="idempotent",
        timeout=None,
        retries=0,
        # Different tasks may run side by side; the same task twice, one after the other.
        resource=partial(_task_resource, name),
        untrusted="untrusted" in labels,
        private="private" in labels,
        external="external" in labels,
    )
    # The version is part of the setup, so that a resume with other sub-agents is noticed.
    version = digest([parts.setup for parts in team.values()])
    spec = replace(tool.spec, version=version, isolated=True)
    tool = with_fields(tool, spec=spec, bind_run=bind_run)
    if any(spec.undo for parts in team.values() for spec in parts.setup.tools):
        # The same function: a call that undoes another finds that in its context.
        tool = with_fields(tool, undo=tool, spec=replace(tool.spec, undo=tool.spec.effect))
    return with_fields(
        tool,
        team={one: partial(preview_call, parts) for one, parts in team.items()},
    )


def _possible_labels(parts: AgentParts) -> Iterator[Label]:
    """Yield what the agent's tools and knowledge may bring into a session."""
    for spec in parts.setup.tools:
        yield from spec.labels
    if parts.world.recall is not None:
        yield from getattr(parts.world.recall, "labels", RECALL_LABELS)


def _task_resource(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name}:{digest(dict(arguments))}"


async def _work_on_task(
    run: CallerRun | None,
    parts: AgentParts,
    name: str,
    context: RunContext[Any],
    task: str,
    depth_max: int,
) -> ToolResult:
    call = context.call
    if run is None or call is None:
        return ToolResult.from_text("error", f"{name} can only work within a run")
    lineage = (*run.world.lineage, run.world.agent or FIRST_AGENT)
    if len(lineage) > depth_max or name in lineage:
        chain = " > ".join((*lineage, name))
        message = f"Sub-agents are nested too deeply, or call themselves: {chain}"
        return ToolResult.from_text("error", message)
    try:
        world = restrict_world(run.world, parts.world, name, lineage)
        setup = _subagent_setup(parts.setup, world, run.read_state(), call.remaining)
    except ConfigError as error:
        return ToolResult.from_text("error", f"{name} cannot work: {error}")
    # The sub-agent may come across the secrets of its caller.
    mask = parts.mask.combine_with(run.mask)
    own = replace(parts, world=world, setup=mask.mask_setup(setup), mask=mask)
    job = SubagentJob(own, run, call, context.call_id, parts.setup.limits)
    if call.undoes is not None:
        return await _undo_task(job, name, task, call.undoes.call_id)
    charges, result = await job.work(name, task)
    call.report_charges(charges)
    return _result_for_caller(name, result)


async def _undo_task(job: SubagentJob, name: str, task: str, undone_call: str) -> ToolResult:
    try:
        result = await job.undo(name, task, undone_call)
    except NothingToDo:
        return ToolResult.from_text("value", f"Nothing that {name} did is left to undo.")
    except ForOperator as error:
        return ToolResult.from_text("error", f"What {name} did is not undone: {error}")
    return _result_for_caller(name, result)


def _subagent_setup(own: Setup, world: World, caller: State, remaining: Amount) -> Setup:
    """Return the setup of a sub-agent, within the limits and budgets of its caller."""
    gate = world.gate
    judges_replies = gate is not None and gate.judges_replies
    caller_budgets = caller.setup.budgets if caller.setup else ()
    # If two budgets have the same name, the caller's counts.
    budgets = {budget.name: budget for budget in (*own.budgets, *caller_budgets)}
    money_is_limited = remaining.usd is not None or any(
        budget.usd is not None for budget in budgets.values()
    )
    unpriced = unpriced_models(own)
    if money_is_limited and unpriced:
        raise ConfigError(f"the price of {unpriced[0]} is not known, and money is limited")
    return replace(
        own,
        gate=gate.name if gate else "",
        judge_replies=own.judge_replies or judges_replies,
        withhold_replies=judges_replies,
        limits=limit_spending(own.limits, remaining),
        budgets=tuple(budgets.values()),
        # Its text is not the answer to the user, so a broken attempt is started again. Whether its
        # work is undone is for the run to say that it works for.
        rules=replace(own.rules, on_partial="restart", on_failure="keep"),
    )


def _result_for_caller(name: str, result: RunResult[Any]) -> ToolResult:
    if result.completed:
        return ToolResult.from_text("value", result.text)
    partial_text = result.text or result.partial_text
    message = f"{name} ended as {result.outcome}: {result.reason}."
    if partial_text:
        message += f" Its text so far: {partial_text}"
    return ToolResult.from_text("error", message)
