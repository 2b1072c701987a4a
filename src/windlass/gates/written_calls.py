"""Calls written in a line: `bash(git status)`, `send({"to": "ann@example.com"})`.

They are a rule's own examples, and what a person asks a policy about. No tool stands behind them,
so that the arguments given are taken for all that the tool has.
"""

import re
from typing import Any

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.messages import Effect, ToolSpec
from windlass.gates.patterns import CORE_MAIN_ARGUMENTS, PreparedCall

READ_TOOLS = frozenset(["read", "glob", "grep", "fetch"])
"""Those of the tools that everyone has which change nothing."""

_CALL_FORM = re.compile(r"([A-Za-z0-9_.-]+)(?:\((.*)\))?", re.DOTALL)


def parse_written_call(
    text: str,
    *,
    tool: str = "",
    argument: str = "",
    effect: Effect | None = None,
    root: str | None = None,
) -> PreparedCall:
    """Read a call. Text that is none is the argument of `tool`, if one is given."""
    name, arguments = _split_call(text, tool, argument)
    fields = {one: {"type": _json_type(value)} for one, value in arguments.items()}
    known: Effect = "read" if name in READ_TOOLS else "write"
    spec = ToolSpec(name, "", {"type": "object", "properties": fields}, effect or known)
    return PreparedCall(spec, arguments, root)


def _split_call(text: str, tool: str, argument: str) -> tuple[str, dict[str, Any]]:
    form = _CALL_FORM.fullmatch(text.strip())
    if form is None or (tool and form[2] is None):
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", tool):
            raise ConfigError(f"{text!r} is no call: write tool(argument), or tool({{…}})")
        return tool, {argument or CORE_MAIN_ARGUMENTS.get(tool.casefold(), "input"): text}
    name, inside = form[1], form[2]
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
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"
