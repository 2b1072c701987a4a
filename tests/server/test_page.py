"""What the service gives the page: patches, questions, records, costs; to their owner only."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service import DirectClient, RunningService, run_service
from windlass import Agent, delegate, tool
from windlass.core.events import (
    AttemptStarted,
    Event,
    RunEnded,
    RunStarted,
    StepProposed,
    TextDelta,
)
from windlass.core.limits import Reservation
from windlass.core.messages import AssistantMessage, TextPart, ToolResult, ToolSpec
from windlass.core.projection.project import apply_event
from windlass.core.projection.view import Projection
from windlass.gates import ask
from windlass.server.messages import StreamReply
from windlass.server.page.files import highlight_code
from windlass.server.page.patches import RESULT_CHARS_MAX, ViewPatcher, _clip_result
from windlass.server.page.questions import describe_sandbox, propose_pattern
from windlass.server.page.sessions import ACTIVITY_SPANS, count_activity
from windlass.testing import ScriptedModel, call
from windlass.tools.files.file_tools import file_tools
from windlass.tools.files.workspace import Workspace

SHELL = ToolSpec(
    "bash", "", {"type": "object", "properties": {"command": {"type": "string"}}}, notice=""
)


@tool
def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


@tool(effect="write")
def bash(command: str) -> str:
    """Run a command."""
    return f"ran {command}"


async def read_frames(reply: object, *names: str) -> dict[str, Any]:
    """Return the last frame of each name, reading until all of them have come."""
    assert isinstance(reply, StreamReply)
    found: dict[str, Any] = {}
    async for chunk in reply.chunks:
        for block in chunk.decode().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
            if "event" in fields:
                found[fields["event"]] = json.loads(fields["data"])
        if found.keys() >= set(names):
            break
    await reply.close()
    return found


def make_events() -> list[Event]:
    reserved = Reservation(10, 10, None)
    reply = AssistantMessage((TextPart("Hello there."),), "m:x")
    return [
        RunStarted(1, (TextPart("Hi."),), seq=1, at=1.0),
        AttemptStarted(1, 1, "m:x", reserved, seq=2, at=2.0),
        TextDelta("Hel", seq=2, nth=1),
        TextDelta("lo ", seq=2, nth=2),
        TextDelta("there.", seq=2, nth=3),
        StepProposed(reply, "end", seq=3, at=3.0),
        RunEnded("completed", seq=4, at=4.0),
    ]


@pytest.mark.contract("W2")
@pytest.mark.parametrize("every", [1, 2, 3, 7])
def test_patches_add_up_to_the_projection_however_many_there_are(every: int) -> None:
    """A page that puts each patch in its place shows what the projection holds."""
    patcher = ViewPatcher((0, 0), 1, "")
    view = Projection("s")
    entries: dict[int, Any] = {}
    text = ""
    for at, event in enumerate(make_events(), 1):
        view = apply_event(view, event)
        if at % every and at != len(make_events()):
            continue
        patch = patcher.make_patch(view, {}, driven=True)
        entries.update(dict(patch.entries))
        if patch.reply is None:
            text = ""
        else:
            text = text if patch.reply.text_from else ""
            text += "".join(piece for _, piece in patch.reply.chunks)
        assert text == (view.reply.text if view.reply else "")
    assert [entries[at]["entry"] for at in range(3)] == ["prompt", "reply", "notice"]
    assert list(entries[1]["parts"]) == [{"type": "text", "text": "Hello there."}]
    assert len(view.settled) + len(view.tail) == 3


def test_a_result_that_is_too_long_is_cut_and_says_so() -> None:
    result = ToolResult.from_text("value", "x" * (RESULT_CHARS_MAX + 5))
    clipped, hidden = _clip_result(result)
    assert clipped is not None
    assert (len(clipped.text), hidden) == (RESULT_CHARS_MAX, 5)


async def wait_for(client: DirectClient, session: str, state: str) -> None:
    for _ in range(1_000):
        if (await client.get(f"/runs/{session}")).data["summary"]["state"] == state:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"the session did not become {state}")


async def ask_about_send(running: RunningService) -> tuple[DirectClient, str]:
    ann = await running.make_client("ann", ["watch", "start", "answer"])
    session = (await ann.post("/runs", {"prompt": "Send it."})).data["session"]
    await wait_for(ann, session, "waiting")
    return ann, session


@pytest.mark.contract("W4")
async def test_a_question_has_all_that_a_person_decides_about() -> None:
    model = ScriptedModel([[call("send", {"text": "hello"})]])
    async with run_service(Agent(model, name="helper", tools=[send], gate=ask())) as running:
        ann, session = await ask_about_send(running)
        found = await read_frames(await ann.send("GET", "/page/feed"), "questions", "latest")
        [question] = found["questions"]["questions"]
        assert (question["session"], question["root"]) == (session, session)
        assert (question["tool"], question["arguments"]) == ("send", {"text": "hello"})
        assert (question["agent"], question["title"]) == ("helper", "Send it.")
        assert (question["effect"], question["rule"]) == ("write", "")
        assert question["digest"]
        assert question["asked_at"] > 0
        [row] = found["latest"]["sessions"]
        assert (row["session"], row["state"]) == (session, "waiting")
        assert sum(row["activity"]) == row["seq"]
        body = {"session": session, "call_id": question["call_id"], "pattern": "send(bye*)"}
        verdict = await ann.post("/page/pattern", body)
        assert verdict.data["covers"] is False


@pytest.mark.contract("W4")
async def test_a_question_shows_the_difference_of_the_file_without_its_secrets(
    tmp_path: Path,
) -> None:
    (tmp_path / "notes.txt").write_text("one\ntwo\nkey sk-0123456789secret\n")
    model = ScriptedModel([[call("write", {"path": "notes.txt", "content": "one\n2\n"})]])
    agent = Agent(
        model,
        name="helper",
        tools=file_tools(Workspace(tmp_path)),
        gate=ask(),
        secrets=["sk-0123456789secret"],
    )
    async with run_service(agent) as running:
        ann, _ = await ask_about_send(running)
        [listed] = (await ann.get("/questions")).data["questions"]
        assert listed["preview"]["note"].startswith("'notes.txt' would be replaced.")
        lines = listed["preview"]["diff"].splitlines()
        assert lines[3:6] == [" one", "-two", "-key [secret: 1]"]
        found = await read_frames(await ann.send("GET", "/page/feed"), "questions")
        [shown] = found["questions"]["questions"]
        assert shown["preview"] == listed["preview"]
        # What the file is now counts, and not what it was when the question was asked.
        (tmp_path / "notes.txt").unlink()
        [again] = (await ann.get("/questions")).data["questions"]
        note = again["preview"]["note"]
        assert note.startswith("'notes.txt' does not exist and would be created.")
        assert (tmp_path / "notes.txt").exists() is False


@pytest.mark.contract("W4")
@pytest.mark.parametrize("made", ["tool", "delegate"])
async def test_a_question_of_a_sub_agent_shows_the_difference_too(
    tmp_path: Path, made: str
) -> None:
    """Its own tool counts, and not one of the same name that the agent above it has."""
    for folder in ("above", "below"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "notes.txt").write_text(f"{folder} with what-nobody-may-know\n")
    below = Agent(
        ScriptedModel([[call("write", {"path": "notes.txt", "content": "new\n"})]]),
        name="writer",
        tools=file_tools(Workspace(tmp_path / "below")),
        gate=ask(),
    )
    as_tool = below.as_tool("writer") if made == "tool" else delegate({"writer": below})
    task = {"task": "Write."} if made == "tool" else {"agent": "writer", "task": "Write."}
    files = file_tools(Workspace(tmp_path / "above"))
    agent = Agent(
        ScriptedModel([[call(as_tool.name, task)]]),
        name="helper",
        tools=[as_tool, *files],
        secrets=["what-nobody-may-know"],
    )
    async with run_service(agent) as running:
        ann, session = await ask_about_send(running)
        [listed] = (await ann.get("/questions")).data["questions"]
        assert listed["chain"] == ["helper", "writer"]
        assert "-below with [secret: 1]" in listed["preview"]["diff"].splitlines()
        read = (await ann.get(f"/runs/{session}")).data
        assert read["questions"] == [listed]


@pytest.mark.contract("W3")
async def test_a_page_shows_nothing_of_other_owners() -> None:
    model = ScriptedModel([[call("send", {"text": "hello"})]])
    async with run_service(Agent(model, name="helper", tools=[send], gate=ask())) as running:
        _, session = await ask_about_send(running)
        bob = await running.make_client("bob")
        feed = await bob.send("GET", f"/page/feed?watch=0:0:{session}")
        found = await read_frames(feed, "missing", "questions", "latest")
        assert found["missing"] == {"session": session}
        assert found["questions"]["questions"] == []
        assert found["latest"]["sessions"] == []
        assert "view" not in found
        for path in (f"/page/records/{session}/1", f"/page/replay/{session}"):
            assert (await bob.get(path)).status == 404
        body = {"session": session, "call_id": "c1_0", "pattern": ""}
        assert (await bob.post("/page/pattern", body)).status == 404
        assert (await bob.get("/costs")).data["rows"] == []


@pytest.mark.contract("W1")
async def test_a_record_is_explained_and_checked_and_sessions_are_compared() -> None:
    model = ScriptedModel(["One.", "Two."])
    async with run_service(Agent(model, name="helper")) as running:
        ann = await running.make_client("ann")
        names: list[str] = []
        for _ in range(2):
            names.append((await ann.post("/runs", {"prompt": "Say a number."})).data["session"])
            await wait_for(ann, names[-1], "completed")
        record = (await ann.get(f"/page/records/{names[0]}/3")).data
        assert (record["type"], record["chain"], record["total"]) == ("StepProposed", "verified", 4)
        assert record["record"]["reply"]["parts"][0]["text"] == "One."
        assert "One." in " ".join(record["explanation"])
        before = (await ann.get(f"/page/records/{names[0]}/2")).data
        assert before["hash"] == record["previous"]
        assert (await ann.get(f"/page/records/{names[0]}/99")).status == 404
        assert (await ann.get(f"/page/replay/{names[0]}?start=2")).data["agrees"] is True
        compared = (await ann.get(f"/page/compare/{names[0]}?other={names[1]}")).data
        assert (compared["same"], compared["first"]) == (2, 3)
        assert "One." in compared["left"]
        assert "Two." in compared["right"]
        began = record["at"] - 100
        span = f"since={began}&until={began + 5_000}"
        rows = (await ann.get(f"/costs?{span}&by=day&by=agent")).data["rows"]
        day = datetime.fromtimestamp(record["at"], UTC).date().isoformat()
        assert [(row["day"], row["agent"], row["runs"]) for row in rows] == [(day, "helper", 2)]
        assert (await ann.get("/page/reserved")).data["reserved"] == []


@pytest.mark.contract("W3")
async def test_the_files_of_the_page_need_no_token_and_allow_nothing_from_elsewhere() -> None:
    async with run_service(Agent(ScriptedModel([]), name="helper")) as running:
        nobody = await running.make_client("ann")
        nobody.token = ""
        for path, kind in (("/", b"<!doctype html>"), ("/page/app.js", b"/** The shell")):
            reply = await nobody.get(path)
            assert (reply.status, reply.data[: len(kind)]) == (200, kind)
            policy = reply.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "script-src 'self';" in policy
            assert "unsafe" not in policy
            assert "require-trusted-types-for 'script'" in policy
        same = await nobody.get("/page/app.js", {"If-None-Match": reply.headers["ETag"]})
        assert same.status == 304
        for path in ("/page/..%2Fpage_routes.py", "/page/page_routes.py", "/page/nothing.js"):
            assert (await nobody.get(path)).status == 404
        assert (await nobody.get("/page/feed")).status == 401


@pytest.mark.parametrize(
    ("command", "pattern"),
    [
        ("git status --short", "bash(git status *)"),
        ("make", "bash(make)"),
        ("rm -rf build && curl x", ""),
        ("", ""),
    ],
)
def test_a_proposed_pattern_covers_the_call_for_certain(command: str, pattern: str) -> None:
    """W4: nothing is proposed that would let more through than it says."""
    assert propose_pattern(SHELL, {"command": command}) == pattern


def test_a_command_says_whether_it_is_confined() -> None:
    notice = "It runs in a sandbox without a network, and can change only the workspace."
    assert describe_sandbox(msgspec.structs.replace(SHELL, notice=notice)) == "sandboxed"
    assert describe_sandbox(SHELL) == "not sandboxed"
    assert describe_sandbox(msgspec.structs.replace(SHELL, name="read")) == ""


async def test_code_is_coloured_if_its_language_is_known() -> None:
    spans = await highlight_code("python", "def f():\n    return 'x'\n")
    assert spans is not None
    assert "".join(text for _, text in spans) == "def f():\n    return 'x'\n"
    assert ("keyword", "def") in spans
    assert await highlight_code("no such language", "x") is None


def test_activity_is_counted_over_equal_spans() -> None:
    assert count_activity([]) == [0] * ACTIVITY_SPANS
    counts = count_activity([0.0, 1.0, 1.0, 16.0])
    assert (counts[0], counts[1], counts[-1], sum(counts)) == (1, 2, 1, 4)
