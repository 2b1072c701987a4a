"""What the loop promises and the simulator alone does not show; each test kills a planted bug.

The mutants are in `proof/mutants`.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from decimal import Decimal

import pytest
from typing_extensions import override

from windlass.agent.agent import Agent
from windlass.core.errors import ConfigError, SessionBusy
from windlass.core.events import (
    CallFinished,
    CallJudged,
    CallLate,
    CallStarted,
    Event,
    Fact,
    ReplyPiece,
    RunEnded,
    RunStarted,
    StepProposed,
    StreamOpened,
)
from windlass.core.fold.run import fold
from windlass.core.limits import Limits
from windlass.core.messages import Effect, ToolResults, ToolSpec
from windlass.core.moves import ClearedCall
from windlass.core.result import FailedByJournal, FailedByModel, RunFailed, RunResult
from windlass.core.setup import LoopPolicy, ModelInfo, Price
from windlass.core.verdicts import Allow, Ask, Deny, InvalidCall, Modify
from windlass.core.view import Prompt
from windlass.journals.memory import MemoryJournal
from windlass.ports import CallContext, GivenJournal
from windlass.runtime.attempt import CLOSE_S
from windlass.testing import (
    BareJournal,
    BrokenGate,
    FailingJournal,
    FixedGate,
    PowerCut,
    PowerCutJournal,
    RecordingTools,
    ScriptedModel,
    Trace,
    VirtualClock,
    WaitingJournal,
    call,
    cut,
    drop,
    end,
    fail,
    length,
    pause,
    say,
    usage,
)
from windlass.testing.script_words import ScriptItem
from windlass.testing.tools import Delay, IgnoreCancel, RaiseFromRun

SESSION = "s"
NUMBER = {
    "type": "object",
    "properties": {"number": {"type": "integer"}},
    "required": ["number"],
}


def results_of(result: RunResult[str]) -> list[tuple[str, str]]:
    """The results in the transcript, by kind and text, in its order."""
    return [
        (item.result.kind, item.result.text)
        for message in result.messages
        if isinstance(message, ToolResults)
        for item in message.items
    ]


async def facts_of(journal: GivenJournal) -> Sequence[Fact]:
    return await journal.read(SESSION)


# ── the gate ─────────────────────────────────────────────────────────────────


async def test_a_broken_gate_denies_calls_and_replies(clock: VirtualClock) -> None:
    """G1: a gate that raises denies."""
    tools = RecordingTools({"send": "sent"})
    with ScriptedModel([call("send"), "One.", "Two.", "Three."]) as model:
        agent = Agent(model, tools=tools, gate=BrokenGate(), clock=clock)
        result = await agent.run("Send it.")
    assert tools.calls == []
    assert [kind for kind, _ in results_of(result)] == ["denied"]
    assert (result.outcome, result.text) == ("policy_denied", "")


async def test_what_the_gate_made_of_a_call_is_what_runs_and_what_history_says(
    clock: VirtualClock,
) -> None:
    """T4, G2: history, journal and execution agree on the arguments."""
    tools = RecordingTools({"send": "sent"})
    gate = FixedGate(Modify({"to": "bob"}, "ann is away"))
    with ScriptedModel([call("send", {"to": "ann"}), "Sent."]) as model:
        result = await Agent(model, tools=tools, gate=gate, clock=clock).run("Send it.")
    assert [ran.arguments for ran in tools.calls] == [{"to": "bob"}]
    (item,) = (one for one in result.messages if isinstance(one, ToolResults))
    assert item.items[0].call.arguments == '{"to":"bob"}'


async def test_repaired_arguments_are_what_is_judged_run_and_kept(clock: VirtualClock) -> None:
    """T4: assemble, repair, validate, gate, run."""
    specs = (ToolSpec("send", "Sends.", NUMBER),)
    tools = RecordingTools({"send": "sent"}, specs=specs)
    gate = FixedGate()
    replies = [call("send", '{"number": "5"}'), call("send", "{'number': 6,}"), "Sent."]
    with ScriptedModel(replies) as model:
        result = await Agent(model, tools=tools, gate=gate, clock=clock).run("Send them.")
    wanted = [{"number": 5}, {"number": 6}]
    assert [dict(request.arguments) for request in gate.requests] == wanted
    assert [ran.arguments for ran in tools.calls] == wanted
    said = [m.items[0].call.arguments for m in result.messages if isinstance(m, ToolResults)]
    assert said == ['{"number":5}', '{"number":6}']


@pytest.mark.contract("R4")
async def test_each_repair_is_on_record_and_shown(clock: VirtualClock) -> None:
    """Where, and what, so that nobody has to compare what was said with what ran."""
    tools = RecordingTools({"send": "sent"}, specs=(ToolSpec("send", "Sends.", NUMBER),))
    journal = _store()
    trace = Trace()
    with ScriptedModel([call("send", '{"number": "5"}'), "Sent."]) as model:
        agent = Agent(model, tools=tools, journal=journal, clock=clock)
        await agent.run("Send it.", session=SESSION, on_event=trace)
    for events in (await facts_of(journal), trace.events):
        (judged,) = (one for one in events if isinstance(one, CallJudged))
        (change,) = judged.changes
        assert (change.path, change.what) == ("number", "string to integer")


async def test_cut_off_arguments_do_not_run(clock: VirtualClock) -> None:
    """R2: a reply that ended by length never runs a tool on arguments that may not be whole."""
    tools = RecordingTools({"send": "sent"})
    replies = [[call("send", '{"to": "an'), length()], [call("send", ""), length()], "Oh."]
    with ScriptedModel(replies) as model:
        result = await Agent(model, tools=tools, clock=clock).run("Send it.")
    assert tools.calls == []
    assert [kind for kind, _ in results_of(result)] == ["invalid", "invalid"]


@pytest.mark.contract("R2")
async def test_whole_arguments_of_a_cut_off_reply_run_only_a_read(clock: VirtualClock) -> None:
    """Nobody knows what the model wanted to say next, and an effect cannot be taken back."""
    behaviours = {"send": "sent", "save": "saved", "look": "seen"}
    effects: dict[str, Effect] = {"save": "idempotent", "look": "read"}
    tools = RecordingTools(behaviours, effects=effects)
    calls = [call(name, "{}") for name in behaviours]
    with ScriptedModel([[*calls, length()], "Oh."]) as model:
        journal = _store()
        await Agent(model, tools=tools, journal=journal, clock=clock).run("Go.", session=SESSION)
    assert [one.name for one in tools.calls] == ["look"]
    judged = [one.verdict for one in await facts_of(journal) if isinstance(one, CallJudged)]
    refused = [verdict.code for verdict in judged if isinstance(verdict, InvalidCall)]
    assert refused == ["arguments_truncated", "arguments_truncated"]


async def test_a_person_takes_as_long_as_they_like(clock: VirtualClock) -> None:
    """G6: the run's clock does not tick while it waits."""
    tools, gate, journal = RecordingTools({"send": "sent"}), FixedGate(Ask("May I?")), _store()
    with ScriptedModel([[pause(1), call("send")], [pause(1), say("Sent.")]]) as model:
        limits = Limits(seconds=5)
        agent = Agent(model, tools=tools, gate=gate, journal=journal, limits=limits, clock=clock)
        held = await agent.run("Send it.", session=SESSION)
        assert (held.outcome, tools.calls) == ("suspended", [])
        await asyncio.sleep(86_400)
        result = await agent.answer(SESSION, held.questions[0].call_id, Allow())
    assert (result.outcome, result.duration_s) == ("completed", 2.0)


