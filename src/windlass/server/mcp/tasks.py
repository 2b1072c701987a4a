"""Runs as tasks: the extension `io.modelcontextprotocol/tasks` of the stateless protocol.

Invariant: a task is a run of the journal, so it survives every client and every server. Any replica
knows it, and shows it to its owner alone.
"""

from datetime import UTC, datetime
from typing import Any, Literal

import mcp_types as types
from pydantic import Field

from windlass.core.projection.runs import RunView
from windlass.core.projection.view import Projection
from windlass.server.client_run import ClientRun, find_run
from windlass.server.mcp.agent_calls import RequestContext, make_input_requests, make_run_id
from windlass.server.mcp.agent_tools import dump_model, make_result

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
