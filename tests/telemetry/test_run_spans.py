"""The translation itself: events in, operations out, with nothing of OpenTelemetry in between."""

from windlass.core.events import (
    AttemptStarted,
    CallFinished,
    CallStarted,
    Event,
    NestedEvent,
    Reservation,
    RunEnded,
    RunResumed,
    RunStarted,
    StepProposed,
    TextDelta,
)
from windlass.core.messages import AssistantMessage, TextPart, ToolCall, ToolResult, ToolSpec
from windlass.core.setup import ModelInfo, Setup
from windlass.telemetry.conventions import HistogramMetric, OtelNames
from windlass.telemetry.operations import CloseSpan, MetricPoint, OpenSpan, SpanEvent, SpanOperation
from windlass.telemetry.run_spans import RunSpans

SETUP = Setup(model=ModelInfo("a:m"), tools=(ToolSpec("look", "", {}),))
ASKED = AttemptStarted(1, 1, "a:m", Reservation(1, 1), seq=2, at=11.0)
CALLED = StepProposed(AssistantMessage((ToolCall("c1_0", "look"),)), "calls", seq=3, at=13.0)


def new_run_spans(now: float = 0.0) -> RunSpans:
    return RunSpans(
        "clerk", "s", None, find_state=lambda _: None, now=lambda: now, with_content=False
    )


def read_events(one: RunSpans, *events: Event) -> list[SpanOperation]:
    return [op for event in events for op in one.operations_for(event)]


def run_started() -> RunStarted:
    return RunStarted(1, (TextPart("Go."),), SETUP, seq=1, at=10.0)


def test_times_are_those_of_the_facts() -> None:
    finished = CallFinished("c1_0", ToolResult.from_text("value", "x"), seq=5, at=19.0)
    done = RunEnded("completed", seq=6, at=20.0)
    events = (run_started(), ASKED, TextDelta("x"), CALLED, CallStarted("c1_0", "k", at=14.0))
    ops = read_events(new_run_spans(now=11.5), *events, finished, done)
    spans = [(op.key[1], op.at) for op in ops if isinstance(op, OpenSpan | CloseSpan)]
    assert spans == [
        ("run", 10.0),
        ("chat:2", 11.0),
        ("chat:2", 13.0),
        ("call:c1_0", 14.0),
        ("call:c1_0", 19.0),
        ("run", 20.0),
    ]
    measured = {op.metric.name: op.value for op in ops if isinstance(op, MetricPoint)}
    assert measured == {
        OtelNames.CHAT_DURATION.name: 2.0,
        OtelNames.TIME_TO_FIRST_CHUNK.name: 0.5,
        OtelNames.TOOL_DURATION.name: 5.0,
        OtelNames.AGENT_DURATION.name: 10.0,
    }


def test_a_clock_that_jumps_back_measures_nothing_below_zero() -> None:
    ops = read_events(new_run_spans(now=3.0), run_started(), ASKED, TextDelta("x"), CALLED)
    first = [op.value for op in ops if isinstance(op, MetricPoint)]
    assert first == [2.0, 0.0]


def test_what_has_no_beginning_here_is_left_out() -> None:
    """The end of a run that could not even open, and the pieces of a reply before a run."""
    assert read_events(new_run_spans(), TextDelta("x"), RunEnded("failed", at=1.0), ASKED) == []


def test_a_call_that_was_settled_without_running_is_an_event() -> None:
    """As after a crash, when it was found out what became of it."""
    one = new_run_spans()
    ops = read_events(
        one, RunResumed(at=5.0), CallFinished("c9", ToolResult.from_text("unknown", "?"), at=6.0)
    )
    run, settled = ops
    assert isinstance(run, OpenSpan)
    assert run.resumed == "s"
    assert settled == SpanEvent(
        ("s", "run"),
        OtelNames.CALL_SETTLED,
        6.0,
        {OtelNames.TOOL_CALL: "c9", OtelNames.RESULT_KIND: "unknown"},
    )


def test_what_works_for_a_call_hangs_below_it_and_ends_with_it() -> None:
    inner = RunStarted(1, (TextPart("Go."),), SETUP, seq=1, at=15.0)
    events = (run_started(), ASKED, CALLED, CallStarted("c1_0", "k", at=14.0))
    ops = read_events(new_run_spans(), *events, NestedEvent("c1_0", "hand", "s/c1_0", inner))
    below = ops[-1]
    assert isinstance(below, OpenSpan)
    assert (below.name, below.parent) == ("invoke_agent hand", ("s", "call:c1_0"))
    one = new_run_spans()
    read_events(one, *events, NestedEvent("c1_0", "hand", "s/c1_0", inner))
    closed = [
        op.key
        for op in read_events(one, RunEnded("cancelled", at=16.0))
        if isinstance(op, CloseSpan)
    ]
    assert closed == [("s/c1_0", "run"), ("s", "call:c1_0"), ("s", "run")]


def test_every_word_is_there_once() -> None:
    words = [value for name, value in vars(OtelNames).items() if name.isupper()]
    flat = [one for one in words if isinstance(one, str) and "." in one]
    assert len(flat) == len(set(flat))
    metrics = [one for one in words if isinstance(one, HistogramMetric)]
    assert set(metrics) == set(OtelNames.METRICS)
