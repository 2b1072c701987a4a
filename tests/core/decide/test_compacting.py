"""What may be made shorter in a view, when, in which order, and what never is."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from facts import MODEL, SESSION, Story, failed_attempt, make_call, make_charge, make_setup
from windlass.core.decide.compacting import left_out_note, plan_compaction
from windlass.core.decide.next_move import decide
from windlass.core.decide.reserving import estimate_tokens
from windlass.core.events import SteeringTaken
from windlass.core.fold.run import fold
from windlass.core.limits import Amount, Budget, Limits
from windlass.core.messages import TextPart, ToolResults, UserMessage
from windlass.core.moves import Compact, DrawBudget, EndRun, RequestReply, Summarize
from windlass.core.setup import Compaction, CompactionMethod, ModelInfo
from windlass.testing.prompts import check_prompt

WORDS = "word " * 80
SMALL = 1_000
"""Tokens: ten steps of these words do not fit."""
ORDER: tuple[CompactionMethod, ...] = ("mask", "summary", "window")


def long_story(steps: int = 6, words: str = WORDS, **settings: Any) -> Story:
    """A run that came before, and one with so many steps of so many words."""
    limits = settings.pop("limits", Limits(steps=None))
    story = (
        Story(limits=limits, **settings).start_run("First.").take_reply(words).end_run("completed")
    )
    return stepped(story.start_run("Second."), steps, words)


def stepped(story: Story, steps: int, words: str = WORDS) -> Story:
    for _ in range(steps):
        at = story.state.steps
        story.do_step(make_call(f"c{at}", "look", "{}"), text=f"{words}{at}")
    return story


def within(window: int | None, *strategies: CompactionMethod, **rules: Any) -> Compaction:
    return Compaction(window=window, strategies=strategies, **rules)


def overflowing(story: Story) -> Story:
    return story.fail_attempt(failed_attempt("context_overflow", retryable=False))


def grown(*strategies: CompactionMethod, **settings: Any) -> Story:
    """A run whose view has just passed the trigger."""
    rules = settings.pop("rules_of_compaction", {})
    story = long_story(0, compaction=within(SMALL, *strategies, **rules), **settings)
    while tokens(story) <= 0.8 * SMALL:
        stepped(story, 1)
    return story


def tokens(story: Story) -> float:
    return estimate_tokens(story.state, MODEL)


# ── when ─────────────────────────────────────────────────────────────────────


def test_nothing_is_done_before_the_trigger_and_then_enough_to_reach_the_target() -> None:
    """X2: trigger and target ratios, so that it is not done at every step."""
    story = long_story(0, compaction=within(SMALL, "window"))
    shrinks = 0
    for _ in range(40):
        if tokens(story) <= 0.8 * SMALL:
            story.expect_move(RequestReply)
        else:
            story.compact()
            shrinks += 1
            assert tokens(story) <= 0.5 * SMALL
            story.expect_move(RequestReply)
        stepped(story, 1)
    assert 3 <= shrinks <= 40 // 2


@pytest.mark.parametrize(
    ("window", "own", "shrinks"),
    [(None, None, False), (None, SMALL, True), (SMALL, None, True), (10**6, SMALL, False)],
    ids=["nobody knows", "the model's", "as set", "as set, although the model's is smaller"],
)
def test_the_window_is_the_one_that_is_set_or_the_models(
    window: int | None, own: int | None, *, shrinks: bool
) -> None:
    """X2."""
    model = ModelInfo(MODEL, window=own)
    story = long_story(20, model=model, compaction=within(window, "window"))
    story.expect_move(Compact if shrinks else RequestReply)


def test_a_model_that_reports_short_tokens_is_compacted_sooner() -> None:
    """X6: estimates start at 4 and are calibrated per model by reported usage."""
    calm = long_story(3, compaction=within(SMALL, "window"))
    calm.expect_move(RequestReply)
    size = calm.state.fixed + calm.state.size
    calm.take_reply(make_call("z"), charge=make_charge(size // 2, 5)).allow_calls("z").start_calls(
        "z"
    ).finish_calls("z")
    assert tokens(calm) > size / 2
    calm.expect_move(Compact)


def test_a_failed_request_is_not_a_reason_to_shrink() -> None:
    """S13: only the provider's word that it is too long is."""
    story = grown("window")
    story.fail_attempt(failed_attempt("server")).expect_move(RequestReply)
    ended = long_story().fail_attempt(failed_attempt("bad_request", retryable=False))
    assert ended.outcome == "failed"


