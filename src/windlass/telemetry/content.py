"""What was said, in the form that the conventions give it: JSON, as text.

Pictures and files are named, and not carried along.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from windlass.core.deltas import Stop
from windlass.core.messages import (
    Assistant,
    Content,
    File,
    Image,
    Message,
    Result,
    Results,
    Said,
    Text,
    Thinking,
    ToolCall,
    ToolSpec,
    User,
)
from windlass.telemetry.conventions import Words

_decode = msgspec.json.Decoder[Any]().decode


def as_instructions(text: str) -> str:
    return _json([{"type": "text", "content": text}])


def as_messages(said: Iterable[Message]) -> str:
    """The messages that a model is shown."""
    return _json([_message(one) for one in said])


def as_prompt(parts: Iterable[Content]) -> str:
    return _json([{"role": "user", "parts": [_part(part) for part in parts]}])


def as_reply(said: Assistant, stop: Stop) -> str:
    """What a model said."""
    return _json([{**_message(said), "finish_reason": Words.FINISHES[stop]}])


def as_result(given: Result) -> str:
    return _json(given.text)


def as_tools(specs: Iterable[ToolSpec]) -> str:
    return _json(
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


def _message(message: Message) -> dict[str, Any]:
    match message:
        case User(parts):
            return {"role": "user", "parts": [_part(part) for part in parts]}
        case Assistant(parts):
            return {"role": "assistant", "parts": [_part(part) for part in parts]}
        case Results(items):
            parts = [
                {"type": "tool_call_response", "id": item.call.id, "response": item.result.text}
                for item in items
            ]
            return {"role": "tool", "parts": parts}


def _part(part: Content | Said) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "text", "content": text}
        case Thinking(text):
            return {"type": "reasoning", "content": text}
        case ToolCall(call_id, name, arguments):
            given = _parsed(arguments)
            return {"type": "tool_call", "id": call_id, "name": name, "arguments": given}
        case Image(media_type, url=url):
            return _attached("image", media_type, url)
        case File(media_type, url=url):
            return _attached("file", media_type, url)


def _attached(modality: str, media_type: str, url: str | None) -> dict[str, Any]:
    told = {"modality": modality, "mime_type": media_type}
    return {"type": "blob", **told} if url is None else {"type": "uri", **told, "uri": url}


def _parsed(arguments: str) -> Any:  # noqa: ANN401 - whatever the model wrote
    try:
        return _decode(arguments)
    except msgspec.DecodeError:
        return arguments


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
