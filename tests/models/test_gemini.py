"""Gemini's generateContent: what is sent, and what is read."""

from base64 import b64encode
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
from windlass.models.gemini.generate import UNSIGNED_CALL, GeminiDialect, thinking_config
from windlass.models.gemini.reader import GeminiReader
from windlass.models.options import Effort, ModelOptions

NEW, OLD = "gemini-3.8-flash", "gemini-2.5-flash"
PICTURE = {"inlineData": {"mimeType": "image/png", "data": b64encode(PNG).decode()}}


def read(name: str) -> list[Any]:
    return list(read_pieces(GeminiReader(), "gemini", name))


def read_events(*events: bytes) -> list[Any]:
    reader = GeminiReader()
    return [piece for event in events for piece in reader.read_event("", event)]


# ── what is sent ─────────────────────────────────────────────────────────────


@pytest.mark.contract("P2")
@pytest.mark.contract("P7")
def test_a_conversation_with_everything_in_it() -> None:
    """P2, P7, S9, S11: what was signed stands where it stood, responses pair by name and id."""
    assert request_body(GeminiDialect(), make_prompt(), NEW)["contents"] == [
        {"role": "user", "parts": [{"text": "What is there?"}, PICTURE]},
        {
            "role": "model",
            "parts": [
                {"text": "Hmm.", "thought": True, "thoughtSignature": "sig-thought"},
                {"text": "I look."},
                {
                    "functionCall": {"id": "wire_a", "name": "look", "args": {"at": "door"}},
                    "thoughtSignature": "sig-call",
                },
                {"functionCall": {"id": "wire_b", "name": "wait", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "id": "wire_a",
                        "name": "look",
                        "response": {"output": "A door."},
                        "parts": [PICTURE],
                    }
                },
                {
                    "functionResponse": {
                        "id": "wire_b",
                        "name": "wait",
                        "response": {"error": "Denied: no."},
                    }
                },
                {"text": "Keep it short."},
            ],
        },
        {"role": "model", "parts": [{"text": "A door."}]},
        {"role": "user", "parts": [{"text": "And behind it?"}]},
    ]


def test_the_head_of_a_request() -> None:
    options = ModelOptions(
        temperature=0.5,
        top_p=0.9,
        seed=7,
        stop=("END",),
        service_tier="flex",
        extra_body={"generationConfig": {"topK": 3}},
        extra_headers={"x-a": "b"},
    )
    asked = make_prompt(system="Be kind.")
    request = GeminiDialect().encode_request(asked, NEW, options)
    head = request_body(GeminiDialect(), asked, NEW, options)
    assert request.path == f"/models/{NEW}:streamGenerateContent?alt=sse"
    assert request.headers == {"x-a": "b"}
    assert list(head)[-1] == "contents"
    del head["contents"]
    assert head == {
        "generationConfig": {
            "maxOutputTokens": 4_096,
            "temperature": 0.5,
            "topP": 0.9,
            "seed": 7,
            "stopSequences": ["END"],
            "topK": 3,
        },
        "serviceTier": "flex",
        "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "look",
                        "description": "Look at a place.",
                        "parametersJsonSchema": {"type": "object", "properties": {"at": {}}},
                    },
                    {"name": "wait", "description": "Wait a while."},
                ]
            }
        ],
        "systemInstruction": {"parts": [{"text": "Be kind."}]},
    }
    tuned = GeminiDialect().encode_request(asked, "tunedModels/mine", ModelOptions())
    assert tuned.path == "/tunedModels/mine:streamGenerateContent?alt=sse"


@pytest.mark.parametrize(
    ("choice", "encoded"),
    [
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        ("look", {"mode": "ANY", "allowedFunctionNames": ["look"]}),
    ],
)
def test_the_choice_of_a_tool(choice: str, encoded: object) -> None:
    config = request_body(GeminiDialect(), make_prompt(tool_choice=choice))["toolConfig"]
    assert config == {"functionCallingConfig": encoded}
    assert "toolConfig" not in request_body(
        GeminiDialect(), make_prompt(tools=(), tool_choice="none")
    )


