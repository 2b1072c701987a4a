"""The text protocol: what goes out, byte for byte, and what is found in what comes in (P4)."""

import itertools
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from windlass.agent.agent import Agent
from windlass.core.errors import ConfigError
from windlass.core.events import (
    CallDelta,
    CallJudged,
    Event,
    InvalidCall,
    ReplyEnd,
    ReplyPiece,
    StopReason,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.json_repair.arguments import PreparedArguments, prepare_arguments
from windlass.core.messages import (
    AssistantMessage,
    CallOutcome,
    ImagePart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    ToolResults,
    ToolSpec,
    Usage,
    UserMessage,
)
from windlass.core.reply_assembly import ReplyAssembly
from windlass.core.schema import JsonSchema
from windlass.core.transcript import Transcript
from windlass.core.view import Prompt
from windlass.models.options import ModelOptions
from windlass.models.resolve import resolve_model
from windlass.models.text_protocols.call_text import BracketCounter, parse_call
from windlass.models.text_protocols.text_calls import TextCalls, format_call
from windlass.models.text_protocols.text_scan import INLINE_SIGNATURE, TextScan
from windlass.models.vendors import ChatQuirks
from windlass.testing import RecordingTools
from windlass.testing.chat_wire import (
    DONE,
    chat_answer,
    chat_chunk,
    finish_chunk,
    text_answer,
    text_chunk,
)
from windlass.testing.fault_server import FaultServer
from windlass.testing.wire import WireAnswer, WireReset, stream_answer, wait

ME = "acme:small"
PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
READ = ToolSpec("read", "Read a file — wholly.", PATH)
PNG = ImagePart("image/png", b"\x89PNG")
CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>'


def scan(*deltas: str, stop: StopReason = "end") -> list[ReplyPiece]:
    """The pieces of a reply, adjacent ones joined, and what shows nothing left out."""
    taking = TextScan()
    pieces = [piece for delta in deltas for piece in taking.scan_piece(TextDelta(delta))]
    return joined([*pieces, *taking.scan_piece(ReplyEnd(stop))])


def joined(pieces: list[ReplyPiece]) -> list[ReplyPiece]:
    whole: list[ReplyPiece] = []
    for piece in pieces:
        last = whole[-1] if whole else None
        match piece, last:
            case TextDelta(""), _:
                pass
            case TextDelta(text), TextDelta(before):
                whole[-1] = TextDelta(before + text)
            case ThinkingDelta(text, signature), ThinkingDelta(before, None):
                whole[-1] = ThinkingDelta(before + text, signature)
            case _:
                whole.append(piece)
    return whole


def found(number: int, name: str, arguments: str) -> CallDelta:
    return CallDelta(number, str(number + 1), name, arguments)


READ_A = found(0, "read", '{"path": "a"}')


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Hello.", [TextDelta("Hello.")]),
        (CALL, [READ_A]),
        (f"Before. {CALL}", [TextDelta("Before. "), READ_A]),
        (f"{CALL}\nAfter.", [READ_A, TextDelta("\nAfter.")]),
        (
            f"{CALL} and {CALL}",
            [READ_A, TextDelta(" and "), found(1, "read", '{"path": "a"}')],
        ),
        (f"\n\n{CALL}\n{CALL}\n", [READ_A, found(1, "read", '{"path": "a"}')]),
        ("  \n ", []),
        (" \n Hi ", [TextDelta(" \n Hi ")]),
        ("1 < 2 <b> <tool> <tool_calls>", [TextDelta("1 < 2 <b> <tool> <tool_calls>")]),
        ("to be <tool_cal", [TextDelta("to be <tool_cal")]),
        ("</tool_call>", [TextDelta("</tool_call>")]),
        (
            f"<think>Is {CALL} it?</think>\n{CALL}",
            [ThinkingDelta(f"Is {CALL} it?", INLINE_SIGNATURE), READ_A],
        ),
        ("<think>a</think>\n\nHi", [ThinkingDelta("a", INLINE_SIGNATURE), TextDelta("\n\nHi")]),
        ("<think></think>Hi", [ThinkingDelta("", INLINE_SIGNATURE), TextDelta("Hi")]),
        ("<think>cut </th", [ThinkingDelta("cut </th", INLINE_SIGNATURE)]),
        (
            '<tool_call>{"name": "read", "arguments": {"path": "</tool_call><think>"}}</tool_call>',
            [found(0, "read", '{"path": "</tool_call><think>"}')],
        ),
        (
            '<tool_call>{"name": "read", "arguments": {"path": "\\"</tool_call>\\\\"}}</tool_call>',
            [found(0, "read", '{"path": "\\"</tool_call>\\\\"}')],
        ),
        ("<tool_call>\nnot json\n</tool_call>", [found(0, "", "not json")]),
        ("<tool_call>\n</tool_call>", [found(0, "", "")]),
        (
            '<tool_call>{"name": "read", "arguments": {"path": "say "hi"}}</tool_call>, ' + CALL,
            [
                found(0, "read", '{"path": "say "hi"}'),
                TextDelta(", "),
                found(1, "read", '{"path": "a"}'),
            ],
        ),
        (
            '<tool_call>{"name": "read", "arguments": {"path": "say "hi"}}</tool_call> End.',
            [found(0, "read", '{"path": "say "hi"}'), TextDelta(" End.")],
        ),
        (
            CALL.removesuffix("</tool_call>") + CALL,
            [READ_A, found(1, "read", '{"path": "a"}')],
        ),
        (CALL.removesuffix("</tool_call>"), [READ_A]),
        (CALL.removesuffix("_call>"), [READ_A]),
    ],
)
def test_text_thinking_and_calls_are_told_apart(text: str, pieces: list[ReplyPiece]) -> None:
    """P4, L9."""
    assert scan(text) == [*pieces, ReplyEnd("end")]
    assert scan(*text) == [*pieces, ReplyEnd("end")]


