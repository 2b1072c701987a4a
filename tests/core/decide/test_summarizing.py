"""The request for a summary."""

from typing import Any

import pytest

from facts import MODEL, Story, make_call
from windlass.core.decide.compacting import (
    PIECE_MAX,
    SUMMARY_HEADER,
    SUMMARY_SYSTEM,
    build_summary_prompt,
    format_summary,
)
from windlass.core.limits import Limits
from windlass.core.messages import TextPart, ThinkingPart, UserMessage
from windlass.core.moves import RequestReply, Summarize
from windlass.core.setup import Compaction, ModelInfo
from windlass.testing.prompts import check_prompt


def long_run(**settings: Any) -> Story:
    """A run whose view must be summed up now."""
    compaction = settings.pop("compaction", Compaction(window=1_000, strategies=("summary",)))
    story = Story(compaction=compaction, limits=Limits(steps=None), **settings).start_run(
        "Find it."
    )
    for at in range(10):
        story.do_step(make_call(f"c{at}", "look", f'{{"n":{at}}}'), text=f"page {at} " * 50)
    return story


def asked_in(story: Story) -> str:
    (message,) = story.expect_move(Summarize).prompt.messages
    assert isinstance(message, UserMessage)
    return message.text


def test_it_is_a_request_of_its_own_without_tools() -> None:
    """X2, X1: valid, and nothing in it can call anything."""
    story = long_run()
    move = story.expect_move(Summarize)
    check_prompt(move.prompt)
    assert (move.prompt.system, move.prompt.tools, move.prompt.tool_choice) == (
        SUMMARY_SYSTEM,
        (),
        "none",
    )
    assert move.prompt.model == MODEL
    assert move.step == story.state.steps + 1
    assert move.prompt.output_max == move.reserved.output


def test_it_tells_what_the_view_would_lose_and_nothing_else() -> None:
    """X2."""
    story = long_run()
    upto = story.expect_move(Summarize).upto
    text = asked_in(story)
    assert "User: Find it." in text
    assert 'Assistant: [calls look {"n":0}]' in text
    assert "Result of look (value): page 0 page 0" in text
    lost = sum(f"page {at} page" in text for at in range(10))
    assert lost == (upto - 1) // 2 < 10


def test_the_summary_before_it_is_summed_up_too() -> None:
    """X2: what a summary kept is kept by the next one."""
    story = long_run().take_summary("Goals: find the leak.")
    shown = story.shown_messages[0]
    assert shown == UserMessage((TextPart(f"{SUMMARY_HEADER}\nGoals: find the leak."),), note=True)
    for at in range(10, 20):
        story.do_step(make_call(f"c{at}", "look", f'{{"n":{at}}}'), text=f"page {at} " * 50)
    text = asked_in(story)
    assert "find the leak" in text
    assert "page 0" not in text


def test_a_note_is_told_as_a_note_and_thinking_is_left_out() -> None:
    story = (
        Story().start_run("Hello").take_reply(ThinkingPart("Secretly."), "Hi.").end_run("completed")
    )
    story.start_run("More.").take_reply(
        ThinkingPart("Hm."), TextPart("Look:"), make_call("a")
    ).allow_calls("a")
    story.start_calls("a").finish_calls("a").end_run("max_steps").start_run("Go on.")
    prompt = build_summary_prompt(story.state, 5, MODEL, 100, 10_000)
    (asked,) = prompt.messages
    assert isinstance(asked, UserMessage)
    assert "Secretly" not in asked.text
    assert "Assistant: Look: [calls look {}]" in asked.text


@pytest.mark.parametrize("chars", [200, 3_000])
def test_it_is_bounded_and_keeps_both_ends(chars: int) -> None:
    """X2: the request for a summary fits as well."""
    story = Story().start_run("Begin " * 2_000).do_step(make_call("a"), text="middle " * 2_000)
    story.do_step(make_call("b"), text="final " * 2_000).do_step(make_call("c"))
    (asked,) = build_summary_prompt(story.state, 5, MODEL, 100, chars).messages
    assert isinstance(asked, UserMessage)
    assert len(asked.text) < chars + 100
    assert "User: Begin" in asked.text
    assert "final" in asked.text
    assert "[…]" in asked.text


def test_one_long_result_leaves_room_for_the_others() -> None:
    story = (
        Story()
        .start_run("Go.")
        .do_step(make_call("a"), text="much " * 10_000)
        .do_step(make_call("b"), text="little")
    )
    (asked,) = build_summary_prompt(story.state, 5, MODEL, 100, 10**6).messages
    assert isinstance(asked, UserMessage)
    assert len(asked.text) < PIECE_MAX + 1_000
    assert "little" in asked.text


def test_another_model_may_sum_up_within_its_own_window() -> None:
    """X2: the request fits whoever sums up, and not whom it is summed up for."""
    small = ModelInfo("test:small", window=500, output_max=64)
    story = long_run(summariser=small)
    move = story.expect_move(Summarize)
    assert (move.prompt.model, move.prompt.output_max) == ("test:small", 64)
    assert len(asked_in(story)) <= 500 * 4 // 2 + 100


def test_a_summary_is_no_longer_than_it_may_be() -> None:
    rules = Compaction(window=1_000, strategies=("summary",), summary_tokens=77)
    assert long_run(compaction=rules).expect_move(Summarize).prompt.output_max == 77


def test_a_summary_goes_to_nobody_as_a_reply() -> None:
    """X2: it is not a step, and the run's model stays the same."""
    story = long_run(summariser=ModelInfo("test:small"))
    steps, model, calls = story.run.steps, story.run.model, story.run.model_calls
    story.take_summary()
    assert (story.run.steps, story.run.model) == (steps, model)
    assert story.run.model_calls == calls + 1
    assert story.expect_move(RequestReply).prompt.model == MODEL


def test_how_a_summary_is_shown() -> None:
    assert format_summary("\n Goals: none.\n") == f"{SUMMARY_HEADER}\nGoals: none."
