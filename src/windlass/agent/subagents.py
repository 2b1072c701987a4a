"""Agents that work for agents.

The law: a call of a sub-agent is a session of its own, named by the call, in the same journal. So
whoever runs the call again after a crash finds what was done, goes on with it, and pays for nothing
twice. A sub-agent is held by its caller's gate beside its own, spends its part of what its caller
has left, and is stopped with it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace as with_fields
from functools import partial
from typing import Any, Protocol, cast, overload

from msgspec.structs import replace
from typing_extensions import override

from windlass.agent.build import AgentParts
from windlass.agent.driver import RunDriver
from windlass.agent.openings import RunTask
from windlass.agent.subagent_sessions import find_own_session
from windlass.agent.subagent_world import restrict_world
from windlass.core.errors import ConfigError
from windlass.core.events import Event, Fact, NestedEvent
from windlass.core.limits import Amount, Limits
from windlass.core.messages import Charge, Label, TextPart, ToolResult
from windlass.core.result import RunResult
from windlass.core.run_report import build_result
from windlass.core.setup import Setup, digest
from windlass.core.state import State
from windlass.ports import CallContext, Journal, World
from windlass.tools.function import Tool
from windlass.tools.run_context import RunContext

DEPTH_MAX = 3
"""How many agents may stand above one another."""

RECALL_LABELS: tuple[Label, ...] = ("untrusted", "private")
"""What an agent with knowledge may have come to hold."""


class DelegableAgent(Protocol):
    """An agent that can work for another."""

    @property
    def parts(self) -> AgentParts: ...


def make_agent_tool(
    parts: AgentParts, name: str, description: str, depth_max: int = DEPTH_MAX
) -> Tool[..., Any]:
    """A tool that gives a task to an agent, and gives back what it says in the end."""

    async def work_on_task(context: RunContext[Any], task: str) -> ToolResult:
        return await _work_on_task(parts, name, context, task, depth_max)

    schema = _object_schema({"task": _TASK_SCHEMA})
    return _make_tool(name, _tool_description(description, parts), schema, work_on_task, [parts])


def delegate(
    agents: Mapping[str, DelegableAgent], *, name: str = "delegate", depth_max: int = DEPTH_MAX
) -> Tool[..., Any]:
    """One tool for several agents, who are chosen by name."""
    if not agents:
        raise ConfigError("delegate({}): there is nobody to give a task to")
    agent_parts = {who: agent.parts for who, agent in agents.items()}

    async def work_on_task(context: RunContext[Any], agent: str, task: str) -> ToolResult:
        return await _work_on_task(agent_parts[agent], agent, context, task, depth_max)

    who = {"type": "string", "enum": list(agent_parts), "description": "Who is to do it."}
    lines = "\n".join(f"- {one}: {_first_line(parts)}" for one, parts in agent_parts.items())
    description = f"Give a task to another agent, who works on it alone and answers once.\n{lines}"
    return _make_tool(
        name,
        description,
        _object_schema({"agent": who, "task": _TASK_SCHEMA}),
        work_on_task,
        list(agent_parts.values()),
    )


_TASK_SCHEMA = {
    "type": "string",
    "minLength": 1,
    "description": "The whole task: the agent knows nothing else of this conversation.",
}


def _object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": list(properties)}


def _first_line(parts: AgentParts) -> str:
    return (parts.setup.instructions.strip() or "an agent").splitlines()[0][:200]


def _make_tool(
    name: str,
    description: str,
    schema: dict[str, Any],
    work_on_task: Callable[..., Any],
    team: Sequence[AgentParts],
) -> Tool[..., Any]:
    labels = {label for parts in team for label in _possible_labels(parts)}
    from_schema = cast("Callable[..., Tool[..., Any]]", Tool.from_schema)
    plain_tool = from_schema(
        name,
        description,
        schema,
        work_on_task,
        effect="idempotent",
        timeout=None,
        retries=0,
        # Two tasks may be worked on side by side; the same task twice, one after the other.
        resource=partial(_task_resource, name),
        untrusted="untrusted" in labels,
        private="private" in labels,
        external="external" in labels,
    )
    # Whoever resumes a run with other sub-agents is told.
    version = digest([parts.setup for parts in team])
    return with_fields(plain_tool, spec=replace(plain_tool.spec, version=version))


def _possible_labels(parts: AgentParts) -> Iterator[Label]:
    """What its tools and its knowledge may bring along. Knowledge that does not say may be all."""
    for spec in parts.setup.tools:
        yield from spec.labels
    if parts.world.recall is not None:
        yield from getattr(parts.world.recall, "labels", RECALL_LABELS)


def _tool_description(description: str, parts: AgentParts) -> str:
    return description or f"Give a task to an agent who works on it alone. {_first_line(parts)}"


def _task_resource(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name}:{digest(dict(arguments))}"


async def _work_on_task(
    parts: AgentParts, name: str, context: RunContext[Any], task: str, depth_max: int
) -> ToolResult:
    call = context.call
    if call is None or call.world is None:
        return ToolResult.from_text("error", f"{name} can only work within a run")
    above = (*call.world.lineage, call.world.agent or "the first agent")
    if len(above) > depth_max or name in above:
        chain = " > ".join((*above, name))
        return ToolResult.from_text(
            "error", f"No agent may stand so deep, or above itself: {chain}"
        )
    try:
        world = _subagent_world(parts, name, call.world, above)
        setup = _subagent_setup(parts.setup, world, call)
    except ConfigError as error:
        return ToolResult.from_text("error", f"{name} cannot work: {error}")
    # It may come upon what its caller must not let be seen.
    mask = parts.mask.combine_with(call.mask) if parts.mask else call.mask
    own = with_fields(
        parts, world=world, setup=mask.mask_setup(setup) if mask else setup, mask=mask
    )
    job = _SubagentJob(own, call, context.call_id)
    return await job.work(name, task)


def _subagent_world(parts: AgentParts, name: str, above: World, lineage: tuple[str, ...]) -> World:
    return replace(
        restrict_world(above, parts.world, name),
        journal=above.journal,
        blobs=above.blobs,
        clock=above.clock,
        agent=name,
        lineage=lineage,
    )


def _subagent_setup(own: Setup, world: World, call: CallContext) -> Setup:
    gate = world.gate
    judges_replies = gate is not None and gate.judges_replies
    # Of two budgets with one name, the caller's counts.
    budgets = {one.name: one for one in (*own.budgets, *call.budgets)}
    money_is_limited = call.remaining.usd is not None or any(
        one.usd is not None for one in budgets.values()
    )
    all_models = (*own.models, own.summariser) if own.summariser else own.models
    unpriced = [info.name for info in all_models if info.price is None]
    if money_is_limited and unpriced:
        raise ConfigError(f"the price of {unpriced[0]} is not known, and money is limited")
    return replace(
        own,
        gate=gate.name if gate else "",
        judge_replies=own.judge_replies or judges_replies,
        withhold_replies=judges_replies,
        limits=_limit_spending(own.limits, call.remaining),
        budgets=tuple(budgets.values()),
        # Its words are no answer yet: whoever watched them break off is told to drop them.
        rules=replace(own.rules, on_partial="restart"),
    )


def _limit_spending(limits: Limits, remaining: Amount) -> Limits:
    """The agent's own limits, and no more than its caller has left."""
    if (remaining.usd is not None and remaining.usd <= 0) or (
        remaining.tokens is not None and remaining.tokens <= 0
    ):
        raise ConfigError("nothing is left to spend")
    usd = [one for one in (limits.usd, remaining.usd) if one is not None]
    tokens = [one for one in (limits.tokens, remaining.tokens) if one is not None]
    return replace(limits, usd=min(usd, default=None), tokens=min(tokens, default=None))