# ── effects and their records ────────────────────────────────────────────────


async def test_a_call_finds_its_own_start_on_record(clock: VirtualClock) -> None:
    """J1: the record of an effect is durable before the effect begins."""
    store = _store()

    async def look(cleared: ClearedCall, context: CallContext) -> int:
        started = [one.key for one in await facts_of(store) if isinstance(one, CallStarted)]
        return started.count(cleared.key)

    tools = RecordingTools({"send": look, "look": look}, effects={"look": "read"})
    with ScriptedModel([[call("look"), call("look"), call("send")], "Done."]) as model:
        agent = Agent(model, tools=tools, journal=WaitingJournal(store), clock=clock)
        result = await agent.run("Go.", session=SESSION)
    assert results_of(result) == [("value", "1")] * 3


@pytest.mark.parametrize(("at", "before"), list(enumerate((1, 2, 3, 5, 7, 8), 2)))
async def test_what_the_journal_did_not_keep_is_neither_done_nor_shown(
    at: int, before: int, clock: VirtualClock
) -> None:
    """J1, E3: a failed append stops the run before the effect, and before the event.

    A verdict is written with the start that follows from it, a result with the next request.
    """
    store, trace, tools = _store(), Trace(), RecordingTools({"send": "sent"})
    model = ScriptedModel([call("send"), "Sent."])
    journal = FailingJournal(store, at)
    agent = Agent(model, tools=tools, journal=journal, clock=clock)
    with pytest.raises(FailedByJournal):
        await agent.run("Send it.", session=SESSION, on_event=trace)
    kept = await facts_of(store)
    assert len(kept) == before
    started = [fact for fact in kept if isinstance(fact, CallStarted)]
    assert len(tools.calls) == len(started)
    # Only the end is told although it could not be kept, since something must be told.
    shown = [event for event in trace.events if event.nth == 0]
    assert shown[:-1] == list(kept)
    assert isinstance(shown[-1], RunEnded)
    trace.check()


