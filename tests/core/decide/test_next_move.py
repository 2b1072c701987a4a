"""What to do next, decided from what is on record."""

import dataclasses
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from facts import MODEL, PRICE, SESSION, Story, failed_attempt, make_call, make_charge, make_spec
from windlass.core.decide.next_move import decide
from windlass.core.decide.scheduling import REPEAT_NOTE
from windlass.core.errors import Fault
from windlass.core.events import (
    CallJudged,
    CallWaiting,
    KnowledgeRecalled,
    LookupsPlanned,
    NoteGiven,
    Outcome,
    ReplyJudged,
    Reservation,
    SteeringTaken,
    StopReason,
)
from windlass.core.limits import Budget, Limits
from windlass.core.messages import (
    AssistantMessage,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResults,
    UserMessage,
)
from windlass.core.moves import (
    Compact,
    DrawBudget,
    EndRun,
    JudgeCalls,
    JudgeReply,
    LookUp,
    RecallKnowledge,
    RemindModel,
    RequestReply,
    RunCalls,
    Summarize,
    TakeSteering,
    WaitForAnswers,
)
from windlass.core.setup import Compaction, Hydration, LoopPolicy, ModelInfo, Reference, RetryPolicy
from windlass.core.verdicts import Allow, Ask, Deny, InvalidCall, OutputMismatch

ANSWER = LoopPolicy(on_limit="answer")
NOTE = NoteGiven("You go round in circles.", "same_call")


def steps(story: Story, count: int) -> Story:
    """So many steps, each with a call of its own."""
    for _ in range(count):
        number = story.state.steps
        story.do_step(make_call(f"c{number}", "look", f'{{"n": {number}}}'))
    return story


def same(story: Story, count: int) -> Story:
    """So many steps that make the same call and get the same result."""
    for _ in range(count):
        story.do_step(make_call(f"c{story.state.steps}"))
    return story


# ── the phases ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "story", [Story(), Story().start_run().end_run()], ids=["no run", "a run that ended"]
)
def test_without_an_open_run_there_is_nothing_to_decide(story: Story) -> None:
    with pytest.raises(ValueError, match="no run is open"):
        decide(story.state)


def test_a_prompt_is_put_to_the_model() -> None:
    """L1: the next command is a pure function of state."""
    story = Story().start_run("Hello")
    move = story.expect_move(RequestReply)
    assert list(move.prompt.messages) == [UserMessage((TextPart("Hello"),))]
    assert (move.step, move.attempt, move.wait_s, move.landing, move.must_discard) == (
        1,
        1,
        0.0,
        False,
        False,
    )
    assert decide(story.state) == move


def test_the_number_of_a_step_is_the_sessions() -> None:
    """S9: call ids made from it are unique in a session."""
    story = steps(Story().start_run(), 2).take_reply("Done.").end_run("completed").start_run()
    assert story.expect_move(RequestReply).step == 4


def test_calls_are_gated_before_anything_runs() -> None:
    """L2, E6: Reason → Gate → Act, in the model's order."""
    story = Story().start_run().take_calls(make_call("a"), make_call("b", "nonesuch"))
    move = story.expect_move(JudgeCalls)
    assert [(one.call.id, one.spec) for one in move.calls] == [
        ("a", make_spec("look")),
        ("b", None),
    ]
    assert move.tools == story.setup.tools
    story.allow_calls("a").add(CallJudged("b", InvalidCall("unknown_tool", "no such tool")))
    assert story.next_call_ids == ["a"]


def test_a_resumed_gate_judges_only_what_was_not_judged() -> None:
    """J4: a verdict on record is not asked for again."""
    story = Story().start_run().take_calls(make_call("a"), make_call("b")).allow_calls("a").resume()
    assert [one.call.id for one in story.expect_move(JudgeCalls).calls] == ["b"]


@pytest.mark.parametrize("stop", ["end", "calls", "length", "refusal"])
def test_calls_win_over_the_stop_reason(stop: StopReason) -> None:
    """L9; R2: the arguments of a reply that ended by length may be cut."""
    story = Story().start_run().take_reply("Look:", make_call("a"), stop=stop)
    (proposed,) = story.expect_move(JudgeCalls).calls
    assert proposed.maybe_cut_off is (stop == "length")


