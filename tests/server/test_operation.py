"""What those who operate a service rely on: metrics, traces, and an end that hands runs over."""

import asyncio
import logging
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from service import run_service
from windlass import Agent, tool
from windlass.core.events import RunReleased, RunStarted
from windlass.journals import SqliteJournal
from windlass.server.limits import ServiceLimits
from windlass.server.messages import HttpReply
from windlass.server.serving import raise_descriptor_limit
from windlass.testing import ScriptedModel, call

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


@pytest.mark.contract("A8")
async def test_another_program_reads_the_metrics() -> None:
    with ScriptedModel(["Hello."]) as model:
        async with run_service(Agent(model, name='a "quoted"\\name')) as running:
            ann = await running.make_client("ann")
            await ann.post("/runs", {"prompt": "Hi."})
            await asyncio.sleep(1)
            await ann.get("/nowhere")
            answer = await ann.get("/metrics")
            families = {
                family.name: family
                for family in text_string_to_metric_families(answer.data.decode())
            }
    requests = {
        (sample.labels["route"], sample.labels["status"]): sample.value
        for sample in families["windlass_requests"].samples
    }
    assert requests["startRun", "202"] == 1
    assert requests["", "404"] == 1
    [started] = families["windlass_runs_started"].samples
    assert (started.labels["agent"], started.value) == ('a "quoted"\\name', 1)
    assert families["windlass_request_seconds"].type == "histogram"
    assert families["windlass_ready"].samples[0].value == 1
    assert {family.type for family in families.values()} <= {"counter", "gauge", "histogram"}


@pytest.mark.contract("A8")
async def test_a_trace_goes_into_the_record_and_out_in_the_reply() -> None:
    with ScriptedModel(["Hello."]) as model:
        async with run_service(Agent(model, name="helper")) as running:
            ann = await running.make_client("ann")
            started = await ann.post("/runs", {"prompt": "Hi."}, {"traceparent": PARENT})
            [first, *_] = await running.service.journal.read(started.data["session"])
            assert isinstance(first, RunStarted)
            assert first.trace == PARENT
            request_id = started.headers["X-Request-Id"]
            assert started.headers["traceparent"] == f"00-{TRACE}-{request_id}-01"
            await asyncio.sleep(1)


@pytest.mark.contract("A8")
@pytest.mark.parametrize(
    "header", ["", "nonsense", PARENT[:-1], f"00-{'0' * 32}-b7ad6b7169203331-01", f"ff{PARENT[2:]}"]
)
async def test_a_trace_that_is_not_one_fails_no_request(header: str) -> None:
    with ScriptedModel(["Hello."]) as model:
        async with run_service(Agent(model, name="helper")) as running:
            ann = await running.make_client("ann")
            started = await ann.post("/runs", {"prompt": "Hi."}, {"traceparent": header})
            assert started.status == 202
            assert "traceparent" not in started.headers
            [first, *_] = await running.service.journal.read(started.data["session"])
            assert isinstance(first, RunStarted)
            assert first.trace == ""
            await asyncio.sleep(1)


@pytest.mark.contract("A3")
@pytest.mark.slow
@pytest.mark.realtime
@pytest.mark.parametrize(("drain_s", "finishes"), [(0.1, False), (30.0, True)])
async def test_calls_get_as_long_as_the_limits_say_when_the_service_stops(
    tmp_path: Path, *, drain_s: float, finishes: bool
) -> None:
    begun = asyncio.Event()

    @tool(effect="write")
    async def take_long() -> str:
        """Do something that takes a while."""
        begun.set()
        await asyncio.sleep(1)
        (tmp_path / "effect").touch()
        return "done"

    limits = ServiceLimits(drain_s=drain_s)
    with (
        ScriptedModel([[call("take_long", {})]]) as model,
        SqliteJournal(tmp_path / "s.db") as kept,
    ):
        agent = Agent(model, name="helper", tools=[take_long])
        async with run_service(agent, journal=kept, limits=limits) as running:
            ann = await running.make_client("ann")
            session = (await ann.post("/runs", {"prompt": "Go."})).data["session"]
            await begun.wait()
        last = (await kept.read(session))[-1]
        assert isinstance(last, RunReleased)
        assert last.reason == "the service was stopped"
    assert (tmp_path / "effect").exists() == finishes


@pytest.mark.contract("A8")
async def test_the_line_of_a_request_names_the_run_that_it_started(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "windlass.server.dispatch")
    async with run_service(Agent(ScriptedModel(["Fine."] * 3), name="helper")) as running:
        ann = await running.make_client("ann")
        session = (await ann.post("/runs", {"prompt": "Go."})).data["session"]
        body = {"model": "helper", "messages": [{"role": "user", "content": "Go."}]}
        chat = await ann.post("/v1/chat/completions", body)
        me = await ann.send("GET", "/me")
    assert isinstance(me, HttpReply)
    assert me.encode_body().endswith(b"}\n")
    lines = {record.windlass["route"]: record.windlass["session"] for record in caplog.records}  # pyright: ignore[reportAttributeAccessIssue] - what was logged besides the message
    expected = {"startRun": session, "createChatCompletion": chat.data["windlass"]["session"]}
    assert lines == {**expected, "readCaller": ""}


@pytest.fixture
def file_limit() -> Iterator[None]:
    """Give the limit back that this process had."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("file_limit")
def test_the_limit_of_descriptors_is_raised_to_what_connections_need(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (600, hard))
    raise_descriptor_limit(200)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (200 + 512, hard)
    # Enough is left alone, and too much to ask for is told.
    raise_descriptor_limit(50)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (200 + 512, hard)
    assert not caplog.records
    if hard != resource.RLIM_INFINITY:
        raise_descriptor_limit(hard)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
        assert "raise its limit" in caplog.text
