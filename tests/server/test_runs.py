"""Runs over HTTP: start, read, watch, answer, cancel; by their own callers only."""

import asyncio
import base64
from collections.abc import Sequence

import pytest
from typing_extensions import override

from service import DirectClient, run_service
from windlass import Agent, Fact, JournalFailed, RunStarted, tool
from windlass.core.rate_limits import read_priority
from windlass.gates import ask
from windlass.journals import MemoryJournal
from windlass.server.access import Caller
from windlass.server.messages import StreamReply
from windlass.testing import ScriptedModel, call, pause, say

CALLER_ANN = Caller("ann", frozenset({"watch", "start"}))


@tool
def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


class UnreachableJournal(MemoryJournal):
    """A journal that can be away."""

    is_away = False

    @override
    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        if self.is_away:
            raise JournalFailed("the server is away")
        return await super().read(session, after)


def read_frames(data: bytes) -> list[tuple[str, str]]:
    """Return the name and the id of each frame."""
    frames: list[tuple[str, str]] = []
    for block in data.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if "event" in fields:
            frames.append((fields["event"], fields.get("id", "")))
    return frames


async def test_runs_are_listed_by_the_tags_that_they_were_started_with() -> None:
    with ScriptedModel(["One.", "Two.", "Three."]) as model:
        async with run_service(Agent(model, name="helper")) as running:
            ann = await running.make_client("ann")
            tags = {"team": "billing", "order": "a=b&c"}
            first = await ann.post("/runs", {"prompt": "One", "tags": tags, "session": "x"})
            await ann.post("/runs", {"prompt": "Two", "tags": {"team": "sales"}})
            await asyncio.sleep(1)
            found = (await ann.get("/runs?tag=team=billing")).data["sessions"]
            assert [each["session"] for each in found] == [first.data["session"]]
            assert found[0]["tags"] == tags
            read = await ann.get(f"/runs/{first.data['session']}")
            assert read.data["summary"]["tags"] == tags
            assert (await ann.get("/runs?tag=team=x")).data["sessions"] == []
            assert (await ann.get("/runs?tag=team")).status == 422
            # The tags are those of the last run.
            await ann.post("/runs", {"prompt": "Three", "session": "x"})
            await asyncio.sleep(1)
            assert (await ann.get("/runs?tag=team=billing")).data["sessions"] == []


@pytest.mark.parametrize(
    "tags",
    [
        {"a b": "x"},
        {"": "x"},
        {"a": "x\ny"},
        {"a": "x" * 201},
        dict.fromkeys("abcdefghijklmnopq", ""),
    ],
)
async def test_tags_that_are_not_short_texts_are_refused(tags: dict[str, str]) -> None:
    async with run_service(Agent(ScriptedModel([]), name="helper")) as running:
        ann = await running.make_client("ann")
        refused = await ann.post("/runs", {"prompt": "One", "tags": tags})
        assert (refused.status, refused.data["error"]["code"]) == (422, "invalid_request")
        assert "ags= has" in refused.data["error"]["message"]


@pytest.mark.contract("A2")
async def test_a_run_is_started_watched_and_read() -> None:
    with ScriptedModel([[say("Hel"), pause(1), say("lo.")]]) as model:
        async with run_service(Agent(model, name="helper")) as running:
            ann = await running.make_client("ann")
            started = await ann.post("/runs", {"prompt": "Say hello."})
            assert started.status == 202
            session = started.data["session"]
            assert session.startswith("ann.")
            assert started.headers["Location"] == f"/runs/{session}"
            reply = await ann.send(
                "GET", f"/runs/{session}/events", None, {"Accept": "text/event-stream"}
            )
            assert isinstance(reply, StreamReply)
            data = b"".join([chunk async for chunk in reply.chunks])
            await reply.close()
            frames = read_frames(data)
            assert frames[0] == ("snapshot", "")
            facts = [int(number) for name, number in frames if name == "fact"]
            assert facts == list(range(1, facts[-1] + 1))
            assert all(not number for name, number in frames if name != "fact")
            read = await ann.get(f"/runs/{session}")
            assert read.data["summary"]["state"] == "completed"
            assert read.data["entries"][-2]["parts"][0]["text"] == "Hello."
            again = await ann.send(
                "GET",
                f"/runs/{session}/events",
                None,
                {"Accept": "text/event-stream", "Last-Event-ID": str(facts[-1])},
            )
            assert again.status == 204


