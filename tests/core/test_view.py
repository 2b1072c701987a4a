"""State in, request out."""

import json
from itertools import pairwise

import pytest

from facts import MODEL, Story, make_call, make_setup
from play import request_faults
from windlass.core.limits import Limits
from windlass.core.messages import Message, TextPart, ToolCall, UserMessage
from windlass.core.moves import RequestReply
from windlass.core.setup import LoopPolicy, ModelInfo
from windlass.core.view import Prompt, build_prompt


def shown(story: Story) -> Prompt:
    return story.expect_move(RequestReply).prompt


def test_a_request_says_all_that_a_model_must_know() -> None:
    story = Story(model=ModelInfo(MODEL, output_max=77), instructions="Be brief.").start_run(
        "Hello"
    )
    assert shown(story) == Prompt(
        model=MODEL,
        system="Be brief.",
        messages=story.state.transcript,
        tools=story.setup.tools,
        tool_choice="auto",
        output_max=77,
    )


def test_the_output_type_is_told_in_the_system_prompt() -> None:
    """X1: one system prompt."""
    schema = {"type": "integer"}
    prompt = shown(Story(instructions="Be brief.", output_schema=schema).start_run())
    instructions, _, told = prompt.system.partition("\n\n")
    assert instructions == "Be brief."
    assert json.dumps(schema, separators=(",", ":")) in told
    assert prompt.output_schema == schema


def test_the_output_type_alone_is_the_system_prompt() -> None:
    assert shown(Story(output_schema={"type": "integer"}).start_run()).system.startswith("When")


def test_no_instructions_are_no_system_prompt() -> None:
    assert shown(Story().start_run()).system == ""


def test_a_request_made_at_the_cap_may_call_nothing() -> None:
    """L8, P5: tools switched off, though they stay in place for the caches of the provider."""
    story = Story(
        limits=Limits(steps=1), rules=LoopPolicy(on_limit="answer", tool_choice="required")
    )
    prompt = shown(story.start_run().do_step(make_call("a")))
    assert (prompt.tool_choice, prompt.tools) == ("none", story.setup.tools)


@pytest.mark.parametrize(
    ("met", "choice"), [(False, "required"), (True, "auto")], ids=["open", "met"]
)
def test_the_choice_of_the_caller_holds_until_it_is_met(met: bool, choice: str) -> None:  # noqa: FBT001
    """L12."""
    story = Story(rules=LoopPolicy(tool_choice="required")).start_run()
    if met:
        story.do_step(make_call("a"))
    prompt = build_prompt(story.state, story.setup, story.run, "a:b", output_max=1)
    assert (prompt.tool_choice, prompt.output_max) == (choice, 1)


def test_the_history_of_a_step_is_a_prefix_of_the_next_ones() -> None:
    """P5, X1: the transcript is never rewritten."""
    story, seen = Story().start_run(), list[list[Message]]()
    for at in range(4):
        seen.append(list(shown(story).messages))
        story.do_step(make_call(f"c{at}", "look", f'{{"n": {at}}}'))
    for before, after in pairwise(seen):
        assert after[: len(before)] == before
        assert len(after) == len(before) + 2


def test_a_request_does_not_change_when_the_session_goes_on() -> None:
    """X1: a view is of its moment."""
    story = Story().start_run("Hello")
    prompt = shown(story)
    story.do_step(make_call("a"))
    assert list(prompt.messages) == [UserMessage((TextPart("Hello"),))]


STOPPED = {
    "before any verdict": Story()
    .start_run()
    .take_calls(make_call("a"), make_call("b", "send", "{broken")),
    "while a call runs": Story()
    .start_run()
    .take_calls(make_call("a"))
    .allow_calls("a")
    .start_calls("a"),
    "after one of two": Story()
    .start_run()
    .take_calls(make_call("a"), make_call("b"))
    .allow_calls("a", "b")
    .start_calls("a"),
    "in a request": Story().start_run().start_attempt(),
    "after an empty reply": Story().start_run().take_reply(),
    "after a final reply": Story().start_run().take_reply("Hi."),
}


@pytest.mark.parametrize("story", STOPPED.values(), ids=STOPPED.keys())
def test_the_next_request_is_valid_wherever_the_run_was_stopped(story: Story) -> None:
    """X1, C3: every call paired with its result, whatever happened."""
    story.end_run("cancelled", partial="half a rep" if story.run.attempt else "")
    assert request_faults(shown(story.start_run("Go on"))) == []


@pytest.mark.parametrize("name", ["", "read file", "functions.read", "x" * 65])
def test_a_call_of_an_impossible_name_does_not_spoil_the_session(name: str) -> None:
    """X1, T7: an unknown tool is told to the model, and the next request is valid."""
    story = (
        Story().start_run().take_calls(ToolCall("a", name, "{}")).end_run("cancelled").start_run()
    )
    assert request_faults(shown(story)) == []


def test_a_set_up_is_shown_from_its_own_run_on() -> None:
    """L13."""
    story = Story().start_run().take_reply("Hi.").end_run("completed")
    other = make_setup(tools=(), instructions="Otherwise.")
    prompt = shown(story.start_run(setup=other))
    assert (prompt.tools, prompt.system) == ((), "Otherwise.")
