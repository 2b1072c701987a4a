"""Fallback models, and what watchers are told while a step is asked for again."""

from decimal import Decimal
from typing import Any

import pytest

from windlass import (
    Agent,
    ConfigError,
    FailedByModel,
    Limits,
    LoopPolicy,
    Price,
    RetryPolicy,
    RunFailed,
)
from windlass.core.events import (
    AttemptRetrying,
    AttemptStarted,
    ModelFellBack,
    RunResumed,
    StepProposed,
    StreamStalled,
)
from windlass.core.messages import AssistantMessage
from windlass.core.setup import ModelInfo
from windlass.journals.memory import MemoryJournal
from windlass.testing import (
    PowerCutJournal,
    ScriptedModel,
    Trace,
    VirtualClock,
    call,
    drop,
    fail,
    say,
    stall,
)
from windlass.testing.tools import RecordingTools

TWICE = RetryPolicy(attempts_max=2, establish_max=2)


def model(name: str, *script: Any) -> ScriptedModel:
    return ScriptedModel(list(script), name=name)


async def test_the_next_model_is_asked_when_the_attempts_at_one_are_spent(
    clock: VirtualClock,
) -> None:
    """S15: in order; the record says which model answered."""
    trace = Trace()
    first, second, third = (
        model("a:a", fail("server"), fail("server")),
        model("b:b", fail("rate_limit"), fail("network")),
        model("c:c", "Hello."),
    )
    agent = Agent(first, fallbacks=[second, third], retries=TWICE, clock=clock)
    result = await agent.run("Hi.", on_event=trace)
    assert (result.text, result.model_calls) == ("Hello.", 5)
    moved = [(event.instead_of, event.model) for event in trace.of_type(ModelFellBack)]
    assert moved == [("a:a", "b:b"), ("b:b", "c:c")]
    assert [event.attempt for event in trace.of_type(AttemptStarted)] == [1, 2, 1, 2, 1]
    (step,) = trace.of_type(StepProposed)
    assert step.reply.model == "c:c"
    for one in (first, second, third):
        one.assert_used_up()


async def test_a_run_stays_with_the_model_that_answered(clock: VirtualClock) -> None:
    """S15: a model that is down is not tried again at each step."""
    tools = RecordingTools({"look": "seen"})
    first = model("a:a", fail("server"), fail("server"))
    second = model("b:b", call("look"), "Done.")
    agent = Agent(first, fallbacks=[second], tools=tools, retries=TWICE, clock=clock)
    result = await agent.run("Go.")
    assert result.text == "Done."
    assert {m.model for m in result.messages if isinstance(m, AssistantMessage)} == {"b:b"}


async def test_what_asking_again_cannot_mend_goes_to_nobody_else(clock: VirtualClock) -> None:
    """S15: on retryable failure only."""
    second = model("b:b")
    agent = Agent(model("a:a", fail("bad_request")), fallbacks=[second], clock=clock)
    with pytest.raises(FailedByModel):
        await agent.run("Hi.")
    assert second.requests == 0


async def test_text_that_was_shown_is_not_told_anew_by_another_model(clock: VirtualClock) -> None:
    """S6, S15."""
    second = model("b:b")
    agent = Agent(model("a:a", [say("Once"), drop()]), fallbacks=[second], clock=clock)
    with pytest.raises(FailedByModel):
        await agent.run("Hi.", on_event=lambda _: None, on_partial="fail")
    assert second.requests == 0


async def test_when_all_are_spent_the_run_fails(clock: VirtualClock) -> None:
    agent = Agent(
        model("a:a", *[fail("server")] * 2),
        fallbacks=[model("b:b", *[fail("network")] * 2)],
        retries=TWICE,
        clock=clock,
    )
    with pytest.raises(FailedByModel) as raised:
        await agent.run("Hi.")
    assert raised.value.fault.kind == "network"
    assert raised.value.result.model_calls == 4


async def test_a_crash_does_not_bring_the_first_model_back(clock: VirtualClock) -> None:
    """L1, S15: the counters are in the journal."""
    store = MemoryJournal()
    dying = Agent(
        model("a:a", fail("server"), fail("server")),
        fallbacks=[model("b:b")],
        retries=TWICE,
        journal=PowerCutJournal(store, at=7),
        clock=clock,
    )
    with pytest.raises(RunFailed):
        await dying.run("Hi.", session="s")
    first, second = model("a:a"), model("b:b", "Hello.")
    again = Agent(first, fallbacks=[second], retries=TWICE, journal=store, clock=clock)
    assert (await again.resume("s")).text == "Hello."
    assert any(isinstance(fact, RunResumed) for fact in await store.read("s"))


async def test_watchers_are_told_what_happens_while_it_happens(clock: VirtualClock) -> None:
    """S3, S4."""
    trace = Trace()
    scripted = model("a:a", fail("rate_limit", retry_after_s=7.0), [say("Hm"), stall()], "Hi.")
    agent = Agent(scripted, rules=LoopPolicy(on_partial="restart"), clock=clock)
    await agent.run("Hi.", on_event=trace)
    trace.check()
    waits = trace.of_type(AttemptRetrying)
    assert waits[0].wait_s == 7.0
    assert [event.attempt for event in waits] == [2, 3]
    assert [event.attempt for event in trace.of_type(StreamStalled)] == [2]
    assert trace.shown_text() == "Hi."


def test_each_fallback_needs_a_price_for_a_money_limit() -> None:
    """P6, B2."""
    priced = ScriptedModel([], info=ModelInfo("a:a", Price(Decimal(1), Decimal(1))))
    with pytest.raises(ConfigError, match="b:b is not known"):
        Agent(
            priced,
            fallbacks=[ScriptedModel([], info=ModelInfo("b:b"))],
            limits=Limits(usd=Decimal(1)),
        )