def test_the_run_waits_until_every_question_is_answered() -> None:
    """G6: `ask` suspends, and nothing of the step runs meanwhile."""
    story = Story().start_run().take_calls(make_call("a"), make_call("b"), make_call("c"))
    story.add(CallJudged("a", Ask("May a?")), CallJudged("c", Ask("May c?"))).allow_calls("b")
    assert [(one.id, ask.question) for one, ask in story.expect_move(WaitForAnswers).questions] == [
        ("a", "May a?"),
        ("c", "May c?"),
    ]


def test_what_may_run_is_handed_over_with_its_rules() -> None:
    rules = LoopPolicy(calls_at_once_max=2, on_unknown="ask")
    move = (
        Story(rules=rules)
        .start_run()
        .take_calls(make_call("a"))
        .allow_calls("a")
        .expect_move(RunCalls)
    )
    assert (move.at_once_max, move.ask_if_unknown) == (2, True)
    (cleared,) = move.calls
    assert (cleared.key, cleared.spec, cleared.interrupted) == (
        f"{SESSION}/a",
        make_spec("look"),
        False,
    )


def test_the_answer_ends_the_run() -> None:
    move = Story().start_run().take_reply("Hi.").expect_move(EndRun)
    assert (move.outcome, move.reason, move.fault) == ("completed", "", None)


def test_a_cleared_call_cannot_be_changed() -> None:
    """L2: a phase is made by the phase before it and by nothing else."""
    cleared = Story().start_run().take_calls(make_call("a")).allow_calls("a").next_call
    with pytest.raises((TypeError, ValueError), match="seal"):
        dataclasses.replace(cleared, arguments={"rm": "-rf"})
    with pytest.raises(dataclasses.FrozenInstanceError):
        cleared.key = "another"  # pyright: ignore[reportAttributeAccessIssue]


# ── waves ────────────────────────────────────────────────────────────────────


def wave(*calls: tuple[str, str | None]) -> list[str]:
    """The names of the calls that run first; each call is a tool and its resource."""
    proposed = [make_call(f"c{at}", name) for at, (name, _) in enumerate(calls)]
    story = Story().start_run().take_calls(*proposed)
    for at, (_, resource) in enumerate(calls):
        story.add(CallJudged(f"c{at}", Allow(), resource=resource))
    return story.next_call_ids


@pytest.mark.parametrize(
    ("calls", "first"),
    [
        ([("look", None)] * 7, 7),
        ([("look", "x"), ("look", "x")], 2),
        ([("send", None), ("send", None)], 1),
        ([("send", None), ("look", None)], 1),
        ([("look", None), ("look", None), ("send", None), ("look", None)], 2),
        ([("send", "x"), ("send", "y")], 2),
        ([("send", "x"), ("send", "x")], 1),
        ([("send", "x"), ("send", None)], 1),
        ([("send", "x"), ("look", "y")], 2),
        ([("send", "x"), ("look", "x")], 1),
        ([("look", None), ("send", "x")], 1),
        ([("send", "x"), ("look", "y"), ("send", "y"), ("look", "z")], 2),
        ([("touch", None), ("touch", None)], 1),
        ([("nonesuch", None), ("look", None)], 1),
    ],
)
def test_what_runs_side_by_side(calls: Sequence[tuple[str, str | None]], first: int) -> None:
    """T2: reads together; a write alone, unless calls name different resources."""
    assert wave(*calls) == [f"c{at}" for at in range(first)]


def test_a_write_waits_for_all_before_it() -> None:
    """T2."""
    story = (
        Story()
        .start_run()
        .take_calls(make_call("r1"), make_call("r2"), make_call("w", "send"), make_call("r3"))
    )
    story.allow_calls("r1", "r2", "w", "r3").start_calls("r1", "r2").finish_calls("r2").resume()
    assert story.next_call_ids == ["r1"]
    assert story.start_calls("r1").finish_calls("r1").next_call_ids == ["w"]
    assert story.start_calls("w").finish_calls("w").next_call_ids == ["r3"]


