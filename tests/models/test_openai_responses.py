"""OpenAI's responses: what is sent, and what is read."""

from base64 import b64encode
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from transcripts import (
    HERE,
    PNG,
    assemble_reply,
    assert_grows,
    encoded_histories,
    make_prompt,
    read_pieces,
    reply_end,
    request_body,
    transcripts,
    without_usage,
)
from windlass.core.errors import ModelError
from windlass.core.events import CallDelta, ReplyEnd, TextDelta, ThinkingDelta, UsageDelta
from windlass.core.messages import (
    AssistantMessage,
    CallOutcome,
    FilePart,
    ImagePart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    ToolResults,
    Usage,
    UserMessage,
)
from windlass.models.openai.responses import OpenAIResponses
from windlass.models.openai.responses_reader import ResponsesReader
from windlass.models.options import Effort, ModelOptions

PICTURE = {
    "type": "input_image",
    "detail": "auto",
    "image_url": f"data:image/png;base64,{b64encode(PNG).decode()}",
}

FAILED = b'{"type":"response.failed","response":{"error":{"code":"%b","message":"No."}}}'


def read(name: str) -> list[Any]:
    return list(read_pieces(ResponsesReader(4_096), "openai_responses", name))


def read_events(*events: bytes) -> list[Any]:
    reader = ResponsesReader(4_096)
    return [piece for event in events for piece in reader.read_event("", event)]


# ── what is sent ─────────────────────────────────────────────────────────────


@pytest.mark.contract("P2")
@pytest.mark.contract("P7")
def test_a_conversation_with_everything_in_it() -> None:
    """P2, P7, S9, S11: the model's reasoning goes back encrypted, calls are paired."""
    assert request_body(OpenAIResponses(), make_prompt())["input"] == [
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "What is there?"}, PICTURE],
        },
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "Hmm."}],
            "encrypted_content": "sig-thought",
        },
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "I look."}],
        },
        {
            "type": "function_call",
            "call_id": "wire_a",
            "name": "look",
            "arguments": '{"at": "door"}',
        },
        {"type": "function_call", "call_id": "wire_b", "name": "wait", "arguments": "{}"},
        {
            "type": "function_call_output",
            "call_id": "wire_a",
            "output": [{"type": "input_text", "text": "A door."}, PICTURE],
        },
        {"type": "function_call_output", "call_id": "wire_b", "output": "Denied: no."},
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "Keep it short."}],
        },
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "A door."}],
        },
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "And behind it?"}],
        },
    ]


def test_the_head_of_a_request() -> None:
    options = ModelOptions(
        temperature=0.5,
        top_p=0.9,
        seed=7,
        stop=("END",),
        service_tier="flex",
        extra_body={"metadata": {"a": "b"}},
        extra_headers={"x-a": "b"},
    )
    asked = make_prompt(system="Be kind.", tool_choice="required")
    request = OpenAIResponses().encode_request(asked, "gpt-4.1", options)
    head = request_body(OpenAIResponses(), asked, "gpt-4.1", options)
    assert (request.path, request.headers) == ("/responses", {"x-a": "b"})
    assert list(head)[-1] == "input"
    del head["input"]
    assert head == {
        "model": "gpt-4.1",
        "stream": True,
        "store": False,
        "max_output_tokens": 4_096,
        "temperature": 0.5,
        "top_p": 0.9,
        "service_tier": "flex",
        "tool_choice": "required",
        "tools": [
            {
                "type": "function",
                "name": "look",
                "description": "Look at a place.",
                "parameters": {"type": "object", "properties": {"at": {}}},
                "strict": False,
            },
            {
                "type": "function",
                "name": "wait",
                "description": "Wait a while.",
                "parameters": {"type": "object", "properties": {}},
                "strict": False,
            },
        ],
        "instructions": "Be kind.",
        "metadata": {"a": "b"},
    }


