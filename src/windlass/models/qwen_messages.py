"""A run as the message list of Qwen-Agent, for programs that read those.

The law: nothing is made up. Each text, thought, call and result is one message, in the order in
which it came; thinking that stood in the text stands in the text.
"""

from collections.abc import Iterator
from typing import Any

from windlass.core.messages import (
    AssistantMessage,
    CallOutcome,
    ContentPart,
    FilePart,
    ImagePart,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResults,
    UserMessage,
)
from windlass.core.result import RunResult
from windlass.models.media import data_url
from windlass.models.text_protocols.text_scan import INLINE_SIGNATURE, THINK_END, THINK_START


def to_qwen_messages(
    result: RunResult[Any], *, name: str = "", prompt: bool = False
) -> list[dict[str, Any]]:
    """What a run added to the conversation. `name` is the agent's; `prompt` puts the prompt first.

    Qwen-Agent returns the messages that follow a prompt, and so does this unless told.
    """
    new = result.new_messages()
    messages = [made for message in new[0 if prompt else 1 :] for made in _convert_message(message)]
    if name:
        return [{**made, "name": name} if _is_assistant(made) else made for made in messages]
    return messages


def _is_assistant(message: dict[str, Any]) -> bool:
    return message["role"] == "assistant"


def _convert_message(
    message: UserMessage | AssistantMessage | ToolResults,
) -> Iterator[dict[str, Any]]:
    match message:
        case UserMessage(parts):
            yield {"role": "user", "content": _convert_content(parts)}
        case AssistantMessage():
            yield from _convert_reply(message)
        case ToolResults(items):
            yield from map(_convert_result, items)


def _convert_reply(reply: AssistantMessage) -> Iterator[dict[str, Any]]:
    words = ""
    for part in reply.parts:
        match part:
            case TextPart(text):
                words += text
                continue
            case ThinkingPart(text, signature) if signature == INLINE_SIGNATURE:
                words += THINK_START + text + THINK_END
                continue
            case ThinkingPart(text):
                made: dict[str, Any] = _assistant_message("") | {"reasoning_content": text}
            case ToolCall():
                made = _convert_call(part)
        if words:
            yield _assistant_message(words)
            words = ""
        yield made
    if words:
        yield _assistant_message(words)


def _assistant_message(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def _convert_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return _assistant_message("") | {"function_call": function, "extra": _call_id_extra(call)}


def _convert_result(item: CallOutcome) -> dict[str, Any]:
    content = _convert_content(item.result.content)
    return {
        "role": "function",
        "content": content,
        "name": item.call.name,
        "extra": _call_id_extra(item.call),
    }


def _call_id_extra(call: ToolCall) -> dict[str, str]:
    return {"function_id": call.provider_id or call.id}


def _convert_content(parts: tuple[ContentPart, ...]) -> str | list[dict[str, str]]:
    """Words alone are a string."""
    if all(isinstance(part, TextPart) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, TextPart))
    return [_convert_part(part) for part in parts]


def _convert_part(part: ContentPart) -> dict[str, str]:
    match part:
        case TextPart(text):
            return {"text": text}
        case ImagePart():
            return {"image": data_url(part) or ""}
        case FilePart():
            return {"file": data_url(part) or ""}
