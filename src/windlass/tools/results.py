"""What a tool returned in, what a model is shown out.

Strings stay as they are, other values become compact JSON, pictures become parts. A failure is told
by its type and a bounded message, and never by its traceback. Text past a limit is clipped to its
head and tail.
"""

import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import PurePath
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from windlass.core.messages import ContentPart, FilePart, ImagePart, TextPart, ToolResult

TEXT_BYTES_MAX = 32 * 1024
"""Text that a model is shown of one result."""
ERROR_CHARS_MAX = 2_000
NOTE_BYTES_MAX = 256
"""Room for the words between head and tail."""
TEXT_BYTES_MIN = 1_024
"""What each further text of a result is shown of, once the limit is used up."""

_IMAGE_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)

StoreText = Callable[[str], Awaitable[str | None]]
"""Keeps a text whole, and gives the id to read it by, or None if nobody could."""


def to_content(value: object) -> tuple[ContentPart, ...]:
    """A returned value as parts; raises TypeError if a model cannot be shown it."""
    items = cast("Sequence[object]", value) if isinstance(value, list | tuple) else ()
    if any(isinstance(item, TextPart | ImagePart | FilePart) for item in items):
        return tuple(map(_to_part, items))
    return (_to_part(cast("object", value)),)


def _to_part(value: object) -> ContentPart:
    match value:
        case ImagePart() | FilePart():
            return value
        case TextPart(text) | str(text):
            return TextPart(_escape_surrogates(text))
        case bytes() | bytearray():
            return _part_from_bytes(bytes(value))
        case _:
            return TextPart(encode_compact(value))


def _part_from_bytes(data: bytes) -> ContentPart:
    media_type = _media_type(data)
    if media_type == "application/pdf":
        return FilePart(media_type, "result.pdf", data)
    if media_type:
        return ImagePart(media_type, data)
    try:
        return TextPart(data.decode())
    except UnicodeDecodeError:
        return TextPart(f"[{len(data)} bytes that are neither text nor a picture]")


def _media_type(data: bytes) -> str:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    if data[:5] == b"%PDF-":
        return "application/pdf"
    return next((kind for magic, kind in _IMAGE_SIGNATURES if data.startswith(magic)), "")


def encode_compact(value: object) -> str:
    """A value as JSON without spaces; raises TypeError."""
    try:
        return msgspec.json.encode(value, enc_hook=_to_plain_value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TypeError(str(error)) from error


def _to_plain_value(value: Any) -> object:  # noqa: ANN401 - anything that msgspec does not know
    """In plain types, what has a way to say itself in them: pydantic models, arrays, paths."""
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and isinstance(value, pydantic.BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} has no JSON form: return text or plain data")


def _escape_surrogates(text: str) -> str:
    """Verbatim, but for halves of characters, such as odd file names hold: no wire takes them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def error_text(error: BaseException) -> str:
    """An exception in words for the model: its type, and a bounded message."""
    told = _innermost_error(error)
    name, message = type(told).__name__, error_message(told)
    return f"{name}: {message}" if message else name


def error_message(error: BaseException) -> str:
    """An exception's own words, bounded."""
    message = _escape_surrogates(str(error))
    return message if len(message) <= ERROR_CHARS_MAX else f"{message[:ERROR_CHARS_MAX]} […]"


def _innermost_error(error: BaseException) -> BaseException:
    """The one error that a group is about; the group itself if there are more."""
    inside = cast("Sequence[BaseException]", getattr(error, "exceptions", ()))
    return _innermost_error(inside[0]) if len(inside) == 1 else error


async def clip_result(
    result: ToolResult,
    keep: StoreText,
    bytes_max: int = TEXT_BYTES_MAX,
    *,
    hide: Callable[[str], str] = str,
) -> ToolResult:
    """A result whose text fits. What is left out can be read by the id that `keep` gives.

    What is cut and kept is hidden first: half of a secret would not be known for one.
    """
    left = bytes_max
    content: list[ContentPart] = []
    for part in result.content:
        if isinstance(part, TextPart):
            room = max(left, TEXT_BYTES_MIN)
            fits = _is_within(part.text, room)
            part = part if fits else await _clip_text(hide(part.text), room, keep)  # noqa: PLW2901
            left -= len(part.text.encode())
        content.append(part)
    return replace(result, content=tuple(content))


def _is_within(text: str, bytes_max: int) -> bool:
    if len(text) * 4 <= bytes_max:
        return True
    return len(text) <= bytes_max and len(text.encode()) <= bytes_max


async def _clip_text(text: str, bytes_max: int, keep: StoreText) -> TextPart:
    half = (bytes_max - NOTE_BYTES_MAX) // 2
    data = text.encode()
    head = data[:half].decode(errors="ignore")
    tail = data[-half:].decode(errors="ignore")
    skipped = len(text) - len(head) - len(tail)
    name = await keep(text)
    told = f"{skipped} of {len(text)} characters left out"
    if name is not None:
        told += f'; read_artifact(id="{name}", offset={len(head)}) goes on from here'
    return TextPart(f"{head}\n[… {told} …]\n{tail}")
