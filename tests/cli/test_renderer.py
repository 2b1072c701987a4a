"""Events in, lines out: a canned run, and each event that a run can have."""

import io
from collections.abc import Callable, Sequence
from typing import get_args

import pytest

from windlass.cli.renderer import EventRenderer
from windlass.cli.screen import Screen
from windlass.core.errors import Fault
from windlass.core.events import (
    AttemptDiscarded,
    AttemptFailed,
    AttemptStarted,
    CallAnswered,
    CallDelta,
    CallFinished,
    CallJudged,
    CallLate,
    CallProgress,
    CallStarted,
    Event,
    Fact,
    NoteGiven,
    ReplyEnd,
    ReplyJudged,
    Reservation,
    RunEnded,
    RunPaused,
    RunReleased,
    RunResumed,
    RunStarted,
    RunSuspended,
    StepProposed,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.messages import (
    AssistantMessage,
    FilePart,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    Usage,
)
from windlass.core.verdicts import Allow, Ask, Deny, InvalidCall, Modify, OutputMismatch
from windlass.testing.samples import number_facts

STALLED = Fault("stalled", "the model fell silent", retryable=True)
RESERVED = Reservation(100, 100)


def asked(step: int, attempt: int = 1) -> AttemptStarted:
    return AttemptStarted(step, attempt, "scripted:model", RESERVED)


def proposed(*calls: ToolCall) -> StepProposed:
    return StepProposed(AssistantMessage(calls), "calls" if calls else "end")


def shown(*events: Event, width: int = 60, silence_s: float = 0.0) -> list[str]:
    """The lines of a page, on a clock that moves on only while a model is silent."""
    page, now = io.StringIO(), [0.0]
    screen = Screen(page, width=width)
    renderer = EventRenderer(screen, clock=lambda: now[0])
    for event in events:
        now[0] += silence_s if isinstance(event, AttemptFailed) else 0.0
        renderer.show_event(event)
    screen.end_line()
    return page.getvalue().splitlines()


LOOK = ToolCall("c1_0", "look", '{"path": "a.txt", "lines": [1, 2]}')
SEND = ToolCall("c2_0", "send", '{"to": "ann"}')
DROP = ToolCall("c2_1", "drop", "{}")


def test_a_run_reads_from_top_to_bottom() -> None:
    lines = shown(
        RunStarted(1, (TextPart("Send ann the numbers."),)),
        asked(1),
        TextDelta("Let me lo"),
        TextDelta("ok."),
        CallDelta(0, "x", "look"),
        UsageDelta(Usage(10, 5)),
        ReplyEnd("calls"),
        proposed(LOOK),
        CallJudged("c1_0", Allow()),
        CallStarted("c1_0", "s/c1_0"),
        CallFinished("c1_0", ToolResult.from_text("value", "one\n\ntwo\nthree\n")),
        asked(2),
        TextDelta("Num"),
        AttemptFailed(STALLED, visible=True, partial="Num"),
        AttemptDiscarded(2, 1, "the stream broke"),
        asked(2, 2),
        TextDelta("Numbers found."),
        proposed(SEND, DROP),
        CallJudged("c2_0", Allow()),
        CallJudged("c2_1", Deny("nothing is dropped")),
        CallStarted("c2_0", "s/c2_0"),
        CallProgress("c2_0", "half way"),
        RunResumed(),
        CallFinished("c2_0", ToolResult.from_text("timed_out", "Timed out after 60 s.")),
        asked(3),
        TextDelta("Sent."),
        proposed(),
        RunEnded("completed"),
        silence_s=1.04,
    )
    assert lines == [
        "› Send ann the numbers.",  # noqa: RUF001
        "",
        "Let me look.",
        '→ look(path="a.txt", lines=[1,2])',
        "← one (+2 lines)",
        "",
        "Num…",
        "! no output for 1 s, retrying",
        "Numbers found.",
        '→ send(to="ann")',
        "→ drop()",
        "✗ denied: nothing is dropped",
        "· send: half way",
        "· resumed where the journal ends",
        "← send: timed out: Timed out after 60 s.",
        "",
        "Sent.",
    ]


@pytest.mark.parametrize(
    ("events", "line"),
    [
        ([AttemptFailed(Fault("server", "503: busy"))], "! 503: busy"),
        ([AttemptFailed(Fault("server", "503: busy")), asked(1, 2)], "! 503: busy, retrying"),
        ([RunEnded("max_steps", "25 steps")], "✗ max steps: 25 steps"),
        ([RunSuspended()], "! waiting for your answer"),
        (
            [RunResumed(("tool x is new",))],
            "· resumed where the journal ends (changed since: tool x is…",
        ),
        (
            [NoteGiven("You repeat yourself.", "same_call")],
            '· The model was told: "You repeat yourself."',
        ),
        ([ReplyJudged(Deny("no secrets"))], "✗ reply denied: no secrets"),
        ([ReplyJudged(OutputMismatch("Not JSON."))], "! Not JSON."),
        ([CallJudged("c9", Ask("May I?"))], "! c9: needs your answer: May I?"),
        ([CallAnswered("c9", Modify({"n": 1}, "less"), "d")], "! c9: changed to (n=1): less"),
        ([CallJudged("c9", InvalidCall("unknown_tool", "None."))], "✗ c9: not a valid call: None."),
        ([CallLate("c9", ToolResult.from_text("value", "ok"))], "← c9: (too late) ok"),
        ([CallFinished("c9", ToolResult("value", ()))], "← c9: (no output)"),
        (
            [CallFinished("c9", ToolResult("value", (FilePart("a/b", "x", b""),)))],
            "← c9: (+1 attachments)",
        ),
        ([proposed(ToolCall("c9", "look", '{"pa'))], '→ look({"pa)'),
        ([ThinkingDelta("Hm."), TextDelta("\nYes.")], "Hm."),
    ],
)
def test_each_event_has_its_line(events: Sequence[Event], line: str) -> None:
    assert shown(*events)[0] == line


@pytest.mark.parametrize(
    "event", [Allow, CallStarted, CallDelta, UsageDelta, ReplyEnd], ids=lambda kind: kind.__name__
)
def test_what_a_reader_need_not_know_has_none(event: Callable[..., object]) -> None:
    quiet: dict[object, Event] = {
        Allow: CallJudged("c9", Allow()),
        CallStarted: CallStarted("c9", "k"),
        CallDelta: CallDelta(0, "x", "look"),
        UsageDelta: UsageDelta(Usage()),
        ReplyEnd: ReplyEnd(),
    }
    assert set(quiet) - {Allow} <= set(get_args(Event))
    assert shown(quiet[event]) == []


def test_a_run_that_is_paused_waits_for_no_answer() -> None:
    """D5: whoever watches is told that it is paused, not that it asks for something."""
    events = number_facts(
        [RunStarted(1, (TextPart("Go."),)), RunPaused(by="ann"), RunReleased("paused")]
    )
    lines = shown(*events, RunSuspended())
    assert "· ann paused the run" in lines
    assert not any("waiting for your answer" in line for line in lines)


def test_a_long_call_is_cut_to_one_line() -> None:
    [line] = shown(proposed(ToolCall("c", "write", '{"text": "' + "word " * 40 + '"}')), width=40)
    assert len(line) <= 40
    assert line.endswith("…")


def test_nothing_that_a_model_says_steers_the_terminal() -> None:
    evil = "a\x1b[2Jb\x07\u202ec"
    assert shown(TextDelta(evil)) == ["ab??c"]
    [line] = shown(CallFinished("c9", ToolResult.from_text("value", evil)))
    assert line == "← c9: ab??c"


@pytest.mark.contract("D12")
def test_a_run_that_is_read_from_its_record_looks_as_it_did_live() -> None:
    """Text that nobody saw stream is shown with the fact that holds it, and never twice."""
    look = AssistantMessage((ThinkingPart("Hm. "), TextPart("Let me look."), LOOK))
    lost = AttemptFailed(Fault("server", "503: busy"), visible=True, partial="All i")
    done = StepProposed(AssistantMessage((TextPart("All is well."),)), "end")
    live: list[Event] = [
        RunStarted(1, (TextPart("Go."),)),
        asked(1),
        ThinkingDelta("Hm. "),
        TextDelta("Let me "),
        TextDelta("look."),
        StepProposed(look, "calls"),
        CallJudged("c1_0", Allow()),
        CallStarted("c1_0", "k"),
        CallFinished("c1_0", ToolResult.from_text("value", "page")),
        asked(2),
        TextDelta("All i"),
        lost,
        AttemptDiscarded(2, 1, "503: busy"),
        asked(2, 2),
        TextDelta("All is well."),
        done,
        asked(3),
        TextDelta("And"),
        RunEnded("cancelled", "enough", partial="And"),
    ]
    record = [event for event in live if isinstance(event, Fact)]
    assert shown(*record) == shown(*live)
    assert shown(*live)[-2:] == ["And", "✗ cancelled: enough"]


def test_a_reply_whose_end_did_not_stream_is_completed() -> None:
    done = StepProposed(AssistantMessage((TextPart("All is well."),)), "end")
    assert shown(asked(1), TextDelta("All is"), done) == ["All is well."]
