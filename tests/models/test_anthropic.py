"""Anthropic's messages: what is sent, and what is read."""

from base64 import b64encode
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from transcripts import (
    CONVERSATION,
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
from windlass.core.events import CallDelta, ReplyEnd, TextDelta, ThinkingDelta
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
from windlass.models.anthropic.messages import AnthropicMessages
from windlass.models.anthropic.reader import REDACTED_PREFIX, AnthropicReader
from windlass.models.anthropic.thinking import accepts_sampling, thinking_settings
from windlass.models.options import Effort, ModelOptions

PICTURE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": b64encode(PNG).decode()},
}
MARK = {"type": "ephemeral"}


def read(name: str) -> list[Any]:
    return list(read_pieces(AnthropicReader(), "anthropic", name))


def read_events(*events: bytes) -> list[Any]:
    reader = AnthropicReader()
    return [piece for event in events for piece in reader.read_event("", event)]


# ── what is sent ─────────────────────────────────────────────────────────────


@pytest.mark.contract("P2")
@pytest.mark.contract("P7")
def test_a_conversation_with_everything_in_it() -> None:
    """P2, P7, S9, S11: turns alternate, calls are paired, thinking goes back as it came."""
    assert request_body(AnthropicMessages(), make_prompt())["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "What is there?"}, PICTURE]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hmm.", "signature": "sig-thought"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "wire_a", "name": "look", "input": {"at": "door"}},
                {"type": "tool_use", "id": "wire_b", "name": "wait", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "wire_a",
                    "content": [{"type": "text", "text": "A door."}, PICTURE],
                },
                {
                    "type": "tool_result",
                    "tool_use_id": "wire_b",
                    "content": [{"type": "text", "text": "Denied: no."}],
                    "is_error": True,
                },
                {"type": "text", "text": "Keep it short."},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "A door."}]},
        {"role": "user", "content": [{"type": "text", "text": "And behind it?"}]},
    ]


def test_the_head_of_a_request() -> None:
    options = ModelOptions(
        temperature=0.5,
        top_p=0.9,
        seed=7,
        stop=("END",),
        service_tier="standard_only",
        extra_headers={"anthropic-beta": "x"},
    )
    request = AnthropicMessages().encode_request(
        make_prompt(system="Be kind."), "claude-sonnet-4-5", options
    )
    head = request_body(
        AnthropicMessages(), make_prompt(system="Be kind."), "claude-sonnet-4-5", options
    )
    assert request.path == "/messages"
    assert request.headers == {"anthropic-version": "2023-06-01", "anthropic-beta": "x"}
    assert list(head)[-1] == "messages"
    del head["messages"]
    assert head == {
        "model": "claude-sonnet-4-5",
        "max_tokens": 4_096,
        "stream": True,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop_sequences": ["END"],
        "service_tier": "standard_only",
        "cache_control": MARK,
        "tools": [
            {
                "name": "look",
                "description": "Look at a place.",
                "input_schema": {"type": "object", "properties": {"at": {}}},
            },
            {
                "name": "wait",
                "description": "Wait a while.",
                "input_schema": {"type": "object", "properties": {}},
            },
        ],
        "system": [{"type": "text", "text": "Be kind.", "cache_control": MARK}],
    }


@pytest.mark.contract("P5")
def test_the_cache_marks_stay_out_of_the_history() -> None:
    """P5: one mark where tools and system end, and one that the API moves by itself."""
    bare = request_body(AnthropicMessages(), make_prompt())
    assert bare["tools"][-1]["cache_control"] == MARK
    assert "cache_control" not in str(bare["messages"])
    unmarked = request_body(AnthropicMessages(cache_marks=False), make_prompt(system="Be kind."))
    assert "cache_control" not in str(unmarked)


@pytest.mark.parametrize(
    ("choice", "encoded"),
    [
        ("auto", None),
        ("none", {"type": "none"}),
        ("required", {"type": "any"}),
        ("look", {"type": "tool", "name": "look"}),
    ],
)
def test_the_choice_of_a_tool(choice: str, encoded: object) -> None:
    assert (
        request_body(AnthropicMessages(), make_prompt(tool_choice=choice)).get("tool_choice")
        == encoded
    )
    assert "tool_choice" not in request_body(
        AnthropicMessages(), make_prompt(tools=(), tool_choice="none")
    )


