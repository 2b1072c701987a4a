"""What to do next, decided from what is on record."""

import dataclasses
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from facts import MODEL, PRICE, SESSION, Story, broken, call, paid, tool
from windlass.core.context import Compaction, Hydration, Reference
from windlass.core.decide.next_move import decide
from windlass.core.events import (
    CallJudged,
    Heeded,
    Hydrated,
    NoteGiven,
    Outcome,
    Recalled,
    ReplyJudged,
    Reservation,
    Stop,
)
from windlass.core.limits import Budget, Limits
from windlass.core.messages import Assistant, Results, Text, Thinking, ToolCall, User
from windlass.core.moves import (
    Act,
    Draw,
    Finish,
    Gate,
    Hear,
    Heed,
    Hold,
    Hydrate,
    Reason,
    Recall,
    Remind,
    Shrink,
    Summarise,
)
from windlass.core.setup import ModelInfo, Retries, Rules
from windlass.core.verdicts import Allow, Ask, Deny, Invalid, Misfit

ANSWER = Rules(on_limit="answer")
NOTE = NoteGiven("You go round in circles.", "same_call")


def steps(story: Story, count: int) -> Story:
    """So many steps, each with a call of its own."""
    for _ in range(count):
        number = story.state.steps
        story.did(call(f"c{number}", "look", f'{{"n": {number}}}'))
    return story


def same(story: Story, count: int) -> Story:
    """So many steps that make the same call and get the same result."""
    for _ in range(count):
        story.did(call(f"c{story.state.steps}"))
    return story


# ── the phases ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "story", [Story(), Story().asked().ended()], ids=["no run", "a run that ended"]
)
def test_without_an_open_run_there_is_nothing_to_decide(story: Story) -> None:
    with pytest.raises(ValueError, match="no run is open"):
        decide(story.state)


def test_a_prompt_is_put_to_the_model() -> None:
    """L1: the next command is a pure function of state."""
    story = Story().asked("Hello")
    move = story.go(Reason)
    assert list(move.prompt.messages) == [User((Text("Hello"),))]
    assert (move.step, move.attempt, move.wait_s, move.landing, move.discard) == (
        1,
        1,
        0.0,
        False,
        False,
    )
    assert decide(story.state) == move


def test_the_number_of_a_step_is_the_sessions() -> None:
    """S9: call ids made from it are unique in a session."""
    story = steps(Story().asked(), 2).replied("Done.").ended("completed").asked()
    assert story.go(Reason).step == 4


def test_calls_are_gated_before_anything_runs() -> None:
    """L2, E6: Reason → Gate → Act, in the model's order."""
    story = Story().asked().called(call("a"), call("b", "nonesuch"))
    move = story.go(Gate)
    assert [(one.call.id, one.spec) for one in move.calls] == [("a", tool("look")), ("b", None)]
    assert move.tools == story.setup.tools
    story.allowed("a").tell(CallJudged("b", Invalid("unknown_tool", "no such tool")))
    assert story.wave == ["a"]


def test_a_resumed_gate_judges_only_what_was_not_judged() -> None:
    """J4: a verdict on record is not asked for again."""
    story = Story().asked().called(call("a"), call("b")).allowed("a").resumed()
    assert [one.call.id for one in story.go(Gate).calls] == ["b"]


@pytest.mark.parametrize("stop", ["end", "calls", "length", "refusal"])
def test_calls_win_over_the_stop_reason(stop: Stop) -> None:
    """L9; R2: the arguments of a reply that ended by length may be cut."""
    story = Story().asked().replied("Look:", call("a"), stop=stop)
    (proposed,) = story.go(Gate).calls
    assert proposed.cut is (stop == "length")


def test_the_run_waits_until_every_question_is_answered() -> None:
    """G6: `ask` suspends, and nothing of the step runs meanwhile."""
    story = Story().asked().called(call("a"), call("b"), call("c"))
    story.tell(CallJudged("a", Ask("May a?")), CallJudged("c", Ask("May c?"))).allowed("b")
    assert [(one.id, ask.question) for one, ask in story.go(Hold).questions] == [
        ("a", "May a?"),
        ("c", "May c?"),
    ]


def test_what_may_run_is_handed_over_with_its_rules() -> None:
    rules = Rules(calls_at_once_max=2, on_unknown="ask")
    move = Story(rules=rules).asked().called(call("a")).allowed("a").go(Act)
    assert (move.at_once_max, move.ask_unknown) == (2, True)
    (cleared,) = move.calls
    assert (cleared.key, cleared.spec, cleared.interrupted) == (
        f"{SESSION}/a",
        tool("look"),
        False,
    )


