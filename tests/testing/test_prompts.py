"""The check of a request: what a provider would refuse is refused here first."""

from dataclasses import replace
from typing import Any

import pytest

from windlass.core.messages import (
    AssistantMessage,
    CallOutcome,
    ImagePart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    ToolResults,
    ToolSpec,
    UserMessage,
)
from windlass.core.transcript import Transcript
from windlass.core.view import Prompt
from windlass.testing import PromptChecker, check_prompt

HELLO = UserMessage((TextPart("Hello"),))
A, B = ToolCall("c1", "look", "{}"), ToolCall("c2", "look", '{"at": [1]}')
DONE = ToolResult.from_text("value", "")
TOOL = ToolSpec("look", "Looks.", {"type": "object"})


def said(*calls: ToolCall, text: str = "") -> AssistantMessage:
    return AssistantMessage((*((TextPart(text),) if text else ()), *calls))


def results(*calls: ToolCall) -> ToolResults:
    return ToolResults(tuple(CallOutcome(call, DONE) for call in calls))


def prompt(*messages: Message) -> Prompt:
    return Prompt("m", "", messages, (TOOL,), "auto", 100)


PICTURE = UserMessage((ImagePart("image/png", url="https://example.com/a.png"),))


@pytest.mark.parametrize(
    "messages",
    [
        [HELLO],
        [HELLO, HELLO],
        [PICTURE],
        [HELLO, said(A, B, text="I look."), results(A, B)],
        [HELLO, said(A), results(A), said(B), results(B), HELLO],
        [HELLO, said(text="Hi."), HELLO],
        [HELLO, AssistantMessage((ThinkingPart("Hm."), TextPart("\n"), A)), results(A)],
    ],
)
def test_valid_requests(messages: list[Message]) -> None:
    check_prompt(prompt(*messages))


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([], "no message"),
        ([said(text="Hi.")], "the first message is not from a user"),
        ([results(A)], "the first message is not from a user"),
        ([HELLO, results(A)], "results without calls"),
        ([HELLO, said(A)], "the last calls have no results"),
        ([HELLO, said(A), HELLO], "calls before it have no results"),
        ([HELLO, said(A), said(text="Hi.")], "calls before it have no results"),
        ([HELLO, said(A, B), results(A)], "results for ['c1'], calls were ['c1', 'c2']"),
        ([HELLO, said(A, B), results(B, A)], "results for ['c2', 'c1']"),
        ([HELLO, said(A), results(A, B)], "results for ['c1', 'c2']"),
        ([HELLO, said(A), results(A), results(A)], "results without calls"),
        ([HELLO, said(A), results(A), said(A), results(A)], "call id c1 is used twice"),
        ([HELLO, said(A, A), results(A, A)], "call id c1 is used twice"),
        ([HELLO, said(A), results(ToolCall("c1", "x", "{}"))], "a different call"),
        ([HELLO, said(), HELLO], "an empty assistant message"),
        ([HELLO, said(text=" "), HELLO], "an empty assistant message"),
        ([HELLO, AssistantMessage((ThinkingPart("Hm."),)), HELLO], "an empty assistant message"),
        ([HELLO, AssistantMessage((TextPart(""), A)), results(A)], "an empty text"),
        ([HELLO, said(ToolCall("", "look", "{}"))], "without id or name"),
        ([HELLO, said(ToolCall("c", "", "{}"))], "without id or name"),
        ([HELLO, said(ToolCall("c", "look", ""))], "not a JSON object"),
        ([HELLO, said(ToolCall("c", "look", "[]"))], "not a JSON object"),
        ([HELLO, said(ToolCall("c", "look", "{"))], "not a JSON object"),
        ([HELLO, said(text="Hi.")], "the last message is from the model"),
        ([UserMessage(())], "an empty user message"),
        ([UserMessage((TextPart(" \n"),))], "an empty user text"),
    ],
)
def test_invalid_requests(messages: list[Message], told: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check_prompt(prompt(*messages))
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"tools": ("a b",)}, "not a valid tool name"),
        ({"tools": ("x" * 65,)}, "not a valid tool name"),
        ({"tools": ("",)}, "not a valid tool name"),
        ({"tools": ("a", "a")}, "offered twice"),
        ({"tool_choice": "go"}, "no tool for 'go'"),
        ({"tools": (), "tool_choice": "required"}, "no tool for 'required'"),
        ({"output_max": 0}, "output_max is 0"),
    ],
)
def test_invalid_settings(changes: dict[str, Any], told: str) -> None:
    if "tools" in changes:
        specs = tuple(ToolSpec(name, "", {"type": "object"}) for name in changes["tools"])
        changes = changes | {"tools": specs}
    with pytest.raises(AssertionError) as caught:
        check_prompt(replace(prompt(HELLO), **changes))
    assert told in str(caught.value)


def test_a_kept_checker_looks_at_what_is_new() -> None:
    checker = PromptChecker()
    transcript = Transcript([HELLO])
    checker.check(prompt_of(transcript))
    size = checker.message_bytes
    checker.check(prompt_of(transcript))
    assert checker.message_bytes == size, "the same request twice is a retry"
    longer = transcript.append(said(A), results(A))
    checker.check(prompt_of(longer))
    assert checker.message_bytes > size
    with pytest.raises(AssertionError, match="used twice"):
        checker.check(prompt_of(longer.append(said(A), results(A))))


def test_a_kept_checker_starts_anew_with_another_past() -> None:
    checker = PromptChecker()
    checker.check(prompt_of(Transcript([HELLO, said(A), results(A)])))
    checker.check(prompt_of(Transcript([HELLO, said(A), results(A)])))
    checker.check(prompt(HELLO, said(A), results(A)))
    with pytest.raises(AssertionError, match="no results"):
        checker.check(prompt_of(Transcript([HELLO, said(A)])))
    checker.check(prompt(HELLO))


def prompt_of(transcript: Transcript) -> Prompt:
    return replace(prompt(), messages=transcript)
