"""The MCP server of a service: its tools, its tasks, and who calls them."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

import mcp_types as types
from mcp import MCPError
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server

from windlass.core.errors import WindlassError
from windlass.server.access import LOCAL_OWNER, Caller
from windlass.server.client_run import ClientRun
from windlass.server.errors import ApiError, api_error_from
from windlass.server.mcp.agent_calls import (
    RequestContext,
    answer_call,
    begin_call,
    cancel_call,
    find_call,
    make_run_id,
    wait_for_call,
)
from windlass.server.mcp.agent_tools import (
    INSTRUCTIONS,
    find_agent_name,
    make_error_result,
    make_tools,
    read_arguments,
)
from windlass.server.mcp.tasks import (
    TASKS_EXTENSION,
    UpdateTaskParams,
    create_task,
    read_task,
    speaks_tasks,
)
from windlass.server.service import Service

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
        self._find_caller(ctx).require("watch")
        return types.ListToolsResult(tools=make_tools(self._service.agents))

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
            run = await self._find_run(caller, agent, params, key)
            return await self._wait(ctx, run)
        except (ApiError, WindlassError) as error:
            return make_error_result(api_error_from(error))

    async def _find_run(
        self, caller: Caller, agent: str, params: types.CallToolRequestParams, key: str
    ) -> ClientRun:
        if params.request_state is None:
            task = read_arguments(params.arguments)
            return await begin_call(self._service, caller, agent, task, key)
        run = await find_call(self._service, caller, params.request_state)
        await answer_call(run, params.input_responses or {})
        return run

    async def _wait(self, ctx: RequestContext, run: ClientRun) -> CallResult:
        key = _request_key(ctx, run.caller, ctx.request_id)
        self._open[key] = make_run_id(run.session.name, run.number)
        while len(self._open) > REMEMBERED_MAX:
            self._open.popitem(last=False)
        if speaks_tasks(ctx):
            result = await self._wait_as_task(ctx, run)
        else:
            result = await wait_for_call(ctx, run)
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
