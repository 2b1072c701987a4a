"""Servers that answer a streaming request with one JSON document, in all five dialects."""

from typing import Any

import msgspec
import pytest

from windlass import Agent, FailedByModel, StepProposed, tool
from windlass.journals.memory import MemoryJournal
from windlass.testing import Trace, VirtualClock
from windlass.testing.chat_wire import DONE, sse_event, text_chunk
from windlass.testing.fault_server import FaultServer
from windlass.testing.wire import WireAnswer, stream_answer

pytestmark = [pytest.mark.slow, pytest.mark.contract("S16")]

ENVIRON = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI",
    "AWS_REGION": "eu-west-1",
}


def chat(message: dict[str, Any], finish: str) -> dict[str, Any]:
    return {
        "id": "c",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 30, "completion_tokens": 20, "total_tokens": 50},
    }


CALL = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"at": 1.50}'}}


def response(*output: dict[str, Any], status: str = "completed") -> dict[str, Any]:
    usage = {"input_tokens": 30, "output_tokens": 20, "total_tokens": 50}
    return {
        "id": "r",
        "object": "response",
        "status": status,
        "error": None,
        "output": output,
        "usage": usage,
    }


def message(*content: dict[str, Any], stop: str) -> dict[str, Any]:
    usage = {"input_tokens": 30, "output_tokens": 20}
    return {"type": "message", "content": content, "stop_reason": stop, "usage": usage}


def candidate(*parts: dict[str, Any]) -> dict[str, Any]:
    usage = {"promptTokenCount": 30, "candidatesTokenCount": 20}
    content = {"role": "model", "parts": parts}
    return {
        "candidates": [{"content": content, "finishReason": "STOP"}],
        "usageMetadata": usage,
    }


def converse(*content: dict[str, Any], stop: str) -> dict[str, Any]:
    usage = {"inputTokens": 30, "outputTokens": 20, "totalTokens": 50}
    output = {"message": {"role": "assistant", "content": content}}
    return {"output": output, "stopReason": stop, "usage": usage, "metrics": {"latencyMs": 1}}