@pytest.mark.parametrize(
    ("body", "name", "arguments"),
    [
        ('{"name": "read", "arguments": {"path": "a"}}', "read", '{"path": "a"}'),
        ('{"name":"read","parameters":{"path":"a"}}', "read", '{"path":"a"}'),
        ('{"arguments": {"name": "x"}, "name": "read"}', "read", '{"name": "x"}'),
        ('```json\n{"name": "read", "arguments": {}}\n```', "read", "{}"),
        ('{"name": "read", "arguments": "{\\"path\\": 1}"}', "read", '"{\\"path\\": 1}"'),
        ('{"name": "read", "arguments": null}', "read", ""),
        ('{"name": "read"}', "read", ""),
        ('{"name": "read", "path": "a"}', "read", '{"name": "read", "path": "a"}'),
        ('{"name": 5, "arguments": {}}', "", "{}"),
        ("{'name': 'read', 'arguments': {'path': 'a'}}", "read", "{'path': 'a'}"),
        ('{"name": "read", "arguments": {"path": "a"}', "read", '{"path": "a"}'),
        ('{"name": "read", "arguments": {"path": "a",}}', "read", '{"path": "a",}'),
        ('{"name": "read", "arguments": {"path": {"b": }}}', "read", '{"path": {"b": }}'),
        ('{"name": "read",}', "read", ""),
        ('{"name": "read", "path": a}', "read", '{"name": "read", "path": a}'),
        ('{"arguments": {"name": "x"}, "name": }', "", '{"name": "x"}, "name":'),
        ('{"name": "a", "name": "b", "arguments": {}}', "", "{}"),
        ("[1]", "", "[1]"),
    ],
)
def test_a_written_call_is_read_and_not_mended(body: str, name: str, arguments: str) -> None:
    """R1, R4: what is no JSON goes on as it stands, and the repair stage keeps the record."""
    call = parse_call(body)
    assert (call.name, call.arguments) == (name, arguments)


SEGMENTS = st.lists(
    st.sampled_from(
        [
            CALL,
            "<think>",
            "</think>",
            "<tool_call>",
            "</tool_call>",
            "<tool",
            "_call>",
            "<",
            ">",
            '{"name": "read", ',
            '"arguments": {"path": "',
            "\\",
            '"}}',
            '"',
            "\n",
            " ",
            "x",
            "é",
        ]
    ),
    max_size=14,
).map("".join)


@given(text=SEGMENTS, cuts=st.lists(st.integers(0, 200)), stop=st.sampled_from(["end", "length"]))
@example(text=f"a{CALL}<think>{CALL}", cuts=[1, 5, 9, 60, 70], stop="end")
def test_any_split_of_the_deltas_gives_the_same_pieces(
    text: str, cuts: list[int], stop: StopReason
) -> None:
    """P4, S10."""
    at = [0, *sorted({cut for cut in cuts if cut < len(text)}), len(text)]
    deltas = [text[begin:end] for begin, end in itertools.pairwise(at)]
    assert scan(*deltas, stop=stop) == scan(text, stop=stop) == scan(*text, stop=stop)


