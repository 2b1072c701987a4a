"""Tools that were written for Qwen-Agent, as tools of an agent here.

A tool of Qwen-Agent is a class with a name, a description, parameters (a list or a JSON Schema) and
`call(params)`, which gets its arguments as JSON text. Nothing of Qwen-Agent is imported.
"""

import inspect
import json
import mimetypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Unpack, cast

from windlass.core.errors import ConfigError
from windlass.core.messages import ContentPart, ImagePart, TextPart
from windlass.tools.function import Tool, ToolTraits
from windlass.tools.schemas import ParameterList


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
        case {"image": str(url)} if len(given) == 1 and url.startswith(("http://", "https://")):
            return ImagePart(mimetypes.guess_type(url)[0] or "image/png", url=url)
        case _:
            return None
