"""Images and files on their way to a model: what is in them, and how they are refused (P7).

The law: nothing that a caller or a tool gives is dropped in silence. A prompt that a provider
cannot take is an error which names the part. In a tool's result the model is told in its place,
since the tool has run and the conversation must go on.
"""

from base64 import b64encode

from windlass.core.errors import ModelError
from windlass.core.messages import FilePart, ImagePart

MediaPart = ImagePart | FilePart


def encode_base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def data_url(part: MediaPart) -> str | None:
    """The part's address; its content is an address too. None if it has neither."""
    if part.data is not None:
        return f"data:{part.media_type};base64,{encode_base64(part.data)}"
    return part.url


def decode_text_file(part: FilePart) -> str | None:
    """The words of a file that is plain text."""
    if part.data is None or not part.media_type.startswith("text/"):
        return None
    try:
        return part.data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def unsupported_media_error(part: MediaPart, api: str, accepted: str) -> ModelError:
    return ModelError(
        "bad_request", f"{api} cannot take {_describe_media(part)}; it takes {accepted}"
    )


def unsupported_media_note(part: MediaPart, api: str) -> str:
    """What stands in a result for a part that the provider cannot take there."""
    return f"[{_describe_media(part)} is not shown: {api} cannot take it in a tool's result]"


def _describe_media(part: MediaPart) -> str:
    name = f"the file {part.name!r}" if isinstance(part, FilePart) else "the image"
    if part.data is not None:
        return f"{name} ({part.media_type}, {len(part.data)} bytes)"
    where = f" at {part.url}" if part.url else ""
    return f"{name} ({part.media_type}){where}"
