"""The result of a run, read off the state."""

import dataclasses
from decimal import Decimal

import msgspec
import pytest

from facts import SESSION, Story, failed_attempt, make_call, make_charge, make_fault
from windlass.core.events import CallJudged
from windlass.core.messages import TextPart, Usage, UserMessage
from windlass.core.result import OutputMissing, build_result, open_questions
from windlass.core.setup import digest
from windlass.core.state import State
from windlass.core.verdicts import Ask


def test_without_a_run_there_is_nothing_to_report() -> None:
    with pytest.raises(ValueError, match="no run has started"):
        build_result(State(SESSION), recorded=True)


def test_a_result_holds_all_that_a_run_did() -> None:
    """L5."""
    story = (
        Story(gate="rules")
        .start_run()
        .fail_attempt(failed_attempt(charge=make_charge(1, 1, "0.1")))
    )
    story.do_step(make_call("a")).take_reply("Done.", charge=make_charge(2, 2, "0.2")).end_run(
        "completed"
    )
    result = build_result(story.state, recorded=True)
    assert (result.outcome, result.text, result.output) == ("completed", "Done.", None)
    assert (result.usage, result.cost) == (Usage(3, 3), Decimal("0.3"))
    assert (result.steps, result.model_calls, result.duration_s) == (2, 3, 10.0)
    assert (result.session_id, result.run, result.error) == (SESSION, 1, None)
    assert (result.gated, result.recorded, result.completed) == (True, True, True)
    assert result.messages == result.all_messages() == tuple(story.state.transcript)
    assert result.questions == ()


def test_nothing_is_lost_when_a_run_is_cancelled() -> None:
    """L5, C2: usage and partial text."""
    story = Story().start_run().do_step(make_call("a")).start_attempt()
    story.end_run("cancelled", reason="by you", partial="Once", charge=make_charge(1, 1))
    result = build_result(story.state, recorded=False)
    assert (result.outcome, result.reason) == ("cancelled", "by you")
    assert (result.partial_text, result.usage, result.cost) == ("Once", Usage(1, 1), None)
    assert not result.recorded
    assert not result.completed
    assert not result.gated


def test_a_failure_is_in_the_result() -> None:
    """L5: error."""
    story = Story().start_run().fail_attempt(failed_attempt(partial="Once", visible=True))
    result = build_result(story.end_run("failed", fault=make_fault()).state, recorded=True)
    assert (result.error, result.partial_text) == (make_fault(), "Once")


def test_new_messages_are_those_of_this_run() -> None:
    story = (
        Story()
        .start_run("One")
        .take_reply("1")
        .end_run("completed")
        .start_run("Two")
        .take_reply("2")
    )
    result = build_result(story.end_run("completed").state, recorded=True)
    assert result.new_messages()[0] == UserMessage((TextPart("Two"),))
    assert len(result.messages) == 4
    assert (result.run, result.new_from, result.text) == (2, 2, "2")


def test_a_run_that_waits_says_for_what() -> None:
    """L4, G6: `suspended` is a pause; each question has the digest of its exact arguments."""
    story = Story().start_run().take_calls(make_call("a", "send", '{"to": "ann"}'), make_call("b"))
    story.add(CallJudged("a", Ask("May I?", expires_at=99.0))).allow_calls("b")
    result = build_result(story.state, recorded=True)
    assert result.outcome == "suspended"
    (question,) = result.questions
    assert (question.call_id, question.question, question.expires_at) == ("a", "May I?", 99.0)
    assert question.arguments == {"to": "ann"}
    assert question.digest == digest({"to": "ann"})


def test_a_question_about_no_arguments() -> None:
    story = Story().start_run().take_calls(make_call("a")).add(CallJudged("a", Ask("May I?")))
    assert open_questions(story.state)[0].arguments == {}


def test_no_step_is_no_question() -> None:
    assert open_questions(Story().start_run().state) == ()


def test_a_completed_run_gives_its_output() -> None:
    """L5, U5."""
    story = Story().start_run().take_reply("Hi.").end_run("completed")
    result = dataclasses.replace(build_result(story.state, recorded=True), output_or_none=7)
    assert (result.output, result.output_or_none) == (7, 7)


def test_none_is_an_output_like_any_other() -> None:
    story = Story().start_run().take_reply("Hi.").end_run("completed")
    assert build_result(story.state, recorded=True).output is None


def a_limit_is_reached() -> Story:
    return Story().start_run().end_run("max_steps", reason="the limit of 1 steps is reached")


def a_person_is_asked() -> Story:
    story = Story().start_run().take_calls(make_call("a"))
    return story.add(CallJudged("a", Ask("May I?")))


ENDS = {
    "Run 1 has no output: it ended as max_steps: the limit of 1 steps is reached.": (
        a_limit_is_reached
    ),
    "Run 1 has no output: it is suspended, and waits for an answer: see `result.questions`.": (
        a_person_is_asked
    ),
}


@pytest.mark.parametrize("message", ENDS)
def test_the_output_of_a_run_that_did_not_complete_is_an_error_that_carries_the_result(
    message: str,
) -> None:
    """L5: all else is readable; repr, equality, display and copies never raise."""
    story = ENDS[message]()
    result = build_result(story.state, recorded=True)
    with pytest.raises(OutputMissing) as raised:
        _ = result.output
    assert str(raised.value) == message
    assert raised.value.result is result
    assert result.output_or_none is None
    assert result.outcome in repr(result)
    assert result == build_result(story.state, recorded=True)
    assert dataclasses.replace(result, run=2) != result
    assert dataclasses.asdict(result)["output_or_none"] is None
    assert result.outcome in repr(result.display_card())
    assert msgspec.json.encode(result)


def test_an_undo_has_no_output() -> None:
    story = Story().start_run().take_reply("Hi.").end_run("completed")
    result = dataclasses.replace(build_result(story.state, recorded=True), is_undo=True)
    with pytest.raises(OutputMissing, match=r"Run 1 has no output: it undid another one\."):
        _ = result.output
