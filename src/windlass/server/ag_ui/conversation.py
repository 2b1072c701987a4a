"""The conversation of a session as messages of AG-UI, with ids that never change.

Invariant: a client that watched a reply and one that reads it afterwards have the same
ids, because they are made of what is on record. A snapshot can so be sent at any time.

What the client itself wrote keeps the client's ids. They are not on record, so a message is known
again by its place and its content.
"""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import Any

from windlass.core.messages import (
    AssistantMessage,
    ContentPart,
    FilePart,
    ImagePart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    ToolResults,
    UserMessage,
)
from windlass.core.projection.entries import EarlierEntry, PromptEntry, SteeringEntry
from windlass.core.projection.view import CallView, Projection, ReplyEntry
from windlass.server.ag_ui.inputs import CONTEXT_HEADING, InputMessage, read_parts
from windlass.server.ag_ui.wire import AgUiMessage, FunctionCall, MessageCall


def reply_id(entry: ReplyEntry) -> str:
    """Return the id of the message that holds a reply, or the calls that the runtime made."""
    return step_id(entry.step) if entry.step else f"lookup-{entry.seq}"


def step_id(step: int) -> str:
    """Return the id of the reply of a step; steps are counted over the whole session."""
    return f"reply-{step}"


def thinking_id(step: int, nth: int) -> str:
    """Return the id of a span of thinking in the reply of a step."""
    return f"thinking-{step}-{nth}"


def result_id(call_id: str) -> str:
    """Return the id of the message that holds the result of a call."""
    return f"result-{call_id}"


def build_messages(view: Projection, known: Sequence[InputMessage]) -> tuple[AgUiMessage, ...]:
    """Return the whole conversation, without the reply that is being written."""
    return tuple(_ConversationBuilder(known).build(view))


def find_new_messages(
    view: Projection | None, messages: Sequence[InputMessage]
) -> Sequence[InputMessage]:
    """Return what the user says after the last message of the agent, without what is on record.

    If its run failed, a prompt is on record without a reply. The last message counts in any case:
    if it is on record too, the client asks again for what it began.
    """
    first = len(messages)
    while first and messages[first - 1].role == "user":
        first -= 1
    if view is not None and len(messages) - first > 1:
        builder = _ConversationBuilder(messages)
        for _ in builder.build(view):
            pass
        for start, end in builder.spans:
            first = max(first, start if end == len(messages) else end)
    return messages[first:]


class _ConversationBuilder:
    def __init__(self, known: Sequence[InputMessage]) -> None:
        self._known = known
        self._known_parts = [tuple(read_parts(message, [])) for message in known]
        self._next = 0
        """The first message of the client that was not found on record yet."""
        self.spans: list[tuple[int, int]] = []
        """Which messages of the client are a prompt on record, from the first to the last."""

    def build(self, view: Projection) -> Iterator[AgUiMessage]:
        for at, entry in enumerate(view.entries):
            match entry:
                case PromptEntry(parts=parts):
                    yield from self._user_messages(f"prompt-{entry.seq}", parts)
                case SteeringEntry(parts=parts):
                    yield from self._user_messages(f"steering-{entry.seq}", parts)
                case EarlierEntry(message):
                    yield from self._earlier_messages(f"earlier-{at}", message)
                case ReplyEntry():
                    yield from _reply_messages(entry)
                case _:
                    pass
        for pending in view.pending:
            yield from self._user_messages(f"steering-{pending.seq}", pending.parts)

    def _user_messages(self, own_id: str, parts: tuple[ContentPart, ...]) -> Iterator[AgUiMessage]:
        """Yield what a person said: as the client's own messages, if it has them."""
        shown = _without_context(parts)
        found = self._find_known(shown)
        for message in found:
            content = message.content
            if not isinstance(content, str):
                content = encode_parts(tuple(read_parts(message, [])))
            yield AgUiMessage(id=message.id, role="user", content=content)
        if not found:
            yield AgUiMessage(id=own_id, role="user", content=encode_content(shown))

    def _find_known(self, parts: tuple[ContentPart, ...]) -> Sequence[InputMessage]:
        """Return the messages of the client, one after the other, that make up these parts."""
        for start in range(self._next, len(self._known)):
            found: list[ContentPart] = []
            for end in range(start, len(self._known)):
                if self._known[end].role != "user":
                    break
                found += self._known_parts[end]
                if tuple(found) == parts:
                    self._next = end + 1
                    self.spans.append((start, end + 1))
                    return self._known[start : end + 1]
        return ()

    def _earlier_messages(self, own_id: str, message: Message) -> Iterator[AgUiMessage]:
        match message:
            case UserMessage(parts=parts):
                yield from self._user_messages(own_id, parts)
            case AssistantMessage():
                known = self._find_message("assistant", message.text)
                calls = tuple(_message_call(call, call.arguments) for call in message.calls)
                yield AgUiMessage(
                    id=known or own_id,
                    role="assistant",
                    content=message.text or None,
                    tool_calls=calls,
                )
            case ToolResults(items=items):
                for item in items:
                    known = self._find_message("tool", item.result.text)
                    yield _result_message(item.call.id, item.result, known)

    def _find_message(self, role: str, text: str) -> str:
        """Return the id of the client's next message of a role with this text; "" if none."""
        for at in range(self._next, len(self._known)):
            message = self._known[at]
            if message.role == role and (message.content or "") == text:
                self._next = at + 1
                return message.id
        return ""


