"""Convert the answers of an MCP server into results for the model.

Invariant: no part of an answer is dropped silently. A part that a model cannot read is named
instead.
"""

import asyncio
import base64
import binascii
import mimetypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from windlass.core.json_repair.strict import has_many_keys
from windlass.core.messages import ContentPart, FilePart, ImagePart, TextPart, ToolResult
from windlass.tools.mcp.message_bounds import COMMAS_MAX, KEYS_MAX
from windlass.tools.results import encode_compact, is_large

if TYPE_CHECKING:
    from mcp_types import (
        CallToolResult,
        ContentBlock,
        GetPromptResult,
        ReadResourceResult,
        Resource,
        ResourceLink,
        ResourceTemplate,
    )

AnswerT = TypeVar("AnswerT")
BlockT = TypeVar("BlockT")
ResultT = TypeVar("ResultT")
PICTURE_TYPES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
_TEXT_TYPES = ("text/", "application/json", "application/xml", "image/svg+xml")
PARTS_MAX = 200
"""Parts of one answer that are kept."""
_EMPTY_RESULT = TextPart("The server returned nothing.")


async def convert_off_loop(answer: AnswerT, convert: Callable[[AnswerT], ResultT]) -> ResultT:
    """Return the converted answer. A large one is converted in a thread, a part at a time."""
    if is_large(answer):
        return await asyncio.to_thread(convert, answer)
    return convert(answer)


def convert_call_result(answer: "CallToolResult") -> ToolResult:
    """Convert the answer to a tool call. The server's error flag makes the result an error."""
    parts = _convert_parts(answer.content, _convert_block)
    if answer.structured_content is not None and not _is_in_text(parts, answer.structured_content):
        parts.append(TextPart(encode_compact(answer.structured_content)))
    return ToolResult("error" if answer.is_error else "value", tuple(parts) or (_EMPTY_RESULT,))


def convert_resource_result(answer: "ReadResourceResult") -> ToolResult:
    parts = _convert_parts(answer.contents, _convert_resource)
    return ToolResult("value", tuple(parts) or (_EMPTY_RESULT,))


def _convert_parts(
    blocks: Sequence[BlockT], convert: Callable[[BlockT], ContentPart]
) -> list[ContentPart]:
    parts = [convert(block) for block in blocks[:PARTS_MAX]]
    if len(blocks) > PARTS_MAX:
        parts.append(TextPart(f"[{len(blocks) - PARTS_MAX} more parts were left out]"))
    return parts


def convert_prompt_result(answer: "GetPromptResult") -> ToolResult:
    """Convert a prompt: its messages in order, each with its role."""
    parts: list[ContentPart] = []
    if answer.description:
        parts.append(TextPart(answer.description))
    for message in answer.messages[:PARTS_MAX]:
        match _convert_block(message.content):
            case TextPart(text):
                parts.append(TextPart(f"{message.role}: {text}"))
            case part:
                parts += [TextPart(f"{message.role}:"), part]
    if len(answer.messages) > PARTS_MAX:
        parts.append(TextPart(f"[{len(answer.messages) - PARTS_MAX} more messages were left out]"))
    return ToolResult("value", tuple(parts) or (_EMPTY_RESULT,))


def convert_prompt_parts(answer: "GetPromptResult") -> tuple[ContentPart, ...]:
    """Convert a prompt to the parts of one message. Roles are named if there are several."""
    if any(message.role != "user" for message in answer.messages):
        return convert_prompt_result(answer).content
    return tuple(_convert_block(message.content) for message in answer.messages[:PARTS_MAX])


def format_resources(
    resources: "Iterable[Resource]", templates: "Iterable[ResourceTemplate]"
) -> Iterator[str]:
    """Yield one line for each resource and each template."""
    for resource in resources:
        yield _format_resource(resource.uri, resource)
    for template in templates:
        yield _format_resource(template.uri_template, template)


def _format_resource(uri: str, resource: "Resource | ResourceTemplate | ResourceLink") -> str:
    kind = f" ({resource.mime_type})" if resource.mime_type else ""
    name = resource.title or resource.name
    line = f"{uri}{kind}: {name}"
    if resource.description and resource.description != name:
        line += f". {resource.description}"
    return line


def _convert_block(block: "ContentBlock") -> ContentPart:
    match block.type:
        case "text":
            return TextPart(block.text)
        case "image" | "audio":
            return _decode_base64(block.data, block.mime_type, block.type)
        case "resource":
            return _convert_resource(block.resource)
        case "resource_link":
            return TextPart(f"[resource {_format_resource(block.uri, block)}]")


def _convert_resource(contents: Any) -> ContentPart:  # noqa: ANN401 - text or bytes, by its fields
    uri = str(contents.uri)
    text = getattr(contents, "text", None)
    if isinstance(text, str):
        return TextPart(f"{uri}:\n{text}")
    name = uri.rstrip("/").rpartition("/")[2]
    media_type = contents.mime_type or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return _decode_base64(contents.blob, media_type, name or "resource")


def _decode_base64(data: str, media_type: str, name: str) -> ContentPart:
    kind = media_type.partition(";")[0].strip().lower()
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return TextPart(f"[{name}: a {kind} that cannot be decoded]")
    if kind in PICTURE_TYPES:
        return ImagePart(kind, content)
    if kind.startswith(_TEXT_TYPES):
        try:
            return TextPart(content.decode())
        except UnicodeDecodeError:
            pass
    if "." not in name:
        name += mimetypes.guess_extension(kind) or ""
    return FilePart(kind, name, content)


def _is_in_text(parts: Sequence[ContentPart], structured: object) -> bool:
    """Whether the text of an answer already contains its structured form.

    The protocol asks servers to send both. A value that is not an object comes wrapped as
    `result`, and a list as one text for each of its items.
    """
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    if _are_crowded(texts):
        return False
    values = [_parse_json(text) for text in texts]
    forms = [*values, *texts, values, texts]
    if structured in forms:
        return True
    if not isinstance(structured, dict):
        return False
    wrapper = cast("dict[str, object]", structured)
    if wrapper.keys() != {"result"}:
        return False
    return wrapper["result"] in forms or (wrapper["result"] is None and not texts)


def _are_crowded(texts: Sequence[str]) -> bool:
    """Whether texts have more values, as JSON, than a message may have outside its strings.

    The values in a string of a message were not counted before, and parsing makes objects of them.
    """
    data = b"\n".join(text.encode("utf-8", "surrogatepass") for text in texts)
    return has_many_keys(data, KEYS_MAX) or data.count(b",") > COMMAS_MAX


def _parse_json(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
