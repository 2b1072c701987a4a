"""State in, request out."""

import json
from itertools import pairwise

import pytest

from facts import MODEL, Story, call, made_for
from play import faults_of
from windlass.core.limits import Limits
from windlass.core.messages import Message, Text, ToolCall, User
from windlass.core.moves import Reason
from windlass.core.setup import ModelInfo, Rules
from windlass.core.view import Prompt, view


def shown(story: Story) -> Prompt:
    return story.go(Reason).prompt


def test_a_request_says_all_that_a_model_must_know() -> None:
    story = Story(model=ModelInfo(MODEL, output_max=77), instructions="Be brief.").asked("Hello")
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
    prompt = shown(Story(instructions="Be brief.", output_schema=schema).asked())
    instructions, _, told = prompt.system.partition("\n\n")
    assert instructions == "Be brief."
    assert json.dumps(schema, separators=(",", ":")) in told
    assert prompt.output_schema == schema


def test_the_output_type_alone_is_the_system_prompt() -> None:
    assert shown(Story(output_schema={"type": "integer"}).asked()).system.startswith("When")


def test_no_instructions_are_no_system_prompt() -> None:
    assert shown(Story().asked()).system == ""


def test_a_request_made_at_the_cap_may_call_nothing() -> None:
    """L8, P5: tools switched off, though they stay in place for the caches of the provider."""
    story = Story(limits=Limits(steps=1), rules=Rules(on_limit="answer", tool_choice="required"))
    prompt = shown(story.asked().did(call("a")))
    assert (prompt.tool_choice, prompt.tools) == ("none", story.setup.tools)


@pytest.mark.parametrize(
    ("met", "choice"), [(False, "required"), (True, "auto")], ids=["open", "met"]
)
def test_the_choice_of_the_caller_holds_until_it_is_met(met: bool, choice: str) -> None:  # noqa: FBT001
    """L12."""
    story = Story(rules=Rules(tool_choice="required")).asked()
    if met:
        story.did(call("a"))
    prompt = view(story.state, story.setup, story.run, "a:b", output_max=1)
    assert (prompt.tool_choice, prompt.output_max) == (choice, 1)


def test_the_history_of_a_step_is_a_prefix_of_the_next_ones() -> None:
    """P5, X1: the transcript is never rewritten."""
    story, seen = Story().asked(), list[list[Message]]()
    for at in range(4):
        seen.append(list(shown(story).messages))
        story.did(call(f"c{at}", "look", f'{{"n": {at}}}'))
    for before, after in pairwise(seen):
        assert after[: len(before)] == before
        assert len(after) == len(before) + 2


def test_a_request_does_not_change_when_the_session_goes_on() -> None:
    """X1: a view is of its moment."""
    story = Story().asked("Hello")
    prompt = shown(story)
    story.did(call("a"))
    assert list(prompt.messages) == [User((Text("Hello"),))]


STOPPED = {
    "before any verdict": Story().asked().called(call("a"), call("b", "send", "{broken")),
    "while a call runs": Story().asked().called(call("a")).allowed("a").began("a"),
    "after one of two": Story().asked().called(call("a"), call("b")).allowed("a", "b").began("a"),
    "in a request": Story().asked().trying(),
    "after an empty reply": Story().asked().replied(),
    "after a final reply": Story().asked().replied("Hi."),
}


@pytest.mark.parametrize("story", STOPPED.values(), ids=STOPPED.keys())
def test_the_next_request_is_valid_wherever_the_run_was_stopped(story: Story) -> None:
    """X1, C3: every call paired with its result, whatever happened."""
    story.ended("cancelled", partial="half a rep" if story.run.attempt else "")
    assert faults_of(shown(story.asked("Go on"))) == []


@pytest.mark.parametrize("name", ["", "read file", "functions.read", "x" * 65])
def test_a_call_of_an_impossible_name_does_not_spoil_the_session(name: str) -> None:
    """X1, T7: an unknown tool is told to the model, and the next request is valid."""
    story = Story().asked().called(ToolCall("a", name, "{}")).ended("cancelled").asked()
    assert faults_of(shown(story)) == []


def test_a_set_up_is_shown_from_its_own_run_on() -> None:
    """L13."""
    story = Story().asked().replied("Hi.").ended("completed")
    other = made_for(tools=(), instructions="Otherwise.")
    prompt = shown(story.asked(setup=other))
    assert (prompt.tools, prompt.system) == ((), "Otherwise.")
