"""The translation itself: events in, operations out, with nothing of OpenTelemetry in between."""

from windlass.core.events import (
    AttemptStarted,
    CallFinished,
    CallStarted,
    Event,
    Nested,
    Reservation,
    RunEnded,
    RunResumed,
    RunStarted,
    StepProposed,
    TextDelta,
)
from windlass.core.messages import Assistant, Result, Text, ToolCall, ToolSpec
from windlass.core.setup import ModelInfo, Setup
from windlass.telemetry.conventions import Metric, Words
from windlass.telemetry.operations import Close, Mark, Measure, Op, Open
from windlass.telemetry.run_spans import Scope

SETUP = Setup(model=ModelInfo("a:m"), tools=(ToolSpec("look", "", {}),))
ASKED = AttemptStarted(1, 1, "a:m", Reservation(1, 1), seq=2, at=11.0)
CALLED = StepProposed(Assistant((ToolCall("c1_0", "look"),)), "calls", seq=3, at=13.0)


def scope(now: float = 0.0) -> Scope:
    return Scope("clerk", "s", None, known=lambda _: None, now=lambda: now, say=False)


def read(one: Scope, *events: Event) -> list[Op]:
    return [op for event in events for op in one.read(event)]


def opened() -> RunStarted:
    return RunStarted(1, (Text("Go."),), SETUP, seq=1, at=10.0)


def test_times_are_those_of_the_facts() -> None:
    finished = CallFinished("c1_0", Result.say("value", "x"), seq=5, at=19.0)
    done = RunEnded("completed", seq=6, at=20.0)
    events = (opened(), ASKED, TextDelta("x"), CALLED, CallStarted("c1_0", "k", at=14.0))
    ops = read(scope(now=11.5), *events, finished, done)
    spans = [(op.key[1], op.at) for op in ops if isinstance(op, Open | Close)]
    assert spans == [
        ("run", 10.0),
        ("chat:2", 11.0),
        ("chat:2", 13.0),
        ("call:c1_0", 14.0),
        ("call:c1_0", 19.0),
        ("run", 20.0),
    ]
    measured = {op.metric.name: op.value for op in ops if isinstance(op, Measure)}
    assert measured == {
        Words.CHAT_DURATION.name: 2.0,
        Words.TIME_TO_FIRST_CHUNK.name: 0.5,
        Words.TOOL_DURATION.name: 5.0,
        Words.AGENT_DURATION.name: 10.0,
    }


def test_a_clock_that_jumps_back_measures_nothing_below_zero() -> None:
    ops = read(scope(now=3.0), opened(), ASKED, TextDelta("x"), CALLED)
    first = [op.value for op in ops if isinstance(op, Measure)]
    assert first == [2.0, 0.0]


def test_what_has_no_beginning_here_is_left_out() -> None:
    """The end of a run that could not even open, and the pieces of a reply before a run."""
    assert read(scope(), TextDelta("x"), RunEnded("failed", at=1.0), ASKED) == []


def test_a_call_that_was_settled_without_running_is_an_event() -> None:
    """As after a crash, when it was found out what became of it."""
    one = scope()
    ops = read(one, RunResumed(at=5.0), CallFinished("c9", Result.say("unknown", "?"), at=6.0))
    run, settled = ops
    assert isinstance(run, Open)
    assert run.resumed == "s"
    assert settled == Mark(
        ("s", "run"), Words.CALL_SETTLED, 6.0, {Words.TOOL_CALL: "c9", Words.RESULT_KIND: "unknown"}
    )


def test_what_works_for_a_call_hangs_below_it_and_ends_with_it() -> None:
    inner = RunStarted(1, (Text("Go."),), SETUP, seq=1, at=15.0)
    events = (opened(), ASKED, CALLED, CallStarted("c1_0", "k", at=14.0))
    ops = read(scope(), *events, Nested("c1_0", "hand", "s/c1_0", inner))
    below = ops[-1]
    assert isinstance(below, Open)
    assert (below.name, below.parent) == ("invoke_agent hand", ("s", "call:c1_0"))
    one = scope()
    read(one, *events, Nested("c1_0", "hand", "s/c1_0", inner))
    closed = [op.key for op in read(one, RunEnded("cancelled", at=16.0)) if isinstance(op, Close)]
    assert closed == [("s/c1_0", "run"), ("s", "call:c1_0"), ("s", "run")]


def test_every_word_is_there_once() -> None:
    words = [value for name, value in vars(Words).items() if name.isupper()]
    flat = [one for one in words if isinstance(one, str) and "." in one]
    assert len(flat) == len(set(flat))
    metrics = [one for one in words if isinstance(one, Metric)]
    assert set(metrics) == set(Words.METRICS)
