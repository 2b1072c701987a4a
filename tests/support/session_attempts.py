"""Every way in which a request can name a session, made from the route table.

A test sends them on behalf of the owner, for whom each of them works, and of another caller, for
whom none may, also if a session of that caller has the full name of the other as its short name.
"""

import asyncio
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import msgspec

from service import DirectClient
from windlass.server.mcp.agent_calls import make_run_id
from windlass.server.mcp.client_sessions import EventPlace
from windlass.server.messages import HttpReply, Reply, StreamReply
from windlass.server.openai.objects import make_id
from windlass.server.routing import Route, path_parameters

MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"
STREAM_S = 3.0
"""For how long a stream is read, in virtual time."""
YES = {"action": "accept", "content": {"answer": "allow"}}


@dataclass(frozen=True, slots=True)
class Target:
    """A session that requests name, and what else they may know of it."""

    session: str
    call_id: str = "c1"
    digest: str = "0" * 64
    """Of a question that waits there."""
    upload: str = "up-0"
    artifact: str = "0123456789abcdef"
    hook: str = "none"
    schedule: str = "none"
    token: str = "0123456789ab"
    prompt: str = "1"
    """The number of a prompt that waits there."""

    @property
    def question(self) -> str:
        """The id of the question, as protocols write it."""
        return f"{self.session}:{self.call_id}:{self.digest}"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request."""

    method: str
    path: str
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


class PatientClient:
    """Sends attempts. One that comes too fast is counted and sent again, never taken as refused."""

    def __init__(self, client: DirectClient) -> None:
        self.client = client
        self.waits = 0

    async def send(self, attempt: Attempt) -> Reply:
        while True:
            reply = await self.client.send(
                attempt.method, attempt.path, attempt.body, attempt.headers
            )
            if reply.status != 429:
                return reply
            self.waits += 1
            # The rate counts in real time, also while a test runs on virtual time.
            await asyncio.to_thread(time.sleep, 0.05)

    async def read(self, attempt: Attempt) -> tuple[int, bytes]:
        """Return the status and all bytes of a reply; of a stream, those of its first seconds."""
        reply = await self.send(attempt)
        return reply.status, await read_reply(reply)

    async def try_route(self, route: Route, target: Target) -> list[tuple[int, bytes]]:
        """Send all attempts of a route, and return what came."""
        made = [*make_attempts(route, target)]
        if route.path == "/mcp":
            made += await self._make_mcp_attempts(route, target)
        return [await self.read(attempt) for attempt in made]

    async def _make_mcp_attempts(self, route: Route, target: Target) -> list[Attempt]:
        hello = {"protocolVersion": HANDSHAKE, "capabilities": {"elicitation": {}}}
        hello["clientInfo"] = {"name": "t", "version": "1"}
        opening = _rpc("initialize", hello)
        reply = await self.send(Attempt("POST", "/mcp", opening, _mcp_headers(HANDSHAKE)))
        headers = _mcp_headers(HANDSHAKE, session=reply.headers["mcp-session-id"])
        if route.method == "DELETE":
            return [Attempt("DELETE", "/mcp", None, headers)]
        if route.method == "GET":
            place = EventPlace(1, make_run_id(target.session, 1))
            return [Attempt("GET", "/mcp", None, {**headers, "Last-Event-ID": place.to_id()})]
        return [
            Attempt("POST", "/mcp", body, headers) for body in _handshake_messages(target)
        ] + list(_modern_attempts(target))


async def read_reply(reply: Reply) -> bytes:
    """Return the bytes of a reply; of a stream, those of its first seconds."""
    if isinstance(reply, HttpReply):
        return reply.encode_body() + repr(dict(reply.headers)).encode()
    data = b""

    async def read(stream: StreamReply) -> None:
        nonlocal data
        async for chunk in stream.chunks:
            data += chunk

    reading = asyncio.create_task(read(reply))
    await asyncio.wait({reading}, timeout=STREAM_S)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await reply.close()
    return data


def make_attempts(route: Route, target: Target) -> Iterator[Attempt]:
    """Yield requests to a route that name a session wherever it may name one."""
    path = fill_path(route, target)
    headers = {"Accept": "text/event-stream"} if route.streams else {}
    if route.takes_upload:
        yield Attempt(route.method, f"{path}?name=note", b"note", {"Content-Type": "text/plain"})
        return
    for body in make_bodies(route, target):
        for query in make_queries(route, target):
            yield Attempt(route.method, path + query, body, headers)
            if route.streams:
                yield Attempt(route.method, path + query, body)


def fill_path(route: Route, target: Target) -> str:
    """Return a path of a route that leads to the target."""
    values = {
        "session": target.session,
        "response": make_id("resp", target.session, 1),
        "upload": target.upload,
        "token": target.token,
        "caller": "ann",
        "seq": "1",
        "artifact": target.artifact,
        "agent": "helper",
        "model": "helper",
        "file": "index.html",
        "name": target.schedule if route.path.startswith("/schedules") else target.hook,
        "code": "x",
        "prompt": target.prompt,
    }
    path = route.path
    for name in path_parameters(path):
        path = path.replace(f"{{{name}}}", quote(values[name], safe=""))
    return path


def make_queries(route: Route, target: Target) -> Iterator[str]:
    """Yield queries that name a session, and none."""
    values = {
        "session": target.session,
        "watch": f"0:0:{target.session}",
        "other": target.session,
        "parent": target.session,
        "name": target.session,
        "stream": "true",
    }
    fields = {each.encode_name: each for each in _fields(route.query)}
    if not any(each.required for each in fields.values()):
        yield ""
    for name in fields.keys() & values.keys():
        yield f"?{name}={values[name]}"


def make_bodies(route: Route, target: Target) -> Iterator[Any]:
    """Yield bodies that name a session wherever the route reads one."""
    if route.method == "GET" or route.path == "/mcp":
        if route.path != "/mcp":
            yield None
        return
    if route.path.startswith("/a2a"):
        yield from _a2a_bodies(target)
    elif route.path.startswith("/ag-ui"):
        yield from _ag_ui_bodies(target)
    elif route.name == "createResponse":
        yield from _response_bodies(target)
    else:
        names = {each.encode_name for each in _fields(route.body)}
        yield {name: value for name, value in _plain_values(target).items() if name in names}


def _fields(kind: type[Any] | None) -> tuple[msgspec.structs.FieldInfo, ...]:
    return () if kind is None else msgspec.structs.fields(kind)


def _plain_values(target: Target) -> dict[str, Any]:
    return {
        "session": target.session,
        "agent": "helper",
        "prompt": "Hi",
        "call_id": target.call_id,
        "answer": {"verdict": "allow"},
        "digest": target.digest,
        "pattern": "send(*)",
        "at": 1,
        "model": "helper",
        "messages": [{"role": "user", "content": "Hi"}],
        "name": "mine",
        "times": {"type": "interval", "every_s": 900},
        "url": "https://127.0.0.1/hook",
        "caller": "bob",
        "code": "x",
        "language": "python",
        "tool": "send",
        "arguments": {"text": "Hi"},
    }


def _response_bodies(target: Target) -> Iterator[Any]:
    previous = make_id("resp", target.session, 1)
    yield {"model": "helper", "input": "Hi", "previous_response_id": previous}
    for number in (1, 2, 3):
        reference = {"type": "item_reference", "id": make_id("msg", target.session, number)}
        yield {"model": "helper", "input": [reference, {"role": "user", "content": "Repeat it."}]}


def _a2a_bodies(target: Target) -> Iterator[Any]:
    task = f"{target.session}#1"
    for method in ("GetTask", "SubscribeToTask"):
        yield _rpc(method, {"id": task})
    yield _rpc("ListTasks", {"contextId": target.session, "includeArtifacts": True})
    yield _rpc("ListTasks", {"includeArtifacts": True, "historyLength": 9})
    answer = {"id": target.question, "approved": True}
    messages: list[dict[str, Any]] = [
        {"contextId": target.session, "parts": [{"text": "Hi"}]},
        {"taskId": task, "parts": [{"data": answer}]},
        {"taskId": task, "parts": [{"text": "yes"}]},
    ]
    for number, message in enumerate(messages):
        sent = {"messageId": f"m{number}", "role": "ROLE_USER", **message}
        configuration = {"returnImmediately": True}
        yield _rpc("SendMessage", {"message": sent, "configuration": configuration})
    yield _rpc("CancelTask", {"id": task})


def _ag_ui_bodies(target: Target) -> Iterator[Any]:
    plain: dict[str, Any] = {
        "threadId": target.session,
        "runId": "r1",
        "state": {},
        "messages": [],
        "tools": [],
        "context": [],
        "forwardedProps": {},
    }
    yield plain
    yield {**plain, "messages": [{"id": "m1", "role": "user", "content": "Hi"}]}
    entry = {"interruptId": target.question, "status": "resolved", "payload": True}
    yield {**plain, "resume": [entry]}


def _handshake_messages(target: Target) -> Iterator[dict[str, Any]]:
    task = {"taskId": make_run_id(target.session, 1)}
    yield _rpc("tools/call", {"name": "helper", "arguments": {"session": target.session}}, 1)
    for number, method in enumerate(("tasks/get", "tasks/result", "tasks/list"), 2):
        yield _rpc(method, task if method != "tasks/list" else {}, number)
    asked = "question:" + urlsafe_b64encode(target.question.encode()).decode()
    yield {"jsonrpc": "2.0", "id": asked, "result": YES}
    yield _rpc("tasks/cancel", task, 9)


def _modern_attempts(target: Target) -> Iterator[Attempt]:
    place = make_run_id(target.session, 1)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("tools/call", {"name": "helper", "arguments": {"session": target.session}}),
        (
            "tools/call",
            {
                "name": "helper",
                "arguments": {},
                "requestState": place,
                "inputResponses": {target.question: YES},
            },
        ),
        ("tasks/get", {"taskId": place}),
        ("tasks/update", {"taskId": place, "inputResponses": {target.question: YES}}),
        ("tasks/cancel", {"taskId": place}),
    ]
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {
            "elicitation": {"form": {}},
            "extensions": {"io.modelcontextprotocol/tasks": {}},
        },
    }
    for method, params in calls:
        headers = _mcp_headers(MODERN) | {"Mcp-Method": method}
        if "name" in params:
            headers["Mcp-Name"] = params["name"]
        yield Attempt("POST", "/mcp", _rpc(method, {**params, "_meta": meta}), headers)


def _mcp_headers(version: str, session: str = "") -> dict[str, str]:
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": version}
    return headers | ({"Mcp-Session-Id": session} if session else {})


def _rpc(method: str, params: dict[str, Any], number: int = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
