"""Whether a list of messages is a conversation that every provider accepts.

The transcript of a session is one by the way it is built. Messages that a program hands in have to
be checked: once before they are recorded, and again whenever the record is read.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from windlass.core.messages import (
    AssistantMessage,
    Message,
    TextPart,
    ToolCall,
    ToolResults,
    UserMessage,
)

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


def find_conversation_fault(messages: Sequence[Message]) -> str | None:
    """Return what keeps messages from being a valid beginning of a session; None if nothing does.

    They begin with a user, none is empty, each call has a name of its own and readable arguments,
    and its result follows in the next message.
    """
    open_calls: tuple[ToolCall, ...] = ()
    ids: set[str] = set()
    for at, message in enumerate(messages):
        fault = _find_message_fault(message, open_calls, ids)
        if fault is None and at == 0 and not isinstance(message, UserMessage):
            fault = "the first message must be from the user"
        if fault is not None:
            return f"messages[{at}]: {fault}"
        open_calls = message.calls if isinstance(message, AssistantMessage) else ()
    if open_calls:
        return f"the call {open_calls[0].name} has no result"
    return None


def _find_message_fault(
    message: Message, open_calls: tuple[ToolCall, ...], ids: set[str]
) -> str | None:
    if isinstance(message, ToolResults):
        if not open_calls or tuple(item.call for item in message.items) != open_calls:
            return "its results are not those of the calls before it"
        return None
    if open_calls:
        return f"the call {open_calls[0].name} before it has no result"
    if isinstance(message, UserMessage):
        blank = not message.parts or _has_blank_text(message)
        return "it is empty" if blank else None
    if _has_blank_text(message) or not (message.calls or message.text.strip()):
        return "it has neither text nor calls"
    for call in message.calls:
        if not call.name or not call.id or call.id in ids:
            return f"two calls have the id {call.id!r}, or a call has no name"
        if not _is_json_object(call.arguments):
            return f"the arguments of {call.name} are not a JSON object"
        ids.add(call.id)
    return None


def _has_blank_text(message: UserMessage | AssistantMessage) -> bool:
    return any(isinstance(part, TextPart) and not part.text.strip() for part in message.parts)


def _is_json_object(text: str) -> bool:
    try:
        _decode_object(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
