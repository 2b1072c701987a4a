"""Amazon Bedrock: what is sent, what is read, and what a broken wire does to it."""

import asyncio
from base64 import b64encode
from binascii import crc32
from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedrock_wire import (
    bedrock_answer,
    bedrock_stream,
    call_frames,
    delta_frame,
    encode_frame,
    end_frames,
    event_frame,
    exception_frame,
    text_frames,
)
from transcripts import (
    CONVERSATION,
    HERE,
    PNG,
    assert_grows,
    encoded_histories,
    make_prompt,
    request_body,
    transcripts,
)
from windlass import Agent, FailedByModel, LoopPolicy, Timeouts
from windlass.core.errors import ModelError
from windlass.core.events import (
    CallDelta,
    ReplyEnd,
    StopReason,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    Message,
    TextPart,
    ThinkingPart,
    Usage,
    UserMessage,
)
from windlass.models.bedrock.converse import BedrockConverse
from windlass.models.bedrock.event_stream import FrameParser
from windlass.models.bedrock.reader import BedrockReader
from windlass.models.options import ModelOptions
from windlass.testing import Trace, VirtualClock
from windlass.testing.fault_server import FaultServer
from windlass.testing.wire import WireAnswer, drop, refuse_with, reset, stall, stream_answer

CLAUDE = "anthropic.claude-sonnet-4-5-20250929-v1:0"
MARK = {"cachePoint": {"type": "default"}}
ENVIRON = {
    "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
}


def read_frames(*frames: bytes, size: int = 7) -> list[Any]:
    """What a reader makes of a stream, fed in pieces that fit nothing."""
    data, parser, reader = b"".join(frames), FrameParser(), BedrockReader()
    return [
        piece
        for at in range(0, len(data), size)
        for event, payload in parser.feed(data[at : at + size])
        for piece in reader.read_event(event, payload)
    ]


def test_a_conversation_is_sent_in_the_apis_own_words() -> None:
    """P2, P7, S11: thinking goes back verbatim, results pair with calls by the provider's ids."""
    body = request_body(BedrockConverse(), make_prompt(system="Be brief."), "meta.llama3")
    picture = {"image": {"format": "png", "source": {"bytes": b64encode(PNG).decode()}}}
    assert body["system"] == [{"text": "Be brief."}]
    assert body["inferenceConfig"] == {"maxTokens": 4_096}
    assert [tool["toolSpec"]["name"] for tool in body["toolConfig"]["tools"]] == ["look", "wait"]
    asked, reply, results, *_ = body["messages"]
    assert asked == {"role": "user", "content": [{"text": "What is there?"}, picture]}
    thought = {"reasoningText": {"text": "Hmm.", "signature": "sig-thought"}}
    assert reply["content"] == [
        {"reasoningContent": thought},
        {"text": "I look."},
        {"toolUse": {"toolUseId": "wire_a", "name": "look", "input": {"at": "door"}}},
        {"toolUse": {"toolUseId": "wire_b", "name": "wait", "input": {}}},
    ]
    door, denied, note = results["content"]
    assert door["toolResult"] == {"toolUseId": "wire_a", "content": [{"text": "A door."}, picture]}
    assert denied["toolResult"]["status"] == "error"
    assert note == {"text": "Keep it short."}


def test_the_model_is_named_in_the_path() -> None:
    """P1: also by an ARN, whose colons and slashes are escaped."""
    arn = "arn:aws:bedrock:us-east-1:1:inference-profile/us.x"
    request = BedrockConverse().encode_request(make_prompt(), arn, ModelOptions())
    name = "arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fus.x"
    assert request.path == f"/model/{name}/converse-stream"


def test_cache_marks_stand_behind_the_system_prompt_and_the_last_block() -> None:
    """P5: and only for models that take them."""
    body = request_body(BedrockConverse(), make_prompt(system="Be brief."), CLAUDE)
    assert body["system"][-1] == MARK
    marked = [block for turn in body["messages"] for block in turn["content"] if block == MARK]
    assert len(marked) == 1
    assert body["messages"][-1]["content"][-1] == MARK
    assert MARK not in request_body(BedrockConverse(), make_prompt(system="x"), "m")["system"]