@given(text=SEGMENTS)
def test_no_marker_is_ever_shown(text: str) -> None:
    """P4: shown text has no whole opening marker, and no beginning of one that became whole."""
    for piece in scan(*text):
        if isinstance(piece, TextDelta):
            assert "<tool_call>" not in piece.text
            assert "<think>" not in piece.text


@given(text=st.text(alphabet="ab<>_/ \ntolcahink", min_size=1))
def test_plain_text_comes_through_as_it_is(text: str) -> None:
    """E2."""
    if "<think>" in text or "<tool_call>" in text or not text.strip():
        return
    assert scan(*text) == [TextDelta(text), ReplyEnd("end")]


@pytest.mark.parametrize("stop", ["end", "length"])
def test_a_call_that_was_cut_off_anywhere_never_runs(stop: StopReason) -> None:
    """R2: but for one whose JSON was whole already."""
    body = '{"name": "read", "arguments": {"path": "a"}}'
    reply = f"<tool_call>\n{body}\n</tool_call>"
    loose = JsonSchema({"type": "object"})
    for length in range(len("<tool_call>"), len(reply)):
        *_, call, end = scan(reply[:length], stop=stop)
        assert isinstance(call, CallDelta)
        whole = body in reply[:length]
        assert end == ReplyEnd(stop if whole else "length")
        runs = isinstance(prepare_arguments(call.arguments, loose, cut=True), PreparedArguments)
        assert runs is whole, reply[:length]
        assert call.name in ("", "read")


def test_text_is_shown_at_once_and_held_text_feeds_the_watchdog() -> None:
    """E2, S4."""
    taking = TextScan()
    assert taking.scan_piece(TextDelta("Hello")) == [TextDelta("Hello")]
    assert taking.scan_piece(TextDelta(", a <")) == [TextDelta(", a ")]
    assert taking.scan_piece(TextDelta("b")) == [TextDelta("<b")]
    assert taking.scan_piece(TextDelta("<tool_call>")) == [TextDelta("")]
    assert taking.scan_piece(TextDelta('{"name": ')) == [TextDelta("")]
    used = UsageDelta(Usage(1, 2))
    assert taking.scan_piece(used) == [used]


def test_two_thoughts_stay_two() -> None:
    assembly = ReplyAssembly()
    for piece in scan("<think>a</think><think>b</think>Hi"):
        assembly.add_piece(piece)
    thoughts = (ThinkingPart("a", INLINE_SIGNATURE), ThinkingPart("b", INLINE_SIGNATURE))
    assert assembly.build_reply("m", "c").parts == (*thoughts, TextPart("Hi"))


def test_brackets_find_the_end_across_any_split() -> None:
    text = '{"a": ["}", "\\"]"], "b": {}} rest'
    ends: list[int] = []
    brackets = BracketCounter()
    for at, char in enumerate(text):
        if brackets.find_close(char) is not None:
            ends.append(at)
            break
    assert ends == [text.index(" rest") - 1]
    assert BracketCounter().find_close(text) == text.index(" rest")


def prompt(*messages: Message, **more: Any) -> Prompt:
    base = Prompt(ME, "", messages or (UserMessage((TextPart("Hi"),)),), (READ,), "auto", 256)
    return replace(base, **more)


def sent(asked: Prompt, quirks: ChatQuirks | None = None) -> dict[str, Any]:
    request = TextCalls(quirks or ChatQuirks(), "acme").encode_request(
        asked, "small", ModelOptions()
    )
    return msgspec.json.decode(request.body)


def test_tools_stand_below_the_instructions() -> None:
    """P4."""
    body = sent(prompt(system="Be brief.", output_schema={"type": "object"}))
    system = body["messages"][0]["content"]
    assert system.startswith("Be brief.\n\n# Tools\n\nYou may call one or more functions")
    assert '"description": "Read a file — wholly."' in system
    assert "tools" not in body
    assert "response_format" not in body, "a schema would shut out the calls"


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        ("auto", "</tool_call>"),
        ("none", "what you have."),
        ("required", "a function now."),
        ("read", "the function read now."),
    ],
)
def test_a_choice_that_cannot_be_forced_is_asked_for(choice: str, told: str) -> None:
    """L12."""
    assert sent(prompt(tool_choice=choice))["messages"][0]["content"].endswith(told)