def test_a_denied_call_does_not_hold_up_the_others() -> None:
    """T8."""
    story = Story().start_run().take_calls(make_call("r1"), make_call("w", "send"), make_call("r2"))
    story.allow_calls("r1", "r2").add(CallJudged("w", Deny("no")))
    assert story.next_call_ids == ["r1", "r2"]


# ── limits ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("cap", [1, 2, 7])
def test_a_cap_of_n_steps_is_exactly_n_replies(cap: int) -> None:
    """L7."""
    story = steps(Story(limits=Limits(steps=cap)).start_run(), cap - 1)
    story.expect_move(RequestReply)
    assert steps(story, 1).outcome == "max_steps"
    assert story.run.steps == cap


def test_a_cap_counts_from_the_start_of_its_run() -> None:
    story = steps(Story(limits=Limits(steps=2)).start_run(), 2).end_run("max_steps").start_run()
    story.expect_move(RequestReply)


def test_no_cap_is_no_cap() -> None:
    """L7: None means no limit."""
    steps(Story(limits=Limits(steps=None)).start_run(), 60).expect_move(RequestReply)


def test_the_default_cap_is_25() -> None:
    """L7."""
    assert Limits().steps == 25


def test_an_answer_at_the_cap_is_an_answer() -> None:
    story = Story(limits=Limits(steps=1)).start_run().take_reply("Hi.")
    assert story.outcome == "completed"


def test_at_the_cap_one_more_reply_may_be_asked_for_without_tools() -> None:
    """L8: `on_limit="answer"` makes one more call with tools switched off."""
    story = steps(Story(limits=Limits(steps=2), rules=ANSWER).start_run(), 2)
    move = story.expect_move(RequestReply)
    assert (move.landing, move.prompt.tool_choice) == (True, "none")
    story.start_attempt(landing=True).add(failed_attempt())
    assert story.expect_move(RequestReply).landing
    assert story.take_reply("In short: no.").outcome == "max_steps"
    assert (story.run.text, story.run.steps) == ("In short: no.", 3)


def landed(*parts: TextPart | ToolCall, **settings: Any) -> Story:
    """The reply that was asked for at the cap."""
    story = steps(Story(limits=Limits(steps=1), rules=ANSWER, **settings).start_run(), 1)
    story.start_attempt(landing=True).add(failed_attempt())
    return story.take_reply(*parts)


def test_calls_after_the_cap_do_not_run() -> None:
    """L8: and the next request is valid all the same."""
    story = landed(TextPart("One more:"), make_call("late", "send"))
    assert story.outcome == "max_steps"
    story.end_run("max_steps")
    results = story.state.transcript[-1]
    assert isinstance(results, ToolResults)
    assert "had not started" in results.items[0].result.text
    assert story.run.text == "One more:"


def test_silence_after_the_cap_ends_the_run() -> None:
    """L7, L8: one more call, and not two."""
    assert landed().outcome == "max_steps"


def test_an_unfit_reply_after_the_cap_ends_the_run() -> None:
    story = landed(TextPart("Hm."), judge_replies=True)
    story.expect_move(JudgeReply)
    assert story.add(ReplyJudged(OutputMismatch("no"))).outcome == "max_steps"


def test_the_time_limit_counts_time_at_work() -> None:
    """L7, C5."""
    story = Story(limits=Limits(seconds=10.0)).start_run().start_attempt()
    story.add(failed_attempt(), after_s=8.9)
    story.expect_move(RequestReply)
    assert story.fail_attempt(failed_attempt(), after_s=0.1).outcome == "timed_out"


def test_a_run_is_not_timed_out_by_waiting() -> None:
    """G6: neither a person who thinks for days nor a machine that is switched off counts."""
    story = Story(limits=Limits(seconds=10.0)).start_run().start_attempt().resume(after_s=1e6)
    story.take_calls(make_call("a")).add(CallJudged("a", Ask("May I?")))
    assert story.resume(after_s=1e6).expect_move(WaitForAnswers)


def test_a_request_that_does_not_fit_is_not_made() -> None:
    """B2: a call that cannot fit is not made."""
    story = Story(limits=Limits(tokens=10)).start_run()
    assert story.outcome == "budget_exceeded"