@pytest.mark.parametrize(
    ("choice", "encoded"),
    [("auto", None), ("required", {"any": {}}), ("look", {"tool": {"name": "look"}})],
)
def test_a_call_can_be_forced(choice: str, encoded: object) -> None:
    body = request_body(BedrockConverse(), make_prompt(tool_choice=choice))
    assert body["toolConfig"].get("toolChoice") == encoded


def test_options_are_sent_in_their_own_fields() -> None:
    """S14."""
    options = ModelOptions(temperature=0.5, stop=("END",), service_tier="flex", effort="low")
    body = request_body(BedrockConverse(), make_prompt(), "amazon.titan", options)
    assert body["inferenceConfig"] == {
        "maxTokens": 4_096,
        "temperature": 0.5,
        "stopSequences": ["END"],
    }
    assert body["serviceTier"] == {"type": "flex"}
    assert "additionalModelRequestFields" not in body
    thinking = request_body(BedrockConverse(), make_prompt(), CLAUDE, options)
    assert thinking["additionalModelRequestFields"]["thinking"]["type"] == "enabled"
    assert "temperature" not in thinking["inferenceConfig"]
    newer = request_body(BedrockConverse(), make_prompt(), "anthropic.claude-opus-4-7", options)
    assert newer["outputConfig"] == {"effort": "low"}


def test_calls_in_the_history_need_a_tool_on_offer() -> None:
    body = request_body(BedrockConverse(), make_prompt(tools=()))
    assert [tool["toolSpec"]["name"] for tool in body["toolConfig"]["tools"]] == ["no_tool"]
    alone = make_prompt([UserMessage((TextPart("Hi"),))], tools=())
    assert "toolConfig" not in request_body(BedrockConverse(), alone)


def test_documents_have_names_of_their_own() -> None:
    """P7."""
    pdf = FilePart("application/pdf", "bill_(1).pdf", b"%PDF")
    words = FilePart("text/plain", "a.txt", b"Words")
    body = request_body(BedrockConverse(), make_prompt([UserMessage((pdf, pdf, words))]))
    first, second, text = body["messages"][0]["content"]
    assert first["document"]["format"] == "pdf"
    assert first["document"]["name"] != second["document"]["name"]
    assert text == {"text": "a.txt:\nWords"}
    alone = request_body(BedrockConverse(), make_prompt([UserMessage((pdf,))]))
    assert alone["messages"][0]["content"][-1] == {"text": "See above."}


def test_media_that_it_cannot_take_is_named() -> None:
    """P7."""
    audio = FilePart("audio/mpeg", "a.mp3", b"ID3")
    with pytest.raises(ModelError, match=r"Amazon Bedrock does not accept .*a\.mp3"):
        request_body(BedrockConverse(), make_prompt([UserMessage((audio,))]))


def without_links(messages: list[Message]) -> list[Message]:
    """The same conversation with each picture as bytes: the API takes no addresses."""
    inline = ImagePart("image/png", PNG)

    def inlined(message: Message) -> Message:
        if not isinstance(message, UserMessage):
            return message
        parts = (inline if isinstance(part, ImagePart) else part for part in message.parts)
        return UserMessage(tuple(parts), note=message.note)

    return [inlined(message) for message in messages]


@pytest.mark.contract("P5")
@given(transcripts())
def test_every_request_is_valid_and_grows_from_the_one_before(messages: list[Message]) -> None:
    """P5, S9: roles alternate, results pair with calls, nothing is empty, bytes never change."""
    messages = without_links(messages)
    assert_grows(encoded_histories(BedrockConverse(), messages, "messages", b"]}"))
    turns = request_body(BedrockConverse(), make_prompt(messages))["messages"]
    roles = [turn["role"] for turn in turns]
    assert roles == (["user", "assistant"] * len(roles))[: len(roles)]
    asked: list[str] = []
    for turn in turns:
        assert turn["content"]
        asked += [block["toolUse"]["toolUseId"] for block in turn["content"] if "toolUse" in block]
        for block in turn["content"]:
            if "toolResult" in block:
                assert block["toolResult"]["content"]
                asked.remove(block["toolResult"]["toolUseId"])
    assert not asked


