"""Runs that a service has accepted and no worker has begun: by every route and protocol."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from service import DirectClient, RunningService
from windlass import Agent
from windlass.journals import MemoryJournal
from windlass.server.access import TeamGrant
from windlass.server.dispatch import Dispatcher
from windlass.server.messages import StreamReply
from windlass.server.quotas.admission import Quota, QuotaStore
from windlass.server.service import Service
from windlass.testing import ScriptedModel

ANSWERS = ["One.", "Two.", "Three."]


@asynccontextmanager
async def accept_only() -> AsyncGenerator[tuple[RunningService, Agent[str]]]:
    """Run a service that drives nothing, and an agent that a worker would have."""
    agent = Agent(ScriptedModel(ANSWERS), name="helper", journal=MemoryJournal())
    async with Service(agent, drives=False) as service:
        yield RunningService(service, Dispatcher(service)), agent


async def start(client: DirectClient, session: str = "q", **more: Any) -> Any:
    reply = await client.post("/runs", {"prompt": "Tidy up.", "session": session, **more})
    assert reply.status == 202
    return reply.data


@pytest.mark.contract("D14", "A2")
async def test_an_accepted_run_is_read_listed_and_steered_at_once() -> None:
    """D14: without any worker, and by its caller alone."""
    async with accept_only() as (running, agent):
        ann = await running.make_client("ann")
        started = await start(ann)
        assert (started["run"], started["queued"], started["prompt"]) == (1, 1, 1)
        read = (await ann.get("/runs/q")).data
        assert read["summary"]["state"] == "queued"
        assert (read["run"]["queued"], read["status"]["waits_for"]) == (True, "driver")
        listed = (await ann.get("/runs?state=queued")).data["sessions"]
        assert [each["session"] for each in listed] == ["ann.q"]
        assert (await ann.get("/runs/q/explain")).status == 200
        assert (await ann.get("/runs/q/records")).status == 200
        bob = await running.make_client("bob")
        for path in ("/runs/ann.q", "/runs/ann.q/queue", "/runs/ann.q/queue/1"):
            assert (await bob.get(path)).status == 404
        assert (await bob.get("/runs?state=queued")).data["sessions"] == []
        assert (await ann.post("/runs/q/steer", {"prompt": "Quickly."})).status == 202
        assert (await agent.drive("ann.q")) is not None
        read = (await ann.get("/runs/q")).data
        assert [each["entry"] for each in read["entries"]][:3] == ["notice", "prompt", "steering"]
        assert read["summary"]["state"] == "completed"


@pytest.mark.contract("D14")
async def test_an_accepted_run_is_paused_resumed_and_cancelled_without_a_worker() -> None:
    async with accept_only() as (running, agent):
        ann = await running.make_client("ann")
        await start(ann)
        assert (await ann.post("/runs/q/pause")).data["taken"]
        assert (await ann.get("/runs/q")).data["summary"]["state"] == "paused"
        assert (await agent.sweep()).driven == ()
        assert (await ann.post("/runs/q/resume")).data["taken"]
        assert (await ann.get("/runs/q")).data["summary"]["state"] == "queued"
        assert (await ann.post("/runs/q/cancel")).data["taken"]
        assert (await ann.get("/runs/q")).data["summary"]["state"] == "cancelled"
        assert (await ann.post("/runs/q/cancel")).status == 409
        assert (await agent.sweep()).driven == ()


@pytest.mark.contract("D14", "W1")
async def test_an_accepted_run_is_watched_from_its_acceptance_to_its_end() -> None:
    async with accept_only() as (running, _):
        ann = await running.make_client("ann")
        await start(ann)
        request = ann.make_request("GET", "/runs/q/events", None, {"accept": "text/event-stream"})
        reply = await running.dispatcher.handle(request)
        assert isinstance(reply, StreamReply)
        seen = b""
        async for chunk in reply.chunks:
            seen += chunk
            if b"RunEnded" in seen:
                break
            if b"RunQueued" in seen:
                await ann.post("/runs/q/cancel")
        await reply.close()
        assert re.findall(rb'"type":"(Run\w+)"', seen) == [b"RunQueued", b"RunEnded"]


@pytest.mark.contract("D14", "D7")
async def test_a_prompt_behind_a_run_is_listed_read_and_withdrawn_by_its_number() -> None:
    async with accept_only() as (running, agent):
        ann = await running.make_client("ann")
        await start(ann)
        assert (await ann.post("/runs", {"prompt": "No.", "session": "q"})).status == 409
        second = await start(ann, on_busy="queue")
        third = await start(ann, on_busy="queue")
        assert (second["run"], second["queued"], second["prompt"]) == (0, 2, 2)
        queue = (await ann.get("/runs/q/queue")).data["prompts"]
        assert [(each["number"], each["run"]) for each in queue] == [(1, 1), (2, 0), (3, 0)]
        assert queue[1]["prompt"][0]["text"] == "Tidy up."
        assert (await ann.get("/runs/q/queue/2")).data["caller"] == "ann"
        assert (await ann.ask("DELETE", "/runs/q/queue/2")).data["taken"]
        assert (await ann.get("/runs/q/queue/2")).status == 404
        assert (await ann.ask("DELETE", "/runs/q/queue/2")).data["error"]["code"] == (
            "prompt_not_found"
        )
        assert [each["number"] for each in (await ann.get("/runs/q/queue")).data["prompts"]] == [
            1,
            third["prompt"],
        ]
        await agent.drive("ann.q")
        runs = (await ann.get("/runs/q")).data
        assert (runs["run"]["number"], runs["run"]["text"]) == (2, "Two.")


@pytest.mark.contract("D14", "A9")
async def test_runs_in_the_queue_count_as_runs_at_once() -> None:
    """A9: a caller cannot have more runs by filling the queue."""
    async with accept_only() as (running, _):
        await QuotaStore(running.service.journal).put(Quota(name="few", runs_at_once=2))
        ann = await running.make_client("ann")
        codes: list[int] = []
        for at in range(6):
            body = {"prompt": "Go.", "session": f"q{at}"}
            codes.append((await ann.post("/runs", body)).status)
            # Longer than a start may take to begin: only what is on record counts then.
            await asyncio.sleep(30)
        assert codes == [202, 202, 429, 429, 429, 429]
        assert (await ann.post("/runs/q0/cancel")).status == 200
        assert (await ann.post("/runs", {"prompt": "Go.", "session": "q9"})).status == 202


@pytest.mark.contract("D14", "A8")
async def test_a_response_in_the_background_is_queued_until_a_worker_begins_it() -> None:
    async with accept_only() as (running, agent):
        ann = await running.make_client("ann")
        body = {"model": "helper", "input": "Hi.", "background": True, "store": True}
        made = await ann.post("/v1/responses", body)
        assert made.status == 200, made.data
        assert made.data["status"] == "queued"
        session = made.data["windlass"]["session"]
        assert (await ann.get(f"/v1/responses/{made.data['id']}")).data["status"] == "queued"
        await agent.drive(session)
        read = (await ann.get(f"/v1/responses/{made.data['id']}")).data
        assert (read["status"], msgspec.json.encode(read["output"]).count(b"One.")) == (
            "completed",
            1,
        )


@pytest.mark.contract("D14", "A7")
async def test_a_task_is_submitted_until_a_worker_begins_it() -> None:
    async with accept_only() as (running, agent):
        ann = await running.make_client("ann")
        message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "Hi."}]}
        params = {"message": message, "configuration": {"returnImmediately": True}}
        call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
        headers = {"A2A-Version": "1.0"}
        task = (await ann.post("/a2a/helper", call, headers)).data["result"]["task"]
        assert task["status"]["state"] == "TASK_STATE_SUBMITTED"
        listing = {**call, "method": "ListTasks", "params": {"status": "TASK_STATE_SUBMITTED"}}
        found = (await ann.post("/a2a/helper", listing, headers)).data["result"]["tasks"]
        assert [each["id"] for each in found] == [task["id"]]
        cancel = {**call, "method": "CancelTask", "params": {"id": task["id"]}}
        ended = (await ann.post("/a2a/helper", cancel, headers)).data["result"]
        assert ended["status"]["state"] == "TASK_STATE_CANCELED"
        assert (await agent.sweep()).driven == ()


@pytest.mark.contract("D14", "A2")
async def test_those_who_only_watch_a_session_do_not_see_the_prompt_in_its_queue() -> None:
    """D14: it is masked by pattern alone until its driver, which knows the secrets, has it."""
    async with accept_only() as (running, _):
        await start(await running.make_client("ann"))
        grants = (TeamGrant("viewer", ("helper",)),)
        made = await running.service.tokens.create("bob", ("watch",), person="bob", grants=grants)
        bob = DirectClient(running.dispatcher, made.secret)
        (seen,) = (await bob.get("/runs/ann.q/queue")).data["prompts"]
        assert (seen["number"], seen["caller"], seen["prompt"]) == (1, "ann", None)
        admin = await running.make_client("", ("admin",))
        (seen,) = (await admin.get("/runs/ann.q/queue")).data["prompts"]
        assert seen["prompt"][0]["text"] == "Tidy up."