def test_without_tools_nothing_is_said_of_them() -> None:
    body = sent(prompt(tools=(), output_schema={"type": "object"}))
    assert [message["role"] for message in body["messages"]] == ["user"]
    assert body["response_format"]["type"] == "json_schema"


def reply(*parts: TextPart | ThinkingPart | ToolCall, model: str = ME) -> AssistantMessage:
    return AssistantMessage(parts, model)


def returned(*contents: tuple[TextPart | ImagePart, ...]) -> ToolResults:
    calls = (ToolCall(f"c{n}", "read", "{}") for n in range(len(contents)))
    pairs = zip(calls, contents, strict=True)
    return ToolResults(
        tuple(CallOutcome(call, ToolResult("value", parts)) for call, parts in pairs)
    )


def test_history_is_text() -> None:
    """P4."""
    said = reply(TextPart("See. "), ToolCall("c1", "read", '{"path": "é"}'), TextPart("\nDone."))
    body = sent(
        prompt(
            said, returned((TextPart("a"),), (TextPart("b"),)), UserMessage((TextPart("Go on."),))
        )
    )
    assert body["messages"][1:] == [
        {
            "role": "assistant",
            "content": 'See. \n<tool_call>\n{"name": "read", "arguments": {"path": "é"}}\n'
            "</tool_call>\nDone.",
        },
        {
            "role": "user",
            "content": "<tool_response>\na\n</tool_response>\n<tool_response>\nb\n"
            "</tool_response>\n\nGo on.",
        },
    ]


def test_thinking_in_the_text_goes_back_to_its_model_alone() -> None:
    """S11."""
    thoughts = (ThinkingPart("in", INLINE_SIGNATURE), ThinkingPart("apart"), TextPart("Hi"))
    mine, other = reply(*thoughts), reply(*thoughts, model="acme:large")
    for quirks in (ChatQuirks(), ChatQuirks(thinking_back="reasoning_content")):
        messages = sent(prompt(mine, UserMessage((TextPart("?"),)), other), quirks)["messages"]
        assert messages[1]["content"] == "<think>in</think>Hi"
        assert messages[1].get("reasoning_content") == ("apart" if quirks.thinking_back else None)
        assert messages[3] == {"role": "assistant", "content": "Hi"}


def test_a_picture_in_a_result_stands_where_it_was() -> None:
    """P7."""
    results = returned((TextPart("before"), PNG, TextPart("after")), (TextPart("b"),))
    blocks = sent(prompt(results))["messages"][1]["content"]
    assert [block["type"] for block in blocks] == ["text", "image_url", "text"]
    assert blocks[0]["text"] == "<tool_response>\nbefore"
    assert blocks[2]["text"].startswith("after\n</tool_response>\n<tool_response>\nb")
    told = sent(prompt(results), ChatQuirks(images=False))["messages"][1]["content"]
    assert isinstance(told, str), "the model is told in its place"


@pytest.mark.parametrize("arguments", ["", "{}", '{"a": [1]}', "not json", "'"])
def test_a_call_is_always_written_as_json(arguments: str) -> None:
    call = parse_call(format_call(ToolCall("c", 'a"b', arguments)))
    assert (call.name, call.complete) == ('a"b', True)


def test_history_of_a_step_is_a_prefix_of_the_next() -> None:
    """P5."""
    dialect, history = (
        TextCalls(ChatQuirks(), "acme"),
        Transcript((UserMessage((TextPart("Hi"),)),)),
    )
    bodies: list[bytes] = []
    for step in range(3):
        call = ToolCall(f"c{step}", "read", "{}")
        result = CallOutcome(call, ToolResult.from_text("value", "x"))
        history = history.append(reply(call), ToolResults((result,)))
        bodies.append(
            dialect.encode_request(prompt(messages=history), "small", ModelOptions()).body
        )
    for one, longer in itertools.pairwise(bodies):
        assert longer.startswith(one.removesuffix(b"]}"))