def test_the_answer_ends_the_run() -> None:
    move = Story().asked().replied("Hi.").go(Finish)
    assert (move.outcome, move.reason, move.fault) == ("completed", "", None)


def test_a_cleared_call_cannot_be_changed() -> None:
    """L2: a phase is made by the phase before it and by nothing else."""
    cleared = Story().asked().called(call("a")).allowed("a").cleared
    with pytest.raises((TypeError, ValueError), match="seal"):
        dataclasses.replace(cleared, arguments={"rm": "-rf"})
    with pytest.raises(dataclasses.FrozenInstanceError):
        cleared.key = "another"  # pyright: ignore[reportAttributeAccessIssue]


# ── waves ────────────────────────────────────────────────────────────────────


def wave(*calls: tuple[str, str | None]) -> list[str]:
    """The names of the calls that run first; each call is a tool and its resource."""
    proposed = [call(f"c{at}", name) for at, (name, _) in enumerate(calls)]
    story = Story().asked().called(*proposed)
    for at, (_, resource) in enumerate(calls):
        story.tell(CallJudged(f"c{at}", Allow(), resource=resource))
    return story.wave


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
    story = Story().asked().called(call("r1"), call("r2"), call("w", "send"), call("r3"))
    story.allowed("r1", "r2", "w", "r3").began("r1", "r2").finished("r2").resumed()
    assert story.wave == ["r1"]
    assert story.began("r1").finished("r1").wave == ["w"]
    assert story.began("w").finished("w").wave == ["r3"]


def test_a_denied_call_does_not_hold_up_the_others() -> None:
    """T8."""
    story = Story().asked().called(call("r1"), call("w", "send"), call("r2"))
    story.allowed("r1", "r2").tell(CallJudged("w", Deny("no")))
    assert story.wave == ["r1", "r2"]


# ── limits ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("cap", [1, 2, 7])
def test_a_cap_of_n_steps_is_exactly_n_replies(cap: int) -> None:
    """L7."""
    story = steps(Story(limits=Limits(steps=cap)).asked(), cap - 1)
    story.go(Reason)
    assert steps(story, 1).outcome == "max_steps"
    assert story.run.steps == cap


def test_a_cap_counts_from_the_start_of_its_run() -> None:
    story = steps(Story(limits=Limits(steps=2)).asked(), 2).ended("max_steps").asked()
    story.go(Reason)


def test_no_cap_is_no_cap() -> None:
    """L7: None means no limit."""
    steps(Story(limits=Limits(steps=None)).asked(), 60).go(Reason)


def test_the_default_cap_is_25() -> None:
    """L7."""
    assert Limits().steps == 25


def test_an_answer_at_the_cap_is_an_answer() -> None:
    story = Story(limits=Limits(steps=1)).asked().replied("Hi.")
    assert story.outcome == "completed"


def test_at_the_cap_one_more_reply_may_be_asked_for_without_tools() -> None:
    """L8: `on_limit="answer"` makes one more call with tools switched off."""
    story = steps(Story(limits=Limits(steps=2), rules=ANSWER).asked(), 2)
    move = story.go(Reason)
    assert (move.landing, move.prompt.tool_choice) == (True, "none")
    story.trying(landing=True).tell(broken())
    assert story.go(Reason).landing
    assert story.replied("In short: no.").outcome == "max_steps"
    assert (story.run.text, story.run.steps) == ("In short: no.", 3)


def landed(*parts: Text | ToolCall, **settings: Any) -> Story:
    """The reply that was asked for at the cap."""
    story = steps(Story(limits=Limits(steps=1), rules=ANSWER, **settings).asked(), 1)
    story.trying(landing=True).tell(broken())
    return story.replied(*parts)


def test_calls_after_the_cap_do_not_run() -> None:
    """L8: and the next request is valid all the same."""
    story = landed(Text("One more:"), call("late", "send"))
    assert story.outcome == "max_steps"
    story.ended("max_steps")
    results = story.state.transcript[-1]
    assert isinstance(results, Results)
    assert "had not started" in results.items[0].result.text
    assert story.run.text == "One more:"


def test_silence_after_the_cap_ends_the_run() -> None:
    """L7, L8: one more call, and not two."""
    assert landed().outcome == "max_steps"