@pytest.mark.contract("S11")
def test_thinking_comes_back_as_it_was_sent() -> None:
    """S11: text, signature and redacted thinking, only to the model that made it."""
    pieces = read_frames(
        delta_frame({"reasoningContent": {"text": "Hm."}}),
        delta_frame({"reasoningContent": {"signature": "c2ln"}}),
        delta_frame({"reasoningContent": {"redactedContent": "aGlkZGVu"}}, 1),
    )
    assert pieces[:2] == [ThinkingDelta("Hm."), ThinkingDelta("", "c2ln")]
    hidden = ThinkingPart("", pieces[2].signature)
    said = AssistantMessage((hidden, TextPart("Yes.")), HERE)
    body = request_body(BedrockConverse(), make_prompt([*CONVERSATION[:1], said]))
    assert body["messages"][1]["content"][0] == {
        "reasoningContent": {"redactedContent": "aGlkZGVu"}
    }
    other = request_body(BedrockConverse(), make_prompt([*CONVERSATION[:1], said], model="other:m"))
    assert other["messages"][1]["content"] == [{"text": "Yes."}]


@pytest.mark.contract("S9")
def test_text_calls_and_usage_are_read() -> None:
    """S9, S12: tokens of the cache are part of the input."""
    frames = [*text_frames("I ", "look."), *call_frames("look", '{"at":', '"door"}')]
    pieces = read_frames(*frames, *end_frames("tool_use"))
    assert pieces == [
        TextDelta("I "),
        TextDelta("look."),
        CallDelta(1, "tooluse_1", "look"),
        CallDelta(1, arguments='{"at":'),
        CallDelta(1, arguments='"door"}'),
        UsageDelta(Usage(input=16, output=5, cache_read=4)),
        ReplyEnd("calls"),
    ]


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("max_tokens", "length"),
        ("guardrail_intervened", "refusal"),
        ("content_filtered", "refusal"),
        ("something_new", "end"),
    ],
)
def test_why_it_stopped(reason: str, stop: StopReason) -> None:
    assert read_frames(*text_frames("x"), *end_frames(reason))[-1] == ReplyEnd(stop)


def test_a_reply_that_the_api_calls_malformed_is_asked_for_again() -> None:
    with pytest.raises(ModelError) as raised:
        read_frames(*end_frames("malformed_tool_use"))
    assert raised.value.fault.retryable


def test_unknown_events_are_skipped_and_known_ones_must_fit() -> None:
    assert read_frames(event_frame("somethingNew", {"delta": 3})) == []
    with pytest.raises(ModelError, match="not the JSON of a reply"):
        read_frames(event_frame("contentBlockDelta", {"delta": 3}))


@given(st.integers(1, 400), st.lists(st.text(min_size=1, max_size=30), max_size=8))
def test_however_the_bytes_are_split_the_events_are_the_same(size: int, texts: list[str]) -> None:
    """S10."""
    frames = [*text_frames(*texts), *end_frames()]
    assert read_frames(*frames, size=size) == read_frames(*frames, size=10**6)


@given(st.data())
def test_a_damaged_byte_is_noticed(data: st.DataObject) -> None:
    """S8: whatever bit flips, no wrong text is read; at worst the frame is waited for."""
    frame = bytearray(text_frames("Hello there")[0])
    at = data.draw(st.integers(0, len(frame) - 1))
    frame[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ModelError, match="damaged event stream"):
        read_frames(bytes(frame))


@pytest.mark.parametrize("length", [3, 2**31])
def test_a_length_that_cannot_be_is_not_waited_for(length: int) -> None:
    """S4: its checksum may even be right."""
    prelude = pack(">II", length, 0)
    with pytest.raises(ModelError, match="damaged event stream"):
        FrameParser().feed(prelude + pack(">I", crc32(prelude)))


