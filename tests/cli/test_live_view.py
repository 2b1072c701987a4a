"""A run as its own terminal shows it: whole pages at three widths, and the line at the bottom."""

import io
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import pytest

from windlass.cli.live_view import LiveView
from windlass.cli.screen import Screen
from windlass.cli.status import StatusLine, format_usd
from windlass.core.errors import Fault
from windlass.core.events import (
    AttemptFailed,
    AttemptRetrying,
    AttemptStarted,
    CallFinished,
    CallJudged,
    CallProgress,
    CallStarted,
    Event,
    Reservation,
    RunEnded,
    RunResumed,
    RunStarted,
    StepProposed,
    TextDelta,
    ThinkingDelta,
)
from windlass.core.messages import AssistantMessage, Charge, TextPart, ToolCall, ToolResult, Usage
from windlass.core.verdicts import Allow, Ask, Deny
from windlass.project.settings import ThinkingMode

PAGES = Path(__file__).parent / "pages"
READ = ToolCall("c1_0", "read", '{"path": "src/windlass/loop.py", "limit": 40}')
EDIT = ToolCall("c2_0", "edit", '{"path": "a.py", "edits": [{"old": "x = 1", "new": "x = 2"}]}')
BASH = ToolCall("c3_0", "bash", '{"command": "make check && git push origin main --force"}')
DIFF = "Edited 'a.py'.\n--- a.py\n+++ a.py\n@@ -1,2 +1,2 @@\n-x = 1\n+x = 2\n y = 3"
CHARGE = Charge("m", "main", Usage(1200, 34), Decimal("0.0042"))
RESERVED = Reservation(1, 1)
STORY: Sequence[Event] = [
    RunStarted(1, (TextPart("Mend it."),)),
    AttemptStarted(1, 1, "m", RESERVED),
    ThinkingDelta("I should look at the loop before I touch anything in this project."),
    TextDelta("I will look at the file first, and then change the one line that is wrong."),
    StepProposed(AssistantMessage((READ,)), "calls", CHARGE),
    CallJudged("c1_0", Allow()),
    CallStarted("c1_0", "k"),
    CallProgress("c1_0", "reading"),
    CallFinished(
        "c1_0", ToolResult.from_text("value", "\n".join(f"{n}\tline {n}" for n in range(1, 41)))
    ),
    AttemptStarted(2, 1, "m", RESERVED),
    AttemptFailed(Fault("server", "m: the server failed (503): busy", retryable=True)),
    AttemptRetrying(2, 2, 4.0, "busy"),
    AttemptStarted(2, 2, "m", RESERVED),
    StepProposed(AssistantMessage((EDIT,)), "calls", CHARGE),
    CallFinished("c2_0", ToolResult.from_text("value", DIFF)),
    AttemptStarted(3, 1, "m", RESERVED),
    StepProposed(AssistantMessage((BASH,)), "calls", CHARGE),
    CallJudged("c3_0", Ask("May bash be called?")),
    CallJudged("c3_0", Deny("pushing is not allowed here, ask the maintainer of the branch first")),
    CallFinished(
        "c3_0", ToolResult.from_text("timed_out", "It took longer than 60 s and was stopped.")
    ),
    AttemptStarted(4, 1, "m", RESERVED),
    TextDelta("Done: `x` is 2 now.\n\n- the checks were not run\n- nothing was pushed"),
    StepProposed(AssistantMessage(()), "end", CHARGE),
    RunEnded("completed"),
]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def shown(events: Sequence[Event], width: int = 80, thinking: ThinkingMode = "show") -> str:
    file, clock = io.StringIO(), Clock()
    screen = Screen(file, width=width)
    live = LiveView(screen, StatusLine(screen, clock), thinking=thinking, clock=clock)
    for event in events:
        live.show_event(event)
        clock.now += 1
    live.end_stream()
    return file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_page_of_a_run(width: int) -> None:
    """When it is meant to look otherwise, write what this shows into the page."""
    page, file = shown(STORY, width), PAGES / f"run-{width}.txt"
    assert page == file.read_text("utf-8")
    assert max(map(len, page.splitlines())) <= width


def test_thinking_is_shown_folded_or_hidden() -> None:
    thinking = [ThinkingDelta("Deep "), ThinkingDelta("thoughts."), TextDelta("So.")]
    assert shown(thinking, thinking="show") == "Deep thoughts.\n\nSo.\n"
    assert shown(thinking, thinking="fold") == "· thought for 2 s\n\nSo.\n"
    assert shown(thinking, thinking="hide") == "So.\n"


def test_a_run_that_is_resumed_says_only_what_changed() -> None:
    assert shown([RunResumed()]) == ""
    assert "model a became b" in shown([RunResumed(("model a became b",))])


def test_the_end_is_told_unless_it_was_told_already() -> None:
    broken = AttemptFailed(Fault("auth", "m: the key is refused"))
    assert shown([broken, RunEnded("failed", "m: the key is refused")]).count("refused") == 1
    assert "the limit of 3 steps" in shown([RunEnded("max_steps", "the limit of 3 steps")])


def test_a_call_of_a_run_that_somebody_else_showed_has_its_name() -> None:
    file = io.StringIO()
    screen = Screen(file, width=80)
    live = LiveView(screen, StatusLine(screen))
    live.learn_calls([StepProposed(AssistantMessage((READ,)), "calls")])
    live.show_event(CallFinished("c1_0", ToolResult.from_text("value", "text")))
    assert file.getvalue() == "← read: text\n"


def test_the_status_says_what_is_waited_for_and_what_it_took() -> None:
    clock = Clock()
    screen = Screen(io.StringIO(), width=80)
    status = StatusLine(screen, clock)
    seen = list[str]()
    for event in STORY:
        status.update(event)
        clock.now += 2
        seen.append(status.format_line().partition(" ")[2])
    assert seen[1] == "waiting for the model 2.0 s · step 1 · 4.0 s"
    assert seen[2].startswith("thinking 2.0 s · step 1")
    assert seen[6].startswith("running read 2.0 s · step 1 · 1,234 tokens · $0.0042")
    assert seen[11].startswith("retrying in 2 s (failed once) · step 2")
    assert seen[17].startswith("waiting for you")
    status.set_note("compiling\n")
    assert status.format_line().endswith("compiling")


def test_small_money_is_not_nothing() -> None:
    assert (format_usd(Decimal("0.00042")), format_usd(Decimal("12.345"))) == ("$0.0004", "$12.34")


@pytest.mark.contract("U2")
def test_the_status_counts_the_steps_of_the_run() -> None:
    """As the summary of the run does: a session may have had many before."""
    screen = Screen(io.StringIO(), width=80)
    status = StatusLine(screen, Clock())
    reply = StepProposed(AssistantMessage((TextPart("One."),)), "end")
    for number in (1, 2):
        status.update(RunStarted(number, (TextPart("Go."),)))
        status.update(AttemptStarted(number, 1, "m", RESERVED))
        assert "step 1 " in status.format_line()
        status.update(reply)
        status.update(RunEnded("completed"))