def test_the_output_cap_is_lowered_to_what_is_left() -> None:
    """B2: reserved before the call."""
    model = ModelInfo(MODEL, PRICE, output_max=1_000_000)
    limits = Limits(usd=Decimal("0.01"))
    move = Story(model=model, limits=limits).start_run().expect_move(RequestReply)
    assert move.prompt.output_max == move.reserved.output < 1_000
    assert move.reserved.usd is not None
    assert move.reserved.usd <= Decimal("0.01")


def test_the_reply_that_ends_a_budget_is_kept() -> None:
    """B3: what was paid is stored and returned."""
    story = Story(limits=Limits(tokens=5_000)).start_run()
    story.take_reply("Look:", make_call("a"), charge=make_charge(4_000, 1_000)).allow_calls(
        "a"
    ).start_calls("a")
    story.finish_calls("a")
    assert story.outcome == "budget_exceeded"
    assert story.run.text == "Look:"
    assert isinstance(story.state.transcript[-1], ToolResults)


def test_an_answer_that_uses_the_budget_up_completes() -> None:
    """B3."""
    story = (
        Story(limits=Limits(tokens=5_000))
        .start_run()
        .take_reply("Hi.", charge=make_charge(4_000, 1_000))
    )
    assert story.outcome == "completed"


def test_an_interrupted_attempt_counts_as_reserved_after_a_resume() -> None:
    """B2: the limit holds however often a driver dies."""
    story = (
        Story(limits=Limits(tokens=1_000)).start_run().start_attempt(Reservation(400, 600)).resume()
    )
    assert story.outcome == "budget_exceeded"


# ── what a reply means ───────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("stop", "text", "outcome"),
    [
        ("end", "Hi.", "completed"),
        ("calls", "Hi.", "completed"),
        ("length", "Once upon", "truncated"),
        ("length", "", "truncated"),
        ("refusal", "I will not.", "refused"),
        ("refusal", "", "refused"),
    ],
)
def test_a_reply_without_calls_ends_the_run(stop: StopReason, text: str, outcome: Outcome) -> None:
    """L4."""
    parts = (text,) if text else ()
    assert Story().start_run().take_reply(*parts, stop=stop).outcome == outcome


@pytest.mark.parametrize("parts", [(), (ThinkingPart("Hm."),)], ids=["nothing", "only thinking"])
def test_an_empty_reply_is_asked_for_once_more(parts: tuple[ThinkingPart, ...]) -> None:
    """L10."""
    story = Story().start_run().take_reply(*parts)
    story.expect_move(RequestReply)
    assert story.take_reply(*parts).outcome == "empty_reply"


def test_an_answer_after_an_empty_reply_completes() -> None:
    assert Story().start_run().take_reply().take_reply("Hi.").outcome == "completed"


def test_a_reply_of_blanks_is_empty() -> None:
    """L10: it says nothing, and there are providers that do not take it back."""
    Story().start_run().take_reply("\n\n").expect_move(RequestReply)


def test_an_empty_reply_long_after_another_is_asked_for_once_more_as_well() -> None:
    """L10: an empty reply is asked again once; a step with work between them is an answer."""
    steps(Story().start_run().take_reply(), 3).take_reply().expect_move(RequestReply)


def test_replies_are_heard_only_if_someone_judges_them() -> None:
    """G1: every final reply passes the gate."""
    story = Story(judge_replies=True).start_run().take_reply("Hi.")
    assert story.expect_move(JudgeReply).reply == AssistantMessage((TextPart("Hi."),), MODEL)
    assert story.add(ReplyJudged(Allow())).outcome == "completed"


@pytest.mark.parametrize("stop", ["length", "refusal"])
def test_every_final_text_is_heard_however_it_stopped(stop: StopReason) -> None:
    """G1, G3: its text would be in the result all the same."""
    Story(judge_replies=True).start_run().take_reply("The password is", stop=stop).expect_move(
        JudgeReply
    )


def test_denied_replies_end_the_run_after_three() -> None:
    """G3: ends as `policy_denied` after 3."""
    story = Story(judge_replies=True).start_run()
    for _ in range(3):
        story.expect_move(RequestReply)
        story.take_reply("Rude.").add(ReplyJudged(Deny("rude")))
    assert story.outcome == "policy_denied"
    assert story.run.text == ""


