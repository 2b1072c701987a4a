"""What may be made shorter in a view, when, in which order, and what never is."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from facts import MODEL, SESSION, Story, broken, call, made_for, paid
from windlass.core.context import Compaction, How
from windlass.core.decide.compacting import note, plan
from windlass.core.decide.next_move import decide
from windlass.core.decide.reserving import estimate
from windlass.core.events import Heeded
from windlass.core.fold.run import fold
from windlass.core.limits import Amount, Budget, Limits
from windlass.core.messages import Results, Text, User
from windlass.core.moves import Draw, Finish, Reason, Shrink, Summarise
from windlass.core.setup import ModelInfo
from windlass.testing.prompts import check_prompt

WORDS = "word " * 80
SMALL = 1_000
"""Tokens: ten steps of these words do not fit."""
ORDER: tuple[How, ...] = ("mask", "summary", "window")


def long_story(steps: int = 6, words: str = WORDS, **settings: Any) -> Story:
    """A run that came before, and one with so many steps of so many words."""
    limits = settings.pop("limits", Limits(steps=None))
    story = Story(limits=limits, **settings).asked("First.").replied(words).ended("completed")
    return stepped(story.asked("Second."), steps, words)


def stepped(story: Story, steps: int, words: str = WORDS) -> Story:
    for _ in range(steps):
        at = story.state.steps
        story.did(call(f"c{at}", "look", "{}"), text=f"{words}{at}")
    return story


def within(window: int | None, *strategies: How, **rules: Any) -> Compaction:
    return Compaction(window=window, strategies=strategies, **rules)


def overflowing(story: Story) -> Story:
    return story.failing(broken("context_overflow", retryable=False))


def grown(*strategies: How, **settings: Any) -> Story:
    """A run whose view has just passed the trigger."""
    rules = settings.pop("rules_of_compaction", {})
    story = long_story(0, compaction=within(SMALL, *strategies, **rules), **settings)
    while tokens(story) <= 0.8 * SMALL:
        stepped(story, 1)
    return story


def tokens(story: Story) -> float:
    return estimate(story.state, MODEL)


# ── when ─────────────────────────────────────────────────────────────────────


def test_nothing_is_done_before_the_trigger_and_then_enough_to_reach_the_target() -> None:
    """X2: trigger and target ratios, so that it is not done at every step."""
    story = long_story(0, compaction=within(SMALL, "window"))
    shrinks = 0
    for _ in range(40):
        if tokens(story) <= 0.8 * SMALL:
            story.go(Reason)
        else:
            story.shrunk()
            shrinks += 1
            assert tokens(story) <= 0.5 * SMALL
            story.go(Reason)
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
    story.go(Shrink if shrinks else Reason)


def test_a_model_that_reports_short_tokens_is_compacted_sooner() -> None:
    """X6: estimates start at 4 and are calibrated per model by reported usage."""
    calm = long_story(3, compaction=within(SMALL, "window"))
    calm.go(Reason)
    size = calm.state.fixed + calm.state.size
    calm.replied(call("z"), charge=paid(size // 2, 5)).allowed("z").began("z").finished("z")
    assert tokens(calm) > size / 2
    calm.go(Shrink)


def test_a_failed_request_is_not_a_reason_to_shrink() -> None:
    """S13: only the provider's word that it is too long is."""
    story = grown("window")
    story.failing(broken("server")).go(Reason)
    ended = long_story().failing(broken("bad_request", retryable=False))
    assert ended.outcome == "failed"


def test_a_run_that_ends_anyway_pays_for_no_summary() -> None:
    """B2: nobody would read it."""
    story = stepped(Story(limits=Limits(steps=9), compaction=within(SMALL, "summary")).asked(), 9)
    assert tokens(story) > 0.8 * SMALL
    assert story.outcome == "max_steps"


# ── in which way ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ORDER)
def test_each_strategy_works_alone(how: How) -> None:
    """X2, X3."""
    story = grown(how)
    before = tokens(story)
    _ = story.summed_up() if how == "summary" else story.shrunk()
    assert story.run.compacted == (how,)
    assert tokens(story) < 0.75 * before
    check_prompt(story.go(Reason).prompt)


@pytest.mark.parametrize(
    ("strategies", "first"),
    [(ORDER, "mask"), (("window", "mask"), "window"), (("summary", "mask"), "summary")],
)
def test_the_strategies_are_tried_in_the_order_that_is_set(
    strategies: Sequence[How], first: How
) -> None:
    story = grown(*strategies)
    ways = [one.how for one in plan(story.state, story.setup, story.run, story.setup.model)]
    assert ways == list(strategies)
    move = story.go(Summarise if first == "summary" else Shrink)
    assert isinstance(move, Summarise) or move.how == first