TOOL_USE = {"toolUse": {"toolUseId": "c", "name": "look", "input": {"at": 1.5}}}
REASONING = {"reasoningText": {"text": "Hm.", "signature": "s"}}
REPLIES: dict[str, tuple[object, object]] = {
    "openai-compatible:m": (
        chat({"role": "assistant", "content": None, "tool_calls": [CALL]}, "tool_calls"),
        chat({"role": "assistant", "content": "Seen.", "reasoning_content": "Hm."}, "stop"),
    ),
    "openai:gpt-4o": (
        response(
            {
                "type": "function_call",
                "id": "f",
                "call_id": "c",
                "name": "look",
                "arguments": '{"at": 1.50}',
            }
        ),
        response(
            {"type": "reasoning", "id": "q", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {"type": "message", "content": [{"type": "output_text", "text": "Seen."}]},
        ),
    ),
    "anthropic:claude-sonnet-4-5": (
        message(
            {"type": "tool_use", "id": "c", "name": "look", "input": {"at": 1.5}}, stop="tool_use"
        ),
        message(
            {"type": "thinking", "thinking": "Hm.", "signature": "s"},
            {"type": "text", "text": "Seen."},
            stop="end_turn",
        ),
    ),
    "google:gemini-2.5-flash": (
        candidate({"functionCall": {"name": "look", "args": {"at": 1.5}}}),
        [candidate({"text": "Hm.", "thought": True}, {"text": "Seen."})],
    ),
    "bedrock:anthropic.claude-sonnet-4-5-20250929-v1:0": (
        converse(TOOL_USE, stop="tool_use"),
        converse({"reasoningContent": REASONING}, {"text": "Seen."}, stop="end_turn"),
    ),
}


def whole(body: object, content_type: str = "application/json") -> WireAnswer:
    return stream_answer(msgspec.json.encode(body), content_type=content_type)


@pytest.fixture(autouse=True)
def _cloud_account(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)


def agent_at(model: str, server: FaultServer, clock: VirtualClock, **options: Any) -> Agent[str]:
    if not model.startswith("bedrock"):
        options["key"] = "k"
    return Agent(model, base_url=server.url, clock=clock, **options)


@pytest.mark.parametrize("model", REPLIES)
async def test_a_whole_reply_is_read_like_a_stream(model: str, clock: VirtualClock) -> None:
    """S16: text, thinking, calls and usage, with one request for each step."""
    seen: list[float] = []

    @tool(effect="read")
    def look(at: float) -> str:
        """Look."""
        seen.append(at)
        return "a door"

    trace = Trace()
    async with FaultServer(*map(whole, REPLIES[model])) as server:
        agent = agent_at(model, server, clock, tools=[look])
        result = await agent.run("What is there?", on_event=trace)
        assert len(server.requests) == 2
    trace.check()
    assert seen == [1.5]
    assert result.text == trace.shown_text() == "Seen."
    assert "ThinkingDelta" in trace.kinds()
    assert result.usage is not None
    assert (result.usage.input, result.usage.output) == (60, 40)
    assert not result.usage.estimated


@pytest.mark.parametrize("model", REPLIES)
@pytest.mark.parametrize(
    "body",
    [
        {"hello": "world"},
        [],
        {"choices": []},
        {"object": "response", "output": []},
        {"type": "message"},
        {"candidates": []},
        {"output": {}, "stopReason": "end_turn"},
    ],
    ids=repr,
)
async def test_json_of_another_shape_is_a_clear_error(
    model: str, body: object, clock: VirtualClock
) -> None:
    """S16: what is no reply is named, and asking again would not help."""
    async with FaultServer(whole(body)) as server:
        with pytest.raises(FailedByModel, match="instead of an event stream") as failed:
            await agent_at(model, server, clock).run("Hello?")
        assert len(server.requests) == 1
    assert failed.value.fault.kind == "bad_request"


@pytest.mark.parametrize("content_type", ["text/event-stream", "text/plain", ""])
async def test_a_whole_reply_that_is_labelled_as_a_stream_is_read(
    content_type: str, clock: VirtualClock
) -> None:
    """S16: it costs one request. What is not a reply is named, with its own error if it has one."""
    reply = chat({"role": "assistant", "content": "Seen."}, "stop")
    refused = {"error": {"message": "no such key", "type": "authentication_error"}}
    bodies = (reply, {"hello": "world"}, refused)
    async with FaultServer(*(whole(body, content_type) for body in bodies)) as server:
        agent = agent_at("openai-compatible:m", server, clock)
        assert (await agent.run("What is there?")).text == "Seen."
        with pytest.raises(FailedByModel, match="application/json instead of an event stream"):
            await agent.run("And now?")
        with pytest.raises(FailedByModel, match="no such key"):
            await agent.run("And now?")
        assert len(server.requests) == 3


async def test_an_error_in_a_successful_response_is_an_error(clock: VirtualClock) -> None:
    """S16, S2."""
    body = {"error": {"message": "slow down", "type": "rate_limit_error"}}
    async with FaultServer(*[whole(body)] * 4) as server:
        with pytest.raises(FailedByModel) as failed:
            await agent_at("openai-compatible:m", server, clock).run("Hello?")
    assert failed.value.fault.kind == "rate_limit"


async def test_a_whole_reply_that_failed_is_the_error_that_it_names(clock: VirtualClock) -> None:
    """S16: a response that reports its own failure is not an answer."""
    body = response(status="failed") | {"error": {"code": "server_error", "message": "oh no"}}
    async with FaultServer(*[whole(body)] * 6) as server:
        with pytest.raises(FailedByModel, match="oh no") as failed:
            await agent_at("openai:gpt-4o", server, clock).run("Hello?")
    assert failed.value.fault.kind == "server"


async def test_a_message_repeated_at_the_end_of_a_stream_does_not_count(
    clock: VirtualClock,
) -> None:
    """S5: some servers stream the text and then send all of it again."""
    last = sse_event({"choices": [{"message": {"content": "Hi."}, "finish_reason": "stop"}]})
    async with FaultServer(stream_answer(text_chunk("Hi."), last, DONE)) as server:
        result = await agent_at("openai-compatible:m", server, clock).run("Hello?")
    assert result.text == "Hi."


async def test_numbers_of_a_whole_reply_keep_their_digits(clock: VirtualClock) -> None:
    """R3: arguments are passed on as they were written."""
    journal = MemoryJournal()
    body = msgspec.json.encode(
        message(
            {"type": "tool_use", "id": "c", "name": "look", "input": {"at": 0}}, stop="tool_use"
        )
    ).replace(b'{"at":0}', b'{"at":12345678901234567890.5}')
    end = whole(message({"type": "text", "text": "Seen."}, stop="end_turn"))
    async with FaultServer(whole(msgspec.Raw(body)), end) as server:
        await agent_at("anthropic:claude-sonnet-4-5", server, clock, journal=journal).run(
            "Go.", session="s"
        )
    [proposed, _] = [fact for fact in await journal.read("s") if isinstance(fact, StepProposed)]
    assert [call.arguments for call in proposed.reply.calls] == ['{"at":12345678901234567890.5}']
