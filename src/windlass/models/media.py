"""Images and files on their way to a model: what is in them, and how they are refused (P7).

The law: nothing that a caller or a tool gives is dropped in silence. A prompt that a provider
cannot take is an error which names the part. In a tool's result the model is told in its place,
since the tool has run and the conversation must go on.
"""

from base64 import b64encode

from windlass.core.errors import ModelError
from windlass.core.messages import File, Image

Media = Image | File


def base64_of(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def data_url(part: Media) -> str | None:
    """The part's address; its content is an address too. None if it has neither."""
    if part.data is not None:
        return f"data:{part.media_type};base64,{base64_of(part.data)}"
    return part.url


def text_of(part: File) -> str | None:
    """The words of a file that is plain text."""
    if part.data is None or not part.media_type.startswith("text/"):
        return None
    try:
        return part.data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def refused(part: Media, api: str, takes: str) -> ModelError:
    return ModelError("bad_request", f"{api} cannot take {_named(part)}; it takes {takes}")


def told(part: Media, api: str) -> str:
    """What stands in a result for a part that the provider cannot take there."""
    return f"[{_named(part)} is not shown: {api} cannot take it in a tool's result]"


def _named(part: Media) -> str:
    name = f"the file {part.name!r}" if isinstance(part, File) else "the image"
    if part.data is not None:
        return f"{name} ({part.media_type}, {len(part.data)} bytes)"
    where = f" at {part.url}" if part.url else ""
    return f"{name} ({part.media_type}){where}"
