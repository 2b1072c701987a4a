"""What may be left out of a view, and what never is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from facts import SESSION, Story, broken, call
from windlass.core.compact import note, plan
from windlass.core.decide import Reason, Shrink
from windlass.core.errors import IllegalFact
from windlass.core.events import Compacted
from windlass.core.fold import fold
from windlass.core.messages import Assistant, Results, Text, User
from windlass.testing.prompts import check_prompt


def long_story(steps: int = 6, words: str = "word " * 50) -> Story:
    story = Story().asked("First.").replied(words).ended("completed").asked("Second.")
    for at in range(steps):
        story.did(call(f"c{at}", "look", "{}"), text=f"{words}{at}")
    return story


def overflowing(story: Story) -> Story:
    return story.failing(broken("context_overflow", retryable=False))


def test_an_overflow_shrinks_the_view_once_and_asks_again() -> None:
    """S13: compact once by force, ask again once, then failed."""
    story = overflowing(long_story())
    shrink = story.go(Shrink)
    before = story.state.size
    story.tell(Compacted(shrink.upto, shrink.note))
    assert story.state.size < before
    assert story.go(Reason).prompt.messages is story.state.shown
    assert overflowing(story).outcome == "failed"


def test_the_next_step_may_shrink_again() -> None:
    story = overflowing(long_story())
    move = story.go(Shrink)
    story.tell(Compacted(move.upto, move.note)).did(call("z", "look"), text="x" * 2_000)
    overflowing(story).go(Shrink)


def test_the_transcript_is_never_changed() -> None:
    """X1, X2."""
    story = overflowing(long_story())
    before = list(story.state.transcript)
    move = story.go(Shrink)
    story.tell(Compacted(move.upto, move.note))
    assert list(story.state.transcript) == before
    assert fold(SESSION, story.facts) == story.state


def test_the_running_prompt_stays_and_what_is_gone_is_told() -> None:
    """X2."""
    story = overflowing(long_story())
    move = story.go(Shrink)
    shown = list(story.tell(Compacted(move.upto, move.note)).state.shown)
    assert shown[0] == User((Text(note(move.upto)),), note=True)
    assert shown[1] == User((Text("Second."),))
    assert shown[-1] == story.state.transcript[-1]


def test_with_one_group_there_is_nothing_to_leave_out() -> None:
    story = overflowing(Story().asked("Only this. " * 500))
    assert story.outcome == "failed"


def test_another_error_does_not_shrink_anything() -> None:
    story = long_story().failing(broken("bad_request", retryable=False))
    assert story.outcome == "failed"


@given(st.integers(1, 12), st.integers(1, 400))
def test_a_view_that_shrank_is_a_valid_request(steps: int, length: int) -> None:
    """X1: whole groups only, however often."""
    story = long_story(steps, "w" * length)
    for _ in range(3):
        upto = plan(story.state, story.run)
        if upto is None:
            break
        story.tell(Compacted(upto, note(upto)))
        check_prompt(story.go(Reason).prompt)
        story.did(call(f"n{len(story.facts)}", "look"), text="more")


@pytest.mark.parametrize("upto", [0, 3, 4, 99])
def test_a_view_cannot_begin_in_the_middle_of_a_group(upto: int) -> None:
    """J1: an illegal fact is not written."""
    story = long_story(1)
    kinds = [type(message) for message in story.state.transcript]
    assert kinds == [User, Assistant, User, Assistant, Results]
    if upto == 3:
        story.tell(Compacted(upto, "[…]"))
        return
    with pytest.raises(IllegalFact):
        story.tell(Compacted(upto, "[…]"))


def test_a_view_cannot_shrink_while_a_reply_is_open() -> None:
    long_story().trying().refuses(Compacted(3, "[…]"))
