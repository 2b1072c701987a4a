"""Reads message lists of Qwen-Agent, so that a conversation that began there continues here.

Invariant: nothing is lost and nothing is made up. A list that is not one of Qwen-Agent's is an
error that says which message is wrong. A call without a result gets one that says so, because no
provider accepts a history in which a call lacks its result.
"""

import mimetypes
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable
from urllib.parse import urlsplit

from windlass.core.errors import ConfigError
from windlass.core.messages import (
    AssistantMessage,
    CallOutcome,
    ContentPart,
    FilePart,
    ImagePart,
    Message,
    ReplyPart,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    ToolResults,
    UserMessage,
)
from windlass.models.text_protocols.text_scan import INLINE_SIGNATURE, THINK_END, THINK_START

_NO_RESULT = "The conversation that this comes from has no result of this call."


@runtime_checkable
class _Dumpable(Protocol):
    """A message as an object; Qwen-Agent's are models of pydantic."""

    def model_dump(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class QwenConversation:
    """A conversation of Qwen-Agent in the parts that a run here takes.

    conversation = from_qwen_messages(messages)
    agent = Agent(model, instructions=conversation.instructions)
    await agent.run(conversation.prompt, messages=conversation.history)
    """

    instructions: str
    """The text of its system messages."""
    history: tuple[Message, ...]
    """Everything that was said before the last message of the user."""
    prompt: tuple[ContentPart, ...]
    """The last message of the user; empty if the list ends with something else."""


def from_qwen_messages(messages: Sequence[Mapping[str, Any] | object]) -> QwenConversation:
    """Read a message list of Qwen-Agent: dicts, or its own Message objects.

    Raises ConfigError, naming the message, if one cannot be read.
    """
    reader = _ListReader()
    for number, message in enumerate(messages):
        reader.add_message(number, _as_fields(message, number))
    reader.close_step()
    found = reader.messages
    last = found[-1] if found else None
    prompt: tuple[ContentPart, ...] = ()
    if isinstance(last, UserMessage):
        prompt = last.parts
        found = found[:-1]
    return QwenConversation("\n\n".join(reader.instructions), tuple(found), prompt)


def _as_fields(message: Mapping[str, Any] | object, number: int) -> Mapping[str, Any]:
    if isinstance(message, Mapping):
        return cast("Mapping[str, Any]", message)
    if isinstance(message, _Dumpable):
        return message.model_dump()
    raise _wrong_message(number, f"it is {type(message).__name__}, and not a message")


class _ListReader:
    """Groups the messages: what a model said until the next results is one reply."""

    def __init__(self) -> None:
        self.instructions: list[str] = []
        self.messages: list[Message] = []
        self._reply: list[ReplyPart] = []
        self._open_calls: list[ToolCall] = []
        self._outcomes: list[CallOutcome] = []
        self._call_count = 0

    def add_message(self, number: int, fields: Mapping[str, Any]) -> None:
        content = _read_content(fields.get("content"), number)
        match fields.get("role"):
            case "system":
                self.instructions.append(_join_text(content))
            case "user":
                self.close_step()
                self.messages.append(UserMessage(content))
            case "assistant":
                if self._outcomes:
                    self.close_step()
                self._reply += self._read_reply(fields, content, number)
            case "function":
                self._add_result(fields, content, number)
            case role:
                raise _wrong_message(number, f"there is no role {role!r}")

    def close_step(self) -> None:
        """End the reply that is open, with the results of its calls."""
        if not self._reply:
            return
        self.messages.append(AssistantMessage(tuple(self._reply)))
        missing = ToolResult.from_text("unknown", _NO_RESULT)
        given = {outcome.call.id: outcome for outcome in self._outcomes}
        calls = [part for part in self._reply if isinstance(part, ToolCall)]
        if calls:
            items = (given.get(call.id) or CallOutcome(call, missing) for call in calls)
            self.messages.append(ToolResults(tuple(items)))
        self._reply, self._open_calls, self._outcomes = [], [], []

    def _read_reply(
        self, fields: Mapping[str, Any], content: tuple[ContentPart, ...], number: int
    ) -> Iterator[ReplyPart]:
        if thinking := fields.get("reasoning_content"):
            yield ThinkingPart(str(thinking))
        yield from _split_thinking(_join_text(content))
        call = fields.get("function_call")
        if call is None:
            return
        call = _as_fields(call, number)
        self._call_count += 1
        found = ToolCall(
            f"q{self._call_count}",
            str(call.get("name") or "unnamed"),  # No provider takes a call without a name.
            str(call.get("arguments") or "{}"),
            _function_id(fields),
        )
        self._open_calls.append(found)
        yield found

    def _add_result(
        self, fields: Mapping[str, Any], content: tuple[ContentPart, ...], number: int
    ) -> None:
        call = self._find_call(_function_id(fields), fields.get("name"))
        if call is None:
            raise _wrong_message(number, "it is the result of a call that is not in the list")
        self._open_calls.remove(call)
        self._outcomes.append(CallOutcome(call, ToolResult("value", content)))

    def _find_call(self, function_id: str | None, name: object) -> ToolCall | None:
        """Return the call of an id, else the first one of a name: some lists have no ids."""
        for call in self._open_calls:
            if function_id is not None and call.provider_id == function_id:
                return call
        return next((call for call in self._open_calls if name in (None, call.name)), None)


def _function_id(fields: Mapping[str, Any]) -> str | None:
    extra: Mapping[str, Any] = fields.get("extra") or {}
    return extra.get("function_id")


def _split_thinking(text: str) -> Iterator[ReplyPart]:
    """Yield the thinking inside a text, and the text around it."""
    while text:
        before, start, rest = text.partition(THINK_START)
        thought, end, after = rest.partition(THINK_END)
        if not start or not end:
            yield TextPart(text)
            return
        if before:
            yield TextPart(before)
        yield ThinkingPart(thought, INLINE_SIGNATURE)
        text = after


def _join_text(content: Sequence[ContentPart]) -> str:
    return "".join(part.text for part in content if isinstance(part, TextPart))


def _read_content(content: object, number: int) -> tuple[ContentPart, ...]:
    if content is None or content == "":
        return ()
    if isinstance(content, str):
        return (TextPart(content),)
    if not isinstance(content, Sequence):
        raise _wrong_message(number, "its content is neither text nor a list")
    items = cast("Sequence[object]", content)
    return tuple(_read_item(_as_fields(item, number), number) for item in items)


def _read_item(item: Mapping[str, Any], number: int) -> ContentPart:
    given = {kind: value for kind, value in item.items() if value is not None}
    match given:
        case {"text": str(text)}:
            return TextPart(text)
        case {"image": str(address)}:
            media_type, data = _read_address(address, number)
            return ImagePart(media_type, data, None if data is not None else address)
        case {"file": str(address)}:
            media_type, data = _read_address(address, number)
            name = urlsplit(address).path.rsplit("/", 1)[-1] if data is None else "file"
            return FilePart(media_type, name, data, None if data is not None else address)
        case _:
            kinds = ", ".join(given) or "nothing"
            raise _wrong_message(number, f"an item of its content holds {kinds}")


def _read_address(address: str, number: int) -> tuple[str, bytes | None]:
    """Return the media type and the content of a picture or a file; no content if it is a link."""
    if address.startswith("data:"):
        head, _, encoded = address.removeprefix("data:").partition(",")
        try:
            return head.partition(";")[0], b64decode(encoded, validate=True)
        except Base64Error:
            raise _wrong_message(number, "a data URL in it cannot be read") from None
    if not address.startswith(("http://", "https://")):
        raise _wrong_message(number, f'"{address}" is a file of another program: attach() it')
    guessed = mimetypes.guess_type(urlsplit(address).path)[0]
    return guessed or "application/octet-stream", None


def _wrong_message(number: int, problem: str) -> ConfigError:
    return ConfigError(f"message {number} cannot be read: {problem}")