def test_what_the_caller_adds_comes_last_and_is_merged() -> None:
    options = ModelOptions(
        effort="high", extra_body={"output_config": {"format": "x"}, "cache_control": {"ttl": "1h"}}
    )
    dialect = AnthropicMessages()
    head = request_body(dialect, make_prompt(), "claude-opus-4-8", options)
    assert head["output_config"] == {"effort": "high", "format": "x"}
    assert head["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    # What one request adds is not in the next.
    assert request_body(dialect, make_prompt())["cache_control"] == MARK
    own = ModelOptions(extra_body={"messages": []})
    assert request_body(dialect, make_prompt(), "claude-opus-4-8", own)["messages"] == []


@pytest.mark.contract("S14")
@pytest.mark.parametrize(
    ("model", "effort", "fields"),
    [
        ("claude-3-5-haiku-20241022", "high", {}),
        ("claude-3-7-sonnet-20250219", "off", {}),
        (
            "claude-3-7-sonnet-20250219",
            "low",
            {"thinking": {"type": "enabled", "budget_tokens": 2_048}},
        ),
        (
            "claude-sonnet-4-20250514",
            "medium",
            {"thinking": {"type": "enabled", "budget_tokens": 6_000}},
        ),
        (
            "claude-haiku-4-5-20251001",
            "high",
            {"thinking": {"type": "enabled", "budget_tokens": 6_000}},
        ),
        ("claude-opus-4-6", "off", {}),
        (
            "claude-opus-4-6",
            "low",
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
        ),
        (
            "anthropic/claude-opus-4.8",
            "high",
            {
                "thinking": {"type": "adaptive", "display": "summarized"},
                "output_config": {"effort": "high"},
            },
        ),
        (
            "claude-opus-5",
            "off",
            {"thinking": {"type": "disabled"}, "output_config": {"effort": "low"}},
        ),
        ("claude-opus-5-5", "off", {"output_config": {"effort": "low"}}),
        (
            "claude-sonnet-5-5",
            "off",
            {"thinking": {"type": "between_tools"}, "output_config": {"effort": "low"}},
        ),
        ("claude-fable-5", "off", {"output_config": {"effort": "low"}}),
        ("some-model", "low", {"thinking": {"type": "enabled", "budget_tokens": 2_048}}),
    ],
)
def test_each_generation_is_told_in_its_own_way_how_much_to_think(
    model: str, effort: Effort, fields: dict[str, Any]
) -> None:
    """S14."""
    assert thinking_settings(model, effort, 8_000, forced=False) == fields
    assert thinking_settings(model, None, 8_000, forced=False) == {}


def test_a_forced_call_is_made_without_thinking() -> None:
    def thinking(model: str) -> object:
        return thinking_settings(model, "high", 8_000, forced=True).get("thinking")

    assert thinking("claude-sonnet-4-5") is None
    assert thinking("claude-opus-4-8") is None
    assert thinking("claude-opus-5") == {"type": "disabled"}
    assert thinking("some-model") is None
    # Where thinking is on unless it is switched off, nobody need have asked for it.
    assert thinking_settings("claude-opus-5", None, 8_000, forced=True) == {
        "thinking": {"type": "disabled"}
    }
    assert thinking_settings("claude-opus-4-8", None, 8_000, forced=True) == {}


def test_the_budget_to_think_stays_below_the_output_cap() -> None:
    for output_max in (1, 1_024, 1_366, 5_000, 100_000):
        fields = thinking_settings("claude-sonnet-4-5", "high", output_max, forced=False)
        if fields:
            assert 1_024 <= fields["thinking"]["budget_tokens"] < output_max
        else:
            assert output_max < 1_366


def test_who_thinks_is_not_sampled() -> None:
    options = ModelOptions(temperature=0.2, top_p=0.5, effort="high")
    assert "temperature" not in request_body(
        AnthropicMessages(), make_prompt(), "claude-sonnet-4-5", options
    )
    assert not accepts_sampling("claude-opus-4-7")
    assert accepts_sampling("claude-opus-4-6")


@pytest.mark.contract("S11")
def test_another_models_thinking_is_left_out() -> None:
    """S11, S9: after a switch of model there is no thinking, and the ids are our own."""
    reply = request_body(AnthropicMessages(), make_prompt(model="vendor:other"))["messages"][1]
    assert [block["type"] for block in reply["content"]] == ["text", "tool_use", "tool_use"]
    assert [block.get("id") for block in reply["content"]] == [None, "c1_0", "c1_1"]


@pytest.mark.contract("S11")
def test_thinking_without_words_goes_back_too() -> None:
    """S11: what was redacted goes back as such, what was only hidden with its empty text."""
    thoughts = (
        ThinkingPart("", REDACTED_PREFIX + "data"),
        ThinkingPart("", "sig"),
        TextPart("So."),
    )
    messages = (
        UserMessage((TextPart("Hm?"),)),
        AssistantMessage(thoughts, HERE),
        UserMessage((TextPart("And?"),)),
    )
    assert request_body(AnthropicMessages(), make_prompt(messages))["messages"][1]["content"] == [
        {"type": "redacted_thinking", "data": "data"},
        {"type": "thinking", "thinking": "", "signature": "sig"},
        {"type": "text", "text": "So."},
    ]


@pytest.mark.contract("S9")
def test_an_id_that_a_provider_gave_twice_is_given_once() -> None:
    """S9."""
    calls = [ToolCall(f"c{n}", "look", "{}", given) for n, given in enumerate(["x", "x", "a:b"])]
    results = tuple(CallOutcome(call, ToolResult.from_text("value", call.id)) for call in calls)
    messages = (
        UserMessage((TextPart("Go."),)),
        AssistantMessage(tuple(calls), HERE),
        ToolResults(results),
    )
    encoded = request_body(AnthropicMessages(), make_prompt(messages))["messages"]
    assert [block["id"] for block in encoded[1]["content"]] == ["x", "c1", "c2"]
    assert [block["tool_use_id"] for block in encoded[2]["content"]] == ["x", "c1", "c2"]


def test_arguments_that_are_no_object_are_shown_as_they_were_written() -> None:
    call = ToolCall("c1", "look", '{"at": "do')
    results = ToolResults((CallOutcome(call, ToolResult.from_text("invalid", "cut")),))
    encoded = request_body(
        AnthropicMessages(),
        make_prompt((UserMessage((TextPart("Go."),)), AssistantMessage((call,)), results)),
    )["messages"]
    assert encoded[1]["content"][0]["input"] == {"not_a_json_object": '{"at": "do'}


def test_nothing_is_said_with_nothing() -> None:
    call = ToolCall("c1", "look", "{}")
    results = (
        CallOutcome(call, ToolResult("value", ())),
        CallOutcome(call, ToolResult("error", ())),
    )
    messages = (
        UserMessage((TextPart("Go."), TextPart(" \n"))),
        AssistantMessage((TextPart("\n\n"), call)),
        ToolResults(results),
        AssistantMessage((ThinkingPart("of another model", "sig"),), "vendor:other"),
        UserMessage((TextPart("Well?"),)),
    )
    encoded = request_body(AnthropicMessages(), make_prompt(messages))["messages"]
    assert [message["role"] for message in encoded] == ["user", "assistant", "user"]
    assert len(encoded[0]["content"]) == len(encoded[1]["content"]) == 1
    empty, failed, text = encoded[2]["content"]
    assert "content" not in empty
    assert failed["content"] == [{"type": "text", "text": "error"}]
    assert text["text"] == "Well?"


@pytest.mark.contract("P7")
@pytest.mark.parametrize(
    ("part", "block"),
    [
        (
            ImagePart("image/png", url="https://a.example/b.png"),
            {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}},
        ),
        (
            FilePart("application/pdf", "a.pdf", b"%PDF"),
            {
                "type": "document",
                "source": {
                    "type": "base64",
                    "media_type": "application/pdf",
                    "data": b64encode(b"%PDF").decode(),
                },
                "title": "a.pdf",
            },
        ),
        (
            FilePart("text/csv", "a.csv", b"1,2"),
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "1,2"},
                "title": "a.csv",
            },
        ),
    ],
)
def test_images_and_files(part: ImagePart | FilePart, block: object) -> None:
    """P7."""
    encoded = request_body(AnthropicMessages(), make_prompt((UserMessage((part,)),)))
    assert encoded["messages"][0]["content"] == [block]


