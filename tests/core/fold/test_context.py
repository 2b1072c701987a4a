"""What the model is shown beside and instead of the transcript."""

import pytest

from facts import SESSION, Story, call, made_for, paid, tool
from windlass.core.events import (
    AttemptStarted,
    CallFinished,
    CallJudged,
    Compacted,
    Heeded,
    Hydrated,
    Recalled,
    ReplyJudged,
    Reservation,
)
from windlass.core.fold.context import MASK_MIN, mask_saves
from windlass.core.fold.run import fold
from windlass.core.limits import Limits
from windlass.core.messages import Assistant, Image, Result, Results, Text, User
from windlass.core.moves import Finish, Gate, Hear, Heed, Hold, Reason
from windlass.core.setup import Rules
from windlass.core.state import weigh
from windlass.core.verdicts import Allow, Ask, Deny
from windlass.testing.prompts import check_prompt

LONG = "x" * 5 * MASK_MIN
BY_THE_WAY = User((Text("By the way."),))


def user(text: str) -> User:
    return User((Text(text),))


def noted(text: str) -> User:
    return User((Text(text),), note=True)


def two_steps() -> Story:
    """User, reply, user, and two steps of a call each."""
    story = Story().asked("First.").replied("Yes.").ended("completed").asked("Second.")
    return story.did(call("a"), text=LONG).did(call("b"), text=LONG)


# ── what may be left out ─────────────────────────────────────────────────────


@pytest.mark.parametrize("upto", [0, 4, 6, 7, 99])
def test_a_view_cannot_begin_in_the_middle_of_a_group(upto: int) -> None:
    """X1, J1: an illegal fact is not written; nor does a view begin where it began, or nowhere."""
    story = two_steps()
    kinds = [type(message) for message in story.state.transcript]
    assert kinds == [User, Assistant, User, Assistant, Results, Assistant, Results]
    assert "the view cannot begin" in story.refuses(Compacted(upto, "[…]"))


@pytest.mark.parametrize("upto", [1, 2, 3, 5])
def test_a_view_may_begin_at_any_group_and_keeps_the_running_prompt(upto: int) -> None:
    """X1, X2."""
    story = two_steps().tell(Compacted(upto, "[…]"))
    shown, transcript = story.shown, list(story.state.transcript)
    prompt = [user("Second.")] if upto > 2 else []
    assert shown == [noted("[…]"), *prompt, *transcript[upto:]]
    check_prompt(story.go(Reason).prompt)
    assert story.state.size == sum(map(weigh, shown))


def test_a_view_only_ever_begins_later() -> None:
    story = two_steps().tell(Compacted(3, "[…]"))
    story.refuses(Compacted(2, "[…]"))
    story.refuses(Compacted(3, "[…]"))
    story.refuses(Compacted(3, how="mask"))


def test_a_view_cannot_shrink_while_a_reply_is_open() -> None:
    """X2: open calls are never compacted."""
    two_steps().trying().refuses(Compacted(3, "[…]"))
    two_steps().called(call("c")).refuses(Compacted(3, "[…]"))
    two_steps().replied("Hi.").refuses(Compacted(3, "[…]"))


def test_a_summary_is_taken_only_where_one_was_asked_for() -> None:
    """J1."""
    summary = Compacted(3, "Goals: none.", "summary")
    assert "no summary was asked for" in two_steps().refuses(summary)
    assert "no summary was asked for" in two_steps().trying().refuses(summary)


def test_pinned_messages_stay_in_their_order() -> None:
    """X2: however long the session grows."""
    story = Story()
    for at in range(4):
        story.asked(f"Prompt {at}.", pinned=at in (0, 2)).replied("Yes.").ended("completed")
    story.asked("Now.").did(call("a")).did(call("b")).tell(Compacted(11, "[…]"))
    assert [one.text for one in story.shown if isinstance(one, User)] == [
        "[…]",
        "Prompt 0.",
        "Prompt 2.",
        "Now.",
    ]
    check_prompt(story.go(Reason).prompt)


def test_the_view_goes_on_from_where_it_was_cut() -> None:
    """P5: what comes is added to it, and it is not made anew."""
    story = two_steps().tell(Compacted(5, "[…]"))
    before = story.shown
    story.did(call("c"))
    assert story.shown == [*before, *list(story.state.transcript)[-2:]]
    assert fold(SESSION, story.facts) == story.state


# ── masks ────────────────────────────────────────────────────────────────────


def test_a_masked_result_says_how_long_it_was_and_how_it_is_read() -> None:
    """X3, T10: with the tool that reads it, if that is there."""
    plain = two_steps().tell(Compacted(5, how="mask"))
    items = [one.items[0] for one in plain.shown if isinstance(one, Results)]
    assert items[0].result.text == "[This result (1000 characters) was left out, since it is old.]"
    assert items[1].result.text == LONG
    tools = tool("look"), tool("read_artifact")
    story = Story(tools=tools).asked().did(call("a"), text=LONG).did(call("b"), text=LONG)
    masked = story.tell(Compacted(3, how="mask")).shown[2]
    assert isinstance(masked, Results)
    assert 'read_artifact(id="a")' in masked.items[0].result.text


