"""Pictures and files for a prompt, from a path, bytes or an address."""

import mimetypes
from pathlib import Path

from windlass.core.errors import ConfigError
from windlass.core.messages import File, Image

MAGIC = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"%PDF-": "application/pdf",
}
WEBP = b"RIFF", b"WEBP"


def attach(
    source: str | Path | bytes, *, media_type: str | None = None, name: str = ""
) -> Image | File:
    """Make a part of a prompt, to stand beside its text.

    The kind is taken from the content, else from the name; say it if neither tells.
    """
    if isinstance(source, str) and source.startswith(("https://", "http://")):
        return _part(media_type or _by_name(source), name or source.rsplit("/", 1)[-1], url=source)
    if isinstance(source, bytes):
        data, called = source, name or "attachment"
    else:
        path = Path(source)
        try:
            data, called = path.read_bytes(), name or path.name
        except OSError as error:
            raise ConfigError(f"attach({str(source)!r}): {error.strerror}") from None
    return _part(media_type or _by_content(data) or _by_name(called), called, data=data)


def _part(
    media_type: str | None, name: str, data: bytes | None = None, url: str | None = None
) -> Image | File:
    if media_type is None:
        raise ConfigError(f"attach({name!r}): its kind is not known; say it with media_type=")
    if media_type.startswith("image/"):
        return Image(media_type, data, url)
    return File(media_type, name, data, url)


def _by_content(data: bytes) -> str | None:
    if (data[:4], data[8:12]) == WEBP:
        return "image/webp"
    return next((kind for magic, kind in MAGIC.items() if data.startswith(magic)), None)


def _by_name(name: str) -> str | None:
    return mimetypes.guess_type(name)[0]
