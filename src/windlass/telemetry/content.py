"""What was said, in the form that the conventions give it: JSON, as text.

Pictures and files are named, and not carried along.
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
from windlass.telemetry.conventions import TelemetryNames

_decode = msgspec.json.Decoder[Any]().decode


def as_instructions(text: str) -> str:
    return _encode_json([{"type": "text", "content": text}])


def as_messages(said: Iterable[Message]) -> str:
    """The messages that a model is shown."""
    return _encode_json([_message_json(one) for one in said])


def as_prompt(parts: Iterable[ContentPart]) -> str:
    return _encode_json([{"role": "user", "parts": [_part_json(part) for part in parts]}])


def as_reply(said: AssistantMessage, stop: StopReason) -> str:
    """What a model said."""
    return _encode_json(
        [{**_message_json(said), "finish_reason": TelemetryNames.FINISH_REASON_BY_STOP[stop]}]
    )


def as_result(given: ToolResult) -> str:
    return _encode_json(given.text)


def as_tools(specs: Iterable[ToolSpec]) -> str:
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
            given = _parse_arguments(arguments)
            return {"type": "tool_call", "id": call_id, "name": name, "arguments": given}
        case ImagePart(media_type, url=url):
            return _attachment_json("image", media_type, url)
        case FilePart(media_type, url=url):
            return _attachment_json("file", media_type, url)


def _attachment_json(modality: str, media_type: str, url: str | None) -> dict[str, Any]:
    told = {"modality": modality, "mime_type": media_type}
    return {"type": "blob", **told} if url is None else {"type": "uri", **told, "uri": url}


def _parse_arguments(arguments: str) -> Any:  # noqa: ANN401 - whatever the model wrote
    try:
        return _decode(arguments)
    except msgspec.DecodeError:
        return arguments


def _encode_json(value: object) -> str:
    return msgspec.json.encode(value).decode()