@pytest.mark.parametrize(("size", "masked"), [(MASK_MIN - 1, False), (MASK_MIN, True)])
def test_a_short_result_is_not_worth_a_mask(size: int, *, masked: bool) -> None:
    story = Story().asked().did(call("a"), text="x" * size).did(call("b"))
    result = story.tell(Compacted(3, how="mask")).shown[2]
    assert isinstance(result, Results)
    assert (result.items[0].result.text != "x" * size) is masked


def test_a_picture_is_masked_and_the_kind_of_result_stays() -> None:
    """X3: a failure is still told as one."""
    story = Story().asked().called(call("a")).allowed("a").began("a")
    story.tell(CallFinished("a", Result("error", (Text("See:"), Image("image/png", b"png")))))
    result = story.did(call("b")).tell(Compacted(3, how="mask")).shown[2]
    assert isinstance(result, Results)
    assert result.items[0].result.kind == "error"
    assert all(isinstance(part, Text) for part in result.items[0].result.content)


def test_a_mask_stays_while_the_window_moves_on() -> None:
    """X1: any sequence."""
    story = two_steps().did(call("c"), text=f"{LONG}!").tell(Compacted(7, how="mask"))
    story.tell(Compacted(5, "[…]"))
    texts = [one.items[0].result.text for one in story.shown if isinstance(one, Results)]
    assert [text == f"{LONG}!" for text in texts] == [False, True]
    story.refuses(Compacted(6, how="mask"))
    assert fold(SESSION, story.facts) == story.state


# ── what a person says meanwhile ─────────────────────────────────────────────


def test_what_is_said_before_a_request_goes_with_it() -> None:
    story = Story().asked().did(call("a")).said("By the way.")
    story.go(Heed)
    assert story.tell(Heeded()).shown[-1] == BY_THE_WAY
    story.refuses(Heeded())


def test_what_is_said_during_a_request_goes_with_the_next_one() -> None:
    story = Story().asked().trying().said("By the way.")
    story.refuses(Heeded())
    story.ended("cancelled")
    again = Story().asked().called(call("a")).said("By the way.")
    again.go(Gate)
    again.refuses(Heeded())
    again.allowed("a").began("a").finished("a").go(Heed)


def test_what_is_said_during_the_last_reply_is_answered() -> None:
    """A reply that came before it was heard is not the last one."""
    story = Story().asked().replied("Hi.").said("By the way.")
    story.go(Heed)
    story.tell(Heeded()).go(Reason)
    assert story.shown[-2:] == [Assistant((Text("Hi."),), "test:model"), BY_THE_WAY]
    assert story.replied("I see.").outcome == "completed"


@pytest.mark.parametrize("stop", ["length", "refusal"])
def test_what_is_said_goes_on_after_a_reply_that_would_have_ended_the_run(stop: str) -> None:
    story = Story().asked().replied("I will", stop=stop).said("By the way.")  # pyright: ignore[reportArgumentType]
    assert story.tell(Heeded()).replied("I see.").outcome == "completed"


def test_a_reply_is_judged_before_what_was_said_is_heard() -> None:
    """G1: every final reply passes the gate, also one that is not the last."""
    story = Story(judge_replies=True).asked().replied("Hi.").said("By the way.")
    story.go(Hear)
    story.tell(ReplyJudged(Allow())).go(Heed)
    denied = Story(judge_replies=True).asked().replied("Rude.").said("By the way.")
    denied.tell(ReplyJudged(Deny("rude"))).go(Heed)


def test_what_is_said_while_a_question_waits_is_kept() -> None:
    """G6: and moves no clock."""
    story = Story().asked().called(call("a")).tell(CallJudged("a", Ask("May I?")))
    before = story.run.elapsed_s
    story.said("By the way.").go(Hold)
    assert story.run.elapsed_s == before


def test_what_was_said_in_parts_is_heard_together_in_order() -> None:
    story = Story().asked().said("One.").said("Two.").tell(Heeded())
    assert story.shown[-2:] == [user("One."), user("Two.")]
    assert story.run.pending == ()


@pytest.mark.parametrize("how", ["idle", "asking", "in a step", "replied"])
def test_what_was_said_too_late_is_in_the_next_run(how: str) -> None:
    """It is never lost at the end of a run, and the next request is valid."""
    story = Story().asked()
    match how:
        case "asking":
            story.trying()
        case "in a step":
            story.called(call("a")).allowed("a").began("a")
        case "replied":
            story.replied("Hi.")
        case _:
            pass
    story.said("By the way.").ended("cancelled").asked("Go on.")
    assert story.run.pending == ()
    assert [one for one in story.shown if one == BY_THE_WAY] == [BY_THE_WAY]
    check_prompt(story.go(Reason).prompt)


