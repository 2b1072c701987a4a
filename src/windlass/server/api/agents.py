"""What is served and how it is: agents, models, budgets, the fleet; health, readiness, metrics."""

import asyncio
import time
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from windlass.agent.agent import Agent
from windlass.agent.options import parts_of
from windlass.core.disclosure import AgentPart
from windlass.core.errors import WindlassError
from windlass.core.limits import Amount, Budget, Limits
from windlass.core.messages import Effect, Label
from windlass.core.schema_faults import find_faults
from windlass.core.setup import ModelInfo
from windlass.core.suggestions import suggest_names
from windlass.core.verdicts import Allow, InvalidCall, Verdict
from windlass.ports import GateRequest
from windlass.server.errors import ApiError, draining_error
from windlass.server.fleet_status import FleetReply, read_fleet_status
from windlass.server.messages import HttpReply, HttpRequest, Reply
from windlass.server.metrics import OPEN_METRICS
from windlass.server.routing import Routes
from windlass.server.served_agents import find_agent
from windlass.server.service import Service


class ToolReply(msgspec.Struct, frozen=True):
    """A tool of an agent."""

    name: str
    description: str
    effect: Effect
    labels: tuple[Label, ...]
    parameters: dict[str, Any]
    notice: str


class AgentReply(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that is served."""

    name: str
    model: str
    fallbacks: list[str]
    tools: list[ToolReply] | UnsetType = UNSET
    policy: str | UnsetType = UNSET
    """The name of the policy that decides about its calls; empty if there is none."""
    limits: Limits
    budgets: list[str]
    output_schema: dict[str, Any] | None
    hidden: list[str]
    """The fields that the operator does not show to this caller."""


class AgentListReply(msgspec.Struct, frozen=True):
    """The agents of the service; the first one is the default."""

    agents: list[AgentReply]


class TrialBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A hypothetical call: what would the policy decide about it?"""

    tool: str
    arguments: dict[str, Any] = {}
    labels: tuple[Label, ...] = ()
    """What the session would hold because of earlier calls."""


class TrialReply(msgspec.Struct, frozen=True):
    """What the policy of an agent says to a call."""

    tool: str
    verdict: Verdict | InvalidCall
    policy: str


class ModelReply(msgspec.Struct, frozen=True, kw_only=True):
    """A model that agents use."""

    name: str
    window: int | None
    output_max: int
    input_usd: Decimal | None
    """US dollars for a million tokens; null if the price is not known."""
    output_usd: Decimal | None
    agents: list[str]


class ModelListReply(msgspec.Struct, frozen=True):
    """The models of all agents."""

    models: list[ModelReply]


class BudgetReply(msgspec.Struct, frozen=True):
    """A budget that runs share, and what is spent or promised of it in its present period."""

    budget: Budget
    spent: Amount
    agents: list[str]


class BudgetListReply(msgspec.Struct, frozen=True):
    """The shared budgets of all agents."""

    budgets: list[BudgetReply]


ROUTES = Routes()


@ROUTES.add("GET", "/agents", role="watch", reply=AgentListReply)
async def list_agents(service: Service, request: HttpRequest) -> Reply:
    """List the agents, with what the operator shows of them."""
    parts = service.parts_for(request.caller)
    agents = [_agent_reply(name, agent, parts) for name, agent in service.agents.items()]
    return HttpReply(200, AgentListReply(agents))


@ROUTES.add("GET", "/agents/{agent}", role="watch", reply=AgentReply, errors=("agent_not_found",))
async def read_agent(service: Service, request: HttpRequest) -> Reply:
    """Read about one agent."""
    name = request.params["agent"]
    parts = service.parts_for(request.caller)
    return HttpReply(200, _agent_reply(name, find_agent(service.agents, name), parts))


@ROUTES.add(
    "POST",
    "/agents/{agent}/trial",
    role="watch",
    scope="caller",
    body=TrialBody,
    reply=TrialReply,
    errors=("agent_not_found", "policy_hidden", "tool_not_found"),
)
async def try_call(service: Service, request: HttpRequest) -> Reply:
    """Say what the policy of an agent would decide about a call. Nothing runs."""
    agent = find_agent(service.agents, request.params["agent"])
    if not service.parts_for(request.caller) >= {"policy", "tools"}:
        raise ApiError(
            403,
            "policy_hidden",
            "The operator does not show the policy and the tools of agents to callers.",
            "Use a token with the role admin, or serve with --show policy --show tools.",
        )
    body = await request.decode(TrialBody)
    world = parts_of(agent).world
    spec = parts_of(agent).setup.find_tool(body.tool)
    if spec is None:
        names = [each.name for each in parts_of(agent).setup.tools]
        hint = suggest_names(body.tool, names).strip()
        raise ApiError(
            404, "tool_not_found", f"There is no tool {body.tool!r}.", hint or "See GET /agents."
        )
    schema = world.schemas.get(body.tool)
    faults = find_faults(schema, body.arguments) if schema is not None else ()
    if faults:
        message = "; ".join(f"{each.path}: {each.message}" for each in faults[:3])
        invalid = InvalidCall("invalid_arguments", message)
        return HttpReply(200, TrialReply(body.tool, invalid, parts_of(agent).setup.gate))
    if world.gate is None:
        return HttpReply(200, TrialReply(body.tool, Allow("no gate is set"), ""))
    verdict = await world.gate.judge(
        GateRequest(
            session="trial",
            call_id="trial",
            tool=spec,
            arguments=body.arguments,
            labels=frozenset(body.labels),
            agent=world.agent,
            caller=request.caller.name,
            context=request.caller.context,
        )
    )
    return HttpReply(200, TrialReply(body.tool, verdict, parts_of(agent).setup.gate))


@ROUTES.add("GET", "/models", name="listServedModels", role="watch", reply=ModelListReply)
async def list_models(service: Service, _request: HttpRequest) -> Reply:
    """List the models that the agents use, with their prices."""
    found: dict[str, tuple[ModelInfo, list[str]]] = {}
    for name, agent in service.agents.items():
        for info in parts_of(agent).setup.models:
            found.setdefault(info.name, (info, []))[1].append(name)
    return HttpReply(200, ModelListReply([_model_reply(*pair) for pair in found.values()]))


@ROUTES.add("GET", "/budgets", role="watch", reply=BudgetListReply)
async def list_budgets(service: Service, _request: HttpRequest) -> Reply:
    """List the shared budgets, and what is spent of them."""
    found: dict[str, tuple[Budget, list[str]]] = {}
    for name, agent in service.agents.items():
        for budget in parts_of(agent).setup.budgets:
            found.setdefault(budget.name, (budget, []))[1].append(name)
    journal = service.journal
    replies: list[BudgetReply] = []
    for budget, agents in found.values():
        spent = await journal.read_spending(budget)
        replies.append(BudgetReply(budget, spent, agents))
    return HttpReply(200, BudgetListReply(replies))


def _agent_reply(name: str, agent: Agent[Any], parts: frozenset[AgentPart]) -> AgentReply:
    setup = parts_of(agent).setup
    tools = [
        ToolReply(
            spec.name, spec.description, spec.effect, spec.labels, spec.parameters, spec.notice
        )
        for spec in setup.tools
    ]
    fields: tuple[AgentPart, ...] = ("tools", "policy")
    return AgentReply(
        name=name,
        model=setup.model.name,
        fallbacks=[info.name for info in setup.fallbacks],
        tools=tools if "tools" in parts else UNSET,
        policy=setup.gate if "policy" in parts else UNSET,
        limits=setup.limits,
        budgets=[budget.name for budget in setup.budgets],
        output_schema=setup.output_schema,
        hidden=[part for part in fields if part not in parts],
    )


def _model_reply(info: ModelInfo, agents: list[str]) -> ModelReply:
    price = info.price
    return ModelReply(
        name=info.name,
        window=info.window,
        output_max=info.output_max,
        input_usd=price.input if price is not None else None,
        output_usd=price.output if price is not None else None,
        agents=agents,
    )


JOURNAL_S = 2.0
"""How long the journal may take to answer."""


class HealthReply(msgspec.Struct, frozen=True):
    """That the service lives."""

    status: str


@ROUTES.add("GET", "/healthz", role=None, reply=HealthReply)
async def read_health(_service: Service, _request: HttpRequest) -> Reply:
    """Say that the service lives."""
    return HttpReply(200, HealthReply("ok"))


@ROUTES.add(
    "GET", "/readyz", role=None, reply=HealthReply, errors=("draining", "journal_unreachable")
)
async def read_readiness(service: Service, _request: HttpRequest) -> Reply:
    """Say whether work should be sent here."""
    if not service.is_ready:
        raise draining_error()
    try:
        async with asyncio.timeout(JOURNAL_S):
            await service.journal.read("readiness")
    except (TimeoutError, WindlassError):
        raise ApiError(
            503,
            "journal_unreachable",
            "The journal does not answer.",
            "See the log, and the place that --journal names.",
            retry_after=JOURNAL_S,
        ) from None
    return HttpReply(200, HealthReply("ready"))


@ROUTES.add(
    "GET",
    "/metrics",
    role="watch",
    scope="caller",
    content_types=(OPEN_METRICS.partition(";")[0],),
)
async def read_metrics(service: Service, request: HttpRequest) -> Reply:
    """Count requests, streams, runs and costs (OpenMetrics)."""
    owner = None if request.caller.is_admin else request.caller.name
    costs = await service.costs.measure(owner, time.time())
    return HttpReply(200, service.metrics.write(costs), content_type=OPEN_METRICS)


@ROUTES.add("GET", "/fleet", role="admin", reply=FleetReply)
async def read_fleet(service: Service, _request: HttpRequest) -> Reply:
    """Read which processes work on the journal, which runs are paused and who waits."""
    return HttpReply(200, await read_fleet_status(service.journal))
