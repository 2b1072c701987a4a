"""`text()`: the whole text so far, of a stream and of a handle."""

import asyncio

import pytest

from windlass import Agent, LoopPolicy, RunFailed, tool
from windlass.agent.event_stream import ReplyText, follow_text
from windlass.core.events import Event, ReplyJudged, StepProposed, TextDelta
from windlass.core.messages import AssistantMessage, TextPart
from windlass.core.verdicts import Deny
from windlass.journals.memory import MemoryJournal
from windlass.testing import ScriptedModel, VirtualClock, call, drop, pause, say


@tool(effect="read")
async def look() -> str:
    """Look."""
    return "seen"


async def texts_of_stream(agent: Agent[str]) -> list[str]:
    async with agent.stream("Tell.") as events:
        texts = [text async for text in events.text()]
    assert texts[-1] == events.result.text
    return texts


@pytest.mark.contract("S5", "S6")
async def test_text_of_a_stream_grows_and_shrinks_at_a_discard(clock: VirtualClock) -> None:
    """S5, S6: each value replaces the one before, and the last one is the reply, once."""
    broken = [say("Once "), pause(1), say("upon "), pause(1), drop()]
    whole = [say("The "), pause(1), say("end.")]
    with ScriptedModel([broken, whole]) as model:
        texts = await texts_of_stream(Agent(model, clock=clock))
    shrinks = [at for at in range(1, len(texts)) if len(texts[at]) < len(texts[at - 1])]
    assert [texts[at - 1] for at in shrinks] == ["Once upon "]
    assert texts == ["Once ", "Once upon ", "", "The ", "The end."]


@pytest.mark.contract("S5", "S6")
async def test_text_of_a_handle_is_the_same(clock: VirtualClock) -> None:
    """S5, S6: a run that was started is watched in the same way, live or late."""
    broken = [say("Once "), pause(1), say("upon "), pause(1), drop()]
    with ScriptedModel([broken, [say("The "), pause(1), say("end.")]]) as model:
        agent = Agent(model, journal=MemoryJournal(), clock=clock)
        handle = await agent.start("Tell.", session="s")
        texts = [text async for text in handle.text()]
        late = [text async for text in handle.text()]
    assert texts == ["Once ", "Once upon ", "", "The ", "The end."]
    assert late == ["The end."]


async def test_a_later_reply_replaces_an_earlier_one(clock: VirtualClock) -> None:
    """S5: the last value is the text of the result."""
    with ScriptedModel([[say("Let me look."), call("look")], [call("look")], "Done."]) as model:
        texts = await texts_of_stream(Agent(model, tools=[look], clock=clock))
    assert "Let me look." in texts
    assert texts[-1] == "Done."
    assert "" not in texts


async def test_text_that_came_before_a_failure_is_kept(clock: VirtualClock) -> None:
    """S6: with `on_partial="fail"` nothing is taken back."""
    rules = LoopPolicy(on_partial="fail")
    with ScriptedModel([[say("Once "), drop()]]) as model:
        agent = Agent(model, journal=MemoryJournal(), clock=clock, rules=rules)
        handle = await agent.start("Tell.")
        texts = [text async for text in handle.text()]
        with pytest.raises(RunFailed) as failed:
            await handle.result()
    assert texts[-1] == failed.value.result.partial_text == "Once "


class Source:
    """Events that can be had at once, as those of a run that is far ahead of its reader."""

    def __init__(self, count: int) -> None:
        self._left = count

    def __aiter__(self) -> "Source":
        return self

    async def __anext__(self) -> Event:
        if not self._left:
            raise StopAsyncIteration
        self._left -= 1
        # A turn of the loop passes with every hundredth event, and with no other.
        if not self._left % 100:
            await asyncio.sleep(0)
        return TextDelta(".")


async def test_what_comes_in_one_turn_of_the_loop_is_one_value() -> None:
    """S6: a reader gets at most one value per turn, and loses no text."""
    texts = [text async for text in follow_text(Source(1_000))]
    assert texts[-1] == "." * 1_000
    assert len(texts) <= 12


async def test_a_reader_that_leaves_early_leaves_no_task_behind() -> None:
    before = asyncio.all_tasks()
    values = follow_text(Source(1_000))
    assert await anext(values)
    await values.aclose()
    assert asyncio.all_tasks() == before


def test_a_reply_that_the_gate_takes_back_is_not_the_text() -> None:
    reply = ReplyText()
    proposed = StepProposed(AssistantMessage((TextPart("The code is 1234."),), "m"), "end")
    reply.apply(proposed)
    assert reply.text == "The code is 1234."
    reply.apply(ReplyJudged(Deny("secret")))
    assert reply.text == ""
