"""Many tools behind two: the model searches for a tool, and calls it by its name.

Invariant: which tools a model is offered never changes within a run, so that prompt caches hold;
and the gate, the record and the limits see the call that is inside `call_tool`. Only the
transcript keeps what is around it, because the model must find its own words there.
"""

import msgspec
from msgspec.structs import replace

from windlass.core.messages import ToolCall, ToolSpec

SEARCH_TOOLS = "search_tools"
CALL_TOOL = "call_tool"

SEARCH_SPEC = ToolSpec(
    SEARCH_TOOLS,
    "Find tools by what they do. Returns their names, descriptions and parameters. There are many "
    "tools that are not listed here: search before you say that something cannot be done.",
    {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What the tool should do, in a few words."}
        },
        "required": ["query"],
        "additionalProperties": False,
    },
    "read",
)
CALL_SPEC = ToolSpec(
    CALL_TOOL,
    f"Call a tool that {SEARCH_TOOLS} found, with the arguments that its parameters describe.",
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "The name of the tool."},
            "arguments": {"type": "object", "description": "The arguments of the tool."},
        },
        "required": ["name", "arguments"],
    },
)


class WrappedCall(msgspec.Struct, frozen=True, gc=False):
    """The arguments of `call_tool`."""

    name: str
    arguments: msgspec.Raw
    """Kept as it is written: numbers stay exact."""


_decode_wrapped = msgspec.json.Decoder(WrappedCall).decode


def unwrap_call(call: ToolCall) -> ToolCall:
    """Return the call that is inside a call of `call_tool`; the same call if there is none."""
    if call.name != CALL_TOOL:
        return call
    try:
        inside = _decode_wrapped(call.arguments)
        text = bytes(inside.arguments).decode()
        if text.startswith('"'):
            # Some models write the arguments as text, as they do for calls themselves.
            text = msgspec.json.decode(text, type=str)
    except (msgspec.MsgspecError, UnicodeError):
        return call
    if not text.startswith("{"):
        return call
    return ToolCall(call.id, inside.name, text)


def rewrap_call(outer: ToolCall, inner: ToolCall, arguments: str) -> ToolCall:
    """Return the call as the model made it, with the arguments of the inner call that ran."""
    if arguments == inner.arguments:
        return outer
    name = msgspec.json.encode(inner.name).decode()
    return replace(outer, arguments=f'{{"name":{name},"arguments":{arguments}}}')
