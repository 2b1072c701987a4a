"""A session of hundreds of steps in a small window: always valid, always bounded, never dear."""

import sys
from collections import Counter
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest

from facts import MODEL, Story, make_call, make_charge
from windlass.core.decide.compacting import SUMMARY_HEADER
from windlass.core.decide.next_move import decide
from windlass.core.decide.reserving import estimate_tokens
from windlass.core.events import (
    CallFinished,
    CallJudged,
    CallStarted,
    ContextCompacted,
    StepProposed,
)
from windlass.core.limits import Limits
from windlass.core.messages import AssistantMessage, TextPart, ToolResult, UserMessage
from windlass.core.moves import Compact, JudgeCalls, RequestReply, RunCalls, Summarize
from windlass.core.setup import Compaction, ModelInfo
from windlass.core.state import State
from windlass.core.verdicts import Allow
from windlass.testing.prompts import PromptChecker

WINDOW = 8_000
STEPS = 500
RESULT = "The quick brown fox jumps over the lazy dog. " * 26
SUMMARY = "Goals: see it all.\nDone: " + "much was seen. " * 60
STEP_TOKENS = (len(RESULT) + 200) / 3


class Session:
    """Drives `decide` and `apply` with canned replies, results and summaries."""

    def __init__(self, **rules: Any) -> None:
        model = ModelInfo(MODEL, window=WINDOW)
        limits = Limits(steps=None)
        self.story = Story(model=model, limits=limits, compaction=Compaction(**rules))
        self.story.start_run("See it all, and keep the code 4711 in mind.")
        self.estimates: list[float] = []
        self.did: Counter[str] = Counter()
        self.checker = PromptChecker()
        self.work = [0]
        """Function calls in the core, up to each step."""

    def go(self, steps: int) -> "Session":
        while self.story.state.steps < steps:
            before = self.story.state
            count = _Calls()
            with count:
                self._move()
            self.work[-1] += count.seen
            if self.story.state.steps > before.steps:
                self.work.append(self.work[-1])
        return self

    def _move(self) -> None:
        story = self.story
        match decide(story.state):
            case RequestReply() as move:
                self._reply(move, story.state)
            case JudgeCalls(calls):
                story.add(*(CallJudged(one.call.id, Allow()) for one in calls))
            case RunCalls(calls):
                story.add(*(CallStarted(one.call.id, one.key) for one in calls))
                for one in calls:
                    text = f"{RESULT}{one.call.id}"
                    story.add(CallFinished(one.call.id, ToolResult.from_text("value", text)))
            case Compact(upto, note, how):
                self.did[how] += 1
                story.add(ContextCompacted(upto, note, how))
            case Summarize():
                self.did["summary"] += 1
                story.take_summary(SUMMARY, make_charge(2_000, 300))
            case other:
                raise AssertionError(other)

    def _reply(self, move: RequestReply, state: State) -> None:
        self.checker.check(move.prompt)
        self.estimates.append(estimate_tokens(state, MODEL))
        messages = list(move.prompt.messages)
        assert any(isinstance(one, UserMessage) and "4711" in one.text for one in messages)
        number = state.steps
        asked = make_call(f"c{number}", "look", f'{{"page":{number}}}')
        # This model's tokens are three bytes and a half long.
        usage = make_charge(int((state.fixed + state.size) / 3.5), 40)
        reply = AssistantMessage((TextPart(f"I look at page {number}."), asked), MODEL)
        self.story.start_attempt(move.reserved).add(StepProposed(reply, "calls", usage))


class _Calls:
    """Counts the function calls that the core makes."""

    def __init__(self) -> None:
        self.seen = 0

    def __enter__(self) -> None:
        sys.setprofile(self._see)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _see(self, frame: FrameType, kind: str, _: object) -> None:
        if kind == "call" and "windlass/core" in frame.f_code.co_filename:
            self.seen += 1


@pytest.fixture(scope="module")
def long() -> Session:
    return Session().go(STEPS)


def test_every_request_is_valid_and_within_the_window(long: Session) -> None:
    """X1, X2: no estimate is above the trigger by more than a step."""
    assert len(long.estimates) == STEPS
    assert max(long.estimates) <= 0.8 * WINDOW + STEP_TOKENS


def test_what_is_done_is_done_seldom(long: Session) -> None:
    """X2: trigger and target, and not at every step."""
    assert 5 <= long.did["summary"] <= STEPS / 10
    assert long.did["mask"] <= STEPS / 4


def test_a_compaction_reaches_the_target(long: Session) -> None:
    drops = [after for before, after in pairwise(long.estimates) if after < 0.8 * before]
    assert drops
    assert max(drops) <= 0.5 * WINDOW + 2 * STEP_TOKENS


def test_the_transcript_keeps_all_of_it_and_the_view_little(long: Session) -> None:
    """X1."""
    state = long.story.state
    assert len(state.transcript) == 1 + 2 * (STEPS - 1)
    assert len(state.shown) < 150
    assert state.summary.startswith(SUMMARY_HEADER)


def test_the_cost_of_a_step_does_not_grow(long: Session) -> None:
    """X2, J6: linear; the second half costs what the first did."""
    half = long.work[STEPS // 2]
    assert long.work[STEPS] - half < 1.25 * half
