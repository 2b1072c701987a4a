"""One stream for several sessions: events, changes of the list, questions."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from service import run_service
from windlass import Agent, tool
from windlass.gates import ask
from windlass.journals import MemoryJournal
from windlass.server.dispatch import RECHECK_S, RevocableChunks
from windlass.server.messages import StreamReply
from windlass.server.tokens import TokenStore
from windlass.testing import ScriptedModel, call, pause, say

STREAM = {"Accept": "text/event-stream"}


@tool
def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


async def collect(chunks: AsyncIterator[bytes], seconds: float) -> list[tuple[str, str, Any]]:
    """Return the frames of some seconds: name, id, data."""
    data = b""

    async def read() -> None:
        nonlocal data
        async for chunk in chunks:
            data += chunk

    reading = asyncio.create_task(read())
    await asyncio.sleep(seconds)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    frames: list[tuple[str, str, Any]] = []
    for block in data.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if "event" in fields:
            frames.append((fields["event"], fields.get("id", ""), json.loads(fields["data"])))
    return frames


def facts_of(frames: list[tuple[str, str, Any]], session: str) -> list[int]:
    return [
        data["event"]["seq"]
        for name, _, data in frames
        if name == "fact" and data["session"] == session
    ]


@pytest.mark.contract("A2")
async def test_a_stream_of_several_sessions_gives_each_fact_once_also_after_a_reconnect() -> None:
    slow = [say("One"), pause(2), say(" two.")]
    with ScriptedModel([slow, slow]) as model:
        async with run_service(Agent(model, name="helper")) as running:
            ann = await running.make_client("ann")
            for name in ("a", "b"):
                await ann.post("/runs", {"prompt": "Count.", "session": name})
            path = "/events?session=a&session=b"
            reply = await ann.send("GET", path, None, STREAM)
            assert isinstance(reply, StreamReply)
            first = await collect(reply.chunks, 1.0)
            await reply.close()
            last_id = [number for _, number, _ in first if number][-1]
            again = await ann.send("GET", path, None, {**STREAM, "Last-Event-ID": last_id})
            assert isinstance(again, StreamReply)
            rest = await collect(again.chunks, 5.0)
            await again.close()
            for session in ("ann.a", "ann.b"):
                seen = facts_of(first, session) + facts_of(rest, session)
                assert seen == list(range(1, seen[-1] + 1))
            snapshots = [data["text"] for name, _, data in rest if name == "snapshot"]
            assert snapshots.count("One") == 2
            states = [data["state"] for name, _, data in rest if name == "session"]
            assert states.count("completed") == 2


@pytest.mark.contract("A4")
async def test_a_stream_of_all_sessions_shows_new_ones_and_questions_of_its_caller_only() -> None:
    with ScriptedModel([[call("send", {"text": "hi"})], "Done."]) as model:
        agent = Agent(model, name="helper", tools=[send], gate=ask())
        async with run_service(agent) as running:
            ann = await running.make_client("ann")
            bob = await running.make_client("bob")
            streams = [await client.send("GET", "/events", None, STREAM) for client in (ann, bob)]
            collecting = [
                asyncio.create_task(collect(reply.chunks, 8.0))
                for reply in streams
                if isinstance(reply, StreamReply)
            ]
            await asyncio.sleep(1)
            await ann.post("/runs", {"prompt": "Send it.", "session": "mail"})
            await asyncio.sleep(3)
            question = (await ann.get("/questions")).data["questions"][0]
            answer = {"call_id": question["call_id"], "answer": {"verdict": "allow"}}
            assert (await ann.post("/runs/mail/answers", answer)).status == 200
            own, foreign = await asyncio.gather(*collecting)
            for reply in streams:
                assert isinstance(reply, StreamReply)
                await reply.close()
            told = [len(data["questions"]) for name, _, data in own if name == "questions"]
            assert (told[0], told[-1]) == (1, 0)
            facts = facts_of(own, "ann.mail")
            assert facts == list(range(1, facts[-1] + 1))
            assert foreign == []


async def test_a_session_of_another_caller_cannot_be_followed() -> None:
    with ScriptedModel(["Hello."]) as model:
        async with run_service(Agent(model, name="helper")) as running:
            ann = await running.make_client("ann")
            bob = await running.make_client("bob")
            await ann.post("/runs", {"prompt": "Hi", "session": "mine"})
            assert (await bob.get("/events?session=ann.mine")).status == 404
            await asyncio.sleep(1)


async def test_an_id_of_another_stream_is_refused() -> None:
    async with run_service(Agent(ScriptedModel([]), name="helper")) as running:
        ann = await running.make_client("ann")
        for bad in ("12", "a:", ":1", "a:x"):
            refused = await ann.get("/events", {**STREAM, "Last-Event-ID": bad})
            assert (refused.status, refused.data["error"]["code"]) == (400, "bad_event_id")


@pytest.mark.contract("A4")
async def test_a_stream_ends_when_its_token_is_revoked() -> None:
    now = 0.0
    tokens = TokenStore(MemoryJournal(), lambda: now)
    made = await tokens.create("ann")
    closed = asyncio.Event()

    async def count() -> AsyncGenerator[bytes]:
        try:
            for number in range(100):
                yield str(number).encode()
        finally:
            closed.set()

    chunks = RevocableChunks(tokens, made.record.to_caller(), count())
    assert [await anext(chunks) for _ in range(3)] == [b"0", b"1", b"2"]
    await tokens.delete(made.record.id)
    assert await anext(chunks) == b"3"
    now = RECHECK_S
    assert [chunk async for chunk in chunks] == []
    await chunks.aclose()
    assert closed.is_set()
