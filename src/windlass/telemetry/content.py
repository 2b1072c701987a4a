"""Messages, tools and results in the form of the conventions: JSON, as text.

Images and files are only mentioned; their data is not exported.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from windlass.core.deltas import StopReason
from windlass.core.messages import (
    AssistantMessage,
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
    ToolSpec,
    UserMessage,
)
from windlass.telemetry.conventions import OtelNames

_decode = msgspec.json.Decoder[Any]().decode


def as_instructions(text: str) -> str:
    """Return the system instructions."""
    return _encode_json([{"type": "text", "content": text}])


def as_messages(messages: Iterable[Message]) -> str:
    """Return the messages that a model is shown."""
    return _encode_json([_message_json(message) for message in messages])


def as_prompt(parts: Iterable[ContentPart]) -> str:
    """Return the prompt of a run, as the message of a user."""
    return _encode_json([{"role": "user", "parts": [_part_json(part) for part in parts]}])


def as_reply(reply: AssistantMessage, stop: StopReason) -> str:
    """Return the reply of a model, with the reason why it ended."""
    finish_reason = OtelNames.FINISH_REASON_BY_STOP[stop]
    return _encode_json([{**_message_json(reply), "finish_reason": finish_reason}])


def as_result(result: ToolResult) -> str:
    """Return the text of a tool's result."""
    return _encode_json(result.text)


def as_tools(specs: Iterable[ToolSpec]) -> str:
    """Return the definitions of tools."""
    return _encode_json(
        [
            {
                "type": "function",
                "name": spec.name,
                "description": spec.description,
                "parameters": spec.parameters,
            }
            for spec in specs
        ]
    )


def _message_json(message: Message) -> dict[str, Any]:
    match message:
        case UserMessage(parts):
            return {"role": "user", "parts": [_part_json(part) for part in parts]}
        case AssistantMessage(parts):
            return {"role": "assistant", "parts": [_part_json(part) for part in parts]}
        case ToolResults(items):
            parts = [
                {"type": "tool_call_response", "id": item.call.id, "response": item.result.text}
                for item in items
            ]
            return {"role": "tool", "parts": parts}


def _part_json(part: ContentPart | ReplyPart) -> dict[str, Any]:
    match part:
        case TextPart(text):
            return {"type": "text", "content": text}
        case ThinkingPart(text):
            return {"type": "reasoning", "content": text}
        case ToolCall(call_id, name, arguments):
            parsed = _parse_arguments(arguments)
            return {"type": "tool_call", "id": call_id, "name": name, "arguments": parsed}
        case ImagePart(media_type, url=url):
            return _attachment_json("image", media_type, url)
        case FilePart(media_type, url=url):
            return _attachment_json("file", media_type, url)


def _attachment_json(modality: str, media_type: str, url: str | None) -> dict[str, Any]:
    attachment = {"modality": modality, "mime_type": media_type}
    if url is None:
        return {"type": "blob", **attachment}
    return {"type": "uri", **attachment, "uri": url}


def _parse_arguments(arguments: str) -> Any:  # noqa: ANN401 - whatever the model wrote
    """Return the arguments as JSON, or as the text that the model wrote if it is not JSON."""
    try:
        return _decode(arguments)
    except msgspec.DecodeError:
        return arguments


def _encode_json(value: object) -> str:
    return msgspec.json.encode(value).decode()
