"""Images and files for a prompt, from a path, from bytes or from a URL."""

import mimetypes
from pathlib import Path

from windlass.core.errors import ConfigError
from windlass.core.messages import FilePart, ImagePart
from windlass.document_text import UnreadableDocument, is_document, read_document_text_blocking

MAGIC_NUMBERS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"%PDF-": "application/pdf",
}
WEBP_MAGIC = b"RIFF", b"WEBP"


def attach(
    source: str | Path | bytes,
    *,
    media_type: str | None = None,
    name: str = "",
    as_text: bool = False,
) -> ImagePart | FilePart:
    """Make a part of a prompt that accompanies its text.

    With `as_text`, the text of a document (PDF, Word, PowerPoint, Excel) is attached in its place,
    which every model can read; this needs the extra `documents`.

    The media type is taken from the content, or else from the name; give `media_type` if neither
    shows it. Raises ConfigError if the file cannot be read or its type is not known.
    """
    if isinstance(source, str) and source.startswith(("https://", "http://")):
        return _make_part(
            media_type or _type_from_name(source), name or source.rsplit("/", 1)[-1], url=source
        )
    if isinstance(source, bytes):
        data = source
        file_name = name or "attachment"
    else:
        path = Path(source)
        file_name = name or path.name
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"attach({str(source)!r}): {error.strerror}") from None
    if as_text:
        return _attach_text(file_name, data)
    return _make_part(
        media_type or _type_from_content(data) or _type_from_name(file_name), file_name, data=data
    )


def _attach_text(name: str, data: bytes) -> FilePart:
    if not is_document(name):
        raise ConfigError(f"attach({name!r}, as_text=True): it is not a document that can be read")
    try:
        text = read_document_text_blocking(name, data)
    except UnreadableDocument as error:
        raise ConfigError(f"attach({name!r}): {error}") from None
    return FilePart("text/plain", f"{name}.txt", text.encode())


def _make_part(
    media_type: str | None, name: str, data: bytes | None = None, url: str | None = None
) -> ImagePart | FilePart:
    if media_type is None:
        raise ConfigError(
            f"attach({name!r}): the media type is not known; pass it with media_type="
        )
    if media_type.startswith("image/"):
        return ImagePart(media_type, data, url)
    return FilePart(media_type, name, data, url)


def _type_from_content(data: bytes) -> str | None:
    if (data[:4], data[8:12]) == WEBP_MAGIC:
        return "image/webp"
    return next((kind for magic, kind in MAGIC_NUMBERS.items() if data.startswith(magic)), None)


def _type_from_name(name: str) -> str | None:
    return mimetypes.guess_type(name)[0]