def test_an_unfit_reply_after_the_cap_ends_the_run() -> None:
    story = landed(Text("Hm."), judge_replies=True)
    story.go(Hear)
    assert story.tell(ReplyJudged(Misfit("no"))).outcome == "max_steps"


def test_the_time_limit_counts_time_at_work() -> None:
    """L7, C5."""
    story = Story(limits=Limits(seconds=10.0)).asked().trying()
    story.tell(broken(), after_s=8.9)
    story.go(Reason)
    assert story.failing(broken(), after_s=0.1).outcome == "timed_out"


def test_a_run_is_not_timed_out_by_waiting() -> None:
    """G6: neither a person who thinks for days nor a machine that is switched off counts."""
    story = Story(limits=Limits(seconds=10.0)).asked().trying().resumed(after_s=1e6)
    story.called(call("a")).tell(CallJudged("a", Ask("May I?")))
    assert story.resumed(after_s=1e6).go(Hold)


def test_a_request_that_does_not_fit_is_not_made() -> None:
    """B2: a call that cannot fit is not made."""
    story = Story(limits=Limits(tokens=10)).asked()
    assert story.outcome == "budget_exceeded"


def test_the_output_cap_is_lowered_to_what_is_left() -> None:
    """B2: reserved before the call."""
    model = ModelInfo(MODEL, PRICE, output_max=1_000_000)
    limits = Limits(usd=Decimal("0.01"))
    move = Story(model=model, limits=limits).asked().go(Reason)
    assert move.prompt.output_max == move.reserved.output < 1_000
    assert move.reserved.usd is not None
    assert move.reserved.usd <= Decimal("0.01")


def test_the_reply_that_ends_a_budget_is_kept() -> None:
    """B3: what was paid is stored and returned."""
    story = Story(limits=Limits(tokens=5_000)).asked()
    story.replied("Look:", call("a"), charge=paid(4_000, 1_000)).allowed("a").began("a")
    story.finished("a")
    assert story.outcome == "budget_exceeded"
    assert story.run.text == "Look:"
    assert isinstance(story.state.transcript[-1], Results)


def test_an_answer_that_uses_the_budget_up_completes() -> None:
    """B3."""
    story = Story(limits=Limits(tokens=5_000)).asked().replied("Hi.", charge=paid(4_000, 1_000))
    assert story.outcome == "completed"


def test_an_interrupted_attempt_counts_as_reserved_after_a_resume() -> None:
    """B2: the limit holds however often a driver dies."""
    story = Story(limits=Limits(tokens=1_000)).asked().trying(Reservation(400, 600)).resumed()
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
def test_a_reply_without_calls_ends_the_run(stop: Stop, text: str, outcome: Outcome) -> None:
    """L4."""
    parts = (text,) if text else ()
    assert Story().asked().replied(*parts, stop=stop).outcome == outcome


@pytest.mark.parametrize("parts", [(), (Thinking("Hm."),)], ids=["nothing", "only thinking"])
def test_an_empty_reply_is_asked_for_once_more(parts: tuple[Thinking, ...]) -> None:
    """L10."""
    story = Story().asked().replied(*parts)
    story.go(Reason)
    assert story.replied(*parts).outcome == "empty_reply"


def test_an_answer_after_an_empty_reply_completes() -> None:
    assert Story().asked().replied().replied("Hi.").outcome == "completed"


def test_a_reply_of_blanks_is_empty() -> None:
    """L10: it says nothing, and there are providers that do not take it back."""
    Story().asked().replied("\n\n").go(Reason)


def test_an_empty_reply_long_after_another_is_asked_for_once_more_as_well() -> None:
    """L10: an empty reply is asked again once; a step with work between them is an answer."""
    steps(Story().asked().replied(), 3).replied().go(Reason)


def test_replies_are_heard_only_if_someone_judges_them() -> None:
    """G1: every final reply passes the gate."""
    story = Story(judge_replies=True).asked().replied("Hi.")
    assert story.go(Hear).reply == Assistant((Text("Hi."),), MODEL)
    assert story.tell(ReplyJudged(Allow())).outcome == "completed"


@pytest.mark.parametrize("stop", ["length", "refusal"])
def test_every_final_text_is_heard_however_it_stopped(stop: Stop) -> None:
    """G1, G3: its text would be in the result all the same."""
    Story(judge_replies=True).asked().replied("The password is", stop=stop).go(Hear)