@pytest.mark.contract("F9")
async def test_a_client_that_saw_more_than_there_is_gets_everything_again() -> None:
    """The database lost what the client saw: the number in its snapshot is lower than its own."""
    with ScriptedModel(["Hello."]) as model:
        async with run_service(Agent(model, name="helper")) as running:
            ann = await running.make_client("ann")
            session = (await ann.post("/runs", {"prompt": "Hi"})).data["session"]
            headers = {"Accept": "text/event-stream"}
            seen: list[list[int]] = []
            for ahead in ({}, {"Last-Event-ID": "100"}):
                reply = await ann.send("GET", f"/runs/{session}/events", None, {**headers, **ahead})
                assert isinstance(reply, StreamReply)
                data = b"".join([chunk async for chunk in reply.chunks])
                await reply.close()
                assert b'"seq":0' in data.split(b"\n\n")[1]
                seen.append([int(nth) for name, nth in read_frames(data) if name == "fact"])
            assert seen[0] == seen[1] != []


@pytest.mark.contract("A4")
async def test_a_session_of_another_caller_does_not_exist() -> None:
    with ScriptedModel(["Hello."]) as model:
        async with run_service(Agent(model, name="helper")) as running:
            ann = await running.make_client("ann")
            bob = await running.make_client("bob")
            session = (await ann.post("/runs", {"prompt": "Hi", "session": "mine"})).data["session"]
            assert session == "ann.mine"
            assert (await ann.get("/runs/mine")).status == 200
            for name in ("mine", "ann.mine"):
                assert (await bob.get(f"/runs/{name}")).status == 404
            assert (await bob.get("/runs")).data["sessions"] == []
            admin = await running.make_client("", ["admin"])
            assert (await admin.get("/runs/ann.mine")).status == 200
            await asyncio.sleep(1)


@pytest.mark.contract("A4")
async def test_no_token_and_a_wrong_token_are_refused() -> None:
    async with run_service(Agent(ScriptedModel([]), name="helper")) as running:
        ann = await running.make_client("ann", ["watch"])
        assert (await ann.post("/runs", {"prompt": "Hi"})).data["error"]["code"] == "role_missing"
        ann.token = ann.token[:-1] + ("A" if ann.token[-1] != "A" else "B")
        refused = await ann.get("/runs")
        assert (refused.status, refused.data["error"]["code"]) == (401, "token_needed")


@pytest.mark.contract("A4")
async def test_a_question_is_listed_and_answered() -> None:
    with ScriptedModel([[call("send", {"text": "hi"})], "Done."]) as model:
        agent = Agent(model, name="helper", tools=[send], gate=ask())
        async with run_service(agent) as running:
            ann = await running.make_client("ann")
            session = (await ann.post("/runs", {"prompt": "Send it."})).data["session"]
            await asyncio.sleep(1)
            listed = (await ann.get("/questions")).data["questions"]
            assert [question["arguments"] for question in listed] == [{"text": "hi"}]
            question = listed[0]
            body = {
                "call_id": question["call_id"],
                "digest": question["digest"],
                "answer": {"verdict": "allow"},
            }
            assert (await ann.post(f"/runs/{session}/answers", body)).status == 200
            await asyncio.sleep(1)
            read = await ann.get(f"/runs/{session}")
            assert read.data["summary"]["state"] == "completed"


async def test_a_run_can_be_limited_and_a_limit_that_is_none_is_refused() -> None:
    with ScriptedModel([[call("send", {"text": "hi"})]]) as model:
        async with run_service(Agent(model, name="helper", tools=[send])) as running:
            ann = await running.make_client("ann")
            body = {"prompt": "Send it.", "session": "a", "limits": {"steps": 1}}
            assert (await ann.post("/runs", body)).status == 202
            await asyncio.sleep(1)
            assert (await ann.get("/runs/a")).data["summary"]["state"] == "max_steps"
            for bad in ({"steps": 0}, {"usd": "-1"}, {"colour": 1}):
                refused = await ann.post("/runs", {"prompt": "Hi", "limits": bad})
                assert refused.status == 422


@pytest.mark.contract("A5")
async def test_a_change_with_a_key_is_made_once() -> None:
    with ScriptedModel([[say("Working"), pause(30), say(".")]]) as model:
        async with run_service(Agent(model, name="helper")) as running:
            ann = await running.make_client("ann")
            key = {"Idempotency-Key": "k1"}
            body = {"prompt": "Work."}
            first = await ann.post("/runs", body, key)
            again = await ann.post("/runs", body, key)
            assert first.data["session"] == again.data["session"]
            other = await ann.post("/runs", {"prompt": "Other."}, key)
            assert other.status == 422
            await asyncio.sleep(1)
            session = first.data["session"]
            paused = await ann.post(f"/runs/{session}/cancel", {"reason": "enough"}, key)
            repeated = await ann.post(f"/runs/{session}/cancel", {"reason": "enough"}, key)
            assert (paused.status, repeated.status) == (200, 200)
            assert repeated.data == paused.data
            assert repeated.headers["Idempotent-Replayed"] == "true"
            changed = await ann.post(f"/runs/{session}/cancel", {"reason": "other"}, key)
            assert changed.data["error"]["code"] == "idempotency_key_reused"
            bob = await running.make_client("bob")
            assert (await bob.post("/runs/x/cancel", {"reason": "enough"}, key)).status == 404


