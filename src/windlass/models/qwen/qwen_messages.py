"""Converts a run to the message list of Qwen-Agent, for programs that read that format.

Invariant: nothing is made up. Each text, thought, call and result becomes one message, in the order
in which it came. Thinking that stood in the text stays in the text.
"""

from collections.abc import Iterator
from typing import Any

from windlass.core.json_repair.strict import ReadJson, read_strict
from windlass.core.messages import (
    AssistantMessage,
    CallOutcome,
    ContentPart,
    FilePart,
    ImagePart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResults,
    UserMessage,
)
from windlass.core.result import RunResult
from windlass.models.encoding import data_url
from windlass.models.text_protocols.text_calls import dump_json
from windlass.models.text_protocols.text_scan import INLINE_SIGNATURE, THINK_END, THINK_START

QwenMessage = dict[str, Any]


def to_qwen_messages(
    result: RunResult[Any], *, name: str = "", prompt: bool = False
) -> list[QwenMessage]:
    """Return what a run added to the conversation, as messages of Qwen-Agent.

    `name` is the agent's name, for the messages of the model. Qwen-Agent returns the messages that
    follow a prompt; with `prompt=True`, the prompt itself comes first.
    """
    added = result.new_messages()
    if not prompt:  # The first message of a run is its prompt.
        added = added[1:]
    messages = [converted for message in added for converted in convert_message(message)]
    if name:
        for message in messages:
            if message["role"] == "assistant":
                message["name"] = name
    return messages


def convert_message(message: Message) -> Iterator[QwenMessage]:
    match message:
        case UserMessage(parts):
            yield {"role": "user", "content": _convert_content(parts)}
        case AssistantMessage():
            yield from _convert_reply(message)
        case ToolResults(items):
            yield from map(_convert_result, items)


def _convert_reply(reply: AssistantMessage) -> Iterator[QwenMessage]:
    pending_text = ""
    for part in reply.parts:
        match part:
            case TextPart(text):
                pending_text += text
                continue
            case ThinkingPart(text, signature) if signature == INLINE_SIGNATURE:
                pending_text += THINK_START + text + THINK_END
                continue
            case ThinkingPart(text):
                message = _assistant_message("") | {"reasoning_content": text}
            case ToolCall():
                message = _convert_call(part)
        if pending_text:
            yield _assistant_message(pending_text)
            pending_text = ""
        yield message
    if pending_text:
        yield _assistant_message(pending_text)


def _assistant_message(text: str) -> QwenMessage:
    return {"role": "assistant", "content": text}


def _convert_call(call: ToolCall) -> QwenMessage:
    function = {"name": call.name, "arguments": _format_arguments(call)}
    return _assistant_message("") | {"function_call": function, "extra": _call_id_extra(call)}


def _format_arguments(call: ToolCall) -> str:
    """Return the arguments as Qwen-Agent lists them: native ones as they came.

    Calls that are text have bare numbers as ids, and Qwen-Agent reads their JSON and writes it in
    its own form, with a space behind colons and commas.
    """
    if (call.provider_id or "").isdigit():
        match read_strict(call.arguments):
            case ReadJson(dict() as value) if call.arguments:
                return dump_json(value)
            case _:
                pass
    return call.arguments


def _convert_result(item: CallOutcome) -> QwenMessage:
    return {
        "role": "function",
        "content": _convert_content(item.result.content),
        "name": item.call.name,
        "extra": _call_id_extra(item.call),
    }


def _call_id_extra(call: ToolCall) -> dict[str, str]:
    return {"function_id": call.provider_id or call.id}


def _convert_content(parts: tuple[ContentPart, ...]) -> str | list[dict[str, str]]:
    """Return a string if there is nothing but text, else a list of items."""
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
