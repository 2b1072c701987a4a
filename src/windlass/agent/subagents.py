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

from windlass.agent.build import Parts
from windlass.agent.driver import Driver
from windlass.agent.openings import Task
from windlass.agent.subagent_sessions import own_session
from windlass.agent.subagent_world import held_by
from windlass.core.errors import ConfigError
from windlass.core.events import Event, Fact, Nested
from windlass.core.limits import Amount, Limits
from windlass.core.messages import Charge, Label, Result, Text
from windlass.core.result import RunResult
from windlass.core.run_report import report
from windlass.core.setup import Setup, digest
from windlass.core.state import State
from windlass.ports import CallContext, Journal, World
from windlass.tools.function import Tool
from windlass.tools.run_context import RunContext

DEPTH_MAX = 3
"""How many agents may stand above one another."""

RECALLED: tuple[Label, ...] = ("untrusted", "private")
"""What an agent with knowledge may have come to hold."""


class Delegable(Protocol):
    """An agent that can work for another."""

    @property
    def parts(self) -> Parts: ...


def as_tool(
    parts: Parts, name: str, description: str, depth_max: int = DEPTH_MAX
) -> Tool[..., Any]:
    """A tool that gives a task to an agent, and gives back what it says in the end."""

    async def give(context: RunContext[Any], task: str) -> Result:
        return await _work(parts, name, context, task, depth_max)

    schema = _schema({"task": _TASK})
    return _tool(name, _described(description, parts), schema, give, [parts])


def delegate(
    agents: Mapping[str, Delegable], *, name: str = "delegate", depth_max: int = DEPTH_MAX
) -> Tool[..., Any]:
    """One tool for several agents, who are chosen by name."""
    if not agents:
        raise ConfigError("delegate({}): there is nobody to give a task to")
    team = {who: agent.parts for who, agent in agents.items()}

    async def give(context: RunContext[Any], agent: str, task: str) -> Result:
        return await _work(team[agent], agent, context, task, depth_max)

    who = {"type": "string", "enum": list(team), "description": "Who is to do it."}
    lines = "\n".join(f"- {one}: {_first_line(parts)}" for one, parts in team.items())
    told = f"Give a task to another agent, who works on it alone and answers once.\n{lines}"
    return _tool(name, told, _schema({"agent": who, "task": _TASK}), give, list(team.values()))


_TASK = {
    "type": "string",
    "minLength": 1,
    "description": "The whole task: the agent knows nothing else of this conversation.",
}


def _schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": list(properties)}


def _first_line(parts: Parts) -> str:
    return (parts.setup.instructions.strip() or "an agent").splitlines()[0][:200]


def _tool(
    name: str,
    description: str,
    schema: dict[str, Any],
    give: Callable[..., Any],
    team: Sequence[Parts],
) -> Tool[..., Any]:
    held = {label for parts in team for label in _brings(parts)}
    from_schema = cast("Callable[..., Tool[..., Any]]", Tool.from_schema)
    made = from_schema(
        name,
        description,
        schema,
        give,
        effect="idempotent",
        timeout=None,
        retries=0,
        # Two tasks may be worked on side by side; the same task twice, one after the other.
        resource=partial(_resource, name),
        untrusted="untrusted" in held,
        private="private" in held,
        external="external" in held,
    )
    # Whoever resumes a run with other sub-agents is told.
    version = digest([parts.setup for parts in team])
    return with_fields(made, spec=replace(made.spec, version=version))


def _brings(parts: Parts) -> Iterator[Label]:
    """What its tools and its knowledge may bring along. Knowledge that does not say may be all."""
    for spec in parts.setup.tools:
        yield from spec.labels
    if parts.world.recall is not None:
        yield from getattr(parts.world.recall, "labels", RECALLED)


def _described(description: str, parts: Parts) -> str:
    return description or f"Give a task to an agent who works on it alone. {_first_line(parts)}"


def _resource(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name}:{digest(dict(arguments))}"


async def _work(
    parts: Parts, name: str, context: RunContext[Any], task: str, depth_max: int
) -> Result:
    call = context.call
    if call is None or call.world is None:
        return Result.say("error", f"{name} can only work within a run")
    above = (*call.world.lineage, call.world.agent or "the first agent")
    if len(above) > depth_max or name in above:
        chain = " > ".join((*above, name))
        return Result.say("error", f"No agent may stand so deep, or above itself: {chain}")
    try:
        world = _world(parts, name, call.world, above)
        setup = _setup(parts.setup, world, call)
    except ConfigError as error:
        return Result.say("error", f"{name} cannot work: {error}")
    # It may come upon what its caller must not let be seen.
    mask = parts.mask.beside(call.mask) if parts.mask else call.mask
    own = with_fields(parts, world=world, setup=mask.setup(setup) if mask else setup, mask=mask)
    job = _Job(own, call, context.call_id)
    return await job.done(name, task)


