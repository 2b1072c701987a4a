"""A pause that has taken effect holds until it ends, whichever driver takes the run over."""

import pytest

from facts import Story, make_call
from windlass.core.control_facts import PauseCause
from windlass.core.events import LimitsRaised, RunContinued, RunPaused, RunReleased, RunResumed
from windlass.core.limits import RaisedLimits
from windlass.core.moves import RunCalls, StayPaused

pytestmark = pytest.mark.contract("D5")
RAISED = LimitsRaised(RaisedLimits(seconds=60.0))


def paused(cause: PauseCause = "asked") -> Story:
    """Return a run that was paused in the middle of a step."""
    story = Story().start_run().take_calls(make_call("a", "send")).allow_calls("a")
    return story.add(RunPaused("lunch", cause=cause))


def test_the_calls_of_the_open_step_run_before_the_pause_takes_effect() -> None:
    story = paused()
    story.expect_move(RunCalls)
    story.add(RunResumed()).expect_move(RunCalls)


def test_no_call_begins_in_a_run_that_was_released_while_paused() -> None:
    story = paused().add(RunReleased("paused"), RunResumed())
    story.expect_move(StayPaused)
    story.add(RunReleased("paused"), RunResumed()).expect_move(StayPaused)
    story.add(RunContinued()).expect_move(RunCalls)


def test_raised_limits_leave_a_pause_alone_that_a_person_asked_for() -> None:
    paused().add(RunReleased("paused"), RunResumed(), RAISED).expect_move(StayPaused)
    paused("budget").add(RunReleased("paused"), RunResumed(), RAISED).expect_move(RunCalls)


def test_a_release_of_a_run_that_is_not_paused_holds_nothing() -> None:
    story = Story().start_run().take_calls(make_call("a", "send")).allow_calls("a")
    story.add(RunReleased("a deployment"), RunResumed(), RunPaused("lunch")).expect_move(RunCalls)
