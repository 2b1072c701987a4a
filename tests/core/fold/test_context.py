"""What the model is shown beside and instead of the transcript."""

import pytest

from facts import SESSION, Story, make_call, make_charge, make_setup, make_spec
from windlass.core.events import (
    AttemptStarted,
    CallFinished,
    CallJudged,
    ContextCompacted,
    KnowledgeRecalled,
    LookupsPlanned,
    ReplyJudged,
    Reservation,
    SteeringTaken,
)
from windlass.core.fold.run import fold
from windlass.core.fold.steps import MASK_MIN, mask_saving
from windlass.core.limits import Limits
from windlass.core.messages import (
    AssistantMessage,
    ImagePart,
    TextPart,
    ToolResult,
    ToolResults,
    UserMessage,
)
from windlass.core.moves import (
    EndRun,
    JudgeCalls,
    JudgeReply,
    RequestReply,
    TakeSteering,
    WaitForAnswers,
)
from windlass.core.setup import LoopPolicy
from windlass.core.transcript import message_tokens_max
from windlass.core.verdicts import Allow, Ask, Deny
from windlass.testing.prompts import check_prompt

LONG = "x" * 5 * MASK_MIN
BY_THE_WAY = UserMessage((TextPart("By the way."),))


def user(text: str) -> UserMessage:
    return UserMessage((TextPart(text),))


def noted(text: str) -> UserMessage:
    return UserMessage((TextPart(text),), note=True)


def two_steps() -> Story:
    """User, reply, user, and two steps of a call each."""
    story = Story().start_run("First.").take_reply("Yes.").end_run("completed").start_run("Second.")
    return story.do_step(make_call("a"), text=LONG).do_step(make_call("b"), text=LONG)


# ── what may be left out ─────────────────────────────────────────────────────


@pytest.mark.parametrize("upto", [0, 4, 6, 7, 99])
def test_a_view_cannot_begin_in_the_middle_of_a_group(upto: int) -> None:
    """X1, J1: an illegal fact is not written; nor does a view begin where it began, or nowhere."""
    story = two_steps()
    kinds = [type(message) for message in story.state.transcript]
    assert kinds == [
        UserMessage,
        AssistantMessage,
        UserMessage,
        AssistantMessage,
        ToolResults,
        AssistantMessage,
        ToolResults,
    ]
    assert "the view cannot begin" in story.check_refused(ContextCompacted(upto, "[…]"))


@pytest.mark.parametrize("upto", [1, 2, 3, 5])
def test_a_view_may_begin_at_any_group_and_keeps_the_running_prompt(upto: int) -> None:
    """X1, X2."""
    story = two_steps().add(ContextCompacted(upto, "[…]"))
    shown, transcript = story.shown_messages, list(story.state.transcript)
    prompt = [user("Second.")] if upto > 2 else []
    assert shown == [noted("[…]"), *prompt, *transcript[upto:]]
    check_prompt(story.expect_move(RequestReply).prompt)
    assert story.state.size == sum(map(message_tokens_max, shown))


def test_a_view_only_ever_begins_later() -> None:
    story = two_steps().add(ContextCompacted(3, "[…]"))
    story.check_refused(ContextCompacted(2, "[…]"))
    story.check_refused(ContextCompacted(3, "[…]"))
    story.check_refused(ContextCompacted(3, how="mask"))


def test_a_view_cannot_shrink_while_a_reply_is_open() -> None:
    """X2: open calls are never compacted."""
    two_steps().start_attempt().check_refused(ContextCompacted(3, "[…]"))
    two_steps().take_calls(make_call("c")).check_refused(ContextCompacted(3, "[…]"))
    two_steps().take_reply("Hi.").check_refused(ContextCompacted(3, "[…]"))


def test_a_summary_is_taken_only_where_one_was_asked_for() -> None:
    """J1."""
    summary = ContextCompacted(3, "Goals: none.", "summary")
    assert "no summary was requested" in two_steps().check_refused(summary)
    assert "no summary was requested" in two_steps().start_attempt().check_refused(summary)


