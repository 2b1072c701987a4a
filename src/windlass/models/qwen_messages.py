"""A run as the message list of Qwen-Agent, for programs that read those.

The law: nothing is made up. Each text, thought, call and result is one message, in the order in
which it came; thinking that stood in the text stands in the text.
"""

from collections.abc import Iterator
from typing import Any

from windlass.core.messages import (
    Assistant,
    CallResult,
    Content,
    File,
    Image,
    Results,
    Text,
    Thinking,
    ToolCall,
    User,
)
from windlass.core.result import RunResult
from windlass.models.media import data_url
from windlass.models.text_protocols.text_scan import INLINE, THINK, THINK_END


def to_qwen_messages(
    result: RunResult[Any], *, name: str = "", prompt: bool = False
) -> list[dict[str, Any]]:
    """What a run added to the conversation. `name` is the agent's; `prompt` puts the prompt first.

    Qwen-Agent returns the messages that follow a prompt, and so does this unless told.
    """
    new = result.new_messages()
    messages = [made for message in new[0 if prompt else 1 :] for made in _messages(message)]
    if name:
        return [{**made, "name": name} if _speaks(made) else made for made in messages]
    return messages


def _speaks(message: dict[str, Any]) -> bool:
    return message["role"] == "assistant"


def _messages(message: User | Assistant | Results) -> Iterator[dict[str, Any]]:
    match message:
        case User(parts):
            yield {"role": "user", "content": _content(parts)}
        case Assistant():
            yield from _said(message)
        case Results(items):
            yield from map(_returned, items)


def _said(reply: Assistant) -> Iterator[dict[str, Any]]:
    words = ""
    for part in reply.parts:
        match part:
            case Text(text):
                words += text
                continue
            case Thinking(text, signature) if signature == INLINE:
                words += THINK + text + THINK_END
                continue
            case Thinking(text):
                made: dict[str, Any] = _spoken("") | {"reasoning_content": text}
            case ToolCall():
                made = _called(part)
        if words:
            yield _spoken(words)
            words = ""
        yield made
    if words:
        yield _spoken(words)


def _spoken(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def _called(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return _spoken("") | {"function_call": function, "extra": _id(call)}


def _returned(item: CallResult) -> dict[str, Any]:
    content = _content(item.result.content)
    return {"role": "function", "content": content, "name": item.call.name, "extra": _id(item.call)}


def _id(call: ToolCall) -> dict[str, str]:
    return {"function_id": call.provider_id or call.id}


def _content(parts: tuple[Content, ...]) -> str | list[dict[str, str]]:
    """Words alone are a string."""
    if all(isinstance(part, Text) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, Text))
    return [_item(part) for part in parts]


def _item(part: Content) -> dict[str, str]:
    match part:
        case Text(text):
            return {"text": text}
        case Image():
            return {"image": data_url(part) or ""}
        case File():
            return {"file": data_url(part) or ""}
