"""Which calls run after a driver died: suspects alone, and a poison call not at all."""

from typing import Any

import pytest

from tests.support.facts import SESSION, TOOLS, Story, make_call, make_spec
from windlass.core.events import (
    CallAnswered,
    CallJudged,
    CallStarted,
    CallWaiting,
    LimitsRaised,
    RunContinued,
    RunPaused,
    RunReleased,
    RunResumed,
)
from windlass.core.limits import RaisedLimits
from windlass.core.messages import ToolSpec
from windlass.core.moves import PauseRun, RunCalls, StayPaused, WaitForAnswers
from windlass.core.setup import digest
from windlass.core.verdicts import Allow, Ask

pytestmark = pytest.mark.contract("D15")
ISOLATED = ToolSpec("apart", "", {"type": "object"}, "read", isolated=True)


def died_in(*calls: Any, died: int = 1, **settings: Any) -> Story:
    """A run whose driver died while these calls ran, and then again while the first one ran."""
    story = Story(**settings).start_run().take_calls(*calls)
    ids = [call.id for call in calls]
    story.allow_calls(*ids).start_calls(*ids).resume()
    for _ in range(died - 1):
        story.start_calls(ids[0]).resume()
    return story


def suspects(story: Story) -> dict[str, tuple[int, ...]]:
    return {call.id: call.died_with for call in story.state.step_calls}


def test_calls_that_ran_at_a_death_run_one_at_a_time_after_it() -> None:
    """D15: any of them may have taken the process down, and the next death has to tell."""
    story = died_in(make_call("a"), make_call("b"))
    move = story.expect_move(RunCalls)
    assert [(call.call.id, call.is_suspect) for call in move.calls] == [("a", True)]
    assert story.start_calls("a").finish_calls("a").next_call_ids == ["b"]


def test_calls_that_were_not_running_go_first_and_together() -> None:
    """D15: a call without a death against it does not wait for a suspect."""
    story = Story().start_run().take_calls(*map(make_call, "abc")).allow_calls("a", "b", "c")
    story.start_calls("a").resume()
    assert story.next_call_ids == ["b", "c"]
    assert not any(call.is_suspect for call in story.expect_move(RunCalls).calls)


def test_a_suspect_does_not_begin_while_the_sub_agent_of_another_call_waits() -> None:
    """D12, D15: a run that is on record as waiting does nothing, and nobody looks after it."""
    story = died_in(make_call("a"), make_call("b", "apart"), tools=(*TOOLS, ISOLATED))
    assert story.next_call_ids == ["b"]
    story.start_calls("b").add(CallWaiting("b", f"{SESSION}/b"))
    assert [call.id for call in story.expect_move(WaitForAnswers).waiting] == ["b"]
    assert "another call waits" in story.check_refused(CallStarted("a", f"{SESSION}/a", "look"))
    assert story.resume().next_call_ids == ["b"]
    assert story.start_calls("b").finish_calls("b").next_call_ids == ["a"]


def test_the_only_suspect_at_a_second_death_is_parked_and_no_other_call() -> None:
    """D15: its run is paused, for a reason that names the tool and the call."""
    story = died_in(make_call("a"), make_call("b"), died=2)
    assert story.next_call_ids == ["b"]
    story.start_calls("b").finish_calls("b")
    move = story.expect_move(PauseRun)
    assert move.cause == "deaths"
    assert "2 drivers died while look ran (call a)" in move.reason
    story.add(RunPaused(move.reason, cause="deaths")).expect_move(StayPaused)


def test_a_death_is_kept_as_the_driver_that_died() -> None:
    """D15: so that one of them can be taken back, if that driver turns out to be alive."""
    story = died_in(make_call("a", "touch"))
    second = story.run.opening_seq
    story.start_calls("a").resume()
    assert suspects(story) == {"a": (1, second)}


def test_a_suspect_that_waits_for_its_turn_is_not_held_to_account() -> None:
    """D15: it had not started again, so the death was another one's."""
    story = died_in(make_call("a")).resume().resume()
    assert suspects(story) == {"a": (1,)}
    assert story.next_call_ids == ["a"]
    assert story.run.fruitless == ()


def test_a_release_is_not_a_death() -> None:
    """D15: a deploy during a long call says nothing about the call."""
    story = Story().start_run().take_calls(make_call("a")).allow_calls("a").start_calls("a")
    for _ in range(3):
        story.add(RunReleased("deployed")).resume().start_calls("a")
    assert suspects(story) == {"a": ()}


def test_a_call_in_a_process_or_session_of_its_own_is_no_suspect() -> None:
    """D15: the death of the driver was not its doing."""
    story = died_in(make_call("a", "apart"), died=3, tools=(*TOOLS, ISOLATED))
    assert suspects(story) == {"a": ()}
    assert story.next_call_ids == ["a"]


def test_a_person_who_continues_the_run_lets_the_call_run_once_more_alone() -> None:
    """D15: if it takes its process down again, it is parked again."""
    story = died_in(make_call("a"), died=2)
    story.add(RunPaused(story.expect_move(PauseRun).reason, cause="deaths"))
    story.add(RunContinued("ann"))
    assert story.expect_move(RunCalls).calls[0].is_suspect
    story.start_calls("a").resume()
    story.expect_move(PauseRun)


def test_higher_limits_do_not_continue_a_parked_run() -> None:
    story = died_in(make_call("a"), died=2)
    story.add(RunPaused("parked", cause="deaths"), LimitsRaised(RaisedLimits(steps=99)))
    story.expect_move(StayPaused)


def test_a_write_is_settled_before_it_can_be_parked() -> None:
    """D15, J2: it does not start again by itself, so its tool is asked first, whatever died."""
    story = died_in(make_call("a", "send"))
    story.add(CallJudged("a", Allow("it had not happened"))).start_calls("a").resume()
    (call,) = story.expect_move(RunCalls).calls
    assert call.interrupted
    story.add(CallJudged("a", Allow("it had not happened")))
    story.expect_move(PauseRun)


def test_a_person_who_allows_the_call_lets_it_run_once_more() -> None:
    story = died_in(make_call("a", "send"))
    story.add(CallJudged("a", Allow())).start_calls("a").resume()
    story.add(CallJudged("a", Ask("Again?"))).add(CallAnswered("a", Allow(), digest({})))
    assert story.next_call_ids == ["a"]


def test_a_paused_run_does_not_run_its_poison_call() -> None:
    """D15: calls of the open step run to their end in a pause, but not this one."""
    story = died_in(make_call("a"), died=2).add(RunPaused("lunch", by="ann"))
    story.expect_move(StayPaused)


def test_a_poison_call_is_not_overtaken_by_what_must_come_after_it() -> None:
    """D15, T2: a write behind it waits, because the model may rely on the order."""
    story = Story().start_run().take_calls(make_call("a"), make_call("b", "send"))
    story.allow_calls("a", "b").start_calls("a").resume().start_calls("a").resume()
    story.expect_move(PauseRun)


def test_a_changed_tool_does_not_clear_a_suspect() -> None:
    """D15: it is judged again, and still runs alone."""
    story = Story().start_run().take_calls(make_call("a")).allow_calls("a").start_calls("a")
    changed = Story(tools=(make_spec("look", "read", "untrusted"), *TOOLS[1:])).setup
    story.add(RunResumed(setup=changed))
    assert suspects(story) == {"a": (1,)}
