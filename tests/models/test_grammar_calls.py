"""Calls by grammar: the schema that is forced, and the JSON that comes of it (P9)."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.agent.agent import Agent
from windlass.core.events import (
    CallDelta,
    CallJudged,
    Event,
    ReplyEnd,
    ReplyPiece,
    StopReason,
    TextDelta,
)
from windlass.core.messages import (
    AssistantMessage,
    CallOutcome,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    ToolResults,
    ToolSpec,
    UserMessage,
)
from windlass.core.schema import JsonSchema
from windlass.core.view import Prompt
from windlass.models.options import ModelOptions
from windlass.models.resolve import resolve_model
from windlass.models.text_protocols.grammar_calls import GrammarCalls, reply_schema
from windlass.models.text_protocols.grammar_scan import GrammarScan
from windlass.models.vendors import ChatQuirks
from windlass.testing import RecordingTools
from windlass.testing.chat_wire import chat_answer, text_answer, text_chunk
from windlass.testing.fault_server import FaultServer

PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
READ = ToolSpec("read", "Read a file.", PATH)
TREE = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/Node"}, "more": {"$ref": "#"}},
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
            "additionalProperties": False,
        }
    },
}
PLANT = ToolSpec("plant", "Plant a tree.", TREE)
CALL = '{"name": "read", "arguments": {"path": "a"}}'
ANSWER = {"name": "answer", "arguments": {"text": "Hi"}}


def prompt(*messages: Message, **more: Any) -> Prompt:
    base = Prompt(
        "m", "", messages or (UserMessage((TextPart("Hi"),)),), (READ, PLANT), "auto", 256
    )
    return replace(base, **more)


def accepted(asked: Prompt, value: object) -> bool:
    return JsonSchema(reply_schema(asked)).accepts(json.loads(json.dumps(value)))


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        ({"name": "read", "arguments": {"path": "a"}}, True),
        (ANSWER, True),
        ({"answer": "Hi"}, False),
        ({"name": "read", "arguments": {"path": 1}}, False),
        ({"name": "read"}, False),
        ({"name": "write", "arguments": {"path": "a"}}, False),
        ({"name": "read", "arguments": {"path": "a"}, "answer": "Hi"}, False),
        ({"name": "answer", "arguments": {"text": 5}}, False),
        ({"name": "plant", "arguments": {"root": {"kids": [{"kids": []}]}}}, True),
        ({"name": "plant", "arguments": {"root": {"kids": [{"kid": []}]}}}, False),
        ({"name": "plant", "arguments": {"more": {"root": {"kids": []}}}}, True),
        ({"name": "plant", "arguments": {"more": {"root": 5}}}, False),
    ],
)
def test_a_reply_is_a_call_or_an_answer(value: object, *, fits: bool) -> None:
    """P9: references of a tool's schema hold inside the schema of the reply."""
    assert accepted(prompt(), value) is fits


@pytest.mark.parametrize(
    ("choice", "read", "plant", "answer"),
    [
        ("auto", True, True, True),
        ("required", True, True, False),
        ("none", False, False, True),
        ("read", True, False, False),
        ("gone", False, False, True),
    ],
)
def test_the_choice_of_a_tool_is_held_by_the_schema(
    choice: str, *, read: bool, plant: bool, answer: bool
) -> None:
    """L8, L12."""
    asked = prompt(tool_choice=choice)
    assert accepted(asked, {"name": "read", "arguments": {"path": "a"}}) is read
    assert accepted(asked, {"name": "plant", "arguments": {}}) is plant
    assert accepted(asked, ANSWER) is answer


@pytest.mark.parametrize(
    ("text", "demanded"),
    [
        ("What is 2 plus 3? Use the tools.", True),
        ("Fix it with the read tool.", True),
        ("Please call `read` on a.txt", True),
        ("Find it out, using read.", True),
        ("look_up a.txt", True),
        ("Which tools do you have?", False),
        ("Read a.txt.", False),
        ("I use this a lot. Is it a tool?", False),
    ],
)
@pytest.mark.contract("P9")
def test_a_call_is_demanded_where_the_user_asks_for_one(text: str, *, demanded: bool) -> None:
    """P9: until one was made, an answer would come from imagination."""
    asking = UserMessage((TextPart(text),))
    look = ToolSpec("look_up", "Look a file up.", PATH)
    assert accepted(prompt(asking, tools=(READ, look)), ANSWER) is not demanded
    assert accepted(prompt(asking), {"name": "read", "arguments": {"path": "a"}})
    call = ToolCall("c", "read", '{"path": "a"}')
    results = ToolResults((CallOutcome(call, ToolResult.from_text("value", "x")),))
    assert accepted(prompt(asking, AssistantMessage((call,), "m"), results), ANSWER)
    assert accepted(prompt(asking, tool_choice="none"), ANSWER)