def test_a_run_that_ends_anyway_pays_for_no_summary() -> None:
    """B2: nobody would read it."""
    story = stepped(
        Story(limits=Limits(steps=9), compaction=within(SMALL, "summary")).start_run(), 9
    )
    assert tokens(story) > 0.8 * SMALL
    assert story.outcome == "max_steps"


# ── in which way ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ORDER)
def test_each_strategy_works_alone(how: CompactionMethod) -> None:
    """X2, X3."""
    story = grown(how)
    before = tokens(story)
    _ = story.take_summary() if how == "summary" else story.compact()
    assert story.run.compacted == (how,)
    assert tokens(story) < 0.75 * before
    check_prompt(story.expect_move(RequestReply).prompt)


@pytest.mark.parametrize(
    ("strategies", "first"),
    [(ORDER, "mask"), (("window", "mask"), "window"), (("summary", "mask"), "summary")],
)
def test_the_strategies_are_tried_in_the_order_that_is_set(
    strategies: Sequence[CompactionMethod], first: CompactionMethod
) -> None:
    story = grown(*strategies)
    ways = [
        one.how for one in plan_compaction(story.state, story.setup, story.run, story.setup.model)
    ]
    assert ways == list(strategies)
    move = story.expect_move(Summarize if first == "summary" else Compact)
    assert isinstance(move, Summarize) or move.how == first


def test_the_next_strategy_follows_only_if_the_target_is_not_reached() -> None:
    """X2: tried until the view is small enough, each of them once."""
    enough = grown(*ORDER, rules_of_compaction={"target": 0.7}).compact()
    assert tokens(enough) <= 0.7 * SMALL
    enough.expect_move(RequestReply)
    # Text of the model cannot be masked, so that masking alone is not enough here.
    story = long_story(3, compaction=within(SMALL, *ORDER))
    while tokens(story) <= 0.8 * SMALL:
        at = story.state.steps
        story.take_reply("text " * 30, make_call(f"c{at}")).allow_calls(f"c{at}").start_calls(
            f"c{at}"
        )
        story.finish_calls(f"c{at}", text="word " * 50 + str(at))
    assert story.expect_move(Compact).how == "mask"
    assert tokens(story.compact()) > 0.5 * SMALL
    story.take_summary().expect_move(RequestReply)


def test_masking_keeps_the_newest_results_and_tells_of_the_others() -> None:
    """X3, X2: a call keeps its result, the newest whole."""
    story = grown("mask")
    story.compact()
    whole = [one for one in story.state.transcript if isinstance(one, ToolResults)]
    shown = [one for one in story.state.shown if isinstance(one, ToolResults)]
    assert len(shown) == len(whole)
    masked = [new != old for new, old in zip(shown, whole, strict=True)]
    assert masked == sorted(masked, reverse=True)
    assert 0 < sum(masked) < len(masked) - 1
    old = shown[0].items[0]
    assert f"{len(whole[0].items[0].result.text)} characters" in old.result.text
    assert old.call == whole[0].items[0].call


def test_masking_that_frees_little_is_not_done() -> None:
    """X2: less than a tenth is not worth the prompt cache that it costs."""
    story = long_story(0, "w", compaction=within(SMALL, "mask"))
    while tokens(story) <= 0.8 * SMALL:
        at = story.state.steps
        story.take_reply("text " * 80, make_call(f"c{at}")).allow_calls(f"c{at}").start_calls(
            f"c{at}"
        )
        story.finish_calls(f"c{at}", text="x" * 190 + str(at))
    story.expect_move(RequestReply)


def test_a_window_that_frees_little_is_not_moved() -> None:
    """X2: a prompt that alone is too long stays, and nobody sums it up at every step."""
    story = Story(compaction=within(SMALL, "summary", "window")).start_run("much " * 900)
    stepped(story, 1, "word").expect_move(RequestReply)
    stepped(story, 2, "word").expect_move(RequestReply)


@pytest.mark.parametrize("how", ORDER)
def test_what_no_model_has_seen_is_never_made_shorter(how: CompactionMethod) -> None:
    """X2: a result that came since the last reply stays, whatever was said after it."""
    story = grown(how, rules_of_compaction={"target": 0.1})
    stepped(story, 1, "word " * 300)
    result = story.state.transcript[-1]
    story.steer("word " * 300).add(SteeringTaken())
    _ = story.take_summary() if how == "summary" else story.compact()
    assert list(story.state.shown)[-2] is result