def test_the_next_strategy_follows_only_if_the_target_is_not_reached() -> None:
    """X2: tried until the view is small enough, each of them once."""
    enough = grown(*ORDER, rules_of_compaction={"target": 0.7}).shrunk()
    assert tokens(enough) <= 0.7 * SMALL
    enough.go(Reason)
    # Text of the model cannot be masked, so that masking alone is not enough here.
    story = long_story(3, compaction=within(SMALL, *ORDER))
    while tokens(story) <= 0.8 * SMALL:
        at = story.state.steps
        story.replied("text " * 30, call(f"c{at}")).allowed(f"c{at}").began(f"c{at}")
        story.finished(f"c{at}", text="word " * 50 + str(at))
    assert story.go(Shrink).how == "mask"
    assert tokens(story.shrunk()) > 0.5 * SMALL
    story.summed_up().go(Reason)


def test_masking_keeps_the_newest_results_and_tells_of_the_others() -> None:
    """X3, X2: a call keeps its result, the newest whole."""
    story = grown("mask")
    story.shrunk()
    whole = [one for one in story.state.transcript if isinstance(one, Results)]
    shown = [one for one in story.state.shown if isinstance(one, Results)]
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
        story.replied("text " * 80, call(f"c{at}")).allowed(f"c{at}").began(f"c{at}")
        story.finished(f"c{at}", text="x" * 190 + str(at))
    story.go(Reason)


def test_a_window_that_frees_little_is_not_moved() -> None:
    """X2: a prompt that alone is too long stays, and nobody sums it up at every step."""
    story = Story(compaction=within(SMALL, "summary", "window")).asked("much " * 900)
    stepped(story, 1, "word").go(Reason)
    stepped(story, 2, "word").go(Reason)


@pytest.mark.parametrize("how", ORDER)
def test_what_no_model_has_seen_is_never_made_shorter(how: How) -> None:
    """X2: a result that came since the last reply stays, whatever was said after it."""
    story = grown(how, rules_of_compaction={"target": 0.1})
    stepped(story, 1, "word " * 300)
    result = story.state.transcript[-1]
    story.said("word " * 300).tell(Heeded())
    _ = story.summed_up() if how == "summary" else story.shrunk()
    assert list(story.state.shown)[-2] is result


def test_what_is_pinned_counts_as_kept() -> None:
    """X2: the target is reached with what must stay, not without it."""
    story = Story(compaction=within(SMALL, "window"), limits=Limits(steps=None))
    story.asked("keep " * 250, pinned=True).replied("Yes.").ended("completed").asked("Go on.")
    while tokens(story) <= 0.8 * SMALL:
        stepped(story, 1)
    story.shrunk()
    assert tokens(story) <= 0.5 * SMALL + 100


# ── summaries ────────────────────────────────────────────────────────────────


def test_a_summary_is_paid_for_from_the_same_limits_in_its_own_bucket() -> None:
    """X2, B2: its usage counts in the total and in its own bucket."""
    story = grown("summary")
    before = story.run.ledger
    bill = replace(paid(500, 50), purpose="compaction")
    story.summed_up(charge=bill)
    assert story.run.ledger == before.add(bill)
    assert [one for one in story.run.ledger.charges if one.purpose == "compaction"] == [bill]
    assert story.run.ledger.usage == bill.usage
    assert story.state.ledger.usage == bill.usage


def test_a_summary_that_cannot_be_paid_for_gives_way_to_the_next_strategy() -> None:
    """B2, X2: a failure never fails the run."""
    probe = grown("summary", "window").go(Summarise)
    limit = Limits(steps=None, tokens=probe.reserved.input)
    story = grown("summary", "window", limits=limit)
    assert story.go(Shrink).how == "window"


def test_a_shared_budget_pays_for_summaries_too() -> None:
    """B1."""
    budget = Budget("team", tokens=10**6)
    story = grown("summary", "window", budgets=(budget,))
    assert story.go(Draw).budget == budget
    assert story.drew(Amount(tokens=10)).go(Shrink).how == "window"
    again = grown("summary", "window", budgets=(budget,))
    again.drew().go(Summarise)


def test_a_failed_summary_cools_down_and_the_run_goes_on() -> None:
    """X2: a cool-down after failure; the next strategy takes its place meanwhile."""
    story = grown("summary", "window", rules_of_compaction={"cool_down": 12})
    story.summing_up()
    story.tell(broken("server"))
    again_at = story.state.steps + 12
    assert (story.state.no_summary_before, story.run.failures) == (again_at, ())
    assert story.go(Shrink).how == "window"
    story.shrunk().go(Reason)
    cooling = 0
    while story.state.steps < again_at or tokens(story) <= 0.8 * SMALL:
        if tokens(story) > 0.8 * SMALL:
            assert story.go(Shrink).how == "window"
            story.shrunk()
            cooling += 1
        stepped(story, 1)
    assert cooling > 0
    story.go(Summarise)