@pytest.mark.contract("P7")
@pytest.mark.parametrize(
    ("part", "name"),
    [
        (ImagePart("image/bmp", b"BM"), r"the image \(image/bmp, 2 bytes\)"),
        (ImagePart("image/png"), r"the image \(image/png\)"),
        (FilePart("application/zip", "a.zip", b"PK"), r"the file 'a\.zip' \(application/zip"),
        (FilePart("text/plain", "a.txt", b"\xff"), "the file 'a.txt'"),
        (FilePart("text/plain", "a.txt", url="https://a.example/a.txt"), "at https://a.example"),
    ],
)
def test_what_the_api_cannot_take_is_refused_by_name(part: ImagePart | FilePart, name: str) -> None:
    """P7: an error in a prompt; in a result the model is told, since the tool has run."""
    with pytest.raises(ModelError, match=name) as refused:
        AnthropicMessages().encode_request(
            make_prompt((UserMessage((part,)),)), "claude-opus-5", ModelOptions()
        )
    assert refused.value.fault.kind == "bad_request"
    call = ToolCall("c1", "look", "{}")
    results = ToolResults((CallOutcome(call, ToolResult("value", (part,))),))
    messages = (UserMessage((TextPart("Go."),)), AssistantMessage((call,)), results)
    told = request_body(AnthropicMessages(), make_prompt(messages))["messages"][2]["content"][0][
        "content"
    ]
    assert "is not shown" in told[0]["text"]


