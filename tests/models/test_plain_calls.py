"""Calls that come as plain JSON or in a fence, in place of calls of the wire (P9)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from windlass.agent.agent import Agent
from windlass.core.events import CallDelta, Event, ReplyEnd, ReplyPiece, TextDelta, ThinkingDelta
from windlass.core.messages import AssistantMessage, TextPart, ToolSpec, UserMessage
from windlass.core.view import Prompt
from windlass.models.openai.chat_reader import ChatReader
from windlass.models.text_protocols.found_calls import (
    FENCED_TEXT_ORIGIN,
    HEAD_CHARS_MAX,
    PLAIN_TEXT_ORIGIN,
)
from windlass.models.text_protocols.plain_calls import NativeCalls, PlainCallScan
from windlass.models.vendors import ChatQuirks
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
FENCED = replace(FOUND, origin=FENCED_TEXT_ORIGIN)


def scan(*deltas: str, anywhere: bool = False) -> list[ReplyPiece]:
    taking = PlainCallScan((READ, PING), anywhere=anywhere)
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
        f"{CALL}\n```",
        f"{{{CALL}}}",
        f"{{{CALL}}}\n```",
        '{{"name": "read", "arguments": {"path": "a"}}',
        '{{"name": "read", "arguments": {{"path": "a"}}}}',
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
        f"```json\n{CALL}\n```",
        f"```\n{CALL}\n```\n",
        f"```tool_call\n{CALL}\n```",
        f"```json\n{{{CALL}}}\n```",
    ],
)
def test_a_reply_that_is_a_call_in_a_fence_is_one(text: str) -> None:
    assert scan(text) == scan(*text) == [FENCED, ReplyEnd("end")]


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


SECOND = CallDelta(1, None, "ping", '{"times": 2}', origin=PLAIN_TEXT_ORIGIN)
MISFIT = '{"name": "read", "arguments": {"pfad": 1}}'
PINGS = '{"name": "ping", "arguments": {"times": 2}}'


@pytest.mark.parametrize(
    ("text", "before", "calls", "after"),
    [
        (f"I read it:\n```json\n{CALL}\n```", "I read it:\n", [FENCED], ""),
        (
            f"I read it:\n```json\n{CALL}\n```\nThen I stop.",
            "I read it:\n",
            [FENCED],
            "Then I stop.",
        ),
        (f"I read it: {CALL}", "I read it: ", [FOUND], ""),
        (f"{{{CALL}}} is next.", "", [FOUND], "is next."),
        (f"{CALL}\n{PINGS}", "", [FOUND, SECOND], ""),
        (f"```json\n{CALL}\n{PINGS}\n```", "", [FENCED, SECOND], ""),
        (f"```json\n[{CALL},\n{PINGS}]\n```", "", [FENCED, SECOND], ""),
        (f"Use {{x}} and `y`, then\n{CALL}", "Use {x} and `y`, then\n", [FOUND], ""),
        (f"```python\nprint({{1}})\n```\n{CALL}", "```python\nprint({1})\n```\n", [FOUND], ""),
        (
            f'{{"name": "read", "arguments": {{"pfad": 1}}}} {CALL}',
            '{"name": "read", "arguments": {"pfad": 1}} ',
            [FOUND],
            "",
        ),
    ],
)
@pytest.mark.contract("P9")
def test_calls_among_words_are_found(
    text: str, before: str, calls: list[ReplyPiece], after: str
) -> None:
    """P9: wherever they stand; the words around them are kept, and several are several calls."""
    expected: list[ReplyPiece] = [*calls, ReplyEnd("end")]
    words = before + after
    if words:
        expected.insert(0, TextDelta(words))
    assert scan(text, anywhere=True) == scan(*text, anywhere=True) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Hello",
        '{"name": "write", "arguments": {"path": "a"}}',
        'I need {"name": "read"} next.',
        '{"name": "read", "arguments": {"path": "a"}, "why": "it asks"}',
        f"I would call\n```json\n{CALL[:-1]}\n```\nand so on",
        "```python\nprint({1: 2})\n```",
        "``x`` is code, ``` too, and { alone",
        '{"answer": 42}',
    ],
)
def test_words_without_a_call_are_words(text: str) -> None:
    assert (
        scan(text, anywhere=True)
        == scan(*text, anywhere=True)
        == [TextDelta(text), ReplyEnd("end")]
    )


def test_words_before_a_call_are_shown_at_once_and_what_is_behind_it_is_held() -> None:
    """E2: only what may be a call waits; behind a call, everything waits for the end."""
    taking = PlainCallScan((READ,), anywhere=True)
    words = TextDelta("I read it.\n")
    assert taking.scan_piece(words) == [words]
    assert taking.scan_piece(TextDelta("``")) == [TextDelta("")]
    assert taking.scan_piece(TextDelta("`json\n" + CALL)) == [TextDelta("")]
    assert taking.scan_piece(TextDelta("\n```\nDone.")) == [TextDelta("")]
    assert taking.scan_piece(ReplyEnd("end")) == [FENCED, TextDelta("Done."), ReplyEnd("end")]


def test_a_native_call_behind_found_ones_makes_them_text() -> None:
    """P9: never both in one reply."""
    taking = PlainCallScan((READ,), anywhere=True)
    native = CallDelta(0, "x", "read", "{}")
    assert taking.scan_piece(TextDelta(f"So: {CALL} and")) == [TextDelta("So: ")]
    assert taking.scan_piece(native) == [TextDelta(f"{CALL} and"), native]
    assert taking.scan_piece(TextDelta(CALL)) == [TextDelta(CALL)]


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
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert scan(*pieces) == scan(text)
    assert scan(*pieces, anywhere=True) == scan(text, anywhere=True)


@given(
    st.lists(
        st.sampled_from(
            [CALL, PINGS, f"```json\n{CALL}\n```", "{", "}", "{{", '{"name": "re', "ok "]
        ),
        max_size=6,
    ),
    st.integers(1, 9),
)
def test_any_mixture_split_anyhow_gives_the_same(parts: list[str], size: int) -> None:
    text = "".join(parts)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert scan(*pieces, anywhere=True) == scan(text, anywhere=True)


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
    assert [call.origin for call in made] == [FENCED_TEXT_ORIGIN]
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
