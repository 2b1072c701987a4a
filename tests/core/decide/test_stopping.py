"""The reasons not to ask the model again."""

from typing import Any

import pytest

from facts import Story, failed_attempt, make_call
from windlass.core.decide.next_move import check_exhausted, check_time_limits, explain_no_room
from windlass.core.events import (
    BudgetAllotted,
    CallFinished,
    NoteGiven,
    Outcome,
    ReplyJudged,
    RunStarted,
)
from windlass.core.limits import Amount, Budget, Limits, SessionLimits
from windlass.core.messages import TextPart, ToolResult
from windlass.core.moves import EndRun, RequestReply
from windlass.core.setup import LoopPolicy
from windlass.core.verdicts import Deny, OutputMismatch


def out_of_order(story: Story, steps: int) -> Story:
    """So many steps in which the tools stand on nothing."""
    for _ in range(steps):
        at = f"c{story.state.steps}"
        story.take_calls(make_call(at, "look", f'{{"at":"{at}"}}')).allow_calls(at).start_calls(at)
        story.add(CallFinished(at, ToolResult.from_text("error", "gone", outage=True)))
    return story


def test_nothing_is_exhausted_at_the_start() -> None:
    story = Story().start_run()
    assert check_exhausted(story.state, story.setup, story.run) is None
    assert check_time_limits(story.state, story.setup, story.run) is None


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"limits": Limits(seconds=5.0)}, "the limit of 5 s is reached"),
        ({"session_limits": SessionLimits(seconds=5.0)}, "the session's limit of 5 s is reached"),
    ],
)
def test_time_is_up_for_a_run_and_for_a_session(limits: Any, reason: str) -> None:
    """B1, C5."""
    story = Story(**limits).start_run().start_attempt().add(failed_attempt(), after_s=3.9)
    story.expect_move(RequestReply)
    end = story.fail_attempt(failed_attempt(), after_s=0.5).expect_move(EndRun)
    assert (end.outcome, end.reason) == ("timed_out", reason)


def test_the_time_of_a_session_goes_on_in_the_next_run() -> None:
    """B1: over all its runs; time between them does not count."""
    story = Story(session_limits=SessionLimits(seconds=9.5), limits=Limits(seconds=9.0))
    story.start_run().do_step(make_call("a")).end_run("cancelled")
    story.add(RunStarted(2, (TextPart("More."),)), after_s=1e6)
    assert story.state.elapsed_s == 6.0
    story.expect_move(RequestReply)
    assert story.start_attempt().add(failed_attempt(), after_s=3.0).outcome == "timed_out"
    assert story.run.elapsed_s < 9.0


def test_tools_that_are_out_of_order_end_the_run_when_that_repeats() -> None:
    """T7: an infrastructure failure is visible first, and ends the run when it repeats."""
    story = out_of_order(Story().start_run(), 2)
    story.expect_move(RequestReply)
    end = out_of_order(story, 1).expect_move(EndRun)
    assert (end.outcome, end.fault and end.fault.kind) == ("failed", "tools")
    assert "3 steps in a row" in end.reason


def test_a_step_that_worked_starts_the_count_again() -> None:
    """T7."""
    story = out_of_order(Story().start_run(), 2).do_step(make_call("fine"))
    out_of_order(story, 2).expect_move(RequestReply)


def test_a_spent_model_ends_the_run_with_its_last_fault() -> None:
    end = (
        Story()
        .start_run()
        .fail_attempt(failed_attempt("auth", retryable=False))
        .expect_move(EndRun)
    )
    assert (end.outcome, end.fault and end.fault.kind) == ("failed", "auth")
    assert end.reason == "a fault: auth"


@pytest.mark.parametrize(
    ("rules", "outcome"), [(LoopPolicy(), "max_steps"), (LoopPolicy(on_limit="answer"), None)]
)
def test_a_cap_of_steps_stops_or_lands(rules: LoopPolicy, outcome: Outcome | None) -> None:
    """L7, L8."""
    story = Story(limits=Limits(steps=1), rules=rules).start_run().do_step(make_call("a"))
    end = check_exhausted(story.state, story.setup, story.run)
    assert (end and end.outcome) == outcome


def test_a_sessions_cap_of_steps_stops_whatever_a_run_may() -> None:
    """B1."""
    story = Story(
        session_limits=SessionLimits(steps=2), rules=LoopPolicy(on_limit="answer")
    ).start_run()
    story.do_step(make_call("a")).end_run().start_run().do_step(make_call("b", "look", '{"b":1}'))
    end = story.expect_move(EndRun)
    assert (end.outcome, end.reason) == ("max_steps", "the session's limit of 2 steps is reached")


def test_why_there_is_no_room_is_told() -> None:
    """B2."""
    story = Story(budgets=(Budget("team", tokens=10),)).start_run()
    assert (
        explain_no_room(story.run)
        == "the next request does not fit into what is left of the limits"
    )
    story.add(BudgetAllotted("team", Amount(tokens=1), dry=True))
    assert explain_no_room(story.run) == "the budget team has no room for the next request"


def test_silence_ends_the_run_the_second_time() -> None:
    """L10."""
    story = Story().start_run().take_reply()
    assert check_exhausted(story.state, story.setup, story.run) is None
    assert story.take_reply().outcome == "empty_reply"


def test_replies_that_are_denied_or_do_not_fit_end_the_run() -> None:
    """G3."""
    denied = Story(judge_replies=True).start_run()
    for _ in range(3):
        denied.take_reply("Rude.").add(ReplyJudged(Deny("rude")))
    assert denied.expect_move(EndRun).reason == "3 replies were denied"
    unfit = Story(judge_replies=True).start_run()
    for _ in range(3):
        unfit.take_reply("three").add(ReplyJudged(OutputMismatch("no number")))
    end = unfit.expect_move(EndRun)
    assert (end.outcome, end.fault and end.fault.kind) == ("failed", "output_misfit")


def test_a_run_that_goes_round_in_circles_after_its_note_ends() -> None:
    """L11."""
    story = Story().start_run()
    for at in range(3):
        story.do_step(make_call(f"a{at}"))
    story.add(NoteGiven("You go round in circles.", "same_call")).do_step(make_call("b"))
    assert check_exhausted(story.state, story.setup, story.run) is None
    end = story.do_step(make_call("c")).expect_move(EndRun)
    assert (end.outcome, end.reason) == ("stuck", "look gave the same result 5 times")
