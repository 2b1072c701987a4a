"""What an MCP server answered in, what a model is shown out (T15).

The law: nothing of an answer is lost. What a model cannot be shown is named in its place.
"""

import base64
import binascii
import mimetypes
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from windlass.core.messages import Content, File, Image, Result, Text
from windlass.tools.results import compact

if TYPE_CHECKING:
    from mcp_types import (
        CallToolResult,
        ContentBlock,
        GetPromptResult,
        ReadResourceResult,
        Resource,
        ResourceTemplate,
    )

PICTURES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
_TEXTS = ("text/", "application/json", "application/xml", "image/svg+xml")
_NOTHING = Text("It returned nothing.")


def call_result(answer: "CallToolResult") -> Result:
    """The result of a tool; its error flag makes it an error."""
    parts = [_part(block) for block in answer.content]
    if answer.structured_content is not None and not _says(parts, answer.structured_content):
        parts.append(Text(compact(answer.structured_content)))
    return Result("error" if answer.is_error else "value", tuple(parts) or (_NOTHING,))


def resource_result(answer: "ReadResourceResult") -> Result:
    return Result("value", tuple(map(_resource, answer.contents)) or (_NOTHING,))


def prompt_result(answer: "GetPromptResult") -> Result:
    """A prompt: who says what, one after the other."""
    parts: list[Content] = [Text(answer.description)] if answer.description else []
    for message in answer.messages:
        match _part(message.content):
            case Text(text):
                parts.append(Text(f"{message.role}: {text}"))
            case part:
                parts += [Text(f"{message.role}:"), part]
    return Result("value", tuple(parts) or (_NOTHING,))


def resource_lines(
    resources: "Iterable[Resource]", templates: "Iterable[ResourceTemplate]"
) -> Iterator[str]:
    """What there is to read, one a line."""
    for one in resources:
        yield _line(one.uri, one.title or one.name, one.mime_type, one.description)
    for one in templates:
        yield _line(one.uri_template, one.title or one.name, one.mime_type, one.description)


def _line(uri: str, name: str, media_type: str | None, about: str | None) -> str:
    kind = f" ({media_type})" if media_type else ""
    return f"{uri}{kind}: {name}" + (f". {about}" if about and about != name else "")


def _part(block: "ContentBlock") -> Content:
    match block.type:
        case "text":
            return Text(block.text)
        case "image" | "audio":
            return _from_base64(block.data, block.mime_type, block.type)
        case "resource":
            return _resource(block.resource)
        case "resource_link":
            about = _line(block.uri, block.title or block.name, block.mime_type, block.description)
            return Text(f"[resource {about}]")


def _resource(contents: Any) -> Content:  # noqa: ANN401 - of text or of bytes, told by its fields
    uri, media_type = str(contents.uri), contents.mime_type
    text = getattr(contents, "text", None)
    if isinstance(text, str):
        return Text(f"{uri}:\n{text}")
    name = uri.rstrip("/").rpartition("/")[2]
    guessed = media_type or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return _from_base64(contents.blob, guessed, name or "resource")


def _from_base64(data: str, media_type: str, name: str) -> Content:
    kind = media_type.partition(";")[0].strip().lower()
    try:
        whole = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return Text(f"[{name}: a {kind} that cannot be decoded]")
    if kind in PICTURES:
        return Image(kind, whole)
    if kind.startswith(_TEXTS):
        try:
            return Text(whole.decode())
        except UnicodeDecodeError:
            pass
    ending = mimetypes.guess_extension(kind) or ""
    return File(kind, name if "." in name else f"{name}{ending}", whole)


def _says(parts: Sequence[Content], structured: object) -> bool:
    """Whether the text of an answer says all that its structured form says.

    Servers are told to send both. A value that is no object comes wrapped as `result`, and a list
    as one text for each of its items.
    """
    texts = [part.text for part in parts if isinstance(part, Text)]
    values = [_value(text) for text in texts]
    said = [*values, *texts, values, texts]
    if structured in said:
        return True
    if not isinstance(structured, dict):
        return False
    inside = cast("dict[str, object]", structured)
    if inside.keys() != {"result"}:
        return False
    return inside["result"] in said or (inside["result"] is None and not texts)


def _value(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