@pytest.mark.parametrize(
    ("choice", "encoded"),
    [("auto", "auto"), ("none", "none"), ("look", {"type": "function", "name": "look"})],
)
def test_the_choice_of_a_tool(choice: str, encoded: object) -> None:
    assert (
        request_body(OpenAIResponses(), make_prompt(tool_choice=choice))["tool_choice"] == encoded
    )
    assert "tool_choice" not in request_body(
        OpenAIResponses(), make_prompt(tools=(), tool_choice="none")
    )


@pytest.mark.contract("S14")
@pytest.mark.parametrize(
    ("model", "effort", "reasoning"),
    [
        ("gpt-5.5", "high", {"effort": "high"}),
        ("gpt-5.5", "off", {"effort": "none"}),
        ("gpt-5.5", None, None),
        ("gpt-5", "off", {"effort": "minimal"}),
        ("gpt-5-mini-2025-08-07", "off", {"effort": "minimal"}),
        ("gpt-5.3-codex", "off", {"effort": "low"}),
        ("o4-mini", "off", {"effort": "low"}),
        ("gpt-5.5-pro", "off", None),
        ("gpt-4.1", "high", None),
        ("gpt-5-chat-latest", "high", None),
    ],
)
def test_how_much_to_think(model: str, effort: Effort | None, reasoning: object) -> None:
    """S14."""
    head = request_body(
        OpenAIResponses(), make_prompt(), model, ModelOptions(effort=effort, temperature=1.0)
    )
    assert head.get("reasoning") == reasoning
    thinks = "chat" not in model and "gpt-4" not in model
    assert head.get("include") == (["reasoning.encrypted_content"] if thinks else None)
    assert ("temperature" in head) is (reasoning is None or reasoning == {"effort": "none"})


@pytest.mark.contract("S11")
def test_another_models_thinking_is_left_out() -> None:
    """S11, S9: after a switch of model there is no reasoning, and the ids are our own."""
    items = request_body(OpenAIResponses(), make_prompt(model="vendor:other"))["input"]
    assert "reasoning" not in {item["type"] for item in items}
    assert [item["call_id"] for item in items if "call_id" in item] == ["c1_0", "c1_1"] * 2


@pytest.mark.contract("S11")
def test_reasoning_that_nobody_encrypted_goes_back_in_words() -> None:
    """S11: open models read their own reasoning again."""
    messages = (
        UserMessage((TextPart("Hm?"),)),
        AssistantMessage((ThinkingPart("Hm."), TextPart("So.")), HERE),
    )
    assert request_body(OpenAIResponses(), make_prompt(messages))["input"][1] == {
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "Hm."}],
    }


@pytest.mark.contract("P7")
@pytest.mark.parametrize(
    ("part", "block"),
    [
        (
            ImagePart("image/png", url="https://a.example/b.png"),
            {"type": "input_image", "detail": "auto", "image_url": "https://a.example/b.png"},
        ),
        (
            FilePart("application/pdf", "a.pdf", b"%PDF"),
            {
                "type": "input_file",
                "filename": "a.pdf",
                "file_data": f"data:application/pdf;base64,{b64encode(b'%PDF').decode()}",
            },
        ),
        (
            FilePart("application/pdf", "a.pdf", url="https://a.example/a.pdf"),
            {"type": "input_file", "file_url": "https://a.example/a.pdf"},
        ),
    ],
)
def test_images_and_files(part: ImagePart | FilePart, block: object) -> None:
    """P7."""
    encoded = request_body(OpenAIResponses(), make_prompt((UserMessage((part,)),)))
    assert encoded["input"][0]["content"] == [block]


@pytest.mark.contract("P7")
@pytest.mark.parametrize(
    "part", [ImagePart("image/bmp", b"BM"), FilePart("application/pdf", "a.pdf")]
)
def test_what_the_api_cannot_take_is_refused_by_name(part: ImagePart | FilePart) -> None:
    """P7."""
    with pytest.raises(ModelError, match=part.media_type):
        OpenAIResponses().encode_request(
            make_prompt((UserMessage((part,)),)), "gpt-5.5", ModelOptions()
        )
    call = ToolCall("c1", "look", "{}")
    results = ToolResults((CallOutcome(call, ToolResult("value", (part,))),))
    messages = (UserMessage((TextPart("Go."),)), AssistantMessage((call,)), results)
    told = request_body(OpenAIResponses(), make_prompt(messages))["input"][2]["output"]
    assert "is not shown" in told[0]["text"]


