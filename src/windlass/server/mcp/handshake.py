"""The protocol with a handshake (2025-11-25 and before), over HTTP, at any replica.

Invariant: a message is answered from the journal and from what its own ids say, so any replica may
get it. A call that is sent again finds its run. The SDK keeps such clients in one
process and does not know the tasks of that version, so this part of the protocol is written here.
"""

from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import Any, NamedTuple, cast

import mcp_types as types
import msgspec
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION
from msgspec import UNSET, UnsetType

from windlass.core.errors import WindlassError
from windlass.core.session_summary import SessionQuery
from windlass.server.access import Caller
from windlass.server.client_run import ClientRun
from windlass.server.errors import ApiError, api_error_from
from windlass.server.mcp.agent_calls import begin_call, cancel_call, find_call, make_run_id
from windlass.server.mcp.agent_tools import (
    INSTRUCTIONS,
    dump_model,
    find_agent_name,
    make_error_result,
    make_tools,
    read_arguments,
)
from windlass.server.mcp.call_notes import CallNotes
from windlass.server.mcp.client_sessions import (
    ClientSession,
    EventPlace,
    RequestId,
    RunStreams,
    make_call_key,
    open_session,
    read_event_id,
    read_session,
)
from windlass.server.mcp.server import describe_legacy_task
from windlass.server.messages import (
    JSON_TYPE,
    SSE_TYPE,
    HttpReply,
    HttpRequest,
    Reply,
    StreamReply,
    decode_json,
)
from windlass.server.service import Service
from windlass.server.sse import STREAM_HEADERS

SESSION_HEADER = "mcp-session-id"
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
TASKS_PAGE = 50
OLD_NOTES_S = 3_600.0
JsonObject = dict[str, Any]


class ClientMessage(msgspec.Struct, frozen=True):
    """A JSON-RPC message of a client: a request, a notification, or its response to a request."""

    method: str = ""
    id: RequestId | UnsetType | None = UNSET
    params: JsonObject = {}
    result: Any = UNSET
    error: Any = UNSET


class RequestRefused(Exception):
    """A request that is refused in the protocol's own way."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:  # noqa: ANN401 - JSON
        super().__init__(message)
        self.code = code
        self.data = data


class ClientRequest(msgspec.Struct, frozen=True):
    """A request of a client that has shaken hands."""

    caller: Caller
    session: ClientSession
    key: str
    """The caller's own name for this request."""
    id: RequestId
    params: JsonObject

    @property
    def progress(self) -> RequestId | None:
        """How the client wants progress reported; None if it does not."""
        meta = cast("object", self.params.get("_meta"))
        token = cast("JsonObject", meta).get("progressToken") if isinstance(meta, dict) else None
        return token if isinstance(token, str | int) else None


class WaitedCall(NamedTuple):
    """A run whose end is the result of a request."""

    run: ClientRun
    at: EventPlace


Answer = JsonObject | WaitedCall