def test_pinned_messages_stay_in_their_order() -> None:
    """X2: however long the session grows."""
    story = Story()
    for at in range(4):
        story.start_run(f"Prompt {at}.", pinned=at in (0, 2)).take_reply("Yes.").end_run(
            "completed"
        )
    story.start_run("Now.").do_step(make_call("a")).do_step(make_call("b")).add(
        ContextCompacted(11, "[…]")
    )
    assert [one.text for one in story.shown_messages if isinstance(one, UserMessage)] == [
        "[…]",
        "Prompt 0.",
        "Prompt 2.",
        "Now.",
    ]
    check_prompt(story.expect_move(RequestReply).prompt)


def test_the_view_goes_on_from_where_it_was_cut() -> None:
    """P5: what comes is added to it, and it is not made anew."""
    story = two_steps().add(ContextCompacted(5, "[…]"))
    before = story.shown_messages
    story.do_step(make_call("c"))
    assert story.shown_messages == [*before, *list(story.state.transcript)[-2:]]
    assert fold(SESSION, story.facts) == story.state


# ── masks ────────────────────────────────────────────────────────────────────


def test_a_masked_result_says_how_long_it_was_and_how_it_is_read() -> None:
    """X3, T10: with the tool that reads it, if that is there."""
    plain = two_steps().add(ContextCompacted(5, how="mask"))
    items = [one.items[0] for one in plain.shown_messages if isinstance(one, ToolResults)]
    assert items[0].result.text == "[This old result (1000 characters) was removed to save space.]"
    assert items[1].result.text == LONG
    tools = make_spec("look"), make_spec("read_artifact")
    story = (
        Story(tools=tools)
        .start_run()
        .do_step(make_call("a"), text=LONG)
        .do_step(make_call("b"), text=LONG)
    )
    masked = story.add(ContextCompacted(3, how="mask")).shown_messages[2]
    assert isinstance(masked, ToolResults)
    assert 'read_artifact(id="a")' in masked.items[0].result.text


@pytest.mark.parametrize(("size", "masked"), [(MASK_MIN - 1, False), (MASK_MIN, True)])
def test_a_short_result_is_not_worth_a_mask(size: int, *, masked: bool) -> None:
    story = Story().start_run().do_step(make_call("a"), text="x" * size).do_step(make_call("b"))
    result = story.add(ContextCompacted(3, how="mask")).shown_messages[2]
    assert isinstance(result, ToolResults)
    assert (result.items[0].result.text != "x" * size) is masked


def test_a_picture_is_masked_and_the_kind_of_result_stays() -> None:
    """X3: a failure is still told as one."""
    story = Story().start_run().take_calls(make_call("a")).allow_calls("a").start_calls("a")
    story.add(
        CallFinished("a", ToolResult("error", (TextPart("See:"), ImagePart("image/png", b"png"))))
    )
    result = story.do_step(make_call("b")).add(ContextCompacted(3, how="mask")).shown_messages[2]
    assert isinstance(result, ToolResults)
    assert result.items[0].result.kind == "error"
    assert all(isinstance(part, TextPart) for part in result.items[0].result.content)


def test_a_mask_stays_while_the_window_moves_on() -> None:
    """X1: any sequence."""
    story = (
        two_steps().do_step(make_call("c"), text=f"{LONG}!").add(ContextCompacted(7, how="mask"))
    )
    story.add(ContextCompacted(5, "[…]"))
    texts = [
        one.items[0].result.text for one in story.shown_messages if isinstance(one, ToolResults)
    ]
    assert [text == f"{LONG}!" for text in texts] == [False, True]
    story.check_refused(ContextCompacted(6, how="mask"))
    assert fold(SESSION, story.facts) == story.state


# ── what a person says meanwhile ─────────────────────────────────────────────


def test_what_is_said_before_a_request_goes_with_it() -> None:
    story = Story().start_run().do_step(make_call("a")).steer("By the way.")
    story.expect_move(TakeSteering)
    assert story.add(SteeringTaken()).shown_messages[-1] == BY_THE_WAY
    story.check_refused(SteeringTaken())


