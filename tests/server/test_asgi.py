"""The service as an ASGI app: the same routes, streams and owners under another server."""

import asyncio
import json
from collections.abc import MutableMapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from windlass import Agent, TextDelta
from windlass.journals import SqliteJournal
from windlass.server import Service, StartRequest, create_asgi_app
from windlass.server.access import LOCAL_OWNER
from windlass.server.client_run import ClientRun
from windlass.testing import ScriptedModel, pause, say, stall


class AsgiHost:
    """A server in memory: it carries requests to an app, and keeps what is sent."""

    def __init__(self, service: Service) -> None:
        self.app = create_asgi_app(service)
        self.messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.started = asyncio.Event()

    async def begin(self) -> None:
        async def send(message: MutableMapping[str, Any]) -> None:
            assert message["type"] in ("lifespan.startup.complete", "lifespan.shutdown.complete")
            self.started.set()

        await self.messages.put({"type": "lifespan.startup"})
        scope = {"type": "lifespan"}
        self.lifespan = asyncio.create_task(self._run(scope, self.messages, send))
        await self.started.wait()

    async def end(self) -> None:
        await self.messages.put({"type": "lifespan.shutdown"})
        await self.lifespan

    async def _run(self, scope: Any, messages: "asyncio.Queue[Any]", send: Any) -> None:
        await self.app(scope, messages.get, send)

    async def request(
        self,
        method: str,
        path: str,
        token: str,
        body: Any = None,
        *,
        stream_s: float = 0.0,
        root: str = "",
    ) -> tuple[int, bytes]:
        """Return the status and the body; of a stream, what comes before the client leaves."""
        place, _, query = path.partition("?")
        accept = b"text/event-stream" if stream_s else b"application/json"
        headers = [
            (b"host", b"localhost"),
            (b"authorization", f"Bearer {token}".encode()),
            (b"accept", accept),
        ]
        scope = {
            "type": "http",
            "method": method,
            "path": root + place,
            "raw_path": (root + place).encode(),
            "root_path": root,
            "query_string": query.encode(),
            "headers": headers,
            "client": ("127.0.0.1", 1),
        }
        incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        data = json.dumps(body).encode() if body is not None else b""
        await incoming.put({"type": "http.request", "body": data, "more_body": False})
        sent: list[MutableMapping[str, Any]] = []

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        answering = asyncio.create_task(self._run(scope, incoming, send))
        if stream_s:
            await asyncio.sleep(stream_s)
            await incoming.put({"type": "http.disconnect"})
        await answering
        return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


@pytest.mark.contract("A1")
async def test_a_mounted_app_serves_runs_and_streams() -> None:
    with ScriptedModel([[say("One"), pause(2), say(" two.")]]) as model:
        service = Service(Agent(model, name="helper"))
        host = AsgiHost(service)
        await host.begin()
        token = (await service.tokens.create("ann")).secret
        status, body = await host.request("POST", "/runs", token, {"prompt": "Hi"}, root="/ai")
        assert status == 202
        session = json.loads(body)["session"]
        status, first = await host.request("GET", f"/runs/{session}/events", token, stream_s=1.0)
        assert status == 200
        assert b'"text":"One"' in first
        assert b"RunEnded" not in first
        # The client left, and the run went on.
        status, whole = await host.request("GET", f"/runs/{session}/events", token, stream_s=9.0)
        assert b"RunEnded" in whole
        assert (await host.request("GET", "/runs", "wrong"))[0] == 401
        await host.end()
        assert not service.is_ready


@pytest.mark.contract("A3", "A12")
@pytest.mark.parametrize("passes_lifespan", [True, False])
async def test_a_mounted_service_resumes_the_runs_of_one_that_stopped(
    tmp_path: Path, *, passes_lifespan: bool
) -> None:
    """A3, A12: also if the host does not pass its lifespan on to what it mounts."""
    journal = SqliteJournal(tmp_path / "sessions.db")
    with ScriptedModel([[say("One"), stall()]]) as model:
        async with Service(Agent(model, name="helper", journal=journal)) as before:
            handle = await before.start_run(LOCAL_OWNER, StartRequest(prompt="Hi"))
            async with aclosing(handle.events()) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        break
    with ScriptedModel(["Done."]) as model:
        service = Service(Agent(model, name="helper", journal=journal))
        host = AsgiHost(service)
        if passes_lifespan:
            await host.begin()
        token = (await service.tokens.create("ann", roles=("admin",))).secret
        assert (await host.request("GET", "/readyz", token, root="/ai"))[0] == 200
        run = await ClientRun.find(service, LOCAL_OWNER, handle.session, 1)
        assert run is not None
        async for _ in run.follow():
            pass
        assert run.run is not None
        assert (run.run.outcome, run.run.text) == ("completed", "Done.")
        await (host.end() if passes_lifespan else service.__aexit__())
    journal.close()


async def test_a_silent_stream_is_kept_alive() -> None:
    service = Service(Agent(ScriptedModel([]), name="helper"))
    host = AsgiHost(service)
    await host.begin()
    token = (await service.tokens.create("ann")).secret
    _, data = await host.request("GET", "/events", token, stream_s=40.0)
    assert data.count(b":\n\n") == 2
    await host.end()


@pytest.mark.contract("A4")
async def test_a_body_that_is_cut_is_not_taken_for_a_whole_one() -> None:
    service = Service(Agent(ScriptedModel([]), name="helper"))
    token = (await service.tokens.create("ann")).secret
    app = create_asgi_app(service)
    received = [
        {"type": "http.request", "body": b"half of", "more_body": True},
        {"type": "http.disconnect"},
    ]
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return received.pop(0) if len(received) > 1 else received[0]

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    headers = {
        "host": "localhost",
        "authorization": f"Bearer {token}",
        "content-type": "text/plain",
    }
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/uploads",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    async with service:
        await app(scope, receive, send)
    assert sent[0]["status"] == 400
    assert json.loads(sent[1]["body"])["error"]["code"] == "body_cut"
    assert await service.uploads.list_page("ann") == ([], None)
