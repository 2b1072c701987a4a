"""A conversation from elsewhere: read from three formats, recorded, a valid request (X1)."""

import asyncio
import json
from base64 import b64encode
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from windlass import (
    Agent,
    AssistantMessage,
    ConfigError,
    ImagePart,
    RunStarted,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    ToolResults,
    UserMessage,
    tool,
)
from windlass.core.audit.explain import explain
from windlass.core.audit.replay import replay
from windlass.core.errors import IllegalFact
from windlass.core.fold.run import fold
from windlass.core.messages import CallOutcome, FilePart
from windlass.journals import SqliteJournal, export_session, fork, import_session
from windlass.journals.codec import decode_fact, encode_fact
from windlass.journals.memory import MemoryJournal
from windlass.testing import ScriptedModel, call
from windlass.testing.samples import facts_of_every_kind

pytestmark = pytest.mark.contract("X1")

PIXEL = b"\x89PNG\r\n\x1a\npixel"
PICTURE = b64encode(PIXEL).decode()
SECRET = "sk-canary0123456789abcdefGHIJ"


@tool(effect="read", private=True)
def look(at: str) -> str:
    """Look at something."""
    return f"saw {at}"


OPENAI: list[dict[str, Any]] = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is in the hall?"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}},
        ],
    },
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "I must look.",
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "look", "arguments": '{"at": "hall"}'},
            },
            {
                "id": "call_2",
                "type": "function",
                "function": {"name": "look", "arguments": '{"at": "door"'},
            },
        ],
    },
    {"role": "tool", "tool_call_id": "call_2", "content": "No such place."},
    {"role": "tool", "tool_call_id": "call_1", "content": "A hall."},
    {"role": "assistant", "content": "A hall."},
]
ANTHROPIC: list[dict[str, Any]] = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is in the hall?"},
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": PICTURE},
            },
            {
                "type": "document",
                "title": "plan",
                "source": {"type": "base64", "media_type": "application/pdf", "data": PICTURE},
            },
        ],
    },
    {
        "role": "assistant",
        "model": "model",
        "content": [
            {"type": "thinking", "thinking": "I must look.", "signature": "sig"},
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "hall"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "toolu_1",
                "is_error": True,
                "content": [{"type": "text", "text": "Too dark."}],
            },
            {"type": "text", "text": "Take a lamp."},
        ],
    },
]


def run_with(messages: Any, **options: Any) -> tuple[ScriptedModel, Any, MemoryJournal]:
    journal = MemoryJournal()
    with ScriptedModel(["Fine."]) as model:
        agent = Agent(model, tools=[look], journal=journal, **options)
        result = asyncio.run(agent.run("And now?", session="s", messages=messages))
    return model, result, journal


def test_openai_messages_are_shown_to_the_model_before_the_prompt() -> None:
    model, result, _ = run_with(OPENAI)
    user, reply, results, answer, prompt = model.prompts[0].messages
    assert user == UserMessage((TextPart("What is in the hall?"), ImagePart("image/png", PIXEL)))
    assert isinstance(reply, AssistantMessage)
    thinking, first, second = reply.parts
    assert thinking == ThinkingPart("I must look.")
    assert isinstance(first, ToolCall)
    assert isinstance(second, ToolCall)
    assert (first.name, json.loads(first.arguments)) == ("look", {"at": "hall"})
    assert first.provider_id == "call_1"
    # Arguments that cannot be read stay visible, as in every transcript.
    assert json.loads(second.arguments) == {"unreadable_arguments": '{"at": "door"'}
    assert isinstance(results, ToolResults)
    assert [(item.call.id, item.result.text) for item in results.items] == [
        (first.id, "A hall."),
        (second.id, "No such place."),
    ]
    assert isinstance(answer, AssistantMessage)
    assert answer.text == "A hall."
    assert prompt == UserMessage((TextPart("And now?"),))
    assert [
        message.text for message in result.new_messages() if not isinstance(message, ToolResults)
    ] == [
        "And now?",
        "Fine.",
    ]


