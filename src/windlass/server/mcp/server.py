"""The MCP server of a service: its tools, its tasks, and who calls them.

Runs are tasks of the extension `io.modelcontextprotocol/tasks` of the stateless protocol.

Invariant: a task is a run of the journal, so it survives every client and every server. Any replica
knows it, and shows it to its owner alone.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Literal

import mcp_types as types
from mcp import MCPError
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from pydantic import Field

from windlass.core.errors import WindlassError
from windlass.core.projection.runs import RunView
from windlass.core.projection.view import Projection
from windlass.server.access import LOCAL_OWNER, Caller
from windlass.server.client_run import ClientRun, find_run
from windlass.server.errors import ApiError, api_error_from
from windlass.server.mcp.agent_calls import (
    RequestContext,
    answer_call,
    begin_call,
    cancel_call,
    find_call,
    make_input_requests,
    make_run_id,
    wait_for_call,
)
from windlass.server.mcp.agent_tools import (
    INSTRUCTIONS,
    dump_model,
    find_agent_name,
    make_error_result,
    make_result,
    make_tools,
    read_arguments,
)
from windlass.server.service import Service

TASKS_EXTENSION = "io.modelcontextprotocol/tasks"
POLL_MS = 1_000
"""How often a client should look at a task."""
INTERNAL_ERROR = -32603
TaskStatus = Literal["working", "input_required", "completed", "failed", "cancelled"]


class UpdateTaskParams(types.RequestParams):
    """The answers to what a task asked for."""

    task_id: str
    input_responses: types.InputResponses = Field(default_factory=dict)


def speaks_tasks(ctx: RequestContext) -> bool:
    """Whether a client can be given a task instead of a result."""
    capabilities = ctx.session.client_capabilities
    extensions = (capabilities.extensions if capabilities is not None else None) or {}
    return TASKS_EXTENSION in extensions


async def create_task(run: ClientRun) -> dict[str, Any]:
    """Return a run as a task that was just created."""
    return {"resultType": "task", **_describe_task(await run.read_again(), run.number)}


async def read_task(run: ClientRun) -> dict[str, Any]:
    """Return a task with its result, its error or what it asks for."""
    view = await run.read_again()
    task = _describe_task(view, run.number)
    match task["status"]:
        case "input_required":
            task["inputRequests"] = {
                name: dump_model(request) for name, request in make_input_requests(view).items()
            }
        case "completed":
            task["result"] = {**dump_model(make_result(view)), "resultType": "complete"}
        case "failed":
            failed = view.run or RunView()
            message = failed.fault.message if failed.fault is not None else failed.reason
            task["error"] = {"code": INTERNAL_ERROR, "message": message or "The run failed."}
        case _:
            pass
    return {"resultType": "complete", **task}


def describe_legacy_task(view: Projection, number: int) -> dict[str, Any]:
    """Return a run as a task of the version 2025-11-25, which has other names for two fields."""
    task = _describe_task(view, number)
    return {**task, "ttl": task.pop("ttlMs"), "pollInterval": task.pop("pollIntervalMs")}


def _describe_task(view: Projection, number: int) -> dict[str, Any]:
    run = find_run(view, number) or RunView()
    return {
        "taskId": make_run_id(view.session, number),
        "status": _find_status(view, run),
        "createdAt": _format_time(run.started_at),
        "lastUpdatedAt": _format_time(view.at),
        # A journal keeps its sessions until they are deleted.
        "ttlMs": None,
        "pollIntervalMs": POLL_MS,
    }


def _find_status(view: Projection, run: RunView) -> TaskStatus:
    match run.outcome:
        case None:
            return "input_required" if view.questions else "working"
        case "failed":
            return "failed"
        case "cancelled":
            return "cancelled"
        case _:
            return "completed"


def _format_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


FindCaller = Callable[[RequestContext], Caller]
TASK_AFTER_S = 5.0
"""A run that takes longer becomes a task, if the client can deal with one."""
REMEMBERED_MAX = 10_000
"""Calls that are remembered for a cancel."""
INVALID_PARAMS = -32602
CallResult = types.CallToolResult | types.InputRequiredResult | dict[str, Any]


def build_server(service: Service, find_caller: FindCaller) -> Server[Any]:
    """Return a server whose tools are the agents of a service.

    `find_caller` says on whose behalf a request is made.
    """
    handlers = ToolHandlers(service, find_caller)
    server: Server[Any] = Server(
        "windlass",
        version=version("windlass"),
        title="Windlass",
        instructions=INSTRUCTIONS,
        on_list_tools=handlers.list_tools,
    )
    # By this way its result may be a task too, which the SDK has no type for.
    server.add_request_handler("tools/call", types.CallToolRequestParams, handlers.call_tool)
    server.extensions[TASKS_EXTENSION] = {}
    server.add_request_handler("tasks/get", types.GetTaskRequestParams, handlers.get_task)
    server.add_request_handler("tasks/update", UpdateTaskParams, handlers.update_task)
    server.add_request_handler("tasks/cancel", types.CancelTaskRequestParams, handlers.cancel_task)
    server.add_notification_handler(
        "notifications/cancelled", types.CancelledNotificationParams, handlers.cancel_call
    )
    return server


async def serve_stdio(service: Service) -> None:
    """Serve the program that started this one, until it closes the pipe. Runs are then released.

    It acts for the person whose machine this is: only their own programs can start this one.
    """
    server = build_server(service, lambda _: LOCAL_OWNER)
    async with service, stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


class ToolHandlers:
    """What the methods of the server do."""

    def __init__(self, service: Service, find_caller: FindCaller) -> None:
        self._service = service
        self._find_caller = find_caller
        self._open: OrderedDict[tuple[str, ...], str] = OrderedDict()
        """The runs of calls that may be cancelled, by caller, connection and id of the request."""

    async def list_tools(
        self,
        ctx: RequestContext,
        params: types.PaginatedRequestParams | None,  # noqa: ARG002 - all fit on one page
    ) -> types.ListToolsResult:
        """List the agents."""
        caller = self._find_caller(ctx)
        caller.require("watch")
        parts = self._service.parts_for(caller)
        return types.ListToolsResult(tools=make_tools(self._service.agents, parts))

    async def call_tool(
        self, ctx: RequestContext, params: types.CallToolRequestParams
    ) -> CallResult:
        """Run a task, or continue one that the client has answers for."""
        agent = find_agent_name(self._service.agents, params.name)
        if agent is None:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name[:100]}")
        try:
            caller = self._find_caller(ctx)
            headers: Mapping[str, str] = ctx.request.headers if ctx.request is not None else {}
            key = headers.get("idempotency-key", "")
            run, unanswered = await self._find_run(caller, agent, params, key)
            return await self._wait(ctx, run, unanswered)
        except (ApiError, WindlassError) as error:
            return make_error_result(api_error_from(error))

    async def _find_run(
        self, caller: Caller, agent: str, params: types.CallToolRequestParams, key: str
    ) -> tuple[ClientRun, frozenset[str]]:
        """Return the run of a call, and the questions that the client left unanswered."""
        if params.request_state is None:
            task = read_arguments(params.arguments)
            return await begin_call(self._service, caller, agent, task, key), frozenset()
        run = await find_call(self._service, caller, params.request_state)
        return run, await answer_call(run, params.input_responses or {})

    async def _wait(
        self, ctx: RequestContext, run: ClientRun, unanswered: frozenset[str]
    ) -> CallResult:
        key = _request_key(ctx, run.caller, ctx.request_id)
        self._open[key] = make_run_id(run.session.name, run.number)
        while len(self._open) > REMEMBERED_MAX:
            self._open.popitem(last=False)
        if speaks_tasks(ctx):
            result = await self._wait_as_task(ctx, run)
        else:
            result = await wait_for_call(ctx, run, unanswered)
        # After a cancel it stays: its notification may come after the end of this task.
        self._open.pop(key, None)
        return result

    async def _wait_as_task(self, ctx: RequestContext, run: ClientRun) -> CallResult:
        try:
            async with asyncio.timeout(TASK_AFTER_S):
                result = await wait_for_call(ctx, run)
        except TimeoutError:
            return await create_task(run)
        if isinstance(result, types.InputRequiredResult):
            return await create_task(run)
        return result

    async def cancel_call(
        self, ctx: RequestContext, params: types.CancelledNotificationParams
    ) -> None:
        """Cancel the run of a call that the client no longer wants."""
        caller = self._find_caller(ctx)
        run_id = self._open.pop(_request_key(ctx, caller, params.request_id), None)
        if run_id is not None:
            await cancel_call(await find_call(self._service, caller, run_id))

    async def get_task(
        self, ctx: RequestContext, params: types.GetTaskRequestParams
    ) -> dict[str, Any]:
        """Return a task."""
        with _ErrorsAsMcp():
            caller = self._find_caller(ctx)
            caller.require("watch")
            return await read_task(await find_call(self._service, caller, params.task_id))

    async def update_task(self, ctx: RequestContext, params: UpdateTaskParams) -> dict[str, Any]:
        """Give a task what it asked for."""
        with _ErrorsAsMcp():
            run = await find_call(self._service, self._find_caller(ctx), params.task_id)
            await answer_call(run, params.input_responses)
            return {"resultType": "complete"}

    async def cancel_task(
        self, ctx: RequestContext, params: types.CancelTaskRequestParams
    ) -> dict[str, Any]:
        """Cancel a task."""
        with _ErrorsAsMcp():
            caller = self._find_caller(ctx)
            caller.require("start")
            await cancel_call(await find_call(self._service, caller, params.task_id))
            return {"resultType": "complete"}


class _ErrorsAsMcp:
    """Turns errors of the service into errors of the protocol."""

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ApiError | WindlassError):
            told = api_error_from(error)
            raise MCPError(INVALID_PARAMS, str(told), {"code": told.code}) from error


def _request_key(ctx: RequestContext, caller: Caller, request_id: object) -> tuple[str, ...]:
    """Return what names a request of a caller: ids are unique only within a connection."""
    headers: Mapping[str, str] = ctx.request.headers if ctx.request is not None else {}
    session = headers.get("mcp-session-id", "")
    return caller.name, caller.token, session, repr(request_id)
