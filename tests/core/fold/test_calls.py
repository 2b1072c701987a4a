"""A call's way from the model's proposal to its one result."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from facts import SESSION, Story, make_call, make_setup, make_spec, value_result
from windlass.core.errors import IllegalFact
from windlass.core.events import (
    CallAnswered,
    CallFinished,
    CallJudged,
    CallStarted,
    ContextCompacted,
    Fact,
    RunEnded,
    RunResumed,
)
from windlass.core.fold.calls import UNREADABLE_MAX
from windlass.core.fold.run import apply_fact
from windlass.core.json_repair.arguments import PreparedArguments, prepare_arguments
from windlass.core.messages import ArgumentChange, CallOutcome, ToolCall, ToolResults, ToolSpec
from windlass.core.moves import RunCalls, WaitForAnswers
from windlass.core.schema import JsonSchema
from windlass.core.setup import digest
from windlass.core.verdicts import Allow, AnswerVerdict, Ask, Deny, Grant, InvalidCall, Modify

ANY_OBJECT = JsonSchema({"type": "object", "properties": {"limit": {"type": "integer"}}})
REPAIRED = (ArgumentChange("", "repaired"),)
ASKED = Ask("May I?")


def proposed(arguments: str = '{"to": "ann"}', name: str = "send") -> Story:
    return Story().start_run().take_calls(make_call("a", name, arguments))


def answered(verdict: AnswerVerdict, arguments: dict[str, Any] | None = None) -> CallAnswered:
    return CallAnswered("a", verdict, digest({"to": "ann"} if arguments is None else arguments))


def told(story: Story) -> CallOutcome:
    """The one call of the last step with its result, as the transcript holds it."""
    results = story.state.transcript[-1]
    assert isinstance(results, ToolResults)
    (item,) = results.items
    return item


# ── verdicts ─────────────────────────────────────────────────────────────────


def test_an_allowed_call_is_cleared_with_the_arguments_that_the_model_wrote() -> None:
    """T4: history, events, journal and execution agree on the arguments."""
    story = proposed('{"to":  "ann"}').allow_calls("a")
    assert story.next_call.arguments == {"to": "ann"}
    assert told(story.start_calls("a").finish_calls("a")).call.arguments == '{"to":  "ann"}'


def test_an_empty_buffer_is_an_empty_object() -> None:
    """R3: only an empty buffer is `{}`, also in the history."""
    story = proposed("").allow_calls("a")
    assert story.next_call.arguments == {}
    assert told(story.start_calls("a").finish_calls("a")).call.arguments == "{}"


def test_repaired_arguments_are_run_and_remembered() -> None:
    """T4, R4: the history holds what was executed; the raw text stays in the proposal."""
    story = proposed("{to: ann").add(CallJudged("a", Allow(), {"to": "ann"}, REPAIRED))
    assert story.next_call.arguments == {"to": "ann"}
    assert story.next_call.call.arguments == "{to: ann"
    assert json.loads(told(story.start_calls("a").finish_calls("a")).call.arguments) == {
        "to": "ann"
    }


def test_a_denial_is_the_result_and_nothing_runs() -> None:
    """G3: a denial reaches the model as that call's result; the run goes on."""
    item = told(proposed().add(CallJudged("a", Deny("not to ann"))))
    assert (item.result.kind, item.result.text) == ("denied", "Denied: not to ann")


def test_a_modified_call_runs_with_the_new_arguments_and_history_says_so() -> None:
    """G2, T4."""
    story = proposed().add(CallJudged("a", Modify({"to": "bob"}, "ann is away")))
    assert story.next_call.arguments == {"to": "bob"}
    assert story.open_call("a").changes == (ArgumentChange("", "the gate: ann is away"),)
    assert json.loads(told(story.start_calls("a").finish_calls("a")).call.arguments) == {
        "to": "bob"
    }


def test_a_call_may_be_modified_to_no_arguments_at_all() -> None:
    """G2."""
    story = proposed().add(CallJudged("a", Modify({}, "nobody")))
    assert story.next_call.arguments == {}
    assert told(story.start_calls("a").finish_calls("a")).call.arguments == "{}"


