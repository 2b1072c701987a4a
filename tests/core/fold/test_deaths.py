"""What counts as a driver that died without getting anywhere."""

import pytest

from tests.support.facts import Story, make_call
from windlass.core.events import (
    CallJudged,
    Fact,
    RunContinued,
    RunPaused,
    RunReleased,
    RunResumed,
    SessionProgress,
)
from windlass.core.verdicts import Ask

pytestmark = pytest.mark.contract("D8", "D15")


def fruitless(story: Story) -> int:
    """How many drivers are counted at the next take-over."""
    return len(story.resume().run.fruitless)


def died(story: Story, *between: Fact, times: int = 1) -> Story:
    for _ in range(times):
        story.resume().add(*between)
    return story


def test_drivers_that_die_one_after_another_are_counted() -> None:
    """D8: also the first one, which opened the run."""
    assert fruitless(died(Story().start_run(), times=3)) == 4


def test_a_reply_and_a_result_are_progress() -> None:
    story = died(Story().start_run(), times=3).take_calls(make_call("a"), make_call("b", "send"))
    assert fruitless(story) == 0
    assert fruitless(died(story.allow_calls("a", "b"), times=2)) == 3
    assert fruitless(story.start_calls("a").finish_calls("a")) == 0


def test_a_release_is_not_a_death() -> None:
    story = died(Story().start_run(), RunReleased("deployed"), times=4)
    assert fruitless(story) == 1


def test_a_run_that_waits_for_a_person_was_not_left_by_a_death() -> None:
    """D8: each answer to one of many questions brings a driver, and none of them died."""
    story = Story().start_run().take_calls(make_call("a"), make_call("b"))
    story.add(CallJudged("a", Ask("?")), CallJudged("b", Ask("?")))
    assert fruitless(died(story, times=6)) == 0


def test_what_works_for_the_run_counts_as_its_progress() -> None:
    """D15: a sub-agent that gets further; nothing new below it is no progress."""
    story = Story().start_run()
    for seq in (2, 5, 9):
        story.add(RunResumed(below=(SessionProgress("session/a", seq),)))
    assert story.run.fruitless == ()
    story.add(RunResumed(below=(SessionProgress("session/a", 9),)))
    assert len(story.run.fruitless) == 1


def test_a_person_who_continues_a_run_has_it_tried_again() -> None:
    story = died(Story().start_run(), times=5).add(RunPaused("parked"), RunContinued())
    assert fruitless(story) == 1