LONG = "Input is too long for requested model."
FAULTS: dict[str, tuple[WireAnswer, str, bool]] = {
    "throttled": (refuse_with(429, {"message": "Too many requests"}), "rate_limit", True),
    "denied": (refuse_with(403, {"message": "You don't have access to the model"}), "auth", False),
    "unknown": (
        refuse_with(400, {"message": "The provided model identifier is invalid."}),
        "bad_request",
        False,
    ),
    "too_long": (refuse_with(400, {"message": LONG}), "context_overflow", False),
    "model_failed": (refuse_with(424, {"message": "The model failed."}), "server", True),
    "page": (refuse_with(200, "<html>Hello</html>"), "bad_request", False),
    "throttled_later": (
        bedrock_stream(*text_frames("Hel"), exception_frame("throttlingException", "Slow")),
        "rate_limit",
        True,
    ),
    "failed_later": (
        bedrock_stream(*text_frames("Hel"), exception_frame("modelStreamErrorException", "No")),
        "server",
        True,
    ),
    "invalid_later": (
        bedrock_stream(exception_frame("validationException", LONG)),
        "context_overflow",
        False,
    ),
    "reset": (bedrock_stream(*text_frames("Hel"), reset()), "network", True),
    "cut": (bedrock_stream(*text_frames("Hel"), drop()), "incomplete_stream", True),
    "cut_in_a_frame": (
        bedrock_stream(*text_frames("Hel"), text_frames("lo")[0][:-3]),
        "incomplete_stream",
        True,
    ),
    "garbage": (bedrock_stream(*text_frames("Hel"), b"\x00" * 64), "malformed_stream", True),
    "text_not_frames": (
        stream_answer(b"data: {}\n\n" * 9, content_type="application/vnd.amazon.eventstream"),
        "malformed_stream",
        True,
    ),
    "stalled": (bedrock_stream(*text_frames("Hel"), stall()), "stalled", True),
    "stalled_in_a_frame": (bedrock_stream(text_frames("Hello")[0][:9], stall()), "stalled", True),
    "empty": (bedrock_stream(), "incomplete_stream", True),
}


@pytest.mark.slow
@pytest.mark.contract("S2")
@pytest.mark.parametrize(("answer", "kind", "mends"), FAULTS.values(), ids=FAULTS.keys())
async def test_a_fault_is_survived_or_named(
    answer: WireAnswer,
    kind: str,
    mends: bool,  # noqa: FBT001
    clock: VirtualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S1, S2, S3, S4, S8: asked again if that may help, text once, and nothing hangs."""
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    trace = Trace()
    async with FaultServer(answer, bedrock_answer(*text_frames("Hello"))) as server:
        agent = Agent(
            f"bedrock:{CLAUDE}",
            base_url=server.url,
            clock=clock,
            rules=LoopPolicy(on_partial="restart"),
            timeouts=Timeouts(first_byte_s=20, idle_s=10),
        )
        if mends:
            result = await agent.run("Hello?", on_event=trace)
            assert (result.text, trace.shown_text(), len(server.requests)) == ("Hello", "Hello", 2)
            return
        with pytest.raises(FailedByModel) as raised:
            await agent.run("Hello?")
        assert len(server.requests) == 1
    assert raised.value.fault.kind == kind
    assert ENVIRON["AWS_SECRET_ACCESS_KEY"] not in str(raised.value)


@pytest.mark.slow
async def test_usage_that_never_comes_is_not_waited_for(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S12: the reply counts, and its usage is an estimate."""
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    stop = event_frame("messageStop", {"stopReason": "end_turn"})
    async with FaultServer(bedrock_stream(*text_frames("Hello"), stop, stall())) as server:
        agent = Agent("bedrock:m", base_url=server.url, clock=clock)
        result = await asyncio.wait_for(agent.run("Hello?"), 60)
    assert result.text == "Hello"
    assert result.usage is not None
    assert result.usage.estimated


def test_headers_of_other_types_are_skipped() -> None:
    """A stream may carry numbers, times and ids beside its text."""
    (event,) = FrameParser().feed(encode_frame(b"{}", {":event-type": "x", ":y": "z"}))
    assert event == ("x", b"{}")