@pytest.mark.contract("P5")
@given(transcripts())
def test_every_request_is_valid_and_grows_from_the_one_before(messages: list[Message]) -> None:
    """P5, S9: results pair with calls, nothing is empty, bytes never change."""
    assert_grows(encoded_histories(OpenAIResponses(), messages, "input", b""))
    items = request_body(OpenAIResponses(), make_prompt(messages))["input"]
    open_calls: list[str] = []
    seen: set[str] = set()
    for item in items:
        match item["type"]:
            case "function_call":
                assert item["call_id"] not in seen
                seen.add(item["call_id"])
                open_calls.append(item["call_id"])
            case "function_call_output":
                assert item["call_id"] == open_calls.pop(0)
            case "message":
                assert item["content"]
                assert all(b["text"].strip() for b in item["content"] if "text" in b)
                assert item["role"] == "assistant" or not open_calls
            case "reasoning":
                assert not open_calls
                assert item.get("content") or item["encrypted_content"]
            case kind:
                pytest.fail(f"an item of type {kind}")
    assert open_calls == []


# ── what is read ─────────────────────────────────────────────────────────────


@pytest.mark.contract("S12")
def test_text() -> None:
    """S12."""
    got = read("text")
    assert without_usage(got) == [TextDelta("Hello"), TextDelta(", Grüße 👋"), ReplyEnd("end")]
    assert assemble_reply(got).usage == Usage(input=37, output=11, cache_read=16)


@pytest.mark.contract("S11")
def test_thinking() -> None:
    """S11: the summary in its parts, and what is encrypted when the item is done."""
    got = read("thinking")
    assert without_usage(got) == [
        ThinkingDelta("**Multiplying**\n\n27 * "),
        ThinkingDelta("453"),
        ThinkingDelta("\n\n"),
        ThinkingDelta("It is 12,231."),
        ThinkingDelta("", "gAAAAABodrzK9b8aXQ0mE5nT"),
        TextDelta("12,231"),
        ReplyEnd("end"),
    ]
    assert assemble_reply(got).usage == Usage(input=81, output=1_035, reasoning=832)


@pytest.mark.contract("S9")
def test_parallel_calls() -> None:
    """S9: the fragments of the two calls are interleaved."""
    got = read("parallel_calls")
    assert without_usage(got) == [
        ThinkingDelta("", "gAAAAABoSig2"),
        CallDelta(0, "call_12345xyz", "get_weather"),
        CallDelta(1, "call_67890abc", "get_time"),
        CallDelta(0, arguments='{"location":'),
        CallDelta(1, arguments='{"zone":"CET"}'),
        CallDelta(0, arguments='"Paris"}'),
        ReplyEnd("calls"),
    ]
    reply = assemble_reply(got).build_reply(HERE, "c1_")
    assert [call.arguments for call in reply.calls] == ['{"location":"Paris"}', '{"zone":"CET"}']


def test_a_refusal_and_a_reply_that_hit_its_limit() -> None:
    got = read("refusal")
    assert assemble_reply(got).text == "I'm sorry, I can't help with that."
    assert without_usage(got)[-1] == ReplyEnd("refusal")
    assert without_usage(read("length"))[-1] == ReplyEnd("length")
    filtered = b'{"type":"response.incomplete","response":{"incomplete_details":{"reason":"%b"}}}'
    assert read_events(filtered % b"content_filter") == [ReplyEnd("refusal")]


def test_a_reply_that_used_up_its_cap_was_cut_whatever_the_server_says() -> None:
    """As llama.cpp does it."""
    done = (
        b'{"type":"response.completed","response":{"usage":{"input_tokens":1,"output_tokens":%d}}}'
    )
    assert read_events(done % 4_096)[-1] == ReplyEnd("length")
    assert read_events(done % 4_095)[-1] == ReplyEnd("end")