def test_an_invalid_call_is_told_to_the_model() -> None:
    """T7: unknown tool, invalid arguments."""
    item = told(proposed().add(CallJudged("a", InvalidCall("unknown_tool", "no such tool"))))
    assert (item.result.kind, item.result.text) == ("invalid", "no such tool")


def test_a_question_waits_for_its_answer() -> None:
    """G6."""
    story = proposed().add(CallJudged("a", ASKED))
    ((asked, question),) = story.expect_move(WaitForAnswers).questions
    assert (asked.id, asked.decoded_arguments, question) == ("a", {"to": "ann"}, ASKED)
    assert story.state.is_waiting


def test_the_arguments_of_a_question_are_the_ones_that_run() -> None:
    """G6, T4: what a person is asked about, and nothing else; history says so too."""
    story = proposed().add(CallJudged("a", Ask("May I?", arguments={"to": "bob"})))
    ((asked, _),) = story.expect_move(WaitForAnswers).questions
    assert asked.decoded_arguments == {"to": "bob"}
    assert story.open_call("a").changes == (ArgumentChange("", "the gate: as in its question"),)
    assert "other arguments" in story.check_refused(answered(Allow(), {"to": "ann"}))
    story.add(answered(Allow(), {"to": "bob"}))
    assert story.next_call.arguments == {"to": "bob"}
    assert json.loads(told(story.start_calls("a").finish_calls("a")).call.arguments) == {
        "to": "bob"
    }


def test_the_arguments_of_a_question_outlive_a_crash() -> None:
    """G6, J4."""
    story = proposed().add(CallJudged("a", Ask("May I?", arguments={}))).resume(after_s=1e6)
    assert story.add(answered(Allow(), {})).next_call.arguments == {}


def test_a_grant_comes_with_a_yes_and_lasts_for_the_session() -> None:
    """G6."""
    grant = Grant("send", pattern="send(*)")
    story = proposed().add(CallJudged("a", ASKED))
    yes = CallAnswered("a", Allow(), digest({"to": "ann"}), grant=grant)
    story.add(yes)
    assert story.state.grants == (grant,)
    story.resume().end_run().start_run("More.")
    assert story.state.grants == (grant,)


@pytest.mark.parametrize(
    ("verdict", "name"),
    [(Deny("no"), "send"), (Modify({"to": "bob"}, "rather"), "send"), (Allow(), "look")],
    ids=["a no", "another call", "another tool"],
)
def test_nothing_but_a_yes_for_that_tool_can_hold_for_more_than_one_call(
    verdict: AnswerVerdict, name: str
) -> None:
    """G6, J1."""
    story = proposed().add(CallJudged("a", ASKED))
    answer = CallAnswered("a", verdict, digest({"to": "ann"}), grant=Grant(name))
    assert "only an Allow" in story.check_refused(answer)
    assert story.state.grants == ()


@pytest.mark.parametrize(
    ("verdict", "arguments"),
    [(Allow(), {"to": "ann"}), (Modify({"to": "bob"}, "rather"), {"to": "bob"})],
    ids=["allow", "modify"],
)
def test_an_answer_clears_the_call(verdict: AnswerVerdict, arguments: dict[str, str]) -> None:
    story = proposed().add(CallJudged("a", ASKED), answered(verdict))
    assert story.next_call.arguments == arguments
    assert not story.state.is_waiting


def test_an_answer_may_be_no() -> None:
    item = told(proposed().add(CallJudged("a", ASKED), answered(Deny("over my dead body"))))
    assert item.result.kind == "denied"


def test_an_answer_counts_once() -> None:
    story = proposed().add(CallJudged("a", ASKED), answered(Allow()))
    assert "the call is cleared" in story.check_refused(answered(Allow()))


def test_a_call_is_judged_once() -> None:
    """G2: each decision is one record."""
    assert "the call is cleared" in proposed().allow_calls("a").check_refused(
        CallJudged("a", Deny("no"))
    )


@pytest.mark.parametrize(("started", "words"), [(True, "had started"), (False, "had not started")])
def test_a_call_that_is_given_up_says_whether_it_had_started(started: bool, words: str) -> None:  # noqa: FBT001
    """C3."""
    story = proposed().allow_calls("a")
    item = told((story.start_calls("a") if started else story).end_run("timed_out"))
    assert item.result.kind == "cancelled"
    assert words in item.result.text
    assert "timed_out" in item.result.text


