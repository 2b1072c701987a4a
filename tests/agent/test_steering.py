"""Steering: what a person says meanwhile is on record at once, and heeded before the next step."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from windlass import (
    Agent,
    Allow,
    Ask,
    Compaction,
    ConfigError,
    Event,
    FailedByBug,
    Limits,
    LoopPolicy,
    ModelInfo,
    NothingToDo,
    RunResult,
    SessionBusy,
    SteeringGiven,
    SteeringTaken,
    UserMessage,
    tool,
)
from windlass.agent import control
from windlass.core.events import MailRefused
from windlass.core.mail import SteerMail
from windlass.core.messages import TextPart
from windlass.core.view import Prompt
from windlass.journals.memory import MemoryJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.ports import Journal
from windlass.testing import (
    FixedGate,
    PowerCut,
    PowerCutJournal,
    ScriptedModel,
    ScriptedReply,
    VirtualClock,
    WaitingJournal,
    call,
    check_trace,
    pause,
    run_virtual,
    say,
)
from windlass.tools import RunContext

pytestmark = pytest.mark.slow


@tool(effect="read")
async def look(number: int) -> str:
    """Look at something for a while."""
    await asyncio.sleep(1)
    return f"saw {number}"


def said(prompt: Prompt) -> list[str]:
    """What persons said, as the model is shown it."""
    return [one.text for one in prompt.messages if isinstance(one, UserMessage) and not one.note]


async def until(holds: Callable[[], object]) -> None:
    while not holds():  # noqa: ASYNC110 - a model tells nobody
        await asyncio.sleep(0.01)


async def test_it_is_heeded_before_the_next_step(clock: VirtualClock) -> None:
    """Said while the model streams, and again while a tool runs."""
    journal, events = MemoryJournal(), list[Event]()
    script: list[ScriptedReply] = [
        [say("Let me "), pause(1), say("see."), call("look", {"number": 1})]
    ]
    with ScriptedModel([*script, "Blue it is."]) as model:
        agent = Agent(model, tools=[look], journal=journal, clock=clock)
        running = asyncio.create_task(agent.run("Go.", session="s", on_event=events.append))
        await until(lambda: model.prompts)
        await agent.steer("s", "Make it blue.", by="ann")
        await asyncio.sleep(1.5)
        await agent.steer("s", "And large.")
        result = await running
    assert result.text == "Blue it is."
    assert said(model.prompts[1]) == ["Go.", "Make it blue.", "And large."]
    facts = await journal.read("s")
    assert [one.by for one in facts if isinstance(one, SteeringGiven)] == ["ann", ""]
    assert sum(isinstance(one, SteeringTaken) for one in facts) == 1
    check_trace(events)


async def test_a_last_reply_that_did_not_hear_it_is_not_the_last(clock: VirtualClock) -> None:
    with ScriptedModel([[say("Red"), pause(1), say(" it is.")], "Blue it is."]) as model:
        agent = Agent(model, clock=clock)
        running = asyncio.create_task(agent.run("Go.", session="s"))
        await until(lambda: model.prompts)
        await agent.steer("s", "Make it blue.")
        result = await running
    assert (result.text, result.steps) == ("Blue it is.", 2)
    assert [type(one).__name__ for one in result.messages] == [
        "UserMessage",
        "AssistantMessage",
        "UserMessage",
        "AssistantMessage",
    ]


async def test_a_run_that_waits_for_a_person_keeps_it(clock: VirtualClock) -> None:
    """G6: it does not answer the question."""
    journal, gate = MemoryJournal(), FixedGate(Ask("May I?"))
    with ScriptedModel([call("look", {"number": 1}), "Blue it is."]) as model:
        agent = Agent(model, tools=[look], gate=gate, journal=journal, clock=clock)
        held = await agent.run("Go.", session="s")
        assert held.outcome == "suspended"
        await agent.steer("s", "Make it blue.")
        assert (await journal.read("s"))[-1].__class__ is SteeringGiven
        (question,) = held.questions
        result = await agent.answer("s", question.call_id, Allow())
    assert result.text == "Blue it is."
    assert said(model.prompts[1]) == ["Go.", "Make it blue."]


async def test_a_crash_does_not_lose_it(clock: VirtualClock) -> None:
    """J1: said before the crash, and after it before anybody resumes."""
    store = MemoryJournal()
    cut = PowerCutJournal(store, 5)
    model = ScriptedModel([[pause(1), call("look", {"number": 1})]])
    agent = Agent(model, tools=[look], journal=cut, clock=clock)
    running = asyncio.create_task(agent.run("Go.", session="s"))
    await until(lambda: model.prompts)
    await agent.steer("s", "Make it blue.")
    with pytest.raises((PowerCut, FailedByBug)):
        await running
    with ScriptedModel(["Blue it is."]) as model:
        agent = Agent(model, tools=[look], journal=store, clock=clock)
        await agent.steer("s", "And large.")
        result = await agent.resume("s")
    assert result.completed
    assert said(model.prompts[-1]) == ["Go.", "Make it blue.", "And large."]


@pytest.mark.contract("G6")
async def test_days_until_it_is_said_are_no_work(clock: VirtualClock) -> None:
    """Three days after the crash somebody speaks, and days later somebody resumes the run."""
    store = MemoryJournal()
    limits = Limits(seconds=60)
    dying = ScriptedModel([[pause(10), call("look", {"number": 1})], "never"])
    cut = PowerCutJournal(store, 4)
    agent = Agent(dying, tools=[look], journal=cut, clock=clock, limits=limits)
    with pytest.raises((PowerCut, FailedByBug)):
        await agent.run("Go.", session="s")
    with ScriptedModel(["Blue it is."]) as model:
        agent = Agent(model, tools=[look], journal=store, clock=clock, limits=limits)
        for _ in range(3):
            await asyncio.sleep(3 * 86_400)
            await agent.steer("s", "Make it blue.")
        await asyncio.sleep(3 * 86_400)
        result = await agent.resume("s")
    assert result.outcome == "completed"
    assert 10 <= result.duration_s < 60


async def test_it_needs_an_open_run(clock: VirtualClock) -> None:
    with ScriptedModel(["Hello."]) as model:
        agent = Agent(model, clock=clock)
        with pytest.raises(NothingToDo):
            await agent.steer("s", "Hello?")
        await agent.run("Go.", session="s")
        with pytest.raises(NothingToDo, match="start a new run"):
            await agent.steer("s", "One more thing.")
        with pytest.raises(ConfigError, match="empty"):
            await agent.steer("s", " ")


@pytest.mark.contract("L8")
async def test_a_run_that_undoes_another_takes_no_message(clock: VirtualClock) -> None:
    """L8: it asks no model, so what it accepted would not be read. A new run is begun instead."""

    async def give_back(context: RunContext, room: str) -> str:
        await asyncio.sleep(1)
        return f"{room} is free"

    @tool(undo=give_back)
    def book(room: str) -> str:
        """Book a room."""
        return f"{room} is booked"

    journal = MemoryJournal(now=clock.now)
    with ScriptedModel([call("book", {"room": "a"}), "Booked.", "I see."]) as model:
        agent = Agent(model, tools=[book], journal=journal, clock=clock)
        other = Agent(ScriptedModel([]), tools=[book], journal=journal, clock=clock)
        await agent.run("Book.", session="s")
        undoing = asyncio.create_task(agent.undo("s"))
        await asyncio.sleep(0.5)
        for speak in (agent.steer, other.steer, partial(control.steer, journal)):
            with pytest.raises(NothingToDo, match="undoes an earlier one"):
                await speak("s", "Stop.")
        # One that was posted to the run by its number is refused by a fact.
        await journal.post_mail("s", SteerMail(run=2, prompt=(TextPart("Stop."),)), by="ann")
        result = await agent.run("And now?", session="s", on_busy="steer")
        assert (await undoing).completed
    assert result.text == "I see."
    facts = await journal.read("s")
    assert not [fact for fact in facts if isinstance(fact, SteeringGiven)]
    [refused] = [fact for fact in facts if isinstance(fact, MailRefused)]
    assert (refused.kind, refused.reason) == (
        "steer",
        "the run undoes an earlier one and asks no model",
    )


@pytest.mark.realtime
@pytest.mark.contract("D3")
async def test_who_drives_it_elsewhere_is_told_by_mail(tmp_path: Path) -> None:
    """D3: two journals on one file, as two processes have them."""
    started = asyncio.Event()

    @tool(effect="read")
    async def wait() -> str:
        """Wait for the test."""
        started.set()
        await asyncio.sleep(0.2)
        return "waited"

    path = tmp_path / "s.db"
    script: list[ScriptedReply] = [call("wait"), "Done."]
    journals = SqliteJournal(path), SqliteJournal(path)
    with journals[0] as here, journals[1] as there, ScriptedModel(script) as model:
        agent = Agent(model, tools=[wait], journal=here)
        other = Agent(ScriptedModel([]), tools=[wait], journal=there)
        running = asyncio.create_task(agent.run("Go.", session="s"))
        await started.wait()
        await other.steer("s", "Make it blue.", by="ada")
        result = await running
        facts = await here.read("s")
    assert result.completed
    steered = [fact for fact in facts if isinstance(fact, SteeringGiven)]
    assert [(fact.by, fact.mail) for fact in steered] == [("ada", 1)]
    assert said(model.prompts[1]) == ["Go.", "Make it blue."]


@pytest.mark.realtime
async def test_a_run_in_another_thread_can_be_steered(tmp_path: Path) -> None:
    """`run_sync` drives in an event loop of its own."""
    inside, go_on = threading.Event(), threading.Event()

    @tool(effect="read")
    def wait() -> str:
        """Wait for the test."""
        inside.set()
        go_on.wait(5)
        return "waited"

    script: list[ScriptedReply] = [call("wait"), "Blue it is."]
    with ScriptedModel(script) as model, SqliteJournal(tmp_path / "s.db") as journal:
        agent = Agent(model, tools=[wait], journal=journal)
        running = asyncio.create_task(asyncio.to_thread(agent.run_sync, "Go.", session="s"))
        await asyncio.to_thread(inside.wait, 5)
        await agent.steer("s", "Make it blue.")
        go_on.set()
        result = await running
        await agent.aclose()
    assert result.completed
    assert said(model.prompts[1]) == ["Go.", "Make it blue."]


@pytest.mark.parametrize("waits", [0.0, 0.001], ids=["at once", "slow disk"])
def test_whenever_it_is_said_it_is_heeded_or_refused(waits: float) -> None:
    """At each turn of the event loop: a run that completes has heard all that it accepted."""
    accepted = refused = 0
    for turns in range(120):
        accepted_now, result, seen = run_virtual(partial(_steered_after, turns, waits))
        assert result.completed, (turns, result)
        told = [one.text for one in result.messages if isinstance(one, UserMessage)]
        assert ("Blue." in told) == accepted_now, turns
        assert ("Blue." in seen) == accepted_now, f"accepted after {turns} turns, and not heeded"
        accepted += accepted_now
        refused += not accepted_now
    assert accepted > 10
    assert refused > 10


async def _steered_after(
    turns: int, waits: float, clock: VirtualClock
) -> tuple[bool, RunResult[str], list[str]]:
    store: Journal = MemoryJournal()
    journal = WaitingJournal(store, waits) if waits else store
    replies: list[ScriptedReply] = [call("look", {"number": 1}), "Done.", "Done again."]
    model = ScriptedModel(replies)

    @tool(effect="read")
    async def look(number: int) -> str:
        """Look."""
        return f"saw {number}"

    agent = Agent(model, tools=[look], journal=journal, clock=clock)
    running = asyncio.create_task(agent.run("Go.", session="s"))
    for _ in range(turns):
        await asyncio.sleep(waits / 4)
    try:
        await agent.steer("s", "Blue.")
    except (NothingToDo, SessionBusy):
        accepted = False
    else:
        accepted = True
    result = await running
    return accepted, result, said(model.prompts[-1])


async def test_a_cancel_right_after_it_loses_neither(clock: VirtualClock) -> None:
    """C1, L14: a slow disk, a word, and a cancel before the word is durable."""
    for late in range(1, 40):
        store = MemoryJournal()
        with_steps: list[ScriptedReply] = [call("look", {"number": at}) for at in range(9)]
        agent = Agent(
            ScriptedModel(with_steps),
            tools=[look],
            journal=WaitingJournal(store, 0.02),
            clock=clock,
        )
        running = asyncio.create_task(agent.run("Go.", session="s"))
        await asyncio.sleep(0.005 * late)
        telling = asyncio.create_task(agent.steer("s", "Blue."))
        await asyncio.sleep(0.003)
        agent.cancel("s", "enough")
        result = await running
        (told,) = await asyncio.gather(telling, return_exceptions=True)
        assert result.outcome == "cancelled", (late, result)
        assert result.recorded, late
        assert told is None or isinstance(told, NothingToDo | SessionBusy), (late, told)
        facts = await store.read("s")
        assert [one.seq for one in facts] == list(range(1, len(facts) + 1))
        assert any(isinstance(one, SteeringGiven) for one in facts) == (told is None), late


async def test_at_the_cap_of_steps_it_is_kept_for_the_next_run(clock: VirtualClock) -> None:
    """L7: a cap of N steps means N replies, whatever is said."""
    journal = MemoryJournal()
    with ScriptedModel([[say("Red"), pause(1), say(" it is.")]]) as model:
        agent = Agent(model, limits=Limits(steps=1), journal=journal, clock=clock)
        running = asyncio.create_task(agent.run("Go.", session="s"))
        await until(lambda: model.prompts)
        await agent.steer("s", "Make it blue.")
        result = await running
    assert (result.outcome, result.text, result.steps) == ("max_steps", "Red it is.", 1)
    with ScriptedModel(["Blue it is."]) as model:
        agent = Agent(model, limits=Limits(steps=1), journal=journal, clock=clock)
        await agent.run("Well?", session="s")
    assert said(model.prompts[0]) == ["Go.", "Make it blue.", "Well?"]


async def test_it_is_not_heeded_at_the_landing(clock: VirtualClock) -> None:
    """L8: the one more reply is the last."""
    rules, limits = LoopPolicy(on_limit="answer"), Limits(steps=1)
    script: list[ScriptedReply] = [
        call("look", {"number": 1}),
        [say("I saw"), pause(1), say(" one.")],
    ]
    with ScriptedModel(script) as model:
        agent = Agent(model, tools=[look], rules=rules, limits=limits, clock=clock)
        running = asyncio.create_task(agent.run("Go.", session="s"))
        await until(lambda: len(model.prompts) == 2)
        await agent.steer("s", "Make it blue.")
        result = await running
    assert (result.outcome, result.text) == ("max_steps", "I saw one.")
    assert isinstance(result.messages[-1], UserMessage)


async def test_what_was_said_is_summed_up_like_the_rest(clock: VirtualClock) -> None:
    """X2: only the prompt of the run and what is pinned stay in view word for word."""
    info = ModelInfo("scripted:model", window=2_000)
    rules = Compaction(strategies=("window",))

    @tool(effect="read")
    async def scan(number: int) -> str:
        """Look at something large."""
        await asyncio.sleep(1)
        return f"{number}: " + "much to see " * 100

    script: list[ScriptedReply] = [call("scan", {"number": at}) for at in range(12)]
    with ScriptedModel([*script, "Done."], info=info) as model:
        agent = Agent(model, tools=[scan], compaction=rules, clock=clock)
        running = asyncio.create_task(agent.run("Go.", session="s"))
        await until(lambda: model.prompts)
        await agent.steer("s", "Make it blue.")
        result = await running
    assert result.completed
    assert "Make it blue." in said(model.prompts[1])
    assert said(model.prompts[-1]) == ["Go."]