@pytest.mark.contract("P9")
def test_a_model_that_repeats_its_call_has_to_answer() -> None:
    """L11: a small model would repeat it until the run is stuck."""

    def step(number: int, path: str = "a") -> list[Message]:
        call = ToolCall(f"c{number}", "read", json.dumps({"path": path}))
        outcome = CallOutcome(call, ToolResult.from_text("value", "x"))
        return [AssistantMessage((call,), "m"), ToolResults((outcome,))]

    reading = {"name": "read", "arguments": {"path": "a"}}
    asking = UserMessage((TextPart("Use the tools."),))
    twice = [asking, *step(1), *step(2)]
    assert accepted(prompt(asking, *step(1)), reading)
    assert not accepted(prompt(*twice), reading)
    assert accepted(prompt(*twice), ANSWER)
    assert not accepted(prompt(*twice), {"name": "plant", "arguments": {}})
    assert accepted(prompt(*twice, *step(3, "b")), reading)
    assert accepted(prompt(*twice, UserMessage((TextPart("Again."),))), reading)
    assert accepted(prompt(*twice, tool_choice="read"), reading)
    assert accepted(prompt(asking, *step(1), *step(2, "b")), reading)


def test_an_output_type_is_the_schema_of_the_answer() -> None:
    city = {"type": "object", "properties": {"at": {"$ref": "#/definitions/P"}}}
    city |= {"definitions": {"P": {"type": "integer"}}}
    asked = prompt(output_schema=city)
    for form in ({"name": "answer", "arguments": {"value": {"at": 1}}}, {"answer": {"at": 1}}):
        alone = "answer" in form
        shaped = replace(asked, tools=()) if alone else asked
        assert accepted(shaped, form)
        assert not accepted(shaped, json.loads(json.dumps(form).replace("1", '"x"')))
        assert not accepted(shaped, ANSWER)


def sent(asked: Prompt, options: ModelOptions | None = None) -> dict[str, Any]:
    dialect = GrammarCalls(ChatQuirks(), "acme")
    return msgspec.json.decode(
        dialect.encode_request(asked, "small", options or ModelOptions()).body
    )


def test_the_schema_goes_out_as_the_format_of_the_response() -> None:
    body = sent(prompt(system="Be brief."), ModelOptions(extra_body={"top_k": 1}))
    assert body["response_format"]["json_schema"]["schema"] == reply_schema(prompt())
    assert body["top_k"] == 1
    assert "tools" not in body
    system = body["messages"][0]["content"]
    assert system.startswith("Be brief.\n\n# Tools")
    assert '"name": "answer", "description": "Tell the user' in system
    alone = sent(prompt(tools=()))["messages"][0]["content"]
    assert '{"answer": <your-answer>}' in alone
    assert "<tools>" not in alone


def test_a_small_model_is_told_only_what_it_should_fill_in() -> None:
    """P9: optional arguments stand in words, without examples; the schema accepts them all."""
    parameters = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "A path, such as src/main.py."},
            "limit": {"type": "integer", "description": "How many lines.", "default": 9},
            "unit": {"type": "string", "enum": ["c", "f"]},
            "any": True,
        },
        "required": ["path"],
    }
    asked = prompt(tools=(ToolSpec("read", "Read a file.", parameters),))
    system = sent(asked)["messages"][0]["content"]
    words = "limit: How many lines; unit: (c, f); any"
    assert f"Read a file. Optional arguments, only if they are asked for: {words}" in system
    assert '"properties": {"path": {"type": "string", "description": "A path."}}' in system
    assert accepted(asked, {"name": "read", "arguments": {"path": "a", "limit": 3, "unit": "f"}})
    assert not accepted(asked, {"name": "read", "arguments": {"path": "a", "unit": "k"}})


def test_history_has_the_form_that_is_forced() -> None:
    """P5, P9."""
    call = ToolCall("c", "read", '{"path": "a"}')
    asked = AssistantMessage((ThinkingPart("hm"), TextPart("Wait."), call), "m")
    results = ToolResults((CallOutcome(call, ToolResult.from_text("value", "x")),))
    messages = sent(prompt(asked, results, AssistantMessage((TextPart('"Hi" é'),), "m")))[
        "messages"
    ]
    assert [message["content"] for message in messages[1:]] == [
        f'{{"name": "answer", "arguments": {{"text": "Wait."}}}}\n{CALL}',
        "<tool_response>\nx\n</tool_response>",
        '{"name": "answer", "arguments": {"text": "\\"Hi\\" é"}}',
    ]


def scan(*deltas: str, stop: StopReason = "end", as_text: bool = True) -> list[ReplyPiece]:
    taking = GrammarScan(as_text=as_text, answer_name="answer")
    pieces = [piece for delta in deltas for piece in taking.scan_piece(TextDelta(delta))]
    pieces += taking.scan_piece(ReplyEnd(stop))
    text = "".join(piece.text for piece in pieces if isinstance(piece, TextDelta))
    others: list[ReplyPiece] = [piece for piece in pieces if not isinstance(piece, TextDelta)]
    return [TextDelta(text), *others] if text else others


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"answer": "Hi"}', "Hi"),
        ('{"name": "answer", "arguments": {"text": "Hi"}}', "Hi"),
        ('{ "name": "answer",\n "arguments": {\n "text": "Hi" } }\n', "Hi"),
        ('{"name": "answer", "arguments": {"text": "cut', "cut"),
        (' {\n "answer" : "Hi" } \n', "Hi"),
        (r'{"answer": "a\n\"b\" \\ \/ é \ud83d\ude00"}', 'a\n"b" \\ / é 😀'),
        (r'{"answer": "half \ud83d pair \udE00, \q"}', "half \ufffd pair \ufffd, \\q"),
        ('{"answer": ""}', ""),
        ('{"answer": "cut \\u00', "cut "),
        ('{"answer": "cut', "cut"),
        ("Plain words.", "Plain words."),
        ('{"other": 1}', '{"other": 1}'),
        ('{"answer": 5}', '{"answer": 5}'),
        ('{"ans', '{"ans'),
        ("  ", ""),
    ],
)
def test_an_answer_is_shown_as_text(text: str, shown: str) -> None:
    """P9, E2."""
    pieces = [*([TextDelta(shown)] if shown else []), ReplyEnd("end")]
    assert scan(text) == scan(*text) == pieces