def test_misfits_are_bounded() -> None:
    story = Story(judge_replies=True).start_run()
    for _ in range(3):
        story.expect_move(RequestReply)
        story.take_reply("three").add(ReplyJudged(OutputMismatch("not a number")))
    move = story.expect_move(EndRun)
    assert move.outcome == "failed"
    assert move.fault is not None
    assert move.fault.kind == "output_misfit"


# ── going round in circles ───────────────────────────────────────────────────


def test_the_third_same_call_gets_a_note() -> None:
    """L11."""
    story = same(Story().start_run(), 2)
    story.expect_move(RequestReply)
    note = same(story, 1).expect_move(RemindModel)
    assert (note.text, note.why) == (REPEAT_NOTE, "same_call")
    story.add(NoteGiven(note.text, "same_call"))
    assert story.shown_messages[-1] == UserMessage((TextPart(note.text),), note=True)


def same_write(story: Story, count: int) -> Story:
    for _ in range(count):
        story.do_step(make_call(f"w{story.state.seq}", "send"), text="sent")
    return story


def test_the_second_same_write_gets_a_note() -> None:
    """L11: a write has its effect each time, so the note comes one call sooner."""
    story = same_write(Story(tools=(make_spec("send", effect="write"),)).start_run(), 1)
    story.expect_move(RequestReply)
    assert same_write(story, 1).expect_move(RemindModel).text == REPEAT_NOTE


def test_a_refused_reply_is_told_to_the_model_once() -> None:
    """S17: by a note, and then it is asked again within its attempts."""
    fault = Fault("malformed_stream", "400", retryable=True, note="You called it wrongly.")
    refused = msgspec.structs.replace(failed_attempt(established=True), fault=fault)
    story = Story().start_run().fail_attempt(refused)
    for attempt in range(2, 7):
        note = story.expect_move(RemindModel)
        assert (note.text, note.why) == ("You called it wrongly.", "refused_reply")
        story.add(NoteGiven(note.text, note.why))
        assert story.shown_messages[-1] == UserMessage((TextPart(note.text),), note=True)
        assert story.expect_move(RequestReply).attempt == attempt
        story.fail_attempt(refused)
    assert story.outcome == "failed"


def test_two_more_end_the_run_as_stuck() -> None:
    """L11: two more after the note."""
    story = same(same(Story().start_run(), 3).add(NOTE), 1)
    story.expect_move(RequestReply)
    assert same(story, 1).outcome == "stuck"


def test_both_numbers_are_settings() -> None:
    """L11."""
    story = same(Story(rules=LoopPolicy(same_call_note=1, same_call_stop=1)).start_run(), 1)
    story.expect_move(RemindModel)
    assert same(story.add(NOTE), 1).outcome == "stuck"


def test_another_call_starts_a_new_count_with_a_new_note() -> None:
    story = steps(same(Story().start_run(), 3).add(NOTE), 1)
    assert same(story, 3).expect_move(RemindModel)


def test_many_of_the_same_calls_in_one_reply_earn_a_note_first() -> None:
    """L11: the model is told before it is stopped, and two more end the run."""
    story = Story().start_run().do_step(*(make_call(f"c{at}") for at in range(7)))
    story.add(NoteGiven(story.expect_move(RemindModel).text, "same_call")).do_step(make_call("d"))
    story.expect_move(RequestReply)
    assert story.do_step(make_call("e")).outcome == "stuck"


# ── failures ─────────────────────────────────────────────────────────────────


def test_a_failed_attempt_is_made_again_after_its_wait() -> None:
    """S5: a failure before anything visible is retried."""
    move = Story().start_run().fail_attempt(failed_attempt(wait_s=3.0)).expect_move(RequestReply)
    assert (move.attempt, move.wait_s, move.must_discard, move.step) == (2, 3.0, False, 1)


@pytest.mark.parametrize(("established", "requests"), [(False, 4), (True, 6)])
def test_a_step_is_asked_for_so_many_times(established: bool, requests: int) -> None:  # noqa: FBT001
    """S3: 4 requests while none opened a stream, 6 in all; one counter per step."""
    story = Story().start_run()
    for attempt in range(1, requests + 1):
        assert story.expect_move(RequestReply).attempt == attempt
        story.fail_attempt(failed_attempt(established=established))
    move = story.expect_move(EndRun)
    assert (move.outcome, move.fault) == ("failed", story.run.failures[-1].fault)


