"""Checks that OpenAI's chat completions and Anthropic's messages would both accept a request.

A transcript only grows, so a checker that is reused checks each message once.
"""

import re
from typing import Any

import msgspec

from windlass.core.messages import AssistantMessage, Message, TextPart, ToolResults, UserMessage
from windlass.core.setup import ToolChoice
from windlass.core.transcript import Transcript
from windlass.core.view import Prompt

TOOL_NAME_PATTERN = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""A tool name that both vendors accept."""

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


def check_prompt(prompt: Prompt) -> None:
    """Raise an AssertionError that names the problem, unless the request is valid."""
    PromptChecker().check(prompt)


class PromptChecker:
    """Checks the requests of a session in order. The cost is that of the new messages."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._seen = Transcript()
        self._asked: AssistantMessage | None = None
        self._ids: set[str] = set()
        self.message_bytes = 0
        """Size of the messages of the last request as JSON, in bytes."""

    def check(self, prompt: Prompt) -> None:
        """Raise AssertionError if a provider would refuse the request."""
        names = [spec.name for spec in prompt.tools]
        for name in names:
            _require(bool(TOOL_NAME_PATTERN.fullmatch(name)), f"{name!r} is not a valid tool name")
        _require(len(names) == len(set(names)), f"a tool is offered twice: {names}")
        _require(
            _can_choose(prompt.tool_choice, names), f"no tool for {prompt.tool_choice!r}: {names}"
        )
        _require(prompt.output_max >= 1, f"output_max is {prompt.output_max}")
        messages = prompt.messages
        seen = self._seen
        # The same log means that this request continues the last one.
        shared = isinstance(messages, Transcript) and messages.log is seen.log
        grown = shared and len(messages) >= len(seen)
        if not grown:
            self._reset()
        at_first = len(seen) if grown else 0
        # Marked as seen only at the end: after a failure the next request is checked in full.
        self._seen = Transcript()
        for at, message in enumerate(messages[at_first:], at_first):
            self._check_message(at, message)
            self.message_bytes += len(msgspec.json.encode(message))
        _require(len(messages) > 0, "there is no message")
        _require(self._asked is None, "the last calls have no results")
        _require(
            not isinstance(messages[-1], AssistantMessage), "the last message is from the model"
        )
        if isinstance(messages, Transcript):
            self._seen = messages

    def _check_message(self, at: int, message: Message) -> None:
        where = f"message {at}"
        _require(
            at > 0 or isinstance(message, UserMessage),
            f"{where}: the first message is not from a user",
        )
        if self._asked is not None:
            _require(isinstance(message, ToolResults), f"{where}: calls before it have no results")
        match message:
            case UserMessage(parts):
                texts = [part.text for part in parts if isinstance(part, TextPart)]
                _require(bool(parts), f"{where}: an empty user message")
                _require(all(text.strip() for text in texts), f"{where}: an empty user text")
            case AssistantMessage():
                self._check_assistant(where, message)
            case ToolResults():
                self._check_results(where, message)

    def _check_assistant(self, where: str, reply: AssistantMessage) -> None:
        calls = reply.calls
        _require(bool(calls) or bool(reply.text.strip()), f"{where}: an empty assistant message")
        blank = any(isinstance(part, TextPart) and not part.text for part in reply.parts)
        _require(not blank, f"{where}: an empty text beside something else")
        for call in calls:
            _require(bool(call.id and call.name), f"{where}: a call without id or name")
            _require(call.id not in self._ids, f"{where}: call id {call.id} is used twice")
            self._ids.add(call.id)
            try:
                _decode_object(call.arguments)
            except msgspec.DecodeError as error:
                problem = f"{where}: arguments of {call.id} are not a JSON object: {error}"
                raise AssertionError(problem) from None
        self._asked = reply if calls else None

    def _check_results(self, where: str, results: ToolResults) -> None:
        _require(self._asked is not None, f"{where}: results without calls")
        asked = self._asked.calls if self._asked else ()
        answered = [item.call.id for item in results.items]
        wanted = [call.id for call in asked]
        _require(answered == wanted, f"{where}: results for {answered}, calls were {wanted}")
        same = all(item.call == call for item, call in zip(results.items, asked, strict=True))
        _require(same, f"{where}: a result belongs to a different call than the one it answers")
        self._asked = None


def _can_choose(choice: ToolChoice, names: list[str]) -> bool:
    if choice in {"auto", "none"}:
        return True
    return bool(names) if choice == "required" else choice in names


def _require(holds: bool, otherwise: str) -> None:  # noqa: FBT001
    if not holds:
        raise AssertionError(f"not a valid request: {otherwise}")
