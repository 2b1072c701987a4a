"""Images and files on their way to a model: their content, and errors for unsupported ones.

Invariant: no image or file is dropped silently. In a prompt, one that a provider cannot take is an
error that names it. In a tool's result, a note to the model takes its place, because the tool has
run already and the conversation must go on.
"""

from base64 import b64encode

from windlass.core.errors import ModelError
from windlass.core.messages import FilePart, ImagePart

MediaPart = ImagePart | FilePart


def encode_base64(data: bytes) -> str:
    """Return the data in base64, as JSON can hold it."""
    return b64encode(data).decode("ascii")


def data_url(part: MediaPart) -> str | None:
    """Return the part's content as a data URL, else its own URL; None if it has neither."""
    if part.data is not None:
        return f"data:{part.media_type};base64,{encode_base64(part.data)}"
    return part.url


def decode_text_file(part: FilePart) -> str | None:
    """Return the text of a plain text file, or None if the file is not one."""
    if part.data is None or not part.media_type.startswith("text/"):
        return None
    try:
        return part.data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def unsupported_media_error(part: MediaPart, api: str, accepted: str) -> ModelError:
    """Return the error for a prompt with a part that the API cannot take."""
    message = f"{api} does not accept {_describe_media(part)}. It accepts {accepted}."
    return ModelError("bad_request", message)


def unsupported_media_note(part: MediaPart, api: str) -> str:
    """Return the text that replaces, in a tool's result, a part that the API cannot take."""
    return f"[{_describe_media(part)} is not shown: {api} does not accept it in tool results]"


def _describe_media(part: MediaPart) -> str:
    name = f"the file {part.name!r}" if isinstance(part, FilePart) else "the image"
    if part.data is not None:
        return f"{name} ({part.media_type}, {len(part.data)} bytes)"
    if part.url:
        return f"{name} ({part.media_type}) at {part.url}"
    return f"{name} ({part.media_type})"