class _SubagentJob:
    """One task of a sub-agent: begun, or found as a dead process left it."""

    def __init__(self, parts: AgentParts, call: CallContext, call_id: str) -> None:
        self._runs = parts.runs
        self._openings = parts.openings
        self._journal = parts.world.journal
        self._call = call
        self._call_id = call_id
        self._mask_text = parts.mask.mask_text if parts.mask else str
        self._parent_call = self._session = f"{call.session}/{call_id}"

    async def work(self, name: str, task: str) -> ToolResult:
        """What came of it; what had come of it already is not done again."""
        state = await find_own_session(self._journal, self._parent_call, self._mask_text(task))
        self._session = state.session
        if state.run is not None and not state.is_active:
            result = build_result(state, recorded=True)
        else:
            driver = self._runs.make_driver(
                self._session, partial(self._open_session, task=task), None
            )
            driver.recorder.watchers.append(partial(self._show_nested, name))
            self._call.report_charges(ChargesSoFar(driver))
            result = await self._runs.drive_to_end(driver)
        self._call.report_charges(_as_subagent_charges(result.ledger.charges))
        return _result_for_caller(name, result)

    def _open_session(self, state: State, task: str) -> Sequence[Fact]:
        if state.is_active:
            # Whoever resumed the caller's run has consented to what changed.
            return self._openings.open_resumed(state, consent=True)
        labels: tuple[Label, ...] = tuple(sorted(self._call.labels))
        return self._openings.open_new(
            state,
            RunTask(
                prompt=(TextPart(task),),
                caller=self._call.caller,
                context=self._call.trusted_context,
                parent=self._parent_call,
                labels=labels,
            ),
        )

    def _show_nested(self, name: str, event: Event) -> None:
        self._call.show_delta(NestedEvent(self._call_id, name, self._session, event))


class ChargesSoFar(Sequence[Charge]):
    """What a sub-agent has paid so far, for its caller: looked up when it is asked for."""

    def __init__(self, driver: RunDriver) -> None:
        self._driver = driver

    @overload
    def __getitem__(self, index: int) -> Charge: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Charge]: ...
    @override
    def __getitem__(self, index: int | slice) -> Charge | Sequence[Charge]:
        return _as_subagent_charges(self._driver.charges_so_far)[index]

    @override
    def __len__(self) -> int:
        return len(self._driver.charges_so_far)

    @override
    def __iter__(self) -> Iterator[Charge]:
        return iter(_as_subagent_charges(self._driver.charges_so_far))


def _as_subagent_charges(charges: Sequence[Charge]) -> tuple[Charge, ...]:
    return tuple(replace(charge, purpose="subagent") for charge in charges)


def _result_for_caller(name: str, result: RunResult[Any]) -> ToolResult:
    if result.completed:
        return ToolResult.from_text("value", result.text)
    partial_text = result.text or result.partial_text
    addition = f" It had said: {partial_text}" if partial_text else ""
    return ToolResult.from_text(
        "error", f"{name} ended as {result.outcome}: {result.reason}.{addition}"
    )


async def unreported_charges(journal: Journal, state: State) -> tuple[Charge, ...]:
    """What sub-agents have spent on calls of a run that nobody drives any more."""
    charges: list[Charge] = []
    for call in state.step.calls if state.step else ():
        task = call.decoded_arguments.get("task")
        if call.began and call.phase != "closed" and isinstance(task, str):
            child = await find_own_session(journal, f"{state.session}/{call.id}", task)
            charges += _as_subagent_charges(child.run.ledger.charges if child.run else ())
    return tuple(charges)
