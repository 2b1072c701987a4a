"""Tools that were written for Qwen-Agent, as tools of an agent here.

A tool of Qwen-Agent is a class with a name, a description, parameters (a list or a JSON Schema) and
`call(params)`, which gets its arguments as JSON text. It returns text, data, or a list of items: a
text, a picture or a file; the last two by address, as a data URL or as a path. Nothing of
Qwen-Agent is imported.
"""

import inspect
import json
import mimetypes
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Unpack, cast
from urllib.parse import unquote, urlsplit

from windlass.core.errors import ConfigError, ModelRetry
from windlass.core.messages import ContentPart, FilePart, ImagePart, TextPart
from windlass.tools.function import Tool, ToolTraits
from windlass.tools.schemas import ParameterList

MEDIA_BYTES_MAX = 20 * 2**20
"""Of a picture or a file that a tool returns as a path."""


class QwenTool(Protocol):
    """What a tool of Qwen-Agent has."""

    name: str
    description: str
    parameters: Any

    def call(self, params: Any, **kwargs: Any) -> Any: ...  # noqa: ANN401 - whatever the tool takes and returns


def adapt_qwen_tool(
    tool: QwenTool | Callable[[], QwenTool], **traits: Unpack[ToolTraits]
) -> Tool[..., Any]:
    """Make a tool from one of Qwen-Agent's: an instance of a `BaseTool` class, or the class.

    `traits` are those of `@tool`. Say `effect="read"` if it changes nothing: without it, a call is
    never run again after a crash, and a policy may ask before it. Raises ConfigError if it is not
    such a tool.
    """
    given = cast("Any", tool)
    instance: Any = given() if inspect.isclass(given) else given
    name = getattr(instance, "name", None)
    if not name or not callable(getattr(instance, "call", None)):
        raise ConfigError(f"{given!r} is not a tool of Qwen-Agent: it has no name, or no call()")

    def run(**arguments: Any) -> Any:  # noqa: ANN401 - the parameters are in the schema
        # As its traces have them: with a space behind colons and commas, and no escapes.
        return _convert_result(instance.call(json.dumps(arguments, ensure_ascii=False)))

    parameters = cast("Mapping[str, Any] | ParameterList", getattr(instance, "parameters", []))
    description = str(getattr(instance, "description", "") or name)
    return Tool[..., Any].from_schema(name, description, parameters, run, **traits)


def _convert_result(value: object) -> object:
    """Return what the model sees: text as it is, items as parts, other data as its JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        parts = [_convert_item(item) for item in cast("Sequence[object]", value)]
        found = [part for part in parts if part is not None]
        if found and len(found) == len(parts):
            return found
    return json.dumps(value, ensure_ascii=False, indent=4)


def _convert_item(item: object) -> ContentPart | None:
    """Return an item of content as a part; None if it is plain data."""
    if isinstance(item, Mapping):
        fields = cast("Mapping[str, object]", item)
    else:
        fields = cast("Mapping[str, object]", getattr(item, "__dict__", {}))
    given = {name: value for name, value in fields.items() if value is not None}
    match given:
        case {"text": str(text)} if len(given) == 1:
            return TextPart(text)
        case {"image": str(address)} if len(given) == 1:
            media_type, data = _read_media(address)
            return ImagePart(media_type or "image/png", data, address if data is None else None)
        case {"file": str(address)} if len(given) == 1:
            media_type, data = _read_media(address)
            name = "file" if address.startswith("data:") else Path(urlsplit(address).path).name
            url = address if data is None else None
            return FilePart(media_type or "application/octet-stream", name, data, url)
        case _:
            return None


def _read_media(address: str) -> tuple[str | None, bytes | None]:
    """Return the media type and the content of an address; no content if it is on the web.

    Raises ModelRetry if there is no such content, so that the model learns what is missing.
    """
    if address.startswith(("http://", "https://")):
        return mimetypes.guess_type(urlsplit(address).path)[0], None
    if address.startswith("data:"):
        head, _, encoded = address.removeprefix("data:").partition(",")
        media_type, *flags = head.split(";")
        if "base64" not in flags:
            return media_type or None, unquote(encoded).encode()
        try:
            return media_type or None, b64decode(encoded, validate=True)
        except Base64Error:
            raise ModelRetry("The tool returned a data URL that is not valid Base64.") from None
    path = Path(unquote(urlsplit(address).path) if address.startswith("file:") else address)
    try:
        if path.stat().st_size > MEDIA_BYTES_MAX:
            raise ModelRetry(f"{path.name} is larger than {MEDIA_BYTES_MAX // 2**20} MiB.")
        return mimetypes.guess_type(path.name)[0], path.read_bytes()
    except OSError as error:
        reason = error.strerror or "it cannot be read"
        raise ModelRetry(f"The tool returned the file {path.name}: {reason}.") from error