async def test_a_record_is_durable_when_it_is_shown(clock: VirtualClock) -> None:
    """E3: records are written before their event is shown."""
    store, early = _store(), list[Event]()

    def watch(event: Event) -> None:
        if event.nth == 0 and event not in store._sessions.get(SESSION, ()):
            early.append(event)

    with ScriptedModel([call("send"), "Sent."]) as model:
        tools = RecordingTools({"send": "sent"})
        agent = Agent(model, tools=tools, journal=WaitingJournal(store), clock=clock)
        await agent.run("Send it.", session=SESSION, on_event=watch)
    assert early == []


@pytest.mark.leaves_tasks
@pytest.mark.parametrize("effect", ["read", "idempotent", "write"])
async def test_a_call_that_a_crash_interrupted(effect: Effect, clock: VirtualClock) -> None:
    """J2: what can be repeated runs again under the same key; a write is told as unknown."""
    store = _store()
    tools = RecordingTools({"do": "done"}, effects={"do": effect})
    starts = 4  # RunStarted, AttemptStarted, StepProposed, then CallJudged with CallStarted.
    dying = PowerCutJournal(store, starts, "after")
    doomed = Agent(ScriptedModel([call("do")]), tools=tools, journal=dying, clock=clock)
    with pytest.raises((PowerCut, RunFailed)):
        await doomed.run("Do it.", session=SESSION)
    await asyncio.sleep(10)
    assert isinstance((await facts_of(store))[-1], CallStarted)
    before = len(tools.calls)
    with ScriptedModel(["Well."]) as model:
        result = await Agent(model, tools=tools, journal=store, clock=clock).resume(SESSION)
    keys = {one.key for one in await facts_of(store) if isinstance(one, CallStarted)}
    assert len(keys) == 1
    assert keys >= {ran.key for ran in tools.calls}
    if effect == "write":
        assert len(tools.calls) == before
        assert results_of(result)[0][0] == "unknown"
    else:
        assert len(tools.calls) == before + 1
        assert results_of(result) == [("value", "done")]


async def test_writes_run_alone_and_in_order(clock: VirtualClock) -> None:
    """T2: reads run together, up to the cap; a write waits for all before it and runs alone."""
    tools = RecordingTools({"look": Delay(1), "send": Delay(1)}, effects={"look": "read"})
    calls = [call("look"), call("look"), call("send"), call("send"), call("look")]
    many = [call("look", {"at": at}) for at in range(7)]
    with ScriptedModel([calls, many, "Done."]) as model:
        rules = LoopPolicy(calls_at_once_max=4)
        await Agent(model, tools=tools, clock=clock, rules=rules).run("Go.")
    assert [ran.name for ran in tools.calls[:5]] == ["look", "look", "send", "send", "look"]
    assert clock.elapsed_s == 4.0 + 2.0
    assert tools.at_once_max == 4