def _without_context(parts: tuple[ContentPart, ...]) -> tuple[ContentPart, ...]:
    """Return a prompt without what the application added to it."""
    last = parts[-1] if parts else None
    if len(parts) > 1 and isinstance(last, TextPart) and last.text.startswith(CONTEXT_HEADING):
        return parts[:-1]
    return parts


def _reply_messages(entry: ReplyEntry) -> Iterator[AgUiMessage]:
    thoughts = [part.text for part in entry.parts if isinstance(part, ThinkingPart) and part.text]
    for nth, text in enumerate(thoughts, 1):
        yield AgUiMessage(id=thinking_id(entry.step, nth), role="reasoning", content=text)
    calls = tuple(_message_call(call.call, shown_arguments(call)) for call in entry.calls)
    if entry.text or calls:
        yield AgUiMessage(
            id=reply_id(entry), role="assistant", content=entry.text or None, tool_calls=calls
        )
    for call in entry.calls:
        if call.result is not None:
            yield _result_message(call.id, call.result)


def _message_call(call: ToolCall, arguments: str) -> MessageCall:
    return MessageCall(call.id, "function", FunctionCall(call.name, arguments))


def _result_message(call_id: str, result: ToolResult, known: str = "") -> AgUiMessage:
    return AgUiMessage(
        id=known or result_id(call_id),
        role="tool",
        content=encode_content(result.content),
        tool_call_id=call_id,
        error=result.text if result.kind != "value" else "",
    )


def shown_arguments(call: CallView) -> str:
    """Return the arguments that run, or those of the model while they have not been judged."""
    return call.arguments or call.call.arguments


def encode_content(parts: tuple[ContentPart, ...]) -> str | list[dict[str, Any]]:
    """Return parts as the content of a message: plain text if there is nothing else."""
    if all(isinstance(part, TextPart) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, TextPart))
    return encode_parts(parts)


def encode_parts(parts: tuple[ContentPart, ...]) -> list[dict[str, Any]]:
    """Return parts as the protocol writes them."""
    return [_encode_part(part) for part in parts]


def _encode_part(part: ContentPart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if part.data is not None:
        source = {"type": "data", "value": b64encode(part.data).decode()}
    else:
        source = {"type": "url", "value": part.url or ""}
    source["mimeType"] = part.media_type
    match part:
        case ImagePart():
            return {"type": "image", "source": source}
        case FilePart(name=name):
            return {"type": "document", "source": source, "metadata": {"filename": name}}