def test_the_counter_starts_again_with_the_next_step() -> None:
    """S3: per step."""
    story = Story().start_run()
    for _ in range(3):
        story.fail_attempt(failed_attempt())
    assert steps(story, 1).expect_move(RequestReply).attempt == 1
    assert story.fail_attempt(failed_attempt()).expect_move(RequestReply).attempt == 2


def test_a_failure_that_asking_again_cannot_mend_ends_the_run() -> None:
    """S2: each class knows `retryable`."""
    assert (
        Story().start_run().fail_attempt(failed_attempt("auth", retryable=False)).outcome
        == "failed"
    )


def test_visible_text_ends_the_run_if_so_chosen() -> None:
    """S6: `on_partial="fail"` keeps the partial text, and the error names the other choice."""
    story = Story(rules=LoopPolicy(on_partial="fail")).start_run()
    story.fail_attempt(failed_attempt(visible=True, established=True, partial="Once"))
    assert story.outcome == "failed"
    assert story.run.partial == "Once"
    assert 'on_partial="restart"' in story.expect_move(EndRun).reason


def test_an_error_names_no_setting_that_would_not_have_helped() -> None:
    """S6: a wrong key is not worth another attempt, whatever was shown."""
    story = Story(rules=LoopPolicy(on_partial="fail")).start_run()
    story.fail_attempt(failed_attempt("auth", retryable=False, visible=True, established=True))
    assert "on_partial" not in story.expect_move(EndRun).reason


def test_visible_text_may_be_taken_back() -> None:
    """S6: by default watchers are told to drop what they showed."""
    story = Story().start_run()
    story.fail_attempt(failed_attempt(visible=True, established=True, partial="Once"))
    assert story.expect_move(RequestReply).must_discard
    assert (
        not story.fail_attempt(failed_attempt(established=True))
        .expect_move(RequestReply)
        .must_discard
    )


def test_text_that_nobody_saw_is_asked_for_again() -> None:
    """S6: without a watcher a broken stream always restarts."""
    story = Story().start_run().fail_attempt(failed_attempt(established=True, partial="Once"))
    assert not story.expect_move(RequestReply).must_discard


def test_the_time_for_retries_starts_again_with_the_next_step() -> None:
    """S3: one time budget for all retries of a step, and of no other."""
    story = (
        Story(retries=RetryPolicy(budget_s=300.0))
        .start_run()
        .fail_attempt(failed_attempt(), after_s=250.0)
    )
    steps(story, 1).fail_attempt(failed_attempt(), after_s=250.0).expect_move(RequestReply)
    assert story.fail_attempt(failed_attempt(), after_s=50.0).outcome == "failed"


def test_the_time_for_retries_does_not_pass_between_two_drivers() -> None:
    """S3, G6: a run resumed a day later still has its retries."""
    story = (
        Story(retries=RetryPolicy(budget_s=300.0))
        .start_run()
        .start_attempt()
        .resume(after_s=86_400.0)
    )
    story.fail_attempt(failed_attempt()).expect_move(RequestReply)


# ── tools and their choice ───────────────────────────────────────────────────


@pytest.mark.parametrize("choice", ["required", "look"])
def test_a_choice_holds_until_it_is_met_once(choice: str) -> None:
    """L12: then `auto`."""
    story = Story(rules=LoopPolicy(tool_choice=choice)).start_run()
    assert story.expect_move(RequestReply).prompt.tool_choice == choice
    story.fail_attempt(failed_attempt())
    assert story.take_reply().expect_move(RequestReply).prompt.tool_choice == choice
    assert story.do_step(make_call("a")).expect_move(RequestReply).prompt.tool_choice == "auto"


def test_a_choice_counts_anew_in_the_next_run() -> None:
    story = (
        Story(rules=LoopPolicy(tool_choice="required"))
        .start_run()
        .do_step(make_call("a"))
        .end_run()
        .start_run()
    )
    assert story.expect_move(RequestReply).prompt.tool_choice == "required"


