"""A response follows from the events of its run, whenever the client came."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypedDict

import pytest

from folded_response import FoldedResponse
from windlass import Agent, AttemptFailed, Event, ModelInfo, RunEnded, tool
from windlass.agent.options import parts_of
from windlass.core.setup import LoopPolicy
from windlass.gates import RuleGate, ask
from windlass.server.openai.following import ChatChunks, make_completion
from windlass.server.openai.objects import OpenAIError, ResponseObject
from windlass.server.openai.response_encoder import ResponseEvent, TextPieceEvent, skip_seen
from windlass.testing import (
    ScriptedModel,
    ScriptedReply,
    VirtualClock,
    call,
    drop,
    fail,
    pause,
    say,
    think,
)

pytestmark = pytest.mark.contract("A6")


@tool(effect="read")
async def look(at: int) -> str:
    """Look at a page."""
    await asyncio.sleep(1)
    return f"page {at}"


@tool
def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


REPLIES: list[ScriptedReply] = [
    [think("Hm."), say("Let me see"), call("look", {"at": 1})],
    [say("All "), pause(1), say("is "), pause(1), drop()],
    [say("All "), pause(1), say("is "), pause(1), say("well.")],
]


@dataclass
class Seen:
    """What one client saw of a response."""

    fold: FoldedResponse
    events: list[ResponseEvent]

    @property
    def numbers(self) -> list[int]:
        return [event.sequence_number for event in self.events]

    @property
    def response(self) -> ResponseObject:
        return self.fold.read_response()

    def join_text(self) -> dict[str, str]:
        """Return the text of each item as its deltas gave it."""
        texts: dict[str, str] = {}
        for event in self.events:
            if isinstance(event, TextPieceEvent):
                texts[event.item_id] = texts.get(event.item_id, "") + event.delta
        return texts


def fold_events(events: Sequence[Event], run: int = 1, starting_after: int = -1) -> Seen:
    fold = FoldedResponse("s", run)
    seen: list[ResponseEvent] = []
    for event in events:
        for made in fold.apply(event):
            rest = skip_seen(made, starting_after)
            if rest is not None:
                seen.append(rest)
    return Seen(fold, seen)


def make_agent(clock: VirtualClock, *replies: ScriptedReply) -> Agent:
    return Agent(
        ScriptedModel(replies, info=ModelInfo("scripted:m")),
        name="helper",
        tools=[look, send],
        clock=clock,
        gate=ask(),
        rules=LoopPolicy(on_partial="restart"),
    )


async def watch_run(agent: Agent) -> list[Event]:
    seen: list[Event] = []
    await agent.run("Go.", session="s", on_event=seen.append)
    return seen


async def test_a_run_is_a_response_with_a_message_for_each_reply(clock: VirtualClock) -> None:
    agent = make_agent(clock, REPLIES[0], REPLIES[2])
    seen = fold_events(await watch_run(agent))
    types = [event.type for event in seen.events]
    assert types[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert types[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    response = seen.response
    assert (response.status, response.model) == ("completed", "helper")
    assert [(item.text, item.phase) for item in response.output] == [
        ("Let me see", "commentary"),
        ("All is well.", "final_answer"),
    ]
    assert list(seen.join_text().values()) == ["Let me see", "All is well."]
    assert all(earlier < later for earlier, later in pairwise(seen.numbers))


async def test_numbers_and_items_are_the_same_whenever_a_client_comes(clock: VirtualClock) -> None:
    """Also after a broken attempt, of which somebody who comes late saw nothing."""
    agent = make_agent(clock, *REPLIES)
    running = asyncio.create_task(watch_run(agent))
    clients: list[asyncio.Task[list[Event]]] = []

    async def come_late() -> list[Event]:
        events: list[Event] = []
        async for event in agent.watch("s"):
            events.append(event)
            if isinstance(event, RunEnded):
                break
        return events

    while not running.done():
        await asyncio.sleep(0.35)
        if not running.done():
            clients.append(asyncio.create_task(come_late()))
    first = fold_events(await running)
    numbered = {event.sequence_number: event for event in first.events}
    assert len(clients) > 5
    facts = await parts_of(agent).world.journal.read("s")
    for events in [*[await client for client in clients], facts]:
        seen = fold_events(events)
        assert seen.response == first.response
        assert all(earlier < later for earlier, later in pairwise(seen.numbers))
        for event in seen.events:
            known = numbered.get(event.sequence_number)
            if known is not None and not isinstance(event, TextPieceEvent):
                assert event == known
        final = {item.id: item.text for item in seen.response.output if item.text}
        assert {key: seen.join_text()[key] for key in final} == final


async def test_a_client_that_comes_back_gets_exactly_the_rest(clock: VirtualClock) -> None:
    """Whichever event it saw last, and although the deltas are cut in other places now."""
    agent = make_agent(clock, *REPLIES)
    live = await watch_run(agent)
    facts = await parts_of(agent).world.journal.read("s")
    whole = fold_events(live)
    for at, number in enumerate(whole.numbers):
        before = Seen(whole.fold, whole.events[: at + 1])
        for events in (live, facts):
            rest = fold_events(events, starting_after=number)
            assert all(each > number for each in rest.numbers)
            both = Seen(rest.fold, [*before.events, *rest.events])
            final = {item.id: item.text for item in rest.response.output if item.text}
            assert {key: both.join_text()[key] for key in final} == final
            assert both.events[-1] == whole.events[-1]


async def test_a_broken_attempt_stays_an_incomplete_item(clock: VirtualClock) -> None:
    seen = fold_events(await watch_run(make_agent(clock, *REPLIES)))
    items = [(item.status, item.text) for item in seen.response.output]
    assert items == [
        ("completed", "Let me see"),
        ("incomplete", ""),
        ("completed", "All is well."),
    ]


async def test_a_chat_stream_ends_with_an_error_when_its_text_is_taken_back(
    clock: VirtualClock,
) -> None:
    fold = FoldedResponse("s")
    chunks = ChatChunks()
    text = ""

    def read(event: Event) -> None:
        nonlocal text
        for chunk in chunks.translate(fold.apply(event)):
            text += chunk.choices[0].delta.content or ""

    events = await watch_run(make_agent(clock, *REPLIES))
    broken_at = next(at for at, event in enumerate(events) if isinstance(event, AttemptFailed))
    for event in events[:broken_at]:
        read(event)
    with pytest.raises(OpenAIError) as raised:
        read(events[broken_at])
    assert raised.value.code == "reply_broken"
    assert text == "Let me see\n\nAll is "


async def test_a_failed_attempt_without_text_disturbs_nothing(clock: VirtualClock) -> None:
    events = await watch_run(make_agent(clock, fail("rate_limit"), "Hello."))
    fold = FoldedResponse("s")
    chunks = ChatChunks(include_usage=True)
    made = [chunk for event in events for chunk in chunks.translate(fold.apply(event))]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in made[:-1]) == "Hello."
    assert made[-2].choices[0].finish_reason == "stop"
    assert made[-1].usage is not None
    assert [item.text for item in fold.read_response().output] == ["Hello."]
    completion = make_completion(fold.read_response())
    assert completion.choices[0].message.content == "Hello."


async def test_a_run_that_fails_has_its_error_and_its_partial_text(clock: VirtualClock) -> None:
    agent = make_agent(clock, [say("Half"), fail("auth", "no such key")])
    seen: list[Event] = []
    with pytest.raises(Exception, match="no such key"):
        await agent.run("Go.", session="s", on_event=seen.append)
    response = fold_events(seen).response
    assert response.status == "failed"
    assert response.error is not None
    assert "no such key" in response.error.message
    with pytest.raises(OpenAIError) as raised:
        make_completion(response)
    assert raised.value.status == 424


async def test_a_question_is_in_the_details_until_it_is_answered(clock: VirtualClock) -> None:
    agent = make_agent(clock, call("send", {"to": "Ann"}), "Sent.")
    result = await agent.run("Go.", session="s")
    asked = fold_events(await parts_of(agent).world.journal.read("s"))
    assert asked.fold.waits
    assert asked.response.status == "in_progress"
    assert [one.url for one in asked.response.windlass.questions] == [
        f"http://host/questions/{result.questions[0].call_id}"
    ]


async def test_a_cancelled_run_keeps_what_it_had_said(clock: VirtualClock) -> None:
    agent = make_agent(clock, [say("Half of"), pause(5), say(" it")])
    running = asyncio.create_task(watch_run(agent))
    await asyncio.sleep(1)
    agent.cancel("s")
    seen = fold_events(await running)
    assert seen.events[-1].type == "response.incomplete"
    assert seen.response.status == "cancelled"
    assert [(item.status, item.text) for item in seen.response.output] == [
        ("incomplete", "Half of")
    ]


class Weight(TypedDict):
    """What something weighs."""

    tonnes: int


async def test_an_agent_with_an_output_type_sends_nothing_but_its_output(
    clock: VirtualClock,
) -> None:
    """Neither text beside calls, nor a reply that does not fit and is asked for again."""
    replies = [[say("I look."), call("look", {"at": 1})], '{"tonnes": "?"}', '{"tonnes": 2}']
    agent = Agent(ScriptedModel(replies), tools=[look], clock=clock, output_type=Weight)
    events: list[Event] = []
    await agent.run("Go.", session="s", on_event=events.append)
    facts = await parts_of(agent).world.journal.read("s")
    for seen in (fold_events(events), fold_events(facts)):
        assert [item.text for item in seen.response.output] == ['{"tonnes": 2}']
        assert list(seen.join_text().values()) == ['{"tonnes": 2}']
        assert make_completion(seen.response).choices[0].message.content == '{"tonnes": 2}'


@pytest.mark.contract("G3")
async def test_a_reply_that_the_gate_denies_is_never_sent(clock: VirtualClock) -> None:
    gate = RuleGate([], reply=["*secret*"])
    model = ScriptedModel(["It is a secret.", "I may not say."])
    agent = Agent(model, clock=clock, gate=gate)
    events: list[Event] = []
    await agent.run("Go.", session="s", on_event=events.append)
    facts = await parts_of(agent).world.journal.read("s")
    for seen in (fold_events(events), fold_events(facts)):
        assert "secret" not in str(seen.events)
        assert [item.text for item in seen.response.output] == ["I may not say."]