@pytest.mark.contract("T2")
async def test_32_reads_run_at_once_by_default(clock: VirtualClock) -> None:
    """T2: and the default is written into the record, whose own default keeps its meaning."""
    journal = MemoryJournal()
    tools = RecordingTools({"look": Delay(1)}, effects={"look": "read"})
    with ScriptedModel([[call("look", {"at": at}) for at in range(40)], "Done."]) as model:
        await Agent(model, tools=tools, clock=clock, journal=journal).run("Go.", session=SESSION)
    assert tools.at_once_max == 32
    started = (await journal.read(SESSION))[0]
    assert isinstance(started, RunStarted)
    assert started.setup is not None
    assert started.setup.rules.reads_at_once_max == 32


@pytest.mark.contract("B5")
async def test_calls_beyond_the_bound_of_a_reply_do_not_run(clock: VirtualClock) -> None:
    """B5: the reply is kept, and each call beyond the bound has a result that says so."""
    tools = RecordingTools({"send": "sent"})
    calls = [call("send", {"at": at}) for at in range(500)]
    with ScriptedModel([calls, "Done."]) as model:
        result = await Agent(model, tools=tools, clock=clock).run("Go.")
    assert result.completed
    assert [ran.arguments["at"] for ran in tools.calls] == list(range(128))
    results = results_of(result)
    assert len(results) == 500
    assert {kind for kind, _ in results[:128]} == {"value"}
    assert {kind for kind, _ in results[128:]} == {"invalid"}
    assert "at most 128 calls" in results[200][1]


@pytest.mark.contract("T2")
async def test_calls_can_be_made_to_run_one_after_another(clock: VirtualClock) -> None:
    """T2: the provider is told, and a model that makes several calls all the same is held to it."""
    tools = RecordingTools({"look": Delay(1)}, effects={"look": "read"})
    with ScriptedModel([[call("look", {"at": at}) for at in range(3)], "Done."]) as model:
        rules = LoopPolicy(parallel_tool_calls=False)
        await Agent(model, tools=tools, clock=clock, rules=rules).run("Go.")
    assert tools.at_once_max == 1
    assert not model.prompts[0].parallel_tool_calls


@pytest.mark.contract("E1")
async def test_the_start_and_the_end_of_a_call_carry_the_name_of_its_tool(
    clock: VirtualClock,
) -> None:
    """E1: so that a watcher need not look the call up."""
    events: list[Event] = []
    tools = RecordingTools({"look": "seen"})
    with ScriptedModel([call("look"), "Done."]) as model:
        await Agent(model, tools=tools, clock=clock).run("Go.", on_event=events.append)
    named = [event for event in events if isinstance(event, CallStarted | CallFinished)]
    assert [event.name for event in named] == ["look", "look"]


@pytest.mark.parametrize("name", ["functions.look", "functions.Look", "default_api.look", "loook"])
@pytest.mark.contract("T7")
async def test_a_call_of_an_unknown_tool_is_told_the_near_name(
    name: str, clock: VirtualClock
) -> None:
    """T7: also if the model wrote a namespace before it."""
    tools = RecordingTools({"look": "seen", "send": "sent"})
    with ScriptedModel([call(name), "I see."]) as model:
        result = await Agent(model, tools=tools, clock=clock).run("Go.")
    assert f"There is no tool '{name}'. Did you mean look?" in str(result.messages)


@pytest.mark.parametrize(
    ("choice", "told"), [("loook", "Did you mean look"), ("required", "no tools")]
)
@pytest.mark.contract("L12")
def test_a_tool_choice_that_no_reply_can_satisfy_is_refused(choice: str, told: str) -> None:
    """L12: when the agent is made, not by the provider."""
    tools = RecordingTools({} if choice == "required" else {"look": "seen"})
    with pytest.raises(ConfigError, match=told):
        Agent(ScriptedModel([]), tools=tools, rules=LoopPolicy(tool_choice=choice))


async def test_two_writers_of_a_new_session(clock: VirtualClock) -> None:
    """L14: the second one is refused, and nothing of it is kept."""
    store = _store()
    journal = WaitingJournal(store)
    agents = [
        Agent(ScriptedModel([text]), journal=journal, clock=clock) for text in ("First.", "Second.")
    ]
    ends = await asyncio.gather(
        *(agent.run("Hello", session=SESSION) for agent in agents), return_exceptions=True
    )
    assert [type(one) for one in ends].count(SessionBusy) == 1
    (result,) = (one for one in ends if isinstance(one, RunResult))
    state = fold(SESSION, await facts_of(store))
    assert tuple(state.transcript) == result.messages
    assert [fact.seq for fact in await facts_of(store)] == [1, 2, 3, 4]


