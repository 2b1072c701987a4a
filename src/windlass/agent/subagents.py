"""Agents that work for agents.

Invariant: a call of a sub-agent is its own session, named after the call, in the same journal.
If the call runs again after a crash, it finds what was done, resumes it, and pays for nothing
twice. A sub-agent may do nothing that its caller may not: the caller's gate judges beside its own,
and a question of either is for the caller's approver. It spends its share of what its caller has
left, and is stopped with it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace as with_fields
from functools import partial
from typing import Any, cast

from msgspec.structs import replace

from windlass.agent import lazy_imports
from windlass.agent.approvals import call_approver
from windlass.agent.call_previews import FIRST_AGENT, preview_call
from windlass.agent.child_driving import CallSession
from windlass.agent.child_sessions import find_own_session, limit_spending
from windlass.agent.openings import unpriced_models
from windlass.agent.options import AgentParts, BuiltAgent, parts_of
from windlass.core.errors import ConfigError, ForOperator, NothingToDo
from windlass.core.limits import Amount
from windlass.core.messages import Label, ToolResult
from windlass.core.question import Question
from windlass.core.result import RunResult
from windlass.core.setup import Setup, digest
from windlass.core.state import State
from windlass.core.verdicts import Allow, Ask, Deny, PersonAnswer, Verdict
from windlass.ports import Approver, CallerRun, Gate, GateRequest, World
from windlass.tools.function import Tool
from windlass.tools.run_context import RunContext

DEPTH_MAX = 3
"""How deep agents may be nested."""

CALLER_RULE = "caller: "
"""Begins the name of a rule of a caller's gate, where its question is not for the sub-agent."""

RECALL_LABELS: tuple[Label, ...] = ("untrusted", "private")
"""What an agent with knowledge may have read, unless its knowledge says otherwise."""

_TASK_SCHEMA = {
    "type": "string",
    "minLength": 1,
    "description": "The whole task. The agent knows nothing else about this conversation.",
}


def make_agent_tool(
    parts: AgentParts, name: str, description: str, depth_max: int = DEPTH_MAX
) -> Tool[..., Any]:
    """Return a tool that gives a task to an agent. Its result is the agent's final reply."""
    described = f"Give a task to an agent that works on it alone. {_first_line(parts)}"
    return _make_tool(
        name, description or described, {"task": _TASK_SCHEMA}, {name: parts}, depth_max
    )


def delegate(
    agents: Mapping[str, BuiltAgent], *, name: str = "delegate", depth_max: int = DEPTH_MAX
) -> Tool[..., Any]:
    """Return one tool for several agents, which the model chooses by name.

    `depth_max` limits how deep agents may be nested. Raises ConfigError if there are no agents.
    """
    if not agents:
        raise ConfigError("delegate({}): pass at least one agent")
    team = {agent_name: parts_of(agent) for agent_name, agent in agents.items()}
    agent_schema = {
        "type": "string",
        "enum": list(team),
        "description": "The agent that is to do it.",
    }
    lines = "\n".join(f"- {one}: {_first_line(parts)}" for one, parts in team.items())
    description = (
        f"Give a task to another agent, which works on it alone and answers once.\n{lines}"
    )
    return _make_tool(
        name, description, {"agent": agent_schema, "task": _TASK_SCHEMA}, team, depth_max
    )


def _first_line(parts: AgentParts) -> str:
    return (parts.setup.instructions.strip() or "an agent").splitlines()[0][:200]