def test_what_is_said_during_a_request_goes_with_the_next_one() -> None:
    story = Story().start_run().start_attempt().steer("By the way.")
    story.check_refused(SteeringTaken())
    story.end_run("cancelled")
    again = Story().start_run().take_calls(make_call("a")).steer("By the way.")
    again.expect_move(JudgeCalls)
    again.check_refused(SteeringTaken())
    again.allow_calls("a").start_calls("a").finish_calls("a").expect_move(TakeSteering)


def test_what_is_said_during_the_last_reply_is_answered() -> None:
    """A reply that came before it was heard is not the last one."""
    story = Story().start_run().take_reply("Hi.").steer("By the way.")
    story.expect_move(TakeSteering)
    story.add(SteeringTaken()).expect_move(RequestReply)
    assert story.shown_messages[-2:] == [
        AssistantMessage((TextPart("Hi."),), "test:model"),
        BY_THE_WAY,
    ]
    assert story.take_reply("I see.").outcome == "completed"


@pytest.mark.parametrize("stop", ["length", "refusal"])
def test_what_is_said_goes_on_after_a_reply_that_would_have_ended_the_run(stop: str) -> None:
    story = Story().start_run().take_reply("I will", stop=stop).steer("By the way.")  # pyright: ignore[reportArgumentType]
    assert story.add(SteeringTaken()).take_reply("I see.").outcome == "completed"


def test_a_reply_is_judged_before_what_was_said_is_heard() -> None:
    """G1: every final reply passes the gate, also one that is not the last."""
    story = Story(judge_replies=True).start_run().take_reply("Hi.").steer("By the way.")
    story.expect_move(JudgeReply)
    story.add(ReplyJudged(Allow())).expect_move(TakeSteering)
    denied = Story(judge_replies=True).start_run().take_reply("Rude.").steer("By the way.")
    denied.add(ReplyJudged(Deny("rude"))).expect_move(TakeSteering)


def test_what_is_said_while_a_question_waits_is_kept() -> None:
    """G6: and moves no clock."""
    story = Story().start_run().take_calls(make_call("a")).add(CallJudged("a", Ask("May I?")))
    before = story.run.elapsed_s
    story.steer("By the way.").expect_move(WaitForAnswers)
    assert story.run.elapsed_s == before


def test_what_was_said_in_parts_is_heard_together_in_order() -> None:
    story = Story().start_run().steer("One.").steer("Two.").add(SteeringTaken())
    assert story.shown_messages[-2:] == [user("One."), user("Two.")]
    assert story.run.pending == ()


@pytest.mark.parametrize("how", ["idle", "asking", "in a step", "replied"])
def test_what_was_said_too_late_is_in_the_next_run(how: str) -> None:
    """It is never lost at the end of a run, and the next request is valid."""
    story = Story().start_run()
    match how:
        case "asking":
            story.start_attempt()
        case "in a step":
            story.take_calls(make_call("a")).allow_calls("a").start_calls("a")
        case "replied":
            story.take_reply("Hi.")
        case _:
            pass
    story.steer("By the way.").end_run("cancelled").start_run("Go on.")
    assert story.run.pending == ()
    assert [one for one in story.shown_messages if one == BY_THE_WAY] == [BY_THE_WAY]
    check_prompt(story.expect_move(RequestReply).prompt)


def test_at_the_cap_what_was_said_waits_for_the_next_run() -> None:
    """L7: a cap of N steps is exactly N replies, whoever says what."""
    story = Story(limits=Limits(steps=1)).start_run().do_step(make_call("a")).steer("By the way.")
    assert story.outcome == "max_steps"
    landing = (
        Story(limits=Limits(steps=1), rules=LoopPolicy(on_limit="answer"))
        .start_run()
        .do_step(make_call("a"))
    )
    landing.start_attempt(landing=True).add(
        *Story().start_run().take_reply("So.").facts[-1:]
    ).steer("By the way.")
    landing.expect_move(EndRun)


# ── what was looked up and recalled ──────────────────────────────────────────


