"""Calls that come as plain JSON or in a fence, in place of calls of the wire (P9)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.agent.agent import Agent
from windlass.core.events import CallDelta, Event, Piece, ReplyEnd, TextDelta, ThinkingDelta
from windlass.core.messages import Assistant, Text, ToolSpec, User
from windlass.core.view import Prompt
from windlass.models.openai.chat_reader import ChatReader
from windlass.models.openai.quirks import Quirks
from windlass.models.text_protocols.plain_calls import HEAD_MAX, ORIGIN, NativeCalls, PlainScan
from windlass.testing import RecordingTools
from windlass.testing.chat_wire import DONE, called, chat, finish, say, words
from windlass.testing.fault_server import FaultServer
from windlass.testing.wire import Answer, answer, wait

PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
READ = ToolSpec("read", "Read a file.", PATH)
PING = ToolSpec("ping", "Ping.", {"type": "object", "properties": {"times": {"type": "integer"}}})
CALL = '{"name": "read", "arguments": {"path": "a"}}'
FOUND = CallDelta(0, None, "read", '{"path": "a"}', origin=ORIGIN)


def scan(*deltas: str) -> list[Piece]:
    taking = PlainScan((READ, PING))
    pieces = [piece for delta in deltas for piece in taking.take(TextDelta(delta))]
    pieces += taking.take(ReplyEnd("end"))
    text = "".join(piece.text for piece in pieces if isinstance(piece, TextDelta))
    others: list[Piece] = [piece for piece in pieces if not isinstance(piece, TextDelta)]
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
    taking = PlainScan((READ,))
    shown = ""
    for count, char in enumerate(text, 1):
        shown += "".join(p.text for p in taking.take(TextDelta(char)) if isinstance(p, TextDelta))
        assert shown == (text[:count] if count >= shown_after else "")
    assert taking.done


def test_space_is_not_held_for_ever() -> None:
    taking = PlainScan((READ,))
    assert taking.take(TextDelta(" " * HEAD_MAX)) == [TextDelta("")]
    assert taking.take(TextDelta(" ")) == [TextDelta(" " * (HEAD_MAX + 1))]


@given(
    st.text(alphabet=' \n`{}":,aenrdmgutsp', max_size=60)
    | st.sampled_from([CALL, f"```\n{CALL}```"]),
    st.integers(1, 9),
)
def test_any_split_gives_the_same(text: str, size: int) -> None:
    assert scan(*(text[at : at + size] for at in range(0, len(text), size))) == scan(text)


def test_beside_a_call_of_the_wire_text_is_text() -> None:
    taking = PlainScan((READ,))
    native = CallDelta(0, "x", "read", "{}")
    assert taking.take(TextDelta(CALL)) == [TextDelta("")]
    assert taking.take(ThinkingDelta("hm")) == [ThinkingDelta("hm")]
    assert taking.take(native) == [TextDelta(CALL), native]
    assert taking.take(ReplyEnd("calls")) == [ReplyEnd("calls")]


@pytest.mark.parametrize(("tools", "choice"), [((), "auto"), ((READ,), "none")])
def test_where_no_call_may_be_made_nothing_is_held(
    tools: tuple[ToolSpec, ...], choice: str
) -> None:
    prompt = Prompt("m", "", [User((Text("Hi"),))], tools, choice, 9)
    assert isinstance(NativeCalls(Quirks(), "acme").reader(prompt), ChatReader)


async def ask(*script: Answer, events: list[Event] | None = None) -> tuple[Any, RecordingTools]:
    tools = RecordingTools({"read": "contents"}, specs=(READ,))
    async with FaultServer(*script) as server:
        agent = Agent("openai-compatible:small", base_url=server.url, tools=tools)
        result = await agent.run("Go", on_event=events.append if events is not None else None)
        second = server.asked[1].json["messages"]
    assert second[1]["tool_calls"][0]["id"] == second[2]["tool_call_id"]
    return result, tools


async def test_a_found_call_runs_and_is_marked() -> None:
    """T4: in the transcript it is a call like any other, and says where it came from."""
    events: list[Event] = []
    result, tools = await ask(say(f"```json\n{CALL}\n```"), say("Done."), events=events)
    assert [ran.arguments for ran in tools.ran] == [{"path": "a"}]
    made = [call for m in result.messages if isinstance(m, Assistant) for call in m.calls]
    assert [call.origin for call in made] == [ORIGIN]
    shown = [event.text for event in events if isinstance(event, TextDelta)]
    assert "".join(shown) == "Done."
    assert result.text == "Done."


async def test_a_call_of_the_wire_has_no_mark() -> None:
    result, _ = await ask(chat(called("read", '{"path":', '"a"}')), say("Done."))
    made = [call for m in result.messages if isinstance(m, Assistant) for call in m.calls]
    assert [call.origin for call in made] == [""]


async def test_held_text_is_no_silence() -> None:
    """S4."""
    slow = answer(words(CALL[:20]), wait(80), words(CALL[20:30]), wait(80), words(CALL[30:]))
    slow = answer(*slow.acts, finish(), DONE)
    result, tools = await ask(slow, say("Done."))
    assert (result.model_calls, len(tools.ran)) == (2, 1)