def test_what_is_pinned_counts_as_kept() -> None:
    """X2: the target is reached with what must stay, not without it."""
    story = Story(compaction=within(SMALL, "window"), limits=Limits(steps=None))
    story.start_run("keep " * 250, pinned=True).take_reply("Yes.").end_run("completed").start_run(
        "Go on."
    )
    while tokens(story) <= 0.8 * SMALL:
        stepped(story, 1)
    story.compact()
    assert tokens(story) <= 0.5 * SMALL + 100


# ── summaries ────────────────────────────────────────────────────────────────


def test_a_summary_is_paid_for_from_the_same_limits_in_its_own_bucket() -> None:
    """X2, B2: its usage counts in the total and in its own bucket."""
    story = grown("summary")
    before = story.run.ledger
    bill = replace(make_charge(500, 50), purpose="compaction")
    story.take_summary(charge=bill)
    assert story.run.ledger == before.add(bill)
    assert [one for one in story.run.ledger.charges if one.purpose == "compaction"] == [bill]
    assert story.run.ledger.usage == bill.usage
    assert story.state.ledger.usage == bill.usage


def test_a_summary_that_cannot_be_paid_for_gives_way_to_the_next_strategy() -> None:
    """B2, X2: a failure never fails the run."""
    probe = grown("summary", "window").expect_move(Summarize)
    limit = Limits(steps=None, tokens=probe.reserved.input)
    story = grown("summary", "window", limits=limit)
    assert story.expect_move(Compact).how == "window"


def test_a_shared_budget_pays_for_summaries_too() -> None:
    """B1."""
    budget = Budget("team", tokens=10**6)
    story = grown("summary", "window", budgets=(budget,))
    assert story.expect_move(DrawBudget).budget == budget
    assert story.draw_budget(Amount(tokens=10)).expect_move(Compact).how == "window"
    again = grown("summary", "window", budgets=(budget,))
    again.draw_budget().expect_move(Summarize)


def test_a_failed_summary_cools_down_and_the_run_goes_on() -> None:
    """X2: a cool-down after failure; the next strategy takes its place meanwhile."""
    story = grown("summary", "window", rules_of_compaction={"cool_down": 12})
    story.start_summary()
    story.add(failed_attempt("server"))
    again_at = story.state.steps + 12
    assert (story.state.no_summary_before, story.run.failures) == (again_at, ())
    assert story.expect_move(Compact).how == "window"
    story.compact().expect_move(RequestReply)
    cooling = 0
    while story.state.steps < again_at or tokens(story) <= 0.8 * SMALL:
        if tokens(story) > 0.8 * SMALL:
            assert story.expect_move(Compact).how == "window"
            story.compact()
            cooling += 1
        stepped(story, 1)
    assert cooling > 0
    story.expect_move(Summarize)


def test_a_failed_summary_alone_leaves_the_view_as_it_is() -> None:
    """X2: a failure never fails the run."""
    story = grown("summary")
    story.start_summary()
    story.add(failed_attempt("auth", retryable=False)).expect_move(RequestReply)


# ── by force ─────────────────────────────────────────────────────────────────


def test_an_overflow_shrinks_the_view_once_and_asks_again() -> None:
    """S13: compact once by force, ask again once, then failed."""
    story = overflowing(long_story(compaction=within(None)))
    assert story.expect_move(Compact).how == "window"
    before = story.state.size
    story.compact()
    assert story.state.size < 0.6 * before
    assert story.expect_move(RequestReply).prompt.messages is story.state.shown
    assert overflowing(story).outcome == "failed"


def test_an_overflow_is_summed_up_where_that_is_set_and_left_out_where_it_fails() -> None:
    """S13, X2."""
    story = overflowing(long_story())
    story.take_summary().expect_move(RequestReply)
    assert overflowing(story).outcome == "failed"
    again = overflowing(long_story())
    again.start_summary()
    again.add(failed_attempt("server"))
    assert again.expect_move(Compact).how == "window"
    again.compact().expect_move(RequestReply)
    assert overflowing(again).outcome == "failed"


def test_the_next_step_may_shrink_again() -> None:
    story = overflowing(long_story(compaction=within(None))).compact()
    stepped(story, 1, "x" * 2_000)
    overflowing(story).expect_move(Compact)