@pytest.mark.contract("S14")
@pytest.mark.parametrize(
    ("model", "effort", "config"),
    [
        (NEW, None, None),
        (NEW, "off", {"thinkingLevel": "minimal"}),
        (NEW, "medium", {"includeThoughts": True, "thinkingLevel": "medium"}),
        ("gemini-3-pro-preview", "off", {"thinkingLevel": "low"}),
        ("gemini-3-pro-preview", "medium", {"includeThoughts": True, "thinkingLevel": "high"}),
        ("gemini-3.1-pro", "medium", {"includeThoughts": True, "thinkingLevel": "medium"}),
        ("gemini-flash-latest", "high", {"includeThoughts": True, "thinkingLevel": "high"}),
        (OLD, "off", {"thinkingBudget": 0}),
        ("gemini-2.5-pro", "off", {"thinkingBudget": 128}),
        (OLD, "low", {"includeThoughts": True, "thinkingBudget": 1_024}),
        (OLD, "high", {"includeThoughts": True, "thinkingBudget": 6_000}),
        ("gemini-2.0-flash", "high", None),
        ("gemma-4-27b", "high", None),
    ],
)
def test_how_much_to_think(model: str, effort: Effort | None, config: object) -> None:
    """S14."""
    assert thinking_config(model, effort, 8_000) == config
    head = request_body(
        GeminiDialect(), make_prompt(output_max=8_000), model, ModelOptions(effort=effort)
    )
    assert head["generationConfig"].get("thinkingConfig") == config


@pytest.mark.contract("S11")
def test_another_models_thinking_is_left_out() -> None:
    """S11: a call of another model's is shown with the API's own word for that."""
    _, reply, results, *_ = request_body(GeminiDialect(), make_prompt(model="vendor:other"), NEW)[
        "contents"
    ]
    assert reply["parts"] == [
        {"text": "I look."},
        {
            "functionCall": {"id": "c1_0", "name": "look", "args": {"at": "door"}},
            "thoughtSignature": UNSIGNED_CALL,
        },
        {"functionCall": {"id": "c1_1", "name": "wait", "args": {}}},
    ]
    assert results["parts"][0]["functionResponse"]["id"] == "c1_0"
    old = request_body(GeminiDialect(), make_prompt(model="vendor:other"), OLD)["contents"][1]
    assert "thoughtSignature" not in str(old)


def test_a_call_that_came_without_an_id_goes_back_without_one() -> None:
    call = ToolCall("c1_0", "look", "{}", signature="sig")
    results = ToolResults((CallOutcome(call, ToolResult.from_text("value", "ok")),))
    messages = (UserMessage((TextPart("Go."),)), AssistantMessage((call,), HERE), results)
    assert request_body(GeminiDialect(), make_prompt(messages), NEW)["contents"][1:] == [
        {
            "role": "model",
            "parts": [
                {"functionCall": {"name": "look", "args": {}}, "thoughtSignature": "sig"},
            ],
        },
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "look", "response": {"output": "ok"}}}],
        },
    ]


@pytest.mark.contract("S11")
def test_a_signature_behind_an_answer_goes_back_behind_it() -> None:
    """S11."""
    messages = (
        UserMessage((TextPart("Hm?"),)),
        AssistantMessage((TextPart("So."), ThinkingPart("", "sig")), HERE),
    )
    assert request_body(GeminiDialect(), make_prompt(messages), NEW)["contents"][1]["parts"] == [
        {"text": "So."},
        {"text": "", "thoughtSignature": "sig"},
    ]


@pytest.mark.contract("P7")
@pytest.mark.parametrize(
    ("part", "encoded"),
    [
        (
            ImagePart("image/png", url="https://a.example/b.png"),
            {"fileData": {"mimeType": "image/png", "fileUri": "https://a.example/b.png"}},
        ),
        (
            FilePart("audio/mp3", "a.mp3", b"ID3"),
            {"inlineData": {"mimeType": "audio/mp3", "data": b64encode(b"ID3").decode()}},
        ),
    ],
)
def test_images_and_files(part: ImagePart | FilePart, encoded: object) -> None:
    """P7."""
    assert request_body(GeminiDialect(), make_prompt((UserMessage((part,)),)))["contents"][0][
        "parts"
    ] == [encoded]