@pytest.mark.contract("P5")
@given(transcripts())
def test_every_request_is_valid_and_grows_from_the_one_before(messages: list[Message]) -> None:
    """P5, S9: roles alternate, results pair with calls, nothing is empty, bytes never change."""
    assert_grows(encoded_histories(AnthropicMessages(), messages, "messages", b"]}"))
    turns = request_body(AnthropicMessages(), make_prompt(messages))["messages"]
    roles = [turn["role"] for turn in turns]
    assert roles == (["user", "assistant"] * len(roles))[: len(roles)]
    asked: list[str] = []
    seen: set[str] = set()
    for turn in turns:
        assert turn["content"]
        answered = [b["tool_use_id"] for b in turn["content"] if b["type"] == "tool_result"]
        assert answered == asked
        kinds = [block["type"] for block in turn["content"]]
        assert kinds[: len(answered)] == ["tool_result"] * len(answered)
        asked = [block["id"] for block in turn["content"] if block["type"] == "tool_use"]
        assert not seen.intersection(asked)
        assert len(set(asked)) == len(asked)
        seen.update(asked)
        assert all(b["text"].strip() for b in turn["content"] if b["type"] == "text")
    assert asked == []


# ── what is read ─────────────────────────────────────────────────────────────


@pytest.mark.contract("S12")
def test_text() -> None:
    """S12: input includes what was read from and written to the cache."""
    got = read("text")
    assert without_usage(got) == [TextDelta("Hello"), TextDelta(", Grüße 👋"), ReplyEnd("end")]
    assert assemble_reply(got).usage == Usage(
        input=2_572, output=15, cache_read=512, cache_write=2_048
    )


@pytest.mark.contract("S11")
def test_thinking() -> None:
    """S11: text, signature, and a block that was redacted."""
    got = read("thinking")
    assert without_usage(got) == [
        ThinkingDelta("Let me break it down: 27 * 453"),
        ThinkingDelta(" = 12,231"),
        ThinkingDelta("", "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pki"),
        ThinkingDelta("", "redacted:EmwKAhgBEgy3va3pzix5afcc9OYaDMJp/wNsTCsdDq4WF5kE"),
        TextDelta("27 * 453 = "),
        TextDelta("12,231"),
        ReplyEnd("end"),
    ]
    assert assemble_reply(got).usage == Usage(input=47, output=71, reasoning=52)


@pytest.mark.contract("S9")
def test_parallel_calls() -> None:
    """S9: a call of the server's own tools is none of ours."""
    got = read("parallel_calls")
    assert without_usage(got) == [
        TextDelta("I'll check both."),
        CallDelta(2, "toolu_01T1x1fJ34qAmk2tNTrN7Up6", "get_weather"),
        CallDelta(2, arguments='{"location":'),
        CallDelta(2, arguments=' "San Francisco, CA"}'),
        CallDelta(3, "toolu_01Qm9R5Z1nV2bA7cW3dX8eYf", "get_time"),
        CallDelta(3, arguments='{"zone": "PST"}'),
        ReplyEnd("calls"),
    ]
    calls = assemble_reply(got).build_reply(HERE, "c1_").calls
    assert [call.arguments for call in calls] == [
        '{"location": "San Francisco, CA"}',
        '{"zone": "PST"}',
    ]


def test_a_reply_that_was_read_goes_back_as_it_came() -> None:
    reply = assemble_reply(read("parallel_calls")).build_reply(HERE, "c1_")
    results = ToolResults(
        tuple(CallOutcome(c, ToolResult.from_text("value", "ok")) for c in reply.calls)
    )
    encoded = request_body(AnthropicMessages(), make_prompt((*CONVERSATION[:1], reply, results)))
    assert [block.get("input") for block in encoded["messages"][1]["content"]] == [
        None,
        {"location": "San Francisco, CA"},
        {"zone": "PST"},
    ]