def test_an_answer_to_other_arguments_is_refused() -> None:
    """G6: an approval is bound to the digest of the exact arguments."""
    proposed().add(CallJudged("a", ASKED)).check_refused(answered(Allow(), {"to": "everyone"}))


def test_an_approval_after_its_expiry_is_refused() -> None:
    """G6: expiry denies; an Allow that came too late is no Allow, live or on replay."""
    story = proposed()
    question = Ask("May I?", expires_at=story.state.at + 10.0)
    story.add(CallJudged("a", question)).add(answered(Deny("expired")), after_s=100.0)
    story = proposed().add(CallJudged("a", question))
    with pytest.raises(IllegalFact):
        apply_fact(story.state, story.stamp_fact(answered(Allow()), after_s=100.0))


# ── what the gate and the fold must agree on ─────────────────────────────────


def judged(text: str) -> tuple[Story, PreparedArguments]:
    """A call with this text, allowed as the loop does it."""
    prepared = prepare_arguments(text, ANY_OBJECT)
    assert isinstance(prepared, PreparedArguments), prepared
    changed = prepared.arguments if prepared.changes else None
    story = proposed(text).add(CallJudged("a", Allow(), changed, prepared.changes))
    return story, prepared


@pytest.mark.parametrize("text", ["```json\n{}\n```", '{"limit": null}'])
def test_a_repair_to_no_arguments_counts(text: str) -> None:
    """T4, R1: what is run is what repair made, also when that is `{}`."""
    story, prepared = judged(text)
    assert story.next_call.arguments == prepared.arguments == {}


@pytest.mark.parametrize(
    "text",
    [
        "  ",
        "\n",
        '  {"limit": 1}',
        pytest.param(
            "\ufeff{}",
        ),
    ],
    ids=["blanks", "newline", "indented", "mark"],
)
def test_what_repair_leaves_unchanged_the_fold_can_read(text: str) -> None:
    """T4: a call that repair lets pass does not break the run."""
    story, prepared = judged(text)
    assert story.next_call.arguments == prepared.arguments
    assert (
        json.loads(told(story.start_calls("a").finish_calls("a")).call.arguments)
        == prepared.arguments
    )


OBJECTS = st.dictionaries(
    st.text(max_size=3),
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    min_size=1,
    max_size=3,
)


@given(OBJECTS, st.sampled_from([None, 2]))
def test_valid_arguments_are_run_as_they_were_written(
    arguments: dict[str, Any], indent: int | None
) -> None:
    """T4."""
    text = json.dumps(arguments, indent=indent)
    prepared = prepare_arguments(text, JsonSchema({"type": "object"}))
    assert isinstance(prepared, PreparedArguments)
    story = proposed(text).add(CallJudged("a", Allow(), None, prepared.changes))
    assert story.next_call.arguments == prepared.arguments == arguments


def test_an_allowed_call_without_readable_arguments_is_an_illegal_fact() -> None:
    """L1: a journal that holds an illegal fact is not believed, and no other error comes of it."""
    proposed("not JSON").check_refused(CallJudged("a", Allow()))


def test_a_tool_that_scribbles_on_its_arguments_does_not_change_the_record() -> None:
    """T4: history and journal agree, whatever a tool does to what it was given."""
    story = proposed("{to: ann").add(CallJudged("a", Allow(), {"to": "ann"}, REPAIRED))
    story.next_call.arguments["to"] = "everyone"
    item = told(story.start_calls("a").finish_calls("a"))
    assert json.loads(item.call.arguments) == {"to": "ann"}


# ── running ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("verdict", [None, ASKED], ids=["unjudged", "asked"])
def test_a_call_that_nobody_allowed_cannot_start(verdict: Ask | None) -> None:
    """L2: an effect needs an Allow that is on record."""
    story = proposed()
    if verdict is not None:
        story.add(CallJudged("a", verdict))
    assert "cannot be record" in story.check_refused(CallStarted("a", f"{SESSION}/a"))


def test_a_denied_call_cannot_start_while_its_sibling_is_open() -> None:
    """L2, T8."""
    story = Story().start_run().take_calls(make_call("a", "send"), make_call("b", "send"))
    story.add(CallJudged("a", Deny("no"))).allow_calls("b")
    assert "the call is closed" in story.check_refused(CallStarted("a", f"{SESSION}/a"))


