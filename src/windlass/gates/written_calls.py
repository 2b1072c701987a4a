"""Calls written as one line: `bash(git status)`, `send({"to": "ann@example.com"})`.

The examples of rules are written like this, and the calls that people ask a policy about. There is
no tool behind such a call: the arguments that it names are taken as all that the tool has.
"""

import re
from typing import Any

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.messages import Effect, ToolSpec
from windlass.gates.patterns import CORE_MAIN_ARGUMENTS, PreparedCall

READ_TOOLS = frozenset(["read", "glob", "grep", "fetch"])
"""The core tools that only read."""

_CALL_FORM = re.compile(r"([A-Za-z0-9_.-]+)(?:\((.*)\))?", re.DOTALL)


def parse_written_call(
    text: str,
    *,
    tool: str = "",
    argument: str = "",
    effect: Effect | None = None,
    root: str | None = None,
) -> PreparedCall:
    """Parse a call. If `tool` is given, a text that is not a call is its argument.

    `argument`: the name of that argument. `effect`: of the tool; by default that of the core tool
    of this name, or `write`. `root`: where relative paths start. Raises ConfigError.
    """
    name, arguments = _split_call(text, tool, argument)
    properties = {field: {"type": _json_type(value)} for field, value in arguments.items()}
    if effect is None:
        effect = "read" if name in READ_TOOLS else "write"
    spec = ToolSpec(name, "", {"type": "object", "properties": properties}, effect)
    return PreparedCall(spec, arguments, root)


def _split_call(text: str, tool: str, argument: str) -> tuple[str, dict[str, Any]]:
    form = _CALL_FORM.fullmatch(text.strip())
    if form is None or (tool and form[2] is None):
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", tool):
            raise ConfigError(f"{text!r} is not a call: write tool(argument), or tool({{…}})")
        return tool, {argument or CORE_MAIN_ARGUMENTS.get(tool.casefold(), "input"): text}
    name = form[1]
    inside = form[2]
    if not inside:
        return name, {}
    if inside.lstrip().startswith("{"):
        return name, _parse_arguments(text, inside)
    field = (argument if name == tool else "") or CORE_MAIN_ARGUMENTS.get(name.casefold(), "input")
    return name, {field: inside}


def _parse_arguments(text: str, inside: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(inside, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ConfigError(f"{text!r}: the arguments are not JSON: {error}") from None


def _json_type(value: object) -> str:
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"