def test_denied_replies_end_the_run_after_three() -> None:
    """G3: ends as `policy_denied` after 3."""
    story = Story(judge_replies=True).asked()
    for _ in range(3):
        story.go(Reason)
        story.replied("Rude.").tell(ReplyJudged(Deny("rude")))
    assert story.outcome == "policy_denied"
    assert story.run.text == ""


def test_misfits_are_bounded() -> None:
    story = Story(judge_replies=True).asked()
    for _ in range(3):
        story.go(Reason)
        story.replied("three").tell(ReplyJudged(Misfit("not a number")))
    move = story.go(Finish)
    assert move.outcome == "failed"
    assert move.fault is not None
    assert move.fault.kind == "output_misfit"


# ── going round in circles ───────────────────────────────────────────────────


def test_the_third_same_call_gets_a_note() -> None:
    """L11."""
    story = same(Story().asked(), 2)
    story.go(Reason)
    note = same(story, 1).go(Remind)
    assert "look 3 times" in note.text
    story.tell(NoteGiven(note.text, "same_call"))
    assert story.shown[-1] == User((Text(note.text),), note=True)


def test_two_more_end_the_run_as_stuck() -> None:
    """L11: two more after the note."""
    story = same(same(Story().asked(), 3).tell(NOTE), 1)
    story.go(Reason)
    assert same(story, 1).outcome == "stuck"


def test_both_numbers_are_settings() -> None:
    """L11."""
    story = same(Story(rules=Rules(same_call_note=1, same_call_stop=1)).asked(), 1)
    story.go(Remind)
    assert same(story.tell(NOTE), 1).outcome == "stuck"


def test_another_call_starts_a_new_count_with_a_new_note() -> None:
    story = steps(same(Story().asked(), 3).tell(NOTE), 1)
    assert same(story, 3).go(Remind)


def test_many_of_the_same_calls_in_one_reply_earn_a_note_first() -> None:
    """L11: the model is told before it is stopped, and two more end the run."""
    story = Story().asked().did(*(call(f"c{at}") for at in range(7)))
    story.tell(NoteGiven(story.go(Remind).text, "same_call")).did(call("d"))
    story.go(Reason)
    assert story.did(call("e")).outcome == "stuck"


# ── failures ─────────────────────────────────────────────────────────────────


def test_a_failed_attempt_is_made_again_after_its_wait() -> None:
    """S5: a failure before anything visible is retried."""
    move = Story().asked().failing(broken(wait_s=3.0)).go(Reason)
    assert (move.attempt, move.wait_s, move.discard, move.step) == (2, 3.0, False, 1)


@pytest.mark.parametrize(("established", "requests"), [(False, 4), (True, 6)])
def test_a_step_is_asked_for_so_many_times(established: bool, requests: int) -> None:  # noqa: FBT001
    """S3: 4 requests while none opened a stream, 6 in all; one counter per step."""
    story = Story().asked()
    for attempt in range(1, requests + 1):
        assert story.go(Reason).attempt == attempt
        story.failing(broken(established=established))
    move = story.go(Finish)
    assert (move.outcome, move.fault) == ("failed", story.run.failures[-1].fault)


def test_the_counter_starts_again_with_the_next_step() -> None:
    """S3: per step."""
    story = Story().asked()
    for _ in range(3):
        story.failing(broken())
    assert steps(story, 1).go(Reason).attempt == 1
    assert story.failing(broken()).go(Reason).attempt == 2


def test_a_failure_that_asking_again_cannot_mend_ends_the_run() -> None:
    """S2: each class knows `retryable`."""
    assert Story().asked().failing(broken("auth", retryable=False)).outcome == "failed"


def test_visible_text_ends_the_run_by_default() -> None:
    """S6: after visible output the default is to end as `failed`, with the partial text kept."""
    story = Story().asked().failing(broken(visible=True, established=True, partial="Once"))
    assert story.outcome == "failed"
    assert story.run.partial == "Once"


def test_visible_text_may_be_taken_back() -> None:
    """S6: `on_partial="restart"` tells watchers to drop what they showed."""
    story = Story(rules=Rules(on_partial="restart")).asked()
    story.failing(broken(visible=True, established=True, partial="Once"))
    assert story.go(Reason).discard
    assert not story.failing(broken(established=True)).go(Reason).discard


def test_text_that_nobody_saw_is_asked_for_again() -> None:
    """S6: without a watcher a broken stream always restarts."""
    story = Story().asked().failing(broken(established=True, partial="Once"))
    assert not story.go(Reason).discard


