"""The reasons not to ask the model again."""

from typing import Any

import pytest

from facts import Story, broken, call
from windlass.core.decide.stopping import exhausted, no_room, overtime
from windlass.core.events import (
    Allotted,
    CallFinished,
    NoteGiven,
    Outcome,
    ReplyJudged,
    RunStarted,
)
from windlass.core.limits import Amount, Budget, Limits, SessionLimits
from windlass.core.messages import Result, Text
from windlass.core.moves import Finish, Reason
from windlass.core.setup import Rules
from windlass.core.verdicts import Deny, Misfit


def out_of_order(story: Story, steps: int) -> Story:
    """So many steps in which the tools stand on nothing."""
    for _ in range(steps):
        at = f"c{story.state.steps}"
        story.called(call(at, "look", f'{{"at":"{at}"}}')).allowed(at).began(at)
        story.tell(CallFinished(at, Result.say("error", "gone", outage=True)))
    return story


def test_nothing_is_exhausted_at_the_start() -> None:
    story = Story().asked()
    assert exhausted(story.state, story.setup, story.run) is None
    assert overtime(story.state, story.setup, story.run) is None


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"limits": Limits(seconds=5.0)}, "the limit of 5 s is reached"),
        ({"session_limits": SessionLimits(seconds=5.0)}, "the session's limit of 5 s is reached"),
    ],
)
def test_time_is_up_for_a_run_and_for_a_session(limits: Any, reason: str) -> None:
    """B1, C5."""
    story = Story(**limits).asked().trying().tell(broken(), after_s=3.9)
    story.go(Reason)
    end = story.failing(broken(), after_s=0.5).go(Finish)
    assert (end.outcome, end.reason) == ("timed_out", reason)


def test_the_time_of_a_session_goes_on_in_the_next_run() -> None:
    """B1: over all its runs; time between them does not count."""
    story = Story(session_limits=SessionLimits(seconds=9.5), limits=Limits(seconds=9.0))
    story.asked().did(call("a")).ended("cancelled")
    story.tell(RunStarted(2, (Text("More."),)), after_s=1e6)
    assert story.state.elapsed_s == 6.0
    story.go(Reason)
    assert story.trying().tell(broken(), after_s=3.0).outcome == "timed_out"
    assert story.run.elapsed_s < 9.0


def test_tools_that_are_out_of_order_end_the_run_when_that_repeats() -> None:
    """T7: an infrastructure failure is visible first, and ends the run when it repeats."""
    story = out_of_order(Story().asked(), 2)
    story.go(Reason)
    end = out_of_order(story, 1).go(Finish)
    assert (end.outcome, end.fault and end.fault.kind) == ("failed", "tools")
    assert "3 steps in a row" in end.reason


def test_a_step_that_worked_starts_the_count_again() -> None:
    """T7."""
    story = out_of_order(Story().asked(), 2).did(call("fine"))
    out_of_order(story, 2).go(Reason)


def test_a_spent_model_ends_the_run_with_its_last_fault() -> None:
    end = Story().asked().failing(broken("auth", retryable=False)).go(Finish)
    assert (end.outcome, end.fault and end.fault.kind) == ("failed", "auth")
    assert end.reason == "a fault: auth"


@pytest.mark.parametrize(
    ("rules", "outcome"), [(Rules(), "max_steps"), (Rules(on_limit="answer"), None)]
)
def test_a_cap_of_steps_stops_or_lands(rules: Rules, outcome: Outcome | None) -> None:
    """L7, L8."""
    story = Story(limits=Limits(steps=1), rules=rules).asked().did(call("a"))
    end = exhausted(story.state, story.setup, story.run)
    assert (end and end.outcome) == outcome


def test_a_sessions_cap_of_steps_stops_whatever_a_run_may() -> None:
    """B1."""
    story = Story(session_limits=SessionLimits(steps=2), rules=Rules(on_limit="answer")).asked()
    story.did(call("a")).ended().asked().did(call("b", "look", '{"b":1}'))
    end = story.go(Finish)
    assert (end.outcome, end.reason) == ("max_steps", "the session's cap of 2 steps is reached")


def test_why_there_is_no_room_is_told() -> None:
    """B2."""
    story = Story(budgets=(Budget("team", tokens=10),)).asked()
    assert no_room(story.run) == "the next request does not fit into what is left"
    story.tell(Allotted("team", Amount(tokens=1), dry=True))
    assert no_room(story.run) == "the budget team has no room for the next request"


def test_silence_ends_the_run_the_second_time() -> None:
    """L10."""
    story = Story().asked().replied()
    assert exhausted(story.state, story.setup, story.run) is None
    assert story.replied().outcome == "empty_reply"


def test_replies_that_are_denied_or_do_not_fit_end_the_run() -> None:
    """G3."""
    denied = Story(judge_replies=True).asked()
    for _ in range(3):
        denied.replied("Rude.").tell(ReplyJudged(Deny("rude")))
    assert denied.go(Finish).reason == "3 replies were denied"
    unfit = Story(judge_replies=True).asked()
    for _ in range(3):
        unfit.replied("three").tell(ReplyJudged(Misfit("no number")))
    end = unfit.go(Finish)
    assert (end.outcome, end.fault and end.fault.kind) == ("failed", "output_misfit")


def test_a_run_that_goes_round_in_circles_after_its_note_ends() -> None:
    """L11."""
    story = Story().asked()
    for at in range(3):
        story.did(call(f"a{at}"))
    story.tell(NoteGiven("You go round in circles.", "same_call")).did(call("b"))
    assert exhausted(story.state, story.setup, story.run) is None
    end = story.did(call("c")).go(Finish)
    assert (end.outcome, end.reason) == ("stuck", "look gave the same result 5 times")