def test_a_call_that_did_not_start_cannot_finish() -> None:
    """J2: `CallStarted` before, `CallFinished` after."""
    assert "the call is cleared" in proposed().allow_calls("a").check_refused(
        CallFinished("a", value_result())
    )


@pytest.mark.parametrize("name", ["look", "touch"])
def test_an_interrupted_call_that_may_be_repeated_starts_again(name: str) -> None:
    """J2: started `read` and `idempotent` calls run again with the same key."""
    story = proposed(name=name).allow_calls("a").start_calls("a")
    key = story.next_call.key
    story.resume()
    assert story.next_call.interrupted
    assert story.next_call.repeatable
    assert story.next_call.key == key
    assert story.start_calls("a").finish_calls("a").state.step is None


def test_an_interrupted_write_does_not_start_again() -> None:
    """J2: never twice."""
    story = proposed().allow_calls("a").start_calls("a").resume()
    assert story.next_call.interrupted
    assert not story.next_call.repeatable
    assert "the call is interrupted" in story.check_refused(CallStarted("a", f"{SESSION}/a"))


def test_an_interrupted_write_that_had_not_happened_may_start_again() -> None:
    """J2: reconciled by the tool's own `reconcile`."""
    story = proposed().allow_calls("a").start_calls("a").resume().allow_calls("a")
    assert story.next_call.arguments == {"to": "ann"}
    assert not story.next_call.interrupted
    assert story.start_calls("a").finish_calls("a").state.step is None


def test_an_interrupted_write_may_ask_and_keeps_its_arguments() -> None:
    """J2, G2: what the gate changed before the crash stays changed after it."""
    story = (
        proposed().add(CallJudged("a", Modify({"to": "bob"}, "rather"))).start_calls("a").resume()
    )
    story.add(CallJudged("a", Ask("Again?")), answered(Allow(), {"to": "bob"}))
    assert story.next_call.arguments == {"to": "bob"}


def test_arguments_that_the_gate_took_away_stay_away_after_a_crash() -> None:
    """G2: after Modify to `{}` and a crash, the model's own arguments are not run."""
    story = (
        proposed()
        .add(CallJudged("a", Modify({}, "nobody")))
        .start_calls("a")
        .resume()
        .allow_calls("a")
    )
    assert story.next_call.arguments == {}


def test_nothing_starts_while_a_person_is_asked() -> None:
    """G6, J2: else a driver that dies now leaves a started call, and an answer goes on past it."""
    story = Story().start_run().take_calls(make_call("a", "send"), make_call("b", "touch"))
    story.add(CallJudged("a", Allow(), resource="x"), CallJudged("b", Allow(), resource="y"))
    story.start_calls("a").resume().add(CallJudged("a", Ask("Run it again?")))
    story.check_refused(CallStarted("b", f"{SESSION}/b"))


def test_an_interrupted_write_may_be_told_as_unknown() -> None:
    """J2: told to the model as `unknown outcome`."""
    story = proposed().allow_calls("a").start_calls("a").resume()
    assert told(story.add(CallFinished("a", value_result("who knows")))).result.text == "who knows"


def test_a_call_that_a_person_modified_no_longer_names_the_resource_of_before() -> None:
    """T2: two writes that may now touch the same thing do not run side by side."""
    story = Story().start_run().take_calls(make_call("a", "send"), make_call("b", "send"))
    story.add(
        CallJudged("a", ASKED, resource="ann"),
        CallJudged("b", Allow(), resource="bob"),
        CallAnswered("a", Modify({"to": "bob"}, "rather"), digest({})),
    )
    assert story.next_call_ids == ["a"]


def test_a_tool_that_is_gone_counts_as_a_write() -> None:
    """J2: nobody knows whether its effect may be repeated."""
    gone = (
        Story(make_setup(tools=(make_spec("other"),)))
        .start_run()
        .take_calls(make_call("a", "look"))
        .allow_calls("a")
    )
    gone.start_calls("a").resume()
    assert not gone.next_call.repeatable
    gone.check_refused(CallStarted("a", f"{SESSION}/a"))


# ── history is always JSON ───────────────────────────────────────────────────


