"""Turn the return value of a tool into what the model reads.

Strings stay as they are but for the codes that colour a terminal, other values become compact JSON,
pictures become parts. A failure is shown by its type and a bounded message, never by its traceback.
Text that is too long is clipped to its head and tail.

A call into C holds the interpreter's lock until it is over, also in a thread, and the event loop
waits for that lock. So a value of many megabytes is encoded in a thread, by many calls that are
short. Invariant: the parts together are the same text as that of one call.
"""

import asyncio
import math
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence, Sized
from itertools import islice
from pathlib import PurePath
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from windlass.core.messages import ContentPart, FilePart, ImagePart, TextPart, ToolResult
from windlass.core.text_clip import strip_escapes

EncodeValue = Callable[[object], bytes]
"""Encodes a value that is not large; raises TypeError or ValueError if it has no JSON form."""

LARGE_WEIGHT = 200_000
"""From about this many characters of JSON on, a value is encoded in parts, in a thread."""
_BATCH_ITEMS = 512
_SCALARS = frozenset((int, float, bool, type(None)))
_encode_plain = msgspec.json.Encoder().encode
TEXT_BYTES_MAX = 32 * 1024
"""Text of one result that the model sees."""
ERROR_CHARS_MAX = 2_000
NOTE_BYTES_MAX = 256
"""Room for the note between head and tail."""
TEXT_BYTES_MIN = 1_024
"""What is shown of each further text of a result, once the limit is used up."""
_IMAGE_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
TextT = TypeVar("TextT")
StoreText = Callable[[str], Awaitable[str | None]]
"""Stores a text, and returns the id to read it by; None if it could not be stored."""


def is_large(value: object) -> bool:
    """Whether the JSON of a value would be long. Looks at no more of it than is needed to tell."""
    return weigh_value(value, LARGE_WEIGHT) > LARGE_WEIGHT


def weigh_value(value: object, enough: int) -> int:
    """Return about how many characters the JSON of a value has.

    Once it is more than `enough`, the rest is not counted.
    """
    weight = 0
    waiting = [value]
    while waiting and weight <= enough:
        item = waiting.pop()
        kind = type(item)
        if kind in _SCALARS:
            continue
        if kind is str:
            weight += len(cast("str", item))
        elif kind is dict:
            fields = cast("dict[object, object]", item)
            weight += 8 * len(fields)
            waiting += islice(fields.values(), enough)
        elif kind is list or kind is tuple:
            items = cast("Sequence[object]", item)
            weight += 4 * len(items)
            waiting += islice(items, enough)
        else:
            weight += _weigh_object(item, waiting)
    return weight


def _weigh_object(item: object, waiting: list[object]) -> int:
    """Return the weight of a value of another type; what it holds is added to `waiting`."""
    if isinstance(item, Sized):
        # Bytes, sets and mappings of other types.
        return 4 * len(item)
    if hasattr(item, "tolist"):
        # An array of a library: how much of it there is can only be asked.
        return 4 * int(getattr(item, "size", 0))
    if isinstance(item, msgspec.Struct):
        waiting += [getattr(item, name) for name in item.__struct_fields__]
    elif hasattr(item, "__dict__"):
        waiting += vars(item).values()
    return 0


def encode_in_parts(value: object, encode: EncodeValue) -> Iterator[bytes]:
    """Yield the JSON of a value in parts. `encode` is called for what is not large."""
    if not is_large(value):
        yield encode(value)
    elif type(value) is str:
        yield b'"'
        for first in range(0, len(value), LARGE_WEIGHT):
            yield _encode_plain(value[first : first + LARGE_WEIGHT])[1:-1]
        yield b'"'
    elif type(value) is list or type(value) is tuple:
        yield from _encode_items(cast("Sequence[Any]", value), encode)
    elif type(value) is dict:
        yield from _encode_fields(cast("dict[Any, Any]", value), encode)
    else:
        yield encode(value)


def _encode_items(items: Sequence[Any], encode: EncodeValue) -> Iterator[bytes]:
    separator = b"["
    for first in range(0, len(items), _BATCH_ITEMS):
        batch = items[first : first + _BATCH_ITEMS]
        if is_large(batch):
            for item in batch:
                yield separator
                yield from encode_in_parts(item, encode)
                separator = b","
        else:
            yield separator
            yield encode(batch)[1:-1]
            separator = b","
    yield b"]"


def _encode_fields(fields: dict[Any, Any], encode: EncodeValue) -> Iterator[bytes]:
    separator = b"{"
    for key, item in fields.items():
        yield separator
        # The key as it is written before its value, whatever type it has.
        yield encode({key: 0})[1:-2]
        yield from encode_in_parts(item, encode)
        separator = b","
    yield b"}"


def to_content(value: object) -> tuple[ContentPart, ...]:
    """Convert a returned value to parts; raises TypeError if it cannot be shown to a model."""
    if isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
    else:
        items = ()
    if any(isinstance(item, TextPart | ImagePart | FilePart) for item in items):
        return tuple(map(_to_part, items))
    return (_to_part(cast("object", value)),)


