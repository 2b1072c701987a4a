"""A call as a question that a person can answer: "Refund 1200 USD for order 7?".

The words come from the tool's own template, or from its name and its most telling arguments. They
only introduce the call: a question is always shown with all arguments.
"""

from collections.abc import Mapping
from typing import Any

from windlass.core.messages import ToolSpec
from windlass.core.text_clip import reveal_line

VALUE_CHARS_MAX = 80
SCALARS_MAX = 3
"""How many plain arguments are named, if none of them tells what the call is about."""
TELLING = ("command", "path", "file", "url", "to", "query", "task", "name", "title")
"""Names of arguments that say by themselves what a call is about, the most telling first."""


def phrase_call(spec: ToolSpec, arguments: Mapping[str, Any]) -> str:
    """Return what a person is asked about a call, in one line."""
    if spec.question:
        declared: Mapping[str, Any] = spec.parameters.get("properties", {})
        known = {name: node["default"] for name, node in declared.items() if "default" in node}
        # A number stays one, for templates such as `{amount:,}`.
        values = {
            name: value if isinstance(value, int | float) else _show(value)
            for name, value in {**known, **arguments}.items()
        }
        try:
            return spec.question.format_map(values)
        except (KeyError, IndexError, ValueError, AttributeError):
            # The call leaves an argument out that the template names.
            pass
    verb = spec.name.rpartition("__")[2].replace("_", " ").strip() or spec.name
    verb = f"{verb[:1].upper()}{verb[1:]}"
    for name in TELLING:
        if isinstance(arguments.get(name), str) and arguments[name]:
            lead = {"command": "Run", "to": f"{verb} to"}.get(name, verb)
            return f"{lead} {_show(arguments[name])}?"
    plain = [
        f"{name} {_show(value)}"
        for name, value in arguments.items()
        if isinstance(value, str | int | float) and not isinstance(value, bool) and value != ""
    ]
    return f"{verb}: {', '.join(plain[:SCALARS_MAX])}?" if plain else f"{verb}?"


def _show(value: object) -> str:
    """Return a value as part of a line: short, and without characters that cannot be seen."""
    text = reveal_line(value if isinstance(value, str) else str(value))
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[: VALUE_CHARS_MAX - 1]}…"