def test_anthropic_messages_keep_their_thinking_errors_and_files() -> None:
    model, _, _ = run_with(ANTHROPIC)
    user, reply, results, lamp, _ = model.prompts[0].messages
    assert isinstance(user, UserMessage)
    assert user.parts[2] == FilePart("application/pdf", "plan", PIXEL)
    assert isinstance(reply, AssistantMessage)
    assert reply.parts[0] == ThinkingPart("I must look.", "sig")
    # The model of the agent is recognized, so that it gets its own thinking back.
    assert reply.model == "scripted:model"
    assert isinstance(results, ToolResults)
    assert results.items[0].result == ToolResult.from_text("error", "Too dark.")
    assert lamp == UserMessage((TextPart("Take a lamp."),))


def test_the_messages_of_another_run_are_taken_as_they_are() -> None:
    """Also twice over, so that ids of calls never collide with those of the new session."""
    with ScriptedModel([call("look", {"at": "hall"}), "A hall."]) as model:
        first = asyncio.run(Agent(model, tools=[look]).run("Look."))
    with ScriptedModel([call("look", {"at": "door"}), "A door."]) as model:
        agent = Agent(model, tools=[look])
        second = asyncio.run(agent.run("And the door?", messages=first.messages))
    texts = [
        [item.result.text for item in message.items]
        if isinstance(message, ToolResults)
        else message.text
        for message in second.messages
    ]
    assert texts == [
        "Look.", "", ["saw hall"], "A hall.", "And the door?", "", ["saw door"], "A door.",
    ]  # fmt: skip


def test_objects_of_the_vendors_clients_are_read() -> None:
    class Dumped:
        def model_dump(self, *, exclude_none: bool) -> dict[str, Any]:
            assert exclude_none
            return {"role": "assistant", "content": "Hello.", "audio": None}

    model, _, _ = run_with([{"role": "user", "content": "Hi."}, Dumped()])
    assert model.prompts[0].messages[1] == AssistantMessage((TextPart("Hello."),))


HI = {"role": "user", "content": "Hi."}
CALLING = OPENAI[1]


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ("hello", "messages must be a list of messages, not a str"),
        ([{"role": "system", "content": "Be brief."}, HI], r"\[0\].*Agent\(instructions="),
        ([{"role": "assistant", "content": "Hi."}], r"\[0\].*first message must be from the user"),
        ([HI, CALLING], "at the end, these calls have no result: look .call_1., look .call_2."),
        ([HI, CALLING, HI], r"\[2\]: before it, these calls have no result"),
        ([HI, OPENAI[2]], r"\[1\].*'call_2', which is not a call of the reply before it"),
        ([HI, CALLING, OPENAI[2], OPENAI[2]], r"\[3\].*has a result already"),
        ([HI, {"role": "assistant", "content": ""}], r"\[1\].*neither text nor calls"),
        ([{"role": "user", "content": " "}], r"\[0\].*empty"),
        ([{"role": "robot", "content": "Hi."}], r"\[0\].*'robot'"),
        ([{"type": "function_call", "name": "look"}], r"\[0\].*no role"),
        ([{"role": "user", "content": [{"type": "input_audio"}]}], r"\[0\].*'input_audio'"),
        (
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64,%"}}
                    ],
                }
            ],
            "Base64",
        ),
        (
            [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f1"}}]}],
            "ids of files",
        ),
        ([{"role": "user", "content": "\ud800"}], "cannot be recorded"),
        ([17], r"\[0\].*int is not a message"),
        (
            [HI, {"role": "assistant", "content": "x", "function_call": {"name": "look"}}],
            "tool_calls",
        ),
    ],
)
def test_messages_that_are_not_a_conversation_are_refused_with_what_to_do(
    messages: Any, words: str
) -> None:
    agent = Agent(ScriptedModel([]), journal=MemoryJournal())
    with pytest.raises(ConfigError, match=words):
        agent.run_sync("Go.", messages=messages)