@pytest.mark.parametrize("text", ["not JSON", "[1]", "{", "x" * 10_000])
def test_unreadable_arguments_are_clipped_into_an_object(text: str) -> None:
    """X1: a request is valid whatever the model wrote."""
    item = told(proposed(text).add(CallJudged("a", InvalidCall("invalid_arguments", "no"))))
    assert json.loads(item.call.arguments) == {"unreadable_arguments": text[:UNREADABLE_MAX]}


NESTED = '{"a":' * 5_000 + "1" + "}" * 5_000


@pytest.mark.parametrize(
    "fact",
    [CallJudged("a", InvalidCall("invalid_arguments", "nested too deeply")), RunEnded("cancelled")],
    ids=["told", "ended"],
)
def test_arguments_that_are_nested_too_deeply_can_be_told_and_ended(fact: Fact) -> None:
    """X1, L3: repair refuses them; the fold must take that verdict, and the end of the run."""
    item = told(proposed(NESTED).add(fact))
    assert json.loads(item.call.arguments) == {"unreadable_arguments": NESTED[:UNREADABLE_MAX]}


def test_readable_arguments_of_an_invalid_call_are_kept_as_they_are() -> None:
    item = told(proposed('{"x": 1}').add(CallJudged("a", InvalidCall("invalid_arguments", "no"))))
    assert item.call.arguments == '{"x": 1}'


def test_arguments_that_came_with_an_invalid_verdict_are_kept() -> None:
    fact = CallJudged("a", InvalidCall("invalid_arguments", "no"), {"x": 1}, REPAIRED)
    assert json.loads(told(proposed("{x:1").add(fact)).call.arguments) == {"x": 1}


def test_an_empty_buffer_of_an_invalid_call_is_an_empty_object() -> None:
    """R3: an empty buffer is `{}`."""
    item = told(proposed("").add(CallJudged("a", InvalidCall("invalid_arguments", "no"))))
    assert item.call.arguments == "{}"


@given(st.text(max_size=300))
def test_any_text_becomes_an_object_when_the_run_ends(text: str) -> None:
    """X1, C3: valid after a cancel as well, before any verdict."""
    arguments = told(proposed(text).end_run("cancelled")).call.arguments
    assert isinstance(json.loads(arguments), dict)


# ── the same call over and over ──────────────────────────────────────────────


def repeated(*results: str, arguments: tuple[str, ...] = ("{}",)) -> int:
    story = Story().start_run()
    for at, text in enumerate(results):
        story.do_step(make_call(f"c{at}", "look", arguments[at % len(arguments)]), text=text)
    return story.run.streak.count


def test_the_same_call_with_the_same_result_makes_a_streak() -> None:
    """L11."""
    assert repeated("no", "no", "no") == 3


def test_another_result_breaks_a_streak() -> None:
    assert repeated("no", "no", "yes") == 1


def test_other_arguments_break_a_streak() -> None:
    assert repeated("no", "no", arguments=("{}", '{"a": 1}')) == 1


def test_blanks_between_arguments_do_not_break_a_streak() -> None:
    """L11: the same arguments, not the same bytes."""
    assert repeated("no", "no", arguments=('{"a":1}', '{"a": 1}')) == 2


def test_another_tool_breaks_a_streak() -> None:
    story = (
        Story()
        .start_run()
        .do_step(make_call("a"))
        .do_step(make_call("b", "touch"))
        .do_step(make_call("c"))
    )
    assert story.run.streak.count == 1


def test_a_streak_counts_over_the_calls_of_one_reply() -> None:
    story = Story().start_run().do_step(make_call("a"), make_call("b"), make_call("c"))
    assert story.run.streak.count == 3


def test_a_streak_does_not_outlive_its_run() -> None:
    story = (
        Story()
        .start_run()
        .do_step(make_call("a"))
        .do_step(make_call("b"))
        .end_run()
        .start_run()
        .do_step(make_call("c"))
    )
    assert story.run.streak.count == 1


def test_the_calls_of_a_step_are_kept_with_their_wire_ids() -> None:
    """S9: our own ids are mapped to the provider's on the wire."""
    wired = ToolCall("a", "look", "{}", "call_77", "signed")
    story = Story().start_run().take_calls(wired).allow_calls("a")
    assert [one.call for one in story.expect_move(RunCalls).calls] == [wired]
    assert told(story.start_calls("a").finish_calls("a")).call == wired


