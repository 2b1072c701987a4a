"""The protocol with a handshake: at any replica, after a lost connection, and with tasks.

Two services share one journal, as replicas do. Messages are sent without a client, so that a test
says which replica gets each of them, and when the connection is lost.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

pytest.importorskip("mcp", reason="needs the extra `mcp`")

from mcp_clients import listen_for_mcp
from mcp_raw_client import YES, Message, RawClient, Received
from service import RunningService
from windlass import Agent, tool
from windlass.gates.presets import ask
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing import ScriptedModel, call, pause, say, stall

pytestmark = [
    pytest.mark.contract("A1", "A6"),
    pytest.mark.realtime,
    pytest.mark.slow,
]
LETTER = call("send", {"to": "bob"})
SLOW = [say("Hel"), pause(0.3), say("lo.")]
SENT: list[str] = []


@tool
def send(to: str) -> str:
    """Send a letter."""
    SENT.append(to)
    return f"sent to {to}"


@pytest.fixture(autouse=True)
def nothing_sent() -> None:
    SENT.clear()


class Scene(NamedTuple):
    """A client, and one of the replicas that it talks to."""

    client: RawClient
    replica: RunningService


@asynccontextmanager
async def open_client(folder: Path, *script: Any, **capabilities: Any) -> AsyncGenerator[Scene]:
    """Run two replicas, and a client of them that has shaken hands with the first."""
    model = ScriptedModel(script)
    async with AsyncExitStack() as stack:
        replicas: list[RunningService] = []
        for _ in range(2):
            journal = stack.enter_context(SqliteJournal(folder / "s.db"))
            agent = Agent(model, name="clerk", tools=[send], gate=ask(), journal=journal)
            running = listen_for_mcp(agent, journal=journal)
            replicas.append(await stack.enter_async_context(running))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        addresses = [replica.address for replica in replicas]
        client = RawClient(addresses, await replicas[0].make_token("ann"), http)
        await client.shake_hands(**capabilities)
        yield Scene(client, replicas[0])


def find_text(response: Message) -> str:
    return response["result"]["structuredContent"]["text"]


async def test_a_question_is_asked_by_one_replica_and_answered_at_the_other(
    tmp_path: Path,
) -> None:
    async with open_client(tmp_path, LETTER, "Written.", elicitation={}) as (client, _):
        arguments = {"prompt": "Write."}
        methods: list[str] = []
        final: Message = {}
        async for one in client.stream(1, "tools/call", name="clerk", arguments=arguments):
            methods.append(one.message.get("method", ""))
            if one.message.get("method") == "elicitation/create":
                assert '"to": "bob"' in one.message["params"]["message"]
                await client.answer_form(0, one.message)
            final = one.message
        assert find_text(final) == "Written."
        assert methods.count("elicitation/create") == 1
    assert SENT == ["bob"]


async def test_a_form_that_is_put_away_at_the_other_replica_ends_the_wait(tmp_path: Path) -> None:
    async with open_client(tmp_path, LETTER, "Written.", elicitation={}) as (client, _):
        final: Message = {}
        arguments = {"prompt": "Write."}
        async for one in client.stream(0, "tools/call", name="clerk", arguments=arguments):
            if one.message.get("method") == "elicitation/create":
                await client.answer_form(1, one.message, {"action": "cancel"})
            final = one.message
        assert final["result"]["structuredContent"]["outcome"] == "suspended"
        # The same question is shown again to one who waits for the run again.
        again = {"session": final["result"]["structuredContent"]["session"]}
        async for one in client.stream(1, "tools/call", name="clerk", arguments=again):
            if one.message.get("method") == "elicitation/create":
                await client.answer_form(0, one.message)
            final = one.message
        assert find_text(final) == "Written."
    assert SENT == ["bob"]


@pytest.mark.contract("A2", "A6")
@pytest.mark.parametrize("replica", [0, 1])
async def test_a_lost_stream_goes_on_by_the_id_of_its_last_event(
    tmp_path: Path, replica: int
) -> None:
    async with open_client(tmp_path, SLOW) as (client, _):
        arguments = {"prompt": "Hi."}
        lost = client.stream(0, "tools/call", 7, name="clerk", arguments=arguments)
        async with aclosing(lost) as events:
            first = await anext(events)
        assert first.message == {}, "the client has an id before anything has happened"
        rest = [one.message async for one in client.resume(replica, first.event)]
        assert [message.get("id") for message in rest if message] == [7]
        assert find_text(rest[-1]) == "Hello."


async def test_a_question_is_not_shown_again_to_a_client_that_comes_back(tmp_path: Path) -> None:
    async with open_client(tmp_path, LETTER, "Written.", elicitation={"form": {}}) as (client, _):
        arguments = {"prompt": "Write."}
        lost = client.stream(0, "tools/call", name="clerk", arguments=arguments)
        form = Received("", {})
        async with aclosing(lost) as events:
            async for form in events:
                if form.message.get("method") == "elicitation/create":
                    break
        rest: list[Message] = []
        answered = False
        async for one in client.resume(1, form.event):
            rest.append(one.message)
            if not answered:
                await client.answer_form(0, form.message)
                answered = True
        assert "elicitation/create" not in [message.get("method") for message in rest]
        assert find_text(rest[-1]) == "Written."
    assert SENT == ["bob"]


@pytest.mark.contract("A5", "A6")
async def test_a_call_that_is_sent_again_finds_its_run(tmp_path: Path) -> None:
    """Its id names it within the session; so does a key, for those who make a new session."""
    async with open_client(tmp_path, "Once.", "Twice.") as (client, _):
        arguments = {"prompt": "Hi."}
        texts: list[str] = []
        for replica in (0, 1):
            sent = client.stream(replica, "tools/call", 5, name="clerk", arguments=arguments)
            texts.append(find_text([one async for one in sent][-1].message))
        assert texts == ["Once.", "Once."]
        client.headers["Idempotency-Key"] = "mine"
        texts = []
        for _ in range(2):
            await client.shake_hands()
            texts.append(find_text(await client.call(0, "Hi.")))
        assert texts == ["Twice.", "Twice."]


async def test_a_request_is_cancelled_at_the_other_replica(tmp_path: Path) -> None:
    async with open_client(tmp_path, [stall()]) as (client, replica):
        waiting = asyncio.create_task(client.call(0, "Go."))
        ann = await replica.make_client("ann")
        while not (await ann.get("/runs")).data["sessions"]:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)
        params = {"requestId": 1, "reason": "enough"}
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        assert await client.post(1, cancel) == 202
        response = await waiting
        assert response["result"]["structuredContent"]["outcome"] == "cancelled"


async def test_a_long_run_is_a_task_of_the_version_that_has_them(tmp_path: Path) -> None:
    async with open_client(tmp_path, LETTER, "Written.", [stall()], elicitation={}) as (client, _):
        hello = await client.shake_hands(elicitation={})
        assert hello["capabilities"]["tasks"]["requests"] == {"tools": {"call": {}}}
        listed = (await client.ask(0, "tools/list"))["result"]["tools"]
        assert listed[0]["execution"] == {"taskSupport": "optional"}
        created = (await client.call(0, "Write.", task={"ttl": 60_000}))["result"]["task"]
        assert created["ttl"] is None
        task = {"taskId": created["taskId"]}
        while (await client.ask(1, "tasks/get", **task))["result"]["status"] == "working":  # noqa: ASYNC110 - a client polls
            await asyncio.sleep(0.05)
        found = (await client.ask(1, "tasks/get", **task))["result"]
        assert found["status"] == "input_required"
        related = {"io.modelcontextprotocol/related-task": task}
        final: Message = {}
        async for one in client.stream(1, "tasks/result", **task):
            if one.message.get("method") == "elicitation/create":
                assert one.message["params"]["_meta"] == related
                await client.answer_form(0, one.message)
            final = one.message
        assert find_text(final) == "Written."
        assert final["result"]["_meta"] == related
        again = await client.ask(0, "tasks/cancel", **task)
        assert again["error"]["code"] == -32602, "it has ended"
        second = (await client.call(1, "Go.", task={}))["result"]["task"]
        ended = await client.ask(0, "tasks/cancel", taskId=second["taskId"])
        assert ended["result"]["status"] == "cancelled"
        tasks = (await client.ask(1, "tasks/list"))["result"]["tasks"]
        assert {one["taskId"] for one in tasks} == {created["taskId"], second["taskId"]}
    assert SENT == ["bob"]


async def test_an_older_client_gets_no_tasks_and_no_empty_events(tmp_path: Path) -> None:
    async with open_client(tmp_path, "Hello.", "Hello.") as (client, _):
        hello = await client.shake_hands("2025-03-26")
        assert hello["protocolVersion"] == "2025-03-26"
        assert "tasks" not in hello["capabilities"]
        assert "execution" not in (await client.ask(0, "tools/list"))["result"]["tools"][0]
        sent = client.stream(0, "tools/call", name="clerk", arguments={"prompt": "Hi."}, task={})
        messages = [one.message async for one in sent]
        assert find_text(messages[0]) == "Hello."
        assert (await client.shake_hands("1999-01-01"))["protocolVersion"] == "2025-11-25"


@pytest.mark.contract("A4", "A6")
async def test_the_ids_of_another_caller_lead_nowhere(tmp_path: Path) -> None:
    async with open_client(tmp_path, SLOW, LETTER, elicitation={}) as (ann, replica):
        arguments = {"prompt": "Hi."}
        async with aclosing(ann.stream(0, "tools/call", name="clerk", arguments=arguments)) as own:
            event = (await anext(own)).event
        bob = RawClient(ann.addresses, await replica.make_token("bob"), ann.http)
        bob.headers["Mcp-Session-Id"] = ann.headers["Mcp-Session-Id"]
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert await bob.post(0, body) == 404
        await bob.shake_hands(elicitation={})
        headers = {**bob.headers, "Last-Event-ID": event}
        async with bob.http.get(f"{bob.addresses[0]}/mcp", headers=headers) as reply:
            assert reply.status == 404
        task = (await ann.call(0, "Write.", task={}))["result"]["task"]
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            refused = await bob.ask(1, method, taskId=task["taskId"])
            assert refused["error"]["data"]["code"] == "session_not_found"
        assert (await bob.ask(1, "tasks/list"))["result"]["tasks"] == []
        asking = ann.stream(0, "tasks/result", taskId=task["taskId"])
        async with aclosing(asking) as events:
            async for one in events:
                if one.message.get("method") == "elicitation/create":
                    answer = {"jsonrpc": "2.0", "id": one.message["id"], "result": YES}
                    assert await bob.post(1, answer) == 404
                    break
    assert SENT == []


async def test_messages_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    async with open_client(tmp_path) as (client, _):
        url = f"{client.addresses[0]}/mcp"
        async with client.http.post(url, data=b"{", headers=client.headers) as reply:
            assert reply.status == 400
        assert (await client.ask(0, "resources/list"))["error"]["code"] == -32601
        assert (await client.ask(0, "tools/call"))["error"]["code"] == -32602
        assert (await client.ask(0, "tasks/get", taskId="x"))["error"]["code"] == -32602
        assert (await client.ask(0, "ping"))["result"] == {}
        async with client.http.get(url, headers=client.headers) as reply:
            assert reply.status == 405
        async with client.http.delete(url, headers=client.headers) as reply:
            assert reply.status == 204
        client.headers["Accept"] = "application/json"
        body = {"jsonrpc": "2.0", "id": 9, "method": "tools/call"}
        body["params"] = {"name": "clerk", "arguments": {"session": "nothing"}}
        assert await client.post(0, body) == 200
        client.headers["Mcp-Session-Id"] = "of-an-older-service"
        assert await client.post(0, body) == 404