def test_a_choice_by_name_is_not_met_by_another_tool() -> None:
    """L12: by name holds until it is satisfied."""
    story = Story(rules=LoopPolicy(tool_choice="look")).start_run().do_step(make_call("a", "send"))
    assert story.expect_move(RequestReply).prompt.tool_choice == "look"


def test_the_tools_stay_the_same_for_a_run() -> None:
    """L13: the same set rules what is visible and what may be dispatched."""
    story = Story().start_run()
    assert story.expect_move(RequestReply).prompt.tools == story.setup.tools
    assert story.take_calls(make_call("a")).expect_move(JudgeCalls).tools == story.setup.tools


# ── what comes before a request ──────────────────────────────────────────────


def test_first_what_is_known_then_what_is_named_then_the_request() -> None:
    """X4, K1: once, before the first step."""
    hydration = Hydration(references=(Reference(r"#(\d+)", "look", "id"),))
    story = Story(recalls=True, hydration=hydration).start_run("What of #7?")
    assert story.expect_move(RecallKnowledge).text == "What of #7?"
    (named,) = story.add(KnowledgeRecalled("")).expect_move(LookUp).calls
    assert (named.id, named.name, named.arguments) == ("h1_0", "look", '{"id":"7"}')
    story.add(LookupsPlanned((named,))).allow_calls("h1_0").start_calls("h1_0").finish_calls("h1_0")
    assert story.expect_move(RequestReply).step == 1
    story.fail_attempt(failed_attempt()).expect_move(RequestReply)


def test_what_a_failed_request_left_open_is_not_looked_up_anew() -> None:
    story = (
        Story(recalls=True).start_run().add(KnowledgeRecalled("")).fail_attempt(failed_attempt())
    )
    story.expect_move(RequestReply)


def test_the_view_is_made_shorter_before_anything_is_drawn_or_said() -> None:
    """X2, B1: shorten, draw, heed, remind, ask."""
    window = Compaction(window=400, strategies=("mask", "summary", "window"))
    story = Story(compaction=window, budgets=(Budget("team", tokens=10**6),))
    story.start_run("Do it.").do_step(make_call("a"), text="much " * 80).do_step(
        make_call("b"), text="more " * 250
    )
    story.do_step(make_call("c"), text="more " * 250).do_step(
        make_call("d"), text="more " * 250
    ).steer("Wait.")
    assert story.expect_move(Compact).how == "mask"
    story.compact()
    assert story.expect_move(DrawBudget).budget.name == "team"
    assert story.draw_budget().expect_move(Summarize).upto == 7
    story.take_summary()
    story.expect_move(TakeSteering)
    story.add(SteeringTaken()).expect_move(RemindModel)
    story.add(NoteGiven(story.expect_move(RemindModel).text, "same_call")).expect_move(DrawBudget)
    story.draw_budget().expect_move(RequestReply)


def test_a_window_is_left_with_a_note_and_a_summary_asked_for_within_what_is_left() -> None:
    """X2, B2."""
    tight, prompt = Limits(tokens=1_900), "Go. " * 99
    window = Compaction(window=200, target=0.3, strategies=("window",))
    story = steps(Story(compaction=window, limits=tight).start_run(prompt), 9)
    assert "earlier messages were left out" in story.expect_move(Compact).note
    summary = Compaction(window=200, target=0.3, strategies=("summary",))
    move = steps(Story(compaction=summary, limits=tight).start_run(prompt), 9).expect_move(
        Summarize
    )
    assert move.prompt.output_max == move.reserved.output
    assert move.reserved.input + move.reserved.output <= 1_900


@pytest.mark.contract("D12")
def test_a_call_that_had_to_wait_for_another_does_not_begin_while_a_sub_agent_waits() -> None:
    """The run is on record as waiting, and its row and its watchers say so."""
    story = Story().start_run().take_calls(*(make_call(one, "send") for one in "abc"))
    resources = {"a": "account", "b": "task", "c": "account"}
    story.add(*(CallJudged(one, Allow(), resource=name) for one, name in resources.items()))
    assert story.next_call_ids == ["a", "b"]
    story.start_calls("a", "b").finish_calls("a").add(CallWaiting("b", f"{SESSION}/b"))
    assert story.state.is_waiting
    assert [call.id for call in story.expect_move(WaitForAnswers).waiting] == ["b"]