@pytest.mark.contract("P7")
@pytest.mark.parametrize(
    "part",
    [
        ImagePart("image/gif", b"GIF"),
        ImagePart("image/png"),
        FilePart("application/zip", "a.zip", b"PK"),
    ],
)
def test_what_the_api_cannot_take_is_refused_by_name(part: ImagePart | FilePart) -> None:
    """P7."""
    with pytest.raises(ModelError, match=part.media_type):
        GeminiDialect().encode_request(make_prompt((UserMessage((part,)),)), NEW, ModelOptions())


@pytest.mark.contract("P7")
def test_only_newer_models_take_media_in_results() -> None:
    """P7: an older one is told by name what it is not shown."""
    result = request_body(GeminiDialect(), make_prompt(), OLD)["contents"][2]["parts"][0][
        "functionResponse"
    ]
    assert "parts" not in result
    assert "the image (image/png, 6 bytes) is not shown" in result["response"]["output"]


@pytest.mark.contract("P5")
@given(transcripts())
def test_every_request_is_valid_and_grows_from_the_one_before(messages: list[Message]) -> None:
    """P5, S9: roles alternate, responses pair with calls, nothing is empty, bytes never change."""
    assert_grows(encoded_histories(GeminiDialect(), messages, "contents", b"]}"))
    turns = request_body(GeminiDialect(), make_prompt(messages), NEW)["contents"]
    roles = [turn["role"] for turn in turns]
    assert roles == (["user", "model"] * len(roles))[: len(roles)]
    asked: list[tuple[object, str]] = []
    for turn in turns:
        assert turn["parts"]
        answers = [p["functionResponse"] for p in turn["parts"] if "functionResponse" in p]
        assert [(answer.get("id"), answer["name"]) for answer in answers] == asked
        assert all("functionResponse" in part for part in turn["parts"][: len(answers)])
        signed = [part for part in turn["parts"] if "functionCall" in part]
        asked = [(p["functionCall"].get("id"), p["functionCall"]["name"]) for p in signed]
        assert not signed or "thoughtSignature" in signed[0]
        assert all(
            part.get("text", "x").strip() or "thoughtSignature" in part or "thought" in part
            for part in turn["parts"]
        )
    assert asked == []


# ── what is read ─────────────────────────────────────────────────────────────


@pytest.mark.contract("S12")
def test_text() -> None:
    """S12: thoughts are output, and what was cached is part of the input."""
    got = read("text")
    assert without_usage(got) == [
        TextDelta("Hello"),
        TextDelta(", Grüße 👋"),
        ThinkingDelta("", "EjQKMgG+Pvb7Text"),
        ReplyEnd("end"),
    ]
    assert assemble_reply(got).usage == Usage(input=8, output=26, cache_read=4, reasoning=20)


@pytest.mark.contract("S11")
def test_thinking() -> None:
    """S11."""
    assert without_usage(read("thinking")) == [
        ThinkingDelta("**Multiplying**\n\n27 * 453"),
        ThinkingDelta(" is 12,231."),
        TextDelta("12,231"),
        ThinkingDelta("", "EpwCCpkCAXLI2nzThink"),
        ReplyEnd("end"),
    ]