@pytest.mark.parametrize("name", ["anthropic:x", "openai:x", "google:x"])
def test_only_chat_completions_have_a_choice_of_protocol(name: str) -> None:
    """P1."""
    for protocol in ("text", "grammar"):
        with pytest.raises(ConfigError, match="chat completions"):
            resolve_model(name, environ={}, key="k", options=ModelOptions(tool_protocol=protocol))
    resolve_model(name, environ={}, key="k", options=ModelOptions(tool_protocol="native"))


async def ask(*script: WireAnswer, tools: RecordingTools, events: list[Event] | None = None) -> Any:
    async with FaultServer(*script) as server:
        agent = Agent(
            "openai-compatible:small",
            base_url=server.url,
            options=ModelOptions(tool_protocol="text"),
            tools=tools,
        )
        result = await agent.run("Go", on_event=events.append if events is not None else None)
    assert server.answers_left == 0
    return result


def reads() -> RecordingTools:
    return RecordingTools({"read": "contents"}, specs=(READ,))


async def test_the_same_pipeline_repairs_and_runs() -> None:
    """P4, R1, R4: single quotes and a trailing comma, on record."""
    tools, events = reads(), list[Event]()
    broken = "<tool_call>\n{'name': 'read', 'arguments': {'path': 'a',}}\n</tool_call>"
    result = await ask(text_answer(broken), text_answer("Done."), tools=tools, events=events)
    assert [ran.arguments for ran in tools.calls] == [{"path": "a"}]
    assert any(event.changes for event in events if isinstance(event, CallJudged))
    assert not [event for event in events if isinstance(event, TextDelta) and "<" in event.text]
    assert result.text == "Done."


@pytest.mark.parametrize("stop", ["stop", "length"])
async def test_a_cut_call_is_told_as_truncated(stop: str) -> None:
    """R2."""
    tools, events = reads(), list[Event]()
    cut = chat_answer(text_chunk(CALL[:40]), text_chunk(CALL[40:-20]), stop=stop)
    await ask(cut, text_answer("Done."), tools=tools, events=events)
    verdicts = [event.verdict for event in events if isinstance(event, CallJudged)]
    assert [v.code for v in verdicts if isinstance(v, InvalidCall)] == ["arguments_truncated"]
    assert tools.calls == []


async def test_a_long_call_is_no_silence() -> None:
    """S4: pieces of a call that are held back are content all the same."""
    tools = reads()
    slow = stream_answer(
        text_chunk(CALL[:30]),
        wait(80),
        text_chunk(CALL[30:45]),
        wait(80),
        text_chunk(CALL[45:]),
        finish_chunk(),
        DONE,
    )
    result = await ask(slow, text_answer("Done."), tools=tools)
    assert (result.model_calls, len(tools.calls)) == (2, 1)


async def test_a_stream_that_breaks_inside_a_call_is_asked_again() -> None:
    """S5, S7: nobody saw anything of it, and nothing of it is left."""
    tools, events = reads(), list[Event]()
    broken = stream_answer(text_chunk(CALL[:30]), text_chunk(CALL[30:50]), WireReset())
    result = await ask(broken, text_answer(CALL), text_answer("Done."), tools=tools, events=events)
    assert (result.model_calls, len(tools.calls)) == (3, 1)
    assert result.text == "Done."


def test_the_cost_is_linear() -> None:
    """S10: 100,000 deltas, and five megabytes in one call; it would take minutes otherwise."""
    body = '{"name": "read", "arguments": {"path": "' + "x\\n" * 1_700_000 + '"}}'
    reply = f"{'a < b ' * 20_000}<tool_call>{body}</tool_call>{' ' * 20_000}"
    deltas = [reply[at : at + 60] for at in range(0, len(reply), 60)]
    text, call, _ = scan(*deltas)
    assert text == TextDelta("a < b " * 20_000)
    assert isinstance(call, CallDelta)
    assert len(call.arguments) == len(body) - len('{"name": "read", "arguments": }')


async def test_a_call_of_the_wire_is_taken_too() -> None:
    """S9: its place may be the same as that of a call in the text."""
    tools = reads()
    native = {"index": 0, "id": "x", "function": {"name": "read", "arguments": '{"path": "b"}'}}
    both = chat_answer(text_chunk(CALL), chat_chunk({"tool_calls": [native]}))
    await ask(both, text_answer("Done."), tools=tools)
    assert [ran.arguments for ran in tools.calls] == [{"path": "a"}, {"path": "b"}]