def test_what_a_prompt_speaks_of_is_looked_up_once_by_calls_of_other_ids() -> None:
    """X4, J1."""
    twice = LookupsPlanned((make_call("h1_0"), make_call("h1_0")))
    assert "two calls have one id" in Story().start_run().check_refused(twice)
    assert "before the first step" in Story().start_run().check_refused(LookupsPlanned(()))
    story = Story().start_run().add(LookupsPlanned((make_call("h1_0"),)))
    story.end_run("cancelled")
    assert "h1_0" in story.state.transcript[-1].text  # pyright: ignore[reportAttributeAccessIssue]
    check_prompt(story.start_run("Go on.").expect_move(RequestReply).prompt)


def test_what_is_recalled_stands_beside_the_prompt_in_this_run_alone() -> None:
    """K1: in the view only, so that it is not kept in the conversation."""
    story = (
        Story(recalls=True)
        .start_run("Where?")
        .add(KnowledgeRecalled("It is in Rome.", ("private",)))
    )
    assert story.shown_messages == [user("Where?"), noted("It is in Rome.")]
    assert list(story.state.transcript) == [user("Where?")]
    story.do_step(make_call("a"))
    assert story.shown_messages[1] == noted("It is in Rome.")
    story.take_reply("Rome.").end_run("completed").start_run("And?").add(KnowledgeRecalled(""))
    assert noted("It is in Rome.") not in story.shown_messages
    assert story.state.shown == story.state.transcript
    assert story.state.labels == {"private"}
    assert story.state.sources == (("private", "what was recalled"),)


@pytest.mark.parametrize("upto", [1, 3])
def test_what_is_recalled_stays_when_the_view_is_made_shorter(upto: int) -> None:
    """K1, X2: it is shown for the whole of its run."""
    story = Story(recalls=True).start_run("Where?").add(KnowledgeRecalled("It is in Rome."))
    story.do_step(make_call("a"), text=LONG).do_step(make_call("b"), text=LONG).add(
        ContextCompacted(upto, "[…]")
    )
    assert story.shown_messages[:3] == [noted("[…]"), user("Where?"), noted("It is in Rome.")]
    assert story.add(ContextCompacted(4, how="mask")).shown_messages[:3] == [
        noted("[…]"),
        user("Where?"),
        noted("It is in Rome."),
    ]
    assert story.state.size == sum(map(message_tokens_max, story.state.shown))
    check_prompt(story.expect_move(RequestReply).prompt)


@pytest.mark.parametrize("nothing", ["", "  \n"])
def test_nothing_known_is_not_shown(nothing: str) -> None:
    """X1: no provider takes an empty message."""
    story = Story(recalls=True).start_run("Where?").add(KnowledgeRecalled(nothing, ("private",)))
    assert story.shown_messages == [user("Where?")]
    assert story.state.labels == frozenset()
    assert story.state.shown is story.state.transcript


def test_a_set_up_that_looks_nothing_up_asks_at_once() -> None:
    Story(make_setup()).start_run("See notes.md").expect_move(RequestReply)


def test_how_much_a_mask_saves() -> None:
    """X3: only results can be masked."""
    story = two_steps()
    _, reply, _, _, results, *_ = story.state.transcript
    assert mask_saving(reply) == 0
    assert len(LONG) - 150 < mask_saving(results) < len(LONG)
    masked = story.add(ContextCompacted(5, how="mask")).state.size
    assert masked == two_steps().state.size - len(LONG) + 62


def test_a_summary_takes_the_place_of_what_it_sums_up_and_is_paid() -> None:
    """X2."""
    story = two_steps().add(
        AttemptStarted(3, 1, "test:model", Reservation(9, 9), purpose="compaction")
    )
    charge = make_charge(9, 3)
    story.add(ContextCompacted(5, "Goals: none.", "summary", charge))
    assert story.run.ledger.charges == (charge,)
    assert story.shown_messages[:2] == [noted("Goals: none."), user("Second.")]


def test_it_is_recalled_once() -> None:
    """K1, J1."""
    story = Story(recalls=True).start_run().add(KnowledgeRecalled("It is known."))
    assert "recalled once" in story.check_refused(KnowledgeRecalled("It is known."))
    assert "recalled once" in Story().start_run().do_step(make_call("a")).check_refused(
        KnowledgeRecalled("Too late.")
    )