async def test_a_driver_whose_run_was_taken_over_does_no_more(clock: VirtualClock) -> None:
    """L14: without leases, it finds its next record taken, and stops before the effect."""
    store, tools = BareJournal(_store()), RecordingTools({"send": "sent"})
    slow = ScriptedModel([[pause(5), call("send")]])
    first = Agent(slow, tools=tools, journal=store, clock=clock)
    running = asyncio.create_task(first.run("Send it.", session=SESSION))
    await asyncio.sleep(1)
    with ScriptedModel(["Done already."]) as model:
        result = await Agent(model, tools=tools, journal=store, clock=clock).resume(SESSION)
    with pytest.raises(FailedByJournal) as failed:
        await running
    assert tools.calls == []
    assert not failed.value.result.recorded
    kept = await facts_of(store)
    assert [fact.seq for fact in kept] == list(range(1, len(kept) + 1))
    assert tuple(fold(SESSION, kept).transcript) == result.messages


async def test_a_session_that_somebody_drives_is_refused_before_it_is_read(
    clock: VirtualClock,
) -> None:
    """L14: the driver that has it goes on undisturbed, and its session is free when it ends."""
    store, tools = _store(), RecordingTools({"send": "sent"})
    slow = ScriptedModel([[pause(5), call("send")], "Sent."])
    running = asyncio.create_task(
        Agent(slow, tools=tools, journal=store, clock=clock).run("Send it.", session=SESSION)
    )
    await asyncio.sleep(1)
    known = list(await facts_of(store))
    other = Agent(ScriptedModel(["Mine."]), tools=tools, journal=store, clock=clock)
    with pytest.raises(SessionBusy):
        await other.resume(SESSION)
    with pytest.raises(SessionBusy):
        await other.run("Me too.", session=SESSION)
    assert list(await facts_of(store)) == known
    result = await running
    assert (result.text, len(tools.calls)) == ("Sent.", 1)
    assert result.recorded
    assert (await other.run("And now?", session=SESSION)).text == "Mine."


# ── results ──────────────────────────────────────────────────────────────────


async def test_a_cancel_keeps_what_is_finished_and_closes_the_rest(clock: VirtualClock) -> None:
    """C3, T6: each call has one result, in the model's order, and says whether it had started."""
    store = _store()
    # The second one ends while the end of the first is being written.
    tools = RecordingTools(
        {"a": Delay(1, "A"), "b": Delay(1.005, "B"), "c": Delay(60), "send": "sent"},
        effects={"a": "read", "b": "read", "c": "read"},
    )
    with ScriptedModel([[call("c"), call("b"), call("a"), call("send")], "Well."]) as model:
        journal = WaitingJournal(store, 0.01)
        agent = Agent(model, tools=tools, journal=journal, clock=clock)
        running = asyncio.create_task(agent.run("Go.", session=SESSION))
        await _until(lambda: len(tools.finished) == 2)
        agent.cancel(SESSION)
        result = await running
        await agent.aclose()
        assert result.outcome == "cancelled"
        told = results_of(result)
        assert [kind for kind, _ in told] == ["cancelled", "value", "value", "cancelled"]
        assert [text for _, text in told[1:3]] == ["B", "A"]
        assert "The call had started" in told[0][1]
        assert "The call had not started" in told[3][1]
        again = await agent.run("And now?", session=SESSION)
    assert results_of(again) == told


async def test_a_late_result_is_kept_and_changes_nothing(clock: VirtualClock) -> None:
    """C4: the transcript is what the model was told."""
    store, tools = _store(), RecordingTools({"send": IgnoreCancel(30, "sent after all")})
    with ScriptedModel([call("send"), "Well."]) as model:
        agent = Agent(model, tools=tools, journal=store, clock=clock)
        running = asyncio.create_task(agent.run("Send it.", session=SESSION))
        await _until(lambda: bool(tools.calls))
        agent.cancel(SESSION)
        result = await running
        await asyncio.sleep(60)
        late = [fact for fact in await facts_of(store) if isinstance(fact, CallLate)]
        assert [fact.result.text for fact in late] == ["sent after all"]
        assert tuple(fold(SESSION, await facts_of(store)).transcript) == result.messages
        again = await agent.run("And now?", session=SESSION)
    assert results_of(again) == results_of(result)


