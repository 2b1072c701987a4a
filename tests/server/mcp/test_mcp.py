"""The MCP server over real sockets, with the client of the official SDK, old protocol and new."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="needs the extra `mcp`")

import httpx2
import mcp_types as types
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from mcp_clients import listen_for_mcp
from service import RunningService
from windlass import Agent, answer, tool
from windlass.core.fold.run import fold
from windlass.core.verdicts import Allow
from windlass.gates.presets import ask
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing import ScriptedModel, call, stall

pytestmark = [
    pytest.mark.contract("A6"),
    pytest.mark.realtime,
    pytest.mark.slow,
    pytest.mark.timeout(120),
]
WAIT_S = 30.0
MODES = ["legacy", "2026-07-28"]
"""With a handshake and a session, and without."""
TASKS = "io.modelcontextprotocol/tasks"
SENT: list[str] = []
Elicit = Callable[[Any, Any], Awaitable[types.ElicitResult]]


@tool
def send(to: str) -> str:
    """Send a letter."""
    SENT.append(to)
    return f"sent to {to}"


@pytest.fixture(autouse=True)
def nothing_sent() -> None:
    SENT.clear()


@asynccontextmanager
async def serve(folder: Path, *script: Any) -> AsyncIterator[RunningService]:
    with SqliteJournal(folder / "s.db") as journal:
        agent = Agent(
            ScriptedModel(script), name="clerk", tools=[send], gate=ask(), journal=journal
        )
        async with listen_for_mcp(agent) as running:
            yield running


@asynccontextmanager
async def connect(
    running: RunningService,
    mode: str = "2026-07-28",
    elicit: Elicit | None = None,
    *,
    caller: str = "ann",
    roles: tuple[str, ...] = ("watch", "start", "answer"),
) -> AsyncIterator[Client]:
    token = await running.make_token(caller, roles)
    headers = {"Authorization": f"Bearer {token}"}
    timeout = httpx2.Timeout(30, read=None)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout) as http,
        Client(
            streamable_http_client(f"{running.address}/mcp", http_client=http),
            mode=mode,
            elicitation_callback=elicit,  # pyright: ignore[reportArgumentType] - called by position
        ) as client,
    ):
        yield client


def reply(action: str, **content: Any) -> Elicit:
    """A user who answers each form so."""

    async def answer_form(_: Any, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        assert '"to": "bob"' in params.message
        return types.ElicitResult(action=action, content=content or None)  # pyright: ignore[reportArgumentType]

    return answer_form


async def wait_until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not await holds():  # noqa: ASYNC110 - a journal is looked at
            await asyncio.sleep(0.05)


LETTER = call("send", {"to": "bob"})


@pytest.mark.replicated
@pytest.mark.parametrize("mode", MODES)
async def test_an_agent_is_a_tool(tmp_path: Path, mode: str) -> None:
    async with serve(tmp_path, "Hello.", "Again.") as running, connect(running, mode) as client:
        (listed,) = (await client.list_tools()).tools
        assert listed.name == "clerk"
        assert "send" not in str(listed.description), "callers are not shown an agent's tools"
        first = await client.call_tool("clerk", {"prompt": "Hi."})
        assert not first.is_error
        assert first.structured_content["outcome"] == "completed"
        assert first.content[0].text == "Hello."  # pyright: ignore[reportAttributeAccessIssue]
        session = first.structured_content["session"]
        assert session.startswith("ann.")
        second = await client.call_tool("clerk", {"prompt": "And?", "session": session})
        assert second.structured_content["session"] == session
        assert second.structured_content["run"] == 2


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("action", "content", "effects"),
    [
        ("accept", {"answer": "allow"}, ["bob"]),
        ("accept", {"answer": "always"}, ["bob"]),
        ("accept", {"answer": "deny", "reason": "not him"}, []),
        ("decline", {}, []),
    ],
)
async def test_a_question_is_asked_by_elicitation(
    tmp_path: Path, mode: str, action: str, content: dict[str, str], effects: list[str]
) -> None:
    async with (
        serve(tmp_path, LETTER, "Well.") as running,
        connect(running, mode, reply(action, **content)) as client,
    ):
        result = await client.call_tool("clerk", {"prompt": "Write to Bob."})
    assert result.structured_content["outcome"] == "completed"
    assert effects == SENT


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("action", "content"), [("accept", {"answer": "maybe"}), ("cancel", {})])
async def test_a_form_without_an_answer_leaves_the_question_open(
    tmp_path: Path, mode: str, action: str, content: dict[str, str]
) -> None:
    async with (
        serve(tmp_path, LETTER, "Well.") as running,
        connect(running, mode, reply(action, **content)) as client,
    ):
        result = await client.call_tool("clerk", {"prompt": "Write to Bob."})
    assert result.structured_content["outcome"] == "suspended"
    assert SENT == []


@pytest.mark.parametrize("mode", MODES)
async def test_a_question_that_nobody_can_be_asked_waits(tmp_path: Path, mode: str) -> None:
    """The result says so, and the same tool waits for the end once it was answered elsewhere."""
    async with serve(tmp_path, LETTER, "Written.") as running:
        async with connect(running, mode) as client:
            result = await client.call_tool("clerk", {"prompt": "Write to Bob."})
            assert result.structured_content["outcome"] == "suspended"
            assert len(result.structured_content["questions"]) == 1
            session = result.structured_content["session"]
        ann = await running.make_client()
        (question,) = (await ann.get("/questions")).data["questions"]
        path = f"/runs/{session}/answers"
        body = {"call_id": question["call_id"], "answer": {"verdict": "allow"}}
        assert (await ann.post(path, body)).status < 300, await ann.post(path, body)
        async with connect(running, mode) as client:
            result = await client.call_tool("clerk", {"session": session})
    assert result.structured_content["text"] == "Written."
    assert SENT == ["bob"]


async def test_one_who_may_not_answer_is_not_asked(tmp_path: Path) -> None:
    async with (
        serve(tmp_path, LETTER) as running,
        connect(
            running, elicit=reply("accept", answer="allow"), roles=("watch", "start")
        ) as client,
    ):
        result = await client.call_tool("clerk", {"prompt": "Write to Bob."})
    assert result.structured_content["outcome"] == "suspended"
    assert SENT == []


@pytest.mark.replicated
async def test_an_answer_from_elsewhere_counts_and_the_form_is_taken_back(tmp_path: Path) -> None:
    shown = asyncio.Event()

    async def never(_: Any, params: Any) -> types.ElicitResult:
        shown.set()
        return await asyncio.get_running_loop().create_future()

    async with (
        serve(tmp_path, LETTER, "Written.") as running,
        connect(running, "legacy", never) as client,
    ):
        calling = asyncio.create_task(client.call_tool("clerk", {"prompt": "Write to Bob."}))
        async with asyncio.timeout(WAIT_S):
            await shown.wait()
        (summary,) = await running.service.journal.sessions()
        state = fold(summary.session, await running.service.journal.read(summary.session))
        await answer(running.service.journal, summary.session, state.step_calls[0].id, Allow())
        running.service.drive_soon(summary.session, "clerk")
        result = await calling
    assert result.structured_content["text"] == "Written."
    assert SENT == ["bob"]


async def test_a_run_survives_its_client(tmp_path: Path) -> None:
    """The connection is lost in mid-run: the run goes on, and another client waits for it."""
    release = asyncio.Event()

    @tool
    async def wait_long() -> str:
        """Wait."""
        await release.wait()
        return "done"

    with SqliteJournal(tmp_path / "s.db") as own:
        script = ScriptedModel([call("wait_long", {}), "Finished."])
        agent = Agent(script, name="clerk", tools=[wait_long], journal=own)
        async with listen_for_mcp(agent) as running:
            journal: Any = running.service.journal
            async with connect(running) as client:
                calling = asyncio.create_task(client.call_tool("clerk", {"prompt": "Go."}))

                async def is_running() -> bool:
                    return bool(await journal.sessions())

                await wait_until(is_running)
                calling.cancel()
            (summary,) = await journal.sessions()
            release.set()
            async with connect(running) as client:
                result = await client.call_tool("clerk", {"session": summary.session})
    assert result.structured_content["text"] == "Finished."


@pytest.mark.replicated
async def test_a_cancelled_request_cancels_the_run(tmp_path: Path) -> None:
    async with serve(tmp_path, [stall()]) as running, connect(running, "legacy") as client:
        journal = running.service.journal
        calling = asyncio.create_task(client.call_tool("clerk", {"prompt": "Go."}))

        async def has_state(wanted: str) -> bool:
            found = await journal.sessions()
            return [one.state for one in found] == [wanted]

        await wait_until(lambda: has_state("open"))
        calling.cancel()
        await wait_until(lambda: has_state("cancelled"))


@pytest.mark.parametrize("mode", MODES)
async def test_errors_are_told(tmp_path: Path, mode: str) -> None:
    async with serve(tmp_path, "Hello.") as running:
        async with connect(running, mode) as client:
            with pytest.raises(MCPError, match="Unknown tool"):
                await client.call_tool("nobody", {"prompt": "Hi."})
            for arguments in ({}, {"prompt": 5}, {"prompt": "x", "more": 1}):
                result = await client.call_tool("clerk", arguments)
                assert result.is_error, arguments
            missing = await client.call_tool("clerk", {"session": "ann.nothing"})
            assert missing.is_error
            assert (await client.call_tool("clerk", {"prompt": "Hi."})).is_error is False
        async with connect(running, mode, roles=("watch",)) as client:
            denied = await client.call_tool("clerk", {"prompt": "Hi."})
            assert denied.is_error
            assert "role start" in denied.content[0].text  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.contract("A4", "A6")
@pytest.mark.parametrize("mode", MODES)
async def test_a_session_of_another_owner_does_not_exist(tmp_path: Path, mode: str) -> None:
    async with serve(tmp_path, LETTER, "Written.") as running:
        async with connect(running, mode) as ann:
            result = await ann.call_tool("clerk", {"prompt": "Write to Bob."})
            session = result.structured_content["session"]
        yes = reply("accept", answer="allow")
        async with connect(running, mode, yes, caller="bob") as bob:
            assert (await bob.call_tool("clerk", {"session": session})).is_error
            task = await raw_request(running, "tasks/get", "bob", taskId=f"1:{session}")
            assert task["error"]["data"]["code"] == "session_not_found"
            cancelled = await raw_request(running, "tasks/cancel", "bob", taskId=f"1:{session}")
            assert "error" in cancelled
    assert SENT == []


async def raw_request(
    running: RunningService, method: str, caller: str = "ann", **params: Any
) -> dict[str, Any]:
    """One message of the new protocol, without a client."""
    token = await running.make_token(caller)
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {
            "elicitation": {"form": {}},
            "extensions": {TASKS: {}},
        },
    }
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": method,
    }
    if "name" in params:
        headers["Mcp-Name"] = params["name"]
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
        response = await http.post(f"{running.address}/mcp", json=body)
    if response.headers["content-type"].startswith("text/event-stream"):
        lines = [line for line in response.text.splitlines() if line.startswith("data: ")]
        return httpx2.Response(200, text=lines[-1][6:]).json()
    return response.json()


async def test_a_run_that_asks_is_a_task(tmp_path: Path) -> None:
    """tools/call gives a task, tasks/get what it asks for, tasks/update the answer."""
    async with serve(tmp_path, LETTER, "Written.") as running:
        given = {"prompt": "Write to Bob."}
        created = await raw_request(running, "tools/call", name="clerk", arguments=given)
        task = created["result"]
        assert task["resultType"] == "task"
        assert task["status"] == "input_required"
        found = (await raw_request(running, "tasks/get", taskId=task["taskId"]))["result"]
        ((name, form),) = found["inputRequests"].items()
        assert form["method"] == "elicitation/create"
        response = {"action": "accept", "content": {"answer": "allow"}}
        updated = await raw_request(
            running, "tasks/update", taskId=task["taskId"], inputResponses={name: response}
        )
        assert updated["result"]["resultType"] == "complete"

        async def is_completed() -> bool:
            got = await raw_request(running, "tasks/get", taskId=task["taskId"])
            return got["result"]["status"] == "completed"

        await wait_until(is_completed)
        done = (await raw_request(running, "tasks/get", taskId=task["taskId"]))["result"]
        assert done["result"]["structuredContent"]["text"] == "Written."
        # The answer that comes a second time changes nothing.
        again = await raw_request(
            running, "tasks/update", taskId=task["taskId"], inputResponses={name: response}
        )
        assert "error" not in again
    assert SENT == ["bob"]


async def test_a_long_run_is_a_task_and_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.server.mcp.server.TASK_AFTER_S", 0.1)
    async with serve(tmp_path, [stall()]) as running:
        created = await raw_request(
            running, "tools/call", name="clerk", arguments={"prompt": "Go."}
        )
        task = created["result"]
        assert task["status"] == "working"
        await raw_request(running, "tasks/cancel", taskId=task["taskId"])

        async def is_cancelled() -> bool:
            got = await raw_request(running, "tasks/get", taskId=task["taskId"])
            return got["result"]["status"] == "cancelled"

        await wait_until(is_cancelled)


async def test_without_a_token_nothing_is_told(tmp_path: Path) -> None:
    async with serve(tmp_path) as running, httpx2.AsyncClient() as http:
        for method in ("POST", "GET", "DELETE"):
            response = await http.request(method, f"{running.address}/mcp")
            assert response.status_code == 401, method
        response = await http.post(
            f"{running.address}/mcp", headers={"Origin": "https://evil.example"}
        )
        assert response.status_code == 403


async def test_a_session_of_the_protocol_belongs_to_its_token(tmp_path: Path) -> None:
    """Another caller who knows the id of a session gets nothing out of it."""
    async with serve(tmp_path, "Hello.") as running:
        first = {"Authorization": f"Bearer {await running.make_token('ann')}"}
        other = {"Authorization": f"Bearer {await running.make_token('bob')}"}
        accept = {"Accept": "application/json, text/event-stream"}
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        async with httpx2.AsyncClient(base_url=running.address) as http:
            opened = await http.post("/mcp", json=body, headers={**first, **accept})
            session = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
            listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}
            stolen = await http.post("/mcp", json=listing, headers={**other, **accept, **session})
            assert stolen.status_code == 404
            own = await http.post("/mcp", json=listing, headers={**first, **accept, **session})
            assert own.status_code == 200
