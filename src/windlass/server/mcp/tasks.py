"""Runs as tasks: the extension `io.modelcontextprotocol/tasks` of the stateless protocol.

The law: a task is a run of the journal, so it survives every client and every server. Any replica
knows it, and nobody but its owner does.
"""

from datetime import UTC, datetime
from typing import Any, Literal

import mcp_types as types
from pydantic import Field

from windlass.core.projection.runs import RunView
from windlass.core.projection.view import Projection
from windlass.server.access import Caller
from windlass.server.mcp.agent_calls import (
    AgentCalls,
    RequestContext,
    RunPlace,
    make_input_requests,
)
from windlass.server.mcp.agent_tools import make_result
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


class RunTasks:
    """The runs of a service as tasks."""

    def __init__(self, service: Service, calls: AgentCalls) -> None:
        self._service = service
        self._calls = calls

    async def create(self, caller: Caller, place: RunPlace) -> dict[str, Any]:
        """Return a run as a task that was just created."""
        view = await self._calls.read(caller, place)
        return {"resultType": "task", **_describe_task(view, place)}

    async def get(self, caller: Caller, task_id: str) -> dict[str, Any]:
        """Return a task with its result, its error or what it asks for."""
        caller.require("watch")
        place = RunPlace.from_text(task_id)
        view = await self._calls.read(caller, place)
        task = _describe_task(view, place)
        match task["status"]:
            case "input_required":
                requests = make_input_requests(view)
                task["inputRequests"] = {
                    name: request.model_dump(by_alias=True, mode="json", exclude_none=True)
                    for name, request in requests.items()
                }
            case "completed":
                result = make_result(view).model_dump(by_alias=True, mode="json", exclude_none=True)
                task["result"] = {**result, "resultType": "complete"}
            case "failed":
                run = view.run or RunView()
                message = run.fault.message if run.fault is not None else run.reason
                task["error"] = {"code": INTERNAL_ERROR, "message": message or "The run failed."}
            case _:
                pass
        return {"resultType": "complete", **task}

    async def update(self, caller: Caller, params: UpdateTaskParams) -> dict[str, Any]:
        """Give a task the answers that it waits for."""
        place = RunPlace.from_text(params.task_id)
        await self._calls.read(caller, place)
        await self._calls.answer(caller, params.input_responses)
        return {"resultType": "complete"}

    async def cancel(self, caller: Caller, task_id: str) -> dict[str, Any]:
        """Cancel the run of a task."""
        caller.require("start")
        place = RunPlace.from_text(task_id)
        session = await self._calls.find(caller, place)
        run = session.view.run
        if run is not None and run.number == place.run and run.is_open:
            await self._service.cancel(session, "cancelled by a client")
        return {"resultType": "complete"}


def _describe_task(view: Projection, place: RunPlace) -> dict[str, Any]:
    run = _find_run(view, place)
    return {
        "taskId": place.to_text(),
        "status": _find_status(view, run),
        "createdAt": _format_time(run.started_at),
        "lastUpdatedAt": _format_time(view.at),
        # A journal keeps its sessions until somebody deletes them.
        "ttlMs": None,
        "pollIntervalMs": POLL_MS,
    }


def describe_legacy_task(view: Projection, place: RunPlace) -> dict[str, Any]:
    """Return a run as a task of the version 2025-11-25, which has other names for two fields."""
    task = _describe_task(view, place)
    return {**task, "ttl": task.pop("ttlMs"), "pollInterval": task.pop("pollIntervalMs")}


def _find_run(view: Projection, place: RunPlace) -> RunView:
    if view.run is not None and view.run.number == place.run:
        return view.run
    return next((run for run in view.runs if run.number == place.run), RunView())


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