@pytest.mark.contract("A5")
async def test_images_and_files_are_parts_of_a_prompt() -> None:
    with ScriptedModel(["A small picture."]) as model:
        async with run_service(Agent(model, name="helper")) as running:
            ann = await running.make_client("ann")
            picture = base64.b64encode(b"\x89PNG\r\n\x1a\n...").decode()
            prompt = [
                {"type": "text", "text": "What is this?"},
                {"type": "image", "media_type": "image/png", "data": picture},
                {"type": "file", "media_type": "text/plain", "name": "a.txt", "data": "aGk="},
            ]
            started = await ann.post("/runs", {"prompt": prompt, "session": "a"})
            assert started.status == 202
            await asyncio.sleep(1)
            parts = (await ann.get("/runs/a")).data["entries"][0]["parts"]
            assert parts == prompt
            bad = [{"type": "image", "media_type": "image/png", "data": "not base64!"}]
            assert (await ann.post("/runs", {"prompt": bad})).status == 422


@pytest.mark.contract("A2")
async def test_facts_are_read_in_pages_by_those_who_poll() -> None:
    with ScriptedModel(["Hello."]) as model:
        async with run_service(Agent(model, name="helper")) as running:
            ann = await running.make_client("ann")
            await ann.post("/runs", {"prompt": "Hi", "session": "a"})
            await asyncio.sleep(1)
            seen: list[int] = []
            after = 0
            while True:
                page = (await ann.get(f"/runs/a/events?after={after}&limit=2")).data
                seen += [event["seq"] for event in page["events"]]
                after = page["next"]
                if page["ended"]:
                    break
            assert seen == list(range(1, seen[-1] + 1))
            sessions: list[str] = []
            for name in ("b", "c"):
                session = await running.service.find_session(CALLER_ANN, "a")
                await running.service.fork(session, 1, name)
            cursor = ""
            while True:
                listed = (await ann.get(f"/runs?limit=1{cursor}")).data
                sessions += [each["session"] for each in listed["sessions"]]
                if listed["cursor"] is None:
                    break
                cursor = f"&cursor={listed['cursor']}"
            assert sorted(sessions) == ["ann.a", "ann.b", "ann.c"]


@pytest.mark.contract("A8")
async def test_readiness_needs_a_journal_that_answers() -> None:
    journal = UnreachableJournal()
    async with run_service(Agent(ScriptedModel([]), name="helper"), journal=journal) as running:
        nobody = DirectClient(running.dispatcher)
        assert (await nobody.get("/readyz")).status == 200
        journal.is_away = True
        away = await nobody.get("/readyz")
        assert (away.status, away.data["error"]["code"]) == (503, "journal_unreachable")
        journal.is_away = False
        running.service.stop_accepting()
        assert (await nobody.get("/readyz")).status == 503
        assert (await nobody.get("/healthz")).status == 200


async def test_a_session_with_a_slash_in_its_name_can_be_read() -> None:
    journal = MemoryJournal()
    with ScriptedModel(["Hello."]) as model:
        agent = Agent(model, name="helper", journal=journal)
        await agent.run("Hi", session="folder/file", caller="ann")
        async with run_service(agent, journal=journal) as running:
            admin = await running.make_client("", ["admin"])
            read = await admin.get("/runs/folder%2Ffile")
            assert read.data["session"] == "folder/file"


@pytest.mark.contract("F1", "A4")
async def test_a_priority_is_recorded_and_only_an_admin_passes_others() -> None:
    journal = MemoryJournal()
    agent = Agent(ScriptedModel(["Done.", "Done."]), name="helper", journal=journal)
    async with run_service(agent) as running:
        ann = await running.make_client("ann")
        refused = await ann.post("/runs", {"prompt": "Me first.", "priority": 1})
        assert (refused.status, refused.data["error"]["code"]) == (403, "role_missing")
        assert (await ann.post("/runs", {"prompt": "Go.", "priority": 101})).status == 422
        later = await ann.post("/runs", {"prompt": "Whenever you like.", "priority": -5})
        root = await running.make_client("root", ["admin"])
        first = await root.post("/runs", {"prompt": "Now.", "priority": 7})
        await asyncio.sleep(1)
    for started, priority in ((later, -5), (first, 7)):
        (start, *_) = await journal.read(started.data["session"])
        assert isinstance(start, RunStarted)
        assert read_priority(start.context) == priority