@pytest.mark.contract("S9")
def test_parallel_calls() -> None:
    """S9, S11: the first of calls that were made together is the one that is signed."""
    got = read("parallel_calls")
    assert without_usage(got) == [
        CallDelta(0, "a1b2c3d4", "get_weather", '{"location":"Paris"}', "EtQBCtEBAcu98PCalls"),
        CallDelta(1, "e5f6a7b8", "get_time", '{"zone":"CET"}'),
        ReplyEnd("calls"),
    ]
    reply = assemble_reply(got).build_reply(HERE, "c1_")
    results = ToolResults(
        tuple(CallOutcome(c, ToolResult.from_text("value", "ok")) for c in reply.calls)
    )
    encoded = request_body(
        GeminiDialect(), make_prompt((UserMessage((TextPart("Go."),)), reply, results)), NEW
    )["contents"][1]
    assert encoded["parts"] == [
        {
            "functionCall": {
                "id": "a1b2c3d4",
                "name": "get_weather",
                "args": {"location": "Paris"},
            },
            "thoughtSignature": "EtQBCtEBAcu98PCalls",
        },
        {"functionCall": {"id": "e5f6a7b8", "name": "get_time", "args": {"zone": "CET"}}},
    ]


def test_a_refusal_and_a_reply_that_hit_its_limit() -> None:
    assert without_usage(read("refusal")) == [TextDelta("Step one"), ReplyEnd("refusal")]
    assert without_usage(read("blocked")) == [ReplyEnd("refusal")]
    assert without_usage(read("length"))[-1] == ReplyEnd("length")


def test_an_error_in_the_stream() -> None:
    with pytest.raises(ModelError, match="rate limit") as failed:
        read("error")
    fault = failed.value.fault
    assert (fault.kind, fault.retryable, fault.retry_after_s) == ("rate_limit", True, 34.0)


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (b'{"error":{"code":503,"message":"Overloaded.","status":"UNAVAILABLE"}}', "server"),
        (b'{"error":{"code":400,"message":"Bad.","status":"INVALID_ARGUMENT"}}', "bad_request"),
        (
            b'{"error":{"code":400,"message":"The input token count (10) exceeds the maximum"}}',
            "context_overflow",
        ),
        (b'{"error":{"code":403,"message":"No.","status":"PERMISSION_DENIED"}}', "auth"),
        (b'{"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL"}]}', "malformed_stream"),
        (b'{"candidates":[{"finishReason":"MISSING_THOUGHT_SIGNATURE"}]}', "bad_request"),
        (b'{"candidates":1}', "malformed_stream"),
        (b"{", "malformed_stream"),
    ],
)
def test_the_kinds_of_errors(event: bytes, kind: str) -> None:
    with pytest.raises(ModelError) as failed:
        read_events(event)
    assert failed.value.fault.kind == kind


@pytest.mark.contract("S12")
def test_what_a_reply_that_went_wrong_cost_is_told_first() -> None:
    """S12."""
    reader, got = GeminiReader(), list[Any]()
    event = b'{"candidates":[{"finishReason":"OTHER","finishMessage":"Hm"}],"usageMetadata":'
    with pytest.raises(ModelError, match=r"\(OTHER\): Hm"):
        got.extend(reader.read_event("", event + b'{"promptTokenCount":7}}'))
    assert got == [UsageDelta(Usage(input=7))]


@pytest.mark.contract("S8")
def test_a_stream_that_was_cut_has_no_end() -> None:
    """S8."""
    assert without_usage(read("cut")) == [TextDelta("Hello")]
    assert not reply_end(read("cut"))


@pytest.mark.parametrize(
    "event",
    [
        b'{"candidates":[{"content":{"parts":[{"executableCode":{"code":"1"}}]}}]}',
        b'{"candidates":[{"content":{"parts":[{"text":""},{"thought":true}]}}]}',
        b'{"candidates":[{"content":{}}]}',
        b'{"candidates":[{"finishReason":"FINISH_REASON_UNSPECIFIED"}]}',
        b'{"modelVersion":"x"}',
    ],
)
def test_what_is_not_known_is_passed_over(event: bytes) -> None:
    assert read_events(event) == []


def test_a_signature_on_an_answer_itself() -> None:
    event = b'{"candidates":[{"content":{"parts":[{"text":"Hi","thoughtSignature":"s"}]}}]}'
    assert read_events(event) == [TextDelta("Hi"), ThinkingDelta("", "s")]