@pytest.mark.contract("S12")
def test_an_error_in_the_stream() -> None:
    """S12: what a failed response cost is told before its error is."""
    reader, got = ResponsesReader(4_096), list[Any]()
    with pytest.raises(ModelError, match="Rate limit reached") as failed:
        got.extend(read_pieces(reader, "openai_responses", "error"))
    fault = failed.value.fault
    assert (fault.kind, fault.retryable, fault.retry_after_s) == ("rate_limit", True, 11.054)
    assert got[-1] == UsageDelta(Usage(input=20, output=1))


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (
            b'{"type":"error","code":"server_error","message":"Oh","param":null}',
            "server",
        ),
        (
            b'{"type":"error","error":{"code":"context_length_exceeded","message":"Too long"}}',
            "context_overflow",
        ),
        (FAILED % b"invalid_prompt", "bad_request"),
        (FAILED % b"image_too_large", "bad_request"),
        (FAILED % b"context_length_exceeded", "context_overflow"),
        (b'{"type":"response.failed","response":{"error":null}}', "server"),
        (b'{"type":"response.completed","response":[]}', "malformed_stream"),
        (b'{"type":"response.output_text.delta","delta":1}', "malformed_stream"),
        (
            b'{"type":"response.output_item.done","item":{"type":"reasoning","id":1}}',
            "malformed_stream",
        ),
        (b"{", "malformed_stream"),
    ],
)
def test_the_kinds_of_errors(event: bytes, kind: str) -> None:
    with pytest.raises(ModelError) as failed:
        read_events(event)
    assert failed.value.fault.kind == kind


@pytest.mark.contract("S8")
def test_a_stream_that_was_cut_has_no_end() -> None:
    """S8: not even when every item in it is done."""
    assert without_usage(read("cut")) == [TextDelta("Hello")]
    assert not reply_end(read("cut"))


@pytest.mark.parametrize(
    "event",
    [
        b"[DONE]",
        b'{"type":"keepalive"}',
        b'{"type":"response.something.delta","delta":{"a":1}}',
        b'{"type":"response.something.delta","delta":"a"}',
        b'{"type":"response.output_item.added","item":{"type":"new","id":[1]}}',
        b'{"type":"response.output_item.added","item":{"type":"message","id":"m"}}',
        b'{"type":"response.output_text.delta","delta":""}',
        b'{"type":"response.function_call_arguments.delta","item_id":"mcp_1","delta":"{"}',
    ],
)
def test_what_is_not_known_is_passed_over(event: bytes) -> None:
    assert read_events(event) == []


def test_a_server_that_does_not_number_its_items() -> None:
    added = b'{"type":"response.output_item.added","item":{"type":"function_call","call_id":"%b",'
    added += b'"name":"look","arguments":""}}'
    delta = b'{"type":"response.function_call_arguments.delta","item_id":"%b","delta":"%b"}'
    assert read_events(
        added % b"a", added % b"b", delta % (b"a", b"1"), delta % (b"b", b"2"), delta % (b"a", b"3")
    ) == [
        CallDelta(0, "a", "look"),
        CallDelta(1, "b", "look"),
        CallDelta(0, arguments="1"),
        CallDelta(1, arguments="2"),
        CallDelta(0, arguments="3"),
    ]


def test_a_call_that_comes_whole_when_it_is_done() -> None:
    item = b'{"type":"function_call","call_id":"a","name":"look","arguments":"{}"}'
    done = b'{"type":"response.output_item.done","output_index":3,"item":%b}' % item
    end = b'{"type":"response.completed","response":{}}'
    assert read_events(done, done, end) == [
        CallDelta(0, "a", "look"),
        CallDelta(0, arguments="{}"),
        ReplyEnd("calls"),
    ]


def test_a_reply_with_one_call_at_most_can_be_asked_for() -> None:
    """P2."""
    sent = request_body(OpenAIResponses(), replace(make_prompt(), parallel_tool_calls=False))
    assert sent["parallel_tool_calls"] is False
    assert "parallel_tool_calls" not in request_body(OpenAIResponses(), make_prompt())
