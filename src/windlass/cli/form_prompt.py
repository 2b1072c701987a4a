"""A form that a person fills in at the terminal, field by field.

Invariant: the form checks what is typed at once, so that a person can correct it. The names and
texts of the fields may come from a stranger, and are shown with nothing hidden.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.schema import JsonSchema
from windlass.core.schema_faults import find_faults
from windlass.core.text_clip import reveal_line

ReadLine = Callable[[str, str], Awaitable[str | None]]
"""Reads a line behind a label, with a default in it; None if the person gives up."""
ABOUT_CHARS_MAX = 200
_WORDS = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}


async def fill_form(
    form: Mapping[str, Any], read_line: ReadLine, show_error: Callable[[str], None]
) -> dict[str, Any] | None:
    """Return the values that a person types; None if they give up. Empty fields are left out."""
    fields = cast("Mapping[str, dict[str, Any]]", form.get("properties", {}))
    required = form.get("required", ())
    values: dict[str, Any] = {}
    for name, field in fields.items():
        is_required = name in required
        about = str(field.get("description") or field.get("title") or "")
        options = _list_options(field.get("items", field))
        parts = [name, about, options, "" if is_required else "may be empty"]
        shown = ", ".join(part for part in parts if part)
        label = reveal_line(shown)[:ABOUT_CHARS_MAX]
        default = _format_value(field.get("default", ""))
        while True:
            typed = await read_line(label, default)
            if typed is None:
                return None
            if not typed.strip() and name not in required:
                break
            try:
                values[name] = read_value(field, typed)
                break
            except ValueError as error:
                show_error(str(error))
    return values


def read_value(field: Mapping[str, Any], typed: str) -> Any:  # noqa: ANN401 - what the field takes
    """Return the value of what was typed. Raises ValueError, in words, if it does not fit."""
    kind = field.get("type")
    if kind == "array":
        choices = _list_choices(field.get("items", {}))
        items = [item.strip() for item in typed.split(",") if item.strip()]
        value: Any = [choices.get(item.casefold(), item) for item in items]
    elif kind == "boolean":
        value = _WORDS.get(typed.strip().casefold(), typed)
    elif kind in ("integer", "number"):
        value = _read_number(typed.strip())
    else:
        text = typed.strip()
        value = _list_choices(field).get(text.casefold(), text)
    try:
        schema = JsonSchema(dict(field))
    except ConfigError as error:
        raise ValueError(f"this field cannot be filled in: {error}") from None
    if schema.accepts(value):
        return value
    raise ValueError("; ".join(fault.message for fault in find_faults(schema, value)))


def _read_number(typed: str) -> float | int | str:
    for read in (int, float):
        try:
            return read(typed)
        except ValueError:
            continue
    return typed


def _list_choices(field: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of a choice by their titles, and by themselves, in lower case."""
    values = [str(value) for value in field.get("enum", ())]
    titles = [str(title) for title in field.get("enumNames", ())]
    named = dict(zip(titles, values, strict=False))
    for option in (*field.get("oneOf", ()), *field.get("anyOf", ())):
        value = str(option.get("const", ""))
        values.append(value)
        named[str(option.get("title", value))] = value
    # A value counts before a title: a title may be another one's value.
    choices = {title.casefold(): value for title, value in named.items()}
    return {**choices, **{value.casefold(): value for value in values}}


def _list_options(field: Mapping[str, Any]) -> str:
    if field.get("type") == "boolean":
        return "yes or no"
    named = [option.get("title", option.get("const")) for option in field.get("oneOf", ())]
    named += [option.get("title", option.get("const")) for option in field.get("anyOf", ())]
    named = named or [*field.get("enumNames", ())] or [*field.get("enum", ())]
    return " | ".join(map(str, named))


def _format_value(value: object) -> str:
    match value:
        case str():
            return value
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(map(str, cast("list[object]", value)))
        case _:
            return msgspec.json.encode(value).decode()