@given(st.text(), st.integers(1, 7), st.booleans())
def test_any_answer_comes_through_any_split(text: str, size: int, ascii_only: bool) -> None:  # noqa: FBT001
    for value in ({"answer": text}, {"name": "answer", "arguments": {"text": text}}):
        wire = json.dumps(value, ensure_ascii=ascii_only)
        deltas = [wire[at : at + size] for at in range(0, len(wire), size)]
        assert scan(*deltas) == [*([TextDelta(text)] if text else []), ReplyEnd("end")]


def test_an_answer_is_shown_while_it_streams() -> None:
    taking = GrammarScan(as_text=True)
    shown = [
        taking.scan_piece(TextDelta(part)) for part in ('{"answer"', ': "He', "llo\\", 'n"', "}")
    ]
    assert shown == [[TextDelta(text)] for text in ("", "He", "llo", "\n", "")]


def test_an_answer_of_a_type_is_shown_as_json() -> None:
    alone = '{"answer": {"a": ["}", "\\""]}}'
    beside_tools = '{"name": "answer", "arguments": {"value": {"a": ["}", "\\""]}}}'
    for deltas in ([alone], list(alone), [beside_tools], list(beside_tools)):
        assert scan(*deltas, as_text=False) == [TextDelta('{"a": ["}", "\\""]}'), ReplyEnd("end")]


def test_a_call_is_a_call_and_a_cut_one_never_runs() -> None:
    """R2."""
    call = CallDelta(0, "1", "read", '{"path": "a"}')
    assert scan(CALL) == scan(*CALL) == [call, ReplyEnd("end")]
    for length in range(CALL.index(":") + 3, len(CALL)):
        *_, end = scan(CALL[:length])
        assert end == ReplyEnd("length")


def test_an_answer_that_is_cut_before_its_words_calls_nothing() -> None:
    """R2: nobody has a tool of that name."""
    wire = '{"name": "answer", "arguments": {"text": "'
    for length in range(wire.index("answer") + len("answer") + 1, len(wire) - 1):
        assert scan(wire[:length]) == [ReplyEnd("length")]


def test_the_function_that_answers_has_a_name_of_its_own() -> None:
    """T17: a tool of the user's may be called `answer`."""
    mine = ToolSpec("answer", "Answer a letter.", PATH)
    asked = prompt(tools=(mine,))
    assert accepted(asked, {"name": "answer", "arguments": {"path": "a"}})
    assert accepted(asked, {"name": "final_answer", "arguments": {"text": "Hi"}})
    assert '"name": "final_answer"' in sent(asked)["messages"][0]["content"]


async def test_the_loop_calls_and_answers() -> None:
    """P9: the same pipeline, over HTTP."""
    tools, events = RecordingTools({"read": "contents"}, specs=(READ,)), list[Event]()
    async with FaultServer(
        text_answer(CALL), text_answer('{"answer": "It says \\"contents\\"."}')
    ) as server:
        model = resolve_model(
            "llamacpp:small",
            base_url=server.url,
            environ={},
            options=ModelOptions(tool_protocol="grammar"),
        )
        result = await Agent(model, tools=tools).run("Go", on_event=events.append)
    assert [ran.arguments for ran in tools.calls] == [{"path": "a"}]
    assert result.text == 'It says "contents".'
    shown = [event.text for event in events if isinstance(event, TextDelta)]
    assert "".join(shown) == result.text
    assert len(shown) > 2
    assert all("response_format" in asked.json for asked in server.requests)


async def test_a_reply_cut_by_length_is_told() -> None:
    """R2."""
    tools, events = RecordingTools({"read": "contents"}, specs=(READ,)), list[Event]()
    cut = chat_answer(text_chunk(CALL[:-4]), stop="length")
    async with FaultServer(cut, text_answer('{"answer": "Done."}')) as server:
        agent = Agent(
            "openai-compatible:small",
            base_url=server.url,
            options=ModelOptions(tool_protocol="grammar"),
            tools=tools,
        )
        await agent.run("Go", on_event=events.append)
    judged = [event.verdict for event in events if isinstance(event, CallJudged)]
    assert [getattr(verdict, "code", "") for verdict in judged] == ["arguments_truncated"]
    assert tools.calls == []