@pytest.mark.contract("J1")
def test_earlier_messages_are_only_for_a_session_without_records() -> None:
    async def main() -> None:
        agent = Agent(ScriptedModel(["One."]), journal=MemoryJournal())
        await agent.run("Go.", session="s")
        with pytest.raises(ConfigError, match="session s already has a conversation"):
            await agent.run("Go on.", session="s", messages=[HI])
        with pytest.raises(ConfigError, match="Did you mean messages"):
            await agent.run("Go on.", message_history=[HI])  # pyright: ignore[reportCallIssue]

    asyncio.run(main())


@pytest.mark.contract("G7")
def test_results_from_elsewhere_count_as_untrusted_and_as_what_their_tool_brings() -> None:
    _, _, journal = run_with(OPENAI)
    facts = asyncio.run(journal.read("s"))
    assert fold("s", facts).labels == {"untrusted", "private"}
    _, _, journal = run_with([HI])
    assert fold("s", asyncio.run(journal.read("s"))).labels == frozenset()


@pytest.mark.contract("G8")
def test_secrets_in_earlier_messages_are_masked_in_the_record_and_for_the_model() -> None:
    messages = json.loads(json.dumps(OPENAI).replace("hall", SECRET).replace("door", SECRET))
    messages[1]["tool_calls"][1]["function"]["name"] = SECRET
    model, _, journal = run_with(messages)
    facts = asyncio.run(journal.read("s"))
    assert SECRET not in repr(facts)
    assert SECRET not in repr(model.prompts[0].messages)
    assert "[secret]" in repr(model.prompts[0].messages)


@pytest.mark.contract("J8")
def test_the_session_is_replayed_forked_exported_and_explained(tmp_path: Path) -> None:
    async def main() -> None:
        journal = SqliteJournal(tmp_path / "s.db")
        with ScriptedModel(["Fine."]) as model:
            agent = Agent(model, tools=[look], journal=journal)
            await agent.run("And now?", session="s", messages=ANTHROPIC)
        facts = await journal.read("s")
        assert replay("s", facts).is_same
        words = "\n".join(explain("s", facts))
        assert "goes on with a conversation from elsewhere: 4 messages" in words
        await fork(journal, "s", 1, "copy")
        copy = await journal.read("copy")
        assert isinstance(copy[0], RunStarted)
        assert isinstance(facts[0], RunStarted)
        assert copy[0].earlier == facts[0].earlier
        archive = BytesIO()
        await export_session(journal, "s", archive.write)
        archive.seek(0)
        other = SqliteJournal(tmp_path / "other.db")
        await import_session(other, archive, "back")
        first = (await other.read("back"))[0]
        assert isinstance(first, RunStarted)
        assert first.earlier == facts[0].earlier
        other.close()
        journal.close()

    asyncio.run(main())


@pytest.mark.contract("J10")
def test_attachments_and_long_texts_of_earlier_messages_are_stored_as_blobs() -> None:
    first = facts_of_every_kind()[0]
    assert isinstance(first, RunStarted)
    user = UserMessage((TextPart("long " * 5_000),))
    first = replace(first, earlier=(*first.earlier, user))
    record = encode_fact(first)
    blobs = dict(record.blobs)
    assert sorted(map(len, blobs.values())) == [0, 6, 9, 9, 25_000]
    assert b"PNG" not in record.body
    assert decode_fact(record.body, blobs.__getitem__) == first


def test_a_record_with_unpaired_earlier_messages_is_not_believed() -> None:
    first = facts_of_every_kind()[0]
    assert isinstance(first, RunStarted)
    cut = replace(first, earlier=first.earlier[:2])
    with pytest.raises(IllegalFact, match="not a conversation: the call look has no result"):
        fold("s", [cut])
    other = ToolCall("e9", "look", "{}")
    swapped = (*first.earlier[:2], ToolResults((CallOutcome(other, ToolResult("value", ())),)))
    with pytest.raises(IllegalFact, match="not those of the calls"):
        fold("s", [replace(first, earlier=swapped)])