async def test_a_failing_call_leaves_its_siblings_their_results(clock: VirtualClock) -> None:
    """T8: also if the tool breaks the law of its port and raises."""
    tools = RecordingTools(
        {"bad": RaiseFromRun(OSError("no")), "good": Delay(1, "good")},
        effects={"bad": "read", "good": "read"},
    )
    with ScriptedModel([[call("bad"), call("good"), call("bad")], "Well."]) as model:
        result = await Agent(model, tools=tools, clock=clock).run("Go.")
    assert [kind for kind, _ in results_of(result)] == ["error", "value", "error"]


# ── the model's stream ───────────────────────────────────────────────────────


async def test_one_counter_serves_all_attempts_of_a_step(clock: VirtualClock) -> None:
    """S3: six requests in all once a stream was open, four if none ever was."""
    torn, refused = [call("send", '{"to'), drop()], fail("server")
    with ScriptedModel([torn, refused, refused, torn, refused, torn]) as model:
        tools = RecordingTools({"send": "sent"})
        with pytest.raises(FailedByModel) as failed:
            await Agent(model, tools=tools, clock=clock).run("Hello")
    assert failed.value.result.model_calls == 6
    with ScriptedModel([refused] * 4) as model, pytest.raises(FailedByModel):
        await Agent(model, clock=clock).run("Hello")


async def test_what_a_watcher_saw_is_not_said_again_if_so_chosen(clock: VirtualClock) -> None:
    """S6: `on_partial="fail"` ends the run as failed, with the partial text kept."""
    trace = Trace()
    broken = [say("Half a re"), drop()]
    with ScriptedModel([broken]) as model, pytest.raises(FailedByModel) as failed:
        await Agent(model, clock=clock).run("Hello", on_event=trace, on_partial="fail")
    assert failed.value.result.partial_text == trace.shown_text() == "Half a re"


async def test_a_restart_wipes_what_was_shown(clock: VirtualClock) -> None:
    """S6, S7, S8: the text is delivered once, and nothing of the broken attempt is in it."""
    trace = Trace()
    with ScriptedModel([[say("Half a re"), cut()], "A whole reply."]) as model:
        result = await Agent(model, clock=clock).run("Hello", on_event=trace)
    assert result.text == trace.shown_text() == "A whole reply."
    assert trace.kinds().count("AttemptDiscarded") == 1
    trace.check()


@pytest.mark.contract("S3")
@pytest.mark.parametrize("silence", [(cut(),), (pause(600),)], ids=["empty", "silent"])
async def test_an_open_stream_without_content_gets_six_attempts(
    silence: tuple[ScriptItem, ...], clock: VirtualClock
) -> None:
    """S3: with the default time-outs and the default budget of time."""
    model = ScriptedModel([[StreamOpened(), *silence]] * 6)
    with model, pytest.raises(FailedByModel) as raised:
        await Agent(model, clock=clock).run("Hello")
    assert raised.value.result.model_calls == 6


async def test_a_keep_alive_is_not_content(clock: VirtualClock) -> None:
    """S4: what says nothing does not feed the idle timer."""
    silence = [pause(60), usage(input=1), pause(60), usage(input=1)]
    with ScriptedModel([[say("Hm."), *silence, say(" No.")], "Yes."]) as model:
        result = await Agent(model, clock=clock).run("Hello")
    assert result.text == "Yes."
    assert 90.0 <= clock.elapsed_s <= 91.0


class _SlowToClose(ScriptedModel):
    """A model whose stream takes long to close."""

    @override
    async def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:
        try:
            async with aclosing(super().stream(prompt)) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            await asyncio.sleep(60)


