"""Calls that come as plain JSON or in a fence, in place of calls of the wire (P9)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.agent.agent import Agent
from windlass.core.events import CallDelta, Event, ReplyEnd, ReplyPiece, TextDelta, ThinkingDelta
from windlass.core.messages import AssistantMessage, TextPart, ToolSpec, UserMessage
from windlass.core.view import Prompt
from windlass.models.openai.chat_reader import ChatReader
from windlass.models.openai.quirks import ChatQuirks
from windlass.models.text_protocols.plain_calls import (
    HEAD_CHARS_MAX,
    PLAIN_TEXT_ORIGIN,
    NativeCalls,
    PlainCallScan,
)
from windlass.testing import RecordingTools
from windlass.testing.chat_wire import (
    DONE,
    call_chunks,
    chat_answer,
    finish_chunk,
    text_answer,
    text_chunk,
)
from windlass.testing.fault_server import FaultServer
from windlass.testing.wire import WireAnswer, stream_answer, wait

PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
READ = ToolSpec("read", "Read a file.", PATH)
PING = ToolSpec("ping", "Ping.", {"type": "object", "properties": {"times": {"type": "integer"}}})
CALL = '{"name": "read", "arguments": {"path": "a"}}'
FOUND = CallDelta(0, None, "read", '{"path": "a"}', origin=PLAIN_TEXT_ORIGIN)


def scan(*deltas: str) -> list[ReplyPiece]:
    taking = PlainCallScan((READ, PING))
    pieces = [piece for delta in deltas for piece in taking.scan_piece(TextDelta(delta))]
    pieces += taking.scan_piece(ReplyEnd("end"))
    text = "".join(piece.text for piece in pieces if isinstance(piece, TextDelta))
    others: list[ReplyPiece] = [piece for piece in pieces if not isinstance(piece, TextDelta)]
    return [TextDelta(text), *others] if text else others


@pytest.mark.parametrize(
    "text",
    [
        CALL,
        f"  {CALL}\n",
        f"```json\n{CALL}\n```",
        f"```\n{CALL}\n```\n",
        f"```tool_call\n{CALL}\n```",
        '{"arguments": {"path": "a"}, "name": "read"}',
        '{"name": "read", "parameters": {"path": "a"}}',
        '{"type": "function", "name": "read", "parameters": {"path": "a"}}',
    ],
)
def test_a_reply_that_is_a_call_is_one(text: str) -> None:
    assert scan(text) == scan(*text) == [FOUND, ReplyEnd("end")]


@pytest.mark.parametrize(
    "text",
    [
        "Hello",
        '{"name": "write", "arguments": {"path": "a"}}',
        '{"name": "read"}',
        '{"name": "read", "arguments": {"pfad": 1}}',
        '{"name": "read", "arguments": "a"}',
        '{"name": "read", "arguments": {"path": "a"}, "why": "it asks"}',
        f"{CALL} is how to call it.",
        f"Call: {CALL}",
        f"{CALL}\n{CALL}",
        CALL[:-1],
        "```python\nprint(1)\n```",
        "``x`` is code",
        '{"answer": 42}',
        '{"name',
        '{"name" 5}',
        "[1, 2]",
        "{}",
        "`",
        "```",
    ],
)
def test_all_else_is_text_and_whole(text: str) -> None:
    assert scan(text) == scan(*text) == [TextDelta(text), ReplyEnd("end")]


@pytest.mark.parametrize(
    ("text", "shown_after"),
    [
        ("Hello, world", 1),
        ('{"answer": 42}', 4),
        ('{"name": "write"}', 11),
        ("```python\nprint(1)\n```", 11),
        (f"{CALL} is it", len(CALL) + 2),
    ],
)
def test_text_is_held_only_while_it_can_be_a_call(text: str, shown_after: int) -> None:
    """E2."""
    taking = PlainCallScan((READ,))
    shown = ""
    for count, char in enumerate(text, 1):
        shown += "".join(
            p.text for p in taking.scan_piece(TextDelta(char)) if isinstance(p, TextDelta)
        )
        assert shown == (text[:count] if count >= shown_after else "")
    assert taking.done


def test_space_is_not_held_for_ever() -> None:
    taking = PlainCallScan((READ,))
    assert taking.scan_piece(TextDelta(" " * HEAD_CHARS_MAX)) == [TextDelta("")]
    assert taking.scan_piece(TextDelta(" ")) == [TextDelta(" " * (HEAD_CHARS_MAX + 1))]


@given(
    st.text(alphabet=' \n`{}":,aenrdmgutsp', max_size=60)
    | st.sampled_from([CALL, f"```\n{CALL}```"]),
    st.integers(1, 9),
)
def test_any_split_gives_the_same(text: str, size: int) -> None:
    assert scan(*(text[at : at + size] for at in range(0, len(text), size))) == scan(text)


def test_beside_a_call_of_the_wire_text_is_text() -> None:
    taking = PlainCallScan((READ,))
    native = CallDelta(0, "x", "read", "{}")
    assert taking.scan_piece(TextDelta(CALL)) == [TextDelta("")]
    assert taking.scan_piece(ThinkingDelta("hm")) == [ThinkingDelta("hm")]
    assert taking.scan_piece(native) == [TextDelta(CALL), native]
    assert taking.scan_piece(ReplyEnd("calls")) == [ReplyEnd("calls")]


@pytest.mark.parametrize(("tools", "choice"), [((), "auto"), ((READ,), "none")])
def test_where_no_call_may_be_made_nothing_is_held(
    tools: tuple[ToolSpec, ...], choice: str
) -> None:
    prompt = Prompt("m", "", [UserMessage((TextPart("Hi"),))], tools, choice, 9)
    assert isinstance(NativeCalls(ChatQuirks(), "acme").new_reader(prompt), ChatReader)


async def ask(*script: WireAnswer, events: list[Event] | None = None) -> tuple[Any, RecordingTools]:
    tools = RecordingTools({"read": "contents"}, specs=(READ,))
    async with FaultServer(*script) as server:
        agent = Agent("openai-compatible:small", base_url=server.url, tools=tools)
        result = await agent.run("Go", on_event=events.append if events is not None else None)
        second = server.requests[1].json["messages"]
    assert second[1]["tool_calls"][0]["id"] == second[2]["tool_call_id"]
    return result, tools


async def test_a_found_call_runs_and_is_marked() -> None:
    """T4: in the transcript it is a call like any other, and says where it came from."""
    events: list[Event] = []
    result, tools = await ask(
        text_answer(f"```json\n{CALL}\n```"), text_answer("Done."), events=events
    )
    assert [ran.arguments for ran in tools.calls] == [{"path": "a"}]
    made = [call for m in result.messages if isinstance(m, AssistantMessage) for call in m.calls]
    assert [call.origin for call in made] == [PLAIN_TEXT_ORIGIN]
    shown = [event.text for event in events if isinstance(event, TextDelta)]
    assert "".join(shown) == "Done."
    assert result.text == "Done."


async def test_a_call_of_the_wire_has_no_mark() -> None:
    result, _ = await ask(
        chat_answer(call_chunks("read", '{"path":', '"a"}')), text_answer("Done.")
    )
    made = [call for m in result.messages if isinstance(m, AssistantMessage) for call in m.calls]
    assert [call.origin for call in made] == [""]


async def test_held_text_is_no_silence() -> None:
    """S4."""
    slow = stream_answer(
        text_chunk(CALL[:20]), wait(80), text_chunk(CALL[20:30]), wait(80), text_chunk(CALL[30:])
    )
    slow = stream_answer(*slow.acts, finish_chunk(), DONE)
    result, tools = await ask(slow, text_answer("Done."))
    assert (result.model_calls, len(tools.calls)) == (2, 1)
