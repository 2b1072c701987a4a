"""The routes of AG-UI: one endpoint for each agent, as `HttpAgent` of its client wants it."""

from typing import Any

from windlass.agent.build import parts_of
from windlass.server.ag_ui.inputs import RunInput
from windlass.server.ag_ui.runs import AgUiRun
from windlass.server.ag_ui.wire import PROTOCOL_VERSION
from windlass.server.messages import SSE_TYPE, HttpReply, HttpRequest, StreamReply
from windlass.server.routing import Routes
from windlass.server.served_agents import find_agent
from windlass.server.service import Service
from windlass.server.sse import STREAM_HEADERS

ROUTES = Routes()


@ROUTES.add(
    "POST",
    "/ag-ui",
    role="watch",
    scope="caller",
    name="runAgUi",
    summary="Run the first agent over AG-UI: the reply is its stream of events.",
    body=RunInput,
    streams=True,
    content_types=(SSE_TYPE,),
    errors=("nothing_to_do", "invalid_answer"),
)
@ROUTES.add(
    "POST",
    "/ag-ui/{agent}",
    role="watch",
    scope="caller",
    name="runAgUiAgent",
    summary="Run an agent over AG-UI: the reply is its stream of events.",
    body=RunInput,
    streams=True,
    content_types=(SSE_TYPE,),
    errors=("nothing_to_do", "invalid_answer", "agent_not_found"),
)
async def run_agent(service: Service, request: HttpRequest) -> StreamReply:
    """Begin a run, answer its questions or show it again, and stream it."""
    run_input = await request.decode(RunInput)
    agent = request.params.get("agent", "")
    exchange = AgUiRun(service, request.caller, run_input, agent, request.trace)
    run = await exchange.begin()
    return StreamReply(exchange.stream(run), headers=STREAM_HEADERS)


@ROUTES.add(
    "GET", "/ag-ui/{agent}", role="watch", reply=dict[str, Any], errors=("agent_not_found",)
)
async def read_ag_ui_capabilities(service: Service, request: HttpRequest) -> HttpReply:
    """What an agent can do, as AG-UI describes it."""
    name = request.params["agent"]
    setup = parts_of(find_agent(service.agents, name)).setup
    tools = [
        {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
        for spec in setup.tools
        if not spec.needs_artifact
    ]
    capabilities: dict[str, Any] = {
        "identity": {"name": name, "type": "windlass"},
        "transport": {"streaming": True},
        "tools": {
            "supported": bool(tools),
            "items": tools,
            "parallelCalls": True,
            "clientProvided": False,
        },
        "state": {"snapshots": False, "deltas": False},
        "reasoning": {"supported": True, "streaming": True},
        "humanInTheLoop": {
            "supported": True,
            "approvals": True,
            "interrupts": True,
            "approveWithEdits": True,
        },
        "custom": {"protocolVersion": PROTOCOL_VERSION},
    }
    return HttpReply(body=capabilities)
