"""S8: a reply is complete, and on record, the moment its end marker comes, in every dialect.

The server keeps the connection open afterwards. Nobody waits for it.
"""

from collections.abc import Sequence

import pytest

from proof.wire_faults import PING
from windlass import Agent
from windlass.models.http.post import AFTER_FINISH_S
from windlass.testing import VirtualClock
from windlass.testing.chat_wire import (
    DONE,
    call_chunks,
    chat_answer,
    chat_chunk,
    finish_chunk,
    sse_event,
    text_answer,
    text_chunk,
    usage_chunk,
)
from windlass.testing.fault_server import FaultServer
from windlass.testing.wire import WireAct, WireAnswer, append_acts, stall, stream_answer, wait

pytestmark = pytest.mark.contract("S8")


def kept_open(*events: bytes) -> WireAnswer:
    return stream_answer(*events, stall())


def typed(kind: str, **fields: object) -> bytes:
    return sse_event({"type": kind, **fields}, kind)


def gemini(text: str, finish: str | None = None) -> bytes:
    parts = [{"text": text}] if text else []
    candidate = {"content": {"parts": parts}, "finishReason": finish}
    usage = {"promptTokenCount": 3, "candidatesTokenCount": 2}
    return sse_event({"candidates": [candidate], "usageMetadata": usage})


ANTHROPIC = (
    typed("message_start", message={"usage": {"input_tokens": 3, "output_tokens": 1}}),
    typed("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    typed("content_block_delta", index=0, delta={"type": "text_delta", "text": "Hello"}),
    typed("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2}),
    typed("message_stop"),
)
RESPONSES = (
    typed("response.output_text.delta", delta="Hello"),
    typed("response.completed", response={"usage": {"input_tokens": 3, "output_tokens": 2}}),
)
MARKERS = {
    "openai-compatible:m": (text_chunk("Hello"), finish_chunk(), usage_chunk(), DONE),
    "openai-compatible:without-a-reason": (text_chunk("Hello"), usage_chunk(), DONE),
    "openai-chat:gpt-4o": (text_chunk("Hello"), finish_chunk(), usage_chunk()),
    "anthropic:claude-sonnet-4-5": ANTHROPIC,
    "openai:gpt-4o": RESPONSES,
    "google:gemini-2.5-flash": (gemini("Hel"), gemini("lo", "STOP")),
}


@pytest.mark.parametrize("model", MARKERS)
async def test_a_reply_is_over_at_its_end_marker(model: str, clock: VirtualClock) -> None:
    async with FaultServer(kept_open(*MARKERS[model])) as server:
        result = await Agent(model, base_url=server.url, key="k", clock=clock).run("Hello?")
    assert result.text == "Hello"
    assert result.usage is not None
    assert not result.usage.estimated
    assert clock.elapsed_s < 0.1


def look_around() -> str:
    """Look around."""
    return "a door"


async def test_each_step_goes_on_at_once(clock: VirtualClock) -> None:
    look = append_acts(chat_answer(call_chunks("look_around", "{}")), stall())
    async with FaultServer(look, look, append_acts(text_answer("Done"), stall())) as server:
        agent = Agent("openai-compatible:m", base_url=server.url, clock=clock, tools=[look_around])
        result = await agent.run("Hello?")
    assert (result.text, result.steps) == ("Done", 3)
    assert clock.elapsed_s < 0.1


@pytest.mark.parametrize(
    "rest",
    [(stall(),), [part for _ in range(40) for part in (wait(0.5), PING)]],
    ids=["silence", "pings"],
)
async def test_a_server_without_an_end_marker_is_not_waited_for_long(
    rest: Sequence[WireAct], clock: VirtualClock
) -> None:
    """The model said why it stopped, so the reply is whole; only usage and `[DONE]` are missing."""
    answer = stream_answer(text_chunk("Hello"), finish_chunk(), *rest)
    async with FaultServer(answer) as server:
        result = await Agent("openai-compatible:m", base_url=server.url, clock=clock).run("Hello?")
    assert (result.text, len(server.requests)) == ("Hello", 1)
    assert clock.elapsed_s == pytest.approx(AFTER_FINISH_S, abs=0.1)


async def test_usage_behind_the_end_marker_does_not_count(clock: VirtualClock) -> None:
    """S12: then the usage is an estimate, and marked."""
    late = stream_answer(text_chunk("Hello"), finish_chunk(), DONE, usage_chunk())
    async with FaultServer(late) as server:
        result = await Agent("openai-compatible:m", base_url=server.url, clock=clock).run("Hello?")
    assert result.usage is not None
    assert result.usage.estimated


async def test_a_stop_of_gemini_before_its_content_is_not_the_end(clock: VirtualClock) -> None:
    """Some proxies mark each chunk without content as the end."""
    answer = stream_answer(gemini("", "STOP"), gemini("Hel"), gemini("lo"), gemini("", "STOP"))
    async with FaultServer(answer, kept_open(gemini("", "STOP"))) as server:
        agent = Agent("google:gemini-2.5-flash", base_url=server.url, key="k", clock=clock)
        assert (await agent.run("Hello?")).text == "Hello"


@pytest.mark.parametrize(
    ("model", "chunks"),
    [
        (
            "openai-compatible:m",
            (
                text_chunk("Hel"),
                chat_chunk({"content": "Bye"}, choices=[{"index": 1, "delta": {"content": "Bye"}}]),
                chat_chunk(choices=[{"index": 1, "delta": {}, "finish_reason": "length"}]),
                text_chunk("lo"),
                finish_chunk(),
                DONE,
            ),
        ),
        (
            "google:gemini-2.5-flash",
            (
                gemini("Hel"),
                sse_event({"candidates": [{"index": 1, "content": {"parts": [{"text": "Bye"}]}}]}),
                sse_event({"candidates": [{"index": 1, "finishReason": "STOP"}]}),
                gemini("lo", "STOP"),
            ),
        ),
    ],
)
async def test_the_text_of_a_second_choice_is_ignored(
    model: str, chunks: tuple[bytes, ...], clock: VirtualClock
) -> None:
    """S9: and so is its end."""
    async with FaultServer(stream_answer(*chunks)) as server:
        result = await Agent(model, base_url=server.url, key="k", clock=clock).run("Hello?")
    assert (result.outcome, result.text) == ("completed", "Hello")