# ── what a session has come to hold ──────────────────────────────────────────


def test_a_session_remembers_what_its_tools_brought_in() -> None:
    """G7: labels are kept in state, and survive the run that brought them in."""
    page = ToolSpec("page", "", {}, "read", ("untrusted",))
    files = ToolSpec("files", "", {}, "read", ("private",))
    story = Story(tools=(page, files)).start_run()
    assert story.state.labels == frozenset()
    story.do_step(make_call("a", "page"))
    assert story.state.labels == {"untrusted"}
    story.end_run().start_run().do_step(make_call("b", "files"))
    assert story.state.labels == {"untrusted", "private"}
    assert story.state.sources == (("untrusted", "page (a)"), ("private", "files (b)"))


def test_what_a_session_holds_survives_compaction_resume_and_new_runs() -> None:
    """G7: the first source is the one that is told."""
    page = ToolSpec("page", "", {}, "read", ("untrusted",))
    story = (
        Story(tools=(page,))
        .start_run()
        .do_step(make_call("a", "page"))
        .do_step(make_call("b", "page"))
    )
    story.add(ContextCompacted(3, "[…]")).resume().end_run("cancelled").start_run("More.")
    assert story.state.labels == {"untrusted"}
    assert story.state.sources == (("untrusted", "page (a)"),)


def test_a_call_that_never_ran_brings_nothing_in() -> None:
    """G7."""
    page = ToolSpec("page", "", {}, "read", ("untrusted",))
    story = Story(tools=(page,)).start_run().take_calls(make_call("a", "page"))
    assert story.add(CallJudged("a", Deny("no"))).state.labels == frozenset()


# ── permissions that are doubted ─────────────────────────────────────────────


def test_a_doubted_permission_is_judged_again() -> None:
    """D3: that of the gate, and that of a person."""
    allowed = proposed().allow_calls("a")
    by_person = proposed().add(CallJudged("a", ASKED)).add(answered(Allow()))
    for story in (allowed, by_person):
        assert story.state.step_calls[0].phase == "cleared"
        (call,) = story.add(RunResumed(doubted=("a",))).state.step_calls
        assert (call.phase, call.arguments, call.answered) == ("proposed", None, False)


def test_a_permission_that_is_not_doubted_stays() -> None:
    """D3: another call of the same step is."""
    calls = (make_call("a", "send"), make_call("b", "send"))
    story = Story().start_run().take_calls(*calls).allow_calls("a", "b")
    story.add(RunResumed(doubted=("b",)))
    assert [call.phase for call in story.state.step_calls] == ["cleared", "proposed"]


def test_a_doubted_write_that_started_is_doubted_until_it_is_judged() -> None:
    """D3: also for the driver after the next one."""
    story = proposed().allow_calls("a").start_calls("a").add(RunResumed(doubted=("a",)))
    (call,) = story.add(RunResumed()).state.step_calls
    assert (call.phase, call.doubted) == ("interrupted", True)
    (call,) = story.add(CallJudged("a", Allow())).state.step_calls
    assert (call.phase, call.doubted) == ("cleared", False)


def test_a_doubted_write_that_is_judged_from_what_the_model_wrote_forgets_its_changes() -> None:
    """D3, T4: what a gate is said to have made of it before is not believed either."""
    story = proposed().add(CallJudged("a", Modify({"to": "eve"}, "forged")))
    story.start_calls("a").add(RunResumed(doubted=("a",)))
    assert story.next_call.arguments == {"to": "eve"}  # This is what its tool looks for.
    story.add(CallJudged("a", Modify({"to": "bob"}, "ann is away"), {"to": "ann"}))
    assert story.next_call.arguments == {"to": "bob"}
    assert story.open_call("a").changes == (ArgumentChange("", "the gate: ann is away"),)


def test_a_doubted_call_that_is_over_stays_over() -> None:
    calls = (make_call("a", "send"), make_call("b", "send"))
    story = Story().start_run().take_calls(*calls).allow_calls("a", "b")
    story.start_calls("a").finish_calls("a").add(RunResumed(doubted=("a", "b")))
    assert [call.phase for call in story.state.step_calls] == ["closed", "proposed"]