async def test_a_reply_that_is_whole_does_not_wait_for_its_stream_to_close(
    clock: VirtualClock,
) -> None:
    """S8: nothing behind the end marker is awaited, and closing has a limit."""
    with ScriptedModel([[say("Done."), usage(input=7, output=2), end(), pause(3)]]) as model:
        await Agent(model, clock=clock).run("Hello")
    assert clock.elapsed_s < 0.001
    with _SlowToClose(["Done."]) as model:
        result = await Agent(model, clock=clock).run("Hello")
    assert result.text == "Done."
    assert clock.elapsed_s < CLOSE_S + 0.01


@pytest.mark.contract("J3")
async def test_a_whole_reply_is_on_record_before_its_stream_is_closed(clock: VirtualClock) -> None:
    """J3: a process that is killed while it closes a stream does not pay for the reply again."""
    store = _store()
    kinds_at_close: list[list[str]] = []

    class Observed(ScriptedModel):
        @override
        async def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:
            try:
                async with aclosing(super().stream(prompt)) as pieces:
                    async for piece in pieces:
                        yield piece
            finally:
                kinds_at_close.append([type(fact).__name__ for fact in await store.read(SESSION)])

    with Observed(["Done."]) as model:
        await Agent(model, journal=store, clock=clock).run("Hello", session=SESSION)
    assert kinds_at_close == [["RunStarted", "AttemptStarted", "StepProposed"]]


async def test_a_reply_that_is_whole_is_kept_by_a_cancel(clock: VirtualClock) -> None:
    """J3, C2: it was paid for, and no reply is paid for twice."""
    store = _store()
    with _SlowToClose([[say("Done."), usage(input=7, output=2), end()]]) as model:
        agent = Agent(model, journal=store, clock=clock)
        running = asyncio.create_task(agent.run("Hello", session=SESSION))
        await asyncio.sleep(CLOSE_S / 2)
        agent.cancel(SESSION)
        result = await running
    assert (result.outcome, result.text, result.steps) == ("cancelled", "Done.", 1)
    assert result.usage is not None
    assert (result.usage.total, result.usage.estimated) == (9, False)
    assert any(isinstance(fact, StepProposed) for fact in await facts_of(store))


# ── ends, limits and money ───────────────────────────────────────────────────


@pytest.mark.parametrize("cap", [1, 2, 3])
async def test_a_cap_of_steps_is_a_number_of_replies(cap: int, clock: VirtualClock) -> None:
    """L7: exactly so many replies, no fewer and no more."""
    looks = [[say(f"Look {at}."), call("look", {"at": at})] for at in range(cap)]
    with ScriptedModel(looks) as model:
        tools = RecordingTools({"look": "seen"})
        result = await Agent(model, tools=tools, limits=Limits(steps=cap), clock=clock).run("Go.")
    assert (result.outcome, result.steps, len(tools.calls)) == ("max_steps", cap, cap)
    assert result.text == f"Look {cap - 1}."


async def test_the_last_answer_is_asked_for_without_tools(clock: VirtualClock) -> None:
    """L8: one more call, which may not call."""
    with ScriptedModel([call("look"), "So far, so good."]) as model:
        tools, limits = RecordingTools({"look": "seen"}), Limits(steps=1)
        rules = LoopPolicy(on_limit="answer")
        agent = Agent(model, tools=tools, limits=limits, rules=rules, clock=clock)
        result = await agent.run("Go.")
    assert (result.outcome, result.text) == ("max_steps", "So far, so good.")
    assert [prompt.tool_choice for prompt in model.prompts] == ["auto", "none"]


async def test_money_is_never_overspent(clock: VirtualClock) -> None:
    """B2: the output cap is lowered to what is left, and a call that cannot fit is not made."""
    info = ModelInfo("test:model", price=Price(Decimal(1), Decimal(1000)), output_max=1000)
    limit = Decimal("0.5")
    chatter = [[say("word " * 300), call("look", {"at": at})] for at in range(5)]
    model = ScriptedModel(chatter, info=info, truthful=True)
    tools = RecordingTools({"look": "seen"})
    result = await Agent(model, tools=tools, limits=Limits(usd=limit), clock=clock).run("Go.")
    assert model.failures == []
    assert result.outcome in {"budget_exceeded", "truncated"}
    assert model.billed_usd is not None
    assert model.billed_usd <= limit
    assert result.text