def test_the_time_for_retries_starts_again_with_the_next_step() -> None:
    """S3: one time budget for all retries of a step, and of no other."""
    story = Story(retries=Retries(budget_s=300.0)).asked().failing(broken(), after_s=250.0)
    steps(story, 1).failing(broken(), after_s=250.0).go(Reason)
    assert story.failing(broken(), after_s=50.0).outcome == "failed"


def test_the_time_for_retries_does_not_pass_between_two_drivers() -> None:
    """S3, G6: a run resumed a day later still has its retries."""
    story = Story(retries=Retries(budget_s=300.0)).asked().trying().resumed(after_s=86_400.0)
    story.failing(broken()).go(Reason)


# ── tools and their choice ───────────────────────────────────────────────────


@pytest.mark.parametrize("choice", ["required", "look"])
def test_a_choice_holds_until_it_is_met_once(choice: str) -> None:
    """L12: then `auto`."""
    story = Story(rules=Rules(tool_choice=choice)).asked()
    assert story.go(Reason).prompt.tool_choice == choice
    story.failing(broken())
    assert story.replied().go(Reason).prompt.tool_choice == choice
    assert story.did(call("a")).go(Reason).prompt.tool_choice == "auto"


def test_a_choice_counts_anew_in_the_next_run() -> None:
    story = Story(rules=Rules(tool_choice="required")).asked().did(call("a")).ended().asked()
    assert story.go(Reason).prompt.tool_choice == "required"


def test_a_choice_by_name_is_not_met_by_another_tool() -> None:
    """L12: by name holds until it is satisfied."""
    story = Story(rules=Rules(tool_choice="look")).asked().did(call("a", "send"))
    assert story.go(Reason).prompt.tool_choice == "look"


def test_the_tools_stay_the_same_for_a_run() -> None:
    """L13: the same set rules what is visible and what may be dispatched."""
    story = Story().asked()
    assert story.go(Reason).prompt.tools == story.setup.tools
    assert story.called(call("a")).go(Gate).tools == story.setup.tools


# ── what comes before a request ──────────────────────────────────────────────


def test_first_what_is_known_then_what_is_named_then_the_request() -> None:
    """X4, K1: once, before the first step."""
    hydration = Hydration(references=(Reference(r"#(\d+)", "look", "id"),))
    story = Story(recalls=True, hydration=hydration).asked("What of #7?")
    assert story.go(Recall).text == "What of #7?"
    (named,) = story.tell(Recalled("")).go(Hydrate).calls
    assert (named.id, named.name, named.arguments) == ("h1_0", "look", '{"id":"7"}')
    story.tell(Hydrated((named,))).allowed("h1_0").began("h1_0").finished("h1_0")
    assert story.go(Reason).step == 1
    story.failing(broken()).go(Reason)


def test_what_a_failed_request_left_open_is_not_looked_up_anew() -> None:
    story = Story(recalls=True).asked().tell(Recalled("")).failing(broken())
    story.go(Reason)


def test_the_view_is_made_shorter_before_anything_is_drawn_or_said() -> None:
    """X2, B1: shorten, draw, heed, remind, ask."""
    window = Compaction(window=400, strategies=("mask", "summary", "window"))
    story = Story(compaction=window, budgets=(Budget("team", tokens=10**6),))
    story.asked("Do it.").did(call("a"), text="much " * 80).did(call("b"), text="more " * 250)
    story.did(call("c"), text="more " * 250).did(call("d"), text="more " * 250).said("Wait.")
    assert story.go(Shrink).how == "mask"
    story.shrunk()
    assert story.go(Draw).budget.name == "team"
    assert story.drew().go(Summarise).upto == 7
    story.summed_up()
    story.go(Heed)
    story.tell(Heeded()).go(Remind)
    story.tell(NoteGiven(story.go(Remind).text, "same_call")).go(Draw)
    story.drew().go(Reason)


def test_a_window_is_left_with_a_note_and_a_summary_asked_for_within_what_is_left() -> None:
    """X2, B2."""
    tight, prompt = Limits(tokens=1_900), "Go. " * 99
    window = Compaction(window=200, target=0.3, strategies=("window",))
    story = steps(Story(compaction=window, limits=tight).asked(prompt), 9)
    assert "earlier messages were left out" in story.go(Shrink).note
    summary = Compaction(window=200, target=0.3, strategies=("summary",))
    move = steps(Story(compaction=summary, limits=tight).asked(prompt), 9).go(Summarise)
    assert move.prompt.output_max == move.reserved.output
    assert move.reserved.input + move.reserved.output <= 1_900