def test_a_failed_summary_alone_leaves_the_view_as_it_is() -> None:
    """X2: a failure never fails the run."""
    story = grown("summary")
    story.summing_up()
    story.tell(broken("auth", retryable=False)).go(Reason)


# ── by force ─────────────────────────────────────────────────────────────────


def test_an_overflow_shrinks_the_view_once_and_asks_again() -> None:
    """S13: compact once by force, ask again once, then failed."""
    story = overflowing(long_story(compaction=within(None)))
    assert story.go(Shrink).how == "window"
    before = story.state.size
    story.shrunk()
    assert story.state.size < 0.6 * before
    assert story.go(Reason).prompt.messages is story.state.shown
    assert overflowing(story).outcome == "failed"


def test_an_overflow_is_summed_up_where_that_is_set_and_left_out_where_it_fails() -> None:
    """S13, X2."""
    story = overflowing(long_story())
    story.summed_up().go(Reason)
    assert overflowing(story).outcome == "failed"
    again = overflowing(long_story())
    again.summing_up()
    again.tell(broken("server"))
    assert again.go(Shrink).how == "window"
    again.shrunk().go(Reason)
    assert overflowing(again).outcome == "failed"


def test_the_next_step_may_shrink_again() -> None:
    story = overflowing(long_story(compaction=within(None))).shrunk()
    stepped(story, 1, "x" * 2_000)
    overflowing(story).go(Shrink)


def test_with_nothing_but_what_must_stay_there_is_nothing_to_leave_out() -> None:
    """S13: a view that cannot become smaller is not sent again."""
    assert overflowing(Story().asked("Only this. " * 500)).outcome == "failed"
    story = stepped(Story().asked("Only this. " * 500), 1)
    assert overflowing(story).outcome == "failed"


def test_an_overflow_of_another_model_is_mended_for_that_model() -> None:
    """S13, S15: after a fallback, the one that answers is asked again."""
    story = long_story(fallbacks=(ModelInfo("test:other"),), compaction=within(None))
    for _ in range(4):
        story.failing(broken("server"))
    assert story.go(Reason).prompt.model == "test:other"
    story.trying(model="test:other").tell(broken("context_overflow", retryable=False))
    assert story.shrunk().go(Reason).prompt.model == "test:other"


# ── what never is ────────────────────────────────────────────────────────────


def test_the_transcript_is_never_changed() -> None:
    """X1, X2."""
    story = overflowing(long_story(compaction=within(None)))
    before = list(story.state.transcript)
    story.shrunk()
    assert list(story.state.transcript) == before
    assert fold(SESSION, story.facts) == story.state


def test_the_running_prompt_stays_and_what_is_gone_is_told() -> None:
    """X2."""
    story = overflowing(long_story(compaction=within(None)))
    upto = story.go(Shrink).upto
    told = note(story.state, upto)
    shown = list(story.shrunk().state.shown)
    assert shown[0] == User((Text(told),), note=True)
    assert shown[1] == User((Text("Second."),))
    assert shown[-1] == story.state.transcript[-1]


def test_what_was_summed_up_stays_when_more_is_left_out_and_is_told_once() -> None:
    """X2: the note does not grow with every time."""
    story = grown("summary", "window").summed_up("Goals: find the leak.")
    replaced = replace(story.setup, compaction=within(SMALL, "window"))
    story.ended("completed").asked("More.", replaced)
    for _ in range(3):
        while tokens(story) <= 0.8 * SMALL:
            stepped(story, 1)
        story.shrunk()
        assert story.state.summary.count("find the leak") == 1
        assert story.state.summary.count("were left out") == 1
    assert str(story.state.shown_from) in story.state.summary


def test_a_note_without_a_summary_says_how_much_is_gone() -> None:
    story = grown("window").shrunk()
    first = story.state.summary
    while tokens(story) <= 0.8 * SMALL:
        stepped(story, 1)
    story.shrunk()
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
                story.replied("Done.").ended("completed").asked(f"Keep {length}.", pinned=True)
            case "cancel":
                story.called(call(f"x{len(story.facts)}")).ended("cancelled").asked("Go on.")
            case "overflow":
                overflowing(compacted_by(story, ()))
                if isinstance(decide(story.state), Finish):
                    story.ended("failed").asked("Go on.")
            case how:
                stepped(compacted_by(story, (how,)), 1, "w" * length)
        settled(story)
        check_prompt(story.go(Reason).prompt)
        assert story.state.transcript[-1] in story.shown


def compacted_by(story: Story, strategies: Any) -> Story:
    """A new run, with a window so small that there is always something to do."""
    setup = made_for(compaction=within(60, *strategies), limits=Limits(steps=None))
    return story.ended("cancelled").asked("Go on.", setup)


def settled(story: Story) -> None:
    """Do what is decided about the length of the view."""
    while isinstance(move := decide(story.state), Shrink | Summarise):
        _ = story.shrunk() if isinstance(move, Shrink) else story.summed_up("Goals: go on.")