def _make_tool(
    name: str,
    description: str,
    properties: Mapping[str, Any],
    team: Mapping[str, AgentParts],
    depth_max: int,
) -> Tool[..., Any]:
    bind_run = partial(_bind_run, team, depth_max)
    labels = {label for parts in team.values() for label in _possible_labels(parts)}
    from_schema = cast("Callable[..., Tool[..., Any]]", Tool.from_schema)
    tool = from_schema(
        name,
        description,
        {"type": "object", "properties": dict(properties), "required": list(properties)},
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


def _bind_run(
    team: Mapping[str, AgentParts], depth_max: int, run: CallerRun | None
) -> Callable[..., Any]:
    """Make the function of a tool for one run; None outside a run, as in a unit test."""
    only = next(iter(team))

    async def work_on_task(context: RunContext[Any], task: str, agent: str = only) -> ToolResult:
        return await _work_on_task(run, team[agent], agent, context, task, depth_max)

    return work_on_task


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
        world = _restrict_world(run.world, parts.world, name, lineage)
        setup = _restrict_setup(parts.setup, world, run.read_state(), call.remaining)
    except ConfigError as error:
        return ToolResult.from_text("error", f"{name} cannot work: {error}")
    # The sub-agent may come across the secrets of its caller.
    mask = parts.mask.combine_with(run.mask)
    own = replace(parts, world=world, setup=mask.mask_setup(setup), mask=mask)
    child = CallSession(name, own, run, call, context.call_id, own_limits=parts.setup.limits)
    if call.undoes is not None:
        return await _undo_task(child, name, task, call.undoes.call_id)
    # The journal holds the task with its secrets masked.
    state = await find_own_session(world.journal, child.parent_call, mask.mask_text(task))
    return _result_for_caller(name, await child.work(state, child.make_task(task)))


async def _undo_task(child: CallSession, name: str, task: str, undone_call: str) -> ToolResult:
    try:
        result = await child.undo(task, undone_call)
    except NothingToDo:
        return ToolResult.from_text("value", f"Nothing that {name} did is left to undo.")
    except ForOperator as error:
        return ToolResult.from_text("error", f"What {name} did is not undone: {error}")
    return _result_for_caller(name, result)


def _result_for_caller(name: str, result: RunResult[Any]) -> ToolResult:
    if result.completed:
        return ToolResult.from_text("value", result.text)
    partial_text = result.text or result.partial_text
    message = f"{name} ended as {result.outcome}: {result.reason}."
    if partial_text:
        message += f" Its text so far: {partial_text}"
    return ToolResult.from_text("error", message)


def _restrict_setup(own: Setup, world: World, caller: State, remaining: Amount) -> Setup:
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
        # Its text is not the answer to the user, so a broken attempt is started again. The run that
        # it works for decides whether its work is undone.
        rules=replace(own.rules, on_partial="restart", on_failure="keep"),
    )


def _restrict_world(caller: World, own: World, name: str, lineage: tuple[str, ...]) -> World:
    """Return the world of a sub-agent, which its caller knows by this name.

    It has its own models and tools; journal, blobs, clock, governor and folders are its caller's.
    """
    caller_gate = caller.gate
    if caller_gate is not None and caller.approver is None:
        caller_gate = QuestionsForCaller(caller_gate)
    gate = own.gate
    if caller_gate is not None or gate is not None:
        gate = lazy_imports.combine_with_parent(caller_gate, gate)
    return replace(
        own,
        gate=gate,
        approver=_ask_for(caller.approver or own.approver, (*lineage, name)),
        journal=caller.journal,
        blobs=caller.blobs,
        clock=caller.clock,
        governor=caller.governor,
        folders=caller.folders,
        agent=name,
        lineage=lineage,
    )


class QuestionsForCaller:
    """The gate of a caller without an approver: its questions must not be answered below it.

    They wait for a person, and the whole tree waits with them.
    """

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.name = gate.name

    @property
    def judges_replies(self) -> bool:
        return self.gate.judges_replies

    async def judge(self, request: GateRequest) -> Verdict:
        verdict = await self.gate.judge(request)
        if not isinstance(verdict, Ask) or CALLER_RULE in verdict.rule:
            return verdict
        # In the rule, which is on record: another process must know it as well.
        return replace(verdict, rule=f"{CALLER_RULE}{verdict.rule or self.name}")

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:
        return await self.gate.judge_reply(session, text)


def _ask_for(approver: Approver | None, agents: tuple[str, ...]) -> Approver | None:
    """Return an approver that says which sub-agent asks; None without an approver.

    It leaves the questions of a caller without an approver open: they wait for a person.
    """
    if approver is None:
        return None

    async def ask(question: Question) -> PersonAnswer | None:
        if CALLER_RULE in question.rule:
            return None
        text = f"{agents[-1]}: {question.question}"
        named_question = replace(question, question=text, chain=agents)
        return await call_approver(approver, named_question)

    return ask
