"""Replies that a provider starts over within one response, over real HTTP."""

import pytest

from windlass import Agent, AttemptFailed, AttemptStarted, RunFailed, StepProposed, tool
from windlass.journals.memory import MemoryJournal
from windlass.testing import Trace, VirtualClock
from windlass.testing.chat_wire import sse_event
from windlass.testing.fault_server import FaultServer
from windlass.testing.wire import WireAnswer, stream_answer

pytestmark = [pytest.mark.slow, pytest.mark.contract("S17")]


def typed(kind: str, **fields: object) -> bytes:
    return sse_event({"type": kind, **fields}, kind)


START = typed("message_start", message={"usage": {"input_tokens": 30, "output_tokens": 1}})
STOP = typed("message_stop")


def text_block(text: str) -> bytes:
    block = typed("content_block_start", index=0, content_block={"type": "text", "text": ""})
    delta = {"type": "text_delta", "text": text}
    return block + typed("content_block_delta", index=0, delta=delta)


def call_block(arguments: str, provider_id: str = "toolu_1") -> bytes:
    block = {"type": "tool_use", "id": provider_id, "name": "send", "input": {}}
    delta = {"type": "input_json_delta", "partial_json": arguments}
    start = typed("content_block_start", index=0, content_block=block)
    return start + typed("content_block_delta", index=0, delta=delta)


def end(reason: str) -> bytes:
    delta = {"stop_reason": reason}
    return typed("message_delta", delta=delta, usage={"output_tokens": 20}) + STOP


DONE = stream_answer(START, text_block("Sent."), end("end_turn"))


def agent_at(server: FaultServer, clock: VirtualClock, **options: object) -> Agent[str]:
    return Agent(
        "anthropic:claude-sonnet-4-5",
        base_url=server.url,
        key="k",
        clock=clock,
        **options,  # pyright: ignore[reportArgumentType]
    )


@pytest.mark.parametrize("together", [True, False], ids=["in one read", "in several"])
async def test_a_reply_that_starts_over_replaces_the_one_before(
    together: bool,  # noqa: FBT001
    clock: VirtualClock,
) -> None:
    """S17: one call is proposed and made, with one request, whose usage counts once."""
    sent: list[str] = []

    @tool
    def send(to: str) -> str:
        """Send."""
        sent.append(to)
        return "sent"

    parts = (
        START,
        call_block('{"to": "an'),
        START,
        call_block('{"to": "ann"}', "toolu_2"),
        end("tool_use"),
    )
    answer = stream_answer(b"".join(parts)) if together else stream_answer(*parts)
    journal = MemoryJournal()
    async with FaultServer(answer, DONE) as server:
        agent = agent_at(server, clock, tools=[send], journal=journal)
        result = await agent.run("Send it to Ann.", session="s")
        assert len(server.requests) == 2
    assert (result.text, sent) == ("Sent.", ["ann"])
    facts = await journal.read("s")
    [proposed, _] = [fact for fact in facts if isinstance(fact, StepProposed)]
    assert [call.arguments for call in proposed.reply.calls] == ['{"to": "ann"}']
    [failed] = [fact for fact in facts if isinstance(fact, AttemptFailed)]
    # B2: the process may die before the end of the response reports its usage.
    assert failed.charge is not None
    assert failed.wait_s == 0.0
    assert [fact.attempt for fact in facts if isinstance(fact, AttemptStarted)] == [1, 2, 1]
    assert result.usage is not None
    assert (result.usage.input, result.usage.output) == (60, 40)
    assert clock.elapsed_s < 1


def two_texts(count: int) -> WireAnswer:
    starts = (part for at in range(count) for part in (START, text_block(f"Try {at}, ")))
    return stream_answer(*starts, START, text_block("It is done."), end("end_turn"))


async def test_text_that_was_shown_is_taken_back(clock: VirtualClock) -> None:
    """S17, S6: watchers drop the beginning, and the text is shown once."""
    trace = Trace()
    async with FaultServer(two_texts(2)) as server:
        result = await agent_at(server, clock).run("Go.", on_event=trace)
        assert len(server.requests) == 1
    trace.check()
    assert result.text == trace.shown_text() == "It is done."
    assert trace.kinds().count("AttemptDiscarded") == 2


async def test_text_that_must_stay_ends_the_run(clock: VirtualClock) -> None:
    """S17, S6: `on_partial="fail"` holds here as well."""
    async with FaultServer(two_texts(1)) as server:
        with pytest.raises(RunFailed, match="the provider started its reply over") as failed:
            await agent_at(server, clock).run("Go.", on_event=Trace(), on_partial="fail")
        assert len(server.requests) == 1
    assert failed.value.result.partial_text == "Try 0, "


async def test_a_provider_that_never_ends_starting_over_fails(clock: VirtualClock) -> None:
    """S17, S3: each beginning is an attempt, and their number is limited."""
    async with FaultServer(two_texts(9)) as server:
        with pytest.raises(RunFailed, match="the provider started its reply over"):
            await agent_at(server, clock).run("Go.")
        assert len(server.requests) == 1


async def test_a_second_beginning_before_any_content_changes_nothing(clock: VirtualClock) -> None:
    """S17."""
    answer = stream_answer(START, START, text_block("Hi."), end("end_turn"))
    async with FaultServer(answer) as server:
        result = await agent_at(server, clock).run("Go.")
    assert (result.text, result.model_calls) == ("Hi.", 1)
