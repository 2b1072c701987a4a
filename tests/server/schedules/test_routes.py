"""Schedules over HTTP: made, listed, paused and deleted by their owners only."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from service import DirectClient, RunningService, run_service
from windlass import Agent
from windlass.journals.memory import MemoryJournal
from windlass.server import IntervalTimes, NewSchedule, ScheduleStore, Service
from windlass.testing import ScriptedModel, say

pytestmark = [pytest.mark.slow, pytest.mark.contract("F4")]
CRON = {"type": "cron", "expression": "30 8 * * MON-FRI", "timezone": "Europe/Berlin"}


@asynccontextmanager
async def running() -> AsyncGenerator[tuple[RunningService, DirectClient]]:
    agent = Agent(ScriptedModel([]), name="helper", journal=MemoryJournal())
    async with run_service(agent) as service:
        yield service, await service.make_client("ann")


async def test_a_schedule_is_made_read_paused_resumed_and_deleted() -> None:
    async with running() as (_, client):
        body = {"name": "report", "prompt": "Report.", "times": CRON, "agent": "helper"}
        made = await client.post("/schedules", body)
        assert (made.status, made.headers["Location"]) == (201, "/schedules/ann.report")
        assert made.data["next_time"] > time.time()
        assert made.data["owner"] == "ann"
        for name in ("report", "ann.report"):
            assert (await client.get(f"/schedules/{name}")).data == made.data
        paused = await client.post("/schedules/report/pause", {"reason": "holiday"})
        assert (paused.data["is_paused"], paused.data["pause_reason"]) == (True, "holiday")
        assert paused.data["next_time"] is None
        resumed = await client.post("/schedules/report/resume")
        assert resumed.data["next_time"] == made.data["next_time"]
        listed = await client.get("/schedules")
        assert [one["name"] for one in listed.data["schedules"]] == ["ann.report"]
        assert (await client.ask("DELETE", "/schedules/report")).status == 204
        assert (await client.get("/schedules")).data["schedules"] == []


@pytest.mark.contract("A4")
async def test_a_schedule_of_another_owner_does_not_exist() -> None:
    async with running() as (service, client):
        await client.post("/schedules", {"name": "mine", "prompt": "x", "times": CRON})
        other = await service.make_client("bob")
        admin = await service.make_client("root", ["admin"])
        for name in ("mine", "ann.mine"):
            for method, path in (
                ("GET", f"/schedules/{name}"),
                ("POST", f"/schedules/{name}/pause"),
                ("POST", f"/schedules/{name}/resume"),
                ("DELETE", f"/schedules/{name}"),
            ):
                answer = await other.ask(method, path, {} if method == "POST" else None)
                assert (answer.status, answer.data["error"]["code"]) == (404, "schedule_not_found")
        assert (await other.get("/schedules")).data["schedules"] == []
        assert (await admin.get("/schedules/ann.mine")).status == 200
        assert len((await admin.get("/schedules")).data["schedules"]) == 1
        watcher = await service.make_client("ann", ["watch"])
        assert (await watcher.get("/schedules/mine")).status == 200
        assert (await watcher.ask("DELETE", "/schedules/mine")).status == 403


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"times": {"type": "cron", "expression": "nonsense"}}, "invalid_request"),
        (
            {"times": {"type": "cron", "expression": "0 8 * * *", "timezone": "X"}},
            "invalid_request",
        ),
        ({"times": {"type": "interval", "every_s": 0}}, "invalid_request"),
        ({"times": {"type": "yearly"}}, "invalid_request"),
        ({"name": "a/b"}, "invalid_request"),
        ({"prompt": ""}, "invalid_request"),
        ({"overlap": "explode"}, "invalid_request"),
        ({"agent": "nobody"}, "agent_not_found"),
        ({"owner": "bob"}, "invalid_request"),
    ],
)
async def test_what_cannot_be_used_is_told(change: dict[str, object], code: str) -> None:
    async with running() as (_, client):
        body = {"name": "s", "prompt": "x", "times": CRON, **change}
        answer = await client.post("/schedules", body)
        assert (answer.status, answer.data["error"]["code"]) in (
            (422, code),
            (404, code),
        )
        assert answer.data["error"]["message"]


@pytest.mark.realtime
async def test_the_service_fires_a_schedule_on_behalf_of_its_owner() -> None:
    agent = Agent(ScriptedModel([[say("done")]] * 9), name="helper", journal=MemoryJournal())
    async with run_service(agent) as service:
        client = await service.make_client("ann")
        times = {"type": "once", "at": int(time.time())}
        await client.post("/schedules", {"name": "now", "prompt": "Report.", "times": times})
        session = ""
        while not session:
            await asyncio.sleep(0.05)
            session = (await client.get("/schedules/now")).data["last_session"]
        run = await client.get(f"/runs/{session}")
        assert run.data["summary"]["owner"] == "ann"
        assert session.startswith("ann.schedule-now-")
        other = await service.make_client("bob")
        assert (await other.get(f"/runs/{session}")).status == 404


@pytest.mark.realtime
async def test_a_run_that_no_worker_has_begun_counts_as_the_one_before() -> None:
    """A service that leaves its runs to workers does not pile them up."""
    journal = MemoryJournal()
    agent = Agent(ScriptedModel([]), name="helper", journal=journal)
    async with Service([agent], journal=journal, drives=False) as service:
        store = ScheduleStore(journal, time.time)
        times = IntervalTimes(1, int(time.time()) + 1)
        await store.create_schedule(NewSchedule(name="s", agent="", prompt="Go.", times=times))
        while True:
            known = await store.get("s")
            if known.skipped:
                break
            await asyncio.sleep(0.1)
        assert known.started == 1
        assert service.is_ready
        assert len(await journal.list_mailed()) == 1