def test_at_the_cap_what_was_said_waits_for_the_next_run() -> None:
    """L7: a cap of N steps is exactly N replies, whoever says what."""
    story = Story(limits=Limits(steps=1)).asked().did(call("a")).said("By the way.")
    assert story.outcome == "max_steps"
    landing = Story(limits=Limits(steps=1), rules=Rules(on_limit="answer")).asked().did(call("a"))
    landing.trying(landing=True).tell(*Story().asked().replied("So.").facts[-1:]).said(
        "By the way."
    )
    landing.go(Finish)


# ── what was looked up and recalled ──────────────────────────────────────────


def test_what_a_prompt_speaks_of_is_looked_up_once_by_calls_of_other_ids() -> None:
    """X4, J1."""
    twice = Hydrated((call("h1_0"), call("h1_0")))
    assert "two calls have one id" in Story().asked().refuses(twice)
    assert "before the first step" in Story().asked().refuses(Hydrated(()))
    story = Story().asked().tell(Hydrated((call("h1_0"),)))
    story.ended("cancelled")
    assert "h1_0" in story.state.transcript[-1].text  # pyright: ignore[reportAttributeAccessIssue]
    check_prompt(story.asked("Go on.").go(Reason).prompt)


def test_what_is_recalled_stands_beside_the_prompt_in_this_run_alone() -> None:
    """K1: in the view only, so that it is not kept in the conversation."""
    story = Story(recalls=True).asked("Where?").tell(Recalled("It is in Rome.", ("private",)))
    assert story.shown == [user("Where?"), noted("It is in Rome.")]
    assert list(story.state.transcript) == [user("Where?")]
    story.did(call("a"))
    assert story.shown[1] == noted("It is in Rome.")
    story.replied("Rome.").ended("completed").asked("And?").tell(Recalled(""))
    assert noted("It is in Rome.") not in story.shown
    assert story.state.shown == story.state.transcript
    assert story.state.labels == {"private"}
    assert story.state.sources == (("private", "what was recalled"),)


@pytest.mark.parametrize("upto", [1, 3])
def test_what_is_recalled_stays_when_the_view_is_made_shorter(upto: int) -> None:
    """K1, X2: it is shown for the whole of its run."""
    story = Story(recalls=True).asked("Where?").tell(Recalled("It is in Rome."))
    story.did(call("a"), text=LONG).did(call("b"), text=LONG).tell(Compacted(upto, "[…]"))
    assert story.shown[:3] == [noted("[…]"), user("Where?"), noted("It is in Rome.")]
    assert story.tell(Compacted(4, how="mask")).shown[:3] == [
        noted("[…]"),
        user("Where?"),
        noted("It is in Rome."),
    ]
    assert story.state.size == sum(map(weigh, story.state.shown))
    check_prompt(story.go(Reason).prompt)


@pytest.mark.parametrize("nothing", ["", "  \n"])
def test_nothing_known_is_not_shown(nothing: str) -> None:
    """X1: no provider takes an empty message."""
    story = Story(recalls=True).asked("Where?").tell(Recalled(nothing, ("private",)))
    assert story.shown == [user("Where?")]
    assert story.state.labels == frozenset()
    assert story.state.shown is story.state.transcript


def test_a_set_up_that_looks_nothing_up_asks_at_once() -> None:
    Story(made_for()).asked("See notes.md").go(Reason)


def test_how_much_a_mask_saves() -> None:
    """X3: only results can be masked."""
    story = two_steps()
    _, reply, _, _, results, *_ = story.state.transcript
    assert mask_saves(reply) == 0
    assert len(LONG) - 150 < mask_saves(results) < len(LONG)
    masked = story.tell(Compacted(5, how="mask")).state.size
    assert masked == two_steps().state.size - len(LONG) + 62


def test_a_summary_takes_the_place_of_what_it_sums_up_and_is_paid() -> None:
    """X2."""
    story = two_steps().tell(
        AttemptStarted(3, 1, "test:model", Reservation(9, 9), purpose="compaction")
    )
    charge = paid(9, 3)
    story.tell(Compacted(5, "Goals: none.", "summary", charge))
    assert story.run.ledger.charges == (charge,)
    assert story.shown[:2] == [noted("Goals: none."), user("Second.")]


def test_it_is_recalled_once() -> None:
    """K1, J1."""
    story = Story(recalls=True).asked().tell(Recalled("It is known."))
    assert "recalled once" in story.refuses(Recalled("It is known."))
    assert "recalled once" in Story().asked().did(call("a")).refuses(Recalled("Too late."))
