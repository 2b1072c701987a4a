"""What an MCP server answered in, what a model is shown out (T15).

The law: nothing of an answer is lost. What a model cannot be shown is named in its place.
"""

import base64
import binascii
import mimetypes
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from windlass.core.messages import ContentPart, FilePart, ImagePart, TextPart, ToolResult
from windlass.tools.results import encode_compact

if TYPE_CHECKING:
    from mcp_types import (
        CallToolResult,
        ContentBlock,
        GetPromptResult,
        ReadResourceResult,
        Resource,
        ResourceTemplate,
    )

PICTURE_TYPES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
_TEXT_TYPES = ("text/", "application/json", "application/xml", "image/svg+xml")
_EMPTY_RESULT = TextPart("It returned nothing.")


def convert_call_result(answer: "CallToolResult") -> ToolResult:
    """The result of a tool; its error flag makes it an error."""
    parts = [_convert_block(block) for block in answer.content]
    if answer.structured_content is not None and not _is_in_text(parts, answer.structured_content):
        parts.append(TextPart(encode_compact(answer.structured_content)))
    return ToolResult("error" if answer.is_error else "value", tuple(parts) or (_EMPTY_RESULT,))


def convert_resource_result(answer: "ReadResourceResult") -> ToolResult:
    return ToolResult("value", tuple(map(_convert_resource, answer.contents)) or (_EMPTY_RESULT,))


def convert_prompt_result(answer: "GetPromptResult") -> ToolResult:
    """A prompt: who says what, one after the other."""
    parts: list[ContentPart] = [TextPart(answer.description)] if answer.description else []
    for message in answer.messages:
        match _convert_block(message.content):
            case TextPart(text):
                parts.append(TextPart(f"{message.role}: {text}"))
            case part:
                parts += [TextPart(f"{message.role}:"), part]
    return ToolResult("value", tuple(parts) or (_EMPTY_RESULT,))


def format_resources(
    resources: "Iterable[Resource]", templates: "Iterable[ResourceTemplate]"
) -> Iterator[str]:
    """What there is to read, one a line."""
    for one in resources:
        yield _format_resource(one.uri, one.title or one.name, one.mime_type, one.description)
    for one in templates:
        yield _format_resource(
            one.uri_template, one.title or one.name, one.mime_type, one.description
        )


def _format_resource(uri: str, name: str, media_type: str | None, about: str | None) -> str:
    kind = f" ({media_type})" if media_type else ""
    return f"{uri}{kind}: {name}" + (f". {about}" if about and about != name else "")


def _convert_block(block: "ContentBlock") -> ContentPart:
    match block.type:
        case "text":
            return TextPart(block.text)
        case "image" | "audio":
            return _decode_base64(block.data, block.mime_type, block.type)
        case "resource":
            return _convert_resource(block.resource)
        case "resource_link":
            about = _format_resource(
                block.uri, block.title or block.name, block.mime_type, block.description
            )
            return TextPart(f"[resource {about}]")


def _convert_resource(contents: Any) -> ContentPart:  # noqa: ANN401 - of text or of bytes, told by its fields
    uri, media_type = str(contents.uri), contents.mime_type
    text = getattr(contents, "text", None)
    if isinstance(text, str):
        return TextPart(f"{uri}:\n{text}")
    name = uri.rstrip("/").rpartition("/")[2]
    guessed = media_type or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return _decode_base64(contents.blob, guessed, name or "resource")


def _decode_base64(data: str, media_type: str, name: str) -> ContentPart:
    kind = media_type.partition(";")[0].strip().lower()
    try:
        whole = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return TextPart(f"[{name}: a {kind} that cannot be decoded]")
    if kind in PICTURE_TYPES:
        return ImagePart(kind, whole)
    if kind.startswith(_TEXT_TYPES):
        try:
            return TextPart(whole.decode())
        except UnicodeDecodeError:
            pass
    ending = mimetypes.guess_extension(kind) or ""
    return FilePart(kind, name if "." in name else f"{name}{ending}", whole)


def _is_in_text(parts: Sequence[ContentPart], structured: object) -> bool:
    """Whether the text of an answer says all that its structured form says.

    Servers are told to send both. A value that is no object comes wrapped as `result`, and a list
    as one text for each of its items.
    """
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    values = [_parse_json(text) for text in texts]
    said = [*values, *texts, values, texts]
    if structured in said:
        return True
    if not isinstance(structured, dict):
        return False
    inside = cast("dict[str, object]", structured)
    if inside.keys() != {"result"}:
        return False
    return inside["result"] in said or (inside["result"] is None and not texts)


def _parse_json(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