class HandshakeEndpoint:
    """Answers the messages of clients with a handshake, for one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._notes = CallNotes(service.journal)
        self._streams = RunStreams(service, self._notes)
        self._methods: Mapping[str, Callable[[ClientRequest], Awaitable[Answer]]] = {
            "ping": self._ping,
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "tasks/get": self._get_task,
            "tasks/list": self._list_tasks,
            "tasks/result": self._wait_for_task,
            "tasks/cancel": self._cancel_task,
        }
        service.background.repeat("old MCP notes", self._notes.remove_old, OLD_NOTES_S)

    async def handle(self, request: HttpRequest) -> Reply:
        """Answer a request whose caller is known. Raises ApiError."""
        caller = request.caller
        if request.method == "POST":
            return await self._take_message(request)
        session = read_session(caller, request.header(SESSION_HEADER))
        if request.method == "DELETE":
            # Nothing is kept of a session, and its runs continue.
            return HttpReply(204)
        last = request.header("last-event-id")
        if not last:
            raise ApiError(
                405,
                "no_own_stream",
                "The service sends nothing unless it is asked.",
                "Send Last-Event-ID to resume the stream of a request.",
                headers={"Allow": "POST, DELETE"},
            )
        at = read_event_id(last)
        run = await find_call(self._service, caller, at.run)
        return self._open_stream(session, WaitedCall(run, at))

    async def _take_message(self, request: HttpRequest) -> Reply:
        body = await request.read_body()
        message = decode_json(body, ClientMessage)
        caller = request.caller
        if message.method == "initialize" and message.id is not UNSET:
            return self._open_session(caller, message)
        session_id = request.header(SESSION_HEADER)
        session = read_session(caller, session_id)
        if message.method and isinstance(message.id, str | int):
            key = request.header("idempotency-key") or make_call_key(session_id, message.id)
            asked = ClientRequest(caller, session, key, message.id, message.params)
            return await self._answer(request, message.method, asked)
        if message.method == "notifications/cancelled":
            await self._cancel_call(caller, session_id, message.params.get("requestId"))
        elif not message.method:
            await self._streams.take_answer(caller, decode_json(body, JsonObject))
        return HttpReply(202)

    def _open_session(self, caller: Caller, message: ClientMessage) -> HttpReply:
        wanted = message.params.get("protocolVersion")
        agreed = wanted if wanted in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION
        session = open_session(caller, agreed, elicits=_has_forms(message.params))
        capabilities: JsonObject = {"tools": {}}
        if session.has_tasks:
            capabilities["tasks"] = {
                "list": {},
                "cancel": {},
                "requests": {"tools": {"call": {}}},
            }
        result = {
            "protocolVersion": agreed,
            "capabilities": capabilities,
            "serverInfo": {"name": "windlass", "title": "Windlass", "version": version("windlass")},
            "instructions": INSTRUCTIONS,
        }
        reply = {"jsonrpc": "2.0", "id": message.id, "result": result}
        return HttpReply(200, reply, {SESSION_HEADER: session.to_id()})

    async def _answer(self, request: HttpRequest, method: str, asked: ClientRequest) -> Reply:
        reply: JsonObject = {"jsonrpc": "2.0", "id": asked.id}
        try:
            answer = await self._find_method(method)(asked)
            if isinstance(answer, WaitedCall):
                if not (request.accepts(SSE_TYPE) or request.accepts("*/*")):
                    raise _not_acceptable()
                return self._open_stream(asked.session, answer)
            reply["result"] = answer
        except RequestRefused as error:
            reply["error"] = {"code": error.code, "message": str(error), "data": error.data}
        except (ApiError, WindlassError) as error:
            if isinstance(error, ApiError) and error.status in (406, 429):
                raise
            reply["error"] = _describe_error(api_error_from(error))
        return HttpReply(200, reply)

    def _find_method(self, name: str) -> Callable[[ClientRequest], Awaitable[Answer]]:
        work = self._methods.get(name)
        if work is None:
            raise RequestRefused(METHOD_NOT_FOUND, f"Unknown method: {name[:100]}")
        return work

    def _open_stream(self, session: ClientSession, waited: WaitedCall) -> StreamReply:
        frames = self._streams.stream(waited.run, session, waited.at)
        return StreamReply(frames, headers=STREAM_HEADERS)

    # The methods.

    async def _ping(self, _: ClientRequest) -> Answer:
        return {}

    async def _list_tools(self, asked: ClientRequest) -> Answer:
        parts = self._service.parts_for(asked.caller)
        tools = [dump_model(tool) for tool in make_tools(self._service.agents, parts)]
        if asked.session.has_tasks:
            tools = [{**tool, "execution": {"taskSupport": "optional"}} for tool in tools]
        return {"tools": tools}

    async def _call_tool(self, asked: ClientRequest) -> Answer:
        params = _convert(asked.params, types.CallToolRequestParams)
        agent = find_agent_name(self._service.agents, params.name)
        if agent is None:
            raise RequestRefused(INVALID_PARAMS, f"Unknown tool: {params.name[:100]}")
        try:
            task = read_arguments(params.arguments)
            run = await begin_call(self._service, asked.caller, agent, task, asked.key)
        except (ApiError, WindlassError) as error:
            return dump_model(make_error_result(api_error_from(error)))
        run_id = make_run_id(run.session.name, run.number)
        if await self._notes.note_run(asked.caller, asked.key, run_id):
            await cancel_call(run)
        if params.task is not None and asked.session.has_tasks:
            return {"task": describe_legacy_task(await run.read_again(), run.number)}
        return WaitedCall(run, EventPlace(asked.id, run_id, asked.progress))

    async def _cancel_call(self, caller: Caller, session_id: str, request: object) -> None:
        """Cancel the run of a request that the client no longer wants."""
        if isinstance(request, str | int):
            run_id = await self._notes.note_cancel(caller, make_call_key(session_id, request))
            if run_id is not None:
                await cancel_call(await find_call(self._service, caller, run_id))

    async def _get_task(self, asked: ClientRequest) -> Answer:
        asked.caller.require("watch")
        run = await self._find_task(asked)
        return describe_legacy_task(run.view, run.number)

    async def _find_task(self, asked: ClientRequest) -> ClientRun:
        params = _convert(asked.params, types.GetTaskRequestParams)
        return await find_call(self._service, asked.caller, params.task_id)

    async def _list_tasks(self, asked: ClientRequest) -> Answer:
        params = _convert(asked.params, types.PaginatedRequestParams)
        page = await self._service.list_sessions(
            asked.caller, SessionQuery(parent=""), TASKS_PAGE, params.cursor
        )
        tasks: list[JsonObject] = []
        for summary in page:
            session = await self._service.find_listed(asked.caller, summary)
            if session is not None and session.view.run is not None:
                tasks.append(describe_legacy_task(session.view, session.view.run.number))
        return {"tasks": tasks, "nextCursor": page.cursor} if page.cursor else {"tasks": tasks}

    async def _wait_for_task(self, asked: ClientRequest) -> Answer:
        asked.caller.require("watch")
        run = await self._find_task(asked)
        run_id = make_run_id(run.session.name, run.number)
        return WaitedCall(run, EventPlace(asked.id, run_id, asked.progress, is_task=True))

    async def _cancel_task(self, asked: ClientRequest) -> Answer:
        run = await self._find_task(asked)
        if run.has_ended:
            raise RequestRefused(INVALID_PARAMS, "The task has ended already.")
        await cancel_call(run)
        task = describe_legacy_task(await run.read_again(), run.number)
        return {**task, "status": "cancelled"}


def _has_forms(params: Mapping[str, Any]) -> bool:
    """Return whether a client can show forms, by what it said in the handshake."""
    capabilities = cast("object", params.get("capabilities"))
    if not isinstance(capabilities, dict):
        return False
    found = cast("JsonObject", capabilities).get("elicitation")
    return isinstance(found, dict) and (not found or "form" in found)


def _convert(params: JsonObject, kind: type[Any]) -> Any:  # noqa: ANN401 - a model of the SDK
    try:
        return kind.model_validate(params)
    except ValueError as error:
        raise RequestRefused(INVALID_PARAMS, f"The parameters do not fit: {error}") from None


def _describe_error(error: ApiError) -> JsonObject:
    return {
        "code": INVALID_PARAMS,
        "message": str(error),
        "data": {"code": error.code, "hint": error.hint},
    }


def _not_acceptable() -> ApiError:
    return ApiError(
        406,
        "stream_not_accepted",
        "The reply to this request is a stream.",
        f"Send Accept: {JSON_TYPE}, {SSE_TYPE}.",
    )
