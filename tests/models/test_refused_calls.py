"""Replies that a provider refuses because the model called a tool wrongly, over real HTTP."""

from typing import Any

import pytest

from windlass import Agent, AttemptFailed, FailedByModel, NoteGiven, tool
from windlass.journals.memory import MemoryJournal
from windlass.testing import VirtualClock
from windlass.testing.chat_wire import sse_event, text_answer, text_chunk
from windlass.testing.fault_server import FaultServer
from windlass.testing.wire import WireAnswer, refuse_with, stream_answer

pytestmark = [pytest.mark.slow, pytest.mark.contract("S17")]

WRITTEN = '<function=look {"at": 1}</function>'
ERROR = {
    "error": {
        "message": "Failed to call a function. Please adjust your prompt. "
        "See 'failed_generation' for more details.",
        "type": "invalid_request_error",
        "code": "tool_use_failed",
        "failed_generation": WRITTEN,
    }
}
IN_STREAM = {"error": {**ERROR["error"], "status_code": 400}}
REFUSALS = {
    "in a stream": stream_answer(sse_event(IN_STREAM, "error")),
    "behind some text": stream_answer(text_chunk("Let me"), sse_event(IN_STREAM, "error")),
    "instead of a stream": refuse_with(400, ERROR),
}


@tool(effect="read")
def look(at: int) -> str:
    """Look."""
    return f"seen {at}"


def agent_at(server: FaultServer, clock: VirtualClock, store: MemoryJournal) -> Agent[str]:
    return Agent(
        "groq:llama-3.3-70b-versatile",
        base_url=server.url,
        key="k",
        tools=[look],
        journal=store,
        clock=clock,
    )


@pytest.mark.parametrize("answer", REFUSALS.values(), ids=REFUSALS)
async def test_a_refused_call_is_told_to_the_model(answer: WireAnswer, clock: VirtualClock) -> None:
    """S17: the model reads what was wrong with its reply, and is asked again."""
    store = MemoryJournal()
    async with FaultServer(answer, text_answer("I see nothing.")) as server:
        result = await agent_at(server, clock, store).run("Look.", session="s")
        second = server.requests[1].json["messages"]
    assert result.text == "I see nothing."
    (told,) = second
    assert told["role"] == "user"
    assert told["content"].startswith("Look.")
    assert "Failed to call a function" in told["content"]
    assert WRITTEN in told["content"]
    facts = await store.read("s")
    failures = [fact for fact in facts if isinstance(fact, AttemptFailed)]
    assert [failure.fault.kind for failure in failures] == ["malformed_stream"]
    assert [fact.why for fact in facts if isinstance(fact, NoteGiven)] == ["refused_reply"]


async def test_a_model_that_never_learns_it_fails_within_the_attempts(clock: VirtualClock) -> None:
    """S17, S3: the limits of all retries hold."""
    async with FaultServer(*[REFUSALS["in a stream"]] * 9) as server:
        with pytest.raises(FailedByModel, match="the model called a tool wrongly") as failed:
            await agent_at(server, clock, MemoryJournal()).run("Look.")
        assert len(server.requests) == 6
    assert "Failed to call a function" in str(failed.value)


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"])
async def test_gemini_refuses_calls_by_a_finish_reason(reason: str, clock: VirtualClock) -> None:
    """S17."""
    refused = {"finishReason": reason, "finishMessage": "Malformed function call: look(at=1)"}
    whole = {"content": {"parts": [{"text": "Done."}]}, "finishReason": "STOP"}
    answers: list[dict[str, Any]] = [{"candidates": [one]} for one in (refused, whole)]
    async with FaultServer(*(stream_answer(sse_event(one)) for one in answers)) as server:
        agent = Agent("google:gemini-2.5-flash", base_url=server.url, key="k", clock=clock)
        result = await agent.run("Look.")
        second = str(server.requests[1].json["contents"])
    assert result.text == "Done."
    assert "Malformed function call: look(at=1)" in second
