"""The routes of A2A: the card of each agent, and its JSON-RPC endpoint."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any
from urllib.parse import quote

from windlass.agent.agent import Agent
from windlass.core.disclosure import AgentPart
from windlass.server.a2a.rpc import answer_rpc
from windlass.server.a2a.wire import PROTOCOL_VERSION, RpcReply, RpcRequest, shape_error
from windlass.server.messages import JSON_TYPE, SSE_TYPE, HttpReply, HttpRequest
from windlass.server.routing import Route
from windlass.server.served_agents import find_agent, list_shown_tools
from windlass.server.service import Service

CARD_PATH = ".well-known/agent-card.json"


async def read_card(service: Service, request: HttpRequest) -> HttpReply:
    """Tell other agents how to talk to an agent; without a name, to the first one."""
    name = request.params.get("agent") or next(iter(service.agents))
    find_agent(service.agents, name)
    return HttpReply(body=build_card(service, request, name))


def build_card(service: Service, request: HttpRequest, name: str) -> dict[str, Any]:
    """Return the card of an agent, with the public address of the service or the request's."""
    parts = service.parts_for(request.caller)
    description = _describe_agent(service.agents[name], parts)
    path = f"/a2a/{quote(name)}" if name else "/a2a"
    return {
        "name": name or "agent",
        "description": description,
        "version": _find_version(),
        "supportedInterfaces": [
            {
                "url": f"{request.base_url}{path}",
                "protocolBinding": "JSONRPC",
                "protocolVersion": PROTOCOL_VERSION,
            }
        ],
        "capabilities": {
            "streaming": True,
            "pushNotifications": False,
            "extendedAgentCard": False,
        },
        "securitySchemes": {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
        "securityRequirements": [{"schemes": {"bearer": {"list": []}}}],
        "defaultInputModes": ["text/plain", "application/json", "image/*", "application/pdf"],
        "defaultOutputModes": ["text/plain"],
        "skills": [
            {
                "id": name or "agent",
                "name": name or "agent",
                "description": description,
                "tags": ["agent"],
            }
        ],
    }


def _describe_agent(agent: Agent[Any], parts: frozenset[AgentPart]) -> str:
    """Return what an agent is. Its instructions are for the model alone, and not shown."""
    tools = [spec.name for spec in list_shown_tools(agent, parts)]
    if not tools:
        return "An agent that Windlass runs."
    return f"An agent that Windlass runs, with the tools {', '.join(tools)}."


def _find_version() -> str:
    try:
        return version("windlass")
    except PackageNotFoundError:
        return "0"


def _make_card_route(path: str, name: str) -> Route:
    return Route(
        method="GET",
        path=path,
        handler=read_card,
        role="watch",
        name=name,
        summary="The A2A card of an agent.",
        reply=dict[str, Any],
        errors=("agent_not_found",),
    )


def _make_rpc_route(path: str, name: str) -> Route:
    return Route(
        method="POST",
        path=path,
        handler=answer_rpc,
        role="watch",
        scope="caller",
        name=name,
        summary="Talk to an agent over A2A: JSON-RPC, with a stream where it is asked for.",
        body=RpcRequest,
        reply=RpcReply,
        streams=True,
        content_types=(JSON_TYPE, SSE_TYPE),
        error_shape=shape_error,
        error_body=RpcReply,
    )


ROUTES: tuple[Route, ...] = (
    _make_card_route(f"/{CARD_PATH}", "readA2aCard"),
    _make_card_route(f"/a2a/{CARD_PATH}", "readA2aFirstCard"),
    _make_card_route(f"/a2a/{{agent}}/{CARD_PATH}", "readA2aAgentCard"),
    _make_rpc_route("/a2a", "callA2a"),
    _make_rpc_route("/a2a/{agent}", "callA2aAgent"),
)