def _to_part(value: object) -> ContentPart:
    match value:
        case ImagePart() | FilePart():
            return value
        case TextPart(text) | str(text):
            return TextPart(strip_escapes(_escape_surrogates(text)))
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


def strip_result(result: ToolResult) -> ToolResult:
    """The result without codes that colour or steer a terminal: no model and no person reads them.

    The same object if there are none.
    """
    parts = tuple(map(_strip_part, result.content))
    if all(new is old for new, old in zip(parts, result.content, strict=True)):
        return result
    return replace(result, content=parts)


def _strip_part(part: ContentPart) -> ContentPart:
    if not isinstance(part, TextPart):
        return part
    text = strip_escapes(part.text)
    return part if text is part.text else replace(part, text=text)


def encode_compact(value: object) -> str:
    """Encode a value as JSON without spaces; raises TypeError if it has no JSON form."""
    try:
        return b"".join(encode_in_parts(value, _encode_part)).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TypeError(str(error)) from error


def _encode_part(value: object) -> bytes:
    data = msgspec.json.encode(value, enc_hook=_to_plain_value)
    if b"null" not in data:
        return data
    # JSON has no word for NaN and infinity, and msgspec writes null: a model must not take
    # either for a value that is missing.
    plain = msgspec.to_builtins(value, enc_hook=_to_plain_value, str_keys=True)
    return msgspec.json.encode(_name_special_floats(plain))


def _name_special_floats(value: object) -> object:
    """Return plain data with NaN and infinity as the texts `NaN`, `Infinity` and `-Infinity`."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case dict():
            items = cast("dict[str, object]", value).items()
            return {key: _name_special_floats(item) for key, item in items}
        case list() | tuple():
            return [_name_special_floats(item) for item in cast("Sequence[object]", value)]
        case _:
            return value


def _to_plain_value(value: Any) -> object:  # noqa: ANN401 - anything that msgspec does not know
    """Convert pydantic models, paths and arrays (`tolist`) to plain types."""
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and isinstance(value, pydantic.BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} has no JSON form: return text or plain data")


def _escape_surrogates(text: str) -> str:
    """Escape unpaired surrogates, as in file names that are not UTF-8: no provider accepts them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def error_text(error: BaseException) -> str:
    """Describe an exception to the model: its type, and a bounded message."""
    innermost = _innermost_error(error)
    name = type(innermost).__name__
    message = error_message(innermost)
    return f"{name}: {message}" if message else name


def error_message(error: BaseException) -> str:
    """Return the message of an exception, at most ERROR_CHARS_MAX characters of it."""
    message = strip_escapes(_escape_surrogates(str(error)))
    if len(message) > ERROR_CHARS_MAX:
        message = f"{message[:ERROR_CHARS_MAX]} […]"
    return message


def _innermost_error(error: BaseException) -> BaseException:
    """Return the only error in a group; the group itself if there are several."""
    members = cast("Sequence[BaseException]", getattr(error, "exceptions", ()))
    return _innermost_error(members[0]) if len(members) == 1 else error


async def clip_result(
    result: ToolResult,
    store: StoreText,
    bytes_max: int = TEXT_BYTES_MAX,
    *,
    mask: Callable[[str], str] = str,
) -> ToolResult:
    """Clip a result whose text is too long. The whole text can be read by the id from `store`.

    Secrets are masked before a text is cut, because half of a secret would not be recognized.
    """
    bytes_left = bytes_max
    content: list[ContentPart] = []
    artifacts: list[str] = []
    for part in result.content:
        if isinstance(part, TextPart):
            room = max(bytes_left, TEXT_BYTES_MIN)
            text = part.text
            # A character has at most 4 bytes, so that a short text need not be encoded.
            if len(text) * 4 > room and (len(text) > room or len(text.encode()) > room):
                whole = await run_off_loop(text, mask)
                name = await store(whole)
                text = _clip_text(whole, room, name)
                if name is not None:
                    artifacts.append(name)
            bytes_left -= len(text.encode())
            content.append(TextPart(text))
        else:
            content.append(part)
    return replace(result, content=tuple(content), artifacts=tuple(artifacts))


async def run_off_loop(text: str, work: Callable[[str], TextT]) -> TextT:
    """Return what work makes of a text. For a long text it is done in a thread."""
    if len(text) > LARGE_WEIGHT:
        return await asyncio.to_thread(work, text)
    return work(text)


def _clip_text(text: str, bytes_max: int, artifact: str | None) -> str:
    half = (bytes_max - NOTE_BYTES_MAX) // 2
    # A character has at least one byte, so no more of a long text has to be encoded.
    head = text[:half].encode()[:half].decode(errors="ignore")
    tail = text[-half:].encode()[-half:].decode(errors="ignore")
    skipped = len(text) - len(head) - len(tail)
    note = f"{skipped} of {len(text)} characters left out"
    if artifact is not None:
        note += f'; continue with read_artifact(id="{artifact}", offset={len(head)})'
    return f"{head}\n[… {note} …]\n{tail}"
