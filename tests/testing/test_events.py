"""Traces: what was shown, and what no watch may look like."""

import pytest
from msgspec.structs import replace

from windlass.core.events import (
    AttemptDiscarded,
    AttemptStarted,
    CallFinished,
    CallJudged,
    CallStarted,
    Event,
    Reservation,
    RunEnded,
    RunResumed,
    RunStarted,
    RunSuspended,
    StepProposed,
    TextDelta,
    ThinkingDelta,
)
from windlass.core.messages import AssistantMessage, TextPart, ToolCall, ToolResult
from windlass.core.verdicts import Allow
from windlass.testing import Trace, check_trace

STARTED = RunStarted(run=1, prompt=(TextPart("Hello"),))
ASKED = AttemptStarted(step=1, attempt=1, model="m", reserved=Reservation(1, 1))
PROPOSED = StepProposed(reply=AssistantMessage((ToolCall("c", "look", "{}"),)), stop="calls")
JUDGED = CallJudged(call_id="c", verdict=Allow())
BEGUN = CallStarted(call_id="c", key="k")
DONE = CallFinished(call_id="c", result=ToolResult.from_text("value", "seen"))
ENDED = RunEnded(outcome="completed")
DELTAS = (TextDelta, ThinkingDelta, AttemptDiscarded, RunSuspended)


def placed(*events: Event) -> list[Event]:
    """The events at the places that the recorder would give them."""
    out: list[Event] = []
    seq = nth = 0
    for event in events:
        seq, nth = (seq, nth + 1) if isinstance(event, DELTAS) else (seq + 1, 0)
        out.append(replace(event, seq=seq, nth=nth))
    return out


RUN = placed(
    STARTED, ASKED, TextDelta("Hi"), PROPOSED, JUDGED, BEGUN, DONE, ASKED, TextDelta("!"), ENDED
)


def test_what_a_trace_tells() -> None:
    trace = Trace()
    for event in RUN:
        trace(event)
    trace.check()
    assert trace.texts() == ["Hi", "!"]
    assert trace.shown_text() == "Hi!"
    assert trace.kinds()[:3] == ["RunStarted", "AttemptStarted", "TextDelta"]
    assert [one.call_id for one in trace.of_type(CallStarted)] == ["c"]
    assert len(trace) == len(RUN)


def test_what_was_discarded_is_not_shown() -> None:
    gone = AttemptDiscarded(step=1, attempt=1, reason="lost")
    words = [TextDelta("kept "), ASKED, TextDelta("lo"), TextDelta("st"), gone]
    trace = Trace(placed(STARTED, ASKED, *words, ASKED, TextDelta("found"), ENDED))
    assert trace.texts() == ["kept ", "lo", "st", "found"]
    assert trace.shown_text() == "kept found"


@pytest.mark.parametrize(
    "events",
    [
        RUN,
        RUN[4:],
        placed(STARTED, PROPOSED, RunSuspended()),
        placed(RunResumed(), BEGUN, DONE, ENDED),
        placed(STARTED, ThinkingDelta("", "signature"), ENDED),
    ],
    ids=["a run", "a late watch", "a pause", "a resume", "a signature"],
)
def test_valid_traces(events: list[Event]) -> None:
    check_trace(events)


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([], "no terminal event"),
        (RUN[:-1], "no terminal event"),
        (placed(STARTED, ENDED, ENDED), "2 terminal events"),
        (placed(STARTED, ENDED, TextDelta("x")), "events after the end"),
        (placed(STARTED, RunSuspended(), ENDED), "2 terminal events"),
        ([*RUN[:3], *RUN[4:]], "a fact is missing"),
        ([*RUN[:3], RUN[2], *RUN[3:]], "TextDelta at 2.1 comes after TextDelta at 2.1"),
        ([*RUN[:1], RUN[2], RUN[1], *RUN[3:]], "a fact is missing"),
        ([replace(ENDED, seq=1, nth=1)], "has nth=1"),
        ([replace(TextDelta("x"), seq=1), replace(ENDED, seq=2)], "has nth=0"),
        (placed(STARTED, TextDelta(""), ENDED), "TextDelta at 1.1 is empty"),
        (placed(STARTED, ThinkingDelta(""), ENDED), "is empty"),
        (placed(STARTED, JUDGED, PROPOSED, ENDED), "not announced"),
        (placed(STARTED, BEGUN, PROPOSED, ENDED), "not announced"),
        (placed(STARTED, PROPOSED, BEGUN, JUDGED, ENDED), "not judged"),
        (placed(STARTED, PROPOSED, JUDGED, DONE, ENDED), "not started"),
        (placed(STARTED, PROPOSED, JUDGED, BEGUN, DONE, DONE, ENDED), "it had already finished"),
        (placed(RunResumed(), BEGUN, DONE, BEGUN, ENDED), "it had already finished"),
    ],
)
def test_invalid_traces(events: list[Event], told: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check_trace(events)
    assert told in str(caught.value)