def test_with_nothing_but_what_must_stay_there_is_nothing_to_leave_out() -> None:
    """S13: a view that cannot become smaller is not sent again."""
    assert overflowing(Story().start_run("Only this. " * 500)).outcome == "failed"
    story = stepped(Story().start_run("Only this. " * 500), 1)
    assert overflowing(story).outcome == "failed"


def test_an_overflow_of_another_model_is_mended_for_that_model() -> None:
    """S13, S15: after a fallback, the one that answers is asked again."""
    story = long_story(fallbacks=(ModelInfo("test:other"),), compaction=within(None))
    for _ in range(4):
        story.fail_attempt(failed_attempt("server"))
    assert story.expect_move(RequestReply).prompt.model == "test:other"
    story.start_attempt(model="test:other").add(failed_attempt("context_overflow", retryable=False))
    assert story.compact().expect_move(RequestReply).prompt.model == "test:other"


# ── what never is ────────────────────────────────────────────────────────────


def test_the_transcript_is_never_changed() -> None:
    """X1, X2."""
    story = overflowing(long_story(compaction=within(None)))
    before = list(story.state.transcript)
    story.compact()
    assert list(story.state.transcript) == before
    assert fold(SESSION, story.facts) == story.state


def test_the_running_prompt_stays_and_what_is_gone_is_told() -> None:
    """X2."""
    story = overflowing(long_story(compaction=within(None)))
    upto = story.expect_move(Compact).upto
    told = left_out_note(story.state, upto)
    shown = list(story.compact().state.shown)
    assert shown[0] == UserMessage((TextPart(told),), note=True)
    assert shown[1] == UserMessage((TextPart("Second."),))
    assert shown[-1] == story.state.transcript[-1]


def test_what_was_summed_up_stays_when_more_is_left_out_and_is_told_once() -> None:
    """X2: the note does not grow with every time."""
    story = grown("summary", "window").take_summary("Goals: find the leak.")
    replaced = replace(story.setup, compaction=within(SMALL, "window"))
    story.end_run("completed").start_run("More.", replaced)
    for _ in range(3):
        while tokens(story) <= 0.8 * SMALL:
            stepped(story, 1)
        story.compact()
        assert story.state.summary.count("find the leak") == 1
        assert story.state.summary.count("were left out") == 1
    assert str(story.state.shown_from) in story.state.summary


def test_a_note_without_a_summary_says_how_much_is_gone() -> None:
    story = grown("window").compact()
    first = story.state.summary
    while tokens(story) <= 0.8 * SMALL:
        stepped(story, 1)
    story.compact()
    assert first.startswith("[")
    assert story.state.summary == f"[{story.state.shown_from} {first.split(' ', 1)[1]}"


@given(
    st.lists(st.sampled_from([*ORDER, "overflow", "step", "pin", "cancel"]), max_size=25),
    st.integers(1, 900),
)
def test_any_sequence_of_compactions_gives_valid_requests(does: list[str], length: int) -> None:
    """X1, X2: whole groups only, whichever strategy comes after which, however often."""
    story = long_story(3, "w" * length)
    for what in does:
        match what:
            case "step":
                stepped(story, 1, "w" * length)
            case "pin":
                story.take_reply("Done.").end_run("completed").start_run(
                    f"Keep {length}.", pinned=True
                )
            case "cancel":
                story.take_calls(make_call(f"x{len(story.facts)}")).end_run("cancelled").start_run(
                    "Go on."
                )
            case "overflow":
                overflowing(compacted_by(story, ()))
                if isinstance(decide(story.state), EndRun):
                    story.end_run("failed").start_run("Go on.")
            case how:
                stepped(compacted_by(story, (how,)), 1, "w" * length)
        settled(story)
        check_prompt(story.expect_move(RequestReply).prompt)
        assert story.state.transcript[-1] in story.shown_messages


def compacted_by(story: Story, strategies: Any) -> Story:
    """A new run, with a window so small that there is always something to do."""
    setup = make_setup(compaction=within(60, *strategies), limits=Limits(steps=None))
    return story.end_run("cancelled").start_run("Go on.", setup)


def settled(story: Story) -> None:
    """Do what is decided about the length of the view."""
    while isinstance(move := decide(story.state), Compact | Summarize):
        _ = story.compact() if isinstance(move, Compact) else story.take_summary("Goals: go on.")
