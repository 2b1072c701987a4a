"""The methods of A2A over JSON-RPC, each with what a caller must be allowed to do."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

import msgspec

from windlass.core.errors import WindlassError
from windlass.core.projection.runs import RunView
from windlass.core.projection.view import Projection
from windlass.core.session_summary import SessionQuery, SessionState
from windlass.server.a2a.exchange import (
    TaskExchange,
    find_task,
    push_not_supported,
    send_message,
    task_ended,
)
from windlass.server.a2a.tasks import build_task, task_state
from windlass.server.a2a.wire import (
    PROTOCOL_VERSION,
    VERSION_HEADER,
    A2aTask,
    ListParams,
    RpcReply,
    RpcRequest,
    SendConfiguration,
    SendParams,
    StreamItem,
    TaskPage,
    TaskParams,
    make_error,
    shape_error,
)
from windlass.server.client_run import find_known
from windlass.server.errors import ApiError, api_error_from
from windlass.server.messages import HttpReply, HttpRequest, Reply, StreamReply
from windlass.server.served_agents import find_agent
from windlass.server.service import Service
from windlass.server.sse import STREAM_HEADERS

T = TypeVar("T")
CANCEL_WAIT_S = 10.0
"""How long a cancel waits for the run to end."""
PAGE_TASKS = 50
PAGE_TASKS_MAX = 100
COUNT_PAGE = 1_000
NO_STATE = ("", "TASK_STATE_UNSPECIFIED")
STATES: dict[str, tuple[SessionState, ...]] = {
    "TASK_STATE_SUBMITTED": ("queued",),
    "TASK_STATE_WORKING": ("open", "awaiting_budget"),
    "TASK_STATE_INPUT_REQUIRED": ("waiting", "paused"),
    "TASK_STATE_COMPLETED": ("completed",),
    "TASK_STATE_CANCELED": ("cancelled",),
    "TASK_STATE_REJECTED": ("refused", "policy_denied"),
    "TASK_STATE_FAILED": (
        "failed",
        "max_steps",
        "budget_exceeded",
        "timed_out",
        "truncated",
        "empty_reply",
        "stuck",
    ),
}


class RpcCall:
    """One request of JSON-RPC."""

    def __init__(self, service: Service, request: HttpRequest, rpc: RpcRequest) -> None:
        self._service = service
        self._request = request
        self._caller = request.caller
        self._agent = request.params.get("agent", "")
        self._rpc = rpc

    async def answer(self) -> Reply:
        """Return the reply. Raises ApiError and WindlassError."""
        check_version(self._request.header(VERSION_HEADER))
        handler = _METHODS.get(self._rpc.method)
        if handler is None:
            raise ApiError(
                404,
                "method_not_found",
                f"There is no method {self._rpc.method[:100]!r}.",
                f"Known methods: {', '.join(_METHODS)}.",
            )
        return await handler(self)

    def _read_params(self, kind: type[T]) -> T:
        try:
            return msgspec.convert(self._rpc.params, type=kind)
        except msgspec.ValidationError as error:
            raise ApiError(
                422, "invalid_params", f"The params do not fit: {error}.", "See the A2A schema."
            ) from None

    def _reply(self, result: object) -> HttpReply:
        return HttpReply(body=RpcReply(jsonrpc="2.0", id=self._rpc.id, result=result))

    # Messages.

    async def send_message(self) -> Reply:
        params = self._read_params(SendParams)
        configuration = params.configuration or SendConfiguration()
        exchange = await self._take_message(params)
        is_patient = not configuration.return_immediately
        if not is_patient or not await self._request.outlast(exchange.wait()):
            await exchange.wait_begun()
        return self._reply(StreamItem(task=exchange.build_task(configuration.history_length)))

    async def stream_message(self) -> Reply:
        params = self._read_params(SendParams)
        configuration = params.configuration or SendConfiguration()
        return self._stream(await self._take_message(params), configuration.history_length)

    async def _take_message(self, params: SendParams) -> TaskExchange:
        trace = self._request.trace
        return await send_message(self._service, self._caller, self._agent, params, trace)

    async def subscribe_to_task(self) -> Reply:
        params = self._read_params(TaskParams)
        run = await find_task(self._service, self._caller, params.id)
        if run.has_ended:
            raise task_ended(params.id)
        return self._stream(TaskExchange(run), params.history_length)

    def _stream(self, exchange: TaskExchange, history_length: int | None) -> StreamReply:
        return StreamReply(self._frames(exchange, history_length), headers=STREAM_HEADERS)

    async def _frames(
        self, exchange: TaskExchange, history_length: int | None
    ) -> AsyncGenerator[bytes]:
        try:
            async with aclosing(exchange.follow(history_length)) as items:
                async for item in items:
                    yield _encode_frame(RpcReply(jsonrpc="2.0", id=self._rpc.id, result=item))
        except (ApiError, WindlassError) as error:
            failed = make_error(api_error_from(error))
            yield _encode_frame(RpcReply(jsonrpc="2.0", id=self._rpc.id, error=failed))

    # Tasks.

    async def get_task(self) -> Reply:
        params = self._read_params(TaskParams)
        run = await find_task(self._service, self._caller, params.id)
        return self._reply(TaskExchange(run).build_task(params.history_length))

    async def cancel_task(self) -> Reply:
        self._caller.require("start")
        params = self._read_params(TaskParams)
        run = await find_task(self._service, self._caller, params.id)
        if run.has_ended or not await run.cancel(wait_s=CANCEL_WAIT_S):
            raise ApiError(
                409,
                "task_not_cancelable",
                f"The task {params.id!r} has ended.",
                "Read it with GetTask.",
            )
        run = await find_task(self._service, self._caller, params.id)
        return self._reply(TaskExchange(run).build_task())

    async def list_tasks(self) -> Reply:
        params = self._read_params(ListParams)
        size = params.page_size or PAGE_TASKS
        if not 1 <= size <= PAGE_TASKS_MAX:
            raise ApiError(
                422,
                "invalid_params",
                f"pageSize is {size}, and must be 1 to {PAGE_TASKS_MAX}.",
                "Ask for fewer, and for the next page.",
            )
        if params.context_id:
            page = await self._list_context(params, size)
        else:
            page = await self._list_last_runs(params, size)
        return self._reply(page)

    async def _list_context(self, params: ListParams, size: int) -> TaskPage:
        """Return the runs of one session, the last one first."""
        session = await find_known(self._service, self._caller, params.context_id)
        if session is None:
            return TaskPage((), "", size, 0)
        view = session.view
        runs = [run for run in (*view.runs, view.run) if run is not None]
        if params.status not in NO_STATE:
            runs = [run for run in runs if task_state(view, run) == params.status]
        before = int(params.page_token) if params.page_token.isdecimal() else len(view.runs) + 2
        rest = [run for run in reversed(runs) if run.number < before]
        shown = rest[:size]
        token = str(shown[-1].number) if len(rest) > size else ""
        tasks = tuple(self._build_listed(view, run, params) for run in shown)
        return TaskPage(tasks, token, size, len(runs))

    async def _list_last_runs(self, params: ListParams, size: int) -> TaskPage:
        """Return the last run of each session."""
        states = STATES.get(params.status, ())
        if not states and params.status not in NO_STATE:
            return TaskPage((), "", size, 0)
        query = SessionQuery(states=states, agent=self._agent or None, parent="")
        page = await self._service.list_sessions(
            self._caller, query, size, params.page_token or None
        )
        tasks: list[A2aTask] = []
        for summary in page:
            session = await self._service.find_listed(self._caller, summary)
            if session is not None and session.view.run is not None:
                tasks.append(self._build_listed(session.view, session.view.run, params))
        return TaskPage(tuple(tasks), page.cursor or "", size, await self._count(query))

    async def _count(self, query: SessionQuery) -> int:
        """Return how many sessions there are; the protocol wants to know."""
        total = 0
        cursor: str | None = None
        while True:
            page = await self._service.list_sessions(self._caller, query, COUNT_PAGE, cursor)
            total += len(page)
            cursor = page.cursor
            if cursor is None:
                return total

    def _build_listed(self, view: Projection, run: RunView, params: ListParams) -> A2aTask:
        history = params.history_length or 0
        return build_task(view, run, history, artifacts=params.include_artifacts)

    async def refuse_push(self) -> Reply:
        raise push_not_supported()

    async def refuse_extended_card(self) -> Reply:
        raise ApiError(
            404,
            "no_extended_card",
            "There is no other card than the public one.",
            "Read /.well-known/agent-card.json.",
        )


_METHODS: dict[str, Callable[[RpcCall], Awaitable[Reply]]] = {
    "SendMessage": RpcCall.send_message,
    "SendStreamingMessage": RpcCall.stream_message,
    "GetTask": RpcCall.get_task,
    "ListTasks": RpcCall.list_tasks,
    "CancelTask": RpcCall.cancel_task,
    "SubscribeToTask": RpcCall.subscribe_to_task,
    "GetExtendedAgentCard": RpcCall.refuse_extended_card,
    "CreateTaskPushNotificationConfig": RpcCall.refuse_push,
    "GetTaskPushNotificationConfig": RpcCall.refuse_push,
    "ListTaskPushNotificationConfigs": RpcCall.refuse_push,
    "DeleteTaskPushNotificationConfig": RpcCall.refuse_push,
}


async def answer_rpc(service: Service, request: HttpRequest) -> Reply:
    """Answer a request of JSON-RPC. Errors have its shape, with the id of the request."""
    rpc_id: str | int | None = None
    try:
        try:
            rpc = await request.decode(RpcRequest)
        except ApiError as error:
            if error.code == "invalid_request":
                error.code = "invalid_rpc"
            raise
        rpc_id = rpc.id
        if request.params.get("agent"):
            find_agent(service.agents, request.params["agent"])
        return await RpcCall(service, request, rpc).answer()
    except (ApiError, WindlassError) as error:
        return shape_error(api_error_from(error), rpc_id)


def check_version(given: str) -> None:
    """Raise ApiError if the client speaks another version; one that says nothing is believed."""
    if given and given.partition(".")[0] != PROTOCOL_VERSION.partition(".")[0]:
        raise ApiError(
            422,
            "version_not_supported",
            f"Version {given[:20]!r} of A2A is not supported.",
            f"Send the header A2A-Version: {PROTOCOL_VERSION}.",
        )


def _encode_frame(reply: RpcReply) -> bytes:
    return b"data: " + msgspec.json.encode(reply) + b"\n\n"
