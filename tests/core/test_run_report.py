"""The result of a run, read off the state."""

from decimal import Decimal

import pytest

from facts import SESSION, Story, broken, call, fault, paid
from windlass.core.events import CallJudged
from windlass.core.messages import Text, Usage, User
from windlass.core.run_report import questions, report
from windlass.core.setup import digest
from windlass.core.state import State
from windlass.core.verdicts import Ask


def test_without_a_run_there_is_nothing_to_report() -> None:
    with pytest.raises(ValueError, match="no run has started"):
        report(State(SESSION), recorded=True)


def test_a_result_holds_all_that_a_run_did() -> None:
    """L5."""
    story = Story(gate="rules").asked().failing(broken(charge=paid(1, 1, "0.1")))
    story.did(call("a")).replied("Done.", charge=paid(2, 2, "0.2")).ended("completed")
    result = report(story.state, recorded=True)
    assert (result.outcome, result.text, result.output) == ("completed", "Done.", None)
    assert (result.usage, result.cost) == (Usage(3, 3), Decimal("0.3"))
    assert (result.steps, result.model_calls, result.duration_s) == (2, 3, 10.0)
    assert (result.session_id, result.run, result.error) == (SESSION, 1, None)
    assert (result.gated, result.recorded, result.completed) == (True, True, True)
    assert result.messages == result.all_messages() == tuple(story.state.transcript)
    assert result.questions == ()


def test_nothing_is_lost_when_a_run_is_cancelled() -> None:
    """L5, C2: usage and partial text."""
    story = Story().asked().did(call("a")).trying()
    story.ended("cancelled", reason="by you", partial="Once", charge=paid(1, 1))
    result = report(story.state, recorded=False)
    assert (result.outcome, result.reason) == ("cancelled", "by you")
    assert (result.partial_text, result.usage, result.cost) == ("Once", Usage(1, 1), None)
    assert not result.recorded
    assert not result.completed
    assert not result.gated


def test_a_failure_is_in_the_result() -> None:
    """L5: error."""
    story = Story().asked().failing(broken(partial="Once", visible=True))
    result = report(story.ended("failed", fault=fault()).state, recorded=True)
    assert (result.error, result.partial_text) == (fault(), "Once")


def test_new_messages_are_those_of_this_run() -> None:
    story = Story().asked("One").replied("1").ended("completed").asked("Two").replied("2")
    result = report(story.ended("completed").state, recorded=True)
    assert result.new_messages()[0] == User((Text("Two"),))
    assert len(result.messages) == 4
    assert (result.run, result.new_from, result.text) == (2, 2, "2")


def test_a_run_that_waits_says_for_what() -> None:
    """L4, G6: `suspended` is a pause; each question has the digest of its exact arguments."""
    story = Story().asked().called(call("a", "send", '{"to": "ann"}'), call("b"))
    story.tell(CallJudged("a", Ask("May I?", expires_at=99.0))).allowed("b")
    result = report(story.state, recorded=True)
    assert result.outcome == "suspended"
    (question,) = result.questions
    assert (question.call.id, question.question, question.expires_at) == ("a", "May I?", 99.0)
    assert question.arguments == {"to": "ann"}
    assert question.digest == digest({"to": "ann"})


def test_a_question_about_no_arguments() -> None:
    story = Story().asked().called(call("a")).tell(CallJudged("a", Ask("May I?")))
    assert questions(story.state)[0].arguments == {}


def test_no_step_is_no_question() -> None:
    assert questions(Story().asked().state) == ()