async def test_a_deadline_is_met_in_the_middle_of_anything(clock: VirtualClock) -> None:
    """C5, C2: a deadline is a cancel with a reason; what was said and paid for is kept."""
    slow = [usage(input=7, output=1), say("Let me"), pause(50), say(" think.")]
    with ScriptedModel([slow]) as model:
        result = await Agent(model, limits=Limits(seconds=3), clock=clock).run("Hello")
    assert (result.outcome, result.partial_text) == ("timed_out", "Let me")
    assert result.usage is not None
    assert result.usage.input == 7
    assert 3.0 <= clock.elapsed_s <= 3.1


async def test_a_choice_of_tool_holds_until_it_is_met_once(clock: VirtualClock) -> None:
    """L12: then it is `auto`."""
    with ScriptedModel([call("look"), call("look", {"at": 2}), "Seen."]) as model:
        tools, rules = RecordingTools({"look": "seen"}), LoopPolicy(tool_choice="required")
        await Agent(model, tools=tools, rules=rules, clock=clock).run("Look.")
    assert [prompt.tool_choice for prompt in model.prompts] == ["required", "auto", "auto"]


async def test_silence_is_asked_again_once(clock: VirtualClock) -> None:
    """L10: then the run ends."""
    with ScriptedModel(["", ""]) as model:
        result = await Agent(model, clock=clock).run("Hello")
    assert result.outcome == "empty_reply"


@pytest.mark.contract("L4", "L10", "L8")
async def test_a_reply_without_text_that_was_cut_off_is_not_silence(clock: VirtualClock) -> None:
    """It ends as `truncated`; and a person who says something meanwhile is still answered."""
    with ScriptedModel(["", [length()]]) as model:
        result = await Agent(model, clock=clock).run("Hello")
    assert result.outcome == "truncated"
    with ScriptedModel(["", [pause(2), length()], "", "Here I am."]) as model:
        agent = Agent(model, clock=clock)
        running = asyncio.create_task(agent.run("Hello", session=SESSION))
        await asyncio.sleep(1)
        await agent.steer(SESSION, "Are you there?")
        result = await running
    assert (result.outcome, result.text) == ("completed", "Here I am.")


async def test_a_model_that_goes_in_circles_is_told_and_then_stopped(clock: VirtualClock) -> None:
    """L11: a note after three, the end after two more."""
    with ScriptedModel([call("look")] * 5) as model:
        tools = RecordingTools({"look": "nothing"}, effects={"look": "read"})
        result = await Agent(model, tools=tools, clock=clock).run("Look.")
    assert (result.outcome, len(tools.calls)) == ("stuck", 5)
    noted = [getattr(prompt.messages[-1], "note", False) for prompt in model.prompts]
    assert noted == [False, False, False, True, False]


async def test_a_withheld_reply_stays_withheld(clock: VirtualClock) -> None:
    """G3: told to the model, not to the caller, and three of them end the run."""
    gate = FixedGate(replies=Deny("it names a customer"))
    with ScriptedModel(["Ann.", "Ann!", "It was Ann."]) as model:
        result = await Agent(model, gate=gate, clock=clock).run("Who was it?")
    assert (result.outcome, result.text, result.output_or_none) == ("policy_denied", "", None)


async def test_call_ids_are_unique_in_a_session(clock: VirtualClock) -> None:
    """S9: across steps and runs, whatever ids the provider gives."""
    store, tools = _store(), RecordingTools({"look": "seen"}, effects={"look": "read"})
    looks = [[call("look", {"at": at}, id="same"), call("look", id="other")] for at in range(2)]
    with ScriptedModel([*looks, "Seen.", *looks, "Seen."]) as model:
        agent = Agent(model, tools=tools, journal=store, clock=clock)
        await agent.run("Look.", session=SESSION)
        await agent.run("Look again.", session=SESSION)
    ids = [fact.call_id for fact in await facts_of(store) if isinstance(fact, CallFinished)]
    assert len(ids) == len(set(ids)) == 8


def _store() -> MemoryJournal:
    return MemoryJournal()


async def _until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110 - on virtual time, this is the plainest way to wait
        await asyncio.sleep(0.001)