def _world(parts: Parts, name: str, above: World, lineage: tuple[str, ...]) -> World:
    return replace(
        held_by(above, parts.world, name),
        journal=above.journal,
        blobs=above.blobs,
        clock=above.clock,
        agent=name,
        lineage=lineage,
    )


def _setup(own: Setup, world: World, call: CallContext) -> Setup:
    gate = world.gate
    judged = gate is not None and gate.judges_replies
    # Of two budgets with one name, the caller's counts.
    budgets = {one.name: one for one in (*own.budgets, *call.budgets)}
    limited = call.left.usd is not None or any(one.usd is not None for one in budgets.values())
    asked = (*own.models, own.summariser) if own.summariser else own.models
    unknown = [info.name for info in asked if info.price is None]
    if limited and unknown:
        raise ConfigError(f"the price of {unknown[0]} is not known, and money is limited")
    return replace(
        own,
        gate=gate.name if gate else "",
        judge_replies=own.judge_replies or judged,
        withhold_replies=judged,
        limits=_within(own.limits, call.left),
        budgets=tuple(budgets.values()),
        # Its words are no answer yet: whoever watched them break off is told to drop them.
        rules=replace(own.rules, on_partial="restart"),
    )


def _within(limits: Limits, left: Amount) -> Limits:
    """The agent's own limits, and no more than its caller has left."""
    if (left.usd is not None and left.usd <= 0) or (left.tokens is not None and left.tokens <= 0):
        raise ConfigError("nothing is left to spend")
    usd = [one for one in (limits.usd, left.usd) if one is not None]
    tokens = [one for one in (limits.tokens, left.tokens) if one is not None]
    return replace(limits, usd=min(usd, default=None), tokens=min(tokens, default=None))


class _Job:
    """One task of a sub-agent: begun, or found as a dead process left it."""

    def __init__(self, parts: Parts, call: CallContext, call_id: str) -> None:
        self._runs = parts.runs
        self._openings = parts.openings
        self._journal = parts.world.journal
        self._call = call
        self._call_id = call_id
        self._hide = parts.mask.text if parts.mask else str
        self._works_for = self._session = f"{call.session}/{call_id}"

    async def done(self, name: str, task: str) -> Result:
        """What came of it; what had come of it already is not done again."""
        state = await own_session(self._journal, self._works_for, self._hide(task))
        self._session = state.session
        if state.run is not None and not state.active:
            result = report(state, recorded=True)
        else:
            driver = self._runs.driver(self._session, partial(self._opening, task=task), None)
            driver.recorder.watchers.append(partial(self._tell, name))
            self._call.paid(Paid(driver))
            result = await self._runs.see_through(driver)
        self._call.paid(_for_caller(result.ledger.charges))
        return _told(name, result)

    def _opening(self, state: State, task: str) -> Sequence[Fact]:
        if state.active:
            # Whoever resumed the caller's run has consented to what changed.
            return self._openings.resume(state, consent=True)
        labels: tuple[Label, ...] = tuple(sorted(self._call.labels))
        return self._openings.begin(
            state,
            Task(
                prompt=(Text(task),),
                caller=self._call.caller,
                context=self._call.trusted,
                parent=self._works_for,
                labels=labels,
            ),
        )

    def _tell(self, name: str, event: Event) -> None:
        self._call.show(Nested(self._call_id, name, self._session, event))


class Paid(Sequence[Charge]):
    """What a sub-agent has paid so far, for its caller: looked up when it is asked for."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    @overload
    def __getitem__(self, index: int) -> Charge: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Charge]: ...
    @override
    def __getitem__(self, index: int | slice) -> Charge | Sequence[Charge]:
        return _for_caller(self._driver.paid)[index]

    @override
    def __len__(self) -> int:
        return len(self._driver.paid)

    @override
    def __iter__(self) -> Iterator[Charge]:
        return iter(_for_caller(self._driver.paid))


def _for_caller(charges: Sequence[Charge]) -> tuple[Charge, ...]:
    return tuple(replace(charge, purpose="subagent") for charge in charges)


def _told(name: str, result: RunResult[Any]) -> Result:
    if result.completed:
        return Result.say("value", result.text)
    said = result.text or result.partial_text
    words = f" It had said: {said}" if said else ""
    return Result.say("error", f"{name} ended as {result.outcome}: {result.reason}.{words}")


async def owed(journal: Journal, state: State) -> tuple[Charge, ...]:
    """What sub-agents have spent on calls of a run that nobody drives any more."""
    charges: list[Charge] = []
    for call in state.step.calls if state.step else ():
        task = call.decoded.get("task")
        if call.began and call.phase != "closed" and isinstance(task, str):
            child = await own_session(journal, f"{state.session}/{call.id}", task)
            charges += _for_caller(child.run.ledger.charges if child.run else ())
    return tuple(charges)
