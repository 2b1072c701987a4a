"""Callers of a service who have a token, or none, and want to use it up for all others."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from threading import Event
from typing import Any

import aiohttp
import pytest

from service import DirectClient, RunningService, listen_service, run_service
from windlass import Agent, ModelInfo, Price
from windlass.core.errors import ConfigError, JournalCorrupt, JournalFailed, WindlassError
from windlass.core.messages import FilePart
from windlass.journals import MemoryJournal
from windlass.server.access import Caller
from windlass.server.errors import ApiError, api_error_from
from windlass.server.jwt_tokens import JwtAuthenticator
from windlass.server.limits import ServiceLimits
from windlass.server.messages import StreamReply
from windlass.server.request_log import TextFormatter
from windlass.server.schedules.times import CronTimes, check_times
from windlass.server.uploads import UploadStore
from windlass.testing import ScriptedModel, VirtualClock, pause, say, usage

PRICED = ModelInfo("test:model", price=Price(Decimal(1), Decimal(1)))
SLOW_CODE = "a " * 30_000
"""Pygments needs minutes to read it as Java."""


def make_agent(*replies: Any) -> Agent[str]:
    return Agent(ScriptedModel([*replies], info=PRICED), name="helper")


def reply(seconds: float) -> list[Any]:
    return [pause(seconds), say("Done."), usage(input=1_000_000, output=500_000)]


async def set_quota(running: RunningService, **body: Any) -> None:
    admin = await running.make_client("root", ["admin"])
    assert (await admin.ask("PUT", "/quotas/q", body)).status == 200


async def wait_until(is_so: Callable[[], bool]) -> None:
    for _ in range(1_000):
        if is_so():
            return
        await asyncio.sleep(0.05)
    pytest.fail("it does not come to pass")


async def test_code_that_takes_minutes_to_colour_has_no_colours() -> None:
    """A1. Colouring it in the service would stop all other requests for as long."""
    async with run_service(make_agent()) as running:
        eve = await running.make_client("eve", ["watch"])
        slow = {"language": "java", "code": SLOW_CODE}
        known = {"language": "python", "code": "def f(): ..."}
        hostile = asyncio.create_task(eve.post("/page/highlight", slow))
        await asyncio.sleep(0)
        assert (await eve.get("/healthz")).status == 200
        assert not hostile.done()
        assert (await hostile).data == {"spans": None}
        assert ["keyword", "def"] in (await eve.post("/page/highlight", known)).data["spans"]


async def test_a_prompt_that_names_one_upload_many_times_is_refused(clock: VirtualClock) -> None:
    """A1. Some bytes of a request would become gigabytes of memory."""
    journal = MemoryJournal(now=clock.now)
    store = UploadStore(journal, ServiceLimits(prompt_uploads_bytes=250), clock.now)
    ann = Caller("ann", frozenset({"start"}))
    kept = await store.keep(ann, b"x" * 100, "text/plain", "a")
    part = FilePart("", "", url=f"upload:{kept.name}")
    assert len(await store.resolve(ann, (part,) * 2)) == 2
    with pytest.raises(ApiError) as refused:
        await store.resolve(ann, (part,) * 3)
    assert (refused.value.status, refused.value.code) == (413, "prompt_too_long")


@pytest.mark.one_process
async def test_the_bodies_of_one_caller_are_bounded_together() -> None:
    """A1. Each fits, and all of them at once would fill the memory."""
    limits = ServiceLimits(bodies_bytes=250_000)
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def body() -> AsyncGenerator[bytes]:
        yield b"x" * 150_000
        await wait_until(lambda: running.dispatcher.bodies.count_of("sam") >= 150_000)
        begun.set()
        await go_on.wait()
        yield b"x" * 10_000

    text = {"Content-Type": "text/plain"}
    async with (
        listen_service(make_agent(), limits=limits) as running,
        running.open_client("sam") as sam,
        running.open_client("ann") as ann,
    ):

        async def upload(client: aiohttp.ClientSession, data: Any) -> int:
            async with client.post("/uploads", data=data, headers=text) as answer:
                return answer.status

        first = asyncio.create_task(upload(sam, body()))
        await begun.wait()
        async with sam.post("/uploads", data=b"y" * 150_000, headers=text) as refused:
            assert refused.status == 429
            assert (await refused.json())["error"]["code"] == "too_many_bytes"
        # Others are not concerned, and what was refused does not count.
        assert await upload(ann, b"y" * 150_000) == 201
        go_on.set()
        assert await first == 201
        assert await upload(sam, b"y" * 150_000) == 201
        assert running.dispatcher.bodies.count_of("sam") == 0


@pytest.mark.one_process
async def test_replies_that_a_caller_does_not_read_are_bounded_together() -> None:
    """A1. A request of some bytes has a reply as long as its session."""
    limits = ServiceLimits(bodies_bytes=30_000_000, stalled_write_s=15.0)
    async with (
        listen_service(make_agent("Done."), limits=limits) as running,
        running.open_client("sam") as sam,
    ):
        long = {"prompt": "x" * 14_000_000, "session": "one"}
        assert (await (await running.make_client("sam")).post("/runs", long)).status == 202
        host, port = running.address.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1_024)
        head = f"GET /runs/one HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer "
        writer.write(f"{head}{await running.make_token('sam')}\r\n\r\n".encode())
        bodies = running.dispatcher.bodies
        await wait_until(lambda: bodies.count_of("sam") >= 14_000_000)
        async with sam.get("/runs/one") as whole:
            assert len(await whole.read()) > 14_000_000
        bodies.hold_reply("sam", 10_000_000)
        async with sam.get("/runs/one") as refused:
            assert (refused.status, (await refused.json())["error"]["code"]) == (
                429,
                "too_many_bytes",
            )
        # A client that takes nothing is cut off, and no longer counts.
        await wait_until(lambda: bodies.count_of("sam") <= 10_000_000)
        async with sam.get("/runs/one") as whole:
            assert whole.status == 200
        writer.close()
        assert reader is not None


def test_what_a_client_names_cannot_forge_a_line_of_the_log() -> None:
    """A8. A path is logged before its token is checked, so anybody chooses its words."""
    name = "x\n12:00:00 POST createToken caller=root\x1b]0;pwned\x07"
    record = logging.makeLogRecord(
        {
            "msg": "GET readRun\x1b[2J",
            "windlass": {"session": name, "caller": "", "status": 401},
            "exc_text": "ValueError: a\x1b[31m\nb",
        }
    )
    line, *error = TextFormatter().format(record).split("\n")
    assert error == ["ValueError: a\\x1b[31m", "b"]
    assert line.isprintable()
    assert (
        "session='x\\n12:00:00 POST createToken caller=root\\x1b]0;pwned\\x07' status=401" in line
    )
    record.windlass = {"session": "x status=200"}
    assert TextFormatter().format(record).split("\n")[0].endswith(" session='x status=200'")


def test_an_endless_cron_expression_is_refused_before_it_is_read() -> None:
    """A6. Reading it would stop all other requests for seconds."""
    every = ",".join(map(str, range(60)))
    check_times(CronTimes(f"{every} {','.join(map(str, range(24)))} * * *"))
    with pytest.raises(ConfigError, match="at most 1000 characters"):
        check_times(CronTimes(f"{','.join(['0'] * 1_000)} * * * *"))


@pytest.mark.parametrize("kind", [JournalFailed, JournalCorrupt])
def test_a_client_is_not_told_where_the_journal_is(
    kind: type[WindlassError], caplog: pytest.LogCaptureFixture
) -> None:
    """A8. The operator finds it in the log."""
    where = "postgresql://db.internal:5432/windlass: permission denied for schema runs"
    told = api_error_from(kind(where))
    assert "internal" not in str(told)
    assert where in caplog.text


@pytest.mark.contract("T18")
async def test_a_message_of_countless_lists_is_refused_in_every_version_of_mcp() -> None:
    """The SDK would decode it in the event loop."""
    pytest.importorskip("mcp", reason="needs the extra `mcp`")
    crowd = b'{"jsonrpc": "2.0", "id": 1, "params": [' + b"[]," * 100_000 + b"[]]}"
    async with run_service(make_agent()) as running:
        eve = await running.make_client("eve", ["watch"])
        for version in ("2025-06-18", "2026-06-30", "none"):
            headers = {"MCP-Protocol-Version": version, "Accept": "application/json"}
            refused = await eve.ask("POST", "/mcp", crowd, headers)
            assert refused.status == 413


@pytest.mark.contract("A4")
@pytest.mark.parametrize("into", ["", "copy"])
async def test_a_fork_with_an_open_run_counts_as_a_start(into: str) -> None:
    """Its run is driven like any other one."""
    async with run_service(make_agent(*[reply(100)] * 9)) as running:
        await set_quota(running, runs_at_once=2)
        sam = await running.make_client("sam")
        assert (await sam.post("/runs", {"prompt": "Go.", "session": "one"})).status == 202
        fork = {"at": 1, "into": into}
        statuses = await asyncio.gather(*(fork_one(sam, fork, nth) for nth in range(5)))
        assert sorted(statuses) == [201, 429, 429, 429, 429]
        await asyncio.sleep(300)
        # One that has ended begins nothing.
        last = (await sam.get("/runs/one")).data["seq"]
        await set_quota(running, starts_per_min=1)
        await asyncio.sleep(5)
        assert (await sam.post("/runs", {"prompt": "Go.", "session": "two"})).status == 202
        assert (await sam.post("/runs/one/fork", {"at": last})).status == 201
        await asyncio.sleep(300)


async def fork_one(client: DirectClient, body: dict[str, Any], nth: int) -> int:
    into = body["into"] and f"{body['into']}-{nth}"
    return (await client.post("/runs/one/fork", {**body, "into": into})).status


@pytest.mark.contract("A4")
async def test_a_run_that_begins_because_there_was_nothing_to_steer_has_its_budgets() -> None:
    """The run that a prompt was meant for may end before the prompt is taken."""
    async with run_service(make_agent(*[reply(100)] * 2)) as running:
        await set_quota(running, usd_per_day="100")
        sam = await running.make_client("sam")
        steering = {"prompt": "And?", "session": "one", "on_busy": "steer"}
        assert (await sam.post("/runs", {"prompt": "Go.", "session": "one"})).status == 202
        session = await running.service.find_session(Caller("sam", frozenset({"watch"})), "one")
        start = running.service.quotas.find_budgets

        async def end_first(caller: str, agent: str) -> Any:
            receipt = await running.service.cancel(session)
            await receipt.taken()
            return await start(caller, agent)

        running.service.quotas.find_budgets = end_first
        assert (await sam.post("/runs", steering)).data["run"] == 2
        setup = (await running.service.read_again(session)).view.setup
        assert setup is not None
        (budget,) = await start("sam", "")
        assert [each.name for each in setup.budgets] == [budget.name]
        await asyncio.sleep(300)


async def test_a_page_that_leaves_at_once_leaves_nothing_behind() -> None:
    """A1. What it watches would be kept for it for ever."""
    async with run_service(make_agent()) as running:
        eve = await running.make_client("eve", ["watch"])
        for frames in range(1, 4):
            stream = await eve.send("GET", "/page/feed")
            assert isinstance(stream, StreamReply)
            chunks = aiter(stream.chunks)
            for _ in range(frames):
                await anext(chunks)
            await stream.close()
            assert not running.service.feed.is_watched


async def test_a_provider_that_does_not_answer_stops_no_other_caller() -> None:
    """A4. What looks like a token of its is sent by clients that have none."""
    answers = Event()

    def verify(_secret: str) -> dict[str, Any]:
        assert answers.wait(60)
        raise ValueError("not a token")

    authenticator = JwtAuthenticator(verify)
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(2))
    guesses = [asyncio.create_task(authenticator.authenticate("a.b.c")) for _ in range(8)]
    try:
        await asyncio.sleep(0)
        other = asyncio.create_task(asyncio.to_thread(time.monotonic))
        await asyncio.wait({other, *guesses}, return_when=asyncio.FIRST_COMPLETED)
        assert other.done()
    finally:
        answers.set()
    assert await asyncio.gather(*guesses) == [None] * 8
