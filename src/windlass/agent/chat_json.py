"""Read one chat message in the JSON of OpenAI's chat completions or of Anthropic's messages.

The two share roles and plain text. Everything else is distinguished by the type of a block.
"""

import mimetypes
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

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

JsonObject = Mapping[str, Any]

REDACTED_PREFIX = "redacted:"
"""How the dialect of Anthropic marks the signature of thinking whose text was withheld."""


class MessageFault(ValueError):
    """A message cannot be read. The text says why, and what to do."""


def read_chat_message(message: JsonObject) -> Iterator[Message]:
    """Yield what a chat message is: a prompt, a reply, or the results of calls."""
    role = message.get("role")
    match role:
        case "user":
            yield from _read_user(message)
        case "assistant":
            yield _read_assistant(message)
        case "tool":
            call_id = _text_of(message, "tool_call_id")
            yield _make_result(call_id, _read_result_content(message.get("content")))
        case "system" | "developer":
            raise MessageFault(
                f"a {role} message is not part of a conversation here: "
                "give its text as Agent(instructions=…) and leave it out"
            )
        case None:
            raise MessageFault("it has no role: only chat messages can be read")
        case _:
            raise MessageFault(f"there is no role {role!r}; use user, assistant or tool")


def _read_user(message: JsonObject) -> Iterator[Message]:
    """Yield the results in a message of a user, as Anthropic puts them there, then the rest."""
    blocks = _blocks_of(message.get("content"))
    for block in blocks:
        if block.get("type") == "tool_result":
            content = _read_result_content(block.get("content"))
            kind = "error" if block.get("is_error") else "value"
            yield _make_result(_text_of(block, "tool_use_id"), ToolResult(kind, content))
    parts = tuple(_read_content(block) for block in blocks if block.get("type") != "tool_result")
    if parts or not blocks:
        yield UserMessage(parts)


def _make_result(call_id: str, result: ToolResult | tuple[ContentPart, ...]) -> ToolResults:
    if isinstance(result, tuple):
        result = ToolResult("value", result)
    return ToolResults((CallOutcome(ToolCall(call_id, ""), result),))


def _read_result_content(content: object) -> tuple[ContentPart, ...]:
    return tuple(map(_read_content, _blocks_of(content))) or (TextPart(""),)


def _read_assistant(message: JsonObject) -> AssistantMessage:
    if message.get("function_call"):
        raise MessageFault("function_call is the old form of a call: use tool_calls")
    parts: list[ReplyPart] = []
    for key in ("reasoning_content", "reasoning"):
        thinking = message.get(key)
        if isinstance(thinking, str) and thinking and not parts:
            parts.append(ThinkingPart(thinking))
    parts += map(_read_reply_block, _blocks_of(message.get("content")))
    if isinstance(message.get("refusal"), str):
        parts.append(TextPart(message["refusal"]))
    for call in _blocks_of(message.get("tool_calls")):
        function = call.get("function")
        if not isinstance(function, Mapping):
            raise MessageFault(f"a call of type {call.get('type')!r} cannot be read; use functions")
        parts.append(_read_call(call, cast("JsonObject", function), "arguments"))
    model = message.get("model")
    return AssistantMessage(tuple(parts), model if isinstance(model, str) else "")


def _read_reply_block(block: JsonObject) -> ReplyPart:
    match block.get("type"):
        case "text":
            return TextPart(_text_of(block, "text"))
        case "refusal":
            return TextPart(_text_of(block, "refusal"))
        case "thinking":
            return ThinkingPart(_text_of(block, "thinking"), block.get("signature"))
        case "redacted_thinking":
            return ThinkingPart("", REDACTED_PREFIX + _text_of(block, "data"))
        case "tool_use":
            return _read_call(block, block, "input")
        case kind:
            raise MessageFault(
                f"a reply cannot have a block of type {kind!r}; text, thinking and calls can"
            )


def _read_call(call: JsonObject, function: JsonObject, key: str) -> ToolCall:
    arguments = function.get(key)
    if arguments is None:
        arguments = ""
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments).decode()
    return ToolCall(_text_of(call, "id"), _text_of(function, "name"), arguments)


def _read_content(block: JsonObject) -> ContentPart:
    kind = block.get("type")
    match kind:
        case "text":
            return TextPart(_text_of(block, "text"))
        case "image_url":
            image: object = block.get("image_url")
            if isinstance(image, Mapping):
                image = cast("JsonObject", image).get("url")
            return _make_part(image, "", "image/*")
        case "image" | "document":
            return _read_source(block)
        case "file":
            file = _object_of(block, "file")
            name = str(file.get("filename") or "file")
            return _make_part(file.get("file_data"), name, "application/octet-stream")
        case _:
            raise MessageFault(
                f"a block of type {kind!r} cannot be read; text, images and files can be read"
            )


def _read_source(block: JsonObject) -> ContentPart:
    """Read an image or a document of Anthropic's."""
    source = _object_of(block, "source")
    is_image = block.get("type") == "image"
    name = str(block.get("title") or "document")
    media_type = str(source.get("media_type") or ("image/*" if is_image else "application/pdf"))
    match source.get("type"):
        case "base64":
            data = _decode_base64(_text_of(source, "data"))
        case "text":
            data = _text_of(source, "data").encode()
        case "url":
            return _make_part(source.get("url"), "" if is_image else name, media_type)
        case kind:
            raise MessageFault(
                f"a source of type {kind!r} cannot be read: pass the data or a URL instead"
            )
    if is_image:
        return ImagePart(media_type, data)
    return FilePart(media_type, name, data)


def _make_part(url: object, name: str, media_type: str) -> ContentPart:
    """Make an image of a URL, or a file if it has a name. A data URL holds the content itself."""
    if not isinstance(url, str) or not url:
        raise MessageFault("an image or a file needs its data or a URL; ids of files do not help")
    data = None
    address = None
    if url.startswith("data:"):
        head, _, encoded = url.removeprefix("data:").partition(",")
        media_type = head.partition(";")[0] or media_type
        data = _decode_base64(encoded)
    else:
        address = url
        if media_type.endswith("/*"):
            media_type = mimetypes.guess_type(url.partition("?")[0])[0] or media_type
    if name:
        return FilePart(media_type, name, data, address)
    return ImagePart(media_type, data, address)


def _decode_base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise MessageFault("the data of an image or a file is not Base64") from None


def _blocks_of(content: object) -> list[JsonObject]:
    """Return a content as blocks; plain text is one block."""
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, Sequence):
        raise MessageFault("its content must be text or a list of blocks, and its calls a list")
    blocks = list(cast("Sequence[object]", content))
    if not all(isinstance(block, Mapping) for block in blocks):
        raise MessageFault("each block of its content must be a dict with a type")
    return cast("list[JsonObject]", blocks)


def _object_of(fields: JsonObject, key: str) -> JsonObject:
    found = fields.get(key)
    if not isinstance(found, Mapping):
        raise MessageFault(f"{key!r} is missing or not a dict")
    return cast("JsonObject", found)


def _text_of(fields: JsonObject, key: str) -> str:
    text = fields.get(key)
    if not isinstance(text, str):
        raise MessageFault(f"{key!r} is missing or not text")
    return text