def test_a_refusal_and_a_reply_that_hit_its_limit() -> None:
    assert without_usage(read("refusal"))[-1] == ReplyEnd("refusal")
    assert without_usage(read("length"))[-1] == ReplyEnd("length")


def test_an_error_in_the_stream() -> None:
    with pytest.raises(ModelError, match="Overloaded") as failed:
        read("error")
    assert (failed.value.fault.kind, failed.value.fault.retryable) == ("server", True)


@pytest.mark.parametrize(
    ("kind", "message", "fault"),
    [
        ("rate_limit_error", "Slow down", "rate_limit"),
        ("api_error", "Internal server error", "server"),
        ("authentication_error", "invalid x-api-key", "auth"),
        ("invalid_request_error", "messages: bad", "bad_request"),
        (
            "invalid_request_error",
            "prompt is too long: 200251 tokens > 200000 maximum",
            "context_overflow",
        ),
        ("request_too_large", "Request exceeds the maximum size", "context_overflow"),
    ],
)
def test_the_kinds_of_errors(kind: str, message: str, fault: str) -> None:
    event = b'{"type":"error","error":{"type":"%b","message":"%b"}}'
    with pytest.raises(ModelError) as failed:
        read_events(event % (kind.encode(), message.encode()))
    assert failed.value.fault.kind == fault


@pytest.mark.contract("S8")
def test_a_stream_that_was_cut_has_no_end() -> None:
    """S8: not even when the reason to stop had come."""
    assert without_usage(read("cut")) == [TextDelta("Hello")]
    assert not reply_end(read("cut"))


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("stop_sequence", "end"),
        ("pause_turn", "length"),
        ("model_context_window_exceeded", "length"),
        ("something_new", "end"),
    ],
)
def test_the_reasons_to_stop(reason: str, stop: str) -> None:
    delta = b'{"type":"message_delta","delta":{"stop_reason":"%b"}}' % reason.encode()
    assert read_events(delta, b'{"type":"message_stop"}') == [ReplyEnd(stop)]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "event",
    [
        b'{"type":"ping"}',
        b'{"type":"something_new","delta":"a string","index":"x"}',
        b'{"type":"content_block_start","index":0,"content_block":{"type":"new","text":[1]}}',
        b'{"type":"content_block_delta","index":0,"delta":{"type":"new_delta","text":{}}}',
        b'{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta"}}',
        b'{"type":"content_block_stop","index":0}',
        b'{"type":"message_start"}',
    ],
)
def test_what_is_not_known_is_passed_over(event: bytes) -> None:
    assert read_events(event) == []


@pytest.mark.parametrize(
    "event",
    [
        b"{",
        b"[]",
        b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":1}}',
        b'{"type":"message_delta","delta":{"stop_reason":1}}',
    ],
)
def test_what_cannot_be_read_is_a_malformed_stream(event: bytes) -> None:
    with pytest.raises(ModelError) as failed:
        read_events(event)
    assert failed.value.fault.kind == "malformed_stream"


def test_a_block_that_comes_whole_at_its_start() -> None:
    start = b'{"type":"content_block_start","index":%d,"content_block":%b}'
    assert read_events(
        start % (0, b'{"type":"thinking","thinking":"Hm","signature":"s"}'),
        start % (1, b'{"type":"text","text":"Hi"}'),
        start % (2, b'{"type":"tool_use","id":"t","name":"look","input":{"at":1}}'),
        b'{"type":"message_stop"}',
    ) == [
        ThinkingDelta("Hm", "s"),
        TextDelta("Hi"),
        CallDelta(2, "t", "look", '{"at":1}'),
        ReplyEnd("calls"),
    ]


def test_a_reply_with_one_call_at_most_can_be_asked_for() -> None:
    """P2: the API's own words for `parallel_tool_calls`."""
    for choice, kind in (("auto", "auto"), ("required", "any")):
        sent = request_body(
            AnthropicMessages(), replace(make_prompt(tool_choice=choice), parallel_tool_calls=False)
        )
        assert sent["tool_choice"] == {"type": kind, "disable_parallel_tool_use": True}
    sent = request_body(
        AnthropicMessages(), replace(make_prompt(tool_choice="none"), parallel_tool_calls=False)
    )
    assert sent["tool_choice"] == {"type": "none"}
